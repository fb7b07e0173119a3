"""The recipes of the functions. First come exp, log, powers and tanh:

exp     x = n ln 2 + r with a whole number n and |r| <= ln 2 / 2. Then exp(x) = 2^n (1 + r + r^2 q(r)).
log     x = 2^e m with m from sqrt(1/2) to sqrt(2). Let f = m - 1 and s = f / (2 + f). Then log(m) = 2 artanh(s) = 2 s +
        s R(s^2). Because 2 s = f - s f and s f = f^2 / 2 - s f^2 / 2, log(m) = f - (f^2 / 2 - s (f^2 / 2 + R)). In this
        form, the large part f has no rounding error.
power   exp(b log(a)), with about twice the digits in log(a) and in the product. These digits are necessary, because the
        relative error of log(a) is multiplied by b log(a) in the result.
tanh    A polynomial for |x| < 9/16, otherwise 1 - 2 / (exp(2 |x|) + 1).

ln 2 is stored as two parts. The product of n and the first part is exact, because this part has as many zero bits at
its end as n has digits.

The rest of the file has the recipes of sin, cos, tan and atan2. The argument of sin, cos and tan is reduced:
x = n pi / 2 + r with a whole number n and |r| <= pi / 4. Polynomials give sin(r) and cos(r). The last two bits of n
decide whether sin(r) or cos(r) is the result, and which sign the result has. The error of r must be small compared with
r, even if r is tiny. So r is stored as the sum of two numbers:

    |x| up to FAST      n times pi / 2 is subtracted in four parts. The products with the first three parts are exact,
                        because these parts have as many zero bits at their ends as n has digits (W. J. Cody and
                        W. Waite, Software Manual for the Elementary Functions, Prentice-Hall 1980).
    larger |x|          x is a whole number m times a power of two, and m is multiplied by digits of 2 / pi. The product
                        uses only the digits that affect its fraction and the last bits of n (M. Payne and R. Hanek,
                        SIGNUM Newsletter 18, 19, 1983). So the result for larger |x| is as precise as for small |x|.
"""

from __future__ import annotations

from outcrop.language.functions.arithmetic import Arithmetic, Value
from outcrop.language.functions.coefficients import LEADING_ZEROS

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
    """Return exp(x + low). x must lie between the two numbers in _EXP_ENDS. `low` is smaller than the last digit of
    x."""
    first, second = map(m.number, m.constants.LN2)
    n = m.nearest(x * m.number(m.constants.LOG2_E))
    rest = x - n * first
    small = n * second - low
    r = rest - small
    lost = (rest - r) - small
    result = m.number(1.0) + (r + (lost + r * r * m.polynomial(m.constants.EXP, r)))
    half, half_bits = m.rounded(n * m.number(0.5))  # 2^n can overflow or underflow, even if the result does not
    return result * m.power_of_two(half_bits) * m.power_of_two(m.last_bits(n - half))


def _split(m: Arithmetic, x: Value) -> tuple[Value, Value]:
    """For a positive finite x, return two numbers e and m: x = 2^e m, and m is from sqrt(1/2) to sqrt(2)."""
    scale = float(m.format.digits + 2)
    smallest = m.number(m.format.smallest)
    moved = m.where(smallest, x, x * m.number(2.0**scale), x)
    start = m.where(smallest, x, m.number(scale + m.format.bias), m.number(float(m.format.bias)))
    root = _bits_of(m, m.constants.ROOT_HALF)
    bits = m.bits(moved) + m.whole(m.format.one - root)
    exponent = m.from_whole(bits >> m.whole(m.format.digits)) - start
    return exponent, m.from_bits((bits & m.whole(m.format.mantissa)) + m.whole(root))


def _bits_of(m: Arithmetic, value: float) -> int:
    """Return the bits of `value` as a whole number. `value` is from 1/2 to 1."""
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
    """Return a^b. In special cases, such as NaN, the result is the same as the result of the function pow in C."""
    zero, one, infinity = m.number(0.0), m.number(1.0), m.number(float("inf"))
    size, exponent = m.abs(a), m.abs(b)
    log_high, log_low = _precise_log(m, size)
    # For exponents above `end`, the power is 0, 1 or infinite. So exponents are limited to `end`, and no product
    # overflows.
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
    # the special cases in which |a| is 0 or infinite
    grows = m.where(b, zero, infinity, zero)
    shrinks = m.where(b, zero, zero, infinity)
    result = m.where_equal(size, infinity, grows, result)
    result = m.where_equal(size, zero, shrinks, result)
    # All floating-point numbers from 2^digits on are whole numbers. All floating-point numbers from 2^(digits + 1) on
    # are even numbers.
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
    """Return x, rounded down to a whole number. x must be from 0 to 2^(digits + 1)."""
    unit = m.number(2.0**m.format.digits)
    near = (x + unit) - unit
    near = m.where(near, x, near - m.number(1.0), near)
    return m.where(x, unit, x, near)


