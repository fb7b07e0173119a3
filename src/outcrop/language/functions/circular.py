"""The recipes of sin, cos, tan and atan2.

The argument of sin, cos and tan is reduced: x = n pi / 2 + r with a whole number n and |r| <= pi / 4. Polynomials give
sin(r) and cos(r), and the last two bits of n tell which of them is the result, and with which sign. The error of r must
be small beside r, although r can be tiny. So r is the sum of two numbers:

    |x| up to FAST      n times pi / 2 is subtracted in four parts. The products with the first three parts are exact,
                        because these parts have as many zero bits at their ends as n has digits (W. J. Cody and
                        W. Waite, Software Manual for the Elementary Functions, Prentice-Hall 1980).
    larger |x|          x 2 / pi is a product of a whole number and a power of two, times 2 / pi. Only those digits of
                        2 / pi are multiplied that matter for the fraction and for the last bits of n (M. Payne and
                        R. Hanek, SIGNUM Newsletter 18, 19, 1983). So the result is as precise as for small |x|.
"""

from __future__ import annotations

from outcrop.language.functions.arithmetic import Arithmetic, Value
from outcrop.language.functions.coefficients import LEADING_ZEROS

FAST = {"float32": 2.0**9, "float64": 2.0**20}
"""Up to this size, arguments are reduced by subtraction. n then has one digit less than its limit in the constants."""

_LAST = {"float32": 9, "float64": 8}
"""The number of the last term of the sum in `_reduced_large`. Some arguments are so close to a multiple of pi / 2 that
the first terms cancel. The closest ones leave 2^-31 (float32) and 2^-62 (float64)."""


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
    """Return the sine in a quadrant from the sine and the cosine of the rest. Only the last two bits of `quadrant`
    matter."""
    size = m.pick(m.whole(0) - (quadrant & m.whole(1)), second, first)
    return m.with_sign(size, (quadrant & m.whole(2)) << m.whole(m.format.bits - 2))


def _sin(m: Arithmetic, r: Value, low: Value) -> Value:
    """Return sin(r + low) = sin(r) + low cos(r)."""
    z = r * r
    return r + (z * r * m.polynomial(m.constants.SIN, z) + (low - m.number(0.5) * z * low))


def _cos(m: Arithmetic, r: Value, low: Value) -> Value:
    """Return cos(r + low) = cos(r) - low sin(r)."""
    z = r * r
    half, one = m.number(0.5) * z, m.number(1.0)
    most = one - half
    return most + (((one - most) - half) + (z * z * m.polynomial(m.constants.COS, z) - r * low))


def _reduced(m: Arithmetic, x: Value) -> tuple[Value, Value, Value]:
    """Return the last bits of n, and r as a sum of two numbers."""
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
    """Return n modulo 4, and r as a sum of two numbers, for large |x|.

    Let |x| = (m_0 B^2 + m_1 B + m_2) 2^e and 2 / pi = sum of d_k B^-(k+1), with B = 2^w. The product m_j d_k has the
    weight 2^(e + w (1 - j - k)). If this weight is a multiple of 4, the product is left out, because it changes n by a
    multiple of 4. If k0 is the largest whole number up to (e - 2) / w, the other products have j + k >= k0 + 2, and
    their sum is

        unit * sum over i >= 0 of  q_i B^-i     q_i = sum over j of m_j d_(k0 + 2 + i - j)     unit = 2^(e - w (k0 + 1))
    """
    form, width, last = m.format, m.constants.PART_BITS, _LAST[m.dtype]
    one, base, inverse = m.number(1.0), m.number(2.0**width), m.number(2.0**-width)
    largest, end = m.number(form.largest), m.number(FAST[m.dtype])
    # For arguments of other cells that are not large, or not finite, any large number will do.
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
    for i in range(last, 0, -1):  # from here on, |term i| is at most B / 2 for i > 0
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
    """Return the angle of the point (x, y). The special cases are those of the function atan2 in C.

    The angle is k pi / 4 + a or k pi / 4 - a. With s and l, the smaller and the larger of |x| and |y|, a is the
    arctangent of s / l, or of (s - l) / (s + l) if s is larger than l / 2. In the second case, s - l is exact.
    """
    zero, one, two = m.number(0.0), m.number(1.0), m.number(2.0)
    height, width = m.abs(y), m.abs(x)
    small, large = m.where(height, width, width, height), m.where(height, width, height, width)
    # Sums must not overflow, and products must not lose digits.
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
    """Return bits that are all 1 where the bit of the sign is 1, and 0 elsewhere."""
    return m.whole(0) - (sign >> m.whole(m.format.bits - 1))
