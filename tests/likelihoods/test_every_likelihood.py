"""What holds for every likelihood, from training to files, tables and reports. A new one adds a line to CASES."""

import pickle
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

import wherefrom as wf
from conftest import mlp, training
from wherefrom.files import codec
from wherefrom.likelihoods import LIKELIHOODS
from wherefrom.predictive.background import OUTSIDE, Background
from wherefrom.predictive.calibration import CALIBRATIONS
from wherefrom.report.content import content
from wherefrom.tables.scores import together

ROWS = 120
RANDOM = np.random.default_rng(3)
X = RANDOM.normal(size=(ROWS, 4))
MEAN = X[:, 0] - 0.5 * np.abs(X[:, 1])


@dataclass(frozen=True)
class Case:
    """A likelihood, what it is to predict, and the network's outputs."""

    likelihood: Any
    y: Any
    outputs: int = 1


CASES = {
    "regression": Case(wf.Regression(noise="fit", held_out=0.2), MEAN + 0.3 * RANDOM.normal(size=ROWS)),
    "classification": Case(wf.Classification(), np.array(["low", "high"])[(MEAN > -0.3).astype(int)], 2),
    "counts": Case(wf.Counts(held_out=0.2), RANDOM.poisson(np.exp(MEAN)).astype(float)),
}


def test_every_likelihood_is_here():
    assert set(CASES) == set(LIKELIHOODS)


@pytest.fixture(scope="module", params=CASES)
def case(request) -> Case:
    return CASES[request.param]


@pytest.fixture(scope="module")
def posterior(case) -> wf.Posterior:
    how = training(mlp(outputs=case.outputs), likelihood=case.likelihood)
    return wf.marginalise(how, (X[:80], case.y[:80]), [wf.InitialCondition(3), wf.Iterations(wf.SWAG(3))], seed=1)


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
    assert likelihood.changed({}) == likelihood


def test_one_that_fits_no_noise_says_which_does(case, posterior):
    if "noise" not in case.likelihood.table_options:
        with pytest.raises(ValueError, match=r"^Classification\(.*\) has no noise to fit$"):
            posterior.fit_noise((X[80:], case.y[80:]))
        return
    given = type(case.likelihood)(0.3)
    members = wf.marginalise(training(mlp(outputs=case.outputs), likelihood=given), (X[:80], case.y[:80]), [])
    name, field = type(given).__name__, "noise" if isinstance(given, wf.Regression) else "dispersion"
    with pytest.raises(ValueError, match=rf"^{name}\({field}=0.3.* has no noise to fit; use {name}\({field}='fit'"):
        members.fit_noise((X[80:], case.y[80:]))


@pytest.mark.parametrize("method", ["monte_carlo", "one_shot"])
def test_predictions_can_be_pickled(posterior, method):
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
    y = posterior.scaler.y(case.likelihood.encode(case.y[:6]).y, torch.float64)
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
    truth = case.y[80:]
    by_row = prediction.nll(truth, by_row=True)
    assert prediction.nll(truth) == pytest.approx(float(by_row.mean()))
    densities = prediction.member_log_densities(truth)
    assert densities.shape == (3, ROWS - 80)
    some = prediction.of_rows(torch.tensor([0, 7]))
    torch.testing.assert_close(some.nll(truth[[0, 7]], by_row=True), by_row[[0, 7]])
    assert prediction.row_doubt.shape[0] == len(prediction)


def test_one_shot_is_near_samples(posterior, prediction):
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
    data = X[80:], case.y[80:]
    if by not in case.likelihood.calibrations:
        with pytest.raises(ValueError, match=case.likelihood.target):
            posterior.calibrated(by, data)
        return
    calibrated = posterior.calibrated(by, data)
    assert [each.by for each in calibrated.calibration] == [by]
    scores = calibrated.predict(X[80:], samples=20).scores_by_level(case.y[80:], (0.5, 0.8))
    assert "NLL" in scores


def test_epochs_are_searched_by_scores_of_single_networks(case, posterior):
    likelihood = case.likelihood.to_search(True)
    y = case.likelihood.encode(case.y[:10]).y
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
    rows = prediction.row_scores(columns, case.y[80:])
    scores = together(prediction.summary, {name: [values] for name, values in rows.items()}, 0.9)
    assert scores.rows == len(prediction)
    assert str(scores.table())
    document = content(posterior, X[80:], case.y[80:], samples=20)
    (view,) = document["views"]
    assert view["headline"]["say"]
    assert set(view["scores"]) <= set(document["scores"])
    assert view["advice"]["say"]


@pytest.mark.parametrize("method", ["monte_carlo", "one_shot"])
def test_rows_outside_are_answered_by_what_is_known_without_columns(case, posterior, method):
    likelihood = case.likelihood
    y = likelihood.encode(case.y[:80]).y
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
    truth = case.y[80:]
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
