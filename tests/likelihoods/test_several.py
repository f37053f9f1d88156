"""Several targets at once: each is what it would be alone with these outputs, and all of them add up."""

import numpy as np
import pytest
import torch

import wherefrom as wf
from wherefrom.files import codec
from wherefrom.likelihoods.several import JointLoss
from wherefrom.training.losses import CrossEntropy, NegativeBinomialNLL, SquaredError, together

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(400, 3))
Y = {
    "stay": 2 * X[:, 1] + RANDOM.normal(size=400),
    "died": np.array(["no", "yes"])[(X[:, 0] + RANDOM.logistic(size=400) > 0).astype(int)],
    "visits": RANDOM.poisson(np.exp(0.5 * X[:, 2])).astype(float),
}
LIKELIHOOD = wf.Several(stay=wf.Regression(noise="fit"), died=wf.Classification(), visits=wf.Counts())
OVER = [wf.InitialCondition(3), wf.Iterations(wf.SWAG(3))]


def of_rows(rows: slice) -> dict[str, np.ndarray]:
    return {name: column[rows] for name, column in Y.items()}


def trained(likelihood, **others) -> wf.Posterior:
    how = wf.Training(wf.MLP([20]), wf.Algorithm("adam", lr=0.01, batch_size=50), 15, likelihood)
    return wf.marginalise(how, (X[:250], of_rows(slice(250))), OVER, **others)


@pytest.fixture(scope="module")
def posterior() -> wf.Posterior:
    return trained(LIKELIHOOD)


def test_the_native_engine_refuses_it_and_the_fastest_is_torchs(posterior):
    pytest.importorskip("numba", reason="the native engine needs numba: pip install 'wherefrom[fast]'")
    with pytest.raises(ValueError, match="the native engine cannot train this: it does not know the loss JointLoss"):
        trained(LIKELIHOOD, engine="native")
    fastest = trained(LIKELIHOOD, engine="fastest")
    assert fastest.engines == posterior.engines == ("torch",)
    torch.testing.assert_close(fastest.predict(X[250:]).mixture.mean, posterior.predict(X[250:]).mixture.mean)


