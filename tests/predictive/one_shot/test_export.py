"""posterior.export_onnx: onnxruntime says with the file what one_shot says without it.

Exporting takes seconds, so few files are written here, each of a network with many parts.
"""

import json
import math
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import wherefrom as wf
from conftest import mlp, training
from wherefrom.posterior import onnx as export
from wherefrom.predictive.one_shot import NoRuleError, scalars

pytestmark = pytest.mark.slow

for package in ("onnx", "onnxscript", "onnxruntime"):
    pytest.importorskip(package, reason=f"exporting needs {package}: pip install 'wherefrom[onnx]'")

NAMES = ["year", "age", "dose", "weight, kg"]


def posterior(data, over, model=None, **changes) -> wf.Posterior:
    return wf.marginalise(training(model, **changes), data, over, seed=2, progress=False)


def session(path):
    import onnxruntime

    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def agree(found, known: wf.Posterior, x, covariance="diagonal") -> None:
    """To 1e-5; and to a millionth of y's variance, which is what single precision leaves where members nearly agree."""
    said = known.one_shot(x, covariance=covariance)
    mean, variance = (torch.from_numpy(np.asarray(values)) for values in found)
    scale = float(known.scaler.y_std.max())
    torch.testing.assert_close(mean, said.mean, rtol=1e-5, atol=1e-6 * scale)
    torch.testing.assert_close(variance, said.variance, rtol=1e-5, atol=1e-6 * scale**2)


def written(known: wf.Posterior, folder, rows, **how) -> None:
    """Export, and compare on these rows, on one of them, and on many."""
    known.export_onnx(folder / "model.onnx", **how)
    run = session(folder / "model.onnx").run
    for x in (rows, rows[:1], np.concatenate([rows, 0.7 * rows])):
        x = x.astype(np.float32)
        agree(run(None, {"x": x}), known, x, **how)


@pytest.fixture(scope="module")
def rows():
    """A year, which single precision cannot standardise, and others of several sizes."""
    generator = np.random.default_rng(11)
    return generator.normal(size=(1000, 4)) * [10.0, 1.0, 100.0, 0.1] + [2000.0, 0.0, 50.0, 70.0]


@pytest.fixture(scope="module")
def whole(rows):
    """Three members with SWAG and dropout, trained on a frame, with fitted noise."""
    pandas = pytest.importorskip("pandas", reason="a frame's names need pandas")
    x = pandas.DataFrame(rows[:90], columns=NAMES)
    y = pandas.DataFrame({"response": 0.1 * (x["year"] - 2000) + x["age"].abs() + 10.0})

    def model():
        return nn.Sequential(
            *(nn.Linear(4, 6), nn.ReLU(), nn.Dropout(0.1), nn.Linear(6, 5), nn.LeakyReLU(0.2), nn.Linear(5, 1))
        )

    over = [wf.InitialCondition(3), wf.Iterations(wf.SWAG(4)), wf.Dropout()]
    return posterior((x, y), over, model, likelihood=wf.Regression(noise="fit"))


@pytest.fixture(scope="module")
def file(whole, tmp_path_factory):
    """Of the posterior loaded again, without its data."""
    folder = tmp_path_factory.mktemp("exported")
    whole.save(folder / "run")
    wf.load(folder / "run", model=whole.training.model).export_onnx(folder / "model.onnx")
    assert sorted(path.name for path in folder.iterdir()) == ["model.onnx", "run"]
    return folder / "model.onnx"


# ---------------------------------------------------------------------- files


@pytest.mark.parametrize("count", [1, 7, 1000])
def test_any_number_of_rows(whole, file, rows, count):
    x = rows[:count].astype(np.float32)
    found = session(file).run(["mean", "variance"], {"x": x})
    assert found[0].shape == (count, 1)
    agree(found, whole, x)


def test_what_the_file_says_of_itself(file):
    opened = session(file)
    (x,), outputs = opened.get_inputs(), opened.get_outputs()
    assert (x.name, x.type, x.shape) == ("x", "tensor(float)", ["rows", 4])
    assert [(out.name, out.type, out.shape) for out in outputs] == [
        ("mean", "tensor(double)", ["rows", 1]),
        ("variance", "tensor(double)", ["rows", 1]),
    ]
    said = opened.get_modelmeta().custom_metadata_map
    assert said == {
        "wherefrom_version": wf.__version__,
        "x_names": json.dumps(NAMES),
        "y_names": '["response"]',
        "classes": "[]",
        "members": "3",
        "marginalises": "theta0, t, F",
        "covariance": "diagonal",
        "noise": "fit",
        "variance_includes_noise": "yes",
        "calibration": "none",
    }
    assert b".py" not in file.read_bytes()  # nothing of where it was made


def test_smooth_activations_and_several_outputs(problem, tmp_path, monkeypatch):
    """With fewer points of quadrature, here and there alike, and fewer powers for ELU: each is some nodes to export."""
    monkeypatch.setattr(scalars, "_POINTS", 3)
    monkeypatch.setattr(export, "_DEGREE", 10)

    def model():
        return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.SiLU(), nn.GELU(), nn.Softplus(), nn.ELU(), nn.Linear(5, 2))

    x, y = problem
    data = (x, np.column_stack([y, 100 - 2 * y]))
    known = posterior(data, [wf.Iterations(wf.SWAG(4))], model, likelihood=wf.Regression(noise=0.5))
    written(known, tmp_path, x[:9])


