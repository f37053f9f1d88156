"""Which likelihoods a column of numbers may have, and which one left-out rows choose."""

import numpy as np
import pandas as pd
import pytest
import torch

import wherefrom as wf
from wherefrom.likelihoods import TableWishes
from wherefrom.likelihoods.choice import candidates

ROWS = 400
RANDOM = np.random.default_rng(5)
X = RANDOM.normal(size=(ROWS, 3))
MEAN = 0.6 * X[:, 0] - 0.4 * X[:, 1]


def names(y, **wishes):
    return list(candidates("regression", np.asarray(y, dtype=float), TableWishes(**wishes)))


def test_numbers_have_the_likelihoods_that_they_can_have():
    whole = np.arange(60)
    assert names(whole - 1) == ["gaussian", "student"]
    assert names(whole + 0.5) == ["gaussian", "student", "positive"]
    assert names(whole) == ["gaussian", "student", "positive", "counts"]
    assert names(100 * whole) == ["gaussian", "student", "positive"]  # such counts are as good as quantities
    assert names(whole * (whole > 50)) == ["gaussian", "student"]  # nine rows above zero are too few
    assert names(whole, noise="none") == ["gaussian"]
    assert candidates("counts", whole.astype(float), TableWishes()) == {}


def test_zeros_are_behind_a_hurdle():
    y = np.arange(60.0) + 0.5
    assert not candidates("regression", y, TableWishes())["positive"].zeros
    assert candidates("regression", y * (y > 9), TableWishes())["positive"].zeros


def table(y):
    return pd.DataFrame(X, columns=["a", "b", "c"]).assign(y=y)


CASES = {
    "gaussian": MEAN + 0.5 * RANDOM.normal(size=ROWS),
    "positive": np.exp(MEAN + 0.5 * RANDOM.normal(size=ROWS)),
    "counts": RANDOM.poisson(np.exp(MEAN + 0.5)).astype(float),
}


@pytest.mark.slow
@pytest.mark.parametrize("law", CASES)
def test_left_out_rows_choose_the_law_that_y_has(law):
    model = wf.fit(table(CASES[law]), "y", task="regression", families="network", workers=1)
    assert model.target.task == ("regression" if law == "gaussian" else law)
    if law == "gaussian":
        assert model.posterior.training.likelihood.tails == "gaussian"


@pytest.mark.slow
def test_heavy_tails_are_found():
    y = MEAN + 0.3 * np.random.default_rng(0).standard_t(2.2, size=ROWS)
    model = wf.fit(table(y), "y", families="network", workers=1)
    assert model.posterior.training.likelihood.tails == "student"


@pytest.mark.slow
def test_stays_are_as_good_as_a_log_normal_ridge_by_defaults():
    """Within 0.02 of its NLL, with two standard errors of the paired difference, and 93 to 97% are covered."""
    random = np.random.default_rng(1)
    x = random.normal(size=(6000, 3))
    y = np.exp(1.2 + 0.5 * x[:, 0] - 0.3 * x[:, 1] + 0.7 * random.normal(size=6000))
    frame = pd.DataFrame(x, columns=["a", "b", "c"]).assign(stay=y)
    train, test = frame[:1500], frame[1500:]
    model = wf.fit(train, "stay", workers=1)
    assert model.target.task == "positive"
    design, new = (np.column_stack([np.ones(len(each)), each[["a", "b", "c"]]]) for each in (train, test))
    slopes, *_ = np.linalg.lstsq(design, np.log(train.stay), rcond=None)
    spread = (np.log(train.stay) - design @ slopes).std(ddof=4)
    z = (np.log(test.stay) - new @ slopes) / spread
    ridge = (0.5 * z**2 + np.log(spread) + 0.5 * np.log(2 * np.pi) + np.log(test.stay)).to_numpy()
    ours = model.look(test).predicted
    gap = np.asarray(ours.by_row["nll"]) - ridge
    assert gap.mean() < 0.02 + 2 * gap.std() / len(gap) ** 0.5
    assert 0.93 < ours.scores["coverage of the 95% interval"] < 0.97


