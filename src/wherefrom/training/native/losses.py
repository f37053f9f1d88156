"""Losses of a batch and their gradients. Each returns the mean over rows, and writes dloss/doutputs into delta.

Outputs and delta have a row for each output, `stride` numbers apart; y has a row for each row. w_r is a row's weight,
one where there are none; `numbers` are the loss's fields. A new loss is such a function, its number in `codes`, its row
in `loss`, and its sizes in `packing.check`.
"""

from __future__ import annotations

import math

import numpy as np

from wherefrom.training.losses import MOST_LOG_MEAN, MOST_LOG_VARIANCE
from wherefrom.training.native.codes import (
    CROSS_ENTROPY,
    DISPERSED,
    GAUSSIAN,
    HURDLE,
    HURDLE_ERROR,
    LOGLOGISTIC,
    LOGNORMAL,
    NEGATIVE_BINOMIAL,
    ORDINAL,
    PINBALL,
    POISSON,
    SQUARED_ERROR,
    STUDENT,
    STUDENT_ERROR,
    WEIBULL,
    ZERO_INFLATED,
)
from wherefrom.training.native.functions import exp, log_1_plus, softplus
from wherefrom.training.native.jit import inlined, jit, merged
from wherefrom.training.negative_binomial import LEAST_DISPERSION
from wherefrom.training.survival import LEAST_Z, MOST_Z

_f = np.float32
ZERO, HALF, ONE, TWO = _f(0), _f(0.5), _f(1), _f(2)
MOST, MOST_LOG = _f(MOST_LOG_VARIANCE), _f(MOST_LOG_MEAN)
LEAST_DISTANCE, MOST_DISTANCE = _f(LEAST_Z), _f(MOST_Z)
MOST_TERMS = 64.0  # of a sum, that are added one by one
LOG_ROOT, ROOT_HALF, ROOT_TWO_BY_PI = _f(0.5 * math.log(2 * math.pi)), _f(math.sqrt(0.5)), _f(math.sqrt(2 / math.pi))


# ---------------------------------------------------------------------- losses of each output by itself


def _of_each(term):
    """Return the loss, mean of w term, of a term and its slope by each output: (f, y, numbers, column) -> both."""

    @inlined
    def column(outputs, y, w, numbers, delta, share, q, width):
        total = 0.0
        for r in range(len(outputs)):
            value, slope = term(outputs[r], y[r * width + q], numbers, q)
            delta[r] = share * w[r] * slope
            total += w[r] * value
        return total

    @jit
    def mean(outputs, y, w, numbers, delta, rows, width, stride):
        share = ONE / _f(rows * width)
        if width == 1:  # where targets lie together, in vectors
            return column(outputs[:rows], y, w, numbers, delta, share, 0, 1) * share
        total = 0.0
        for q in range(width):
            first = q * stride
            total += column(outputs[first : first + rows], y, w, numbers, delta[first:], share, q, width)
        return total * share

    return mean


@inlined
def _squared_term(f, y, numbers, column):
    """(f - y)^2"""
    error = f - y
    return error * error, TWO * error


@inlined
def _student_error_term(f, y, numbers, column):
    """c log(1 + (f - y)^2 / c);  slope 2 (f - y) / (1 + (f - y)^2 / c)"""
    error, c = f - y, numbers[0]
    away = ONE + error * error / c
    return c * _f(math.log(away)), TWO * error / away


@inlined
def _poisson_term(f, y, numbers, column):
    """e^f - y f, where f is bounded;  slope e^f - y"""
    f = min(max(f, -MOST_LOG), MOST_LOG)
    mean = exp(f)
    return mean - y * f, mean - y


@inlined
def _negative_binomial_term(f, y, numbers, column):
    """(y + s) ln(1 + e^f / s) - y f for shapes s = 1 / a, where f is bounded;  slope s (e^f - y) / (s + e^f)"""
    f, shape = min(max(f, -MOST_LOG), MOST_LOG), numbers[column]
    mean = exp(f)
    return (y + shape) * _f(math.log1p(mean / shape)) - y * f, shape * (mean - y) / (shape + mean)


_squared_error = _of_each(_squared_term)
_student_error = _of_each(_student_error_term)
_poisson = _of_each(_poisson_term)
_negative_binomial = _of_each(_negative_binomial_term)


# ---------------------------------------------------------------------- losses of means with their log variances


