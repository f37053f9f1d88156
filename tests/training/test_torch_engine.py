"""The torch engine against members trained alone, and against a loop written by hand with torch.optim."""

import itertools

import pytest
import torch
from torch import nn

import oracle
import wherefrom as wf
from conftest import mlp, training
from oracle import train, trained_alone
from wherefrom.training import program, workers
from wherefrom.training.cohort import Cohort, Examples
from wherefrom.training.compute import Compute
from wherefrom.training.torch_engine import TorchEngine


class Convolution(nn.Module):
    """A small network with a convolution, channel dropout and ordinary dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Conv1d(1, 6, 3, padding=1)
        self.drop_channels = nn.Dropout1d(0.2)
        self.head = nn.Linear(6 * 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.drop_channels(torch.tanh(self.features(x.unsqueeze(1))))
        return self.head(nn.functional.dropout(h.flatten(1), 0.1, self.training))


class Normalised(nn.Module):
    """Batch normalisation: its running statistics belong to the member."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(4, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 1)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


MODELS = {"mlp": mlp(), "convolution": Convolution, "batch norm": Normalised}
ALGORITHMS = {
    "sgd": wf.Algorithm("sgd", lr=0.05, batch_size=25, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": wf.Algorithm("adam", lr=0.01, batch_size=25),
    "adamw": wf.Algorithm("adamw", lr=0.01, batch_size=25, weight_decay=0.1),
}
EPOCHS = 15  # of 4 steps: 60 steps


def last(posterior: wf.Posterior) -> list[torch.Tensor]:
    return [component.trained.last for component in posterior.mixture]


@pytest.fixture
def data(problem) -> Examples:
    x, y = problem
    return Examples(torch.as_tensor(x), torch.as_tensor((y - y.mean()) / y.std())[:, None])


def cohort_of(model, data: Examples, members: int, algorithm: wf.Algorithm, dtype=torch.float32) -> Cohort:
    examples = Examples(data.x.to(dtype), data.y.to(dtype))
    return oracle.cohort_of(model, examples, algorithm, members, EPOCHS)


@pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=ALGORITHMS)
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_equals_a_loop_written_by_hand(model, algorithm, data):
    cohort = cohort_of(model, data, 3, algorithm, torch.float64)
    trained = train(cohort, "torch")
    for member, result in zip(cohort.members, trained, strict=True):
        torch.testing.assert_close(result.last, trained_alone(model, cohort, member), rtol=0, atol=1e-9)


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_single_precision_equals_the_loop_to_1e_5(model, data):
    cohort = cohort_of(model, data, 3, ALGORITHMS["sgd"])
    trained = train(cohort, "torch")
    for member, result in zip(cohort.members, trained, strict=True):
        torch.testing.assert_close(result.last, trained_alone(model, cohort, member), rtol=0, atol=1e-5)


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_a_member_is_the_same_alone_in_cohorts_and_on_workers(model, problem):
    short = training(model, epochs=EPOCHS)
    many = wf.marginalise(short, problem, wf.recipes.deep_ensemble(7), seed=3)
    two_workers = wf.marginalise(short, problem, wf.recipes.deep_ensemble(7), seed=3, workers=2)
    few = wf.marginalise(short, problem, wf.recipes.deep_ensemble(2), seed=3)
    alone = wf.marginalise(short, problem, [], seed=3)
    extended = few.extend(theta0=5)
    for other in (two_workers, extended, few, alone):
        ours = [component.trained for component in many.mixture[: len(other)]]
        oracle.assert_same_members(ours, [component.trained for component in other.mixture])


def test_groups_change_nothing(data, monkeypatch):
    """Whatever the groups, members come back in their places."""
    cohort = cohort_of(mlp(), data, 9, ALGORITHMS["adam"])
    reference = train(cohort, "torch", threads=2)
    for bounds in ([0, 4, 9], [0, 1, 2, 5, 9]):
        groups = [range(a, b) for a, b in itertools.pairwise(bounds)]
        monkeypatch.setattr(TorchEngine, "groups", lambda *_, groups=groups: groups)
        trained = train(cohort, "torch", threads=2)
        oracle.assert_same_members(trained, reference)


def test_recorded_and_called_steps_are_the_same(data, monkeypatch):
    results = []
    for record in (program.record, program.called):
        monkeypatch.setattr(program, "record", record)
        for model in MODELS.values():
            cohort = cohort_of(model, data, 4, ALGORITHMS["adam"])
            trained = train(cohort, "torch", threads=2)
            results.append(torch.stack([t.last for t in trained]))
    for a, b in zip(results[:3], results[3:], strict=True):
        assert torch.equal(a, b)


def test_double_precision(problem):
    posterior = wf.marginalise(training(), problem, wf.recipes.multi_swag(2), dtype=torch.float64)
    single = wf.marginalise(training(), problem, wf.recipes.multi_swag(2))
    assert last(posterior)[0].dtype == torch.float64
    torch.testing.assert_close(last(posterior)[0].float(), last(single)[0], rtol=0, atol=1e-4)


def test_a_model_that_vmap_cannot_run_trains_one_at_a_time(problem):
    class LooksAtItsNumbers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out = self.layer(x)
            return out if out.sum() > 0 else 2 * out

    posterior = wf.marginalise(training(LooksAtItsNumbers), problem, wf.recipes.deep_ensemble(3))
    assert not posterior.network.stackable
    assert posterior.predict(problem[0]).mean.shape == (90,)


def test_a_lone_row_for_batch_norm_is_named(problem):
    x, y = problem
    with pytest.raises(ValueError, match=r"batches of 25 leave a batch of one row of 76.*drop_last=True\)"):
        wf.marginalise(training(Normalised), (x[:76], y[:76]), [])
    dropping = training(Normalised, algorithm=training().algorithm.but(drop_last=True))
    assert len(wf.marginalise(dropping, (x[:76], y[:76]), [wf.InitialCondition(2)])) == 2
    with pytest.raises(ValueError, match=r"batches of 1 leave a batch of one row.*choose another batch size$"):
        wf.marginalise(training(Normalised, algorithm=dropping.algorithm.but(batch_size=1)), (x, y), [])


def test_a_lone_row_says_that_others_are_held_out(problem):
    x, y = problem
    setup = training(Normalised, algorithm=ALGORITHMS["adam"].but(batch_size=10), likelihood=wf.Regression("fit"))
    with pytest.raises(ValueError, match=r"one row of 81 \(9 of 90 rows are held out to fit the noise\)"):
        wf.marginalise(setup, (x, y), [])


def test_progress_counts_every_epoch_of_every_member(data):
    cohort = cohort_of(mlp(), data, 5, ALGORITHMS["adam"])
    heard: list[int] = []
    Compute(workers=2).train([cohort], heard.append)
    assert sum(heard) == 5 * EPOCHS


def test_tiny_numbers_are_zero_while_training_and_not_after():
    """On every thread, and whatever the caller had chosen."""

    def half_of_the_smallest(_: int) -> float:
        return float(torch.tensor(2.0**-126) * 0.5)

    for chosen in (False, True):
        torch.set_flush_denormal(chosen)
        try:
            assert workers.on_threads(half_of_the_smallest, [0], 1) == [0.0]
            assert workers.on_threads(half_of_the_smallest, [0, 1], 2) == [0.0, 0.0]
            assert (half_of_the_smallest(0) == 0) is chosen
        finally:
            torch.set_flush_denormal(False)
