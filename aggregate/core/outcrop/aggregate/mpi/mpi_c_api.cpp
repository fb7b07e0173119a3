// This file defines the functions of outcrop_aggregate.h. Each handle owns a C++ object. Exceptions become error codes.
#include <unistd.h>

#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "outcrop/aggregate/file.hpp"
#include "outcrop/aggregate/mpi/mpi_two_sided.hpp"
#include "outcrop/aggregate/mpi/outcrop_aggregate.h"
#include "outcrop/aggregate/plan.hpp"
#include "outcrop/aggregate/sinks/node_files.hpp"
#include "outcrop/base/error.hpp"

using namespace outcrop;
using namespace outcrop::aggregate;

struct outcrop_agg_declaration {
  Declaration value;
};

namespace {
struct FreeTransport {
  void operator()(outcrop_transport *transport) const { transport->free(transport->self); }
};
}  // namespace

struct outcrop_agg_plan {
  // the plan uses the transport, so the transport is freed after the plan
  std::unique_ptr<outcrop_transport, FreeTransport> transport;
  std::optional<PlacedPlan> placed;
  std::string carried = "messages";  // the name of the transport between nodes (outcrop_agg_transport)
  std::string explanation;

  const Plan &value() const { return placed->plan(); }
};

struct outcrop_agg_file {
  outcrop_agg_plan *plan;
  aggregate::File value;
  std::string notes;
  std::string before;  // "staged " if steps are staged, otherwise empty

  void add(const std::string &what, const Timing &timing) const { plan->placed->add_measured(before + what, timing); }
};

struct outcrop_agg_operation {
  Operation value;
  outcrop_agg_plan *plan;
  std::string what;
};

namespace {

constexpr double seconds_of_probe = 20;

thread_local std::string failure;

int failed(int code, const char *text) noexcept {
  try {
    failure = text;
  } catch (const std::bad_alloc &) {
    failure.clear();
  }
  return code;
}

/// Calls call(). If call() throws an exception, guarded() returns the error code of this exception.
template <typename Call>
int guarded(Call call) noexcept {
  try {
    call();
    return OUTCROP_AGG_OK;
  } catch (const InputError &error) {
    return failed(OUTCROP_AGG_INPUT, error.what());
  } catch (const StorageError &error) {
    return failed(OUTCROP_AGG_STORAGE, error.what());
  } catch (const CorruptionError &error) {
    return failed(OUTCROP_AGG_STORAGE, error.what());
  } catch (const CommunicationError &error) {
    return failed(OUTCROP_AGG_COMMUNICATION, error.what());
  } catch (const std::bad_alloc &) {
    return failed(OUTCROP_AGG_MEMORY, "no memory");
  } catch (const std::exception &error) {
    return failed(OUTCROP_AGG_BUG, error.what());
  }
}

template <typename Handle>
Handle &given(Handle *handle, const char *what) {
  if (handle == nullptr) throw InputError(std::string(what) + " is NULL");
  return *handle;
}

std::vector<Extent> &variable_of(outcrop_agg_declaration *declaration, std::size_t variable) {
  std::vector<std::vector<Extent>> &variables = given(declaration, "the declaration").value.variables;
  if (variable >= variables.size())
    throw InputError("variable " + std::to_string(variable) + " is not declared: there are " +
                     std::to_string(variables.size()));
  return variables[variable];
}

std::unique_ptr<outcrop_transport, FreeTransport> open_transport(MPI_Comm communicator) {
  outcrop_transport *made = nullptr;
  char text[1024] = "";
  if (outcrop_open_mpi_transport(&communicator, 0, &made, text, sizeof text) != 0)
    throw InputError(std::string("the communicator cannot be used: ") + text);
  return std::unique_ptr<outcrop_transport, FreeTransport>(made);
}

Texts texts_of(MPI_Info hints) {
  Texts texts;
  int count = 0;
  if (hints == MPI_INFO_NULL) return texts;
  check(MPI_Info_get_nkeys(hints, &count), "reading hints");
  for (int i = 0; i < count; ++i) {
    char key[MPI_MAX_INFO_KEY + 1] = "";
    int length = 0, found = 0;
    check(MPI_Info_get_nthkey(hints, i, key), "reading hints");
    check(MPI_Info_get_valuelen(hints, key, &length, &found), "reading hints");
    std::string value(static_cast<std::size_t>(length) + 1, '\0');
    check(MPI_Info_get(hints, key, length, value.data(), &found), "reading hints");
    texts[key] = value.c_str();
  }
  return texts;
}

FileOptions options_of(outcrop_agg_plan &plan, int flags, bool writable) {
  if ((flags & ~(OUTCROP_AGG_DURABLE | OUTCROP_AGG_BUFFERED | OUTCROP_AGG_DIRECT | OUTCROP_AGG_WRITABLE |
                 OUTCROP_AGG_NODE_FILES)) != 0)
    throw InputError("flags " + std::to_string(flags) + " are unknown");
  if ((flags & OUTCROP_AGG_BUFFERED) != 0 && (flags & OUTCROP_AGG_DIRECT) != 0)
    throw InputError("a file is either buffered or direct: give one of OUTCROP_AGG_BUFFERED and OUTCROP_AGG_DIRECT");
  FileOptions options;
  options.durable = (flags & OUTCROP_AGG_DURABLE) != 0;
  options.node_files = (flags & OUTCROP_AGG_NODE_FILES) != 0;
  if ((flags & OUTCROP_AGG_BUFFERED) != 0) options.cache_mode = CacheMode::buffered;
  if ((flags & OUTCROP_AGG_DIRECT) != 0) options.cache_mode = CacheMode::direct;
  plan.placed->set_stage(options, writable);
  return options;
}

/// Returns one span for each variable. Each span has the address that the caller has passed, and the declared size. If
/// the caller has not passed an address, the span has size 0. The operation then reports this error to all ranks.
template <typename Byte, typename Address>
std::vector<std::span<Byte>> spans_of(const outcrop_agg_file &file, Address *const *memory) {
  std::vector<std::span<Byte>> spans;
  for (const std::uint64_t bytes : file.plan->value().memory_bytes()) {
    Address *const begin = memory == nullptr ? nullptr : memory[spans.size()];
    spans.emplace_back(static_cast<Byte *>(begin), begin == nullptr ? 0 : bytes);
  }
  return spans;
}

/// All ranks must call this function. If the user asks for one-sided communication (RMA), tests RMA. If the test
/// succeeds, later messages use RMA. Returns a text that names the transport in use.
std::string choose_transport(outcrop_transport &transport, const Setting<std::string> &setting) {
  if (setting.value != "rma") return "messages";
  char why[400] = "";
  const int outcome = outcrop_use_one_sided(&transport, 0, seconds_of_probe, why, sizeof why);
  if (outcome > 1) throw CommunicationError(why);
  return outcome == 0 ? "rma" : "messages, though " + setting.origin + " = rma: " + why;
}

outcrop_agg_file *opened(outcrop_agg_plan *plan, aggregate::File value, bool staged) {
  std::string notes;
  for (const std::string &note : value.notes()) notes += note + '\n';
  return new outcrop_agg_file{plan, std::move(value), std::move(notes), staged ? "staged " : ""};
}

void make_plan(MPI_Comm communicator, const outcrop_agg_declaration *declaration, MPI_Info hints,
               outcrop_agg_plan **made) {
  const Declaration nothing;
  auto plan = std::make_unique<outcrop_agg_plan>();
  plan->transport = open_transport(communicator);
  const Settings settings = agreed_settings(*plan->transport, {{}, texts_of(hints), settings_in_environment(environ)});
  plan->carried = choose_transport(*plan->transport, settings.transport);
  plan->placed = PlacedPlan::make(*plan->transport, declaration == nullptr ? nothing : declaration->value, settings);
  *made = plan.release();
}

}  // namespace