def test_convolutions_with_batch_norm_and_pooling(tmp_path):
    generator = np.random.default_rng(0)
    x = generator.normal(size=(60, 2, 6, 6)).astype(np.float32)

    def model():
        return nn.Sequential(
            *(nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d((2, 1)), nn.Dropout2d(0.1)),
            *(nn.AvgPool2d(2, padding=1), nn.Flatten(), nn.Linear(32, 1)),
        )

    over = [wf.InitialCondition(2), wf.Iterations(wf.SWAG(4)), wf.Dropout()]
    known = posterior((x, 5 * x.mean((1, 2, 3)) + 1), over, model)
    written(known, tmp_path, x[:9])


def test_snapshots_that_predict_their_noise(problem, tmp_path):
    over = [wf.InitialCondition(2), wf.Iterations(wf.Snapshots(3))]
    known = posterior(problem, over, mlp(outputs=2), likelihood=wf.Regression(noise="predicted"))
    written(known, tmp_path, problem[0][:9])


def test_embeddings(tmp_path):
    x = np.random.default_rng(0).integers(0, 7, size=(60, 3))
    model = lambda: nn.Sequential(nn.Embedding(7, 2), nn.Flatten(), nn.Linear(6, 1))  # noqa: E731
    known = posterior((x, x.sum(1) + 10.0), [wf.Iterations(wf.SWAG(4))], model)
    known.export_onnx(tmp_path / "model.onnx")
    agree(session(tmp_path / "model.onnx").run(None, {"x": x[:9]}), known, x[:9])


def test_shared_deviations_of_a_plain_network(problem, tmp_path):
    known = posterior(problem, [wf.InitialCondition(2), wf.Iterations(wf.SWAG(4))])
    written(known, tmp_path, problem[0][:9], covariance="low_rank")


# ---------------------------------------------------------------------- what is followed, without a file


@pytest.mark.parametrize("noise", [None, 0.7, "fit", "predicted"])
def test_every_kind_of_noise(problem, noise):
    over = [wf.InitialCondition(2), wf.Iterations(wf.SWAG(4)), wf.Dropout()]
    model = mlp(outputs=2 if noise == "predicted" else 1)
    known = posterior(problem, over, model, likelihood=wf.Regression(noise=noise))
    x = torch.from_numpy(problem[0][:9]).float()
    model = export._Model(known, known.one_shot(x, covariance="diagonal"), "diagonal")
    with torch.no_grad():
        each = [model.moments(x, *theta) for theta in zip(*export._thetas(known, "diagonal"), strict=True)]
        means, variances = (torch.stack(parts) for parts in zip(*each, strict=True))
        agree(model.mixed(means, variances), known, x)


def test_the_normal_distribution_without_erf():
    x = torch.linspace(-36, 36, 20_001, dtype=torch.float64)
    exact = torch.tensor([0.5 * math.erfc(-value / math.sqrt(2)) for value in x.tolist()], dtype=torch.float64)
    with export._Rewritten():
        cdf, log_cdf = torch.special.ndtr(x), scalars._log_ndtr(x)
        ends = torch.special.ndtr(torch.tensor([-math.inf, math.inf], dtype=torch.float64))
    torch.testing.assert_close(cdf, exact, rtol=1e-12, atol=0)
    torch.testing.assert_close(log_cdf, torch.special.log_ndtr(x), rtol=1e-12, atol=1e-15)
    assert ends.tolist() == [0.0, 1.0]


# ---------------------------------------------------------------------- files that are not written


