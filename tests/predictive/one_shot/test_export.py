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
from wherefrom.predictive.one_shot import NoRuleError, heads, scalars

pytestmark = pytest.mark.slow

for package in ("onnx", "onnxscript", "onnxruntime"):
    pytest.importorskip(package, reason=f"exporting needs {package}: pip install 'wherefrom[onnx]'")

NAMES = ["year", "age", "dose", "weight, kg"]


def posterior(data, over, model=None, **changes) -> wf.Posterior:
    return wf.marginalise(training(model, **changes), data, over, seed=2, progress=False)


def session(path):
    import onnxruntime

    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def agree(found, known: wf.Posterior, x, covariance="low_rank", quantiles=()) -> None:
    """To 1e-5; and to a millionth of y's variance, which is what single precision leaves where members nearly agree."""
    said = known.one_shot(x, covariance=covariance)
    mean, variance, *others = (torch.from_numpy(np.asarray(values)) for values in found)
    assert len(others) == bool(quantiles)
    scale = float(known.scaler.y_std.max())
    torch.testing.assert_close(mean, said.mean, rtol=1e-5, atol=1e-6 * scale)
    torch.testing.assert_close(variance, said.variance, rtol=1e-5, atol=1e-6 * scale**2)
    for probability, found_there in zip(quantiles, others[0].unbind(-1) if others else (), strict=True):
        torch.testing.assert_close(found_there, said.quantile(probability), rtol=1e-5, atol=1e-5 * scale)


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
        "covariance": "low_rank",
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
    written(known, tmp_path, x[:9], covariance="diagonal")


def test_snapshots_that_predict_their_noise(problem, tmp_path):
    over = [wf.InitialCondition(2), wf.Iterations(wf.Snapshots(3))]
    known = posterior(problem, over, mlp(outputs=2), likelihood=wf.Regression(noise="predicted"))
    written(known, tmp_path, problem[0][:9])


def test_embeddings(tmp_path):
    x = np.random.default_rng(0).integers(0, 7, size=(60, 3))
    model = lambda: nn.Sequential(nn.Embedding(7, 2), nn.Flatten(), nn.Linear(6, 1))  # noqa: E731
    known = posterior((x, x.sum(1) + 10.0), [wf.Iterations(wf.SWAG(4))], model)
    known.export_onnx(tmp_path / "model.onnx", covariance="diagonal")
    agree(session(tmp_path / "model.onnx").run(None, {"x": x[:9]}), known, x[:9], "diagonal")


def test_probabilities_of_three_classes(problem, tmp_path, monkeypatch):
    """All points at once, here and there alike: each block of them is some nodes to export."""
    monkeypatch.setattr(heads, "_AT_ONCE", heads._POINTS)
    x, y = problem
    classes = np.digitize(y, np.quantile(y, [0.3, 0.6]))
    known = posterior((x, classes), [wf.Iterations(wf.SWAG(4))], mlp(outputs=3), likelihood=wf.Classification())
    known.export_onnx(tmp_path / "model.onnx")
    mean, _ = session(tmp_path / "model.onnx").run(None, {"x": x[:9].astype(np.float32)})
    np.testing.assert_allclose(mean, known.one_shot(x[:9]).probabilities, atol=1e-5)


def test_shared_deviations_of_a_plain_network(problem, tmp_path):
    known = posterior(problem, [wf.InitialCondition(2), wf.Iterations(wf.SWAG(4))])
    written(known, tmp_path, problem[0][:9], covariance="low_rank")


# ---------------------------------------------------------------------- quantiles

PROBABILITIES = (0.025, 0.5, 0.9)


