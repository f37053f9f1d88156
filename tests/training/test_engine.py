"""The cohort engine against members trained alone, and against a loop written by hand with torch.optim."""

import copy
import itertools

import numpy as np
import pytest
import torch
from torch import nn

import wherefrom as wf
from conftest import mlp, training
from wherefrom.training import program, streams, workers
from wherefrom.training.cohort import Cohort, Examples, Member, Trained
from wherefrom.training.dropout import TrainingMasks
from wherefrom.training.network import Network


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


def cohort_of(model, data, members: int, algorithm: wf.Algorithm, dtype=torch.float32) -> Cohort:
    x, y = (torch.as_tensor(a, dtype=dtype) for a in data)
    y = y[:, None]
    torch.manual_seed(0)
    networks = [model().to(dtype) for _ in range(members)]
    network = Network(networks[0], x[:4])
    made = tuple(
        Member(network.theta(n), algorithm.settings, streams.key(0, "order", k), streams.key(0, "masks", k), 0)
        for k, n in enumerate(networks)
    )
    return Cohort(network, algorithm.name, 25, EPOCHS, wf.Regression().loss, made, (Examples(x, y),), None)


def train(cohort: Cohort, threads: int, engine: str = "torch") -> list[Trained]:
    return workers.train_cohorts([cohort], torch.device("cpu"), threads, lambda _: None, engine)[0]


def by_hand(model, cohort: Cohort, member: Member, algorithm: wf.Algorithm) -> torch.Tensor:
    """The same training as anybody would write it: a module, torch.optim, batches one by one, explicit masks."""
    x, y, _ = cohort.tables[0]
    network = model().to(x.dtype).train()
    with torch.no_grad():
        own = dict(network.named_parameters()) | dict(network.named_buffers())
        for name, tensor in cohort.network.layout.views(member.theta0).items():
            own[name].copy_(tensor)
    settings = dict(algorithm.settings)
    if algorithm.name == "sgd":
        settings["nesterov"] = bool(settings["nesterov"])
        optimiser = torch.optim.SGD(network.parameters(), **settings)
    else:
        betas = (settings.pop("beta1"), settings.pop("beta2"))
        kind = torch.optim.Adam if algorithm.name == "adam" else torch.optim.AdamW
        optimiser = kind(network.parameters(), betas=betas, **settings)

    masks = [
        TrainingMasks(
            site, [site.rate], np.array([streams.key(member.masks, "site", i)], dtype=np.uint64), 25, x.device, x.dtype
        )
        for i, site in enumerate(cohort.network.sites)
    ]
    given: list[torch.Tensor] = []
    real = (nn.functional.dropout, nn.functional.dropout1d)
    nn.functional.dropout = nn.functional.dropout1d = lambda h, *args, **kwargs: h * given.pop(0)
    try:
        step = 0
        for epoch in range(cohort.epochs):
            order = streams.permutations(np.array([member.order], dtype=np.uint64), epoch, len(x))[0]
            for index in range(cohort.steps_per_epoch):
                batch = torch.from_numpy(order[25 * index : 25 * index + 25].copy())
                given[:] = [mask.drop(step)[0, : len(batch)].clone() for mask in masks]
                optimiser.zero_grad()
                nn.functional.mse_loss(network(x[batch]), y[batch]).backward()
                optimiser.step()
                for mask in masks:
                    mask.restore()
                step += 1
    finally:
        nn.functional.dropout, nn.functional.dropout1d = real
    return cohort.network.theta(network)


@pytest.fixture
def data(problem):
    x, y = problem
    return x, (y - y.mean()) / y.std()


@pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=ALGORITHMS)
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_equals_a_loop_written_by_hand(model, algorithm, data):
    cohort = cohort_of(model, data, 3, algorithm, torch.float64)
    trained = train(cohort, 1)
    for member, result in zip(cohort.members, trained, strict=True):
        torch.testing.assert_close(result.last, by_hand(model, cohort, member, algorithm), rtol=0, atol=1e-9)


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_single_precision_equals_the_loop_to_1e_5(model, data):
    cohort = cohort_of(model, data, 3, ALGORITHMS["sgd"])
    trained = train(cohort, 1)
    for member, result in zip(cohort.members, trained, strict=True):
        torch.testing.assert_close(result.last, by_hand(model, cohort, member, ALGORITHMS["sgd"]), rtol=0, atol=1e-5)


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_a_member_is_the_same_alone_in_cohorts_and_on_workers(model, problem):
    short = training(model, epochs=EPOCHS)
    many = wf.marginalise(short, problem, wf.recipes.deep_ensemble(7), seed=3)
    two_workers = wf.marginalise(short, problem, wf.recipes.deep_ensemble(7), seed=3, workers=2)
    few = wf.marginalise(short, problem, wf.recipes.deep_ensemble(2), seed=3)
    alone = wf.marginalise(short, problem, [], seed=3)
    extended = few.extend(theta0=5)
    # torch's batch normalisation rounds differently in batches of other sizes; its products do not.
    tolerance = 1e-5 if model is Normalised else 0.0
    pairs = [(k, other[k]) for other in (last(two_workers), last(extended)) for k in range(7)]
    for k, other in [*pairs, (0, last(few)[0]), (0, last(alone)[0])]:
        torch.testing.assert_close(last(many)[k], other, rtol=0, atol=tolerance)


def test_groups_change_nothing(data, monkeypatch):
    """Whatever the groups, members come back in their places with the same bits."""
    cohort = cohort_of(mlp(), data, 9, ALGORITHMS["adam"])
    reference = train(cohort, 2)
    for bounds in ([0, 4, 9], [0, 1, 2, 5, 9]):
        groups = [workers.Group(0, range(a, b)) for a, b in itertools.pairwise(bounds)]
        monkeypatch.setattr(workers, "_groups", lambda *_, groups=groups: iter(groups))
        trained = train(cohort, 2)
        for a, b in zip(reference, trained, strict=True):
            assert torch.equal(a.last, b.last)


def test_recorded_and_called_steps_are_the_same(data, monkeypatch):
    results = []
    for record in (program.record, program.called):
        monkeypatch.setattr(program, "record", record)
        for model in MODELS.values():
            cohort = cohort_of(model, data, 4, ALGORITHMS["adam"])
            trained = train(cohort, 2)
            results.append(torch.stack([t.last for t in trained]))
    for a, b in zip(results[:3], results[3:], strict=True):
        assert torch.equal(a, b)


def test_members_differ_in_settings_within_one_cohort(problem):
    """Two learning rates together equal each of them alone."""
    both = wf.marginalise(training(), problem, [wf.Hyperparameters(lr=[0.01, 0.03])])
    for k, lr in enumerate((0.01, 0.03)):
        alone = wf.marginalise(training(algorithm=wf.Algorithm("adam", lr=lr, batch_size=25)), problem, [])
        assert torch.equal(last(both)[k], last(alone)[0])


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
        for a, b in zip(together[k].mixture, alone.mixture, strict=True):
            assert torch.equal(a.trained.last, b.trained.last)
            assert torch.equal(a.trained.law.mean, b.trained.law.mean)


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
    with pytest.raises(wf.DivergedError, match="2 of 2") as caught:
        wf.marginalise(wild, problem, wf.recipes.deep_ensemble(2))
    assert caught.value.posterior is None


def test_a_lone_row_for_batch_norm_is_named(problem):
    x, y = problem
    with pytest.raises(ValueError, match="batches of 25 leave a batch of one row of 76"):
        wf.marginalise(training(Normalised), (x[:76], y[:76]), [])


@pytest.mark.parametrize("workers", [0, -1])
def test_no_workers(problem, workers):
    with pytest.raises(ValueError, match="workers must be at least 1"):
        wf.marginalise(training(), problem, [], workers=workers)


def test_progress_counts_every_epoch_of_every_member(data):
    cohort = cohort_of(mlp(), data, 5, ALGORITHMS["adam"])
    heard: list[int] = []
    workers.train_cohorts([cohort], torch.device("cpu"), 2, heard.append)
    assert sum(heard) == 5 * EPOCHS
