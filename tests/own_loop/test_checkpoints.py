"""Weights from anywhere, under any name; and nothing that a file says is ever run."""

import json
import os
import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import wherefrom as wf
from apart import alone
from conftest import mlp
from wherefrom.own_loop.matching import Expected, matched
from wherefrom.own_loop.weights import Weights


def batch_normalised() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 1))


def wrapped(network: nn.Module, name: str) -> nn.Module:
    outer = nn.Module()
    outer.add_module(name, network)
    return outer


def under(prefix: str, tensors: dict) -> dict:
    return {f"{prefix}{name}": tensor for name, tensor in tensors.items()}


def found_for(model: nn.Module, member, prefix: str | None = None) -> dict[str, torch.Tensor]:
    tensors = Weights.of(member).tensors
    return {own: tensors[name] for own, name in matched(Expected.of(model), tensors, prefix, "member 0").items()}


def assert_same(found: dict, network: nn.Module) -> None:
    for name, tensor in network.state_dict().items():
        if not name.endswith("num_batches_tracked"):
            assert torch.equal(found[name], tensor), name


# ---------------------------------------------------------------------- forms and names


def as_recorder(network, folder):
    recorder = wf.Recorder()
    recorder.update(network)
    return recorder


def as_recorder_file(network, folder):
    as_recorder(network, folder).save(folder / "recorder.safetensors")
    return folder / "recorder.safetensors"


def as_safetensors(network, folder):
    save_file(network.state_dict(), folder / "weights.safetensors")
    return str(folder / "weights.safetensors")


def as_pt(network, folder):
    torch.save(network.state_dict(), folder / "weights.pt")
    return folder / "weights.pt"


def as_lightning(network, folder):
    state = under("model.", network.state_dict())
    whole = {"state_dict": state, "epoch": 3, "optimizer_states": [{"state": {0: {"step": torch.tensor(1.0)}}}]}
    torch.save(whole, folder / "last.ckpt")
    return folder / "last.ckpt"


def as_many_loops_do(network, folder):
    optimiser = torch.optim.Adam(network.parameters())
    network(torch.zeros(2, 4)).sum().backward()
    optimiser.step()
    torch.save(
        {"epoch": 3, "model_state_dict": network.state_dict(), "optimizer_state_dict": optimiser.state_dict()},
        folder / "checkpoint.pth",
    )
    return folder / "checkpoint.pth"


def as_folder(network, folder):
    save_file(network.state_dict(), folder / "model.safetensors")
    return folder


def as_bin_folder(network, folder):
    torch.save(network.state_dict(), folder / "pytorch_model.bin")
    return folder


def as_sharded_folder(network, folder):
    state = network.state_dict()
    names = list(state)
    parts = {"model-1.safetensors": names[:3], "model-2.safetensors": names[3:]}
    for part, held in parts.items():
        save_file({name: state[name] for name in held}, folder / part)
    index = {"metadata": {}, "weight_map": {name: part for part, held in parts.items() for name in held}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


FORMS = [
    lambda network, folder: network,
    lambda network, folder: network.state_dict(),
    as_recorder,
    as_recorder_file,
    as_safetensors,
    as_pt,
    as_lightning,
    as_many_loops_do,
    as_folder,
    as_bin_folder,
    as_sharded_folder,
]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_every_form_gives_the_weights(form, tmp_path):
    network = batch_normalised()
    network(torch.randn(8, 4, generator=torch.Generator().manual_seed(0)))  # moves the running statistics
    member = form(network, tmp_path)
    assert_same(found_for(batch_normalised(), member), network)


FRONTS = {
    "DistributedDataParallel": lambda state: under("module.", state),
    "torch.compile": lambda state: under("_orig_mod.", state),
    "compiled within Lightning": lambda state: under("model._orig_mod.", state),
    "a compiled part": lambda state: {name.replace("0.", "0._orig_mod."): t for name, t in state.items()},
    "two": lambda state: under("lit.net.", state),
}


@pytest.mark.parametrize("front", FRONTS.values(), ids=FRONTS)
def test_what_stands_in_front_is_taken_off(front):
    network = mlp()()
    assert_same(found_for(mlp()(), front(network.state_dict())), network)


def test_what_the_model_has_in_front_is_put_on():
    network = mlp()()
    outer = wrapped(mlp()(), "backbone")
    found = found_for(outer, network.state_dict())
    assert torch.equal(found["backbone.0.weight"], network[0].weight)
    found = found_for(outer, under("module.", network.state_dict()))  # one off, another on
    assert torch.equal(found["backbone.0.weight"], network[0].weight)


def test_two_models_in_one_file_need_a_word():
    network, other = mlp()(), mlp()()
    both = under("model.", network.state_dict()) | under("ema.", other.state_dict())
    with pytest.raises(ValueError, match=r"more than one model's weights .*prefix='ema\.' or prefix='model\.'"):
        found_for(mlp()(), both)
    assert_same(found_for(mlp()(), both, "model."), network)
    assert_same(found_for(mlp()(), both, "ema"), other)


def test_a_part_of_a_larger_model_is_not_taken_unasked():
    """The last layer of an MLP has the names of a linear model."""
    network = mlp()()
    with pytest.raises(ValueError, match=r"prefix='0\.' or prefix='3\.'"):
        found_for(nn.Linear(12, 1), network.state_dict())
    assert torch.equal(found_for(nn.Linear(12, 1), network.state_dict(), "3.")["weight"], network[3].weight)


@pytest.mark.parametrize(
    ("member", "message"),
    [
        (mlp(hidden=13)().state_dict(), r"0.weight has the shape \(13, 4\) there, and \(12, 4\) in the model"),
        ({"0.weight": torch.zeros(12, 4)}, "The model has 0.bias, 3.weight, 3.bias, which member 0 has not"),
        (
            nn.Sequential(*mlp()(), nn.Linear(1, 1)).state_dict(),
            "Member 0 has 4.weight, 4.bias, which the model has not",
        ),
        (nn.Linear(3, 2).state_dict(), r"The model has 0.weight, .* Member 0 has weight, bias, which"),
    ],
)
def test_what_does_not_fit_is_told(member, message):
    with pytest.raises(ValueError, match=message):
        found_for(mlp()(), member)
    with pytest.raises(ValueError, match="does not fit"):
        found_for(mlp()(), member, prefix="model.")


def test_shared_parameters_may_be_stored_under_either_name():
    def tied() -> nn.Module:
        network = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
        network[2].weight = network[0].weight
        return network

    network = tied()
    for name in ("0.weight", "2.weight"):  # files without duplicates leave one of them out
        state = {k: v for k, v in network.state_dict().items() if k != name}
        assert torch.equal(found_for(tied(), state)["0.weight"], network[0].weight)


def test_buffers_that_no_state_dict_holds_may_be_missing():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 1)
            self.register_buffer("scale", torch.ones(3), persistent=False)

    assert set(found_for(Scaled(), Scaled().state_dict())) == {"layer.weight", "layer.bias"}
    assert set(found_for(Scaled(), Scaled())) == {"layer.weight", "layer.bias", "scale"}