def test_quantiles_are_those_of_one_shot(problem, tmp_path):
    """By Student's t, over the members of a crossed design; and the default covariance is that of one_shot."""
    over = [wf.InitialCondition(3), wf.BatchOrder(2), wf.Iterations(wf.SWAG(4))]
    known = posterior(problem, over, likelihood=wf.Regression(noise=0.3))
    written(known, tmp_path, problem[0][:9], quantiles=PROBABILITIES)
    opened = session(tmp_path / "model.onnx")
    assert [(out.name, out.shape) for out in opened.get_outputs()][-1] == ("quantiles", ["rows", 3])
    said = opened.get_modelmeta().custom_metadata_map
    assert (said["quantiles"], said["reading"]) == (str(list(PROBABILITIES)), "few_members")
    assert said["covariance"] == "low_rank"
    x = problem[0][:9].astype(np.float32)
    low = np.moveaxis(opened.run(["quantiles"], {"x": x})[0], -1, 0)[0]
    paper = known.one_shot(x)
    assert np.all(low < paper.quantile(0.025, "paper").numpy())
    diagonal = known.one_shot(x, covariance="diagonal").std / paper.std
    assert float((diagonal - 1).abs().max()) > 0.05  # another file than the diagonal's


@pytest.mark.parametrize("by", ["variance", "shape"])
def test_calibrated_quantiles_are_written(by, tmp_path):
    """Of two outputs; a shape's file says nothing without quantiles."""
    generator = np.random.default_rng(6)
    x = generator.normal(size=(240, 3))
    y = np.stack([x[:, 0] + generator.exponential(size=240), 40 * x[:, 1] + 9 * generator.normal(size=240)], 1)
    over = [wf.InitialCondition(3), wf.Iterations(wf.SWAG(3))]
    known = posterior((x[:80], y[:80]), over, wf.MLP([6]), likelihood=wf.Regression(noise="fit"))
    known = known.calibrated(by, (x[80:], y[80:]))
    written(known, tmp_path, x[80:90], quantiles=PROBABILITIES)
    said = session(tmp_path / "model.onnx").get_modelmeta().custom_metadata_map
    assert said["reading"] == {"variance": "gaussian", "shape": "shape"}[by]
    if by == "shape":
        with pytest.raises(
            ValueError, match=r'calibration by shape: .* or quantiles=\(0.025, 0.5, 0.975\) for "shape"'
        ):
            known.export_onnx(tmp_path / "other.onnx")


@pytest.mark.parametrize("by", [None, "variance", "shape"])
def test_quantiles_of_positive_quantities_are_written(by, tmp_path):
    """Of two columns, and of rows whose log y is cut off."""
    generator = np.random.default_rng(7)
    x = generator.normal(size=(400, 3))
    logs = np.stack([0.5 * x[:, 0] + generator.exponential(size=400), 3 + x[:, 1] + generator.normal(size=400)], 1)
    over = [wf.InitialCondition(3), wf.Iterations(wf.SWAG(3))]
    known = posterior((x[:80], np.exp(logs[:80])), over, wf.MLP([6]), likelihood=wf.Positive(0.8))
    known = known if by is None else known.calibrated(by, (x[80:], np.exp(logs[80:])))
    far = 30 * x[80:82]
    written(known, tmp_path, np.concatenate([x[80:90], far]), quantiles=PROBABILITIES)
    assert float(known.one_shot(far.astype(np.float32)).mixture.mean.abs().max()) > 6
    said = session(tmp_path / "model.onnx").get_modelmeta().custom_metadata_map
    assert said["reading"] == ("shape" if by == "shape" else "gaussian")


