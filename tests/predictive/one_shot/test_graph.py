"""The network's graph: what tracing can get wrong is found out, or done right; and what its parts share is followed."""

import ast
import gc
import graphlib
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import wherefrom as wf
from conftest import training
from wherefrom.predictive.one_shot import NoRuleError

NEW = np.random.default_rng(11).normal(size=(30, 4))


class Net(nn.Module):
    """Layers for a forward pass that a test writes."""

    def __init__(self, forward=None):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(4, 12), nn.Linear(12, 12), nn.Linear(12, 1)
        self.act = nn.ReLU(inplace=True)
        self.way = forward

    def forward(self, x):
        return self.way(self, x)


def swag(problem, model, members=2, **changes):
    over = [*wf.recipes.multi_swag(members, rank=5)]
    return wf.marginalise(training(model, epochs=20, **changes), problem, over, seed=3, progress=False)


def in_place_layer(net, x):
    h = net.a(x)
    return net.c(h + net.b(net.act(h)))


def as_in_place_layer(net, x):
    h = F.relu(net.a(x))
    return net.c(h + net.b(h))


def in_place_function(net, x):
    h = net.a(x)
    F.relu_(h)
    return net.c(net.b(h))


def as_in_place_function(net, x):
    return net.c(net.b(F.relu(net.a(x))))


def in_place_method(net, x):
    h = net.a(x)
    h.add_(1.0)
    return net.c(F.relu(net.b(h)))


def in_place_operator(net, x):
    h = net.a(x)
    g = h
    h += 1.0
    return net.c(F.relu(net.b(g)))


def in_place_under_a_view(net, x):
    h = net.a(x)
    view = h.view(-1, 12)
    h += 1.0
    return net.c(F.relu(net.b(view)))


def as_in_place_addition(net, x):
    return net.c(F.relu(net.b(net.a(x) + 1.0)))


@pytest.mark.parametrize(
    ("forward", "written_out"),
    [
        (in_place_layer, as_in_place_layer),
        (in_place_function, as_in_place_function),
        (in_place_method, as_in_place_addition),
        (in_place_operator, as_in_place_addition),
    ],
)
def test_what_changes_in_place_is_seen_as_changed(problem, forward, written_out):
    found, expected = (swag(problem, lambda way=way: Net(way)).one_shot(NEW) for way in (forward, written_out))
    assert torch.allclose(found.mean, expected.mean, rtol=1e-4)
    assert torch.allclose(found.std, expected.std, rtol=1e-3)


def test_what_tracing_does_not_see_is_found_out(problem):
    """A view does not follow what changes under it."""
    with pytest.raises(NoRuleError, match="does not give the network's own answers"):
        swag(problem, lambda: Net(in_place_under_a_view)).one_shot(NEW)


class Defaults(Net):
    def forward(self, x, skip=None, scale=0.5):
        h = F.relu(self.a(x)) * scale
        return self.c(h if skip is None else h + skip)


def test_arguments_with_defaults_stand_at_them(problem):
    assert swag(problem, Defaults).check_one_shot(NEW, samples=2000).is_within(0.05)


class Hooked(Net):
    def __init__(self):
        super().__init__(lambda net, x: net.c(F.relu(net.a(x))))
        self.a.register_forward_hook(lambda layer, args, out: 2 * out)


def test_a_layer_with_a_hook_is_refused(problem):
    with pytest.raises(NoRuleError, match="has a hook"):
        swag(problem, Hooked).one_shot(NEW)


class Scaled(nn.Module):
    """A rule for it that is wrong."""

    def forward(self, x):
        return 3 * x


def test_a_rule_that_is_not_the_layers_own_function_is_found_out(problem):
    wf.one_shot.rule(Scaled)(lambda layer, x: x)
    model = lambda: nn.Sequential(nn.Linear(4, 6), Scaled(), nn.Linear(6, 1))  # noqa: E731
    with pytest.raises(NoRuleError, match="does not give the network's own answers"):
        swag(problem, model).one_shot(NEW)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.e, self.c = nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 1)
        self.e.weight = self.b.weight

    def forward(self, x):
        return self.c(F.relu(self.e(F.relu(self.b(F.relu(self.a(x)))))))


def test_tied_weights_are_one(problem):
    """Not known by its second name, it would be missing; the deviations of both places are its own."""
    assert swag(problem, Tied).check_one_shot(NEW, samples=2000).is_within(0.2)


def test_auto_samples_whatever_one_shot_cannot_do(problem):
    weight_norm = nn.utils.parametrizations.weight_norm
    model = lambda: nn.Sequential(weight_norm(nn.Linear(4, 6)), nn.ReLU(), nn.Linear(6, 1))  # noqa: E731
    assert swag(problem, model).predict(NEW, 20, method="auto").method == "monte_carlo"
    certain = wf.marginalise(training(epochs=3), problem, [wf.InitialCondition(2)], progress=False)
    assert certain.predict(NEW, method="auto").method == "monte_carlo"


class WithDropoutInside(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.05)

    def forward(self, x):
        return self.drop(x)


