"""Which cohorts are trained natively, what is said of the others, and that a wrong gradient is noticed."""

import sys
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

pytest.importorskip("numba", reason="the native engine needs numba: pip install 'wherefrom[fast]'")

import oracle
import wherefrom as wf
from conftest import mlp, training
from wherefrom.training import engines, native, torch_engine
from wherefrom.training.cohort import Cohort, Collection, Examples
from wherefrom.training.losses import CrossEntropy, SquaredError
from wherefrom.training.native import codes, engine
from wherefrom.training.native.plain import NotPlain, Operation, recognise
from wherefrom.training.network import Network

ADAM = wf.Algorithm("adam", lr=0.01, batch_size=25)
RANDOM = torch.Generator().manual_seed(0)
TABLE = Examples(torch.randn(90, 4, generator=RANDOM), torch.randn(90, 1, generator=RANDOM))


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(x + F.relu(self.layer(x)))


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(F.relu(self.layer(F.relu(self.layer(x)))))


class Forgetful(Residual):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        early = self.head(x)
        self.layer(early.expand(-1, 4))
        return early


class Detached(Residual):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(F.relu(self.layer(x)).detach())


def frozen() -> nn.Module:
    network = mlp()()
    network[0].weight.requires_grad_(False)
    return network


class Branching(Residual):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.layer(x)
        return self.head(F.relu(h) if h.tolist()[0][0] > 0.3 else torch.tanh(h))


class ByRows(Residual):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.layer(x)
        return self.head(F.relu(h) if len(x) == 15 else torch.tanh(h))


class WithoutGradient(Residual):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            h = F.relu(self.layer(x))
        return self.head(h)


class AsksForGradient(Residual):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.layer(x)
        return self.head(F.relu(h) if h.requires_grad else h)


class Vector(Residual):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.ParameterList([torch.randn(4)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(F.relu(self.layer(x)), self.head[0])


def hooked() -> nn.Module:
    network = mlp()()
    network[1].register_full_backward_hook(lambda module, given, grad: tuple(g.clamp(-0.05, 0.05) for g in given))
    return network


NOT_PLAIN = {
    "a look at the numbers": (Branching, "it calls tolist"),
    "other numbers of rows": (ByRows, "other numbers of rows"),
    "no gradient": (WithoutGradient, "keeps no gradient|it calls _set_grad_enabled"),
    "a question about gradients": (AsksForGradient, "requires_grad"),
    "a vector of weights": (Vector, "1 dimensions"),
    "a hook": (hooked, "hooks"),
    "residual": (Residual, "add works on something else than what the operation before it returned"),
    "a layer used twice": (Twice, "used twice"),
    "an answer from before": (Forgetful, "it calls expand"),
    "detached": (Detached, "it calls detach"),
    "frozen": (frozen, "frozen parameters"),
    "batch norm": (lambda: nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 1)), "buffers"),
    "layer norm": (lambda: nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3), nn.Linear(3, 1)), "it calls layer_norm"),
    "elu": (lambda: nn.Sequential(nn.Linear(4, 3), nn.ELU(), nn.Linear(3, 1)), "it calls elu"),
    "early threshold": (lambda: nn.Sequential(nn.Linear(4, 1), nn.Softplus(threshold=2)), "threshold=2"),
}


@pytest.mark.parametrize(("model", "reason"), NOT_PLAIN.values(), ids=NOT_PLAIN)
def test_what_is_not_a_plain_mlp_goes_the_torch_way(model, reason, problem, monkeypatch):
    network = Network(model(), TABLE.x[:4])
    with pytest.raises(NotPlain, match=reason):
        recognise(network, TABLE.x, (25, 15))
    with pytest.raises(ValueError, match=f"not a plain MLP: .*{reason}.* Use engine='auto' or 'torch'"):
        wf.marginalise(training(model), problem, [], engine="native")
    monkeypatch.setattr(engines, "_WORTH_COMPILING", 0.0)
    posterior = wf.marginalise(training(model), problem, [])
    assert posterior.engines == ("torch",)


def test_what_a_plain_mlp_is():
    model = nn.Sequential(
        nn.Dropout(0.1),
        nn.Linear(4, 7),
        nn.LeakyReLU(0.3),
        nn.Dropout(0.2),
        nn.Linear(7, 2, bias=False),
        nn.Softplus(2.0),
    )
    mlp = recognise(Network(model, TABLE.x[:4]), TABLE.x)
    assert mlp.widths == (4, 7, 2)
    assert mlp.weights == ("1.weight", "4.weight")
    assert mlp.biases == ("1.bias", None)
    assert mlp.operations == (
        (Operation("dropout", site=0),),
        (Operation("leaky_relu", 0.3), Operation("dropout", site=1)),
        (Operation("softplus", 2.0),),
    )