def test_quantiles_that_cannot_be_written(problem, tmp_path):
    x, y = problem
    zeros = posterior(
        (x, np.maximum(y - np.median(y), 0)),
        [wf.InitialCondition(2)],
        mlp(outputs=2),
        likelihood=wf.Positive(0.5, zeros=True),
    )
    with pytest.raises(ValueError, match="no place for the probability that y is 0"):
        zeros.export_onnx(tmp_path / "model.onnx", quantiles=PROBABILITIES)
    known = posterior(problem, [wf.InitialCondition(2)])
    with pytest.raises(ValueError, match=r"probabilities between 0 and 1.*; 95\.0 is not"):
        known.export_onnx(tmp_path / "model.onnx", quantiles=[95])
    counts = posterior((x, np.round(np.abs(y))), [wf.InitialCondition(2)], likelihood=wf.Counts(0.5))
    with pytest.raises(ValueError, match="quantiles of CountPrediction are searched for"):
        counts.export_onnx(tmp_path / "model.onnx", quantiles=PROBABILITIES)
    classes = np.where(y > np.median(y), "above", "below")
    known = posterior((x, classes), [wf.InitialCondition(2)], mlp(outputs=2), likelihood=wf.Classification())
    with pytest.raises(ValueError, match="classes have no quantiles"):
        known.export_onnx(tmp_path / "model.onnx", quantiles=PROBABILITIES)
    assert not list(tmp_path.iterdir())


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
        agree(model.mixed(means, variances), known, x, "diagonal")


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
        return nn.Sequential(nn.Linear(4, 6), nn.Softshrink(), nn.Linear(6, 1))

    known = posterior(problem, [wf.Iterations(wf.SWAG(4))], model)
    with pytest.raises(NoRuleError, match=r"the layer '1', Softshrink\(0.5\)"):
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
    export._check(file, rows, whole.one_shot(rows), 1e-3)
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


@pytest.mark.parametrize("noise", ["fit", "predicted"])
def test_positive_quantities(rows, tmp_path, noise):
    """Mean and variance are those of y itself, through the exponential."""
    y = np.exp(1.0 + 0.4 * rows[:90, 1] + 0.3 * np.random.default_rng(5).normal(size=90))
    likelihood = wf.Positive(noise, held_out=0.2)
    model = mlp(outputs=likelihood.outputs(1))
    known = posterior((rows[:90], y), [wf.InitialCondition(2), wf.Iterations(wf.SWAG(3))], model, likelihood=likelihood)
    written(known, tmp_path, rows[:40])
    written(known.calibrated("variance", (rows[:40] + 0.1, y[:40])), tmp_path, rows[:40])


def test_zeros_have_no_place_in_a_file(rows, tmp_path):
    y = np.where(rows[:90, 0] < 0, 0.0, np.exp(rows[:90, 1]))
    likelihood = wf.Positive("predicted", zeros=True)
    known = posterior((rows[:90], y), [wf.InitialCondition(2)], mlp(outputs=3), likelihood=likelihood)
    with pytest.raises(ValueError, match="no place for the probability that y is 0"):
        known.export_onnx(tmp_path / "model.onnx")


@pytest.mark.parametrize("noise", ["fit", "predicted", 0.4])
def test_student_noise(rows, tmp_path, noise):
    y = 10 + rows[:90, 1] + 0.3 * np.random.default_rng(5).standard_t(3, size=90)
    likelihood = wf.Regression(noise, 0.2, tails="student")
    model = mlp(outputs=likelihood.outputs(1))
    known = posterior((rows[:90], y), [wf.InitialCondition(2), wf.Iterations(wf.SWAG(3))], model, likelihood=likelihood)
    written(known, tmp_path, rows[:40])


@pytest.mark.parametrize("dispersion", ["fit", "predicted", 0.5])
def test_counts(rows, tmp_path, dispersion):
    """The variance in the file holds the noise of counts, which differs from row to row and member to member."""
    y = np.random.default_rng(5).poisson(np.exp(2.0 + 0.3 * rows[:90, 1])).astype(float)
    likelihood = wf.Counts(dispersion, held_out=0.2)
    model = mlp(outputs=likelihood.outputs(1))
    known = posterior((rows[:90], y), [wf.InitialCondition(2), wf.Iterations(wf.SWAG(3))], model, likelihood=likelihood)
    written(known, tmp_path, rows[:40], covariance="diagonal")
    said = session(tmp_path / "model.onnx").get_modelmeta().custom_metadata_map
    assert (said["noise"], said["variance_includes_noise"]) == (str(dispersion), "yes")
