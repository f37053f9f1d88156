"""ReLU's moments as one compiled operation: what torch's operations give, under vmap and in recorded programs too."""

from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.func import vmap

import wherefrom as wf
from apart import alone
from conftest import training
from wherefrom.predictive.one_shot import compiled, scalars
from wherefrom.predictive.one_shot.moments import Moments
from wherefrom.predictive.one_shot.rules import elementwise
from wherefrom.training import program

pytest.importorskip("numba")


def moments(rank: int | None, size: tuple[int, ...] = (7, 300), *, has_variance: bool = True) -> Moments:
    generator = torch.Generator().manual_seed(3)
    mean = 3 * torch.randn(size, generator=generator)
    variance = torch.rand(size, generator=generator).pow(4) if has_variance else None
    factors = None if rank is None else 0.3 * torch.randn(rank, *size, generator=generator)
    return Moments(mean, variance, factors)


def as_torch(x: Moments, negative_slope: float) -> Moments:
    """By torch's operations, in double precision."""
    x = Moments(*(None if part is None else part.double() for part in (x.mean, x.variance, x.factors)))
    scalar = partial(scalars.leaky_relu, negative_slope=negative_slope)
    return elementwise(x, partial(F.leaky_relu, negative_slope=negative_slope), scalar=scalar)


def assert_same(found: Moments, expected: Moments) -> None:
    for own, known in ((found.mean, expected.mean), (found.variance, expected.variance)):
        assert torch.allclose(own.double(), known, rtol=1e-4, atol=2e-6)
    assert (found.factors is None) == (expected.factors is None)
    if found.factors is not None:
        assert torch.allclose(found.factors.double(), expected.factors, rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("negative_slope", [0.0, 0.2])
@pytest.mark.parametrize("rank", [None, 1, 5])
def test_it_is_what_torch_says(rank, negative_slope):
    x = moments(rank)
    assert compiled.covers(x)
    assert_same(compiled.leaky_relu(x, negative_slope), as_torch(x, negative_slope))


def test_factors_alone():
    x = moments(3, has_variance=False)
    assert_same(compiled.relu(x), as_torch(x, 0.0))


def test_nothing_breaks_at_the_edges():
    mean = torch.tensor([-1e6, -1.0, 0.0, 1.0, 1e6, 1e30, -1e30, 0.0])
    for variance in (0.0, 1e-12, 1e-38, 1.0, 1e12):
        x = Moments(mean, torch.full_like(mean, variance))
        found = compiled.relu(x)
        assert torch.isfinite(found.mean).all()
        assert torch.isfinite(found.variance).all()
        assert (found.variance >= 0).all()
        assert (found.variance <= variance * 1.0001).all()
    broken = Moments(torch.tensor([float("nan")]), torch.ones(1))
    assert compiled.relu(broken).mean.isnan().all()


def test_members_under_vmap():
    x = moments(4, (3, 5, 40))
    given = x.mean, x.variance, x.factors.movedim(0, 1)

    def one(mean, variance, factors):
        out = compiled.relu(Moments(mean, variance, factors))
        return out.mean, out.variance, out.factors

    together = vmap(one)(*given)
    alone = [one(*(part[k] for part in given)) for k in range(3)]
    shared = vmap(one, in_dims=(None, 0, None))(given[0][0], given[1], given[2][0])
    apart = [one(given[0][0], given[1][k], given[2][0]) for k in range(3)]
    for many, each in ((together, alone), (shared, apart)):
        for place, part in enumerate(many):
            assert torch.equal(part, torch.stack([own[place] for own in each]))


def test_a_recorded_program_holds_it():
    x = moments(2, (4, 9))

    def push(mean, variance, factors):
        out = compiled.relu(Moments(mean, variance, factors))
        return out.mean, out.variance, out.factors

    memory = x.mean.clone(), x.variance.clone(), x.factors.clone()
    recorded = program.record(push, memory)
    assert recorded.operations == ["wherefrom::push_relu.out"]
    for other in (1.0, -2.0):
        memory[0].copy_(x.mean + other)
        for kept, new in zip(recorded(), push(x.mean + other, x.variance, x.factors), strict=True):
            assert torch.equal(kept, new)


def test_it_keeps_to_what_it_can():
    x = moments(2)
    assert compiled.covers(x)
    assert not compiled.covers(Moments(x.mean.double(), x.variance.double()))
    assert not compiled.covers(Moments(x.mean))
    assert not compiled.covers(Moments(x.mean, x.variance, None, torch.diag_embed(x.variance)))
    with compiled.spelled_out():
        assert not compiled.covers(x)


@pytest.mark.parametrize("covariance", ["diagonal", "low_rank"])
def test_the_first_prediction_and_the_next_say_the_same(problem, covariance):
    over = [*wf.recipes.multi_swag(2, rank=4), wf.Dropout()]
    posterior = wf.marginalise(training(network, epochs=20), problem, over, seed=2, progress=False)
    x = np.random.default_rng(11).normal(size=(40, 4))
    first, *next_ones = (posterior.one_shot(x, covariance=covariance) for _ in range(4))
    for later in next_ones:
        assert torch.equal(later.mean, first.mean)
        assert torch.equal(later.std, first.std)


def network() -> torch.nn.Module:
    nn = torch.nn
    return nn.Sequential(nn.Linear(4, 9), nn.ReLU(), nn.Dropout(0.1), nn.Linear(9, 5), nn.LeakyReLU(), nn.Linear(5, 1))


@pytest.mark.parametrize("how", ["absent", "broken"])
def test_without_numba_it_is_torch(how, tmp_path):
    (tmp_path / "numba.py").write_text("raise ImportError('numba needs another numpy')")
    before = {
        "absent": "sys.modules['numba'] = None",
        "broken": f"del sys.modules['numba']; sys.path.insert(0, {str(tmp_path)!r})",
    }
    code = (
        f"import sys; import numba; {before[how]}\n"
        "import torch; from wherefrom.predictive.one_shot import compiled, moments\n"
        "assert not compiled.covers(moments.Moments(torch.zeros(2), torch.ones(2)))\n"
    )
    alone(exec, code, {})


def test_threads_that_come_at_once_wait_for_the_first(tmp_path):
    code = (
        "import threading, torch\n"
        "from wherefrom.predictive.one_shot import compiled, moments\n"
        "found = []\n"
        "ask = lambda: found.append(compiled.covers(moments.Moments(torch.zeros(2), torch.ones(2))))\n"
        "threads = [threading.Thread(target=ask) for _ in range(4)]\n"
        "[thread.start() for thread in threads]; [thread.join() for thread in threads]\n"
        "assert found == [True] * 4, found\n"
    )
    alone(exec, code, {})


def test_what_is_not_a_number_stays_none():
    nan, one = torch.tensor([float("nan")]), torch.ones(1)
    for x in (Moments(nan, one), Moments(one, nan), Moments(one, one, nan.unsqueeze(0))):
        found = compiled.relu(x)
        assert found.mean.isnan().all()
        assert found.variance.isnan().all()
