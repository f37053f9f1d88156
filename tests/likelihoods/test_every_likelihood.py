"""What holds for every likelihood, from training to files, tables and reports. A new one adds a line to CASES."""

import pickle
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pytest
import torch

import wherefrom as wf
from conftest import mlp, training
from wherefrom.files import codec
from wherefrom.files.codec import stored
from wherefrom.likelihoods import LIKELIHOODS
from wherefrom.likelihoods.choice import TASKS
from wherefrom.likelihoods.likelihood import TableWishes
from wherefrom.predictive.background import OUTSIDE, Background
from wherefrom.predictive.calibration import CALIBRATIONS
from wherefrom.report.content import content
from wherefrom.report.words import Voice
from wherefrom.tables.scores import together

ROWS = 120
RANDOM = np.random.default_rng(3)
X = RANDOM.normal(size=(ROWS, 4))
MEAN = X[:, 0] - 0.5 * np.abs(X[:, 1])


LEVELS = ["none", "mild", "moderate", "severe"]


@dataclass(frozen=True)
class Case:
    """A likelihood, what it is to predict, and the network's outputs."""

    likelihood: Any
    y: Any
    outputs: int = 1


CASES = {
    "regression": Case(wf.Regression(noise="fit", held_out=0.2), MEAN + 0.3 * RANDOM.normal(size=ROWS)),
    "classification": Case(wf.Classification(), np.array(["low", "high"])[(MEAN > -0.3).astype(int)], 2),
    "ordinal": Case(wf.Ordinal(levels=LEVELS), np.array(LEVELS)[np.digitize(MEAN, [-1.0, -0.3, 0.4])], 3),
    "quantiles": Case(wf.Quantiles([0.05, 0.25, 0.5, 0.75, 0.95]), MEAN + 0.3 * RANDOM.normal(size=ROWS), 5),
    "counts": Case(wf.Counts(held_out=0.2), RANDOM.poisson(np.exp(MEAN)).astype(float)),
    "positive": Case(wf.Positive(held_out=0.2), np.exp(MEAN + 0.3 * RANDOM.normal(size=ROWS))),
    "positive, with zeros": Case(
        wf.Positive("predicted", zeros=True),
        np.where(RANDOM.random(ROWS) < 0.3, 0.0, np.exp(MEAN + 0.3 * RANDOM.normal(size=ROWS))),
        3,
    ),
    "regression, heavy tails": Case(
        wf.Regression("fit", 0.2, tails="student"), MEAN + 0.2 * RANDOM.standard_t(3, size=ROWS)
    ),
    "survival": Case(
        wf.Survival(held_out=0.2),
        np.stack([np.exp(MEAN + 0.5 * RANDOM.gumbel(size=ROWS)), RANDOM.uniform(size=ROWS) < 0.7], 1),
    ),
}


@stored("ContractNormal")
@dataclass(frozen=True)
class Normal(wf.OwnLikelihood):
    """A user's: a normal distribution, with a width that is the same for all rows."""

    def distribution(self, location):
        return torch.distributions.Normal(location, 0.4, validate_args=False)


CASES["own"] = Case(Normal(), CASES["regression"].y)
CASES["several"] = Case(
    wf.Several(stay=wf.Regression(noise="fit", held_out=0.2), died=wf.Classification(), visits=wf.Counts(0)),
    {name: CASES[task].y for name, task in (("stay", "regression"), ("died", "classification"), ("visits", "counts"))},
    4,
)


def test_every_likelihood_is_here():
    assert {case.likelihood.task for case in CASES.values()} == {*LIKELIHOODS, "several", "own"}


def some_rows(y: Any, rows: Any) -> Any:
    """Some rows of y, which may be a dictionary of columns."""
    return {name: column[rows] for name, column in y.items()} if isinstance(y, dict) else y[rows]


@pytest.fixture(scope="module", params=CASES)
def case(request) -> Case:
    return CASES[request.param]


@pytest.fixture(scope="module")
def posterior(case) -> wf.Posterior:
    how = training(mlp(outputs=case.outputs), likelihood=case.likelihood)
    return wf.marginalise(
        how, (X[:80], some_rows(case.y, slice(80))), [wf.InitialCondition(3), wf.Iterations(wf.SWAG(3))], seed=1
    )


@pytest.fixture(scope="module")
def prediction(posterior) -> Any:
    return posterior.predict(X[80:], samples=20)


