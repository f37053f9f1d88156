"""What every engine must do: the options of a training against members trained one by one, and the framework on top."""

import copy
import itertools
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import oracle
import wherefrom as wf
from conftest import mlp, training
from wherefrom.training import engines, streams
from wherefrom.training.cohort import Cohort, Collection, Examples, Trained, orders
from wherefrom.training.compute import Compute
from wherefrom.training.losses import (
    CrossEntropy,
    GaussianNLL,
    HurdleError,
    HurdleNLL,
    NegativeBinomialNLL,
    OrdinalNLL,
    Pinball,
    PoissonNLL,
    SquaredError,
    StudentError,
    StudentNLL,
)
from wherefrom.training.negative_binomial import PredictedDispersionNLL, ZeroInflatedNLL
from wherefrom.training.survival import LogLogisticNLL, LogNormalNLL, WeibullNLL
from wherefrom.training.torch_engine import TorchEngine

try:
    from wherefrom.training.native import engine as native_engine
except ImportError:  # no numba: the native half is skipped
    native_engine = None

ON_BOTH_ENGINES = True

ROWS, BATCH, EPOCHS = 90, 25, 9  # four steps an epoch, the last one short: 36 steps
ADAM = wf.Algorithm("adam", lr=0.01, batch_size=BATCH)
# Adam divides by the size of the gradient, and so makes rounding visible where that is next to nothing.
SGD = wf.Algorithm("sgd", lr=0.05, batch_size=BATCH, momentum=0.9)


def trained(posterior: wf.Posterior) -> list[Trained]:
    return [component.trained for component in posterior.mixture]


def last(posterior: wf.Posterior) -> list[torch.Tensor]:
    return [component.trained.last for component in posterior.mixture]


def examples(
    outputs: int = 1,
    classes: int = 0,
    weighted: bool = False,
    inputs: int = 4,
    absent: float = 0.0,
    counts: int = 0,
    times: bool = False,
) -> Examples:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(ROWS, inputs, generator=generator)
    mix = torch.randn(inputs, max(outputs, classes, counts), generator=generator)
    y = torch.tanh(x @ mix) + 0.1 * torch.randn(ROWS, max(outputs, classes, counts), generator=generator)
    weights = 2 * torch.rand(ROWS, generator=generator) if weighted else None
    y = torch.where(torch.rand(y.shape, generator=generator) < absent, -math.inf, y) if absent else y
    if counts:
        y = torch.poisson(2 * y.exp(), generator=generator) / 2
    if times:  # log time, whether the event was seen, log entry; a third is cut off, and half entered late
        is_event, entered = (torch.rand(ROWS, generator=generator) < share for share in (0.67, 0.5))
        entry = torch.where(entered, y[:, 0] - 0.1 - torch.rand(ROWS, generator=generator), -700.0)
        y = torch.stack([y[:, 0], is_event.float(), entry], 1)
    return Examples(x, y.argmax(1, keepdim=True).float() if classes else y, weights)


def assert_trained_as_alone(model, cohort: Cohort, engine: str, tolerance: float = 1e-5) -> None:
    """Every member ends where it would have ended, had it been trained by hand."""
    for member, trained in zip(cohort.members, oracle.train(cohort, engine), strict=True):
        expected = oracle.trained_alone(model, cohort, member)
        assert (expected - member.theta0).abs().max() > 0.01, "nothing was learnt, so nothing is tested"
        torch.testing.assert_close(trained.last, expected, rtol=0, atol=tolerance)


