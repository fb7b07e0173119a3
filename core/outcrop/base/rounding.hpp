// Sets the floating-point mode on which results depend: round to nearest, keep subnormal numbers. Some libraries, such
// as Devito's operators, change the mode and do not restore it. New threads inherit the mode. If such a library runs in
// the same process, it must not change the results.
#pragma once

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include <cstdint>

namespace outcrop {

/// Sets the floating-point mode of this thread to the default mode of IEEE 754. The destructor restores the previous
/// mode.
class StandardRounding {
 public:
  StandardRounding() : before_(read()) { write(standard); }
  ~StandardRounding() { write(before_); }
  StandardRounding(const StandardRounding &) = delete;
  StandardRounding &operator=(const StandardRounding &) = delete;

  /// Sets the floating-point mode of this thread permanently to the default mode of IEEE 754.
  static void restore() { write(standard); }

 private:
#if defined(__SSE__)
  using Word = unsigned;
  static constexpr Word standard = 0x1F80;  // all exceptions masked
  static Word read() { return _mm_getcsr(); }
  static void write(Word word) { _mm_setcsr(word); }
#elif defined(__aarch64__)
  using Word = std::uint64_t;
  static constexpr Word standard = 0;
  static Word read() {
    Word word;
    asm volatile("mrs %0, fpcr" : "=r"(word));
    return word;
  }
  static void write(Word word) { asm volatile("msr fpcr, %0" : : "r"(word)); }
#else
  using Word = int;
  static constexpr Word standard = 0;
  static Word read() { return 0; }
  static void write(Word) {}
#endif

  const Word before_;
};

}  // namespace outcrop
