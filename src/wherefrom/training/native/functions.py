"""Activations f(z) and their slopes f'(z), in float32, in forms that LLVM turns into vector loops.

The C library's exp and log come one number at a time; the ones here are polynomials, good to a few units in the last
place. Each activation takes (z, parameter) and returns (value, slope). A new one is such a function, its number, its
row in `apply`, and its torch names in `plain.py`.
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
_EXP = tuple(_f(1 / x) for x in (2, 6, 24, 120, 720, 5040))
_ATANH = tuple(_f(2 / k) for k in (1, 3, 5, 7, 9, 11, 13))
_TANH = tuple(_f(c) for c in (-1 / 3, 2 / 15, -17 / 315, 62 / 2835, -1382 / 155925))
# Abramowitz and Stegun 7.1.26: erfc(u) = exp(-u^2) t (c1 + t (c2 + ...)), t = 1 / (1 + 0.3275911 u), to 1.5e-7
_ERF = tuple(_f(c) for c in (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429))
_ERF_T = _f(0.3275911 / np.sqrt(2))
_NORMAL = _f(1 / np.sqrt(2 * np.pi))
_GELU_TANH_1 = _f(2 * np.sqrt(2 / np.pi))
_GELU_TANH_3 = _f(0.044715)


@intrinsic
def _power_of_two(typing, n):
    """2^n for a whole number -127 < n < 128, by writing it into a float's exponent."""

    def generate(context, builder, signature, values):
        biased = builder.add(values[0], ir.Constant(ir.IntType(32), 127))
        return builder.bitcast(builder.shl(biased, ir.Constant(ir.IntType(32), 23)), ir.FloatType())

    return types.float32(types.int32), generate


@as_written
def exp(z):
    """e^z = 2^n e^r with n whole and |r| <= ln 2 / 2; e^r by its Taylor series to r^7.

    Above 88 it is infinite, a little before its time; below -87 it stays at 1e-38; NaN stays NaN.
    """
    inside = z if z > _f(-87.0) else _f(-87.0)  # and where z is NaN
    inside = inside if inside < _f(88.0) else _f(88.0)
    n = np.floor(inside * _LOG2_E + HALF)
    r = (inside - n * _LN2_HIGH) - n * _LN2_LOW
    p = _EXP[5] * r + _EXP[4]
    p = p * r + _EXP[3]
    p = p * r + _EXP[2]
    p = p * r + _EXP[1]
    p = p * r + _EXP[0]
    result = (p * r * r + r + ONE) * _power_of_two(np.int32(n))
    result = _INFINITY if z > _f(88.0) else result
    return result if z == z else z


@inlined
def log_1_plus(u):
    """ln(1 + u) for 0 <= u <= 1, as 2 artanh(u / (2 + u)) by its series."""
    s = u / (TWO + u)
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
    return ONE / (ONE + exp(-z))


@inlined
def relu(z, parameter):
    return (ZERO, ZERO) if z <= ZERO else (z, ONE)


@inlined
def leaky_relu(z, parameter):
    """max(z, 0) + parameter min(z, 0)"""
    return (parameter * z, parameter) if z <= ZERO else (z, ONE)


@inlined
def tanh(z, parameter):
    """(1 - e^-2|z|) / (1 + e^-2|z|) with z's sign; near zero, where that would cancel, its Taylor series"""
    e = exp(-TWO * abs(z))
    far = (ONE - e) / (ONE + e)
    far = -far if z < ZERO else far
    q = z * z
    p = _TANH[4] * q + _TANH[3]
    p = p * q + _TANH[2]
    p = p * q + _TANH[1]
    p = p * q + _TANH[0]
    value = z + z * q * p if q < _f(0.09) else far
    return value, ONE - value * value


@inlined
def silu(z, parameter):
    """z s(z) with the sigmoid s; slope s (1 + z (1 - s))"""
    s = sigmoid(z)
    return z * s, s * (ONE + z * (ONE - s))


@inlined
def normal(z):
    """The normal distribution's cdf P(z) and pdf p(z)."""
    e = exp(-HALF * z * z)
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
    e = exp(-abs(parameter * z))
    positive = ONE / (ONE + e)
    value = (z if z > ZERO else ZERO) + log_1_plus(e) / parameter
    return value, positive if z > ZERO else e * positive


def _over_all(function):
    @jit
    def loop(values, slopes, parameter):
        for i in range(len(values)):
            value, slope = function(values[i], parameter)
            values[i] = value
            slopes[i] *= slope

    return loop


_relu, _leaky_relu, _tanh, _silu = (_over_all(f) for f in (relu, leaky_relu, tanh, silu))
_gelu, _gelu_tanh, _softplus = (_over_all(f) for f in (gelu, gelu_tanh, softplus))


@jit
def apply(kind, parameter, values, slopes):
    """values <- f(values);  slopes <- slopes f'(values)"""
    if kind == RELU:
        _relu(values, slopes, parameter)
    elif kind == LEAKY_RELU:
        _leaky_relu(values, slopes, parameter)
    elif kind == TANH:
        _tanh(values, slopes, parameter)
    elif kind == SILU:
        _silu(values, slopes, parameter)
    elif kind == GELU:
        _gelu(values, slopes, parameter)
    elif kind == GELU_TANH:
        _gelu_tanh(values, slopes, parameter)
    elif kind == SOFTPLUS:
        _softplus(values, slopes, parameter)