class Written(nn.Module):
    """A module as people write them: functions, a reshape, an answer without its last dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(4, 17), nn.Linear(17, 33, bias=False), nn.Linear(33, 1)
        self.drop = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.first(x.view(len(x), -1)))
        x = F.dropout(torch.tanh(self.second(x)), 0.2, self.training)
        return self.third(self.drop(x)).squeeze(-1)


def between(*layers: nn.Module) -> list[nn.Module]:
    return [nn.Linear(4, 20), *layers, nn.Linear(20, 1)]


MODELS = {
    "relu": lambda: between(nn.ReLU()),
    "leaky relu": lambda: between(nn.LeakyReLU(0.2)),
    "tanh": lambda: between(nn.Tanh()),
    "silu": lambda: between(nn.SiLU()),
    "gelu": lambda: between(nn.GELU()),
    "gelu by tanh": lambda: between(nn.GELU(approximate="tanh")),
    "softplus": lambda: between(nn.Softplus()),
    "sharp softplus": lambda: between(nn.Softplus(beta=3.0)),
    "identity": lambda: between(nn.Identity()),
    "in place": lambda: between(nn.ReLU(inplace=True)),
    "dropout after": lambda: between(nn.ReLU(), nn.Dropout(0.3)),
    "dropout before": lambda: between(nn.Dropout(0.3), nn.ReLU()),
    "dropout after tanh": lambda: between(nn.Tanh(), nn.Dropout(0.3)),
    "dropout alone": lambda: between(nn.Dropout(0.3)),
    "dropout twice": lambda: between(nn.ReLU(), nn.Dropout(0.3), nn.Dropout(0.1)),
    "dropout on the inputs": lambda: [nn.Dropout(0.2), *between(nn.ReLU())],
    "dropout on the outputs": lambda: [*between(nn.ReLU()), nn.Dropout(0.2)],
    "dropout of rate 0": lambda: between(nn.ReLU(), nn.Dropout(0.0)),
    "softplus everywhere": lambda: [nn.Softplus(), *between(nn.Softplus()), nn.Softplus()],
    "two activations": lambda: between(nn.Tanh(), nn.Dropout(0.1), nn.SiLU()),
    "one layer": lambda: [nn.Linear(4, 1)],
    "one layer, softplus": lambda: [nn.Softplus(), nn.Linear(4, 1), nn.Dropout(0.1)],
    "two layers, no activation": lambda: between(),
    "no bias": lambda: [nn.Linear(4, 20, bias=False), nn.ReLU(), nn.Linear(20, 1, bias=False)],
    "one unit": lambda: [nn.Linear(4, 1), nn.Tanh(), nn.Linear(1, 1)],
    "exact vectors": lambda: [nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1)],
    "narrow and wide": lambda: [
        nn.Linear(4, 70),
        nn.ReLU(),
        nn.Dropout(0.1),
        nn.Linear(70, 3, bias=False),
        nn.SiLU(),
        nn.Linear(3, 40),
        nn.GELU(),
        nn.Linear(40, 1),
    ],
    "five layers": lambda: [
        nn.Linear(4, 30),
        *(layer for _ in range(3) for layer in (nn.ReLU(), nn.Dropout(0.05), nn.Linear(30, 30))),
        nn.Tanh(),
        nn.Linear(30, 1),
    ],
    "written": lambda: [Written()],
}


@pytest.mark.slow
@pytest.mark.parametrize("layers", MODELS.values(), ids=MODELS)
def test_models(layers, engine):
    """A new activation is one more row here."""

    def model() -> nn.Module:
        return nn.Sequential(*layers())

    cohort = oracle.cohort_of(model, examples(), SGD, epochs=EPOCHS)
    assert_trained_as_alone(model, cohort, engine)


ALGORITHMS = [
    wf.Algorithm("sgd", lr=0.1, batch_size=BATCH),
    wf.Algorithm("sgd", lr=0.1, batch_size=BATCH, weight_decay=0.01),
    wf.Algorithm("sgd", lr=0.03, batch_size=BATCH, momentum=0.9, weight_decay=0.01),
    wf.Algorithm("sgd", lr=0.03, batch_size=BATCH, momentum=0.9, nesterov=True, weight_decay=0.01),
    wf.Algorithm("adam", lr=0.01, batch_size=BATCH),
    wf.Algorithm("adam", lr=0.01, batch_size=BATCH, weight_decay=0.1, betas=(0.8, 0.95), eps=1e-3),
    wf.Algorithm("adam", lr=0.01, batch_size=BATCH, betas=(0.0, 0.0), eps=1e-3),
    wf.Algorithm("adamw", lr=0.01, batch_size=BATCH),
    wf.Algorithm("adamw", lr=0.01, batch_size=BATCH, weight_decay=0.5, betas=(0.7, 0.9)),
    wf.Algorithm("sgld", lr=0.1, batch_size=BATCH, temperature=0.1),
    wf.Algorithm("sgld", lr=0.003, batch_size=BATCH, temperature=0.01, weight_decay=0.1, preconditioned=True, eps=0.1),
    wf.Algorithm("sghmc", lr=0.03, batch_size=BATCH, temperature=0.1, weight_decay=0.01),
    wf.Algorithm("sghmc", lr=0.001, batch_size=BATCH, temperature=0.01, momentum=0.5, preconditioned=True, eps=0.1),
    wf.Algorithm("sghmc", lr=0.03, batch_size=BATCH, temperature=0.0),
    wf.Algorithm("ivon", lr=0.05, batch_size=BATCH, temperature=0.01, hess_init=0.5, beta2=0.99, weight_decay=0.01),
    wf.Algorithm("ivon", lr=0.05, batch_size=BATCH, temperature=0.1, betas=(0.8, 0.9999), clip_radius=0.1, clip=2.0),
]


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=repr)
def test_algorithms(algorithm, engine):
    cohort = oracle.cohort_of(mlp(hidden=20), examples(), algorithm, epochs=EPOCHS)
    assert_trained_as_alone(mlp(hidden=20), cohort, engine)


def test_adam_without_eps(engine):
    """Where no gradient is ever zero it is allowed; the kernel's padding, where all are, must not notice."""

    def model() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 20), nn.Tanh(), nn.Linear(20, 1, bias=False))

    algorithm = wf.Algorithm("adam", lr=0.001, batch_size=BATCH, eps=0.0)
    cohort = oracle.cohort_of(model, examples(), algorithm, epochs=EPOCHS)
    assert_trained_as_alone(model, cohort, engine)