# ---------------------------------------------------------------------- what is no weights


class Evil:
    """Unpickled, it leaves a trace."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self):
        return os.mkdir, (str(self.trace),)


def plain_pickle(found, path):
    path.write_bytes(pickle.dumps(found, protocol=2))


def old_format(found, path):
    torch.save(found, path, _use_new_zipfile_serialization=False)


@pytest.mark.parametrize("forced", [False, True], ids=["", "weights_only off by the environment"])
@pytest.mark.parametrize("write", [torch.save, old_format, plain_pickle], ids=["zip", "legacy", "pickle"])
@pytest.mark.parametrize("suffix", [".pt", ".ckpt", ".bin"])
def test_no_pickle_is_ever_run(write, suffix, forced, tmp_path, monkeypatch):
    if forced:
        monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    trace, path = tmp_path / "trace", tmp_path / f"evil{suffix}"
    write({"state_dict": mlp()().state_dict(), "hyper_parameters": Evil(trace)}, path)
    with pytest.raises(ValueError, match="cannot be read as weights alone, and is not read otherwise"):
        Weights.of(path)
    assert not trace.exists()
    with pytest.raises(ValueError, match=r"member 0 \(.*evil.*\): .*write the weights by themselves"):
        wf.Posterior.from_members([path], model=mlp(), x=torch.zeros(4, 4))
    assert not trace.exists()


def test_a_whole_network_in_a_file_is_refused_by_name(tmp_path):
    torch.save(mlp()(), tmp_path / "network.pt")
    with pytest.raises(ValueError, match=r"more than tensors \(torch.nn.modules.container.Sequential\)"):
        Weights.of(tmp_path / "network.pt")


def test_files_that_are_broken(tmp_path):
    (tmp_path / "a.pt").write_bytes(b"")
    (tmp_path / "b.pt").write_bytes(b"PK\x03\x04 and no more")
    (tmp_path / "c.safetensors").write_bytes(b"\x00" * 20)
    for name, message in (("a.pt", "cannot be read"), ("b.pt", "cannot be read"), ("c.safetensors", "cannot be read")):
        with pytest.raises(ValueError, match=message):
            Weights.of(tmp_path / name)
    with pytest.raises(FileNotFoundError, match="there is no file"):
        Weights.of(tmp_path / "nothing.pt")
    with pytest.raises(FileNotFoundError, match=r"holds none of model\.safetensors"):
        Weights.of(tmp_path)


def test_an_index_names_files_beside_it_alone(tmp_path):
    (tmp_path / "inside").mkdir()
    save_file({"a": torch.zeros(1)}, tmp_path / "outside.safetensors")
    index = {"weight_map": {"a": "../outside.safetensors"}}
    (tmp_path / "inside" / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(FileNotFoundError, match="inside/outside"):
        Weights.of(tmp_path / "inside")


@pytest.mark.parametrize(
    ("member", "error", "message"),
    [
        (3, TypeError, "not int"),
        ({}, ValueError, "holds no tensors by name"),
        ({"epoch": 3, "state_dict": {}}, ValueError, "holds no tensors"),
        ({"epoch": 3, "loss": 0.5}, ValueError, "its keys are epoch, loss"),
    ],
)
def test_members_that_are_none(member, error, message):
    with pytest.raises(error, match=message):
        Weights.of(member)


def test_opening_the_library_imports_no_trainer():
    code = (
        "import sys, wherefrom as wf; wf.Recorder; wf.callbacks; from wherefrom.own_loop.callbacks import lightning\n"
        "found = {'lightning', 'pytorch_lightning', 'transformers'} & set(sys.modules)\n"
        "assert not found, found"
    )
    alone(exec, code, {})
