"""A frozen part that comes first: features are computed once, and all else is as if the head were trained on them."""

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import Dataset

import wherefrom as wf
from wherefrom.training import front

SEED = 2
OVER = [wf.InitialCondition(3), wf.Iterations(wf.SWAG(rank=2)), wf.Dropout()]


class Body(nn.Module):
    """A frozen body that looks at its numbers, so that nothing can follow it, and counts the rows it is called on."""

    rows = 0

    def __init__(self) -> None:
        super().__init__()
        self.convolve, self.normalise = nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        Body.rows += len(x)
        h = self.normalise(self.convolve(x))
        return (F.relu(h) if bool(torch.isfinite(h).all()) else h).mean((2, 3))


def pretrained() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(11)
        body = Body()
        body.train()(torch.randn(30, 2, 6, 6) * 2)
    return body.requires_grad_(False).eval()


BODY = pretrained()
X = torch.randn(80, 2, 6, 6, generator=torch.Generator().manual_seed(1))
Y = X.mean((1, 2, 3)) * 10 + X[:, 0, 0, 0]


def head() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 1))


def whole() -> nn.Module:
    return nn.Sequential(BODY, *head())


class ByName(nn.Module):
    """The usual way: a pretrained network whose last layer is another."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.fc = copy.deepcopy(BODY), nn.Linear(4, 1)
        self.register_buffer("scale", torch.tensor(2.0))

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        h = self.body(x) * self.scale
        if mask is not None:
            h = h * mask
        return self.fc(F.dropout(torch.flatten(h, 1), 0.2, self.training))


def point(model=whole, **changes) -> wf.Training:
    algorithm = wf.Algorithm("adam", lr=0.02, batch_size=20)
    return wf.Training(model, algorithm, 4, **{"standardise": False} | changes)


def marginalised(model=whole, x=X, over=OVER, **others) -> wf.Posterior:
    return wf.marginalise(point(model), (x, Y), over, SEED, **others)


@pytest.fixture(scope="module")
def features() -> torch.Tensor:
    with torch.no_grad():
        return BODY(X)


def same(one, other) -> None:
    torch.testing.assert_close(one.answers, other.answers, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("engine", ["torch", "native"])
def test_it_is_a_head_trained_on_features(engine, features):
    ours, expected = marginalised(engine=engine), marginalised(head, features, engine=engine)
    assert ours.engines == expected.engines == (engine,)
    same(ours.predict(X, samples=8), expected.predict(features, samples=8))
    moments, others = ours.one_shot(X), expected.one_shot(features)
    torch.testing.assert_close(moments.mean, others.mean, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(moments.variance, others.variance, rtol=1e-4, atol=1e-6)
    shares = [prediction.sources().table().rows for prediction in (ours.predict(X), expected.predict(features))]
    for one, other in zip(*shares, strict=True):
        assert one[0] == other[0]
        assert one[1:] == pytest.approx(other[1:], rel=1e-3)


def test_the_body_is_run_once_for_all_members():
    def passed(draws: int) -> int:
        before = Body.rows
        marginalised(over=[wf.InitialCondition(draws)])
        return Body.rows - before

    few, many = passed(2), passed(12)
    assert few == many  # the rows once, and some to look at the network
    assert few < len(X) + 100


def test_draws_with_a_body_of_their_own_are_compared():
    """By one row each, as for what the numbers do not show: a slope that is drawn."""

    class Slope(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.fc, self.slope = copy.deepcopy(BODY), nn.Linear(4, 1), float(torch.rand(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.fc(self.body(x)) * self.slope

    class SlopeOnOne(Slope):
        def __init__(self) -> None:
            super().__init__()
            self.body = BODY

    for model in (Slope, SlopeOnOne):
        with pytest.raises(ValueError, match="more drawn than initial weights"):
            marginalised(model, over=OVER[:1])
    before = Body.rows
    marginalised(ByName, over=[wf.InitialCondition(12)])
    assert len(X) + 10 <= Body.rows - before < len(X) + 120


def test_prediction_runs_the_body_once():
    posterior = marginalised()
    before = Body.rows
    posterior.predict(X, samples=20)
    assert Body.rows - before == len(X)


class Several(nn.Module):
    """A trained part that takes several tensors of the frozen one, and rows as they are."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.fc, self.pixels = copy.deepcopy(BODY), nn.Linear(4, 1), nn.Linear(6, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        is_bright = x.mean((1, 2, 3)) > 0
        h = self.fc(self.body(x)) + self.pixels(x[:, 0, :, 2])
        return torch.where(is_bright.unsqueeze(1), h, 2 * h)