LOSSES = {
    "squared error": (SquaredError(), dict(outputs=1), 1),
    "of several outputs": (SquaredError(), dict(outputs=5), 5),
    "gaussian": (GaussianNLL(), dict(outputs=1), 2),
    "gaussian of several": (GaussianNLL(), dict(outputs=3), 6),
    "cross-entropy": (CrossEntropy(), dict(classes=3), 3),
    "smoothed": (CrossEntropy(label_smoothing=0.1), dict(classes=7), 7),
    "of many classes": (CrossEntropy(), dict(classes=20), 20),
    "student error": (StudentError(0.5), dict(outputs=3), 3),
    "student": (StudentNLL(3.0), dict(outputs=1), 2),
    "student of several": (StudentNLL(), dict(outputs=3), 6),
    "hurdle error": (HurdleError(), dict(outputs=2, absent=0.3), 4),
    "hurdle": (HurdleNLL(), dict(outputs=2, absent=0.3), 6),
    "poisson": (PoissonNLL(), dict(counts=1), 1),
    "poisson of several": (PoissonNLL(), dict(counts=3), 3),
    "negative binomial": (NegativeBinomialNLL((0.7,)), dict(counts=1), 1),
    "negative binomial of several": (NegativeBinomialNLL((0.7, 3.0)), dict(counts=2), 2),
    "dispersion": (PredictedDispersionNLL((2.0,)), dict(counts=1), 2),
    "dispersion of several": (PredictedDispersionNLL((2.0, 90.0)), dict(counts=2), 4),
    "inflated": (ZeroInflatedNLL((2.0,), (0.7,)), dict(counts=1), 2),
    "inflated poisson": (ZeroInflatedNLL((2.0, 3.0), (0.0, 0.0)), dict(counts=2), 4),
    "inflated, dispersion": (ZeroInflatedNLL((2.0, 90.0), ()), dict(counts=2), 6),
    "two levels": (OrdinalNLL(), dict(classes=2), 1),
    "levels": (OrdinalNLL(), dict(classes=5), 4),
    "many levels": (OrdinalNLL(), dict(classes=12), 11),
    "a quantile": (Pinball((0.3,), ()), dict(outputs=1), 1),
    "quantiles": (Pinball((0.05, 0.3, 0.5, 0.95), (2.0, 0.7, 1.5)), dict(outputs=1), 4),
    "weibull": (WeibullNLL((0.7,)), dict(times=True), 1),
    "weibull, its scale predicted": (WeibullNLL(), dict(times=True), 2),
    "log-normal": (LogNormalNLL((0.7,)), dict(times=True), 1),
    "log-normal, its scale predicted": (LogNormalNLL(), dict(times=True), 2),
    "log-logistic": (LogLogisticNLL((0.7,)), dict(times=True), 1),
    "log-logistic, its scale predicted": (LogLogisticNLL(), dict(times=True), 2),
}


@pytest.mark.slow
@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
@pytest.mark.parametrize(("loss", "data", "outputs"), LOSSES.values(), ids=LOSSES)
def test_losses(loss, data, outputs, weighted, engine):
    """A new loss is one more row here."""
    model = mlp(hidden=20, outputs=outputs)
    cohort = oracle.cohort_of(model, examples(**data, weighted=weighted), SGD, epochs=EPOCHS, loss=loss)
    assert_trained_as_alone(model, cohort, engine)


@pytest.mark.parametrize("start", [-100.0, -20.0, 20.0, 100.0])  # e^100 is infinite in single precision
def test_predicted_variances_are_bounded_and_come_back(start, engine):
    """From beyond the bounds, where the gradient is that of the bound and still points somewhere."""

    def model() -> nn.Module:
        made = mlp(hidden=20, outputs=2)()
        with torch.no_grad():
            made[-1].weight[1] = 0.0
            made[-1].bias[1] = start
        return made

    algorithm = wf.Algorithm("adam", lr=0.01, batch_size=BATCH)
    cohort = oracle.cohort_of(model, examples(), algorithm, loss=GaussianNLL(), epochs=EPOCHS)
    assert_trained_as_alone(model, cohort, engine)


