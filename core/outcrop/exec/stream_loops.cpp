#include "outcrop/exec/stream_loops.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

#include "outcrop/base/error.hpp"

namespace outcrop {
namespace {

// `second` is of no use to loops that read one array.
using Loop = void (*)(const double *first, const double *second, double *result, std::size_t count);

// Cache line by cache line, with a statement between that keeps the compiler from calling the C library's copy: of arrays as
// long as these that goes around the caches.
[[gnu::always_inline]] inline void copy(const double *__restrict first, double *__restrict result, std::size_t count) {
  std::array<double, 8> line;
  const std::size_t whole = count / line.size() * line.size();
  for (std::size_t i = 0; i < whole; i += line.size()) {
    std::memcpy(line.data(), &first[i], sizeof line);
    std::memcpy(&result[i], line.data(), sizeof line);
    asm volatile("");
  }
  for (std::size_t i = whole; i < count; ++i) result[i] = first[i];
}

[[gnu::always_inline]] inline void scale(const double *__restrict first, double *__restrict result, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) result[i] = stream_scalar * first[i];
}

[[gnu::always_inline]] inline void add(const double *__restrict first, const double *__restrict second,
                                       double *__restrict result, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) result[i] = first[i] + second[i];
}

[[gnu::always_inline]] inline void triad(const double *__restrict first, const double *__restrict second,
                                         double *__restrict result, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) result[i] = first[i] + stream_scalar * second[i];
}

struct Loops {
  Loop copy, scale, add, triad;
};

constexpr Loops plain_loops{
    [](const double *a, const double *, double *c, std::size_t n) { copy(a, c, n); },
    [](const double *c, const double *, double *b, std::size_t n) { scale(c, b, n); },
    [](const double *a, const double *b, double *c, std::size_t n) { add(a, b, c, n); },
    [](const double *b, const double *c, double *a, std::size_t n) { triad(b, c, a, n); },
};

#if defined(__x86_64__)
// Stores of 16 bytes limit a core before fast memories do; longer ones than these change nothing.
__attribute__((target("avx2"))) void copy_avx2(const double *a, const double *, double *c, std::size_t n) {
  copy(a, c, n);
}
__attribute__((target("avx2"))) void scale_avx2(const double *c, const double *, double *b, std::size_t n) {
  scale(c, b, n);
}
__attribute__((target("avx2"))) void add_avx2(const double *a, const double *b, double *c, std::size_t n) {
  add(a, b, c, n);
}
__attribute__((target("avx2"))) void triad_avx2(const double *b, const double *c, double *a, std::size_t n) {
  triad(b, c, a, n);
}
constexpr Loops avx2_loops{copy_avx2, scale_avx2, add_avx2, triad_avx2};
#endif

const Loops &loops_of_this_processor() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return avx2_loops;
#endif
  return plain_loops;
}

using Read = std::span<const double>;
using Written = std::span<double>;

struct Named {
  const char *name;
  StreamLoop loop;
};

constexpr Named named_loops[] = {
    {"copy", [](Read a, Read, Written c) { stream_copy(a, c); }},
    {"scale", [](Read c, Read, Written b) { stream_scale(c, b); }},
    {"add", [](Read a, Read b, Written c) { stream_add(a, b, c); }},
    {"triad", [](Read b, Read c, Written a) { stream_triad(b, c, a); }},
};

}  // namespace

void stream_copy(std::span<const double> a, std::span<double> c) {
  loops_of_this_processor().copy(a.data(), nullptr, c.data(), c.size());
}

void stream_scale(std::span<const double> c, std::span<double> b) {
  loops_of_this_processor().scale(c.data(), nullptr, b.data(), b.size());
}

void stream_add(std::span<const double> a, std::span<const double> b, std::span<double> c) {
  loops_of_this_processor().add(a.data(), b.data(), c.data(), c.size());
}

void stream_triad(std::span<const double> b, std::span<const double> c, std::span<double> a) {
  loops_of_this_processor().triad(b.data(), c.data(), a.data(), a.size());
}

StreamLoop find_stream_loop(const std::string &name) {
  const auto *const found =
      std::find_if(std::begin(named_loops), std::end(named_loops), [&](const Named &one) { return one.name == name; });
  if (found == std::end(named_loops)) throw InputError("no such loop of STREAM: " + name);
  return found->loop;
}

}  // namespace outcrop