@pytest.mark.parametrize("model", [whole, ByName, Several])
def test_training_by_features_equals_training_the_whole(model, monkeypatch):
    over = OVER[: 3 if model is not Several else 2]
    by_features = marginalised(model, over=over)
    assert by_features.networks[""].head is not None
    monkeypatch.setattr("wherefrom.training.network.Network._divided", lambda *_: (None, None))
    in_each_step = marginalised(model, over=over)
    assert in_each_step.networks[""].head is None
    same(by_features.predict(X, samples=8), in_each_step.predict(X, samples=8))


class OfTheBatch(ByName):
    """A trained part that takes what is not of single rows."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.body(x)) + x.abs().mean()


class Asking(ByName):
    """A forward that looks at its numbers."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.body(x)
        return self.fc(h if float(h.sum()) > 1e9 else h * 2)


class InPlace(ByName):
    """A trained part that would write into the features."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.body(x)
        h.mul_(self.fc.bias)
        return self.fc(h)


def in_training_mode() -> nn.Module:
    return nn.Sequential(copy.deepcopy(BODY).train(), *head())


def trained_first() -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 2, 1), BODY, *head())


def test_a_forward_that_cannot_be_followed_is_named():
    with pytest.warns(
        UserWarning, match=r"frozen part of the model runs in every step.*nn.Sequential\(backbone, head\)"
    ):
        marginalised(Asking, over=[])


@pytest.mark.filterwarnings("ignore:the frozen part")
@pytest.mark.parametrize("model", [OfTheBatch, Asking, InPlace, in_training_mode, trained_first])
def test_what_cannot_be_divided_is_trained_whole(model):
    posterior = marginalised(model, over=[wf.InitialCondition(2)])
    assert posterior.networks[""].head is None
    assert posterior.networks[""].shared
    assert bool(torch.isfinite(posterior.predict(X).mean).all())


def test_augmented_rows_have_no_features():
    flip = wf.augment.CropAndFlip(padding=1)
    before = Body.rows
    posterior = wf.marginalise(point(augment=flip), (X, Y), [wf.InitialCondition(2)], SEED)
    assert Body.rows - before > 4 * len(X)
    assert posterior.networks[""].head is not None  # which predicts


class Noisy(Dataset):
    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, row: int):
        return X[row] + 0.1 * torch.randn(X.shape[1:]), Y[row]


def test_random_rows_have_no_features():
    before = Body.rows
    wf.marginalise(point(), Noisy(), [wf.InitialCondition(2)], SEED)
    assert Body.rows - before > 4 * len(X)


class Large(Noisy):
    def __getitem__(self, row: int):
        return X[row], Y[row]


def test_streamed_rows_and_large_features(monkeypatch):
    expected = marginalised().predict(X, samples=4)
    monkeypatch.setattr("wherefrom.training.streamed._MOST_BYTES", 0)
    monkeypatch.setattr(front, "_IN_MEMORY", 0)
    monkeypatch.setattr("wherefrom.training.network._FEWEST_ROWS", 7)
    monkeypatch.setattr("wherefrom.training.network._CALL_NUMBERS", 1)
    same(wf.marginalise(point(), Large(), OVER, SEED).predict(X, samples=4), expected)
    monkeypatch.setattr(front.shutil, "disk_usage", lambda _: type("", (), {"free": 0}))
    before = Body.rows
    marginalised(over=[])
    assert Body.rows - before > 4 * len(X)  # no room: the whole in each step


@pytest.mark.slow
def test_files_pickles_folds_and_growth(tmp_path):
    posterior = marginalised()
    expected = posterior.predict(X, samples=4)
    posterior.save(tmp_path / "run")
    loaded = wf.load(tmp_path / "run", whole, data=(X, Y))
    assert torch.equal(loaded.predict(X, samples=4).answers, expected.answers)
    assert torch.equal(pickle.loads(pickle.dumps(posterior)).predict(X, samples=4).answers, expected.answers)
    grown = marginalised(over=[wf.InitialCondition(2), *OVER[1:]]).extend(theta0=1)
    same(grown.predict(X, samples=4), expected)
    stored = marginalised(store=tmp_path / "kept")
    same(stored.predict(X, samples=4), expected)
    folds = [torch.arange(60), torch.arange(20, 80)]
    one = wf.marginalise(point(), (X[:60], Y[:60]), OVER, SEED)
    same(wf.marginalise(point(), (X, Y), OVER, SEED, folds=folds)[0].predict(X, samples=4), one.predict(X, samples=4))


def test_draws_of_the_rows_share_their_features(features):
    before = Body.rows
    over = [wf.Resample(3), wf.InitialCondition(2)]
    posterior = marginalised(over=over)
    assert Body.rows - before < len(X) + 100
    same(posterior.predict(X), marginalised(head, features, over=over).predict(features))


def test_batch_normalisation_in_the_head(features):
    """Whose statistics are estimated anew for each sample of the weights, on features."""
    bare = lambda: nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 1))  # noqa: E731
    over = OVER[:2]
    ours = marginalised(lambda: nn.Sequential(BODY, *bare()), over=over)
    assert ours.networks[""].head is not None
    same(ours.predict(X, samples=4), marginalised(bare, features, over=over).predict(features, samples=4))


def test_families_with_and_without_features(features):
    flat = lambda: nn.Sequential(nn.Flatten(), nn.Linear(72, 1))  # noqa: E731
    over = [wf.Families({"pretrained": whole, "flat": flat}), wf.InitialCondition(2)]
    both = marginalised(over=over)
    of_body = both.select(F="pretrained").predict(X)
    same(of_body, marginalised(head, features, over=[wf.InitialCondition(2)]).predict(features))


class Plain(nn.Module):
    """A body of layers that one-shot has rules for."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.fc = nn.Sequential(nn.Linear(4, 3), nn.ReLU()), nn.Linear(3, 1)
        with torch.no_grad():
            self.body[0].weight.copy_(torch.arange(12.0).reshape(3, 4) / 6 - 1)
            self.body[0].bias.zero_()
        self.body.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.body(x))


