// The table of functions of transport.h around a class: exceptions become the failure of that rank.
//
// It uses transport.h and nothing else of the project: files with MPI are compiled wherever an MPI turns up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>

#include "outcrop/aggregate/transport/transport.h"

namespace outcrop::aggregate {

/// Fills in the functions, of a class that has them by the same names; they throw where the transport fails. `fail` keeps
/// the text for `failure`; `close` is called last.
template <typename Ranks>
void fill_table(outcrop_transport &table, Ranks *ranks) {
  const auto guarded = []<typename Call>(void *self, Call call) noexcept {
    Ranks &own = *static_cast<Ranks *>(self);
    try {
      call(own);
      return 0;
    } catch (const std::exception &error) {
      own.fail(error.what());
      return 1;
    }
  };
  static constexpr auto guard = guarded;
  table.self = ranks;
  table.send = [](void *self, const void *data, size_t bytes, int to, int tag, outcrop_request *request) {
    *request = 0;
    return guard(self, [&](Ranks &own) { *request = own.send(static_cast<const std::byte *>(data), bytes, to, tag); });
  };
  table.receive = [](void *self, void *data, size_t bytes, int from, int tag, outcrop_request *request) {
    *request = 0;
    return guard(self, [&](Ranks &own) { *request = own.receive(static_cast<std::byte *>(data), bytes, from, tag); });
  };
  table.wait = [](void *self, outcrop_request *requests, size_t count) {
    return guard(self, [&](Ranks &own) { own.wait({requests, count}); });
  };
  table.test = [](void *self, outcrop_request *requests, size_t count, int *done) {
    return guard(self, [&](Ranks &own) { *done = own.test({requests, count}) ? 1 : 0; });
  };
  table.gather_all = [](void *self, const void *mine, size_t bytes, void *all) {
    return guard(self, [&](Ranks &own) { own.gather_all(mine, bytes, all); });
  };
  table.gather_all_sizes = [](void *self, const void *mine, const uint64_t *sizes, void *all) {
    return guard(self, [&](Ranks &own) { own.gather_all_sizes(mine, sizes, all); });
  };
  table.barrier = [](void *self) { return guard(self, [](Ranks &own) { own.barrier(); }); };
  table.abandon = [](void *self) { return static_cast<Ranks *>(self)->abandon() ? 0 : 1; };
  table.error = [](void *self) { return static_cast<Ranks *>(self)->failure(); };
  table.free = [](void *self) { static_cast<Ranks *>(self)->close(); };
}

}  // namespace outcrop::aggregate
