"""Files: the same predictions to the last bit after a reload, and clear words where that cannot be."""

import json
import os
import re
import subprocess
import sys
import warnings
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load
from torch import nn
from torch.distributions import ExpTransform, LogNormal, TransformedDistribution, Uniform

import wherefrom as wf
from conftest import mlp, training
from rewritten import rewrite
from wherefrom.files.folders import Run

ON_BOTH_ENGINES = True

OVERS = {
    "one network": [],
    "multiSWAG with dropout": [*wf.recipes.multi_swag(3, rank=3), wf.Dropout(0.2)],
    "snapshots": wf.recipes.snapshots(3),
    "drawn settings": [
        wf.InitialCondition(2),
        wf.Hyperparameters(2, lr=LogNormal(-4.0, 0.1), weight_decay=Uniform(0, 1)),
    ],
    "points": [wf.Hyperparameters(points=[dict(lr=0.01, batch_size=10), dict(lr=0.02, batch_size=30)])],
}
LIKELIHOODS = {
    "no noise": wf.Regression(),
    "a number": wf.Regression(noise=0.5),
    "fitted": wf.Regression(noise="fit", held_out=0.2),
}


@pytest.mark.parametrize("likelihood", LIKELIHOODS.values(), ids=LIKELIHOODS)
@pytest.mark.parametrize("over", OVERS.values(), ids=OVERS)
def test_predictions_are_the_same_to_the_last_bit(over, likelihood, problem, tmp_path):
    x, _ = problem
    posterior = wf.marginalise(training(likelihood=likelihood), problem, over, seed=4)
    posterior.save(tmp_path / "run")
    again = wf.load(tmp_path / "run", mlp())
    before, after = (p.predict(x, samples=8) for p in (posterior, again))
    assert torch.equal(before.samples, after.samples)
    assert torch.equal(before.variance, after.variance)
    assert repr(again) == repr(posterior)
    known = again.members().columns  # held-out rows are not stored, nor what they tell
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the mean of the trajectory is worse")
        assert [row[: len(known)] for row in posterior.members().rows] == again.members().rows
    if over:
        assert str(before.sources()) == str(after.sources())


def test_double_precision_survives(problem, tmp_path):
    posterior = wf.marginalise(training(), problem, wf.recipes.multi_swag(2, 3), dtype=torch.float64)
    posterior.save(tmp_path)
    assert torch.equal(wf.load(tmp_path, mlp()).predict(problem[0]).samples, posterior.predict(problem[0]).samples)


@pytest.mark.parametrize("over", [OVERS["multiSWAG with dropout"], OVERS["drawn settings"]])
def test_a_loaded_posterior_can_be_extended_with_its_data(over, problem, tmp_path):
    posterior = wf.marginalise(training(), problem, over)
    posterior.save(tmp_path)
    again = wf.load(tmp_path, mlp())
    with pytest.raises(ValueError, match="give it again"):
        again.extend(theta0=1)
    with pytest.raises(ValueError, match="not the data"):
        again.extend((problem[0] + 1, problem[1]), theta0=1)
    a, b = posterior.extend(theta0=1), again.extend(problem, theta0=1)
    assert torch.equal(a.predict(problem[0], samples=4).answers, b.predict(problem[0], samples=4).answers)


def test_parts_of_a_loaded_posterior(problem, tmp_path):
    x, y = problem
    posterior = wf.marginalise(
        training(likelihood=wf.Regression(noise="fit", held_out=0.2)), problem, wf.recipes.multi_swag(3, 3)
    )
    posterior.save(tmp_path)
    part = wf.load(tmp_path, mlp()).marginalising("t")
    with pytest.raises(ValueError, match="fit_noise"):
        part.predict(x)
    assert part.fit_noise((x, y)).predict(x).std.min() > 0
    with_data = wf.load(tmp_path, mlp(), data=problem).marginalising("t")
    assert torch.equal(with_data.predict(x).variance, posterior.marginalising("t").predict(x).variance)


def test_nothing_is_pickled_and_no_data_is_stored(problem, tmp_path):
    x, _ = problem
    wf.marginalise(training(), problem, wf.recipes.multi_swag(2, 3)).save(tmp_path)
    for path in tmp_path.iterdir():
        stored = path.read_bytes()
        assert x.astype("float32")[0].tobytes() not in stored
        assert json.loads(stored) if path.suffix == ".json" else load(stored)


def test_saving_again_replaces_the_run(problem, tmp_path):
    for seed in (0, 1):
        posterior = wf.marginalise(training(), problem, wf.recipes.deep_ensemble(2), seed=seed)
        posterior.save(tmp_path)
    assert wf.load(tmp_path, mlp()).seed == 1
    files = Run.open(tmp_path).files
    assert {path.name for path in tmp_path.iterdir()} == {"manifest.json", *(e.file_name(n) for n, e in files.items())}
    assert set(files) == {"posterior.json", "posterior.safetensors", "member-0.safetensors", "member-1.safetensors"}


