"""Which cohorts are trained natively, what is said of the others, and that a wrong gradient is noticed."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import oracle
import wherefrom as wf
from conftest import mlp, training
from wherefrom.losses import CrossEntropy
from wherefrom.training import engines, native
from wherefrom.training.cohort import Collection, Examples
from wherefrom.training.native.plain import NotPlain, Operation, recognise
from wherefrom.training.network import Network

ADAM = wf.Algorithm("adam", lr=0.01, batch_size=25)
TABLE = Examples(torch.randn(90, 4), torch.randn(90, 1))


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


NOT_PLAIN = {
    "residual": (Residual, "add does not take what the operation before it returned"),
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
        recognise(network, TABLE.x)
    with pytest.raises(ValueError, match=f"not a plain MLP: .*{reason}.* Use engine='auto' or 'torch'"):
        wf.marginalise(training(model), problem, [], engine="native")
    monkeypatch.setattr(engines, "_WORTH_COMPILING", 0.0)
    posterior = wf.marginalise(training(model), problem, [])
    assert posterior.mixture[0].trained.engine == "torch"


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
    assert native.obstacle(cohort, oracle.CPU) is None
    assert "not on meta" in native.obstacle(cohort, torch.device("meta"))
    double = Examples(TABLE.x.double(), TABLE.y.double())
    assert "single precision" in native.obstacle(oracle.cohort_of(mlp(), double, ADAM), oracle.CPU)
    absolute = oracle.cohort_of(mlp(), TABLE, ADAM, loss=lambda f, y, weights=None: (f - y).abs().mean((-2, -1)))
    assert "does not know the loss" in native.obstacle(absolute, oracle.CPU)


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

    cohort = oracle.cohort_of(mlp(), TABLE, ADAM, collection=Collection(Last(), 1, 1, 36))
    assert "does not know how to collect" in native.obstacle(cohort, oracle.CPU)
    assert engines.engines_for([cohort], oracle.CPU, "auto", print)[0].name == "torch"


def test_without_numba_everything_goes_the_torch_way(problem, monkeypatch):
    monkeypatch.setattr(native.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(engines, "_WORTH_COMPILING", 0.0)
    assert wf.marginalise(training(), problem, []).mixture[0].trained.engine == "torch"
    with pytest.raises(ValueError, match=r"numba is not installed: pip install 'wherefrom\[fast\]'"):
        wf.marginalise(training(), problem, [], engine="native")


def test_an_engine_that_is_not_there(problem):
    with pytest.raises(ValueError, match="engine must be one of 'auto', 'torch', 'native', not 'jax'"):
        wf.marginalise(training(), problem, [], engine="jax")


def test_auto_weighs_the_work():
    """A moment of training is not worth a compilation; the paper's study of one set is."""
    short = oracle.cohort_of(mlp(8, 50), Examples(torch.randn(900, 8), torch.randn(900, 1)), ADAM, 5, epochs=2)
    assert engines.engines_for([short], oracle.CPU, "auto", print)[0].name == "torch"
    long = oracle.cohort_of(mlp(8, 50), Examples(torch.randn(900, 8), torch.randn(900, 1)), ADAM, 100, epochs=400)
    assert engines.torch_seconds(long) > 10 * engines._WORTH_COMPILING
    assert engines.engines_for([long], oracle.CPU, "auto", print)[0].name == "native"


def test_a_wrong_gradient_is_noticed(monkeypatch):
    """If the kernel took a leaky ReLU for a plain one, it would say so instead of training something else."""
    from wherefrom.training.native import packing

    def leaky() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 12), nn.LeakyReLU(0.3), nn.Linear(12, 1))

    cohort = oracle.cohort_of(leaky, TABLE, ADAM)
    monkeypatch.setitem(packing.KINDS, "leaky_relu", packing.KINDS["relu"])
    with pytest.raises(RuntimeError, match=r"gradient is \d.*% away from torch's .* engine='torch'"):
        engines.engines_for([cohort], oracle.CPU, "native", print)
    monkeypatch.setattr(engines, "_WORTH_COMPILING", 0.0)
    with pytest.warns(UserWarning, match="Going on with torch"):
        assert engines.engines_for([cohort], oracle.CPU, "auto", print)[0].name == "torch"


def test_classes_that_the_model_does_not_have(monkeypatch):
    table = Examples(TABLE.x, torch.randint(5, (90, 1)).float())
    table.y[3] = 4
    cohort = oracle.cohort_of(mlp(outputs=3), table, ADAM, loss=CrossEntropy())
    with pytest.raises(ValueError, match="classes up to 4, but the model has 3 outputs"):
        engines.engines_for([cohort], oracle.CPU, "native", print)


def test_a_run_from_a_file_remembers_its_engine(problem, tmp_path):
    posterior = wf.marginalise(training(), problem, wf.recipes.multi_swag(2), engine="native")
    posterior.save(tmp_path)
    loaded = wf.load(tmp_path, mlp())
    assert {component.trained.engine for component in loaded.mixture} == {"native"}
    more = loaded.extend(problem, theta0=1)
    again = wf.marginalise(training(), problem, wf.recipes.multi_swag(3), engine="native")
    assert torch.equal(more.mixture[2].trained.last, again.mixture[2].trained.last)
