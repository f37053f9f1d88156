"""Uses of the library on the pretended device, each compared with the same use on the CPU."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

import wherefrom as wf
from pretended.device import FIRST, NAME, SECOND
from wherefrom.training import program, torch_engine
from wherefrom.training.checkpoints import Keeper

DEVICE = NAME
QUICK = {"progress": False, "engine": "torch"}

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(120, 3))
Y = 5 * X[:, 0] + X[:, 1] ** 2 + RANDOM.normal(size=120)
KIND = (Y.mean() < Y).astype(int)
OLD, NEW = slice(0, 100), slice(100, 120)


def net(outputs: int = 1) -> nn.Module:
    return nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Dropout(0.05), nn.Linear(16, outputs))


def training(model=net, likelihood=None, optimiser="adam", epochs=6, **changes) -> wf.Training:
    algorithm = wf.Algorithm(optimiser, lr=0.01, batch_size=32)
    likelihood = wf.Regression(noise="fit") if likelihood is None else likelihood
    return wf.Training(model=model, algorithm=algorithm, epochs=epochs, likelihood=likelihood, **changes)


def over() -> list:
    return [wf.InitialCondition(3), wf.Iterations(wf.SWAG(rank=4)), wf.Dropout()]


def marginalised(device: str, model=net, variables=None, **changes) -> wf.Posterior:
    variables = over() if variables is None else variables
    return wf.marginalise(training(model, **changes), (X[OLD], Y[OLD]), variables, seed=0, device=device, **QUICK)


@pytest.fixture(scope="module")
def on_device() -> wf.Posterior:
    return marginalised(DEVICE)


@pytest.fixture(scope="module")
def on_cpu() -> wf.Posterior:
    return marginalised("cpu")


def same(device, cpu, **tolerances) -> None:
    """Check that both agree, and that what users get is in main memory."""
    assert device.device.type == "cpu"
    torch.testing.assert_close(device, cpu, **{"rtol": 1e-4, "atol": 1e-5} | tolerances)


# ---------------------------------------------------------------------- the harness


def test_the_device_refuses_what_cuda_refuses(native):
    a, b = torch.ones(3, device=DEVICE), torch.ones(3)
    with pytest.raises(RuntimeError, match="same device"):
        a + b
    with pytest.raises(RuntimeError, match="same device"):
        a + torch.ones(3, device=SECOND)
    with pytest.raises(RuntimeError, match="generator"):
        torch.randn(3, device=DEVICE, generator=torch.Generator())
    with pytest.raises(TypeError, match="can't convert"):
        a.numpy()
    native.reset()
    assert float((a * 2).sum()) == 6
    assert native.counts()["SYNC aten::_local_scalar_dense"] == 1


def test_the_devices_random_numbers_are_not_the_cpus():
    torch.manual_seed(0)
    first, state = torch.randn(4, device=DEVICE), torch.get_rng_state()
    torch.manual_seed(1)
    torch.set_rng_state(state)
    assert not torch.equal(first, torch.randn(4, device=DEVICE))
    torch.manual_seed(0)
    assert torch.equal(first, torch.randn(4, device=DEVICE))


# ---------------------------------------------------------------------- training and Monte Carlo


def test_training_and_sampling_are_those_of_the_cpu(on_device, on_cpu):
    predicted, expected = on_device.predict(X[NEW], 40), on_cpu.predict(X[NEW], 40)
    same(predicted.mean, expected.mean)
    same(predicted.std, expected.std)
    assert predicted.nll(Y[NEW]) == pytest.approx(expected.nll(Y[NEW]), rel=1e-4)


def test_the_second_device(on_cpu, second_device):
    posterior = marginalised(second_device)
    assert str(posterior.device) == second_device
    same(posterior.predict(X[NEW], 8).mean, on_cpu.predict(X[NEW], 8).mean)


# ---------------------------------------------------------------------- one-shot


def one_shots(posterior: wf.Posterior) -> dict:
    return {
        "low rank": posterior.one_shot(X[NEW]),
        "diagonal": posterior.one_shot(X[NEW], covariance="diagonal"),
        "full": posterior.one_shot(X[NEW], covariance="full"),
        "rank 2": posterior.one_shot(X[NEW], rank=2),
        "noisy inputs": posterior.one_shot(X[NEW], x_std=0.1),
        "weighted": posterior.weighted([0.2, 0.3, 0.5]).one_shot(X[NEW]),
        "calibrated": posterior.calibrated("variance", (X[NEW], Y[NEW]), method="one_shot").one_shot(X[NEW]),
    }


def test_one_shot_moments_and_scores_are_those_of_the_cpu(on_device, on_cpu):
    expected = one_shots(on_cpu)
    for name, predicted in one_shots(on_device).items():
        same(predicted.mean, expected[name].mean)
        same(predicted.std, expected[name].std)
        assert predicted.nll(Y[NEW]) == pytest.approx(expected[name].nll(Y[NEW]), rel=1e-4)
        assert predicted.nll(Y[NEW], "mixture") == pytest.approx(expected[name].nll(Y[NEW], "mixture"), rel=1e-4)
        assert predicted.crps(Y[NEW]) == pytest.approx(expected[name].crps(Y[NEW]), rel=1e-4)
        assert repr(predicted)


def test_one_shot_sources_are_those_of_the_cpu(on_device, on_cpu):
    ours, expected = on_device.one_shot(X[NEW]).sources(), on_cpu.one_shot(X[NEW]).sources()
    assert list(ours.overall) == list(expected.overall)
    for name, part in ours.overall.items():
        assert part.share == pytest.approx(expected.overall[name].share, abs=1e-4)


def test_one_shot_is_checked_and_chosen_on_the_device(on_device, on_cpu):
    ours, expected = on_device.check_one_shot(X[NEW]), on_cpu.check_one_shot(X[NEW])
    assert ours.mean_error == pytest.approx(expected.mean_error, abs=1e-4)
    assert ours.std_error == pytest.approx(expected.std_error, abs=1e-4)
    same(on_device.predict(X[NEW], method="auto").mean, on_cpu.predict(X[NEW], method="auto").mean)


def test_one_shot_of_classes_families_and_points():
    data = X[OLD], KIND[OLD]
    kinds = [
        wf.marginalise(training(lambda: net(2), wf.Classification()), data, over(), device=device, **QUICK)
        for device in (DEVICE, "cpu")
    ]
    ours, expected = (posterior.one_shot(X[NEW]) for posterior in kinds)
    same(ours.probabilities, expected.probabilities)
    assert ours.nll(KIND[NEW]) == pytest.approx(expected.nll(KIND[NEW]), rel=1e-4)
    for variables in (
        [wf.Families({"a": net, "b": normalised}), wf.InitialCondition(2), wf.Iterations(wf.SWAG(rank=2))],
        [wf.InitialCondition(2), wf.Iterations(wf.Snapshots())],
    ):
        ours, expected = (marginalised(device, variables=variables).one_shot(X[NEW]) for device in (DEVICE, "cpu"))
        same(ours.mean, expected.mean)
        same(ours.std, expected.std)


@pytest.mark.parametrize(
    ("structure", "prior"), [("diagonal", 1.0), ("kron", "marglik"), ("full", "marglik"), ("last_layer", "cv")]
)
def test_laplace_is_that_of_a_cpu(structure, prior):
    variables = [wf.InitialCondition(2), wf.Iterations(wf.Laplace(structure, prior))]
    each = [marginalised(device, model=normalised, variables=variables) for device in (DEVICE, "cpu")]
    ours, expected = (posterior.predict(X[NEW], method="linearised") for posterior in each)
    same(ours.mean, expected.mean)
    same(ours.std, expected.std, rtol=1e-2)
    ours, expected = (posterior.predict(X[NEW], samples=8) for posterior in each)
    same(ours.std, expected.std, rtol=1e-1)


@pytest.mark.parametrize("name", ["sgld", "sghmc", "ivon"])
def test_algorithms_that_draw_numbers_draw_those_of_a_cpu(name):
    law = wf.Variational() if name == "ivon" else wf.Snapshots(3)
    variables = [wf.InitialCondition(2), wf.Iterations(law)]
    each = [marginalised(device, variables=variables, optimiser=name) for device in (DEVICE, "cpu")]
    for ours, expected in zip(*(posterior.laws() for posterior in each), strict=True):
        for mine, theirs in zip(ours.tensors().values(), expected.tensors().values(), strict=True):
            same(mine, theirs, rtol=1e-3, atol=1e-4)


def normalised() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_a_file_for_onnx_runtime_is_that_of_the_cpu(on_device, on_cpu, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    answers = []
    for posterior in (on_device, on_cpu):
        path = tmp_path / f"{posterior.device.type}.onnx"
        posterior.export_onnx(path)
        session = onnxruntime.InferenceSession(path)
        answers.append(session.run(None, {session.get_inputs()[0].name: X[NEW].astype(np.float32)}))
    for ours, expected in zip(*answers, strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-3, atol=1e-4)


# ---------------------------------------------------------------------- precision: TF32, bfloat16, and atomics

IMAGES, CLASSES = torch.rand(48, 3, 12, 12, generator=torch.Generator().manual_seed(0)), torch.arange(48) % 3


def convolving() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 16, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 3)),
    )


def of_images(epochs: int = 4, **changes) -> wf.Training:
    algorithm = wf.Algorithm("sgd", lr=0.02, momentum=0.9, batch_size=16)
    settings = {"model": convolving, "likelihood": wf.Classification(), "standardise": False}
    return wf.Training(algorithm=algorithm, epochs=epochs, **settings | changes)


def test_a_posterior_that_multiplied_by_tf32_is_read_on_a_cpu(native, tmp_path):
    native.tf32(True)
    variables = [wf.InitialCondition(2), wf.Iterations(wf.SWAG(rank=2))]
    posterior = wf.marginalise(of_images(), (IMAGES, CLASSES), variables, device=DEVICE, **QUICK)
    posterior.save(tmp_path)
    one_shot = posterior.one_shot(IMAGES[:8]).probabilities
    for device in (DEVICE, "cpu"):
        loaded = wf.load(tmp_path, convolving, (IMAGES, CLASSES), device=device)
        same(loaded.one_shot(IMAGES[:8]).probabilities, one_shot, rtol=0, atol=1e-2)
    with pytest.raises(ValueError, match="not the one that was saved"):
        wf.load(tmp_path, lambda: with_another_slope(convolving()))


def with_another_slope(module: nn.Sequential) -> nn.Module:
    return nn.Sequential(*(nn.LeakyReLU(0.05) if isinstance(part, nn.ReLU) else part for part in module))


class Interrupted(Exception):
    pass


def until(epochs: int):
    done = [0]

    def report(more: int) -> None:
        done[0] += more
        if done[0] > epochs:
            raise Interrupted

    return report


def interrupted(training: wf.Training, data, variables, epochs: int, folder, **options) -> wf.Posterior:
    """Train, stop after some epochs of all members together, and go on, as the options of "before" and "after" say."""
    keeping = {"checkpoints": wf.Checkpoints(folder, seconds=0), "engine": "torch"}
    with pytest.raises(Interrupted):
        wf.marginalise(training, data, variables, progress=until(epochs), **keeping, **options["before"])
    return wf.marginalise(training, data, variables, progress=False, **keeping, **options["after"])


def test_a_training_goes_on_after_an_interruption_to_the_same_bits(on_device, tmp_path):
    where = {"seed": 0, "device": DEVICE}
    resumed = interrupted(training(), (X[OLD], Y[OLD]), over(), 8, tmp_path, before=where, after=where)
    assert torch.equal(resumed.predict(X[NEW], 8).mean, on_device.predict(X[NEW], 8).mean)


def test_a_training_by_tf32_goes_on_on_a_cpu(native, tmp_path, monkeypatch):
    """A model is recognised by answers that do not depend on the device."""
    probes, probe = [], Keeper._probe
    monkeypatch.setattr(Keeper, "_probe", lambda *given: probes.append(probe(*given)) or probes[-1])
    native.tf32(True)
    data, where = (IMAGES, CLASSES), {"before": {"device": DEVICE}, "after": {"device": "cpu"}}
    resumed = interrupted(of_images(), data, [], 1, tmp_path, **where)
    whole = wf.marginalise(of_images(), data, [], **QUICK)
    same(resumed.predict(IMAGES[:8]).probabilities, whole.predict(IMAGES[:8]).probabilities, rtol=0, atol=2e-2)
    assert len(probes) > 1
    assert all(torch.equal(each, probes[0]) for each in probes)


def ending_in_a_convolution() -> nn.Module:
    """A network whose largest gradients are those of convolutions."""
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 3, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())


@pytest.mark.parametrize("autocast", [None, torch.bfloat16])
def test_recorded_programs_stand_rounding_that_changes_from_call_to_call(native, monkeypatch, autocast):
    programs = []
    record = program.record
    monkeypatch.setattr(
        program, "record", lambda *given, **more: programs.append(record(*given, **more)) or programs[-1]
    )
    native.tf32(True)
    native.noise(True)
    training = of_images(model=ending_in_a_convolution)
    wf.marginalise(training, (IMAGES, CLASSES), [], device=DEVICE, autocast=autocast, **QUICK)
    assert programs
    assert all(each.operations != ["python"] for each in programs)


# ---------------------------------------------------------------------- random numbers that are drawn on the device


class Langevin(torch.optim.SGD):
    """Gradient steps with noise that is drawn where the parameters are."""

    @torch.no_grad()
    def step(self, closure=None):
        super().step(closure)
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.add_(1e-2 * torch.randn_like(parameter))


def test_an_optimiser_draws_from_its_members_stream_on_the_device(tmp_path):
    langevin, variables = training(optimiser=Langevin), [wf.InitialCondition(2)]
    torch.manual_seed(1)
    first = wf.marginalise(langevin, (X[OLD], Y[OLD]), variables, device=DEVICE, **QUICK)
    after = torch.randn(3, device=DEVICE)
    torch.manual_seed(1)
    assert torch.equal(torch.randn(3, device=DEVICE), after)  # the user's own numbers are as they were
    torch.manual_seed(2)
    again = wf.marginalise(langevin, (X[OLD], Y[OLD]), variables, device=DEVICE, **QUICK)
    where = {"device": DEVICE}
    resumed = interrupted(langevin, (X[OLD], Y[OLD]), variables, 4, tmp_path, before=where, after=where)
    expected = first.predict(X[NEW]).mean
    assert torch.equal(again.predict(X[NEW]).mean, expected)
    assert torch.equal(resumed.predict(X[NEW]).mean, expected)


# ---------------------------------------------------------------------- networks, rows and augmentations on the device


def same_everywhere(ours, expected=net, **changes) -> None:
    """Compare a model that is written for the device with one that is not."""
    variables = [wf.InitialCondition(2)]
    posteriors = [
        marginalised(device, model, variables, **changes) for device, model in ((DEVICE, ours), ("cpu", expected))
    ]
    same(posteriors[0].predict(X[NEW]).mean, posteriors[1].predict(X[NEW]).mean)


def test_a_factory_may_return_a_network_on_the_device(on_cpu):
    same_everywhere(lambda: net().to(DEVICE))
    posterior = marginalised("cpu", lambda: net().to(DEVICE))
    same(posterior.predict(X[NEW], 4).mean, on_cpu.predict(X[NEW], 4).mean)


def test_a_factory_may_draw_on_the_device():
    first, again = (marginalised(DEVICE, drawn_on_device, []) for _ in range(2))
    assert torch.equal(first.predict(X[NEW]).mean, again.predict(X[NEW]).mean)


def drawn_on_device() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 8, device=DEVICE), nn.ReLU(), nn.Linear(8, 1, device=DEVICE))


class Making(nn.Module):
    """A network whose forward makes tensors without a word about their device."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = net()

    def forward(self, x):
        return self.layers(x * torch.ones(3)) + torch.zeros(len(x), 1) + torch.arange(1)


