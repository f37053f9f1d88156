"""The kernel's parts, each against numpy in double precision or against the torch path's own streams."""

import math

import numpy as np
import pytest
import torch

pytest.importorskip("numba", reason="the native engine needs numba: pip install 'wherefrom[fast]'")

from wherefrom.training import streams
from wherefrom.training.cohort import orders
from wherefrom.training.dropout import SPARSE, TrainingMasks, poisson_cumulative, thresholds
from wherefrom.training.native import codes, functions, layers, losses, matrices, numbers, rules
from wherefrom.training.native.jit import LANES, entry, padded
from wherefrom.training.native.packing import floats
from wherefrom.training.probing import Site

f = np.float32


def filled(*shape: int, seed: int = 0) -> np.ndarray:
    array = floats(*shape)
    array[:] = np.random.default_rng(seed).normal(size=shape)
    return array


# ---------------------------------------------------------------------- matrices


@entry
def multiply(a, b, s, c, g, rows, depth, width, a_row, a_column, lowest, scale, gated):
    matrices.product(
        matrices.Matrix(a, np.int64(0), np.int64(a_row), np.int64(a_column)),
        matrices.rows_of(b, 0, width),
        matrices.same_row(s, 0),
        matrices.rows_of(c, 0, width),
        rows,
        depth,
        width,
        lowest,
        scale,
        gated,
        matrices.rows_of(g, 0, width),
    )


@pytest.mark.parametrize("rows", [1, 2, 5, 6, 7, 13, 100])
@pytest.mark.parametrize("width", [16, 32, 48, 64, 80, 144])
def test_product(rows, width):
    """x W + b with a ReLU, a^T b, and a gate, at every height and width of a tile."""
    depth = 9
    a, b, s, g = filled(rows, depth), filled(depth, width, seed=1), filled(width, seed=2), filled(rows, width, seed=3)
    c = floats(rows, width)
    z = s.astype(float) + a.astype(float) @ b.astype(float)
    tolerance = dict(rtol=0, atol=1e-5)

    multiply(*map(np.ravel, (a, b, s, c, g)), rows, depth, width, depth, 1, f(0), f(1.25), False)
    np.testing.assert_allclose(c, 1.25 * np.maximum(z, 0), **tolerance)
    multiply(*map(np.ravel, (a.T.copy(), b, s, c, g)), rows, depth, width, 1, rows, f(-np.inf), f(1), False)
    np.testing.assert_allclose(c, z, **tolerance)
    multiply(*map(np.ravel, (a, b, s, c, g)), rows, depth, width, depth, 1, f(-np.inf), f(1.25), True)
    np.testing.assert_allclose(c, np.where(g > 0, 1.25 * z, 0), **tolerance)


@entry
def multiply_outer(x, w, a, c, g, rows, width, scale):
    matrices.outer_products(
        x, w, 0, matrices.rows_of(a, 0, width), matrices.rows_of(c, 0, width), g, 0, rows, width, scale
    )


@pytest.mark.parametrize("rows", [1, 7, 100])
@pytest.mark.parametrize("width", [16, 64, 80, 144])
def test_outer_products(rows, width):
    x, w, a = filled(rows), filled(width, seed=1), filled(rows, width, seed=2)
    c, g = floats(rows, width), floats(width)
    multiply_outer(x, w, a.ravel(), c.ravel(), g, rows, width, f(1.5))
    np.testing.assert_allclose(c, np.where(a > 0, 1.5 * np.outer(x, w), 0), rtol=1e-6)
    np.testing.assert_allclose(g, x.astype(float) @ a.astype(float), rtol=0, atol=1e-5)


@entry
def sum_gated(a, g, w, h, c, last, one, scale, depth, rows, width, a_row):
    matrices.gated_sums(
        matrices.rows_of(a, 0, a_row),
        matrices.rows_of(g, 0, width),
        matrices.rows_of(w, 0, width),
        matrices.same_row(w, h),
        matrices.rows_of(c, 0, width),
        matrices.same_row(c, last),
        one,
        scale,
        depth,
        rows,
        width,
    )


