// What users set: by arguments, by MPI info hints, by the environment, in this order; else defaults.
//
//     argument      hint                              variable                  default
//     tier          outcrop_agg_tier                  OUTCROP_AGG_TIER          any: the cost decides
//     persistence   outcrop_agg_persistence           OUTCROP_AGG_PERSISTENCE   process
//     buffer        outcrop_agg_buffer, cb_buffer_size  OUTCROP_AGG_BUFFER      16 MiB
//     buffers       outcrop_agg_buffers               OUTCROP_AGG_BUFFERS       2
//     count         outcrop_agg_count, cb_nodes       OUTCROP_AGG_COUNT         the cost decides
//     hosts         cb_config_list                                              all, any number on each
//     stage         outcrop_agg_stage                 OUTCROP_AGG_STAGE         none: writes go straight to the file
//     stage_bytes   outcrop_agg_stage_bytes           OUTCROP_AGG_STAGE_BYTES   what the stage's file system has
//     transport     outcrop_agg_transport             OUTCROP_AGG_TRANSPORT     messages
//
// The names that begin with cb_ are ROMIO's and mean what they mean there. As MPI has it, a hint that nobody knows is
// no error; an argument is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "outcrop/aggregate/placement.hpp"

namespace outcrop::aggregate {

/// A value and where it is from: "argument tier", "hint cb_nodes", "OUTCROP_AGG_COUNT" or "default".
template <typename Value>
struct Setting {
  Value value;
  std::string origin = "default";
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
  Setting<std::string> transport{"messages"};  ///< between nodes; or "rma", where that works
};

using Texts = std::map<std::string, std::string>;

/// Throws InputError for an argument that is unknown, and for a value that is wrong wherever it is from.
Settings read_settings(const Texts &arguments, const Texts &hints, const Texts &environment);

/// How many aggregators each node may have, by a list of "host:number" or "*:number", "*" for any number of them too;
/// the first entry that names a host counts, a host that none names has none. Throws InputError for what is no such
/// list.
std::vector<std::uint32_t> most_on_nodes(const std::string &list, std::span<const std::string> hosts);

/// Bytes of "64MiB", "64M", "1.5GB" (decimal) or a plain number. Throws InputError, which begins with `what`.
std::uint64_t parse_bytes(const std::string &text, const std::string &what);

Wishes to_wishes(const Settings &settings);

}  // namespace outcrop::aggregate