@pytest.mark.parametrize("draws", [1, 2])
def test_a_forward_may_make_tensors(draws):
    variables = [wf.InitialCondition(draws), wf.Dropout()] if draws > 1 else [wf.Dropout()]
    ours, expected = (marginalised(device, Making, variables) for device in (DEVICE, "cpu"))
    same(ours.predict(X[NEW], 8).mean, expected.predict(X[NEW], 8).mean)
    same(ours.one_shot(X[NEW]).std, expected.one_shot(X[NEW]).std)


def test_rows_and_their_errors_may_be_on_the_device(on_device, on_cpu):
    x, y, std = (torch.tensor(each, device=DEVICE) for each in (X[NEW], Y[NEW], np.full(3, 0.1)))
    same(on_device.predict(x, 8).mean, on_cpu.predict(X[NEW], 8).mean)
    assert on_device.predict(x, 8).rmse(y) == pytest.approx(on_cpu.predict(X[NEW], 8).rmse(Y[NEW]), rel=1e-4)
    same(on_device.one_shot(x, x_std=std).std, on_cpu.one_shot(X[NEW], x_std=0.1).std)


def jittered(batch, generator):
    return batch + 0.1 * torch.randn(batch.shape, generator=generator)


def jittered_there(batch, generator):
    return batch + 0.1 * torch.randn(batch.shape, generator=generator).to(batch.device)


