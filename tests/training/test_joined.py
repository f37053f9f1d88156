"""Several inputs: as if the network took them apart itself, in batches, folds, chunks, files and one-shot."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

import wherefrom as wf
from conftest import mlp, training
from wherefrom.training import streams
from wherefrom.training.cohort import orders
from wherefrom.training.pieces import Pieces

RANDOM = np.random.default_rng(4)
ROWS = 70
NUMBERS = RANDOM.normal(3.0, 5.0, size=(ROWS, 3))
CODES = RANDOM.integers(0, 6, size=(ROWS, 2))
IMAGE = RANDOM.normal(size=(ROWS, 1, 4, 4)).astype(np.float32)
IS_NEW = RANDOM.integers(0, 2, size=ROWS).astype(bool)
Y = NUMBERS[:, 0] + CODES[:, 0] - 2.0 * IS_NEW + IMAGE.mean((1, 2, 3)) + 0.1 * RANDOM.normal(size=ROWS)
X = {"numbers": NUMBERS, "codes": CODES, "image": IMAGE, "is_new": IS_NEW}
OVER = [wf.InitialCondition(3), wf.Iterations(wf.SWAG(rank=2)), wf.Dropout()]


class Mixed(nn.Module):
    """Numbers, an embedding, a convolution and a mask of truth values, each of its own type."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.convolve = nn.Embedding(6, 3), nn.Conv2d(1, 2, 3)
        self.last = nn.Sequential(nn.Linear(3 + 6 + 8, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 1))

    def forward(self, numbers, codes, image, is_new):
        assert (codes.dtype, is_new.dtype) == (torch.int64, torch.bool)
        assert image.shape[1:] == (1, 4, 4)
        h = torch.cat([numbers, self.embed(codes).flatten(1), self.convolve(image).flatten(1)], 1)
        return self.last(h) * torch.where(is_new, 0.5, 1.0).unsqueeze(1)


class InOne(nn.Module):
    """The same, of one dictionary or tuple."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Mixed()

    def forward(self, batch):
        return self.inner(**batch) if isinstance(batch, dict) else self.inner(*batch)


class Wide(nn.Module):
    """Numbers and an embedding, by layers that one-shot has rules for."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(6, 3)
        self.last = nn.Sequential(nn.Linear(9, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 1))

    def forward(self, numbers, codes):
        return self.last(torch.cat([numbers, self.embed(codes).flatten(1)], 1))


WIDE = {"numbers": NUMBERS, "codes": CODES}


def marginalised(model=Mixed, x=X, over=OVER, y=Y, **others) -> wf.Posterior:
    return wf.marginalise(training(model), (x, y), over, seed=1, **others)


def some(rows) -> dict:
    return {name: part[rows] for name, part in X.items()}


def plain_loop(draw: int, seed: int = 1) -> torch.Tensor:
    """One member as anybody would train it; numbers are standardised, and nothing else."""
    with streams.torch_seeded(seed, "theta0", draw):
        network = Mixed().double()
    for part in network.modules():
        part.p = 0.0  # masks are not compared here
    x = [torch.tensor((NUMBERS - NUMBERS.mean(0)) / NUMBERS.std(0)), torch.tensor(CODES)]
    x += [torch.tensor(IMAGE).double(), torch.tensor(IS_NEW)]
    y = torch.tensor((Y - Y.mean()) / Y.std())
    optimiser = torch.optim.Adam(network.parameters(), lr=0.02)
    key = np.array([streams.key(seed, "order", 0)], dtype=np.uint64)
    for epoch in range(6):
        order = torch.from_numpy(orders(key, np.array([False]), epoch, ROWS)[0])
        for rows in order.split(25):
            optimiser.zero_grad()
            (network(*(part[rows] for part in x))[:, 0] - y[rows]).square().mean().backward()
            optimiser.step()
    return network(*x)[:, 0].detach() * Y.std() + Y.mean()


def test_members_equal_a_plain_loop():
    def without_dropout() -> nn.Module:
        network = Mixed()
        network.last[2].p = 0.0
        return network

    ours = marginalised(without_dropout, over=[wf.InitialCondition(3)], dtype=torch.float64)
    prediction = ours.predict(X)
    for draw in range(3):
        expected = plain_loop(draw)
        member = ours.select(theta0=draw).predict(X).mean
        torch.testing.assert_close(member, expected, rtol=0, atol=1e-9)
    assert prediction.mean.shape == (ROWS,)