def test_the_loss_is_the_sum_of_the_parts():
    outputs = torch.randn(7, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = torch.tensor([[0.3, 2.0, 1.0]], dtype=torch.float64).expand(7, -1)
    losses = (SquaredError(), NegativeBinomialNLL((0.5,)), CrossEntropy())
    joint = JointLoss(losses, (1, 2, None))
    expected = sum(
        loss(part, y[:, k : k + 1])
        for k, (loss, part) in enumerate(zip(losses, outputs.split([1, 1, 2], 1), strict=True))
    )
    torch.testing.assert_close(joint(outputs, y), expected)
    other = JointLoss((SquaredError(), NegativeBinomialNLL((2.0,)), CrossEntropy()), (1, 2, None))
    both = together([joint, other], outputs)(outputs.expand(2, -1, -1), y.expand(2, -1, -1))
    torch.testing.assert_close(both, torch.stack([joint(outputs, y), other(outputs, y)]))


def test_every_target_is_its_own_likelihoods_prediction(posterior):
    prediction, truth = posterior.predict(X[250:], samples=10), of_rows(slice(250, None))
    kinds = {name: type(prediction[name]) for name in prediction}
    assert kinds == {"stay": wf.Prediction, "visits": wf.CountPrediction, "died": wf.ClassPrediction}
    parts = [prediction[name].nll(truth[name]) for name in prediction]
    assert prediction.nll(truth) == pytest.approx(sum(parts))
    densities = prediction.member_log_densities(truth, by_output=True)
    assert densities.shape == (3, 150, 3)
    torch.testing.assert_close(prediction.member_log_densities(truth), densities.sum(-1))
    # by hand from the outputs: stay, visits, then the two classes
    answers = prediction.mixture.answers.double()
    torch.testing.assert_close(
        prediction["died"].probabilities, torch.softmax(answers[..., 2:], -1).mean((0, 1)), rtol=1e-5, atol=1e-6
    )
    location, scale = posterior.scaler.y_mean[0], posterior.scaler.y_std[0]
    torch.testing.assert_close(prediction["stay"].mean, location + scale * answers[..., 0].mean((0, 1)))
    with pytest.raises(KeyError, match="there is no target 'cost'; there are stay, visits, died"):
        prediction["cost"]


def test_each_has_its_noise_and_its_sources(posterior):
    prediction = posterior.predict(X[250:], samples=10)
    assert 0.6 < float(prediction["stay"].noise_variance.mean()) < 1.7  # the truth is 1
    by_target = prediction.sources()
    assert by_target["stay"].names == ("theta0", "t", "noise")
    assert by_target["died"].names == ("theta0", "t")
    assert str(prediction.sources("visits")) == str(by_target["visits"])


def test_it_learns_as_one_network_does(posterior):
    """Beside each target alone, by networks of the same size."""
    prediction = posterior.predict(X[250:], samples=10)
    for name, part in LIKELIHOOD.parts.items():
        how = wf.Training(wf.MLP([20]), wf.Algorithm("adam", lr=0.01, batch_size=50), 15, part)
        alone = wf.marginalise(how, (X[:250], Y[name][:250]), OVER).predict(X[250:], samples=10)
        assert prediction[name].nll(Y[name][250:]) < alone.nll(Y[name][250:]) + 0.1


def test_calibration_is_of_each_target(posterior):
    calibrated = posterior.calibrated("conformal", (X[250:350], of_rows(slice(250, 350)))).predict(X[350:], samples=10)
    plain = posterior.predict(X[250:350])
    for name in LIKELIHOOD.parts:
        own = plain[name].conformal_scores(Y[name][250:350])
        torch.testing.assert_close(calibrated[name].conformal.scores, own.scores.sort(0).values)
        assert calibrated[name].conformal.is_signed == own.is_signed
    by_folds = wf.marginalise(
        wf.Training(wf.MLP([5]), wf.Algorithm("adam", lr=0.01, batch_size=50), 5, LIKELIHOOD),
        (X[:250], of_rows(slice(250))),
        [wf.Folds(3)],
    ).calibrated("conformal")
    assert by_folds.predict(X[350:])["stay"].coverage(Y["stay"][350:], 0.8) > 0.65


def test_files_hold_all_parts(posterior, tmp_path):
    assert codec.unpack(codec.pack(LIKELIHOOD, {})) == LIKELIHOOD
    posterior.save(tmp_path)
    again = wf.load(tmp_path).predict(X[250:], samples=10)
    assert torch.equal(again.mean, posterior.predict(X[250:], samples=10).mean)
    assert again["died"].classes == ("no", "yes")


def test_frames_and_exposures():
    pandas = pytest.importorskip("pandas")
    x = pandas.DataFrame({"age": X[:, 0], "years": np.exp(X[:, 1])})
    y = pandas.DataFrame({"visits": Y["visits"], "died": Y["died"]})
    likelihood = wf.Several(died=wf.Classification(), visits=wf.Counts(0, exposure="years"))
    how = wf.Training(wf.MLP([5]), wf.Algorithm("adam", lr=0.01, batch_size=50), 3, likelihood)
    posterior = wf.marginalise(how, (x, y), [])
    once, twice = (posterior.predict(x.assign(years=factor * x["years"])) for factor in (1, 2))
    torch.testing.assert_close(twice["visits"].mean, 2 * once["visits"].mean, rtol=1e-5, atol=0)
    torch.testing.assert_close(twice["died"].probabilities, once["died"].probabilities)


def test_quantiles_and_levels_are_parts_as_well():
    y = {"grade": (X[:, 0] > 0).astype(int) + (X[:, 0] > 1), "cost": Y["stay"], "died": Y["died"]}
    likelihood = wf.Several(grade=wf.Ordinal(levels=3), cost=wf.Quantiles([0.1, 0.5, 0.9]), died=wf.Classification())
    how = wf.Training(wf.MLP([10]), wf.Algorithm("adam", lr=0.01, batch_size=50), 5, likelihood)
    posterior = wf.marginalise(how, (X[:300], {name: column[:300] for name, column in y.items()}), [])
    rest = {name: column[300:] for name, column in y.items()}
    prediction = posterior.calibrated("conformal", (X[300:], rest)).predict(X[300:])
    assert prediction["cost"].coverage(rest["cost"], 0.8) >= 0.8
    assert prediction["grade"].interval(0.8)[0].shape == (100,)
    with pytest.raises(ValueError, match="no density, and no NLL"):
        prediction.nll(rest)


def test_what_cannot_be():
    with pytest.raises(ValueError, match="name at least two targets"):
        wf.Several(stay=wf.Regression())
    with pytest.raises(TypeError, match="died must have a likelihood"):
        wf.Several(stay=wf.Regression(), died=wf.Classification)
    with pytest.raises(ValueError, match=r"name the classes of died or sex, or both, as died=wf.Classification"):
        wf.Several(died=wf.Classification(), sex=wf.Classification())
    with pytest.raises(ValueError, match="y has no column 'visits'; it has 'stay'"):
        LIKELIHOOD.encode({"stay": [1.0, 2.0]})
    with pytest.raises(TypeError, match="y is a frame or a dictionary with the columns stay, visits, died"):
        LIKELIHOOD.encode(np.zeros((3, 3)))
    with pytest.raises(ValueError, match="different numbers of rows"):
        LIKELIHOOD.encode({"stay": [1.0], "visits": [1.0, 2.0], "died": ["a", "b"]})
    too_few = wf.MLP([5]).sized(3, 3)
    how = wf.Training(too_few, wf.Algorithm("adam", lr=0.01, batch_size=50), 2, LIKELIHOOD)
    with pytest.raises(ValueError, match="has 3 outputs, but the targets need 4: 1 for stay, 1 for visits, 2 for died"):
        wf.marginalise(how, (X, Y), [])