def test_an_augmentation_of_the_users_own():
    data = IMAGES, CLASSES
    with pytest.raises(ValueError, match=r"jittered.*:0.*generator.*\.to\(batch\.device\)"):
        wf.marginalise(of_images(augment=jittered), data, [], device=DEVICE, **QUICK)
    ours, expected = (
        wf.marginalise(of_images(augment=jittered_there), data, [], device=device, **QUICK)
        for device in (DEVICE, "cpu")
    )
    same(ours.predict(IMAGES[:8]).probabilities, expected.predict(IMAGES[:8]).probabilities, rtol=0, atol=1e-3)


def test_the_default_device_of_torch_is_named(on_cpu):
    torch.set_default_device(DEVICE)
    try:
        with pytest.raises(ValueError, match=r"default device is \w+:0.*set_default_device\(\"cpu\"\)"):
            marginalised(DEVICE)
        with pytest.raises(ValueError, match=r"default device is \w+:0"):
            on_cpu.predict(X[NEW])
    finally:
        torch.set_default_device("cpu")


def test_a_pickle_goes_back_to_its_device(on_device):
    again = pickle.loads(pickle.dumps(marginalised(DEVICE, wf.MLP([8]), [])))
    assert str(again.device) == FIRST
    assert again.mixture[0].trained.last.device == again.device