def _of_pairs(term):
    """Return the loss, mean of w term, of a term and its slopes by m and v: (m, v, y, numbers, column) -> all three."""

    @jit
    def mean(outputs, y, w, numbers, delta, rows, targets, stride):
        share = ONE / _f(rows * targets)
        total = 0.0
        for q in range(targets):
            for r in range(rows):
                at = q * stride + r
                beside = at + targets * stride
                value, slope, slope_beside = term(outputs[at], outputs[beside], y[r * targets + q], numbers, q)
                delta[at] = share * w[r] * slope
                delta[beside] = share * w[r] * slope_beside
                total += w[r] * value
        return total / (rows * targets)

    return mean


@inlined
def _gaussian_term(m, v, y, numbers, column):
    """(v + (m - y)^2 e^-v) / 2 for log variances v, which are bounded

    slopes (m - y) e^-v by m,  (1 - (m - y)^2 e^-v) / 2 by v
    """
    v, error = min(max(v, -MOST), MOST), m - y
    precision = exp(-v)
    distance = error * error * precision
    return HALF * (v + distance), error * precision, HALF * (ONE - distance)


@inlined
def _student_term(m, v, y, numbers, column):
    """(v + (nu + 1) log(1 + (m - y)^2 e^-v / nu)) / 2 for log squared scales v, which are bounded

    slopes, with the pull p = (nu + 1) e^-v / (nu + (m - y)^2 e^-v):  (m - y) p by m,  (1 - (m - y)^2 p) / 2 by v
    """
    v, error, df = min(max(v, -MOST), MOST), m - y, numbers[0]
    precision = exp(-v)
    distance = error * error * precision
    pull = (df + ONE) * precision / (df + distance)
    value = HALF * (v + (df + ONE) * _f(math.log(ONE + distance / df)))
    return value, error * pull, HALF * (ONE - error * error * pull)


@jit
def _count(n, m, r):
    """L(n) = (n + r) ln(1 + m / r) - n ln m - sum of ln(1 + k / r) + ln n!, over k from 0 to n - 1, and its gradient

    r (m - n) / (r + m) by ln m,  (n + r) m / (r + m) - r ln(1 + m / r) - sum of k / (r + k) by -ln r. A sum has its
    first terms one by one, and the others by Euler and Maclaurin.
    """
    first = min(n, MOST_TERMS)
    logs, shares = 0.0, 0.0
    for k in range(int(first)):
        logs += math.log1p(k / r)
        shares += k / (r + k)
    if n > first:
        low, high = math.log1p(first / r), math.log1p(n / r)
        slopes = 1 / (r + n) - 1 / (r + first)
        logs += (r + n) * high - (r + first) * low - (n - first) - (high - low) / 2 + slopes / 12
        shares += n - first - r * (high - low) - (n / (r + n) - first / (r + first)) / 2
        shares += r * (1 / (r + n) ** 2 - 1 / (r + first) ** 2) / 12
    above = math.log1p(m / r)
    value = (n + r) * above - n * math.log(m) - logs + math.lgamma(n + 1)
    return value, r * (m - n) / (r + m), (n + r) * m / (r + m) - r * above - shares


@jit
def _dispersed_term(f, v, y, numbers, column):
    """L(n) of `_count` for n = s y, m = s e^f and r = e^-v, where f and the log dispersion v are bounded"""
    f, v = np.float64(min(max(f, -MOST_LOG), MOST_LOG)), np.float64(min(max(v, -MOST_LOG), MOST_LOG))
    scale = numbers[column]
    value, by_log_mean, by_log_dispersion = _count(np.float64(np.rint(scale * y)), scale * math.exp(f), math.exp(-v))
    return value, _f(by_log_mean), _f(by_log_dispersion)


_gaussian = _of_pairs(_gaussian_term)
_student = _of_pairs(_student_term)
_dispersed = _of_pairs(_dispersed_term)


# ---------------------------------------------------------------------- losses of a row