def test_it_says_what_it_needs(case):
    likelihood = case.likelihood
    encoded = likelihood.encode(case.y)
    assert len(encoded.y) == ROWS
    assert likelihood.outputs(encoded.targets) == case.outputs
    likelihood.check_network("the model", case.outputs, encoded.targets)
    with pytest.raises(ValueError, match="the model"):
        likelihood.check_network("the model", case.outputs + 1, encoded.targets)
    assert set(likelihood.calibrates_tables) <= set(likelihood.calibrations) <= set(CALIBRATIONS)
    assert set(likelihood.own_calibrations) <= set(likelihood.calibrations)
    assert likelihood.changed({}) == likelihood


def parts_fit_their_noise(case: Case, posterior: wf.Posterior) -> None:
    """Assert that the mixture of each target is most likely with the noise fitted to it, and others have none."""
    data = X[80:], some_rows(case.y, slice(80, None))
    fitted = posterior.fit_noise(data)
    prediction = fitted.predict(X[80:], samples=100)
    for (name, part), noise in zip(case.likelihood.parts.items(), fitted.fitted.noise, strict=True):
        assert bool(noise.isfinite()) == part.fits_noise
        if part.fits_noise:
            one = prediction[name]
            torch.testing.assert_close(one.mixture.noise, noise.reshape(1))
            less, best, more = (
                replace(one, mixture=replace(one.mixture, noise=factor * one.mixture.noise)).nll(
                    data[1][name], "mixture"
                )
                for factor in (0.8, 1.0, 1.25)
            )
            assert best < min(less, more)


def test_one_that_fits_no_noise_says_which_does(case, posterior):
    if "noise" not in case.likelihood.table_options:
        if case.likelihood.fits_noise:
            parts_fit_their_noise(case, posterior)
            return
        with pytest.raises(ValueError, match=rf"^{type(case.likelihood).__name__}\(.*\) has no noise to fit$"):
            posterior.fit_noise((X[80:], some_rows(case.y, slice(80, None))))
        return
    given, y = type(case.likelihood)(0.3), np.maximum(case.y, 0.1) if case.likelihood.learns_logs else case.y
    how = training(mlp(outputs=given.outputs(given.encode(y).targets)), likelihood=given)
    members = wf.marginalise(how, (X[:80], some_rows(y, slice(80))), [])
    name, field = type(given).__name__, fields(given)[0].name
    with pytest.raises(ValueError, match=rf"^{name}\({field}=0.3.* has no noise to fit; use {name}\({field}='fit'"):
        members.fit_noise((X[80:], some_rows(y, slice(80, None))))


def one_shot_is_refused(posterior: wf.Posterior) -> None:
    """Assert that the error offers samples instead."""
    with pytest.raises(ValueError, match=r"has no one-shot prediction.*Use predict\(x, samples=\.\.\.\)"):
        posterior.predict(X[80:], samples=20, method="one_shot")


OF_ESTIMATORS = [name for name in CASES if CASES[name].likelihood.task in TASKS.values()]


@pytest.mark.parametrize("case", OF_ESTIMATORS, indirect=True)
@pytest.mark.parametrize("reading", [None, "few_members", "paper", "gaussian", "shape", "mixture", "conformal", "odd"])
def test_every_reading_of_a_quantity_works_or_is_refused_with_words(case, prediction, reading):
    """Wherever a method of one quantity's prediction takes a reading, those of all others do."""
    y = case.y[80:]
    calls = {
        "quantile": lambda: prediction.quantile(0.7, reading=reading),
        "interval": lambda: prediction.interval(0.8, reading=reading)[1],
        "cdf": lambda: prediction.cdf(y, reading=reading),
        "log_density": lambda: prediction.log_density(y, reading=reading),
        "nll": lambda: torch.tensor(prediction.nll(y, reading=reading)),
        "crps": lambda: prediction.crps(y, reading=reading, by_row=True),
        "coverage": lambda: torch.tensor(prediction.coverage(y, 0.8, reading=reading)),
    }
    for name, call in calls.items():
        why = refusal(call)
        assert why is None or "read" in why or "predict by posterior.calibrated" in why, name
        assert why is None or reading not in (None, "paper", "mixture"), name
        assert reading != "odd" or "'odd'" in str(why), name


