"""Boosted trees: a search of all splits, and Newton's step written down row by row, as oracles."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

import wherefrom as wf
from wherefrom.training.losses import (
    CrossEntropy,
    GaussianNLL,
    HurdleError,
    HurdleNLL,
    Loss,
    SquaredError,
    StudentError,
    StudentNLL,
)
from wherefrom.training.trees import Trees, _derivatives, boosted

LOSSES = [
    (SquaredError(), lambda f: f[:, None], 1),
    (GaussianNLL(), lambda f: f[:, None], 2),
    (CrossEntropy(0.1), lambda f: np.digitize(f, [-0.5, 0.5])[:, None].astype(float), 3),
    (StudentError(), lambda f: f[:, None], 1),
    (StudentNLL(5.0), lambda f: f[:, None], 2),
    (HurdleError(), lambda f: np.where(f > 0, f, -np.inf)[:, None], 2),
    (HurdleNLL(), lambda f: np.where(f > 0, f, -np.inf)[:, None], 3),
]


def rows(count: int = 60, columns: int = 3) -> tuple[torch.Tensor, np.ndarray]:
    random = np.random.default_rng(0)
    x = random.normal(size=(count, columns)).round(1).astype(np.float32)
    return torch.from_numpy(x), np.sin(2 * x[:, 0]) + x[:, 1] * (x[:, 2] > 0) + 0.1 * random.normal(size=count)


def model(how: Trees, tensors, outputs: int) -> torch.nn.Module:
    module = how.sized(3, outputs)().double()
    module.load_state_dict(tensors)
    return module.requires_grad_(False)


def explained(leaf: np.ndarray, slope: np.ndarray, weights: np.ndarray, penalty: float) -> float:
    parts = [leaf == each for each in np.unique(leaf)]
    return sum(slope[part].sum() ** 2 / (weights[part].sum() + penalty) for part in parts)


@pytest.mark.parametrize("is_weighted", [False, True])
def test_the_first_tree_asks_the_best_questions_and_takes_newtons_step(is_weighted):
    x, y = rows()
    weights = np.random.default_rng(1).uniform(0.5, 1.5, len(y)) if is_weighted else np.ones(len(y))
    how = Trees(count=1, depth=2, rate=0.5, penalty=2.0)
    given = torch.from_numpy(weights) if is_weighted else None
    tensors = boosted(how, x, torch.from_numpy(y)[:, None], given, SquaredError(), 1).tensors
    middle = np.average(y, weights=weights)
    assert float(tensors["bias"]) == pytest.approx(middle)

    values, leaf = x.numpy(), np.zeros(len(y), dtype=int)
    slope = 2 * weights * (middle - y) / np.sqrt(2 * weights.mean())
    for level in range(2):
        splits = [
            (column, (low + high) / 2)
            for column in range(3)
            for low, high in itertools.pairwise(np.unique(values[:, column]))
        ]
        best = max(explained(2 * leaf + (values[:, c] > t), slope, weights, 2.0) for c, t in splits)
        column, threshold = int(tensors["columns"][0, level]), float(tensors["thresholds"][0, level])
        leaf = 2 * leaf + (values[:, column] > threshold)
        assert explained(leaf, slope, weights, 2.0) == pytest.approx(best)
    for each in range(4):
        part = leaf == each
        step = 0.5 * (weights * (y - middle))[part].sum() / (weights[part].sum() + 2.0 * weights.mean())
        assert float(tensors["leaves"][0, each, 0]) == pytest.approx(step, abs=1e-12)


@pytest.mark.parametrize(("loss", "target", "outputs"), LOSSES)
def test_every_tree_makes_the_loss_of_its_rows_smaller(loss, target, outputs):
    x, f = rows(200)
    y = torch.from_numpy(target(f))
    fitted = boosted(Trees(40, depth=3), x, y, None, loss, outputs, watched=(x, y, None))
    assert (np.diff(fitted.watched) < 0).all()
    answers = model(Trees(40, depth=3), fitted.tensors, outputs)(x.double())
    assert float(loss(answers, y)) == pytest.approx(fitted.watched[-1])


class AsWritten:
    """A loss that does not know its derivatives."""

    def __init__(self, loss) -> None:
        self.loss = loss

    def __call__(self, *given):
        return self.loss(*given)


@pytest.mark.parametrize(("loss", "target", "outputs"), LOSSES)
def test_derivatives_are_those_of_autograd(loss, target, outputs):
    _, f = rows()
    y, weights = torch.from_numpy(target(f)), torch.rand(len(f), dtype=torch.float64)
    at = torch.randn(len(f), outputs, dtype=torch.float64)
    (slope, curvature), (by_graph, second) = (_derivatives(at, y, weights, each) for each in (loss, AsWritten(loss)))
    torch.testing.assert_close(slope, by_graph)
    if isinstance(loss, SquaredError | HurdleError):
        torch.testing.assert_close(curvature, second)
    elif isinstance(loss, StudentError):  # a parabola that touches it, and is nowhere below
        slope, curvature = loss.derivatives(at, y)
        for step in (-3.0, -0.3, 0.1, 2.0):
            above = [loss(at[k : k + 1], y[k : k + 1]) + step * slope[k, 0] for k in range(len(y))]
            bound = torch.stack(above) + 0.5 * step**2 * curvature[:, 0]
            there = torch.stack([loss(at[k : k + 1] + step, y[k : k + 1]) for k in range(len(y))])
            assert bool((there <= bound + 1e-12).all())
    elif isinstance(loss, StudentNLL):  # Fisher's information: the mean square of the slope
        random = torch.from_numpy(np.random.default_rng(0).standard_t(5, size=(200_000, 1)))
        one = torch.tensor([[0.3, -0.4]], dtype=torch.float64).expand(len(random), -1)
        squares = _derivatives(one, 0.3 + np.exp(-0.2) * random, None, AsWritten(loss))[0].square()
        expected = loss.derivatives(one[:1], random[:1])[1][0]
        assert bool(((squares.mean(0) - expected).abs() <= 4 * squares.std(0) / len(random) ** 0.5).all())
    elif isinstance(loss, HurdleNLL):  # what is there as the Gaussian's, the logits as they are
        there = y[:, 0] > -np.inf
        inner = GaussianNLL().derivatives(at[there, :2], y[there])[1] * weights[there, None]
        torch.testing.assert_close(curvature[there, :2], inner)
        assert not curvature[~there, :2].any()
        torch.testing.assert_close(curvature[:, 2], second[:, 2])
    elif isinstance(loss, CrossEntropy):  # a bound
        torch.testing.assert_close(curvature, second * outputs / (outputs - 1))
    else:  # Fisher's information: the mean over y
        random = torch.randn(200_000, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        one = torch.tensor([[0.3, -0.4]], dtype=torch.float64).expand(len(random), -1)
        _, second = _derivatives(one, 0.3 + np.exp(-0.2) * random, None, AsWritten(loss))
        expected = GaussianNLL().derivatives(one[:1], random[:1])[1][0]
        errors = 4 * second.std(0) / len(random) ** 0.5 + 1e-12
        assert bool(((second.mean(0) - expected).abs() <= errors).all())


def test_columns_without_values_to_tell_apart_leave_a_constant():
    x, y = torch.ones(20, 3), torch.arange(20.0)[:, None]
    how = Trees(5)
    fitted = boosted(how, x, y, None, SquaredError(), 1)
    assert not fitted.tensors["leaves"].any()
    torch.testing.assert_close(model(how, fitted.tensors, 1)(x.double()), torch.full((20, 1), 9.5).double())


def test_more_trees_begin_with_the_same_ones():
    x, y = rows()
    few, many = (boosted(Trees(n), x, torch.from_numpy(y)[:, None], None, SquaredError(), 1).tensors for n in (5, 9))
    for name in ("leaves", "columns", "thresholds"):
        assert torch.equal(few[name], many[name][:5])


@pytest.mark.parametrize(
    "wrong",
    [
        dict(count=0),
        dict(depth=11),
        dict(rate=0.0),
        dict(rate=2.0),
        dict(penalty=0.0),
        dict(count=1.5),
        dict(count=5.0),
        dict(columns=0),
    ],
)
def test_impossible_settings_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        wf.Trees(**wrong)


def test_trees_without_numba_say_what_to_install(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "wherefrom.training.native.splits", None)
    monkeypatch.delattr("wherefrom.training.native.splits", raising=False)
    x, y = rows()
    with pytest.raises(ImportError, match=r"wherefrom\[fast\]"):
        boosted(Trees(2), x, torch.from_numpy(y)[:, None], None, SquaredError(), 1)


def test_one_far_row_does_not_run_away_with_its_variance():
    """Newton's step on a log variance would go to 24; the best is 2 ln 44 = 7.6."""
    x = torch.randn(2000, 3, generator=torch.Generator().manual_seed(0))
    y = torch.randn(2000, 1, generator=torch.Generator().manual_seed(1)).double()
    y[0] = 44.0
    how = Trees(100, 4)
    answers = model(how, boosted(how, x, y, None, GaussianNLL(), 2).tensors, 2)(x.double())
    assert float(answers[:, 1].max()) < 9


