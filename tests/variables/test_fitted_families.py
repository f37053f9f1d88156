"""Trees and a Gaussian process beside networks: one posterior, whose parts are what they are alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import wherefrom as wf
from wherefrom.posterior.joining import joined

FAMILIES = {"network": wf.MLP([10]), "trees": wf.Trees(20, depth=3), "process": wf.GaussianProcess(50)}


def rows(count: int = 90) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    x = random.normal(size=(count, 3))
    return x, np.sin(2 * x[:, 0]) + x[:, 1] * (x[:, 2] > 0) + 0.1 * random.normal(size=count)


def training(model=FAMILIES["network"], likelihood=None) -> wf.Training:
    algorithm = wf.Algorithm("adam", lr=0.01, batch_size=30)
    return wf.Training(model, algorithm, epochs=4, likelihood=likelihood or wf.Regression(noise="fit"))


OTHERS = [wf.InitialCondition(2), wf.Iterations(wf.SWAG(2)), wf.Folds(3)]


@pytest.fixture(scope="module")
def together() -> wf.Posterior:
    return wf.marginalise(training(), rows(), [wf.Families(FAMILIES, weights=[1, 2, 1]), *OTHERS], seed=3)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_is_what_it_is_alone(together, name):
    over = OTHERS if name == "network" else [wf.Folds(3)]
    alone = wf.marginalise(training(FAMILIES[name]), rows(), over, seed=3)
    new = rows(30)[0]
    part = together.select(F=name)
    torch.testing.assert_close(part.predict(new, 8).mean, alone.predict(new, 8).mean)
    torch.testing.assert_close(part.out_of_fold(8).std, alone.out_of_fold(8).std)


def test_members_that_have_no_theta0_are_fitted_once(together):
    trees = [member.trained for member in together.mixture if member.family == "trees"]
    assert len(trees) == 6
    assert sum(one.seconds > 0 for one in trees) == 3
    assert {one.engine for one in trees} == {"fitted"}


def test_theta0_and_t_are_no_sources_of_families_without_them(together):
    overall = together.select(F=["trees", "process"]).predict(rows(30)[0], 8).sources().overall
    for name in ("theta0", "t", "theta0 x D"):
        assert abs(float(overall[name].variance)) < 1e-15
    assert overall["F"].variance > 0
    assert overall["D"].variance > 0


def test_a_file_holds_them(together, tmp_path):
    together.save(tmp_path / "run")
    loaded = wf.load(tmp_path / "run")
    new = rows(30)[0]
    assert torch.equal(loaded.predict(new, 8).mean, together.predict(new, 8).mean)


def test_by_moments(together):
    """Families without anything random within a member are exact; the networks' moments are compared elsewhere."""
    part = together.select(F=["trees", "process"])
    new = rows(30)[0]
    torch.testing.assert_close(part.one_shot(new).mean, part.predict(new, 8).mean)
    torch.testing.assert_close(part.one_shot(new).std, part.predict(new, 8).std)
    assert together.one_shot(new).mean.isfinite().all()


def test_joined_posteriors_are_as_if_trained_together(together):
    parts = {
        name: wf.marginalise(training(model), rows(), OTHERS if name == "network" else [wf.Folds(3)], seed=3)
        for name, model in FAMILIES.items()
    }
    made = joined(parts, [1, 2, 1])
    new = rows(30)[0]
    assert made.weights == together.weights
    torch.testing.assert_close(made.predict(new, 8).mean, together.predict(new, 8).mean)
    torch.testing.assert_close(made.predict(new, 8).std, together.predict(new, 8).std)
    assert made.predict(new, 8).sources().overall.keys() == together.predict(new, 8).sources().overall.keys()


def test_where_losses_level_off_is_asked_of_networks_alone():
    families = wf.Families({name: FAMILIES[name] for name in ("network", "trees")})
    longer = wf.Training(FAMILIES["network"], wf.Algorithm("adam", lr=0.01, batch_size=30), epochs=30)
    posterior = wf.marginalise(longer, rows(), [families, wf.Iterations(wf.SWAG(2), start="auto")])
    assert [member.trained.law is None for member in posterior.mixture] == [False, True]


def test_trees_by_themselves_with_the_bootstrap():
    posterior = wf.marginalise(training(wf.Trees(30)), rows(), [wf.Resample(4)], seed=1)
    prediction = posterior.predict(rows(30)[0])
    assert prediction.sources().overall["D"].variance > 0