def test_the_gaussian_loss_is_that_of_the_bounded_variance(engine):
    outputs = torch.tensor([[0.5, -50.0], [0.5, 0.3], [0.5, 50.0]], dtype=torch.float64, requires_grad=True)
    y = torch.zeros(3, 1, dtype=torch.float64)
    bounded = torch.tensor([-math.log(1e6), 0.3, math.log(1e6)], dtype=torch.float64)
    expected = 0.5 * (bounded + 0.25 * torch.exp(-bounded))
    torch.testing.assert_close(GaussianNLL()(outputs, y), expected.mean())
    (slope,) = torch.autograd.grad(GaussianNLL()(outputs, y), outputs)
    torch.testing.assert_close(slope[:, 1], 0.5 * (1 - 0.25 * torch.exp(-bounded)) / 3)


def test_cross_entropy_is_torchs(engine):
    outputs, y = torch.randn(30, 5), torch.randint(5, (30, 1))
    weights = torch.rand(30)
    for smoothing in (0.0, 0.2):
        each = F.cross_entropy(outputs, y[:, 0], reduction="none", label_smoothing=smoothing)
        loss = CrossEntropy(label_smoothing=smoothing)
        torch.testing.assert_close(loss(outputs, y), each.mean())
        torch.testing.assert_close(loss(outputs, y, weights), (weights * each).mean())