@pytest.mark.parametrize("case", OF_ESTIMATORS, indirect=True)
def test_the_report_advises_by_the_likelihood_in_use(case, prediction):
    likelihood, noise = type(case.likelihood).__name__, fields(case.likelihood)[0].name
    for kind, about in (("none", "cause"), ("fit", "mend_group")):
        words = prediction.views(case.y[80:], ["y"], kind, "")[0].words
        assert f"wf.{likelihood}({noise}=" in Voice(words=words).filled(getattr(words, about))
    cure = Voice(words=words).filled(words.calibrate)
    assert any(f'posterior.calibrated("{by}", data)' in cure for by in case.likelihood.own_calibrations)


def refusal(call) -> str | None:
    """Words of a ValueError; None where the call returns finite numbers."""
    try:
        assert bool(call().isfinite().all())
    except ValueError as error:
        return str(error)
    return None


@pytest.mark.parametrize("method", ["monte_carlo", "one_shot"])
def test_predictions_can_be_pickled(case, posterior, method):
    if method == "one_shot" and case.likelihood.head == "none":
        one_shot_is_refused(posterior)
        return
    prediction = posterior.predict(X[80:90], samples=10, method=method)
    for each in (prediction, prediction.of_rows(slice(2, 5))):
        again = pickle.loads(pickle.dumps(each))
        assert torch.equal(again.mean, each.mean)
        assert torch.equal(again.std, each.std)
        before, after = each.all_sources(), again.all_sources()
        assert str(after.table()) == str(before.table())