def test_a_layer_without_a_rule_leaves_no_file(problem, tmp_path):
    def model():
        return nn.Sequential(nn.Linear(4, 6), nn.Hardswish(), nn.Linear(6, 1))

    known = posterior(problem, [wf.Iterations(wf.SWAG(4))], model)
    with pytest.raises(NoRuleError, match=r"the layer '1', Hardswish\(\)"):
        known.export_onnx(tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_a_layer_that_cannot_be_exported_is_named(problem, tmp_path):
    def model():
        return nn.Sequential(nn.Unflatten(1, (1, 2, 2)), nn.AvgPool2d(2, ceil_mode=True), nn.Flatten(), nn.Linear(1, 1))

    known = posterior(problem, [wf.Iterations(wf.SWAG(4))], model)
    with pytest.raises(ValueError, match=r"as ONNX.*the layer '1', AvgPool2d.*ceil_mode"):
        known.export_onnx(tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("noise", ["fit", "predicted"])
def test_a_scale_of_the_variance_is_written(noise, tmp_path):
    """Of two outputs, each with a factor of its own."""
    generator = np.random.default_rng(5)
    x = generator.normal(size=(120, 3))
    y = np.stack([x[:, 0] + 0.5 * generator.normal(size=120), 40 * x[:, 1] + 9 * generator.normal(size=120)], 1)
    over = [wf.InitialCondition(3), wf.Iterations(wf.SWAG(3))]
    known = posterior((x[:80], y[:80]), over, wf.MLP([6]), likelihood=wf.Regression(noise=noise))
    known = known.calibrated("variance", (x[80:], y[80:]))
    (scale,) = known.calibration
    assert min(abs(factor - 1) for factor in scale.factor) > 0.01
    written(known, tmp_path, x[80:])
    assert session(tmp_path / "model.onnx").get_modelmeta().custom_metadata_map["calibration"] == str(scale)


def test_means_end_at_the_least_that_y_can_be(tmp_path):
    x = np.linspace(-1, 1, 60)[:, None]
    likelihood = wf.Regression(noise="fit", least=0.0)
    known = posterior(
        (x, np.maximum(0, x[:, 0])), wf.recipes.multi_swag(2), wf.MLP([6]), likelihood=likelihood, epochs=30
    )
    far = np.linspace(-4, 0, 20)[:, None]
    assert known.one_shot(far).mean.min() == 0
    written(known, tmp_path, far)


def test_other_calibrations_have_no_place_in_a_file(problem, tmp_path):
    x, y = problem
    known = posterior((x[:60], y[:60]), [wf.InitialCondition(2), wf.Iterations(wf.SWAG(3))])
    conformal = known.calibrated("variance", (x[60:], y[60:])).calibrated("conformal", (x[60:], y[60:]))
    with pytest.raises(ValueError, match=r"calibration by conformal: write posterior\.uncalibrated\.export_onnx"):
        conformal.export_onnx(tmp_path / "model.onnx")
    classes = np.where(y > np.median(y), "above", "below")
    known = posterior((x[:60], classes[:60]), [wf.InitialCondition(2)], mlp(outputs=2), likelihood=wf.Classification())
    tempered = known.calibrated("temperature", (x[60:], classes[60:]))
    with pytest.raises(ValueError, match="calibration by temperature: write"):
        tempered.export_onnx(tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_as_many_of_everything_as_rows_are_tried(tmp_path):
    """Eight rows are followed through the network; units, inputs, outputs and members may be as many."""
    size, generator = export._CHECKED_ROWS, np.random.default_rng(6)
    x = generator.normal(size=(40, size))
    known = posterior((x, x**2), [wf.InitialCondition(size), wf.Iterations(wf.SWAG(size))], wf.MLP([size]))
    written(known, tmp_path, x[:11])


@pytest.mark.parametrize("fails", ["save", "_check"])
def test_a_file_is_only_replaced_by_a_whole_one(problem, tmp_path, monkeypatch, fails):
    def fail(path, *_, **__) -> None:
        path.write_bytes(b"half of it")
        raise OSError("the disk is full")

    program = SimpleNamespace(
        model=SimpleNamespace(metadata_props={}, graph=None), save=lambda path, **_: path.write_bytes(b"all")
    )
    monkeypatch.setattr(*((program, "save") if fails == "save" else (export, "_check")), fail)
    monkeypatch.setattr(export, "_translated", lambda *_: program)
    monkeypatch.setattr(export, "_repeat", lambda *_: None)
    (tmp_path / "model.onnx").write_bytes(b"an earlier one")
    with pytest.raises(OSError, match="disk is full"):
        posterior(problem, []).export_onnx(tmp_path / "model.onnx")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"an earlier one"]


def test_a_file_with_other_answers_is_refused(whole, file):
    rows = export._some_rows(whole)
    export._check(file, rows, whole.one_shot(rows, covariance="diagonal"), 1e-3)
    with pytest.raises(ValueError, match="its answers are not those of one_shot"):
        export._check(file, rows, whole.marginalising("t").one_shot(rows), 1e-3)


def test_bad_wishes(whole, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="covariance must be one of"):
        whole.export_onnx(tmp_path / "model.onnx", covariance="half")
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        whole.export_onnx(tmp_path / "nowhere" / "model.onnx")
    monkeypatch.setattr(export, "_MOST_BYTES", 1000)
    with pytest.raises(ValueError, match="one ONNX file holds 2 GB"):
        whole.export_onnx(tmp_path / "model.onnx")
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(ImportError, match=r"pip install 'wherefrom\[onnx\]'"):
        whole.export_onnx(tmp_path / "model.onnx")


@pytest.mark.parametrize("dispersion", ["fit", "predicted", 0.5])
def test_counts(rows, tmp_path, dispersion):
    """The variance in the file holds the noise of counts, which differs from row to row and member to member."""
    y = np.random.default_rng(5).poisson(np.exp(2.0 + 0.3 * rows[:90, 1])).astype(float)
    likelihood = wf.Counts(dispersion, held_out=0.2)
    model = mlp(outputs=likelihood.outputs(1))
    known = posterior((rows[:90], y), [wf.InitialCondition(2), wf.Iterations(wf.SWAG(3))], model, likelihood=likelihood)
    written(known, tmp_path, rows[:40])
    said = session(tmp_path / "model.onnx").get_modelmeta().custom_metadata_map
    assert (said["noise"], said["variance_includes_noise"]) == (str(dispersion), "yes")