def test_a_loss_that_is_not_a_number_is_refused():
    x, _ = rows()
    with pytest.raises(ValueError, match="not a number"):
        boosted(Trees(2), x, torch.full((60, 1), float("nan")), None, SquaredError(), 1)


def test_predicted_noise_does_not_stop_trees_before_the_mean_is_learnt():
    """Where noise is the same everywhere, the mean is about as good as that of trees which know nothing of it."""
    random = np.random.default_rng(0)
    x = torch.from_numpy(random.uniform(-2, 2, (900, 5)).astype(np.float32))
    truth = torch.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2]
    y = (truth + 0.3 * torch.from_numpy(random.normal(size=900)))[:, None]
    parts = (x[:500], y[:500], None), (x[500:], y[500:], None)

    def error(loss: Loss, outputs: int) -> torch.Tensor:
        fit = boosted(Trees(600), *parts[0], loss, outputs, parts[1])
        count = int(fit.watched.argmin())
        model = Trees(count).sized(5, outputs)().requires_grad_(False)
        model.load_state_dict(fit.first(count))
        return (model(x[500:])[:, 0] - truth[500:]).square()

    behind = error(GaussianNLL(), 2) - error(SquaredError(), 1)
    assert float(behind.mean()) < 2 * float(behind.std()) / len(behind) ** 0.5