def test_onnx_files_hold_the_whole(tmp_path):
    """`export_onnx` compares the file's answers with its own, which come from features."""
    pytest.importorskip("onnxruntime", reason="needs wherefrom[onnx]")
    x = X[:, :, 0, :2].flatten(1)
    posterior = marginalised(Plain, x, over=OVER[:2])
    assert posterior.networks[""].head is not None
    posterior.export_onnx(tmp_path / "whole.onnx")
    assert (tmp_path / "whole.onnx").stat().st_size > 0


def test_noise_of_the_inputs_goes_through_the_whole():
    x = X[:, :, 0, :2].flatten(1)
    posterior = marginalised(Plain, x, over=[wf.InitialCondition(2)])
    assert posterior.networks[""].head is not None
    quiet, noisy = posterior.one_shot(x), posterior.one_shot(x, x_std=0.3)
    generator = torch.Generator().manual_seed(0)
    moved = x + 0.3 * torch.randn(4000, *x.shape, generator=generator)
    answers = posterior.predict(moved.flatten(0, 1)).answers[:, 0].reshape(2, 4000, len(x)).double()
    within = answers.var(1).mean(0) + answers.mean(1).var(0, correction=0)
    assert bool((noisy.variance > quiet.variance).all())
    # ReLU's moments are exact, but units are taken as independent behind it: a few per cent.
    torch.testing.assert_close(noisy.variance, within, rtol=0.25, atol=1e-3)