@pytest.mark.parametrize("batch_size", [1, 3, 7, 16, 17, 89, 90])
def test_batch_sizes(batch_size, engine):
    """Batches of one row, of whole and broken vectors, and of all rows."""
    algorithm = wf.Algorithm("sgd", lr=0.05, batch_size=batch_size)
    epochs = max(1, 36 * batch_size // ROWS)
    cohort = oracle.cohort_of(mlp(hidden=20), examples(), algorithm, members=2, epochs=epochs)
    assert_trained_as_alone(mlp(hidden=20), cohort, engine)


@pytest.mark.parametrize("inputs", [1, 15, 16, 17, 40])
def test_numbers_of_inputs(inputs, engine):
    model = mlp(inputs, hidden=20)
    cohort = oracle.cohort_of(model, examples(inputs=inputs), ADAM, members=2, epochs=EPOCHS)
    assert_trained_as_alone(model, cohort, engine)


def test_members_of_one_cohort_differ_in_everything(engine):
    """Learning rate and its schedule, decay, betas, dropout: each member its own."""
    cohort = oracle.cohort_of(
        mlp(hidden=20),
        examples(),
        ADAM,
        members=4,
        epochs=EPOCHS,
        settings={
            "lr": [0.003, 0.01, 0.02, 0.01],
            "weight_decay": [0.0, 0.1, 0.01, 0.0],
            "beta1": [0.9, 0.5, 0.0, 0.95],
            "beta2": [0.999, 0.99, 0.9, 0.95],
            "eps": [1e-8, 1e-4, 1e-6, 1e-8],
        },
        rates=[(0.0,), (0.05,), (0.3,), (0.6,)],
        schedule=[None, lambda t: 1 - t, lambda t: np.where(t < 0.5, 1.0, 0.1), lambda t: np.cos(np.pi * t / 2)],
    )
    assert_trained_as_alone(mlp(hidden=20), cohort, engine)
    momentum = oracle.cohort_of(
        mlp(hidden=20),
        examples(),
        wf.Algorithm("sgd", lr=0.03, batch_size=BATCH),
        members=3,
        epochs=EPOCHS,
        settings={"momentum": [0.0, 0.5, 0.9], "nesterov": [0.0, 1.0, 0.0]},
    )
    assert_trained_as_alone(mlp(hidden=20), momentum, engine)


def test_clipped_gradients(engine):
    """Each member its own limit, or none: torch.nn.utils.clip_grad_norm_ in a loop by hand."""
    cohort = oracle.cohort_of(mlp(hidden=20), examples(), SGD, 4, EPOCHS, settings={"clip": [0.05, math.inf, 0.2, 1e9]})
    for member, result in zip(cohort.members, oracle.train(cohort, engine), strict=True):
        expected = oracle.trained_alone(mlp(hidden=20), cohort, member)
        torch.testing.assert_close(result.last, expected, rtol=0, atol=1e-5)
    free = oracle.cohort_of(mlp(hidden=20), examples(), SGD, 4, EPOCHS)
    moved = [
        (a.last - b.last).abs().max()
        for a, b in zip(oracle.train(free, engine), oracle.train(cohort, engine), strict=True)
    ]
    assert moved[0] > 0.01
    assert moved[1] == moved[3] == 0


@pytest.mark.parametrize("batch_size", [1, 25, 90])
def test_batches_with_replacement(batch_size, engine):
    """Beside members whose epochs visit every row once, from the same streams."""
    algorithm = wf.Algorithm("sgd", lr=0.02, batch_size=batch_size)
    cohort = oracle.cohort_of(
        mlp(hidden=20),
        examples(),
        algorithm,
        4,
        max(1, 36 * batch_size // ROWS),
        replacement=[True, False, True, False],
    )
    results = oracle.train(cohort, engine)
    for member, result in zip(cohort.members, results, strict=True):
        torch.testing.assert_close(result.last, oracle.trained_alone(mlp(hidden=20), cohort, member), rtol=0, atol=1e-5)
    without = replace(cohort, members=tuple(replace(m, replacement=False) for m in cohort.members))
    for k, (a, b) in enumerate(zip(results, oracle.train(without, engine), strict=True)):
        assert torch.equal(a.last, b.last) == (k % 2 == 1)


def test_rows_drawn_with_replacement_are_uniform(engine):
    """How often each row is drawn, and how many different ones there are in an epoch, within 4 standard errors."""
    keys = np.array([streams.key(0, "order", k) for k in range(200)], dtype=np.uint64)
    drawn = np.stack([orders(keys, np.ones(200, dtype=bool), epoch, 30) for epoch in range(20)])
    assert drawn.min() == 0
    assert drawn.max() == 29
    counts = np.bincount(drawn.ravel(), minlength=30)
    chi_square = ((counts - drawn.size / 30) ** 2 / (drawn.size / 30)).sum()
    assert abs(chi_square - 29) < 4 * math.sqrt(2 * 29)
    different = np.array([len(np.unique(one)) for one in drawn.reshape(-1, 30)])
    assert different.mean() == pytest.approx(30 * (1 - (29 / 30) ** 30), abs=4 * different.std() / math.sqrt(4000))
    pairs = drawn[..., 1:] * 30 + drawn[..., :-1]
    both = np.bincount(pairs.ravel(), minlength=900)
    expected = pairs.size / 900
    assert abs(((both - expected) ** 2 / expected).sum() - 899) < 4 * math.sqrt(2 * 899)


def test_members_of_one_cohort_have_rows_of_their_own(engine):
    tables = (examples(), Examples(examples().x.flip(1), 2 * examples().y, 2 * torch.rand(ROWS)))
    cohort = oracle.cohort_of(mlp(hidden=20), tables[0], ADAM, members=4, epochs=EPOCHS)
    members = tuple(replace(member, table=k % 2) for k, member in enumerate(cohort.members))
    cohort = Cohort(cohort.network, "adam", BATCH, EPOCHS, SquaredError(), members, tables, None)
    assert_trained_as_alone(mlp(hidden=20), cohort, engine)


@pytest.mark.parametrize("model", ["relu", "five layers", "gelu", "softplus everywhere"])
def test_members_do_not_depend_on_groups_workers_or_calls(model, engine, monkeypatch):
    def make() -> nn.Module:
        return nn.Sequential(*MODELS[model]())

    collection = Collection(wf.SWAG(rank=3), range(12, 37, 4))
    cohort = oracle.cohort_of(make, examples(), ADAM, members=7, epochs=EPOCHS, collection=collection)
    reference = oracle.train(cohort, engine)

    def assert_the_same(results, members) -> None:
        oracle.assert_same_members(results, [reference[k] for k in members])

    assert_the_same(oracle.train(cohort, engine, threads=2), range(7))
    kind = native_engine.NativeEngine if engine == "native" else TorchEngine
    for bounds in ([0, 3, 7], [0, 1, 2, 5, 7]):
        groups = [range(a, b) for a, b in itertools.pairwise(bounds)]
        with monkeypatch.context() as patch:
            patch.setattr(kind, "groups", lambda *_, groups=groups: groups)
            assert_the_same(oracle.train(cohort, engine, threads=2), range(7))
    alone = Cohort(cohort.network, "adam", BATCH, EPOCHS, cohort.loss, cohort.members[4:5], cohort.tables, collection)
    assert_the_same(oracle.train(alone, engine), [4])
    if engine == "native":
        monkeypatch.setattr(native_engine, "_CALL_SECONDS", 0.0)  # one epoch to a call
        assert_the_same(oracle.train(cohort, engine), range(7))


def test_both_engines_train_the_same_member(engine):
    """Thirty-six steps with dropout and SWAG from the same streams, and the laws that they leave."""
    collection = Collection(wf.SWAG(rank=5), (12, 13, 17, 18, 25, 36))
    model = mlp(hidden=50, rate=0.05)
    cohort = oracle.cohort_of(model, examples(), ADAM, epochs=EPOCHS, collection=collection)
    for a, b in zip(oracle.train(cohort, engine), oracle.train(cohort, "torch"), strict=True):
        torch.testing.assert_close(a.last, b.last, rtol=0, atol=1e-5)
        torch.testing.assert_close(a.losses, b.losses, rtol=1e-5, atol=1e-6)
        for name, tensor in a.law.tensors().items():
            torch.testing.assert_close(tensor, b.law.tensors()[name], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "law", [wf.SWAG(rank=0), wf.SWAG(rank=4), wf.SWAG(rank=50), wf.Snapshots(keep=5), wf.TRADI(0.5)], ids=repr
)
@pytest.mark.parametrize(
    "steps", [range(1, 37), range(4, 37, 4), range(20, 37, 3), (1, 2, 4, 8, 16, 32), (5, 36)], ids=str
)
def test_laws_are_collected_along_the_way(law, steps, engine, monkeypatch):
    """Against the iterates themselves, each from a training that ends there; natively in calls of an epoch or more."""
    cohort = oracle.cohort_of(mlp(), examples(), ADAM, members=2, epochs=EPOCHS, collection=Collection(law, steps))
    if engine == "native" and len(steps) % 2:
        monkeypatch.setattr(native_engine, "_CALL_SECONDS", 0.0)  # one epoch to a call
    trained = oracle.train(cohort, engine)
    every_step = oracle.cohort_of(
        mlp(), examples(), ADAM, members=2, epochs=EPOCHS, collection=Collection(wf.Snapshots(keep=36), range(1, 37))
    )
    for result, whole in zip(trained, oracle.train(every_step, engine), strict=True):
        iterates = whole.law.points[[step - 1 for step in steps]].double()
        collector = law.collector(iterates[:1], len(iterates))
        for iterate in iterates:
            collector.collect(iterate[None])
        for name, tensor in collector.laws()[0].tensors().items():
            torch.testing.assert_close(result.law.tensors()[name].double(), tensor, rtol=1e-4, atol=1e-6)


def test_the_last_short_batch_can_be_left_out(engine):
    """A loop as anybody would write it, over batches of which torch's own sampler drops the last; with masks."""
    model = mlp(hidden=20, rate=0.1)
    collection = Collection(wf.Snapshots(keep=2), (13, 27))
    whole = oracle.cohort_of(model, examples(weighted=True), SGD, epochs=EPOCHS, collection=collection)
    cohort = replace(whole, drop_last=True)
    batches = list(torch.utils.data.BatchSampler(range(ROWS), BATCH, drop_last=True))
    assert cohort.steps_per_epoch == len(batches) == 3
    assert cohort.batch_sizes == (BATCH,)
    assert replace(cohort, batch_size=30).steps_per_epoch == 3
    assert_trained_as_alone(model, cohort, engine)
    for result, kept in zip(oracle.train(cohort, engine), oracle.train(whole, engine), strict=True):
        torch.testing.assert_close(result.law.points[-1], result.last, rtol=0, atol=0)  # 27 steps, and no more
        assert not torch.allclose(result.last, kept.last, atol=1e-3)


def test_without_the_short_batch_losses_are_means_of_the_others(engine):
    """At a learning rate of zero: the mean loss of the rows in whole batches, epoch by epoch."""
    cohort = replace(oracle.cohort_of(mlp(rate=0.0), examples(), SGD.but(lr=0.0), epochs=EPOCHS), drop_last=True)
    x, y, _ = cohort.tables[0]
    for member, result in zip(cohort.members, oracle.train(cohort, engine), strict=True):
        network = cohort.network
        errors = (network.call(network.layout.views(member.theta0), x, (), False) - y).square()[:, 0]
        for epoch, loss in enumerate(result.losses):
            order = orders(np.array([member.order], dtype=np.uint64), np.array([False]), epoch, ROWS)[0]
            assert loss == pytest.approx(float(errors[order[:75].copy()].mean()), rel=1e-5)


def test_short_batches_are_left_out_for_those_that_ask(engine, problem):
    """A setting like others: drawn, stored, and together with batch sizes that leave none over."""
    over = [wf.Hyperparameters(drop_last=[False, True], batch_size=[25, 30])]
    found = wf.marginalise(training(), problem, over)
    assert [c.algorithm.drop_last for c in found.mixture] == [False, False, True, True]
    thetas = last(found)
    assert not torch.allclose(thetas[0], thetas[2])
    torch.testing.assert_close(thetas[1], thetas[3], rtol=0, atol=1e-5)  # 90 rows are three batches of 30
    alone = training(algorithm=training().algorithm.but(drop_last=True))
    assert repr(alone.algorithm) == "Algorithm('adam', lr=0.02, batch_size=25, drop_last=True)"
    torch.testing.assert_close(last(wf.marginalise(alone, problem, []))[0], thetas[2], rtol=0, atol=1e-5)
    large = training(algorithm=wf.Algorithm("adam", lr=0.02, batch_size=500, drop_last=True))  # one batch of all rows
    whole = training(algorithm=wf.Algorithm("adam", lr=0.02, batch_size=90))
    assert torch.equal(*(last(wf.marginalise(one, problem, []))[0] for one in (large, whole)))
    with pytest.raises(TypeError, match="drop_last must be True or False"):
        wf.Algorithm("adam", lr=0.02, batch_size=25, drop_last="yes")


def test_one_that_diverges_leaves_the_others_alone(engine):
    cohort = oracle.cohort_of(
        mlp(), examples(), wf.Algorithm("sgd", lr=0.1, batch_size=BATCH), epochs=EPOCHS,
        settings={"lr": [0.1, 1e20, 0.1]},
    )  # fmt: skip
    trained = oracle.train(cohort, engine)
    assert [one.diverged for one in trained] == [None, 0, None]
    for member, one in zip(cohort.members, trained, strict=True):
        if one.diverged is None:
            torch.testing.assert_close(one.last, oracle.trained_alone(mlp(), cohort, member), rtol=0, atol=1e-5)
        assert one.seconds > 0


def test_torchs_generator_is_left_alone(problem):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    wf.marginalise(training(), problem, wf.recipes.deep_ensemble(2))
    assert torch.equal(torch.rand(3), expected)


def test_two_threads_train_at_once(problem, engine):
    """Of one posterior, which shares its network, and each the same as alone."""
    few = wf.marginalise(training(epochs=20), problem, wf.recipes.multi_swag(2), engine=engine)
    alone = last(few.extend(theta0=3))
    with ThreadPoolExecutor(4) as pool:
        for together in pool.map(lambda _: last(few.extend(theta0=3)), range(8)):
            assert all(map(torch.equal, together, alone))


def test_progress_counts_every_epoch_of_every_member(engine):
    for lr in (0.1, 1e20):  # also where all diverge
        algorithm = wf.Algorithm("sgd", lr=lr, batch_size=BATCH)
        cohort = oracle.cohort_of(mlp(), examples(), algorithm, members=5, epochs=EPOCHS)
        heard: list[int] = []
        Compute(workers=2, engine=engine).train([cohort], heard.append)
        assert sum(heard) == 5 * EPOCHS


def test_an_error_in_one_group_stops_the_others(engine, monkeypatch):
    kind = native_engine.NativeEngine if engine == "native" else TorchEngine
    monkeypatch.setattr(kind, "groups", lambda *_: [range(2), range(2, 4)])
    if engine == "native":
        monkeypatch.setattr(native_engine, "_CALL_SECONDS", 0.0)
    cohort = oracle.cohort_of(mlp(), examples(), ADAM, members=4, epochs=100_000)
    heard = 0

    def fail(done: int) -> None:
        nonlocal heard
        heard += done
        if heard > 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Compute(workers=2, engine=engine).train([cohort], fail)
    assert heard < 10_000


def test_extend_uses_the_same_engine(problem, engine, monkeypatch):
    few = wf.marginalise(training(), problem, wf.recipes.multi_swag(2))
    assert few.engines == (engine,)
    monkeypatch.setattr(engines, "_WORTH_COMPILING", float("inf") if engine == "native" else 0.0)
    more = few.extend(theta0=2)
    assert more.engines == (engine,)
    pytest.importorskip("numba", reason="the native engine needs numba: pip install 'wherefrom[fast]'")
    other = few.extend(theta0=1, engine="torch" if engine == "native" else "native")
    assert other.engines == ("native", "torch")


@pytest.mark.parametrize("model", [mlp(), lambda: nn.Sequential(*MODELS["five layers"]())])
def test_a_member_is_the_same_alone_in_cohorts_and_extended(model, problem):
    short = training(model, epochs=15)
    many = wf.marginalise(short, problem, wf.recipes.deep_ensemble(7), seed=3)
    two_workers = wf.marginalise(short, problem, wf.recipes.deep_ensemble(7), seed=3, workers=2)
    few = wf.marginalise(short, problem, wf.recipes.deep_ensemble(2), seed=3)
    alone = wf.marginalise(short, problem, [], seed=3)
    for other in (two_workers, few.extend(theta0=5), few, alone):
        oracle.assert_same_members(trained(many)[: len(other)], trained(other))


def test_members_differ_in_settings_within_one_cohort(problem):
    """Two learning rates together equal each of them alone."""
    both = wf.marginalise(training(), problem, [wf.Hyperparameters(lr=[0.01, 0.03])])
    for k, lr in enumerate((0.01, 0.03)):
        alone = wf.marginalise(training(algorithm=wf.Algorithm("adam", lr=lr, batch_size=25)), problem, [])
        oracle.assert_same_members(trained(both)[k : k + 1], trained(alone))


def test_batch_sizes_split_cohorts(problem):
    both = wf.marginalise(training(), problem, [wf.Hyperparameters(batch_size=[10, 90])])
    for k, size in enumerate((10, 90)):
        alone = wf.marginalise(training(algorithm=wf.Algorithm("adam", lr=0.02, batch_size=size)), problem, [])
        assert torch.equal(last(both)[k], last(alone)[0])


def test_a_batch_larger_than_the_data_is_all_of_it(problem):
    large, exact = (
        wf.marginalise(training(algorithm=wf.Algorithm("adam", lr=0.02, batch_size=size)), problem, [])
        for size in (1000, 90)
    )
    assert torch.equal(last(large)[0], last(exact)[0])


def test_folds_are_members(problem):
    """Fold k of one cohort is what marginalise gives on its rows alone, with seed + k."""
    x, y = problem
    folds = [np.arange(0, 60), np.arange(20, 80), np.arange(30, 85)]  # the last one has fewer rows
    together = wf.marginalise_folds(training(), problem, folds, wf.recipes.multi_swag(2), seed=5)
    for k, rows in enumerate(folds):
        alone = wf.marginalise(training(), (x[rows], y[rows]), wf.recipes.multi_swag(2), seed=5 + k)
        oracle.assert_same_members(trained(together[k]), trained(alone))


def test_the_users_module_is_never_touched(problem):
    made: list[nn.Module] = []

    def factory() -> nn.Module:
        made.append(mlp()())
        return made[-1]

    posterior = wf.marginalise(training(factory), problem, wf.recipes.deep_ensemble(3))
    states = [copy.deepcopy(m.state_dict()) for m in made]
    posterior.predict(problem[0])
    for module, state in zip(made, states, strict=True):
        for name, tensor in module.state_dict().items():
            assert torch.equal(tensor, state[name])


@pytest.mark.parametrize(
    "layer", [lambda: nn.LeakyReLU(float(torch.rand(()))), lambda: nn.Dropout(float(torch.rand(())))]
)
def test_a_factory_that_draws_more_than_weights_is_refused(layer, problem):
    """All members would have the slope, or the rate, of the first one."""

    def factory() -> nn.Module:
        first, last = nn.Linear(4, 8), nn.Linear(8, 1)
        return nn.Sequential(first, layer(), last)

    with pytest.raises(ValueError, match="more drawn than initial weights"):
        wf.marginalise(training(factory), problem, [wf.InitialCondition(3)])


def test_a_factory_that_draws_a_hidden_number_is_refused(problem):
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 1)
            self.scale = float(torch.rand(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.scale * self.layer(x)

    with pytest.raises(ValueError, match="more drawn than initial weights"):
        wf.marginalise(training(Scaled), problem, [wf.InitialCondition(3)])


def test_divergence_names_the_member_and_keeps_the_others(problem):
    over = [wf.Hyperparameters(points=[dict(lr=0.01), dict(lr=1e12)]), wf.Iterations(wf.SWAG(rank=2))]
    wild = training(algorithm=wf.Algorithm("sgd", lr=0.01, batch_size=25))
    with pytest.raises(wf.DivergedError, match=r"1 of 2 members diverged: h 1 \(epoch 0, .*lr=1e\+12") as caught:
        wf.marginalise(wild, problem, over)
    kept = wf.marginalise(wild, problem, over, on_divergence="keep")
    for posterior in (caught.value.posterior, kept):
        assert len(posterior) == 1
        assert torch.isfinite(posterior.predict(problem[0]).mean).all()
        with pytest.raises(ValueError, match="every member of the crossed design"):
            posterior.predict(problem[0]).sources()


def test_when_all_diverge_training_stops_at_once(problem):
    wild = training(algorithm=wf.Algorithm("sgd", lr=1e12, batch_size=25), epochs=10_000)
    with pytest.raises(wf.DivergedError, match=r"2 of 2.* scale the data$") as caught:
        wf.marginalise(wild, problem, wf.recipes.deep_ensemble(2))
    assert caught.value.posterior is None


@pytest.mark.parametrize("workers", [0, -1])
def test_no_workers(problem, workers):
    with pytest.raises(ValueError, match="workers must be at least 1"):
        wf.marginalise(training(), problem, [], workers=workers)
