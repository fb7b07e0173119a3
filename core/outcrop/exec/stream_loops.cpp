#include "outcrop/exec/stream_loops.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

#include "outcrop/base/error.hpp"

namespace outcrop {

// Cache line by cache line, with a statement between that keeps the compiler from calling the C library's copy: of arrays as
// long as these that goes around the caches.
void stream_copy(std::span<const double> a, std::span<double> c) {
  std::array<double, 8> line;
  const std::size_t whole = a.size() / line.size() * line.size();
  for (std::size_t i = 0; i < whole; i += line.size()) {
    std::memcpy(line.data(), &a[i], sizeof line);
    std::memcpy(&c[i], line.data(), sizeof line);
    asm volatile("");
  }
  for (std::size_t i = whole; i < a.size(); ++i) c[i] = a[i];
}

void stream_scale(std::span<const double> c, std::span<double> b) {
  const double *__restrict from = c.data();
  double *__restrict to = b.data();
  for (std::size_t i = 0; i < b.size(); ++i) to[i] = stream_scalar * from[i];
}

void stream_add(std::span<const double> a, std::span<const double> b, std::span<double> c) {
  const double *__restrict one = a.data(), *__restrict other = b.data();
  double *__restrict to = c.data();
  for (std::size_t i = 0; i < c.size(); ++i) to[i] = one[i] + other[i];
}

void stream_triad(std::span<const double> b, std::span<const double> c, std::span<double> a) {
  const double *__restrict one = b.data(), *__restrict other = c.data();
  double *__restrict to = a.data();
  for (std::size_t i = 0; i < a.size(); ++i) to[i] = one[i] + stream_scalar * other[i];
}

namespace {

using Read = std::span<const double>;
using Written = std::span<double>;

struct Named {
  const char *name;
  StreamLoop loop;
};

constexpr Named loops[] = {
    {"copy", [](Read a, Read, Written c) { stream_copy(a, c); }},
    {"scale", [](Read c, Read, Written b) { stream_scale(c, b); }},
    {"add", [](Read a, Read b, Written c) { stream_add(a, b, c); }},
    {"triad", [](Read b, Read c, Written a) { stream_triad(b, c, a); }},
};

}  // namespace

StreamLoop find_stream_loop(const std::string &name) {
  const auto *const found =
      std::find_if(std::begin(loops), std::end(loops), [&](const Named &one) { return one.name == name; });
  if (found == std::end(loops)) throw InputError("no such loop of STREAM: " + name);
  return found->loop;
}

}  // namespace outcrop