const char *outcrop_agg_error(void) { return failure.c_str(); }
const char *outcrop_agg_version(void) { return OUTCROP_VERSION; }

int outcrop_agg_declare(size_t variables, outcrop_agg_declaration **made) {
  return guarded([&] {
    auto declaration = std::make_unique<outcrop_agg_declaration>();
    declaration->value.variables.resize(variables);
    *made = declaration.release();
  });
}

int outcrop_agg_add_contiguous(outcrop_agg_declaration *declaration, size_t variable, uint64_t file_offset,
                               uint64_t bytes, uint64_t memory_offset) {
  return guarded([&] { variable_of(declaration, variable).push_back(contiguous(file_offset, bytes, memory_offset)); });
}

int outcrop_agg_add_strided(outcrop_agg_declaration *declaration, size_t variable, uint64_t file_offset, uint64_t count,
                            uint64_t block_bytes, uint64_t file_stride_bytes, uint64_t memory_offset,
                            uint64_t memory_stride_bytes) {
  return guarded([&] {
    Extent extent = strided(file_offset, count, block_bytes, file_stride_bytes, memory_stride_bytes);
    extent.memory_offset = memory_offset;
    variable_of(declaration, variable).push_back(nested(std::move(extent)));
  });
}

int outcrop_agg_add_subarray(outcrop_agg_declaration *declaration, size_t variable, int dims, const uint64_t *sizes,
                             const uint64_t *subsizes, const uint64_t *starts, uint64_t item_bytes,
                             uint64_t file_offset) {
  return guarded([&] {
    if (dims < 1) throw InputError("an array has at least one axis, not " + std::to_string(dims));
    const std::size_t axes = static_cast<std::size_t>(dims);
    variable_of(declaration, variable)
        .push_back(subarray({sizes, axes}, {subsizes, axes}, {starts, axes}, item_bytes, file_offset));
  });
}

void outcrop_agg_free_declaration(outcrop_agg_declaration **declaration) {
  delete *declaration;
  *declaration = nullptr;
}