@pytest.mark.filterwarnings("ignore:.*(intervals|hold|better)")
def test_a_likelihood_can_be_insisted_on():
    quick = dict(epochs=5, draws=2, workers=1)
    y = CASES["positive"]
    assert wf.fit(table(y), "y", likelihood="gaussian", **quick).target.task == "regression"
    assert wf.fit(table(y), "y", likelihood="positive", **quick).target.task == "positive"
    student = wf.fit(table(y), "y", likelihood="student", **quick)
    assert student.posterior.training.likelihood.tails == "student"
    with pytest.raises(ValueError, match="likelihood='counts' is for counts; take likelihood='gaussian'"):
        wf.fit(table(y), "y", likelihood="counts", **quick)
    with pytest.raises(ValueError, match="likelihood='gaussian' is for quantities, and not for task='counts'"):
        wf.fit(table(np.round(y)), "y", task="counts", likelihood="gaussian", **quick)
    with pytest.raises(ValueError, match="calibrate='shape' is not for counts"):
        wf.fit(table(np.round(y)), "y", likelihood="counts", calibrate="shape", **quick)
    with pytest.raises(ValueError, match="likelihood= is auto, gaussian, student, positive or counts, not 'cauchy'"):
        wf.fit(table(y), "y", likelihood="cauchy", **quick)


@pytest.mark.filterwarnings("ignore:.*(intervals|hold|better|rules out)")
def test_values_that_the_chosen_law_rules_out_are_predicted_but_not_scored():
    frame = table(CASES["positive"])
    model = wf.fit(frame, "y", likelihood="positive", epochs=5, draws=2, workers=1)
    new = frame[:10].assign(y=[0.0, -1.0, *CASES["positive"][2:10]])
    looked = model.look(new)
    assert len(model.predict(new)) == 10
    assert looked.predicted.scores.rows == 8
    assert any("rules out: not scored" in str(note) for note in looked.notes)


@pytest.mark.filterwarnings("ignore:.*(intervals|hold|better)")
def test_a_least_value_other_than_zero_keeps_the_gaussian():
    model = wf.fit(table(CASES["positive"]), "y", least=-1.0, epochs=5, draws=2, workers=1)
    assert model.target.task == "regression"


def test_the_variance_of_heavy_tails_is_stretched_as_that_of_a_t():
    """The factor is the one with the lowest NLL of the t itself, by a fine grid."""
    random = np.random.default_rng(2)
    noise = np.where(random.random(ROWS) < 0.1, 6.0, 1.0) * random.normal(size=ROWS)
    how = wf.Training(
        wf.MLP([8]), wf.Algorithm("adam", lr=0.01, batch_size=50), 20, wf.Regression("fit", 0.3, tails="student")
    )
    posterior = wf.marginalise(how, (X[:300], (MEAN + 0.3 * noise)[:300]), [wf.InitialCondition(2)])
    data = X[300:], (MEAN + 0.3 * noise)[300:]
    (calibration,) = posterior.calibrated("variance", data).calibration
    prediction = posterior.predict(X[300:])
    factors = np.exp(np.linspace(-2, 2, 401))
    scores = [prediction.stretched(torch.tensor([factor])).nll(data[1]) for factor in factors]
    assert calibration.factor[0] == pytest.approx(factors[int(np.argmin(scores))], rel=0.02)


@pytest.mark.parametrize(
    ("y", "how", "words"),
    [
        (MEAN, {"likelihood": "positive"}, r"column 'y', row \d+, is -.*'positive' is for positive quantities; take"),
        (np.exp(MEAN), {"likelihood": "counts"}, r"column 'y', row 0, is .*likelihood='counts' is for counts"),
        (MEAN, {"task": "positive"}, r"column 'y', row \d+, is -.*task='positive' is for positive quantities; take"),
        (
            np.exp(MEAN),
            {"likelihood": "student", "task": "positive"},
            r"likelihood='student' is for quantities, and not for task='positive'",
        ),
    ],
)
def test_values_that_an_insisted_law_rules_out_are_named(y, how, words):
    with pytest.raises(ValueError, match=words):
        wf.fit(table(y), "y", epochs=3, **how)