def test_a_rule_that_hides_dropout_is_refused(problem):
    wf.one_shot.rule(WithDropoutInside)(lambda layer, x: x)
    model = lambda: nn.Sequential(nn.Linear(4, 6), WithDropoutInside(), nn.Dropout(0.6), nn.Linear(6, 1))  # noqa: E731
    found = wf.marginalise(training(model, epochs=3), problem, [wf.Dropout()], progress=False)
    with pytest.raises(NoRuleError, match="holds dropout, which the rule hides"):
        found.one_shot(NEW)


def test_an_embedding_that_normalises_itself_is_refused():
    x = np.random.default_rng(0).integers(0, 5, size=(60, 3))
    model = lambda: nn.Sequential(nn.Embedding(5, 4, max_norm=0.5), nn.Flatten(), nn.Linear(12, 1))  # noqa: E731
    found = wf.marginalise(
        training(model, epochs=6, standardise=False), (x, x.sum(1) / 5.0), [wf.Iterations(wf.SWAG(2))], progress=False
    )
    with pytest.raises(NoRuleError, match="max_norm"):
        found.one_shot(x)


# ---------------------------------------------------------------------- what is shared


def test_noise_of_the_inputs_is_shared_by_the_first_layers_units(problem):
    """In the linear regime it is |gradient| times the noise, whatever the width of the network."""
    found = wf.marginalise(
        training(lambda: nn.Sequential(nn.Linear(4, 30), nn.Tanh(), nn.Linear(30, 1)), epochs=30), problem, []
    )
    std = 1e-3
    rows = torch.from_numpy(NEW).float()
    scale, centre = found.scaler.x_std, found.scaler.x_mean
    network, theta = found.network, found.laws()[0].mean

    def answer(x):
        scaled = ((x - centre) / scale).float().unsqueeze(0)
        return network.call(network.layout.views(theta), scaled, (), False)[0, 0] * found.scaler.y_std[0]

    slopes = torch.stack([torch.autograd.functional.jacobian(answer, row.double()) for row in rows])
    expected = slopes.norm(dim=1) * std
    assert torch.allclose(found.one_shot(NEW, x_std=std).std, expected.double(), rtol=2e-3)


def test_whole_channels_that_are_dropped_are_shared_by_their_positions():
    """A mean over positions does not average a channel's mask away."""
    x = torch.randn(80, 2, 5, 5, generator=torch.Generator().manual_seed(0))
    y = x.mean((1, 2, 3))

    def model():
        layers = (
            nn.Conv2d(2, 6, 3),
            nn.ReLU(),
            nn.Dropout2d(0.3),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(6, 1),
        )
        return nn.Sequential(*layers)

    found = wf.marginalise(training(model, epochs=5, standardise=False), (x, y), [wf.Dropout()], progress=False)
    many = found.predict(x[:20], 20_000).std
    assert torch.allclose(found.one_shot(x[:20]).std, many, rtol=0.03)
    assert (found.one_shot(x[:20], covariance="diagonal").std / many).median() < 0.7


# ---------------------------------------------------------------------- threads and memory


def test_threads_with_batch_normalisation(problem):
    model = lambda: nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))  # noqa: E731
    found = swag(problem, model)
    expected = found.one_shot(NEW).std
    wrong = []

    def ask():
        for _ in range(6):
            if not torch.equal(found.one_shot(NEW).std, expected):
                wrong.append(1)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_posterior_that_nobody_needs_is_forgotten(problem):
    found = swag(problem, lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)))
    for _ in range(3):
        found.one_shot(NEW)
    network = weakref.ref(found.network)
    del found
    gc.collect()
    assert network() is None


def test_rank_looks_at_training_rows_where_x_is_not_standardised():
    random = np.random.default_rng(0)
    x = 8 + random.normal(size=(200, 4))
    y = x[:, 0] - x[:, 1]
    model = lambda: nn.Sequential(nn.Linear(4, 20), nn.ReLU(), nn.Linear(20, 1))  # noqa: E731
    found = swag((x, y), model, standardise=False)
    kept = (found.one_shot(x[:30], rank=2).mixture.spread / found.one_shot(x[:30]).mixture.spread).median()
    assert kept > 0.95


def test_rank_must_be_a_number_of_deviations(problem):
    found = swag(problem, lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)))
    for rank in (0, 2.5, True):
        with pytest.raises(ValueError, match="a whole number"):
            found.one_shot(NEW, rank=rank)


# ---------------------------------------------------------------------- imports


def test_the_files_import_each_other_one_way():
    """Imports within functions count as well, and so does one of the package by a file that is in it."""
    root = Path(wf.__file__).parent / "predictive" / "one_shot"
    names = {path: _module(path.relative_to(root.parent.parent.parent)) for path in root.rglob("*.py")}
    graph = {name: _imported(path, set(names.values())) for path, name in names.items()}
    graphlib.TopologicalSorter(graph).prepare()  # raises where there is a cycle


def _module(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def _imported(path: Path, files: set[str]) -> set[str]:
    modules = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            modules |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
        elif isinstance(node, ast.Import):
            modules |= {name.name for name in node.names}
    return modules & files