@jit
def _hurdle(outputs, y, w, numbers, delta, rows, targets, stride, has_variance):
    """mean of w (log(1 + e^l) - [y there] l), and where y is there (above -inf) of w (f - y)^2, or of the Gaussian loss

    gradient w (sigmoid(l) - [y there]) / n to the logit l, which stands last; to the others as theirs, or zero
    """
    share = ONE / _f(rows * targets)
    total = 0.0
    for q in range(targets):
        for r in range(rows):
            mean = q * stride + r
            log_variance = mean + targets * stride
            logit = mean + (2 if has_variance else 1) * targets * stride
            is_there = y[r * targets + q] > -np.inf
            lower = exp(-abs(outputs[logit]))
            p = (ONE if outputs[logit] >= 0 else lower) / (ONE + lower)
            delta[logit] = share * w[r] * (p - (ONE if is_there else _f(0)))
            total += w[r] * (max(outputs[logit], _f(0)) + _f(math.log(ONE + lower)))
            delta[mean] = _f(0)
            if has_variance:
                delta[log_variance] = _f(0)
            if not is_there:
                continue
            total -= w[r] * outputs[logit]
            if has_variance:
                pair = outputs[mean], outputs[log_variance]
                value, slope, slope_beside = _gaussian_term(pair[0], pair[1], y[r * targets + q], numbers, q)
                delta[log_variance] = share * w[r] * slope_beside
            else:
                value, slope = _squared_term(outputs[mean], y[r * targets + q], numbers, q)
            delta[mean] = share * w[r] * slope
            total += w[r] * value
    return total / (rows * targets)


@jit
def _zero_inflated(outputs, y, w, numbers, delta, rows, width, stride):
    """mean of w (ln(1 + e^z) + L(n)) for n > 0, with L of `_count`, or of w (ln(1 + e^z) - ln(e^z + e^-L)) for n = 0

    gradient, with u = 1 for n > 0 and e^-L / (e^z + e^-L) else:  w (s(z) - 1 + u) / n to z; u times those of L to f and
    to the log dispersion, which is an output where `numbers` are the scales alone
    """
    is_given = numbers.shape[0] == width
    targets = width // (2 if is_given else 3)
    share = ONE / _f(rows * targets)
    total = 0.0
    for q in range(targets):
        for r in range(rows):
            log_mean = q * stride + r
            log_dispersion = log_mean + targets * stride
            logit = log_mean + (1 if is_given else 2) * targets * stride
            f = np.float64(min(max(outputs[log_mean], -MOST_LOG), MOST_LOG))
            if is_given:
                shape = 1 / max(np.float64(numbers[targets + q]), LEAST_DISPERSION)
            else:
                shape = math.exp(-np.float64(min(max(outputs[log_dispersion], -MOST_LOG), MOST_LOG)))
            count, z = np.float64(np.rint(numbers[q] * y[r * targets + q])), np.float64(outputs[logit])
            value, by_log_mean, by_log_dispersion = _count(count, numbers[q] * math.exp(f), shape)
            lower = math.exp(-abs(z))
            never = (1.0 if z >= 0 else lower) / (1 + lower)
            total += w[r] * (max(z, 0.0) + math.log1p(lower))
            counted = 1.0
            if count == 0:
                larger, apart = max(z, -value), math.exp(-abs(z + value))
                counted = (apart if z > -value else 1.0) / (1 + apart)
                total -= w[r] * (larger + math.log1p(apart))
            else:
                total += w[r] * value
            delta[logit] = share * w[r] * _f(never - 1 + counted)
            delta[log_mean] = share * w[r] * _f(counted * by_log_mean)
            if not is_given:
                delta[log_dispersion] = share * w[r] * _f(counted * by_log_dispersion)
    return total / (rows * targets)


@jit
def _ordinal(outputs, y, w, delta, rows, width, stride):
    """mean of -w ln P(y), P(k) = s(f - c_{k-1}) s(c_k - f) s(z_k), where c_k = c_{k-1} + ln(1 + e^z_k), c_middle = 0

    gradient over = -s(c_{k-1} - f) by f - c_{k-1},  under = s(f - c_k) by f - c_k,  -s(-z_k) by z_k itself
    """
    share = ONE / _f(rows)
    middle = (width - 1) // 2
    total = 0.0
    for r in range(rows):
        level, f = np.int64(y[r]), outputs[r]
        before, at = _f(0), _f(0)  # c_{k-1} and c_k, from the first cut on
        centre, position = _f(0), _f(0)
        for q in range(width):
            position += softplus(outputs[q * stride + r], ONE)[0] if q > 0 else _f(0)
            centre = position if q == middle else centre
            before = position if q == level - 1 else before
            at = position if q == level else at
        over, under, loss = _f(0), _f(0), _f(0)
        if level > 0:
            value, slope = softplus(before - centre - f, ONE)
            loss += value
            over = -slope
        if level < width:
            value, slope = softplus(f - at + centre, ONE)
            loss += value
            under = slope
        delta[r] = share * w[r] * (over + under)
        for q in range(1, width):
            slope = softplus(outputs[q * stride + r], ONE)[1]
            moved = -over * _steps(q, level - 1, middle) - under * _steps(q, level, middle)
            delta[q * stride + r] = share * w[r] * slope * moved
        if 0 < level < width:
            value, slope = softplus(-outputs[level * stride + r], ONE)
            loss += value
            delta[level * stride + r] -= share * w[r] * slope
        total += w[r] * loss
    return total / rows