@pytest.mark.parametrize("rows", [1, 2, 9, 14, 15, 31])
@pytest.mark.parametrize("width", [16, 32, 48, 112])
def test_gated_sums(rows, width):
    """At every height and width of a tile; what is no number opens no gate."""
    depth = 37
    a, g = filled(depth, rows + 2), filled(depth, width, seed=1)
    w, c = filled(rows + 1, width, seed=2), filled(rows + 1, width, seed=3)
    g[3, 5], g[4, 6] = np.nan, 0
    end = rows * width
    sum_gated(*map(np.ravel, (a, g, w)), end, c.ravel(), end, f(1), f(1.5), depth, rows, width, rows + 2)
    sums = 1.5 * a[:, :rows].T.astype(float) @ (g > 0)
    np.testing.assert_allclose(c[:rows], sums * w[rows], rtol=0, atol=3e-5)
    np.testing.assert_allclose(c[rows], (sums * w[:rows]).sum(0), rtol=0, atol=1e-4)


def test_a_relu_keeps_what_is_not_a_number():
    a, b, s, c = floats(3, 2), filled(2, 16), floats(16), floats(3, 16)
    a[1] = np.nan
    multiply(*map(np.ravel, (a, b, s, c, c)), 3, 2, 16, 2, 1, f(0), f(1), False)
    assert np.isnan(c[1]).all()
    assert np.isfinite(c[[0, 2]]).all()


@entry
def turn(source, target, rows, columns, stride):
    matrices.transpose(matrices.rows_of(source, 0, columns), matrices.rows_of(target, 0, stride), rows, columns)


@pytest.mark.parametrize("rows", [1, 15, 16, 17, 50])
@pytest.mark.parametrize("columns", [16, 64])
def test_transpose(rows, columns):
    source, target = filled(rows, columns), floats(columns, padded(rows))
    turn(source.ravel(), target.ravel(), rows, columns, padded(rows))
    assert np.array_equal(target[:, :rows], source.T)
    assert not target[:, rows:].any()


@entry
def multiply_with_row(a, rows, b, width, c, plus):
    matrices.products_with_row(matrices.rows_of(a, 0, width), rows, b, 0, width, c, 0, plus)


@pytest.mark.parametrize("rows", [1, 3, LANES, LANES + 1, 3 * LANES + 2])
@pytest.mark.parametrize("width", [16, 48])
def test_products_with_a_row(rows, width):
    a, b, c = filled(rows, width), filled(width, seed=1), floats(rows)
    multiply_with_row(a.ravel(), rows, b, width, c, f(0.5))
    np.testing.assert_allclose(c, 0.5 + a.astype(float) @ b.astype(float), rtol=0, atol=1e-5)


# ---------------------------------------------------------------------- functions


@entry
def exps(values):
    for i in range(len(values)):
        values[i] = functions.exp(values[i])


@entry
def logs(values):
    for i in range(len(values)):
        values[i] = functions.log_1_plus(values[i])


@entry
def activate(kind, parameter, values, slopes):
    functions.apply(kind, parameter, f(2), values, slopes)


def test_exp_and_log_to_the_last_few_bits():
    z = np.linspace(-87, 88, 200_001, dtype=np.float32)
    found = z.copy()
    exps(found)
    np.testing.assert_allclose(found, np.exp(z.astype(float)), rtol=3e-7)
    u = np.linspace(0, 1, 100_001, dtype=np.float32)
    found = u.copy()
    logs(found)
    np.testing.assert_allclose(found, np.log1p(u.astype(float)), rtol=3e-7)


@entry
def evaluate_functions(values, exps, logistic, tanhs):
    for i in range(len(values)):
        exps[i] = functions.exp(values[i])
        logistic[i] = functions.sigmoid(values[i])
        tanhs[i] = functions.tanh(values[i], f(0))[0]


def test_functions_in_units_of_the_last_place():
    """Against double precision, everywhere: 2 units for exp, 3 for the logistic function, 5 for tanh."""
    z = np.concatenate([np.linspace(-87, 87, 200_001), np.linspace(-9, 9, 200_001), np.logspace(-30, 0, 2000)])
    z = np.concatenate([z, -np.logspace(-30, 0, 2000)]).astype(np.float32)
    ours = floats(3, len(z))
    evaluate_functions(z, *ours)
    exact = z.astype(float)
    for result, right, units in zip(
        ours, (np.exp(exact), 1 / (1 + np.exp(-exact)), np.tanh(exact)), (2, 3, 5), strict=True
    ):
        assert (np.abs(result - right) <= units * np.spacing(np.abs(right).astype(np.float32))).all()


