"""Frozen parameters: the same in all members, outside of theta, and equal to a plain loop."""

import copy

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import wherefrom as wf
from conftest import training
from wherefrom.files.folders import Run
from wherefrom.training import streams
from wherefrom.training.cohort import orders
from wherefrom.variables import glorot_uniform

SEED, EPOCHS, BATCH = 3, 5, 20


def pretrained(batch_norm: bool = False) -> nn.Module:
    """A body whose numbers are not a new network's."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(11)
        layers = [nn.Linear(4, 6), *([nn.BatchNorm1d(6)] if batch_norm else []), nn.Tanh(), nn.Dropout(0.3)]
        body = nn.Sequential(*layers, nn.Linear(6, 5))
        if batch_norm:
            body.train()(torch.randn(50, 4) * 2 + 1)
    return body.requires_grad_(False)


class OnBody(nn.Module):
    """A trained part before and after the body, so that features cannot be computed once."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.before, self.body, self.after = nn.Linear(4, 4), body, nn.Linear(5, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.after(self.body(self.before(x)))


@pytest.fixture
def data(problem):
    x, y = problem
    return torch.tensor(x), torch.tensor((y - y.mean()) / y.std())


def plain_loop(make, data, draw: int, eval_parts=()) -> nn.Module:
    """One member as anybody would train it: the whole module, torch's Adam on what is trained, batches one by one."""
    x, y = data
    with streams.torch_seeded(SEED, "theta0", draw):
        network = make().double()
    network.train()
    for name in eval_parts:
        network.get_submodule(name).eval()
    optimiser = torch.optim.Adam([p for p in network.parameters() if p.requires_grad], lr=0.02)
    key = np.array([streams.key(SEED, "order", 0)], dtype=np.uint64)
    for epoch in range(EPOCHS):
        order = torch.from_numpy(orders(key, np.array([False]), epoch, len(y))[0])
        for rows in order.split(BATCH):
            optimiser.zero_grad()
            (network(x[rows])[:, 0] - y[rows]).square().mean().backward()
            optimiser.step()
    return network.eval()


def ours(make, over, data, **others) -> wf.Posterior:
    point = wf.Training(make, wf.Algorithm("adam", lr=0.02, batch_size=BATCH), EPOCHS, standardise=False)
    return wf.marginalise(point, data, over, SEED, dtype=torch.float64, **others)


@pytest.mark.parametrize("batch_norm", [False, True])
def test_members_equal_a_plain_loop(batch_norm, data):
    body = pretrained(batch_norm).eval()
    before = copy.deepcopy(body.state_dict())
    posterior = ours(lambda: OnBody(body), [wf.InitialCondition(3)], data)
    answers = posterior.predict(data[0]).answers
    for draw in range(3):
        expected = plain_loop(lambda: OnBody(body), data, draw, ["body"])(data[0])
        torch.testing.assert_close(answers[draw, 0], expected.detach(), rtol=0, atol=1e-10)
    for name, tensor in body.state_dict().items():
        torch.testing.assert_close(tensor, before[name].to(tensor.dtype), rtol=0, atol=0)


def test_what_all_draws_have_in_common_is_in_no_theta(data):
    body = pretrained().eval()
    posterior = ours(lambda: OnBody(body), [wf.InitialCondition(3), wf.Iterations(wf.SWAG(rank=2))], data)
    network = posterior.networks[""]
    assert set(network.shared) == {f"body.{name}" for name in body.state_dict()}
    trained = sum(p.numel() for p in OnBody(body).parameters() if p.requires_grad)
    for member in posterior.mixture:
        assert member.trained.last.numel() == trained
        assert member.trained.law.mean.numel() == trained
    sampled = posterior.sample(2)
    assert sampled[0]["body.0.weight"] is sampled[1]["body.0.weight"]
    posterior.one_shot(data[0][:5])