def test_obstacles_are_named():
    cohort = oracle.cohort_of(mlp(), TABLE, ADAM)
    assert native.examine(cohort, oracle.CPU).widths == (4, 12, 1)

    def refused(reason: str, cohort: Cohort, device: torch.device = oracle.CPU) -> None:
        with pytest.raises(native.Obstacle, match=reason):
            native.examine(cohort, device)

    refused("not on meta", cohort, torch.device("meta"))
    refused("single precision", oracle.cohort_of(mlp(), Examples(TABLE.x.double(), TABLE.y.double()), ADAM))

    class Absolute(SquaredError):
        def __call__(self, outputs, y, weights=None):
            return (outputs - y).abs().mean((-2, -1))

    for name in ("nadam", "radam", "adamax", "rmsprop", "adagrad", "adadelta", "lion"):
        other = wf.Algorithm(name, lr=0.01, batch_size=25)
        refused(f"does not know the optimiser {name!r}", oracle.cohort_of(mlp(), TABLE, other))
        assert chosen(oracle.cohort_of(mlp(), TABLE, other, epochs=900)) == "torch"
    refused("its adam does not know amsgrad", oracle.cohort_of(mlp(), TABLE, ADAM.but(amsgrad=True)))
    damped = wf.Algorithm("sgd", lr=0.01, batch_size=25, momentum=0.9, dampening=0.1)
    refused("its sgd does not know dampening", oracle.cohort_of(mlp(), TABLE, damped))
    one_of_three = oracle.cohort_of(mlp(), TABLE, ADAM, settings={"amsgrad": [0.0, 1.0, 0.0]})
    refused("its adam does not know amsgrad", one_of_three)

    refused("does not know the loss", oracle.cohort_of(mlp(), TABLE, ADAM, loss=Absolute()))


def test_a_law_with_a_collector_of_its_own_goes_the_torch_way():
    class Last:
        fewest = 1

        def collector(self, theta, iterations):
            class Collector:
                def collect(self, theta):
                    self.theta = theta.clone()

                def laws(self):
                    return [wf.laws.delta(one) for one in self.theta]

            return Collector()

    cohort = oracle.cohort_of(mlp(), TABLE, ADAM, epochs=900, collection=Collection(Last(), range(1, 37)))
    with pytest.raises(native.Obstacle, match="does not know how to collect"):
        native.examine(cohort, oracle.CPU)
    assert chosen(cohort) == "torch"


def chosen(cohort: Cohort) -> str:
    return engines.engine_for(cohort, oracle.CPU, "auto", print).name


def test_without_numba_everything_goes_the_torch_way(problem, monkeypatch):
    monkeypatch.setattr(native.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(engines, "_WORTH_COMPILING", 0.0)
    assert wf.marginalise(training(), problem, []).engines == ("torch",)
    with pytest.raises(ValueError, match=r"numba is not installed: pip install 'wherefrom\[fast\]'"):
        wf.marginalise(training(), problem, [], engine="native")


def test_an_engine_that_is_not_there(problem):
    with pytest.raises(ValueError, match="engine must be one of 'auto', 'fastest', 'torch', 'native', not 'jax'"):
        wf.marginalise(training(), problem, [], engine="jax")


def test_auto_weighs_the_work_of_one_member():
    """A moment of training is not worth a compilation, the paper's is; the number of members makes no difference."""
    table = Examples(torch.randn(900, 8), torch.randn(900, 1))
    for members in (1, 12):
        assert chosen(oracle.cohort_of(mlp(8, 50), table, ADAM, members, epochs=2)) == "torch"
        assert chosen(oracle.cohort_of(mlp(8, 50), table, ADAM, members, epochs=400)) == "native"


def test_a_broken_numba_does_no_harm(problem, monkeypatch):
    """One that is there and cannot be imported, as after an upgrade of numpy."""
    monkeypatch.setattr(engines, "_WORTH_COMPILING", 0.0)
    monkeypatch.setitem(sys.modules, "wherefrom.training.native.engine", None)
    with pytest.warns(UserWarning, match="going on with torch, since the native engine cannot be used"):
        assert wf.marginalise(training(), problem, []).engines == ("torch",)
    with pytest.raises(ImportError):
        wf.marginalise(training(), problem, [], engine="native")


def test_a_model_that_casts_its_inputs(problem):
    class Casts(Residual):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(F.relu(self.layer(x.float())))

    assert wf.marginalise(training(Casts), problem, [], engine="native").engines == ("native",)


def test_a_compiler_that_is_switched_off(problem, monkeypatch):
    import numba

    monkeypatch.setattr(numba.config, "DISABLE_JIT", 1)
    with pytest.raises(RuntimeError, match="switched off by NUMBA_DISABLE_JIT"):
        wf.marginalise(training(), problem, [], engine="native")


def test_a_wrong_gradient_is_noticed(monkeypatch):
    """If the kernel took a leaky ReLU for a plain one, it would say so instead of training something else."""

    def leaky() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 12), nn.LeakyReLU(0.3), nn.Linear(12, 1))

    cohort = oracle.cohort_of(leaky, TABLE, ADAM)
    monkeypatch.setitem(codes.OPERATIONS, "leaky_relu", codes.RELU)
    monkeypatch.setattr(engine, "_REHEARSED", set())  # another test may have rehearsed such a network
    with pytest.raises(RuntimeError, match=r"gradient is \d.*% away from torch's"):
        engines.engine_for(cohort, oracle.CPU, "native", print)
    monkeypatch.setattr(engines, "_WORTH_COMPILING", 0.0)
    with pytest.warns(UserWarning, match="going on with torch"):
        assert chosen(cohort) == "torch"