def test_another_model_of_the_same_shape_is_known(problem, tmp_path):
    wf.marginalise(training(), problem, wf.recipes.deep_ensemble(2)).save(tmp_path)
    other = lambda: nn.Sequential(nn.Linear(4, 12), nn.Tanh(), nn.Dropout(0.1), nn.Linear(12, 1))  # noqa: E731
    with pytest.raises(ValueError, match="the same weights give other answers"):
        wf.load(tmp_path, other)
    with pytest.raises(ValueError, match=r"its dropout rates were \[0.1\]"):
        wf.load(tmp_path, mlp(rate=0.5))


def test_distributions_that_a_file_cannot_hold_keep_their_draws(problem, tmp_path):
    log_uniform = TransformedDistribution(Uniform(-5.0, -4.0), [ExpTransform()])
    for values in (log_uniform, LogNormal(torch.tensor(-4.0, dtype=torch.float64), 0.1)):
        posterior = wf.marginalise(training(), problem, [wf.Hyperparameters(2, lr=values)], seed=np.int64(3))
        posterior.save(tmp_path)
        again = wf.load(tmp_path, mlp(), data=problem)
        assert again.members()["lr"] == posterior.members()["lr"]
        if values is log_uniform:
            with pytest.raises(ValueError, match="cannot be stored in a file"):
                again.extend(h=1)
        else:
            assert again.extend(h=1).members()["lr"] == posterior.extend(h=1).members()["lr"]


def test_embeddings_can_be_loaded(tmp_path):
    def words() -> nn.Module:
        return nn.Sequential(nn.Embedding(5, 3), nn.Flatten(), nn.Linear(6, 1))

    x = np.random.default_rng(0).integers(5, size=(40, 2))
    posterior = wf.marginalise(training(words), (x, x.sum(1)), wf.recipes.deep_ensemble(2))
    posterior.save(tmp_path)
    again = wf.load(tmp_path, words)
    assert torch.equal(again.predict(x).samples, posterior.predict(x).samples)
    with pytest.raises(ValueError, match="whole numbers"):
        again.predict(x.astype(float))


class Coded(nn.Module):
    """A table of floats whose first column holds codes from `least` on, and the second a measurement."""

    def __init__(self, least: int = 0, scale: float = 1.0) -> None:
        super().__init__()
        self.table, self.norm, self.last = nn.Embedding(5, 3), nn.BatchNorm1d(4), nn.Linear(4, 1)
        self.least, self.scale = least, scale

    def forward(self, x):
        if bool((x[:, 0] < self.least).any()):
            raise ValueError("this is no code")
        codes = self.table((x[:, 0] - self.least).long())
        return self.scale * self.last(self.norm(torch.cat([codes, x[:, 1:]], 1)))


def coded(least: int) -> tuple[wf.Posterior, tuple[torch.Tensor, torch.Tensor]]:
    random = torch.Generator().manual_seed(0)
    x = torch.stack([torch.arange(40) % 5 + least, torch.randn(40, generator=random)], 1)
    data = x, x.sum(1) + 0.1 * torch.randn(40, generator=random)
    how = training(lambda: Coded(least), standardise=False)
    return wf.marginalise(how, data, [wf.InitialCondition(2)]), data


def test_networks_that_embed_codes_of_a_float_table(tmp_path):
    posterior, (x, _) = coded(least=0)
    posterior.save(tmp_path)
    assert torch.equal(wf.load(tmp_path, Coded).predict(x).samples, posterior.predict(x).samples)
    with pytest.raises(ValueError, match="the same weights give other answers"):
        wf.load(tmp_path, lambda: Coded(scale=2.0))


def test_networks_that_take_no_rows_but_their_own_are_loaded_with_them(tmp_path):
    posterior, data = coded(least=7)
    posterior.save(tmp_path)
    with pytest.raises(ValueError, match=r"this is no code; .* give them: load\(\.\.\., data=\(x, y\)\)"):
        wf.load(tmp_path, lambda: Coded(7))
    again = wf.load(tmp_path, lambda: Coded(7), data)
    assert torch.equal(again.predict(data[0]).samples, posterior.predict(data[0]).samples)


def test_an_init_that_was_code_is_not_remembered(problem, tmp_path):
    over = [wf.InitialCondition(2, init=wf.glorot_uniform)]
    posterior = wf.marginalise(training(), problem, over)
    posterior.save(tmp_path)
    again = wf.load(tmp_path, mlp(), data=problem)
    assert torch.equal(again.predict(problem[0]).answers, posterior.predict(problem[0]).answers)
    with pytest.raises(ValueError, match="in the model factory"):
        again.extend(theta0=1)