# ---------------------------------------------------------------------- memory


@pytest.mark.parametrize("variable", [wf.Resample(4), wf.Folds(4)])
def test_draws_of_a_table_share_it_on_the_device(native, monkeypatch, variable):
    changes = {"likelihood": wf.Classification(), "epochs": 1}
    monkeypatch.setattr(torch_engine, "_COPIED_NUMBERS", 0)
    sent = []
    native.reset()
    native.listen(lambda what, size: sent.append(size) if what == "H2D" else None)
    try:
        ours = wf.marginalise(of_images(**changes), (IMAGES, CLASSES), [variable], device=DEVICE, **QUICK)
    finally:
        native.listen(None)
    assert sum(size >= IMAGES[:1].nbytes * 30 for size in sent) == 1  # the table, once
    assert sum(sent) < 2 * IMAGES.nbytes
    monkeypatch.setattr(torch_engine, "_COPIED_NUMBERS", 2**22)
    expected = wf.marginalise(of_images(**changes), (IMAGES, CLASSES), [variable], **QUICK)
    same(ours.predict(IMAGES[:8]).probabilities, expected.predict(IMAGES[:8]).probabilities)


OPENED = """
import pickle, warnings, numpy as np
with warnings.catch_warnings(record=True) as caught:
    estimator = pickle.load(open("estimator", "rb"))
assert "predicts on the CPU: the device " in str(caught[0].message), caught
np.save("mean.npy", estimator.predict(np.load("x.npy")))
"""


@pytest.mark.filterwarnings("ignore")  # of few rows, and other models that are better
def test_an_estimator_is_fitted_on_the_device_and_opened_without_it(tmp_path):
    pytest.importorskip("sklearn")
    settings = {"draws": 2, "epochs": 8, "samples": 8, "held_out": 0.3, "engine": "torch", "random_state": 0}
    ours, expected = (
        wf.WherefromRegressor(device=device, **settings).fit(X[OLD], Y[OLD]) for device in (DEVICE, "cpu")
    )
    mean = torch.from_numpy(ours.predict(X[NEW]))
    same(mean, torch.from_numpy(expected.predict(X[NEW])), rtol=1e-2, atol=1e-2)
    (tmp_path / "estimator").write_bytes(pickle.dumps(ours))
    np.save(tmp_path / "x.npy", X[NEW])
    subprocess.run([sys.executable, "-c", OPENED], cwd=tmp_path, check=True, timeout=600)
    same(torch.from_numpy(np.load(tmp_path / "mean.npy")), mean)