def answers(posterior, x=X) -> torch.Tensor:
    return posterior.predict(x, samples=8).answers


@pytest.mark.parametrize(
    ("model", "x"),
    [(Mixed, tuple(X.values())), (InOne, X), (InOne, tuple(X.values()))],
    ids=["a tuple", "one dictionary", "one tuple"],
)
def test_the_ways_to_give_several_inputs_are_the_same(model, x):
    torch.testing.assert_close(answers(marginalised(model, x), x), answers(marginalised()))


class Items(Dataset):
    """A Dataset of several inputs."""

    def __init__(self, kind=dict, noise: float = 0.0) -> None:
        self.kind, self.noise = kind, noise

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, row):
        x = {name: part[row] for name, part in X.items()}
        if self.noise:
            x["image"] = torch.tensor(x["image"]) + self.noise * torch.randn(1, 4, 4)
        return (x if self.kind is dict else tuple(x.values())), Y[row]


@pytest.mark.parametrize("kind", [dict, tuple])
def test_a_dataset_may_return_several(kind):
    posterior = wf.marginalise(training(Mixed), Items(kind), OVER, seed=1)
    x = X if kind is dict else tuple(X.values())
    torch.testing.assert_close(answers(posterior, x), answers(marginalised()))
    torch.testing.assert_close(answers(posterior, Items(kind)), answers(posterior, x))


def test_a_dataset_that_draws_at_random_is_streamed():
    with pytest.raises(ValueError, match="do so in the Dataset"):
        wf.marginalise(training(Mixed), Items(noise=0.1), OVER, seed=1)
    posterior = wf.marginalise(training(Mixed, standardise=False), Items(noise=0.1), OVER, seed=1)
    other = wf.marginalise(training(Mixed, standardise=False), Items(noise=0.1), OVER, seed=1)
    assert torch.equal(answers(posterior), answers(other))
    assert bool(torch.isfinite(answers(posterior)).all())


def test_frames_with_groups_of_columns():
    table = pd.DataFrame(NUMBERS, columns=["a", "b", "c"]).assign(kind=CODES[:, 0], place=CODES[:, 1])
    x = {"numbers": table[["a", "b", "c"]], "codes": table[["kind", "place"]]}
    posterior = marginalised(Wide, x)
    torch.testing.assert_close(answers(posterior, x), answers(marginalised(Wide, WIDE), WIDE))
    torch.testing.assert_close(answers(posterior, WIDE), answers(posterior, x))
    with pytest.raises(ValueError, match=r"x\['numbers'\] has other columns, or another order"):
        posterior.predict({**x, "numbers": table[["b", "a", "c"]]})


def test_each_is_standardised_as_is_said():
    everything = {"numbers": False, "codes": False, "image": True, "is_new": False}
    scaler = wf.marginalise(training(Mixed, standardise=everything), (X, Y), [], seed=1).scaler
    codes, image, numbers = slice(0, 2), slice(2, 18), slice(19, 22)  # in the order of their names
    for part in (codes, numbers):
        assert bool((scaler.x_mean[part] == 0).all())
        assert bool((scaler.x_std[part] == 1).all())
    torch.testing.assert_close(scaler.x_mean[image], torch.tensor(IMAGE).double().mean(0).flatten())
    by_default = marginalised(over=[]).scaler
    torch.testing.assert_close(by_default.x_mean[numbers], torch.tensor(NUMBERS.mean(0)))
    assert bool((by_default.x_mean[:19] == 0).all())
    as_tuple = training(Mixed, standardise=(True, False, False, False))
    again = wf.marginalise(as_tuple, (tuple(X.values()), Y), [], seed=1).scaler
    assert torch.equal(again.x_mean[:3], by_default.x_mean[numbers])


