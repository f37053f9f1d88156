"""Recorders: any loop, any wrapper, any precision; clear words where something is wrong; files that are whole."""

import copy
import json

import pytest
import torch
from safetensors import safe_open
from spied import recorded
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import wherefrom as wf
from conftest import mlp, training
from wherefrom.files import atomic
from wherefrom.laws import TRADI
from wherefrom.training import streams

LAWS = {"swag": wf.SWAG(rank=3), "snapshots": wf.Snapshots(3), "tradi": TRADI()}


def batch_normalised() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 1))


def moved(network: nn.Module, steps: int = 6):
    """A network in some places, one after another, as training would move it."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        with torch.no_grad():
            for parameter in network.parameters():
                if parameter.requires_grad:
                    parameter.add_(torch.randn(parameter.shape, generator=generator).to(parameter))
        yield network


# ---------------------------------------------------------------------- the same law as the engine's


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
@pytest.mark.parametrize("model", [mlp(), batch_normalised], ids=["mlp", "batch norm"])
def test_the_iterates_of_a_real_training_leave_the_same_law(law, model, problem):
    posterior, recorders = recorded(law, model, training(model, epochs=12), problem, [wf.InitialCondition(2)])
    for expected, recorder, component in zip(posterior.laws(), recorders, posterior.mixture, strict=True):
        found = recorder.law()
        assert type(found) is type(expected)
        for name, tensor in expected.tensors().items():
            torch.testing.assert_close(found.tensors()[name], tensor, rtol=1e-5, atol=1e-7)
        last = posterior.network.layout.views(component.trained.last)
        assert all(torch.equal(last[name], tensor) for name, tensor in recorder.last().items())


def test_a_loop_by_hand_leaves_the_law_of_marginalise(problem):
    """torch.optim and a for loop, on all rows at once, where the order of rows is no matter."""
    x, y = (torch.as_tensor(part, dtype=torch.float32) for part in problem)
    law, model, epochs = wf.SWAG(rank=3), mlp(rate=0.0), 20
    whole = wf.Algorithm("adam", lr=0.01, batch_size=len(x))
    posterior = wf.marginalise(
        training(model, algorithm=whole, epochs=epochs, standardise=False), problem, [wf.Iterations(law)], seed=3
    )
    with streams.torch_seeded(3, "theta0", 0):
        network = model()
    optimiser = torch.optim.Adam(network.parameters(), lr=0.01)
    recorder = wf.Recorder(law)
    for epoch in range(epochs):
        optimiser.zero_grad()
        (network(x).squeeze(1) - y).square().mean().backward()
        optimiser.step()
        if epoch >= epochs // 2:
            recorder.update(network)
    (expected,), found = posterior.laws(), recorder.law()
    torch.testing.assert_close(found.mean, expected.mean, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found.diagonal, expected.diagonal, rtol=1e-2, atol=1e-8)
    torch.testing.assert_close(found.factor, expected.factor, rtol=1e-2, atol=1e-5)


# ---------------------------------------------------------------------- whatever the model is wrapped in


def data_parallel(network: nn.Module) -> nn.Module:
    return nn.DataParallel(network)


def compiled(network: nn.Module) -> nn.Module:
    return torch.compile(network, backend="eager")


def averaged(network: nn.Module) -> nn.Module:
    wrapped = torch.optim.swa_utils.AveragedModel(network)
    wrapped.module = network
    return wrapped


WRAPPERS = {
    "DataParallel": data_parallel,
    "torch.compile": compiled,
    "both": lambda network: compiled(data_parallel(network)),
    "AveragedModel": averaged,
}


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_wrappers_are_taken_off(wrap):
    plain, wrapped = wf.Recorder(wf.SWAG(rank=2)), wf.Recorder(wf.SWAG(rank=2))
    network = batch_normalised()
    outer = wrap(network)
    for now in moved(network):
        plain.update(now)
        wrapped.update(outer)
    assert plain.layout == wrapped.layout
    assert torch.equal(plain.law().factor, wrapped.law().factor)
    wrapped.update(network)  # the same model, without its wrapper


def test_distributed_data_parallel_is_taken_off(tmp_path):
    torch.distributed.init_process_group("gloo", f"file://{tmp_path / 'rendezvous'}", rank=0, world_size=1)
    try:
        network = mlp()()
        recorder = wf.Recorder()
        recorder.update(DistributedDataParallel(network))
        assert list(recorder.last()) == list(network.state_dict())
    finally:
        torch.distributed.destroy_process_group()


def test_compiled_parts_have_their_own_names():
    network = mlp()()
    names = list(network.state_dict())
    network[0] = compiled(network[0])
    recorder = wf.Recorder()
    recorder.update(network)
    assert list(recorder.last()) == names


def test_a_part_that_happens_to_be_called_module_is_a_part():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.module, self.head = nn.Linear(3, 2), nn.Linear(2, 1)

    recorder = wf.Recorder()
    recorder.update(Net())
    assert list(recorder.last()) == ["module.weight", "module.bias", "head.weight", "head.bias"]


# ---------------------------------------------------------------------- what it takes, and what it leaves alone


def test_the_model_is_left_alone():
    network = batch_normalised().train()
    before = copy.deepcopy(network.state_dict())
    recorder = wf.Recorder(wf.SWAG(rank=2))
    for _ in range(3):
        recorder.update(network)
    assert network.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())
    assert all(parameter.grad is None and parameter.requires_grad for parameter in network.parameters())
    recorder.last()["0.weight"].zero_()
    assert torch.equal(recorder.last()["0.weight"], before["0.weight"])
    assert not any(tensor is value for tensor in network.parameters() for value in vars(recorder).values())


def test_frozen_parameters_have_no_law_and_buffers_have():
    network = batch_normalised()
    network[0].requires_grad_(False)
    recorder = wf.Recorder(wf.SWAG(rank=2))
    for now in moved(network):
        now(torch.randn(5, 4, generator=torch.Generator().manual_seed(1)))
        recorder.update(now)
    assert recorder.layout.names[-2:] == ("0.weight", "0.bias")
    running = 6 + 6  # the statistics
    assert len(recorder.law().mean) == 6 + 6 + 6 + 1 + running
    assert torch.equal(recorder.last()["0.weight"], network[0].weight)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_gathered_in_single(dtype):
    network = mlp()().to(dtype)
    recorder, thetas = wf.Recorder(wf.SWAG(rank=0)), []
    for now in moved(network, 50):
        recorder.update(now)
        thetas.append(torch.cat([p.detach().flatten() for p in now.parameters()]).double())
    law = recorder.law()
    assert law.mean.dtype == torch.float32
    torch.testing.assert_close(law.mean, torch.stack(thetas).mean(0).float(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(law.variance, torch.stack(thetas).var(0).float(), rtol=1e-4, atol=1e-5)


def test_double_precision_stays():
    network = mlp()().double()
    recorder = wf.Recorder(wf.SWAG(rank=1))
    for now in moved(network, 3):
        recorder.update(now)
    assert recorder.law().mean.dtype == recorder.last()["0.weight"].dtype == torch.float64


def test_shared_parameters_are_recorded_once():
    network = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    network[1].weight = network[0].weight
    recorder = wf.Recorder()
    recorder.update(network)
    assert list(recorder.last()) == ["0.weight", "0.bias", "1.bias"]


def test_what_is_gathered_can_lie_elsewhere():
    recorder = wf.Recorder(wf.SWAG(rank=1), device="cpu")
    for now in moved(mlp()(), 2):
        recorder.update(now)
    assert recorder.law().mean.device.type == "cpu"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_on_a_gpu():
    network = mlp()().cuda()
    there, here = wf.Recorder(wf.SWAG(rank=1)), wf.Recorder(wf.SWAG(rank=1), device="cpu")
    for now in moved(network, 3):
        there.update(now)
        here.update(now)
    assert there.law().mean.device.type == "cuda"
    torch.testing.assert_close(there.law().mean.cpu(), here.law().mean)


def test_without_a_law_the_last_weights_are_kept():
    recorder = wf.Recorder()
    for now in moved(mlp()(), 3):
        recorder.update(now)
    assert recorder.updates == 3
    assert not recorder.law().is_random
    assert torch.equal(recorder.last()["3.bias"], now[3].bias)
    assert repr(recorder) == "Recorder(the last weights, 3 updates)"


def test_the_end_is_no_part_of_the_law():
    network = mlp()()
    recorder = wf.Recorder(wf.SWAG(rank=2))
    for now in moved(network, 4):
        recorder.update(now)
    mean = recorder.law().mean
    next(moved(network, 1))
    recorder.finish(network)
    assert torch.equal(recorder.law().mean, mean)
    assert torch.equal(recorder.last()["0.weight"], network[0].weight)
    assert recorder.updates == 4


# ---------------------------------------------------------------------- what is wrong


def test_too_few_updates():
    recorder = wf.Recorder(wf.SWAG(rank=2))
    with pytest.raises(ValueError, match="seen nothing yet"):
        recorder.law()
    with pytest.raises(ValueError, match="seen nothing yet"):
        recorder.save("nowhere.safetensors")
    recorder.update(mlp()())
    with pytest.raises(ValueError, match="needs at least 2 updates, and had 1"):
        recorder.law()


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (mlp(hidden=13), r"0.weight had the shape \(12, 4\) and has \(13, 4\)"),
        (lambda: nn.Sequential(nn.Linear(4, 12)), "3.weight is gone"),
        (lambda: nn.Sequential(*mlp()(), nn.Linear(1, 1)), "4.weight was not there"),
        (lambda: frozen(mlp()()), "0.weight was trained and is frozen now"),
    ],
)
def test_another_structure_is_refused_and_nothing_is_lost(other, message):
    recorder = wf.Recorder(wf.SWAG(rank=2))
    for now in moved(mlp()(), 3):
        recorder.update(now)
    before = recorder.law().mean
    with pytest.raises(ValueError, match=f"another than at the first update: {message}"):
        recorder.update(other())
    with pytest.raises(ValueError, match=message):
        recorder.check(other())
    assert torch.equal(recorder.law().mean, before)
    assert recorder.updates == 3


def frozen(network: nn.Module) -> nn.Module:
    network[0].weight.requires_grad_(False)
    return network


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_named(bad):
    network = mlp()()
    recorder = wf.Recorder(wf.SWAG(rank=2))
    for now in moved(network, 3):
        recorder.update(now)
    last = recorder.last()
    with torch.no_grad():
        network[3].bias.fill_(bad)
    with pytest.raises(ValueError, match=r"3\.bias holds numbers that are not finite"):
        recorder.update(network)
    assert recorder.updates == 3
    assert all(torch.equal(tensor, last[name]) for name, tensor in recorder.last().items())


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: wf.Recorder(wf.SWAG), TypeError, "law must be a law such as"),
        (lambda: wf.Recorder("swag"), TypeError, "law must be a law such as"),
        (lambda: wf.Recorder(TRADI()), ValueError, "has to know how many updates"),
        (lambda: wf.Recorder(wf.SWAG(), expected=0), ValueError, "at least 1"),
        (lambda: wf.Recorder().update({}), TypeError, "looks at an nn.Module, not at dict"),
        (lambda: wf.Recorder().update(nn.ReLU()), ValueError, "no parameters that require a gradient"),
        (lambda: wf.Recorder().update(nn.LazyLinear(2)), ValueError, "lazy"),
        (lambda: wf.Recorder().update(nn.Linear(2, 1, dtype=torch.complex64)), ValueError, "only real weights"),
    ],
)
def test_clear_words(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_sharded_weights_are_refused():
    """Gathering them is for all processes together, and would hang in one of them."""

    class Shard(nn.Parameter):
        def full_tensor(self):
            raise AssertionError

    network = nn.Linear(2, 1)
    network.weight = Shard(torch.zeros(1, 2))
    with pytest.raises(ValueError, match="sharded over several processes"):
        wf.Recorder().update(network)


# ---------------------------------------------------------------------- files


@pytest.mark.parametrize("law", [*LAWS.values(), wf.SWAG(diagonal_only=True), None], ids=[*LAWS, "diagonal", "none"])
def test_a_recorder_goes_on_from_its_file(law, tmp_path):
    """Saved half-way, and recording on, it has the law of the whole."""
    whole, part = wf.Recorder(law, expected=12), wf.Recorder(law, expected=12)
    for step, now in enumerate(moved(batch_normalised(), 12)):
        whole.update(now)
        part.update(now)
        if step in (0, 5):
            part.save(tmp_path / "folder" / "member.safetensors")
            part = wf.Recorder.load(tmp_path / "folder" / "member.safetensors")
    assert repr(part) == repr(whole)
    assert part.layout == whole.layout
    for name, tensor in whole.law().tensors().items():
        assert torch.equal(part.law().tensors()[name], tensor)
    assert all(torch.equal(part.last()[name], tensor) for name, tensor in whole.last().items())
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["member.safetensors"]


def test_what_is_not_a_recorders_file(tmp_path):
    from safetensors.torch import save_file

    save_file({"a": torch.zeros(1)}, tmp_path / "a.safetensors")
    with pytest.raises(ValueError, match=r"not written by Recorder\.save"):
        wf.Recorder.load(tmp_path / "a.safetensors")
    recorder = wf.Recorder()
    recorder.update(mlp()())
    recorder.save(tmp_path / "b.safetensors")
    with safe_open(tmp_path / "b.safetensors", framework="pt") as file:
        metadata, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    atomic.write_tensors(tmp_path / "c.safetensors", tensors, metadata | {"wherefrom recorder": "99"})
    with pytest.raises(ValueError, match="newer version"):
        wf.Recorder.load(tmp_path / "c.safetensors")
    about = json.loads(metadata["about"]) | {"law": {"$": "delta"}}
    atomic.write_tensors(tmp_path / "d.safetensors", tensors, metadata | {"about": json.dumps(about)})
    with pytest.raises(ValueError, match=r"d\.safetensors cannot be read: law: this version does not know 'delta'"):
        wf.Recorder.load(tmp_path / "d.safetensors")


def test_a_law_of_ones_own_cannot_be_stored(tmp_path):
    class Mine(wf.SWAG):
        pass

    recorder = wf.Recorder(Mine(rank=1))
    recorder.update(mlp()())
    with pytest.raises(ValueError, match="a law of your own"):
        recorder.save(tmp_path / "a.safetensors")
