// The four loops of STREAM (McCalpin 1995) over one thread's part of three arrays.
//
//     copy  c = a     scale  b = s c     add  c = a + b     triad  a = b + s c           s = 3
//
// All spans of a call are equally long and distinct. No store goes around the caches: loops are written so that compilers
// cannot make calls of them that would.
#pragma once

#include <span>
#include <string>

namespace outcrop {

inline constexpr double stream_scalar = 3.0;

void stream_copy(std::span<const double> a, std::span<double> c);
void stream_scale(std::span<const double> c, std::span<double> b);
void stream_add(std::span<const double> a, std::span<const double> b, std::span<double> c);
void stream_triad(std::span<const double> b, std::span<const double> c, std::span<double> a);

/// One of them: what it reads, in the order above, and what it writes. Loops that read one array leave `second` alone.
using StreamLoop = void (*)(std::span<const double> first, std::span<const double> second, std::span<double> result);

/// "copy", "scale", "add" or "triad". Throws InputError for anything else.
StreamLoop find_stream_loop(const std::string &name);

}  // namespace outcrop
