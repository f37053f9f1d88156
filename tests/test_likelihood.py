"""The likelihood: its loss against torch's, and the most likely noise against closed form and a fine grid."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import wherefrom as wf
from conftest import mlp, training
from wherefrom.likelihoods.regression import most_likely_noise
from wherefrom.training.losses import CrossEntropy, together

GENERATOR = torch.Generator().manual_seed(0)
OUTPUTS, Y = (torch.randn(30, columns, generator=GENERATOR, dtype=torch.float64) for columns in (4, 2))


def test_losses_are_torchs():
    torch.testing.assert_close(wf.Regression().loss_for(None)(OUTPUTS[:, :2], Y), F.mse_loss(OUTPUTS[:, :2], Y))
    mean, log_variance = OUTPUTS.chunk(2, dim=1)
    expected = F.gaussian_nll_loss(mean, Y, log_variance.exp())
    torch.testing.assert_close(wf.Regression(noise="predicted").loss_for(None)(OUTPUTS, Y), expected)


def test_noise_of_a_single_answer_is_the_mean_square():
    """With one answer the mixture is a Gaussian, whose most likely variance is known."""
    squares = (OUTPUTS[:, :2] - Y).square()
    torch.testing.assert_close(most_likely_noise(squares[None]), squares.mean(0), rtol=1e-4, atol=0)


def test_noise_of_a_mixture_is_the_best_of_a_fine_grid():
    answers = torch.randn(7, 30, 1, generator=GENERATOR, dtype=torch.float64)
    squares = (answers - Y[:, :1]).square()
    grid = torch.logspace(-4, 1, 4000, dtype=torch.float64)
    likelihood = torch.stack(
        [torch.distributions.Normal(0.0, s.sqrt()).log_prob(squares.sqrt()).logsumexp(0).sum() for s in grid]
    )
    assert float(most_likely_noise(squares)) == pytest.approx(float(grid[likelihood.argmax()]), rel=0.01)


# ---------------------------------------------------------------------- classes

LOGITS, CLASS = OUTPUTS, torch.randint(4, (30, 1), generator=GENERATOR).double()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy_is_torchs(smoothing):
    expected = F.cross_entropy(LOGITS, CLASS.flatten().long(), label_smoothing=smoothing)
    torch.testing.assert_close(wf.Classification(label_smoothing=smoothing).loss_for(None)(LOGITS, CLASS), expected)


def test_members_may_differ_in_label_smoothing():
    smoothings = [0.0, 0.1, 0.3]
    loss = together([CrossEntropy(s) for s in smoothings], LOGITS)
    found = loss(LOGITS.expand(3, -1, -1), CLASS.expand(3, -1, -1))
    alone = torch.stack([CrossEntropy(s)(LOGITS, CLASS) for s in smoothings])
    torch.testing.assert_close(found, alone)
    assert together([CrossEntropy(0.1), CrossEntropy(0.1)], LOGITS) == CrossEntropy(0.1)


def test_class_weights_are_torchs_over_all_rows():
    """Scaled to a mean of one, rows weigh as torch's weighted mean has it."""
    weights = (1.0, 2.0, 0.0, 5.0)
    rows = wf.Classification(class_weights=weights)._class_weights(CLASS, range(4))
    found = wf.Classification().loss_for(None)(LOGITS, CLASS, rows)
    expected = F.cross_entropy(LOGITS, CLASS.flatten().long(), weight=torch.tensor(weights, dtype=torch.float64))
    torch.testing.assert_close(found, expected)


