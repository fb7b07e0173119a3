// What users set: by arguments, by MPI info hints, by the environment, in this order; else defaults.
//
//     argument           default
//     tier               any: the cost decides
//     persistence        process
//     buffer             16 MiB
//     buffers            2
//     count              aggregators: the cost decides
//     hosts              all, any number of aggregators on each
//     stage              none: writes go straight to the file
//     stage_bytes        what the stage's file system has
//     stage_persistence  job: of a stage that is chosen
//     seconds_between    0: of computing between steps
//     reads_back         0: times that a step is read again
//     machine            none: a file that says what nodes are like (machine_file.hpp)
//     target             . : a folder where files will be
//     topology           none: a file that says where ranks are (rank_places.hpp)
//     transport          messages: between nodes; or rma, where that works
//     reads_only         false: ranks may declare the same bytes; such a plan refuses to write
//     own_run_bytes      where it pays: each rank writes its own where runs of all have that length in the mean; 0: never
//     seconds_most       0: in which a rank that waits for others gives up; 0: never
//
// Hints have the same names after outcrop_agg_, variables after OUTCROP_AGG_ in capitals; buffer, count and hosts are also
// cb_buffer_size, cb_nodes and cb_config_list.
//
// A stage is a folder, or "auto": on a tier of the machine that lasts as long as stage_persistence, if that is predicted to
// take less time than writing straight to the file, by seconds_between and reads_back (staging.hpp).
//
// The names that begin with cb_ are ROMIO's and mean what they mean there. As MPI has it, a hint that nobody knows is
// no error; an argument is, and so is a variable that begins with OUTCROP_AGG_.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "outcrop/aggregate/placement/placement.hpp"

namespace outcrop::aggregate {

/// A value and where it is from: "argument tier", "hint cb_nodes", "OUTCROP_AGG_COUNT" or "default".
template <typename Value>
struct Setting {
  Value value;
  std::string origin = "default";
  bool is_set() const { return origin != "default"; }
};

struct Settings {
  Setting<std::string> tier{{}};  ///< empty: any
  Setting<Persistence> persistence{Persistence::process};
  Setting<std::uint64_t> buffer_bytes{16U << 20};
  Setting<std::uint32_t> buffers{2};
  Setting<std::uint32_t> count{0};  ///< aggregators; 0: as many as cost least
  Setting<std::string> hosts{{}};   ///< as ROMIO's cb_config_list; empty: all
  Setting<std::string> stage{{}};   ///< a folder on a tier of this node; empty: none
  Setting<std::uint64_t> stage_bytes{0};
  Setting<Persistence> stage_persistence{Persistence::job};  ///< of one that is chosen, at least
  Setting<double> seconds_between{0};
  Setting<double> reads_back{0};
  Setting<std::string> machine{{}};  ///< empty: none
  Setting<std::string> target{"."};
  Setting<std::string> topology{{}};           ///< empty: none
  Setting<std::string> transport{"messages"};  ///< between nodes; or "rma", where that works
  Setting<bool> reads_only{false};             ///< ranks may declare the same bytes; such a plan refuses to write
  Setting<std::uint64_t> own_run_bytes{0};     ///< as PlanOptions has it, where it is set
  Setting<double> seconds_most{0};             ///< in which a rank that waits for others gives up; 0: never

  bool chooses_stage() const { return stage.value == "auto"; }
};

using Texts = std::map<std::string, std::string>;

/// Throws InputError for an argument or a variable that is unknown, and for a value that is wrong wherever it is from.
Settings read_settings(const Texts &arguments, const Texts &hints, const Texts &environment);

/// How many aggregators each node may have, by a list of "host:number" or "*:number", "*" for any number of them too;
/// the first entry that names a host counts, a host that none names has none. Throws InputError for what is no such
/// list.
std::vector<std::uint32_t> most_on_nodes(const std::string &list, std::span<const std::string> hosts);

/// Bytes of "64MiB", "64M", "1.5GB" (decimal) or a plain number. Throws InputError, which begins with `what`.
std::uint64_t parse_bytes(const std::string &text, const std::string &what);

Wishes to_wishes(const Settings &settings);

/// "tier by OUTCROP_AGG_TIER": a line for each that is not the default.
std::vector<std::string> origins(const Settings &settings);

/// What ranks that make a plan together must not differ in, in words: all but a stage's folder and bytes, which each node
/// has its own of.
std::string alike(const Settings &settings);

}  // namespace outcrop::aggregate