@pytest.mark.parametrize("kind", [codes.TANH, codes.SILU, codes.GELU, codes.GELU_TANH, codes.SOFTPLUS])
def test_activations_keep_what_is_not_a_number(kind):
    values, slopes = floats(3), floats(3)
    values[1] = np.nan
    activate(kind, f(1), values, slopes)
    assert np.isnan(values[1])
    assert np.isfinite(values[[0, 2]]).all()


def test_exp_of_what_is_no_number_or_infinite():
    z = np.array([np.nan, -np.inf, -1000, 88.8, 1000, np.inf], dtype=np.float32)
    exps(z)
    assert np.isnan(z[0])
    assert ((z[1:3] >= 0) & (z[1:3] < 1e-37)).all()
    assert (z[3:] == np.inf).all()


ACTIVATIONS = {
    "relu": (codes.RELU, 0.0, torch.relu),
    "leaky relu": (codes.LEAKY_RELU, 0.3, lambda z: torch.nn.functional.leaky_relu(z, 0.3)),
    "tanh": (codes.TANH, 0.0, torch.tanh),
    "silu": (codes.SILU, 0.0, torch.nn.functional.silu),
    "gelu": (codes.GELU, 0.0, torch.nn.functional.gelu),
    "gelu by tanh": (codes.GELU_TANH, 0.0, lambda z: torch.nn.functional.gelu(z, approximate="tanh")),
    "softplus": (codes.SOFTPLUS, 1.0, torch.nn.functional.softplus),
    "sharp softplus": (codes.SOFTPLUS, 4.0, lambda z: torch.nn.functional.softplus(z, beta=4.0)),
}


@pytest.mark.parametrize(("kind", "parameter", "reference"), ACTIVATIONS.values(), ids=ACTIVATIONS)
def test_activations_and_their_slopes(kind, parameter, reference):
    """Against torch in double precision, from far below to far above, and near zero."""
    z = np.concatenate([np.linspace(-60, 60, 30_001), np.linspace(-1, 1, 30_002), np.logspace(-30, 0, 1000)])
    values, slopes = z.astype(np.float32), floats(len(z))
    exact = torch.from_numpy(values.astype(float)).requires_grad_()
    expected = reference(exact)
    (slope,) = torch.autograd.grad(expected.sum(), exact)
    activate(kind, f(parameter), values, slopes)
    np.testing.assert_allclose(values, 2 * expected.detach().numpy(), rtol=1e-6, atol=2e-6)
    np.testing.assert_allclose(slopes, 2 * slope.numpy(), rtol=1e-6, atol=2e-6)


# ---------------------------------------------------------------------- losses


@entry
def evaluate(kind, numbers, outputs, y, w, delta, rows, width, stride):
    return losses.loss(kind, numbers, outputs, y, w, delta, rows, width, stride)


def test_cross_entropy_is_safe_for_large_outputs():
    outputs, delta = floats(3, 16), floats(3, 16)
    outputs[:, :2] = [[1e4, -1e4], [0, 0], [-1e4, 1e4]]
    y, w = np.array([1, 0], dtype=np.float32), np.ones(2, dtype=np.float32)
    loss = evaluate(codes.CROSS_ENTROPY, floats(1), outputs.ravel(), y, w, delta.ravel(), 2, 3, 16)
    assert loss == pytest.approx((1e4 + 2e4) / 2)
    np.testing.assert_allclose(delta[:, :2], [[0.5, -0.5], [-0.5, 0], [0, 0.5]], atol=1e-7)


# ---------------------------------------------------------------------- streams


@entry
def permute(order, tagged, spare, counts, key, epoch):
    numbers.permutation(order, tagged, spare, counts, key, epoch, numbers.digit_bits(len(order)))


@pytest.mark.parametrize("size", [1, 2, 3, 17, 256, 1000, 4096, 4097, 41157, 300_000])
def test_the_order_of_rows_is_the_torch_paths(size):
    keys = np.array([streams.key(0, "order", k) for k in range(3)], dtype=np.uint64)
    order = np.zeros(size, dtype=np.int64)
    work = np.zeros(size, dtype=np.uint64), np.zeros(size, dtype=np.uint64), np.zeros(2 << 11, dtype=np.int64)
    for epoch in (0, 1, 399):
        expected = streams.permutations(keys, epoch, size)
        for k, key in enumerate(keys):
            permute(order, *work, key, epoch)
            assert np.array_equal(order, expected[k])