@pytest.mark.slow
def test_chunks_folds_growth_and_files(tmp_path):
    posterior = marginalised()
    expected = answers(posterior)
    chunks = [chunk.mean for chunk in posterior.predict_chunks(X, samples=8)]
    torch.testing.assert_close(torch.cat(chunks), posterior.predict(X, samples=8).mean)
    each = [chunk.mean for chunk in posterior.predict_chunks([some(slice(0, 50)), some(slice(50, None))], samples=8)]
    torch.testing.assert_close(torch.cat(each), torch.cat(chunks))
    posterior.save(tmp_path / "run")
    loaded = wf.load(tmp_path / "run", Mixed, data=(X, Y))
    assert torch.equal(answers(loaded), expected)
    assert loaded.schema == posterior.schema
    fewer = marginalised(over=[wf.InitialCondition(2), *OVER[1:]])
    fewer.save(tmp_path / "fewer")
    grown = wf.load(tmp_path / "fewer", Mixed, data=(X, Y)).extend(theta0=1)
    torch.testing.assert_close(answers(grown), expected)
    torch.testing.assert_close(answers(marginalised(store=tmp_path / "kept", checkpoints=tmp_path / "way")), expected)
    folds = [np.arange(60), np.arange(10, 70)]
    first = wf.marginalise(training(Mixed), (X, Y), OVER, seed=1, folds=folds)[0]
    torch.testing.assert_close(answers(first), answers(marginalised(x=some(slice(0, 60)), y=Y[:60])))


def test_draws_of_the_rows_weights_and_held_out_rows():
    over = [wf.Folds(3), wf.InitialCondition(2)]
    assert marginalised(over=over).out_of_fold().mean.shape == (ROWS,)
    noisy = training(Mixed, likelihood=wf.Regression(noise="fit"))
    first, others = slice(0, 50), slice(50, None)
    data = some(first), Y[first], np.ones(50)
    posterior = wf.marginalise(noisy, data, OVER, held_out=(some(others), Y[others]), seed=1)
    assert posterior.predict(X).nll(Y) < 10


def test_one_shot_through_several_inputs():
    posterior = marginalised(Wide, WIDE)
    moments, sampled = posterior.one_shot(WIDE), posterior.predict(WIDE, samples=4000)
    error = sampled.std / np.sqrt(3 * 4000 / 4)  # of a mean, were only one in four samples independent
    assert bool(((moments.mean - sampled.mean).abs() < 5 * error + 0.02 * sampled.std).all())
    assert posterior.check_one_shot(WIDE).std_error < 0.1
    with pytest.raises(ValueError, match="x_std is for a single input"):
        posterior.one_shot(WIDE, x_std=0.1)


def test_onnx_files_are_of_one_input(tmp_path):
    pytest.importorskip("onnxruntime", reason="needs wherefrom[onnx]")
    with pytest.raises(ValueError, match="the model was trained on several inputs"):
        marginalised(Wide, WIDE, over=OVER[:2]).export_onnx(tmp_path / "several.onnx")


def test_networks_that_were_trained_elsewhere():
    networks = [Mixed().eval() for _ in range(2)]
    posterior = wf.Posterior.from_members(networks, model=Mixed, x=X)
    single = [torch.tensor(part).float() if part.dtype == np.float64 else torch.tensor(part) for part in X.values()]
    for k, network in enumerate(networks):
        torch.testing.assert_close(posterior.predict(X).answers[k, 0], network(*single).detach(), rtol=1e-5, atol=1e-5)