@jit
def _pinball(outputs, y, w, numbers, delta, rows, width, stride):
    """mean of w max(p (y - q), (p - 1) (y - q)) with q_k = q_{k-1} + u_k ln(1 + e^z_k), q_middle = f

    gradient w ([q > y] - p) / n by q
    """
    share = ONE / _f(rows * width)
    middle = (width - 1) // 2
    total = 0.0
    for r in range(rows):
        centre = _f(0)
        for q in range(1, middle + 1):
            centre += numbers[width + q - 1] * softplus(outputs[q * stride + r], ONE)[0]
        position = outputs[r] - centre
        for q in range(width):
            if q > 0:
                position += numbers[width + q - 1] * softplus(outputs[q * stride + r], ONE)[0]
            error, level = y[r] - position, numbers[q]
            total += w[r] * max(level * error, (level - ONE) * error)
            slope = share * w[r] * ((ONE if error < 0 else _f(0)) - level)
            delta[q * stride + r] = slope  # by the quantile itself, for now
        above = _f(0)  # sum of slopes of the quantiles from q on
        for back in range(width - 1):
            q = width - 1 - back
            above += delta[q * stride + r]
            delta[q * stride + r] = above
        all_slopes = above + delta[r]
        for q in range(1, width):
            moved = delta[q * stride + r] - (all_slopes if q <= middle else _f(0))
            delta[q * stride + r] = numbers[width + q - 1] * softplus(outputs[q * stride + r], ONE)[1] * moved
        delta[r] = all_slopes
    return total / (rows * width)


@jit
def _steps(gap, position, middle):
    """Return how often a gap counts between the middle and a position: 1 above it, -1 below, else 0."""
    return _f((gap <= position) - (gap <= middle))


@jit
def _cross_entropy(outputs, y, w, smoothing, delta, rows, width, stride):
    """mean of -w sum_c t_c ln p_c with p the softmax and t = (1 - s) [c = y] + s / classes;  gradient w (p - t) / n"""
    share = ONE / _f(rows)
    even = smoothing / _f(width)
    total = 0.0
    for r in range(rows):
        largest = outputs[r]
        for q in range(1, width):
            largest = max(largest, outputs[q * stride + r])
        mass, mean = _f(0), _f(0)
        for q in range(width):
            distance = outputs[q * stride + r] - largest
            p = exp(distance)
            delta[q * stride + r] = p
            mass += p
            mean += distance
        for q in range(width):
            delta[q * stride + r] = share * w[r] * (delta[q * stride + r] / mass - even)
        right = np.int64(y[r]) * stride + r
        delta[right] -= share * w[r] * (ONE - smoothing)
        own = outputs[right] - largest
        total += w[r] * (_f(math.log(mass)) - (ONE - smoothing) * own - even * mean)
    return total / rows