class Forward(nn.Sequential):
    """Layers in a forward pass that somebody wrote."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self[1](F.relu(self[0](x)))


@pytest.mark.parametrize(
    ("model", "rehearsals"),
    [
        (lambda: nn.Sequential(nn.Linear(4, 7), nn.ReLU(), nn.Linear(7, 1)), 1),
        (lambda: Forward(nn.Linear(4, 7), nn.Linear(7, 1)), 2),
    ],
)
def test_the_same_stack_of_layers_is_rehearsed_once(model, rehearsals, monkeypatch):
    monkeypatch.setattr(engine, "_REHEARSED", set())
    gradient, calls = torch_engine.gradient, []

    def spied(cohort: Cohort, dtype: torch.dtype) -> torch.Tensor:
        calls.append((cohort.rows, dtype))
        return gradient(cohort, dtype)

    monkeypatch.setattr(torch_engine, "gradient", spied)
    for _ in range(2):
        engines.engine_for(oracle.cohort_of(model, TABLE, ADAM), oracle.CPU, "native", print)
    assert len(calls) == rehearsals * len(set(calls))
    assert {dtype for _, dtype in calls} == {torch.float32, torch.float64}


@pytest.mark.parametrize("scale", [1.0, 1e3])
def test_the_rehearsal_knows_rounding_from_a_defect(scale):
    """At the least-squares solution the gradient is all cancellation, in torch as in the kernel."""
    x = scale * TABLE.x
    solution = torch.linalg.lstsq(torch.cat([x, torch.ones(90, 1)], 1), TABLE.y).solution

    def model() -> nn.Module:
        network = nn.Sequential(nn.Linear(4, 1))
        network[0].weight.data, network[0].bias.data = solution[:4].T.clone(), solution[4].clone()
        return network

    cohort = oracle.cohort_of(model, Examples(x, TABLE.y), ADAM, members=1)
    assert engines.engine_for(cohort, oracle.CPU, "native", print).name == "native"


def test_sizes_are_checked_before_the_kernel_runs():
    def refused(reason: str, cohort: Cohort) -> None:
        with pytest.raises(ValueError, match=reason):
            engines.engine_for(cohort, oracle.CPU, "native", print)

    classes = Examples(TABLE.x, torch.randint(5, (90, 1)).float())
    classes.y[3] = 4
    refused("class numbers from 0 to 2.* to 4", oracle.cohort_of(mlp(outputs=3), classes, ADAM, loss=CrossEntropy()))
    halves = Examples(TABLE.x, torch.full((90, 1), 1.5))
    refused("class numbers", oracle.cohort_of(mlp(outputs=3), halves, ADAM, loss=CrossEntropy()))
    refused(r"y of \(90, 1\).* \(90, 3\)", oracle.cohort_of(mlp(outputs=3), TABLE, ADAM))
    refused("40 weights for 90 rows", oracle.cohort_of(mlp(), TABLE._replace(weights=torch.ones(40)), ADAM))
    cohort = oracle.cohort_of(mlp(), TABLE, ADAM)
    refused("table 5", replace(cohort, members=(replace(cohort.members[0], table=5),)))


def test_a_run_from_a_file_remembers_its_engine(problem, tmp_path):
    posterior = wf.marginalise(training(), problem, wf.recipes.multi_swag(2), engine="native")
    posterior.save(tmp_path)
    loaded = wf.load(tmp_path, mlp())
    assert loaded.engines == ("native",)
    more = loaded.extend(problem, theta0=1)
    again = wf.marginalise(training(), problem, wf.recipes.multi_swag(3), engine="native")
    assert torch.equal(more.mixture[2].trained.last, again.mixture[2].trained.last)
