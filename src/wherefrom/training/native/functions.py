"""Activations f(z) and their slopes f'(z), in float32, in forms that LLVM turns into vector loops.

The C library's functions come one number at a time. Those here are polynomials and their quotients: exp is right to 2
units in the last place, the logistic function to 3, tanh to 5, and the normal distribution's cdf to 2e-7. Each
activation takes (z, parameter) and returns (value, slope). A new one is such a function, its number, its row in
`apply`, and its torch names in `plain.py`.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from wherefrom.training.native.codes import GELU, GELU_TANH, LEAKY_RELU, RELU, SILU, SOFTPLUS, TANH
from wherefrom.training.native.jit import as_written, inlined, jit

_f = np.float32
ZERO, HALF, ONE, TWO, _INFINITY = _f(0), _f(0.5), _f(1), _f(2), _f(np.inf)
_LOG2_E = _f(np.log2(np.e))
_LN2_HIGH = _f(0.693359375)  # the first nine bits of ln 2, so that n * _LN2_HIGH is exact
_LN2_LOW = _f(np.log(2) - 0.693359375)
_ROUND = _f(1.5 * 2**23)  # added to a small number, it leaves the nearest whole one in the last bits
# (e^r - 1 - r) / r^2 for |r| <= ln 2 / 2, by interpolation at Chebyshev's nodes: e^r to 1e-8
_EXP = tuple(_f(c) for c in (0.500000001, 0.166665766, 0.0416664642, 0.00836323538, 0.00139337332))
_ATANH = tuple(_f(2 / k) for k in (1, 3, 5, 7, 9, 11, 13))
# tanh z = z (a_0 + a_1 z^2 + ...) / (1 + b_1 z^2 + ...) for |z| <= 8, fitted to the least relative error, 2e-8
_TANH_ABOVE = tuple(
    _f(c) for c in (0.999999981, 0.129793076, 0.00298595426, 9.87955495e-06, -1.47071972e-08, 2.35173532e-11)
)
_TANH_BELOW = tuple(_f(c) for c in (1.0, 0.463126237, 0.0240282973, 0.000237216311))
_TANH_MOST = _f(8.0)  # from where tanh is one, to 2e-7
# Abramowitz and Stegun 7.1.26: erfc(u) = exp(-u^2) t (c1 + t (c2 + ...)), t = 1 / (1 + 0.3275911 u), to 1.5e-7
_ERF = tuple(_f(c) for c in (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429))
_ERF_T = _f(0.3275911 / np.sqrt(2))
_NORMAL = _f(1 / np.sqrt(2 * np.pi))
_GELU_TANH_1 = _f(2 * np.sqrt(2 / np.pi))
_GELU_TANH_3 = _f(0.044715)


@intrinsic
def _power_of_two(typing, shifted):
    """2^n of a small whole number n, given n + _ROUND: its last bits become a float's exponent."""

    def generate(context, builder, signature, values):
        bits = builder.bitcast(values[0], ir.IntType(32))
        exponent = builder.shl(bits, ir.Constant(ir.IntType(32), 23))
        return builder.bitcast(builder.add(exponent, ir.Constant(ir.IntType(32), 127 << 23)), ir.FloatType())

    return types.float32(types.float32), generate


@as_written
def _exp_from(z):
    """e^z = 2^n e^r with n whole and |r| <= ln 2 / 2, for -87 <= z <= 88; NaN stays NaN."""
    shifted = z * _LOG2_E + _ROUND
    n = shifted - _ROUND
    r = (z - n * _LN2_HIGH) - n * _LN2_LOW
    p = _EXP[4] * r + _EXP[3]
    p = p * r + _EXP[2]
    p = p * r + _EXP[1]
    p = p * r + _EXP[0]
    p = p * r + ONE
    return (p * r + ONE) * _power_of_two(shifted)


@inlined
def exp_negative(z):
    """e^z for z <= 0; below -87 it stays at 1e-38; NaN stays NaN."""
    return _exp_from(_f(-87.0) if z < _f(-87.0) else z)


@inlined
def exp(z):
    """e^z. Above 88 it is infinite, a little before its time; below -87 it stays at 1e-38; NaN stays NaN."""
    result = exp_negative(_f(88.0) if z > _f(88.0) else z)
    return _INFINITY if z > _f(88.0) else result


@inlined
def log_1_plus(u):
    """ln(1 + u) for 0 <= u <= 1, as 2 artanh(u / (2 + u))."""
    return _twice_artanh(u / (TWO + u))