@pytest.mark.parametrize(
    "likelihood",
    [
        wf.Classification(),
        wf.Counts(),
        wf.Regression(noise="predicted"),
        wf.Regression(noise="predicted", tails="student"),
        wf.Positive(0.3),
        wf.Positive("predicted", zeros=True),
    ],
)
def test_other_targets(likelihood):
    x, f = rows(200)
    counts = np.random.default_rng(0).poisson(np.exp(f))
    noisy = f + 0.2 * np.random.default_rng(2).normal(size=200)
    others = {"Classification": np.where(f > 0, "a", "b"), "Counts": counts, "Positive": np.exp(f)}
    y = others.get(type(likelihood).__name__, noisy)
    y = np.where(np.random.default_rng(1).random(200) < 0.3, 0.0, y) if getattr(likelihood, "zeros", False) else y

    def nll(model: wf.Trees) -> torch.Tensor:
        posterior = wf.marginalise(training(model, likelihood), (x[:150], y[:150]), [wf.Resample(3)])
        return posterior.predict(x[150:]).nll(y[150:], by_row=True)

    gain = nll(wf.Trees(1, depth=1, rate=0.001)) - nll(wf.Trees(60, depth=3))  # next to a constant
    assert float(gain.mean()) > 2 * float(gain.std()) / len(gain) ** 0.5


def test_a_process_of_classes_is_refused():
    x, f = rows()
    with pytest.raises(ValueError, match="for quantities"):
        wf.marginalise(training(wf.GaussianProcess(), wf.Classification()), (x, f > 0), [wf.Resample(2)])


@pytest.mark.parametrize("over", [[wf.InitialCondition(2)], [wf.Families({"n": wf.MLP([6]), "t": wf.Trees(20)})]])
def test_classes_by_moments_are_probabilities(over):
    x, f = rows()
    posterior = wf.marginalise(training(wf.MLP([6]), wf.Classification()), (x, np.where(f > 0, "a", "b")), over)
    torch.testing.assert_close(posterior.one_shot(x).probabilities, posterior.predict(x).probabilities)


def test_by_moments_beside_several_components():
    """The points of a trajectory are components of a network's law; trees have one."""
    over = [wf.Families({"n": wf.MLP([6]), "t": wf.Trees(20)}), wf.Iterations(wf.Snapshots(3), start=0.0)]
    posterior = wf.marginalise(training(), rows(), over)
    new, trees = rows(20)[0], posterior.select(F="t")
    torch.testing.assert_close(posterior.one_shot(new).mean, posterior.predict(new, 300).mean, atol=0.1, rtol=0)
    torch.testing.assert_close(trees.one_shot(new).mean, trees.predict(new).mean)


def test_weights_of_a_family_that_fits_itself_are_not_dropped():
    families = wf.Families({"n": wf.MLP([6]), "g": wf.GaussianProcess(50)})
    posterior = wf.marginalise(training(), rows(), [families, wf.Dropout(0.2, on="weights")])
    assert not posterior.networks["g"].sites
    assert posterior.networks["n"].sites
    assert float(posterior.select(F="g").predict(rows(20)[0], 20).mixture.answers.std(1).max()) == 0


def test_checkpoints_tell_settings_apart(tmp_path):
    def mean(rate: float, **how) -> torch.Tensor:
        return wf.marginalise(training(wf.Trees(5, 2, rate)), rows(), [wf.Resample(2)], **how).predict(rows()[0]).mean

    kept = [mean(rate, checkpoints=tmp_path) for rate in (0.1, 1.0, 0.1)]
    assert torch.equal(kept[0], kept[2])
    assert torch.equal(kept[1], mean(1.0))


def test_a_dataset_that_is_read_again_and_again():
    class Noisy(torch.utils.data.Dataset):
        def __len__(self):
            return 40

        def __getitem__(self, index):
            x = torch.randn(3, generator=torch.Generator().manual_seed(index))
            return x + 0.01 * torch.randn(3), x[0]

    how = wf.Training(wf.Trees(5, 2), wf.Algorithm("adam", lr=0.01, batch_size=20), epochs=2, standardise=False)
    posterior = wf.marginalise(how, Noisy(), [wf.InitialCondition(2)])
    assert posterior.predict(torch.zeros(2, 3)).mean.isfinite().all()


def test_augmentations_are_refused():
    how = wf.Training(wf.Trees(5), wf.Algorithm("adam", lr=0.01, batch_size=20), epochs=2, augment=lambda x, _: x)
    with pytest.raises(ValueError, match="fits itself, to rows as they are"):
        wf.marginalise(how, rows(), [wf.Resample(2)])