int outcrop_agg_make_plan(MPI_Comm communicator, const outcrop_agg_declaration *declaration, MPI_Info hints,
                          outcrop_agg_plan **made) {
  return guarded([&] { make_plan(communicator, declaration, hints, made); });
}

int outcrop_agg_make_plan_f(MPI_Fint communicator, const outcrop_agg_declaration *declaration, MPI_Fint hints,
                            outcrop_agg_plan **made) {
  return outcrop_agg_make_plan(MPI_Comm_f2c(communicator), declaration, MPI_Info_f2c(hints), made);
}

int outcrop_agg_memory_bytes(const outcrop_agg_plan *plan, size_t variable, uint64_t *bytes) {
  return guarded([&] {
    const std::span<const std::uint64_t> sizes = given(plan, "the plan").value().memory_bytes();
    if (variable >= sizes.size()) throw InputError("variable " + std::to_string(variable) + " is not declared");
    *bytes = sizes[variable];
  });
}

const char *outcrop_agg_transport(const outcrop_agg_plan *plan) { return plan == nullptr ? "" : plan->carried.c_str(); }
const char *outcrop_agg_explain(outcrop_agg_plan *plan) {
  const int code = guarded([&] {
    outcrop_agg_plan &explained = given(plan, "the plan");
    explained.explanation = explained.placed->explain();
    if (explained.carried != "messages") explained.explanation += "between nodes: " + explained.carried + '\n';
  });
  return code == OUTCROP_AGG_OK ? plan->explanation.c_str() : "";
}

void outcrop_agg_free_plan(outcrop_agg_plan **plan) {
  delete *plan;
  *plan = nullptr;
}

int outcrop_agg_create(outcrop_agg_plan *plan, const char *path, int flags, outcrop_agg_file **made) {
  return guarded([&] {
    const Plan &value = given(plan, "the plan").value();
    const FileOptions options = options_of(*plan, flags, true);
    *made = opened(plan, aggregate::File::create(value, path == nullptr ? "" : path, options),
                   !options.stage_folder.empty());
  });
}

int outcrop_agg_open(outcrop_agg_plan *plan, const char *path, int flags, outcrop_agg_file **made) {
  return guarded([&] {
    const Plan &value = given(plan, "the plan").value();
    const bool writable = (flags & OUTCROP_AGG_WRITABLE) != 0;
    const FileOptions options = options_of(*plan, flags, writable);
    *made = opened(plan, aggregate::File::open(value, path == nullptr ? "" : path, writable, options),
                   writable && !options.stage_folder.empty());
  });
}

int outcrop_agg_write(outcrop_agg_file *file, const void *const *memory, uint64_t base) {
  return guarded([&] {
    aggregate::File &value = given(file, "the file").value;
    file->add("write", value.write(spans_of<const std::byte>(*file, memory), base));
  });
}

int outcrop_agg_read(outcrop_agg_file *file, void *const *memory, uint64_t base) {
  return guarded([&] {
    aggregate::File &value = given(file, "the file").value;
    file->add("read", value.read(spans_of<std::byte>(*file, memory), base));
  });
}

int outcrop_agg_begin_write(outcrop_agg_file *file, const void *const *memory, uint64_t base,
                            outcrop_agg_operation **made) {
  return guarded([&] {
    aggregate::File &value = given(file, "the file").value;
    *made = new outcrop_agg_operation{value.begin_write(spans_of<const std::byte>(*file, memory), base), file->plan,
                                      file->before + "write"};
  });
}

int outcrop_agg_begin_read(outcrop_agg_file *file, void *const *memory, uint64_t base, outcrop_agg_operation **made) {
  return guarded([&] {
    aggregate::File &value = given(file, "the file").value;
    *made = new outcrop_agg_operation{value.begin_read(spans_of<std::byte>(*file, memory), base), file->plan,
                                      file->before + "read"};
  });
}

int outcrop_agg_test(outcrop_agg_operation *operation, int *done) {
  return guarded([&] { *done = given(operation, "the operation").value.test() ? 1 : 0; });
}

int outcrop_agg_wait(outcrop_agg_operation **operation) {
  return guarded([&] {
    const std::unique_ptr<outcrop_agg_operation> ending(std::exchange(*operation, nullptr));
    given(ending.get(), "the operation").value.wait();
    ending->plan->placed->add_measured(ending->what, ending->value.timing());
  });
}

int outcrop_agg_flush(outcrop_agg_file *file) {
  return guarded([&] { given(file, "the file").value.flush(); });
}

int outcrop_agg_close(outcrop_agg_file **file) {
  return guarded([&] {
    const std::unique_ptr<outcrop_agg_file> ending(std::exchange(*file, nullptr));
    given(ending.get(), "the file").value.close();
  });
}

const char *outcrop_agg_notes(const outcrop_agg_file *file) { return file == nullptr ? "" : file->notes.c_str(); }

int outcrop_agg_merge(const char *index, const char *target) {
  return guarded([&] { merge(index == nullptr ? "" : index, target == nullptr ? "" : target); });
}