@inlined
def _twice_artanh(s):
    """2 artanh(s) for 0 <= s <= 1/3, by its series"""
    q = s * s
    p = _ATANH[6] * q + _ATANH[5]
    p = p * q + _ATANH[4]
    p = p * q + _ATANH[3]
    p = p * q + _ATANH[2]
    p = p * q + _ATANH[1]
    p = p * q + _ATANH[0]
    return p * s


@inlined
def sigmoid(z):
    return ONE / (ONE + exp_negative(_f(88.0) if z < _f(-88.0) else -z))


@inlined
def relu(z, parameter):
    return (ZERO, ZERO) if z <= ZERO else (z, ONE)


@inlined
def leaky_relu(z, parameter):
    """max(z, 0) + parameter min(z, 0)"""
    return (parameter * z, parameter) if z <= ZERO else (z, ONE)


@inlined
def tanh(z, parameter):
    """A quotient of two polynomials, which z is held back from where tanh is one"""
    inside = _TANH_MOST if z > _TANH_MOST else z
    inside = -_TANH_MOST if inside < -_TANH_MOST else inside
    q = inside * inside
    above = _TANH_ABOVE[5] * q + _TANH_ABOVE[4]
    above = above * q + _TANH_ABOVE[3]
    above = above * q + _TANH_ABOVE[2]
    above = above * q + _TANH_ABOVE[1]
    above = above * q + _TANH_ABOVE[0]
    below = _TANH_BELOW[3] * q + _TANH_BELOW[2]
    below = below * q + _TANH_BELOW[1]
    below = below * q + _TANH_BELOW[0]
    value = inside * above / below
    return value, ONE - value * value


@inlined
def silu(z, parameter):
    """z s(z) with the sigmoid s; slope s (1 + z (1 - s))"""
    s = sigmoid(z)
    return z * s, s * (ONE + z * (ONE - s))


@inlined
def normal(z):
    """The normal distribution's cdf P(z) and pdf p(z)."""
    e = exp_negative(-HALF * z * z)
    t = ONE / (ONE + _ERF_T * abs(z))
    tail = HALF * e * t * (_ERF[0] + t * (_ERF[1] + t * (_ERF[2] + t * (_ERF[3] + t * _ERF[4]))))
    return tail if z < ZERO else ONE - tail, e * _NORMAL


@inlined
def gelu(z, parameter):
    """z P(z) with the normal distribution's P; slope P + z p(z)"""
    below, density = normal(z)
    return z * below, below + z * density


@inlined
def gelu_tanh(z, parameter):
    """GELU's approximation z s(u), u = 2 sqrt(2 / pi) (z + 0.044715 z^3); slope s + z s (1 - s) u'"""
    s = sigmoid(_GELU_TANH_1 * (z + _GELU_TANH_3 * z * z * z))
    return z * s, s + z * s * (ONE - s) * _GELU_TANH_1 * (ONE + _f(3) * _GELU_TANH_3 * z * z)


@inlined
def softplus(z, parameter):
    """ln(1 + e^(b z)) / b with b the parameter, as max(z, 0) + ln(1 + e^(-|b z|)) / b"""
    e = exp_negative(-abs(parameter * z))
    both = ONE / ((ONE + e) * (TWO + e))  # one division for 1 / (1 + e), and for e / (2 + e) in the logarithm
    positive = both * (TWO + e)
    value = (z if z > ZERO else ZERO) + _twice_artanh(e * both * (ONE + e)) / parameter
    return value, positive if z > ZERO else e * positive


def _over_all(function):
    @jit
    def loop(values, slopes, parameter, scale):
        for i in range(len(values)):
            value, slope = function(values[i], parameter)
            values[i] = scale * value
            slopes[i] = scale * slope

    return loop


_relu, _leaky_relu, _tanh, _silu = (_over_all(f) for f in (relu, leaky_relu, tanh, silu))
_gelu, _gelu_tanh, _softplus = (_over_all(f) for f in (gelu, gelu_tanh, softplus))


@jit
def apply(kind, parameter, scale, values, slopes):
    """values <- scale f(values);  slopes <- scale f'(values)"""
    if kind == RELU:
        _relu(values, slopes, parameter, scale)
    elif kind == LEAKY_RELU:
        _leaky_relu(values, slopes, parameter, scale)
    elif kind == TANH:
        _tanh(values, slopes, parameter, scale)
    elif kind == SILU:
        _silu(values, slopes, parameter, scale)
    elif kind == GELU:
        _gelu(values, slopes, parameter, scale)
    elif kind == GELU_TANH:
        _gelu_tanh(values, slopes, parameter, scale)
    elif kind == SOFTPLUS:
        _softplus(values, slopes, parameter, scale)