def _precise_log(m: Arithmetic, x: Value) -> tuple[Value, Value]:
    """Return the logarithm of a positive finite number as a sum of two numbers.

    Let f be the mantissa minus 1, s = f / (2 + f) and z = s^2. The logarithm of the mantissa is 2 s (1 + z / 3 + z^2
    W(z)). Some numbers in this formula need more digits than a mantissa has: s, z, 1 / 3 + z W(z) and the products of
    these numbers. Each number that needs more digits is stored as a sum of two numbers.
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


# --- circular functions ----------------------------------------------------------------------------------------------


FAST = {"float32": 2.0**9, "float64": 2.0**20}
"""Up to this size, arguments are reduced by subtraction. n then has one digit less than its limit in the constants."""

_LAST = {"float32": 9, "float64": 8}
"""The number of the last term of the sum in `_reduced_large`. Some arguments are so close to a multiple of pi / 2 that
the first terms cancel. The arguments that are closest to a multiple leave 2^-31 (float32) and 2^-62 (float64)."""


def sin(m: Arithmetic, x: Value) -> Value:
    quadrant, r, low = _reduced(m, x)
    result = _of_quadrant(m, quadrant, _sin(m, r, low), _cos(m, r, low))
    return m.where_equal(x, m.number(0.0), x, result)


def cos(m: Arithmetic, x: Value) -> Value:
    quadrant, r, low = _reduced(m, x)
    return _of_quadrant(m, quadrant + m.whole(1), _sin(m, r, low), _cos(m, r, low))


def tan(m: Arithmetic, x: Value) -> Value:
    quadrant, r, low = _reduced(m, x)
    first, second = _sin(m, r, low), _cos(m, r, low)
    is_odd = m.whole(0) - (quadrant & m.whole(1))
    above, below = m.pick(is_odd, second, first), m.pick(is_odd, first, second)
    result = m.with_sign(above / below, is_odd & m.whole(m.format.sign))
    return m.where_equal(x, m.number(0.0), x, result)


def _of_quadrant(m: Arithmetic, quadrant: Value, first: Value, second: Value) -> Value:
    """Return sin(quadrant pi / 2 + r), where `first` is sin(r) and `second` is cos(r). Only the last two bits of
    `quadrant` are used."""
    size = m.pick(m.whole(0) - (quadrant & m.whole(1)), second, first)
    return m.with_sign(size, (quadrant & m.whole(2)) << m.whole(m.format.bits - 2))


def _sin(m: Arithmetic, r: Value, low: Value) -> Value:
    """Return sin(r + low), computed as sin(r) + low cos(r)."""
    z = r * r
    return r + (z * r * m.polynomial(m.constants.SIN, z) + (low - m.number(0.5) * z * low))


def _cos(m: Arithmetic, r: Value, low: Value) -> Value:
    """Return cos(r + low), computed as cos(r) - low sin(r)."""
    z = r * r
    half, one = m.number(0.5) * z, m.number(1.0)
    most = one - half
    return most + (((one - most) - half) + (z * z * m.polynomial(m.constants.COS, z) - r * low))


def _reduced(m: Arithmetic, x: Value) -> tuple[Value, Value, Value]:
    """Reduce x: find n and r with x = n pi / 2 + r. Return the last bits of n, and two numbers whose sum is r."""
    n = m.nearest(x * m.number(m.constants.TWO_OVER_PI))
    first, second, third, fourth = map(m.number, m.constants.HALF_PI)
    minus = m.number(0.0) - n
    r, lost = m.exact_sum(x + minus * first, minus * second)
    r, more = m.exact_sum(r, minus * third)
    r, low = m.ordered_sum(r, (lost + more) + minus * fourth)
    size = m.abs(x)
    fast = m.number(FAST[m.dtype])
    n, r, low = m.rarely(size, fast, (n, r, low), lambda: _reduced_large(m, x, size))
    return m.last_bits(n), r, low


def _reduced_large(m: Arithmetic, x: Value, size: Value) -> tuple[Value, Value, Value]:
    """Reduce a large x: find n and r with x = n pi / 2 + r. Return n modulo 4, and two numbers whose sum is r.

    Let |x| = (m_0 B^2 + m_1 B + m_2) 2^e and 2 / pi = sum of d_k B^-(k+1), with B = 2^w. The product m_j d_k has the
    weight 2^(e + w (1 - j - k)). A product whose weight is a multiple of 4 is left out, because this product changes n
    by a multiple of 4. If k0 is the largest whole number up to (e - 2) / w, the other products have j + k >= k0 + 2,
    and their sum is

        unit * sum over i >= 0 of  q_i B^-i     q_i = sum over j of m_j d_(k0 + 2 + i - j)     unit = 2^(e - w (k0 + 1))
    """
    form, width, last = m.format, m.constants.PART_BITS, _LAST[m.dtype]
    one, base, inverse = m.number(1.0), m.number(2.0**width), m.number(2.0**-width)
    largest, end = m.number(form.largest), m.number(FAST[m.dtype])
    # The caller uses the results only for large finite arguments. So all other arguments are replaced by a large
    # number.
    bits = m.bits(m.where(size, end, m.where(size, largest, largest, size), largest))
    e = m.from_whole(bits >> m.whole(form.digits)) - m.number(float(form.bias + 3 * width - 1))
    k0 = m.nearest((e - m.number(1.5)) * m.number(1 / width) - m.number(0.5))
    unit = m.power_of_two(m.last_bits(e - m.number(float(width)) * (k0 + one)))
    mantissa = bits & m.whole(form.mantissa) | m.whole(form.mantissa + 1)
    mantissa = mantissa << m.whole(3 * width - form.digits - 1)
    mask = m.whole((1 << width) - 1)
    parts = [m.from_whole((mantissa >> m.whole(shift)) & mask) for shift in (2 * width, width, 0)]
    index = m.last_bits(k0 + m.number(float(LEADING_ZEROS))) & m.whole((1 << form.digits - 1) - 1)
    digits = [m.entry(m.constants.DIGITS, index + m.whole(k)) for k in range(last + 3)]
    terms = [parts[0] * digits[i + 2] + parts[1] * digits[i + 1] + parts[2] * digits[i] for i in range(last + 1)]
    for i in range(last, 0, -1):  # this loop makes |terms[i]| at most B / 2 for i > 0
        carry = m.nearest(terms[i] * inverse)
        terms[i] = terms[i] - carry * base
        terms[i - 1] = terms[i - 1] + carry
    for i in range(last + 1):
        terms[i] = terms[i] * unit
        unit = unit * inverse
    # the next sums and differences are exact
    whole = (terms[0] - m.number(4.0) * m.nearest(terms[0] * m.number(0.25))) + terms[1]
    n = m.nearest(whole)
    fraction, low = m.exact_sum(whole - n, terms[2])
    for term in terms[3:]:
        fraction, lost = m.exact_sum(fraction, term)
        low = low + lost
    first, second = (m.number(2 * part) for part in m.constants.QUARTER_PI)
    r, rest = m.exact_product(fraction, first)
    r, low = m.ordered_sum(r, rest + (fraction * second + low * first))
    sign = m.where(m.number(0.0), x, m.number(-1.0), one)
    sign = m.where(m.abs(x), largest, m.number(float("nan")), sign)
    return n * sign, r * sign, low * sign


def atan2(m: Arithmetic, y: Value, x: Value) -> Value:
    """Return the angle of the point (x, y). In special cases, such as NaN, the result is the same as the result of the
    function atan2 in C.

    The angle is k pi / 4 + a or k pi / 4 - a. Let s be the smaller of |x| and |y|, and let l be the larger. If s is at
    most l / 2, a is the arctangent of s / l. If s is larger than l / 2, a is the arctangent of (s - l) / (s + l). For s
    > l / 2, the difference s - l is exact.
    """
    zero, one, two = m.number(0.0), m.number(1.0), m.number(2.0)
    height, width = m.abs(y), m.abs(x)
    small, large = m.where(height, width, width, height), m.where(height, width, height, width)
    # Scale both numbers, so that no sum overflows and no product loses digits.
    scale = m.where(large, m.number(2.0 ** (m.format.bias - 2)), m.number(0.25), one)
    tiny = m.number(m.format.smallest * 2.0 ** (m.format.digits + 2))
    scale = m.where(tiny, large, m.number(2.0 ** (m.format.digits + 2)), scale)
    both = m.number(m.format.largest)
    large = m.where(small, both, one, m.where(large, zero, large * scale, one))
    small = m.where(small, both, one, small * scale)
    limit = m.number(0.5) * large
    u = m.where(small, limit, small - large, small) / m.where(small, limit, small + large, large)
    z = u * u
    a = u + u * z * m.polynomial(m.constants.ATAN, z)
    k = m.where(small, limit, one, zero)
    k = m.where(height, width, two - k, k)
    negative = m.sign_bit(x)
    mask = _all_bits(m, negative)
    k = m.pick(mask, m.number(4.0) - k, k)
    a = m.with_sign(m.where(height, width, zero - a, a), negative)
    first, second = map(m.number, m.constants.QUARTER_PI)
    angle = m.with_sign(k * first + (k * second + a), m.sign_bit(y))
    return m.where_equal(x, x, m.where_equal(y, y, angle, y), x)


def _all_bits(m: Arithmetic, sign: Value) -> Value:
    """Return bits that are all 1 where the sign bit of `sign` is 1, and all 0 elsewhere."""
    return m.whole(0) - (sign >> m.whole(m.format.bits - 1))