def test_what_the_factory_draws_anew_is_each_members(data):
    """As of random prior functions, whose frozen part is another in each member."""
    prior = lambda: OnBody(nn.Linear(4, 5).requires_grad_(False))  # noqa: E731
    posterior = ours(prior, [wf.InitialCondition(2)], data)
    assert not posterior.networks[""].shared
    answers = posterior.predict(data[0]).answers
    for draw in range(2):
        expected = plain_loop(prior, data, draw)(data[0])
        torch.testing.assert_close(answers[draw, 0], expected.detach(), rtol=0, atol=1e-10)


def test_later_changes_of_the_body_do_not_reach_the_posterior(data):
    body = pretrained().eval()
    posterior = ours(lambda: OnBody(body), [wf.InitialCondition(2)], data)
    before = posterior.predict(data[0]).mean
    with torch.no_grad():
        body[0].weight.zero_()
    assert torch.equal(posterior.predict(data[0]).mean, before)


def test_files_hold_it_once(data, tmp_path):
    body = pretrained(batch_norm=True).eval()
    make = lambda: OnBody(copy.deepcopy(body))  # noqa: E731
    posterior = ours(make, [wf.InitialCondition(3)], data)
    posterior.save(tmp_path / "run")
    trained = sum(p.numel() for p in make().parameters() if p.requires_grad)
    run = Run.open(tmp_path / "run")
    for member in range(3):
        held = load_file(run.path(f"member-{member}.safetensors"))
        assert max(tensor.numel() for tensor in held.values()) == trained
    loaded = wf.load(tmp_path / "run", make)
    assert torch.equal(loaded.predict(data[0]).mean, posterior.predict(data[0]).mean)
    with torch.no_grad():
        body[0].weight.zero_()  # the numbers in the file count, not those that the factory happens to have
    loaded = wf.load(tmp_path / "run", make)
    assert torch.equal(loaded.predict(data[0]).mean, posterior.predict(data[0]).mean)
    with pytest.raises(wf.FileError, match=r"body.0.weight was not there and is"):
        wf.load(tmp_path / "run", lambda: OnBody(copy.deepcopy(body).requires_grad_()))


def test_initial_conditions_redraw_what_is_trained(data):
    body = pretrained().eval()
    weight = body[0].weight.detach().clone()
    over = [wf.InitialCondition(2, init=glorot_uniform)]
    posterior = ours(lambda: OnBody(body), over, data)
    assert torch.equal(body[0].weight, weight.to(body[0].weight))
    one, two = (posterior.networks[""].layout.views(member.trained.last) for member in posterior.mixture)
    assert not torch.equal(one["before.weight"], two["before.weight"])


def test_where_nothing_is_left_to_redraw_it_is_said(data):
    whole = OnBody(pretrained().eval())
    with pytest.raises(ValueError, match=r"the same weights.*InitialCondition\(init=...\) redraw what is trained"):
        ours(lambda: copy.deepcopy(whole), [wf.InitialCondition(2)], data)


def test_draws_that_differ_later_are_refused(data):
    made = []

    def make() -> nn.Module:
        made.append(None)
        body = pretrained().eval()
        if len(made) > 3:
            with torch.no_grad():
                body[0].bias += 1
        return OnBody(body)

    with pytest.raises(ValueError, match=r"body.0.bias is frozen, but has other numbers"):
        ours(make, [wf.InitialCondition(4)], data)


def test_a_frozen_part_in_training_mode_drops_units(data):
    """As a plain loop does after network.train()."""
    assert not ours(lambda: OnBody(pretrained().eval()), [], data).networks[""].sites
    assert len(ours(lambda: OnBody(pretrained()), [], data).networks[""].sites) == 1


def test_a_network_in_prediction_mode_is_trained_in_training_mode(problem):
    """As pretrained networks come: in prediction mode, all of their parameters trained."""
    make = lambda: nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.2), nn.Linear(6, 1)).eval()  # noqa: E731
    network = wf.marginalise(training(make), problem, []).networks[""]
    assert len(network.sites) == 1
    assert set(network.momenta) == {"1.running_mean", "1.running_var"}