def test_clear_words_for_what_cannot_be_read(problem, tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere does not exist"):
        wf.load(tmp_path / "nowhere", mlp())
    with pytest.raises(FileNotFoundError, match=r"holds no run: there is no manifest\.json"):
        wf.load(tmp_path, mlp())
    wf.marginalise(training(), problem, []).save(tmp_path)
    with pytest.raises(ValueError, match=r"0\.weight was \[12, 4\] and is \[13, 4\]"):
        wf.load(tmp_path, mlp(hidden=13))
    rewrite(tmp_path, "posterior.json", lambda document: document | {"format": 99})
    with pytest.raises(ValueError, match="newer version"):
        wf.load(tmp_path, mlp())


def brighter(batch, generator):
    return batch + 0.01 * torch.rand(len(batch), 1, generator=generator)


@pytest.mark.parametrize(
    "augment", [brighter, wf.augment.Compose([brighter, brighter])], ids=["somebody's own", "composed"]
)
def test_an_augmentation_that_is_code_is_asked_for_again(problem, tmp_path, augment):
    own = training(augment=augment)
    posterior = wf.marginalise(own, problem, [wf.InitialCondition(2)], progress=False, autocast=torch.bfloat16)
    posterior.save(tmp_path)
    loaded = wf.load(tmp_path, own.model)
    assert torch.equal(loaded.predict(problem[0]).mean, posterior.predict(problem[0]).mean)
    with pytest.raises(ValueError, match="brighter is code, which is not stored"):
        loaded.extend(problem, theta0=1, progress=False)
    again = wf.load(tmp_path, own.model, augment=augment).extend(problem, theta0=1, progress=False)
    grown = posterior.extend(theta0=1, progress=False)
    assert torch.equal(again.predict(problem[0]).mean, grown.predict(problem[0]).mean)


def test_an_augmentation_of_ours_is_stored(tmp_path):
    random = np.random.default_rng(0)
    images, y = random.normal(size=(24, 1, 4, 4)).astype(np.float32), random.normal(size=24)

    def model():
        return nn.Sequential(nn.Conv2d(1, 3, 3), nn.Flatten(), nn.Linear(12, 1))

    own = training(model, augment=wf.augment.Compose([wf.augment.CropAndFlip(padding=1)]), epochs=2)
    posterior = wf.marginalise(own, (images, y), [wf.InitialCondition(2)], progress=False)
    posterior.save(tmp_path)
    loaded = wf.load(tmp_path, model)
    assert loaded.training.augment == own.augment
    grown, expected = loaded.extend((images, y), theta0=1, progress=False), posterior.extend(theta0=1, progress=False)
    assert torch.equal(grown.predict(images).mean, expected.predict(images).mean)


def test_a_format_from_before_is_refused_in_words(problem, tmp_path):
    wf.marginalise(training(), problem, [wf.InitialCondition(2)]).save(tmp_path)
    rewrite(tmp_path, "posterior.json", lambda document: document | {"format": 3})
    with pytest.raises(ValueError, match="no longer read"):
        wf.load(tmp_path, model=mlp())


@dataclass(frozen=True)
class Doubled(wf.Regression):
    """A likelihood of the user's own, with one more field."""

    times: float = 2.0


def test_a_likelihood_of_ones_own_is_given_again(problem, tmp_path):
    posterior = wf.marginalise(training(likelihood=Doubled(noise=0.5, times=3.0)), problem, [wf.InitialCondition(2)])
    posterior.save(tmp_path)
    with pytest.raises(ValueError, match=r"Doubled is a class of your own.*likelihoods=\[Doubled\]"):
        wf.load(tmp_path, mlp())
    again = wf.load(tmp_path, mlp(), likelihoods=[Doubled])
    assert again.training.likelihood == Doubled(noise=0.5, times=3.0)
    assert torch.equal(again.predict(problem[0]).std, posterior.predict(problem[0]).std)
    again.save(tmp_path / "again")
    assert wf.load(tmp_path / "again", mlp(), likelihoods=[Doubled]).training.likelihood.times == 3.0
    with pytest.raises(TypeError, match=r"likelihoods=\[\.\.\.\]\) takes classes"):
        wf.load(tmp_path, mlp(), likelihoods=[Doubled()])


@dataclass(frozen=True)
class Odd(wf.Regression):
    """A likelihood with a field that no file holds."""

    key: object = field(default_factory=object)


def test_a_likelihood_that_cannot_be_made_again_is_refused_when_it_is_saved(problem, tmp_path):
    posterior = wf.marginalise(training(likelihood=Odd()), problem, [wf.InitialCondition(2)])
    with pytest.raises(ValueError, match=r"training\.likelihood is Odd.*cannot hold.*@stored\(\"Name\"\)"):
        posterior.save(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_fresh_process_knows_every_class_that_files_may_name():
    """Each is registered where it is defined, so the reader of files has to import them all."""
    source = Path(wf.__file__).parent
    names = {
        name
        for path in source.rglob("*.py")
        for name in re.findall(r'^@stored\("(\w+)"', path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    code = "import wherefrom.loading, wherefrom.tables.model; from wherefrom.files import codec; print(*codec.REGISTRY)"
    environment = os.environ | {"PYTHONPATH": str(source.parent)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert len(names) > 50
    assert names <= set(done.stdout.split())