def test_a_frozen_body_of_one_input_beside_others(monkeypatch):
    body = nn.Conv2d(1, 2, 3).requires_grad_(False)

    class OnBody(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wide, self.convolve, self.last = Wide(), body, nn.Linear(8, 1)

        def forward(self, numbers, codes, image, is_new):
            h = self.wide(numbers, codes) + self.last(self.convolve(image).flatten(1))
            return h * torch.where(is_new, 0.5, 1.0).unsqueeze(1)

    posterior = marginalised(OnBody)
    network = posterior.networks[""]
    assert set(network.shared) == {"inner.convolve.weight", "inner.convolve.bias"}
    assert network.head is not None
    assert network.head.probe_rows.shape[1:] == (3 + 2 + 8 + 1,)
    monkeypatch.setattr("wherefrom.training.network.Network._divided", lambda *_: (None, None))
    torch.testing.assert_close(answers(posterior), answers(marginalised(OnBody)), rtol=1e-5, atol=1e-4)


REFUSED = [
    ({**X, "codes": CODES[:9]}, r"x\['codes'\] has 9 rows but x\['image'\] has 70"),
    ({**X, "codes": CODES + 2**25}, r"x\['codes'\] holds whole numbers as large as 33,554,4.*from 0 on"),
    ({**X, "numbers": np.where(NUMBERS > 9, np.nan, NUMBERS)}, r"x\['numbers'\] has \d+ missing or infinite values"),
    ({**X, "numbers": 1.0}, r"x\['numbers'\] is a single number"),
    ({1: NUMBERS, 2: CODES}, "called by names"),
    ({"numbers": NUMBERS}, "cannot be run on rows of shape"),
    ({}, "x holds no inputs"),
]


@pytest.mark.parametrize(("x", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_what_cannot_be_right_is_refused(x, message):
    with pytest.raises(ValueError, match=message):
        marginalised(x=x)


OTHERS = [
    (NUMBERS, "trained on 4 inputs: give x as a dictionary of 'codes', 'image'"),
    ({"numbers": NUMBERS}, "x has other inputs than in training"),
    ({**X, "image": IMAGE[:, :, :2]}, r"a row of x\['image'\] has shape \(1, 2, 4\), but .* \(1, 4, 4\)"),
    ({**X, "codes": CODES + 0.5}, r"whole numbers in x\['codes'\], which now holds real ones"),
    (tuple(X.values()), "x has other inputs than in training"),
]


@pytest.mark.parametrize(("x", "message"), OTHERS, ids=[message for _, message in OTHERS])
def test_other_inputs_than_in_training_are_refused(x, message):
    with pytest.raises(ValueError, match=message):
        marginalised(over=[]).predict(x)


def test_rows_with_other_inputs_are_refused():
    posterior = marginalised(over=[])
    with pytest.raises(ValueError, match=r"x has other inputs than in training: then .* now one"):
        posterior.calibrated("variance", (np.ones((ROWS, 22)), Y))
    with pytest.raises(ValueError, match="x has other inputs than in training"):
        wf.marginalise(training(Mixed), (X, Y), [], held_out=(tuple(X.values()), Y))


def test_advice_and_the_report(tmp_path):
    posterior = marginalised(over=[wf.InitialCondition(3), wf.Iterations(wf.SWAG(rank=2))])
    assert posterior.advise(X).table().rows
    posterior.report(tmp_path / "report.html", (X, Y + 1))
    assert (tmp_path / "report.html").stat().st_size > 10_000


def test_what_is_of_one_input_is_refused():
    one = marginalised(mlp(3), NUMBERS, over=[])
    with pytest.raises(ValueError, match="trained on one input, but x holds 4"):
        one.predict(X)
    with pytest.raises(ValueError, match="takes a single table"):
        marginalised(wf.MLP([5]))
    with pytest.raises(ValueError, match="standardise speaks of several inputs"):
        wf.marginalise(training(mlp(3), standardise={"numbers": True}), (NUMBERS, Y), [])
    with pytest.raises(ValueError, match="standardise speaks of the inputs"):
        wf.marginalise(training(Mixed, standardise={"numbers": True}), (X, Y), [])
    with pytest.raises(ValueError, match="indices: they cannot be standardised"):
        wf.marginalise(training(Mixed, standardise=dict.fromkeys(X, True)), (X, Y), [])
    with pytest.raises(ValueError, match="pieces are of the columns of a single table"):
        wf.marginalise(training(Mixed, standardise=Pieces()), (X, Y), [])
    with pytest.raises(ValueError, match="augment takes one tensor"):
        wf.marginalise(training(Mixed, augment=lambda x, generator: x), (X, Y), [])
    counts = training(Mixed, likelihood=wf.Counts(exposure=0))
    with pytest.raises(ValueError, match="an exposure is a column of a single table"):
        wf.marginalise(counts, (X, np.ones(ROWS)), [])


def test_the_order_of_names_does_not_matter():
    posterior = marginalised()
    backwards = dict(reversed(X.items()))
    assert torch.equal(answers(posterior, backwards), answers(posterior))
    torch.testing.assert_close(answers(marginalised(x=backwards)), answers(posterior))
    before, after = (posterior.calibrated("variance", (x, Y + 1)).calibration for x in (X, backwards))
    assert before == after
