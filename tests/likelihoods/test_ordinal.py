"""Ordered levels: the cumulative logit against scipy, what the order adds, and the slot from table to report."""

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.special import expit
from typer.testing import CliRunner

import wherefrom as wf
from conftest import mlp, training
from wherefrom.cli import app
from wherefrom.likelihoods.ordinal import OrdinalPrediction
from wherefrom.predictive.conformal import Conformal
from wherefrom.predictive.fit import Fit
from wherefrom.predictive.mixture import Mixture
from wherefrom.predictive.monte_carlo import Plan
from wherefrom.training.losses import OrdinalNLL, log_level_probabilities

LEVELS = ("none", "mild", "moderate", "severe")


def by_hand(outputs: np.ndarray) -> np.ndarray:
    """Return probabilities of all levels, as differences of cumulative ones."""
    cuts = np.concatenate([[0.0], np.cumsum(np.log1p(np.exp(outputs[1:])))])
    cuts -= cuts[(len(cuts) - 1) // 2]
    above = np.concatenate([[1.0], expit(outputs[0] - cuts), [0.0]])
    return -np.diff(above)


@pytest.mark.parametrize("levels", [2, 3, 4, 7])
def test_probabilities_are_differences_of_logistic_functions(levels):
    outputs = torch.randn(40, levels - 1, generator=torch.Generator().manual_seed(levels), dtype=torch.float64)
    logs = log_level_probabilities(2 * outputs)
    expected = np.array([by_hand(row) for row in 2 * outputs.numpy()])
    np.testing.assert_allclose(logs.exp(), expected, rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(logs.exp().sum(1), 1.0, atol=1e-12)
    y = torch.arange(40.0, dtype=torch.float64)[:, None] % levels
    each = -np.log(expected[np.arange(40), y[:, 0].long()])
    assert float(OrdinalNLL()(2 * outputs, y)) == pytest.approx(each.mean(), abs=1e-10)


def test_nothing_cancels_far_out():
    """Both cutpoints are 200 away: the difference of two probabilities would be zero."""
    outputs = torch.tensor([[200.0, -30.0, 0.5]], dtype=torch.float64, requires_grad=True)
    logs = log_level_probabilities(outputs)
    assert bool(logs.isfinite().all())
    # P(y = 0) = s(c_0 - 200) with c_0 = -log(1 + e^-30) (the middle cutpoint is the second one)
    assert float(logs[0, 0].detach()) == pytest.approx(-200 - np.log1p(np.exp(-30)), abs=1e-10)
    (slope,) = torch.autograd.grad(logs.sum(), outputs)
    assert bool(slope.isfinite().all())


def test_the_loss_is_a_gradient_of_itself():
    outputs = torch.randn(6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
    y = torch.tensor([0.0, 1, 2, 3, 4, 2], dtype=torch.float64)[:, None]
    assert torch.autograd.gradcheck(lambda f: OrdinalNLL()(f, y), (outputs,))


# ---------------------------------------------------------------------- what the order adds


def predicted(probabilities, **others) -> OrdinalPrediction:
    logs = torch.tensor(probabilities, dtype=torch.float64).log()[:, None]  # (members, 1, rows, levels)
    return OrdinalPrediction(Mixture(logs, Plan(1, vary_theta=False, vary_mask=False), ()), LEVELS, **others)


PROBABILITIES = [[[0.1, 0.2, 0.3, 0.4], [0.7, 0.1, 0.1, 0.1]], [[0.3, 0.2, 0.3, 0.2], [0.9, 0.1 / 3, 0.1 / 3, 0.1 / 3]]]


def test_quantiles_intervals_and_scores_by_hand():
    prediction = predicted(PROBABILITIES)
    np.testing.assert_allclose(prediction.cumulative[0], [0.2, 0.4, 0.7, 1.0])
    assert prediction.median.tolist() == ["moderate", "none"]
    assert prediction.quantile(0.4).tolist() == ["mild", "none"]
    assert prediction.quantile(0.71).tolist() == ["severe", "none"]
    low, high = prediction.interval(0.5)
    assert low.tolist() == ["mild", "none"]
    assert high.tolist() == ["severe", "none"]
    np.testing.assert_allclose(prediction.cdf(["mild", "severe"]), [0.4, 1.0])
    expected = 0.2**2 + 0.6**2 + 0.3**2  # the truth is "mild"
    assert float(prediction.rps(["mild", "none"], by_row=True)[0]) == pytest.approx(expected)
    assert prediction.predicted[1] == "none"


def test_the_ranked_probability_score_is_the_crps_of_the_numbers():
    """RPS = E |Y - y| - E |Y - Y'| / 2 for the numbers of the levels."""
    p = np.array([0.2, 0.2, 0.3, 0.3])
    k = np.arange(4)
    apart = (p[:, None] * p * np.abs(k[:, None] - k)).sum()
    prediction = predicted([[p.tolist()] * 4])
    expected = [(p * np.abs(k - y)).sum() - apart / 2 for y in k]
    np.testing.assert_allclose(prediction.rps(list(LEVELS), by_row=True), expected, atol=1e-12)


def test_a_conformal_interval_holds_the_conformal_set():
    conformal = Conformal(torch.linspace(0, 0.75, 40, dtype=torch.float64)[:, None], Fit(40), "sets of classes")
    prediction = predicted([[[0.4, 0.05, 0.32, 0.23], [0.24, 0.25, 0.26, 0.25]]], conformal=conformal)
    sets = prediction.sets(0.9)
    low, high = prediction.interval(0.9)
    assert sets[0].tolist() == [True, False, True, False]
    assert (low[0], high[0]) == ("none", "moderate")
    assert not sets[1].any()
    assert (low[1], high[1]) == ("moderate", "moderate")


def test_samples_have_the_probabilities():
    drawn = predicted(PROBABILITIES).sample(20_000, seed=1)
    share = (drawn[:, 0] == "severe").mean()
    assert abs(share - 0.3) < 4 * np.sqrt(0.3 * 0.7 / 20_000)


# ---------------------------------------------------------------------- the order of y


def test_numbers_and_ordered_categories_have_an_order():
    pandas = pytest.importorskip("pandas")
    assert wf.Ordinal().encode(np.array([3, 10, 3, 5])).classes == (3, 5, 10)
    sizes = pandas.Series(pandas.Categorical(["M", "S", "L"], ["S", "M", "L"], ordered=True))
    encoded = wf.Ordinal().encode(sizes)
    assert encoded.classes == ("S", "M", "L")
    assert encoded.y.flatten().tolist() == [1, 0, 2]
    given = wf.Ordinal(levels=["lo", "hi"]).encode(["hi", "lo", "hi"])
    assert given.y.flatten().tolist() == [1, 0, 1]


def test_text_without_levels_is_an_error():
    with pytest.raises(ValueError, match=r"wf.Ordinal\(levels=\[...\]\) with 'high', 'low' in their order"):
        wf.Ordinal().encode(["low", "high", "low"])
    with pytest.raises(ValueError, match="y is 'middle' in row 1, which is none of the classes"):
        wf.Ordinal(levels=["low", "high"]).encode(["low", "middle"])
    with pytest.raises(ValueError, match="name at least two levels, each once"):
        wf.Ordinal(levels=["low", "low"])


# ---------------------------------------------------------------------- training


def rows(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw from a proportional-odds model: x, numbers of levels, and their true probabilities."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(count, 2))
    cuts, location = np.array([-1.5, 0.0, 1.0]), 1.5 * x[:, 0] - x[:, 1]
    y = (location[:, None] + random.logistic(size=(count, 1)) > cuts).sum(1)
    above = np.concatenate([np.ones((count, 1)), expit(location[:, None] - cuts), np.zeros((count, 1))], 1)
    return x, y, -np.diff(above, axis=1)


@pytest.mark.parametrize("engine", ["torch", "native"])
def test_probabilities_are_calibrated_on_synthetic_truth(engine):
    """A randomised PIT of levels is uniform, and the NLL is near that of the truth."""
    x, y, truth = rows(2600)
    how = wf.Training(wf.MLP([10]), wf.Algorithm("adam", lr=0.01, batch_size=100), 15, wf.Ordinal(levels=4))
    posterior = wf.marginalise(how, (x[:1600], y[:1600]), [wf.InitialCondition(3)], engine=engine)
    prediction, y = posterior.predict(x[1600:]), y[1600:]
    known = -np.log(truth[1600:][np.arange(1000), y]).mean()
    assert prediction.nll(y) == pytest.approx(known, abs=0.03)
    upper = prediction.cdf(y).numpy()
    p = prediction.probabilities.numpy()[np.arange(1000), y]
    pit = upper - p * np.random.default_rng(1).uniform(size=1000)
    assert stats.kstest(pit, "uniform").pvalue > 0.01


def test_the_order_of_levels_is_what_is_learnt():
    """Two levels are a logistic regression: probabilities fall as the location does."""
    x, y, _ = rows(400)
    labels = np.array(["b", "a"])[(y > 1).astype(int)]  # in the other order than the alphabet's
    how = training(mlp(inputs=2, outputs=1), likelihood=wf.Ordinal(levels=["b", "a"]), epochs=20)
    prediction = wf.marginalise(how, (x, labels), []).predict(x)
    assert np.corrcoef(prediction.probabilities[:, 1], x[:, 0])[0, 1] > 0.5
    with pytest.raises(ValueError, match="has 1 output, but 4 levels take 3"):
        wf.marginalise(training(mlp(inputs=2, outputs=1), likelihood=wf.Ordinal(levels=4)), (x, y), [])


# ---------------------------------------------------------------------- tables


def test_tables_and_the_command(tmp_path):
    x, y, _ = rows(160)
    labels = np.array(LEVELS)[y]
    table = {"a": x[:, 0], "b": x[:, 1], "grade": labels}
    lines = ["a,b,grade", *(f"{a},{b},{grade}" for a, b, grade in zip(x[:, 0], x[:, 1], labels, strict=True))]
    (tmp_path / "grades.csv").write_text("\n".join(lines))
    arguments = ["fit", str(tmp_path / "grades.csv"), "--target", "grade", "--task", "ordinal", "--epochs", "8"]
    arguments += ["--over", "theta0=2", "--out", str(tmp_path / "run")]
    failed = CliRunner().invoke(app, arguments)
    assert failed.exit_code == 2
    said = " ".join(failed.output.split())
    assert "name its levels from the lowest to the highest" in said
    assert "--levels" in said
    done = CliRunner().invoke(app, [*arguments, "--levels", "none, mild,moderate,severe"])
    assert done.exit_code == 0, done.output
    model = wf.load(tmp_path / "run")
    predicted = model.predict({"a": [2.0, -2.0], "b": [-1.0, 1.0]})
    assert list(predicted)[:4] == ["predicted", "median", "lower", "upper"]
    assert list(predicted["median"]) == ["severe", "none"]
    assert list(model.target.classes) == list(LEVELS)
    assert "RPS" in model.scores.values
    with pytest.raises(ValueError, match="holds 'none', which is none of"):
        wf.fit(table, "grade", task="ordinal", levels="mild,moderate,severe", epochs=2)
    with pytest.raises(ValueError, match="levels= is not for"):
        wf.fit(table, "grade", task="classification", levels=LEVELS, epochs=2)
