"""The recipes of exp, log, powers and tanh.

exp     x = n ln 2 + r with a whole number n and |r| <= ln 2 / 2. Then exp(x) = 2^n (1 + r + r^2 q(r)).
log     x = 2^e m with m from sqrt(1/2) to sqrt(2). With f = m - 1 and s = f / (2 + f), log(m) = 2 artanh(s), which is
        2 s + s R(s^2). Because 2 s = f - s f, and s f = f^2 / 2 - s f^2 / 2, the large part f has no rounding error:
        log(m) = f - (f^2 / 2 - s (f^2 / 2 + R)).
power   exp(b log(a)), with about twice the digits in log(a) and in the product. A rounding error of the logarithm
        would be multiplied by the exponent of the result.
tanh    A polynomial for |x| < 9/16, otherwise 1 - 2 / (exp(2 |x|) + 1).

The product of n and the first part of ln 2 is exact: this part has as many zero bits at its end as n has digits.
"""

from __future__ import annotations

from outcrop.language.functions.arithmetic import Arithmetic, Value

_EXP_ENDS = {"float32": (-104.0, 89.0), "float64": (-746.0, 710.0)}
"""For all smaller arguments, exp is 0. For all larger arguments, exp is infinite."""

_TANH_POLYNOMIAL, _TANH_END = 0.5625, 20.0
"""Up to the first number, the polynomial is used. From the second number on, tanh is 1."""


def exp(m: Arithmetic, x: Value) -> Value:
    low, high = _EXP_ENDS[m.dtype]
    x = m.where(x, m.number(high), m.number(high), x)
    x = m.where(m.number(low), x, m.number(low), x)
    return _exp(m, x, m.number(0.0))


def _exp(m: Arithmetic, x: Value, low: Value) -> Value:
    """Return exp(x + low) for x between the numbers of _EXP_ENDS. `low` is smaller than the last digit of x."""
    first, second = map(m.number, m.constants.LN2)
    n = m.nearest(x * m.number(m.constants.LOG2_E))
    rest = x - n * first
    small = n * second - low
    r = rest - small
    lost = (rest - r) - small
    result = m.number(1.0) + (r + (lost + r * r * m.polynomial(m.constants.EXP, r)))
    half, half_bits = m.rounded(n * m.number(0.5))  # 2^n can be too large or too small, although the result is not
    return result * m.power_of_two(half_bits) * m.power_of_two(m.last_bits(n - half))


def _split(m: Arithmetic, x: Value) -> tuple[Value, Value]:
    """Return e and m with x = 2^e m and m from sqrt(1/2) to sqrt(2), for positive finite x."""
    scale = float(m.format.digits + 2)
    smallest = m.number(m.format.smallest)
    moved = m.where(smallest, x, x * m.number(2.0**scale), x)
    start = m.where(smallest, x, m.number(scale + m.format.bias), m.number(float(m.format.bias)))
    root = _bits_of(m, m.constants.ROOT_HALF)
    bits = m.bits(moved) + m.whole(m.format.one - root)
    exponent = m.from_whole(bits >> m.whole(m.format.digits)) - start
    return exponent, m.from_bits((bits & m.whole(m.format.mantissa)) + m.whole(root))


def _bits_of(m: Arithmetic, value: float) -> int:
    """Return the bits of a number from 1/2 to 1, as a whole number."""
    return int((value * 2 - 1) * 2.0**m.format.digits) + (m.format.bias - 1 << m.format.digits)


def log(m: Arithmetic, x: Value) -> Value:
    first, second = map(m.number, m.constants.LN2)
    e, mantissa = _split(m, x)
    f = mantissa - m.number(1.0)
    s = f / (m.number(2.0) + f)
    z = s * s
    square = m.number(0.5) * f * f
    tail = s * (square + z * m.polynomial(m.constants.LOG, z)) + e * second
    result = e * first - ((square - tail) - f)
    zero = m.number(0.0)
    undefined = m.where_equal(x, zero, m.number(-float("inf")), m.number(float("nan")))
    return m.where(x, zero, m.where(x, m.number(m.format.largest), x, result), undefined)


def tanh(m: Arithmetic, x: Value) -> Value:
    size = m.abs(x)
    end = m.number(_TANH_END)
    z = x * x
    near = size + size * z * m.polynomial(m.constants.TANH, z)
    double = m.where(size, end, end, size) * m.number(2.0)
    far = m.number(1.0) - m.number(2.0) / (_exp(m, double, m.number(0.0)) + m.number(1.0))
    return m.with_sign(m.where(size, m.number(_TANH_POLYNOMIAL), far, near), m.sign_bit(x))