def test_balanced_classes_count_the_same():
    y = torch.tensor([[0.0], [0.0], [0.0], [1.0]])
    rows = wf.Classification(class_weights="balanced")._class_weights(y, ["a", "b"])
    torch.testing.assert_close(rows, torch.tensor([2 / 3, 2 / 3, 2 / 3, 2.0], dtype=torch.float64))
    named = wf.Classification(class_weights={"b": 3, "a": 1})._class_weights(y, ["a", "b"])
    torch.testing.assert_close(named, rows)
    assert wf.Classification()._class_weights(y, ["a", "b"]) is None


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (dict(classes=1), "at least 2 classes"),
        (dict(classes="ab"), "their number, or a list"),
        (dict(classes=["a", "a"]), "each once"),
        (dict(classes=["a", 1]), "all of one kind"),
        (dict(classes=[0.5, 1.5]), "all of one kind"),
        (dict(label_smoothing=1.0), r"label_smoothing must lie in \[0, 1\)"),
        (dict(class_weights="equal"), "class_weights must be"),
        (dict(class_weights=[1.0, -1.0]), "none below zero"),
        (dict(class_weights=[0.0, 0.0]), "not all zero"),
    ],
)
def test_what_cannot_be_meant_is_refused(settings, said):
    with pytest.raises((ValueError, TypeError), match=said):
        wf.Classification(**settings)


def test_class_weights_must_be_of_the_classes():
    y = torch.tensor([[0.0], [1.0]])
    with pytest.raises(ValueError, match="for \\['a', 'c'\\], but the classes are"):
        wf.Classification(class_weights={"a": 1, "c": 2})._class_weights(y, ["a", "b"])
    with pytest.raises(ValueError, match="3 class_weights for 2 classes"):
        wf.Classification(class_weights=[1, 2, 3])._class_weights(y, ["a", "b"])
    with pytest.raises(ValueError, match="weigh nothing"):
        wf.Classification(class_weights=[0, 0, 1])._class_weights(y, ["a", "b", "c"])


def test_predictions_end_at_the_least_that_y_can_be(tmp_path):
    random = np.random.default_rng(0)
    x = random.normal(size=(150, 2))
    y = np.exp(x[:, 0] + 0.5 * random.normal(size=150))
    at_least_0, free = (
        wf.marginalise(
            training(mlp(2), epochs=20, likelihood=wf.Regression(noise="fit", least=least)),
            (x, y),
            wf.recipes.multi_swag(2),
        )
        for least in (0.0, None)
    )
    new = random.normal(size=(60, 2))
    truth = np.exp(new[:, 0] + 0.5 * random.normal(size=60))
    found, other = at_least_0.predict(new, 20), free.predict(new, 20)
    assert other.interval(0.95)[0].min() < 0
    for reading in ("gaussian", "mixture"):
        (low, high), (free_low, free_high) = found.interval(0.95, reading), other.interval(0.95, reading)
        torch.testing.assert_close(low, free_low.clamp_min(0), rtol=0, atol=0)
        above = other.mean >= 0  # below, there is still a width: tests/predictive/test_background.py
        torch.testing.assert_close(high[above], free_high[above].clamp_min(0), rtol=0, atol=0)
        assert (high[~above] >= free_high[~above]).all()
        assert (low < high).all()
        low, high = (end.numpy() for end in found.interval(0.5, reading))
        assert found.coverage(truth, 0.5, reading) == np.mean((truth >= low) & (truth <= high))
        assert found.coverage(truth, 0.5, reading) >= other.coverage(truth, 0.5, reading)
    torch.testing.assert_close(found.mean, other.mean.clamp_min(0), rtol=0, atol=0)
    torch.testing.assert_close(found.std, other.std, rtol=0, atol=0)
    assert found.nll(truth) == other.nll(truth)
    assert at_least_0.one_shot(new).interval(0.95)[0].min() == 0
    calibrated = at_least_0.calibrated("conformal", (new, truth), 20)
    assert calibrated.predict(new, 20).interval(0.9)[0].min() == 0
    at_least_0.save(tmp_path)
    again = wf.load(tmp_path, model=mlp(2))
    assert again.training.likelihood == wf.Regression(noise="fit", least=0.0)
    assert again.predict(new, 20).interval(0.95)[0].min() == 0


def test_a_y_below_its_least_is_refused():
    x = np.zeros((20, 1))
    with pytest.raises(ValueError, match="y is said to be at least 0, but is as low as -2"):
        wf.marginalise(training(mlp(1), likelihood=wf.Regression(least=0)), (x, np.arange(20.0) - 2), wf.recipes.swag())
    with pytest.raises(ValueError, match="least is a number, or None"):
        wf.Regression(least=math.nan)