@jit
def _survival(kind, scale, outputs, y, w, delta, rows, width, stride):
    """mean of w (e (log s - log k(z)) + h(z) - h(u)) for z = (log t - m) / s, u = (log entry - m) / s, e the event

    with the laws' cumulative hazards h, hazards k and slopes l of log k, which training/survival.py lists. To m the
    gradient is w (e l(z) - k(z) + k(u)) / (s n); to v = log s^2, w (e + z (e l(z) - k(z)) + u k(u)) / 2n
    """
    share = ONE / _f(rows)
    total = 0.0
    for r in range(rows):
        log_scale = _f(math.log(scale))
        if width == 2:
            log_scale = HALF * min(max(outputs[stride + r], -MOST), MOST)
        rate = exp(-log_scale)
        z, u = (y[3 * r] - outputs[r]) * rate, (y[3 * r + 2] - outputs[r]) * rate
        bounded = min(max(z, LEAST_DISTANCE), MOST_DISTANCE)
        cumulative, hazard, log_hazard, slope = _hazards(kind, bounded)
        before, hazard_before, _, _ = _hazards(kind, min(max(u, LEAST_DISTANCE), MOST_DISTANCE))
        event = ONE if y[3 * r + 1] > ZERO else ZERO
        pull = event * slope - hazard
        delta[r] = share * w[r] * rate * (pull + hazard_before)
        if width == 2:
            delta[stride + r] = HALF * share * w[r] * (event + z * pull + u * hazard_before)
        total += w[r] * (event * (log_scale - log_hazard) + cumulative - before)
    return total / rows


@jit
def _hazards(kind, z):
    """h, k, log k and (log k)' of a law at z"""
    if kind == WEIBULL:
        hazard = exp(z)
        return hazard, hazard, z, ONE
    if kind == LOGNORMAL:
        x = abs(z) * ROOT_HALF
        scaled = _erfcx(x)
        if z > ZERO:
            cumulative = x * x - _f(math.log(HALF * scaled))
            hazard = ROOT_TWO_BY_PI / scaled
        else:
            density = exp(-x * x)
            above = ONE - HALF * scaled * density
            cumulative = -_f(math.log(above))
            hazard = HALF * ROOT_TWO_BY_PI * density / above
        return cumulative, hazard, cumulative - x * x - LOG_ROOT, hazard - z
    small = exp(-abs(z))
    cumulative = log_1_plus(small) + max(z, ZERO)
    hazard = (ONE if z > ZERO else small) / (ONE + small)
    return cumulative, hazard, z - cumulative, ONE - hazard


@jit
def _erfcx(x):
    """exp(x^2) erfc(x) for x >= 0, to 1.2e-7 of it (Numerical Recipes' erfcc)"""
    t = ONE / (ONE + HALF * x)
    p = _f(0.17087277)
    p = p * t + _f(-0.82215223)
    p = p * t + _f(1.48851587)
    p = p * t + _f(-1.13520398)
    p = p * t + _f(0.27886807)
    p = p * t + _f(-0.18628806)
    p = p * t + _f(0.09678418)
    p = p * t + _f(0.37409196)
    p = p * t + _f(1.00002368)
    return t * exp(p * t - _f(1.26551223))


# ---------------------------------------------------------------------- all losses


@merged
def loss(kind, numbers, outputs, y, w, delta, rows, width, stride):
    if kind == SQUARED_ERROR:
        return _squared_error(outputs, y, w, numbers, delta, rows, width, stride)
    if kind == GAUSSIAN:
        return _gaussian(outputs, y, w, numbers, delta, rows, width // 2, stride)
    if kind == CROSS_ENTROPY:
        return _cross_entropy(outputs, y, w, numbers[0], delta, rows, width, stride)
    if kind == STUDENT_ERROR:
        return _student_error(outputs, y, w, numbers, delta, rows, width, stride)
    if kind == STUDENT:
        return _student(outputs, y, w, numbers, delta, rows, width // 2, stride)
    if kind == HURDLE_ERROR:
        return _hurdle(outputs, y, w, numbers, delta, rows, width // 2, stride, False)
    if kind == HURDLE:
        return _hurdle(outputs, y, w, numbers, delta, rows, width // 3, stride, True)
    if kind == POISSON:
        return _poisson(outputs, y, w, numbers, delta, rows, width, stride)
    if kind == NEGATIVE_BINOMIAL:
        return _negative_binomial(outputs, y, w, numbers, delta, rows, width, stride)
    if kind == ORDINAL:
        return _ordinal(outputs, y, w, delta, rows, width, stride)
    if kind == PINBALL:
        return _pinball(outputs, y, w, numbers, delta, rows, width, stride)
    if kind in (WEIBULL, LOGNORMAL, LOGLOGISTIC):
        return _survival(kind, numbers[0], outputs, y, w, delta, rows, width, stride)
    if kind == DISPERSED:
        return _dispersed(outputs, y, w, numbers, delta, rows, width // 2, stride)
    if kind == ZERO_INFLATED:
        return _zero_inflated(outputs, y, w, numbers, delta, rows, width, stride)
    return math.nan