def test_the_loss_of_members_together_is_that_of_each(case, posterior):
    """And row weights count as copies of rows do."""
    loss = case.likelihood.loss_for(posterior.scaler)
    y = posterior.scaler.y(case.likelihood.encode(some_rows(case.y, slice(6))).y, torch.float64)
    outputs = torch.randn(3, 6, case.outputs, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    each = torch.stack([loss(one, y) for one in outputs])
    torch.testing.assert_close(loss(outputs, y.expand(3, -1, -1)), each)
    weights = torch.tensor([2.0, 1, 1, 1, 0, 1], dtype=torch.float64)
    repeated = [0, 0, 1, 2, 3, 5]
    torch.testing.assert_close(loss(outputs[0], y, weights), loss(outputs[0][repeated], y[repeated]))


def test_a_prediction_keeps_its_promises(case, prediction):
    assert len(prediction) == ROWS - 80
    assert torch.equal(prediction.variance.sqrt(), prediction.std)
    shares = sum(prediction.all_sources().values())
    torch.testing.assert_close(shares, torch.ones_like(shares))
    assert prediction.row_doubt.shape[0] == len(prediction)
    truth, some = some_rows(case.y, slice(80, None)), prediction.of_rows(torch.tensor([0, 7]))
    torch.testing.assert_close(some.mean, prediction.mean[[0, 7]])
    for name, values in prediction.row_losses(truth).items():
        np.testing.assert_allclose(some.row_losses(some_rows(truth, [0, 7]))[name], values[[0, 7]])
    if not case.likelihood.has_density:
        with pytest.raises(ValueError, match="no density, and no NLL"):
            prediction.nll(truth)
        with pytest.raises(ValueError, match="no density"):
            prediction.member_log_densities(truth)
        return
    by_row = prediction.nll(truth, by_row=True)
    assert prediction.nll(truth) == pytest.approx(float(by_row.mean()))
    densities = prediction.member_log_densities(truth)
    assert densities.shape == (3, ROWS - 80)
    torch.testing.assert_close(some.nll(some_rows(truth, [0, 7]), by_row=True), by_row[[0, 7]])


LACKS = {  # by task: what there cannot be, and the words of the error
    "classification": ({"median", "quantile", "cdf", "interval", "crps"}, "classes have no order: use probabilities"),
    "quantiles": ({"nll", "sample"}, "quantiles are no distribution: .* Use "),
    "several": (
        {"median", "quantile", "cdf", "interval", "crps", "sample"},
        r"every target has a distribution by itself: ask for one by its name, as prediction\[name\]",
    ),
}


def numbers(case: Case, values: Any) -> np.ndarray:
    """Values of y as numbers: levels by their order."""
    is_ordinal = case.likelihood.task == "ordinal"
    return np.vectorize(LEVELS.index)(values) if is_ordinal else np.asarray(values, dtype=np.float64)


def probability_of(case: Case, prediction: Any, y: Any) -> np.ndarray:
    """Probability of a value no larger than y, row by row; times are asked for one by one."""
    below = prediction.cdf(y)
    return np.asarray(below.diagonal() if case.likelihood.task == "survival" else below)


def test_every_prediction_has_its_distribution_or_says_why_not(case, prediction):
    """Median, quantiles, probabilities, intervals, scores and draws are there, and speak of one distribution."""
    truth, draws = some_rows(case.y, slice(80, None)), 400
    calls = {
        "mean": lambda: prediction.mean,
        "median": lambda: numbers(case, prediction.median),
        "quantile": lambda: numbers(case, prediction.quantile(0.7)),
        "cdf": lambda: probability_of(case, prediction, prediction.quantile(0.7)),
        "interval": lambda: np.stack([numbers(case, end) for end in prediction.interval(0.9)], 1),
        "nll": lambda: prediction.nll(truth, by_row=True),
        "crps": lambda: prediction.crps(truth, by_row=True),
        "sample": lambda: np.moveaxis(np.asarray(prediction.sample(draws, seed=1)), 0, 1),
    }
    lacks, why = LACKS.get(case.likelihood.task, (set(), ""))
    values = {}
    for name, call in calls.items():
        if name in lacks:
            with pytest.raises((AttributeError, ValueError), match=why):
                call()
            continue
        values[name] = np.asarray(call())
        assert len(values[name]) == len(prediction), name
        assert values[name].dtype.kind == "U" or np.isfinite(values[name]).all(), name
    if "quantile" not in values:
        return
    assert (values["crps"] >= 0).all()
    low, high = values["interval"].T
    assert ((low <= values["median"]) & (values["median"] <= high)).all()
    narrower = [numbers(case, end) for end in prediction.interval(0.5)]
    assert (low <= narrower[0]).all()
    assert (narrower[1] <= high).all()
    assert (numbers(case, prediction.quantile(0.3)) <= values["quantile"]).all()
    below = values["cdf"]
    if case.likelihood.task in ("counts", "ordinal"):
        assert (below >= 0.7 - 1e-9).all()  # the least value with this probability
    else:
        atoms = values["quantile"] == 0  # of a y with zeros
        np.testing.assert_allclose(below[~atoms], 0.7, atol=1e-6)
        assert (below[atoms] >= 0.7).all()
    if "sample" in values:
        drawn = numbers(case, values["sample"]) <= values["quantile"][:, None]
        error = np.sqrt((below * (1 - below)).sum() / draws) / len(prediction)
        assert drawn.mean() == pytest.approx(below.mean(), abs=4 * error)


def test_one_shot_is_near_samples(case, posterior, prediction):
    if case.likelihood.head == "none":
        with pytest.raises(ValueError, match=r"has no one-shot prediction.*Use predict\(x, samples=\.\.\.\)"):
            posterior.one_shot(X[80:])
        assert posterior.predict(X[80:], samples=20, method="auto").method == "monte_carlo"
        return
    moments = posterior.one_shot(X[80:])
    many = posterior.predict(X[80:], samples=400)
    assert float((moments.mean - many.mean).abs().max()) < 0.5 * float(many.std.mean())


def test_files_give_the_same_predictions(case, posterior, prediction, tmp_path):
    document = codec.pack(case.likelihood, {})
    assert codec.unpack(document) == case.likelihood
    posterior.save(tmp_path)
    again = wf.load(tmp_path, mlp(outputs=case.outputs)).predict(X[80:], samples=20)
    assert torch.equal(again.mixture.answers, prediction.mixture.answers)
    assert torch.equal(again.variance, prediction.variance)


@pytest.mark.parametrize("by", CALIBRATIONS)
def test_it_is_calibrated_or_says_why_not(case, posterior, by):
    data = X[80:], some_rows(case.y, slice(80, None))
    if by not in case.likelihood.own_calibrations:
        with pytest.raises(ValueError, match=case.likelihood.target):
            posterior.calibrated(by, data)
        return
    calibrated = posterior.calibrated(by, data)
    assert [each.by for each in calibrated.calibration] == [by]
    scores = calibrated.predict(X[80:], samples=20).scores_by_level(some_rows(case.y, slice(80, None)), (0.5, 0.8))
    assert ("NLL" if case.likelihood.has_density else "CRPS") in scores


def test_epochs_are_searched_by_scores_of_single_networks(case, posterior):
    likelihood = case.likelihood.to_search(True)
    y = case.likelihood.encode(some_rows(case.y, slice(10))).y
    outputs = torch.randn(2, 10, case.outputs, generator=torch.Generator().manual_seed(0))
    scores = likelihood.member_scores(outputs, y, posterior.scaler)
    for each in (scores.nll, scores.crps):
        assert each.shape == (2, 10)
        assert bool(each.isfinite().all())
    if scores.deviation is not None:
        assert scores.deviation.shape[:2] == (2, 10)
    assert case.likelihood.by_row is None or case.likelihood.by_row.noise_kind == "predicted"


def test_tables_and_reports_show_it(case, posterior, prediction):
    columns, notes = prediction.columns(0.9)
    assert {len(values) for values in columns.values()} == {len(prediction)}
    assert not notes
    if case.likelihood.task in LIKELIHOODS:
        rows = prediction.row_scores(columns, some_rows(case.y, slice(80, None)))
        scores = together(prediction.summary, {name: [values] for name, values in rows.items()}, 0.9)
        assert scores.rows == len(prediction)
        assert str(scores.table())
    document = content(posterior, X[80:], some_rows(case.y, slice(80, None)), samples=20)
    assert len(document["views"]) == (len(case.y) if isinstance(case.y, dict) else 1)
    for view in document["views"]:
        assert view["headline"]["say"]
        assert set(view["scores"]) <= set(document["scores"])
        assert view["advice"]["say"]
        rows, fields = view["rows"], view["fields"]
        assert rows["sort"] in rows["columns"]
        assert {*rows["columns"], *rows["detail"], *rows["tip"], *rows["search"]} <= fields.keys()
        for field, about in fields.items():
            assert {*about.get("of", [field])} <= view["points"].keys(), field


@pytest.mark.parametrize("method", ["monte_carlo", "one_shot"])
def test_rows_outside_are_answered_by_what_is_known_without_columns(case, posterior, method):
    likelihood = case.likelihood
    if method == "one_shot" and likelihood.head == "none":
        one_shot_is_refused(posterior)
        return
    if likelihood.task not in LIKELIHOODS:  # rows outside are those of tables
        by_marginalise = r"^tables learn .*: use wf\.marginalise with "
        with pytest.raises(ValueError, match=by_marginalise):
            type(likelihood).of_table(TableWishes())
        everywhere = Background(*torch.zeros(2, 1, 1, 1, dtype=torch.float64), torch.ones(1, dtype=torch.float64))
        with pytest.raises(ValueError, match=by_marginalise):
            posterior.predict(X[80:], samples=20).blended(everywhere.at(torch.ones(ROWS - 80)))
        return
    y = likelihood.encode(some_rows(case.y, slice(80))).y
    points, noise = likelihood.background(y, posterior.scaler, posterior.schema.targets)
    outputs = points.shape[-1]
    known = Background(points[None], noise[None], torch.ones(outputs, dtype=torch.float64))
    networks = posterior.predict(X[80:], samples=20, method=method)
    assert (networks.needed_stretch(known, 0.9) >= 1).all()
    inside, between, outside = (networks.blended(known.at(torch.full((ROWS - 80,), w))) for w in (0.0, 0.5, 1.0))
    torch.testing.assert_close(inside.mean, networks.mean)
    torch.testing.assert_close(inside.variance, networks.variance)
    assert (inside.all_sources()[OUTSIDE] == 0).all()
    assert (outside.all_sources()[OUTSIDE] == 1).all()
    torch.testing.assert_close(between.mean, (networks.mean + outside.mean) / 2)
    truth = some_rows(case.y, slice(80, None))
    for each in (inside, between, outside):
        shares = sum(each.all_sources().values())
        torch.testing.assert_close(shares, torch.ones_like(shares))
        columns, _ = each.columns(0.9)
        rows = each.row_scores(columns, truth)
        assert all(np.isfinite(np.asarray(values, dtype=float)).all() for values in rows.values())
        assert len(pickle.loads(pickle.dumps(each))) == ROWS - 80
    doubt = [getattr(each, "entropy", each.std) for each in (networks, between, outside)]
    assert (doubt[1] >= doubt[0] - 1e-6).all()
    assert (doubt[2] >= doubt[1] - 1e-6).all()