@entry
def draw(order, key, epoch):
    numbers.with_replacement(order, key, epoch)


@pytest.mark.parametrize("size", [1, 2, 3, 17, 256, 41157, 300_000])
def test_rows_with_replacement_are_the_torch_paths(size):
    keys = np.array([streams.key(0, "order", k) for k in range(3)], dtype=np.uint64)
    order = np.zeros(size, dtype=np.int64)
    for epoch in (0, 1, 399):
        expected = orders(keys, np.ones(3, dtype=bool), epoch, size)
        for k, key in enumerate(keys):
            draw(order, key, epoch)
            assert np.array_equal(order, expected[k])


@entry
def clip(gradient, largest):
    rules.shorten(gradient, largest)


def test_gradients_are_shortened():
    for gradient, largest, expected in (
        ([3.0, 4.0], 1.0, [0.6, 0.8]),
        ([0.3, 0.4], 1.0, [0.3, 0.4]),
        ([0.0, 0.0], 1.0, [0.0, 0.0]),
        ([math.nan, 1.0], 1.0, [math.nan, math.nan]),
        ([math.inf, 1.0], 1.0, [math.nan, 0.0]),
    ):
        ours = np.array(gradient, dtype=f)
        clip(ours, largest)
        np.testing.assert_allclose(ours, expected, rtol=1e-5)
        parameter = torch.nn.Parameter(torch.zeros(2))
        parameter.grad = torch.tensor(gradient)
        torch.nn.utils.clip_grad_norm_([parameter], largest)
        np.testing.assert_allclose(ours, parameter.grad.numpy(), rtol=1e-6)


@entry
def drop(values, key, step, threshold, cumulative, units, rows, batch_size, stride, is_last, places):
    layers._drop(values, values, key, step, threshold, cumulative, units, rows, batch_size, stride, is_last, places)


def masks_of(
    rate: float, units: int, batch_size: int, rows: int, key: int, steps: int, last: bool = False
) -> np.ndarray:
    """What survives of every unit of every row at each step, at a hidden or the last level.  # (steps, rows, units)"""
    table = poisson_cumulative(batch_size * units * -math.log1p(-rate))
    limit = thresholds(np.array([rate]))[0] if rate >= SPARSE else np.uint64(0)
    kept = np.ones((steps, units, padded(batch_size)) if last else (steps, rows, padded(units)), dtype=np.float32)
    stride, places = kept.shape[2], np.zeros(16, dtype=np.int64)
    for step in range(steps):
        drop(kept[step].ravel(), np.uint64(key), step, limit, table, units, rows, batch_size, stride, last, places)
    outside = kept[..., rows:] if last else kept[..., units:]
    assert (outside == 1).all()
    return kept[..., :rows].swapaxes(1, 2) if last else kept[..., :units]


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("units", [1, 40, 41])
@pytest.mark.parametrize("last", [False, True], ids=["hidden", "last"])
def test_dropouts_masks_are_the_torch_paths(rate, units, last):
    batch_size, rows = 25, 20  # a short batch
    key = streams.key(0, "masks")
    ours = masks_of(rate, units, batch_size, rows, key, 30, last)
    keys = np.array([key], dtype=np.uint64)
    theirs = TrainingMasks(Site(rate, (units,)), [rate], keys, batch_size, torch.device("cpu"), torch.float32)
    for step in range(30):
        assert np.array_equal(ours[step] > 0, theirs.drop(step)[0, :rows].numpy() > 0)
        theirs.restore()


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5])
def test_dropouts_rate_and_independence(rate):
    """The dropped fraction and the fraction of pairs dropped together, within 4 and 5 standard errors."""
    dropped = 1.0 - masks_of(rate, 50, 100, 100, streams.key(1, "masks"), steps=200)
    assert dropped.mean() == pytest.approx(rate, abs=4 * math.sqrt(rate * (1 - rate) / dropped.size))
    for a, b in (
        (dropped[..., 1:], dropped[..., :-1]),  # neighbouring units
        (dropped[:, 1:], dropped[:, :-1]),  # neighbouring rows
        (dropped[1:], dropped[:-1]),  # following steps
    ):
        both = rate**2
        assert (a * b).mean() == pytest.approx(both, abs=5 * math.sqrt(both * (1 - both) / a.size))