def power(m: Arithmetic, a: Value, b: Value) -> Value:
    """Return a^b. The special cases are those of the function pow in C."""
    zero, one, infinity = m.number(0.0), m.number(1.0), m.number(float("inf"))
    size, exponent = m.abs(a), m.abs(b)
    log_high, log_low = _precise_log(m, size)
    # For larger exponents, the result is 0, 1 or infinite. With the limit, no product overflows.
    end = m.number(2.0 ** (m.format.digits + m.format.bits // 4))
    limited = m.where(exponent, end, end, exponent)
    limited = m.with_sign(limited, m.sign_bit(b))
    product, rest = m.exact_product(limited, log_high)
    rest = rest + limited * log_low
    high, low = m.ordered_sum(product, rest)
    lowest, highest = _EXP_ENDS[m.dtype]
    low = m.where(m.abs(high), m.number(-lowest), zero, low)
    high = m.where(high, m.number(highest), m.number(highest), high)
    high = m.where(m.number(lowest), high, m.number(lowest), high)
    result = _exp(m, high, low)
    # the limits of the size: 0 and infinity
    grows = m.where(b, zero, infinity, zero)
    shrinks = m.where(b, zero, zero, infinity)
    result = m.where_equal(size, infinity, grows, result)
    result = m.where_equal(size, zero, shrinks, result)
    # Numbers from 2^digits on are whole, and even from 2^(digits + 1) on.
    large = m.number(2.0 ** (m.format.digits + 1))
    small = m.where(exponent, large, zero, exponent)
    half = small * m.number(0.5)
    whole_part, half_part = _rounded_down(m, small), _rounded_down(m, half)
    is_odd = m.where_equal(whole_part, small, m.where_equal(half_part, half, zero, one), zero)
    sign = m.bits(m.where(is_odd, zero, m.number(-0.0), zero)) & m.sign_bit(a)
    result = m.with_sign(result, sign)
    negative = m.where_equal(whole_part, small, result, m.number(float("nan")))
    negative = m.where(exponent, m.number(m.format.largest), result, negative)
    negative = m.where_equal(size, infinity, result, negative)
    result = m.where(zero, a, negative, result)
    # NaN, and the cases in which the result is 1 even if the other number is NaN or infinite
    result = m.where_equal(a, a, result, a)
    result = m.where_equal(b, b, result, b)
    result = m.where_equal(size, one, m.where(exponent, m.number(m.format.largest), one, result), result)
    result = m.where_equal(b, zero, one, result)
    return m.where_equal(a, one, one, result)


def _rounded_down(m: Arithmetic, x: Value) -> Value:
    """Return the largest whole number up to x, for x from 0 to 2^(digits + 1)."""
    unit = m.number(2.0**m.format.digits)
    near = (x + unit) - unit
    near = m.where(near, x, near - m.number(1.0), near)
    return m.where(x, unit, x, near)


def _precise_log(m: Arithmetic, x: Value) -> tuple[Value, Value]:
    """Return the logarithm of a positive finite number as a sum of two numbers.

    The logarithm of the mantissa is 2 s (1 + z / 3 + z^2 W(z)) with z = s^2. Numbers that need more digits than a
    mantissa has are kept as sums of two numbers: s, z, 1 / 3 + z W(z) and the products of these numbers.
    """
    one, two = m.number(1.0), m.number(2.0)
    e, mantissa = _split(m, x)
    f = mantissa - one
    below, below_low = m.ordered_sum(two, f)
    s = f / below
    product, rest = m.exact_product(s, below)
    s_low = (((f - product) - rest) - s * below_low) / below
    z, z_low = m.exact_product(s, s)
    z_low = z_low + two * s * s_low
    third, third_low = map(m.number, m.constants.THIRD)
    u, u_low = m.ordered_sum(third, z * m.polynomial(m.constants.POW, z))
    u_low = u_low + third_low
    p, p_low = m.exact_product(z, u)
    p_low = p_low + (z * u_low + z_low * u)
    # 2 s (1 + p)
    twice, twice_low = two * s, two * s_low
    t, t_low = m.exact_product(twice, p)
    t_low = t_low + (twice * p_low + twice_low * p)
    own, own_low = m.ordered_sum(twice, t)
    own_low = own_low + (t_low + twice_low)
    first, second = map(m.number, m.constants.LN2)
    high, low = m.exact_sum(e * first, own)
    low = low + (own_low + e * second)
    return m.ordered_sum(high, low)
