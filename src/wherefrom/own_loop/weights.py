"""Weights from wherever they are: a recorder, a network, a state dict, or a file. Nothing is ever unpickled."""

from __future__ import annotations

import pickle
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from wherefrom.files.reading import blaming, read_json, read_tensors
from wherefrom.own_loop.recorder import Recorder, is_recording, tensors_of

# In the folder of a checkpoint, the first of these that is there.
_IN_FOLDERS = ("model.safetensors", "model.safetensors.index.json", "adapter_model.safetensors", "pytorch_model.bin")


@dataclass(frozen=True, eq=False)
class Weights:
    """One network's tensors under the names that they were found by, and the recorder that watched them, if any."""

    tensors: dict[str, Tensor]
    recorder: Recorder | None = None

    @classmethod
    def of(cls, member: Any) -> Weights:
        if isinstance(member, Recorder):
            return cls(member.last(), member)
        if isinstance(member, nn.Module):
            return cls({name: tensor.detach() for name, tensor in tensors_of(member).items()})
        if isinstance(member, Mapping):
            return cls(_tensors_in(member, "the state dict"))
        if isinstance(member, str | Path):
            return _read(Path(member))
        raise TypeError(
            "a member is a Recorder, an nn.Module, a state dict, or the path of a file with one of them, "
            f"not {type(member).__name__}"
        )


def _read(path: Path) -> Weights:
    if path.is_dir():
        inside = [path / name for name in _IN_FOLDERS if (path / name).is_file()]
        if not inside:
            raise FileNotFoundError(f"the folder {path} holds none of {', '.join(_IN_FOLDERS)}")
        path = inside[0]
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    if path.name.endswith(".index.json"):  # the parts of a large model, as Hugging Face writes them
        with blaming(path):
            parts = dict.fromkeys(map(str, read_json(path, follows_links=True)["weight_map"].values()))
        return Weights({k: t for part in parts for k, t in _read(path.parent / Path(part).name).tensors.items()})
    if path.suffix == ".safetensors":
        return _read_safetensors(path)
    return Weights(_tensors_in(_load(path), str(path)))


def _read_safetensors(path: Path) -> Weights:
    metadata, tensors = read_tensors(path, follows_links=True)
    if not is_recording(metadata):
        return Weights(_plain_names(tensors))
    recorder = Recorder.load(path)
    return Weights(recorder.last(), recorder)


def _load(path: Path) -> Any:
    """Read what torch.save wrote, if it is numbers and names alone: anything else would have to be unpickled."""
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        found = re.search(r"Unsupported (?:global|class|operand)\S* (?:GLOBAL )?([\w.]+)", str(error))
        holds = f"It holds more than tensors ({found[1]}). " if found else ""
        raise ValueError(
            f"{path} cannot be read as weights alone, and is not read otherwise: unpickling would run any code that "
            f"somebody put into it. {holds}Where it comes from, write the weights by themselves, as "
            'safetensors.torch.save_model(network, "0.safetensors") or torch.save(network.state_dict(), "0.pt")'
        ) from None


def _tensors_in(found: Any, what: str) -> dict[str, Tensor]:
    """The state dict in what was found: itself, or inside, as Lightning and many a loop keep it beside other things.

    What stands one level down has the name of what holds it in front, as if that were a module.
    """
    if isinstance(found, Mapping) and isinstance(found.get("state_dict"), Mapping):
        found = found["state_dict"]
    tensors: dict[str, Tensor] = {}
    for name, value in found.items() if isinstance(found, Mapping) else ():
        inside = {f"{name}.{k}": v for k, v in value.items()} if isinstance(value, Mapping) else {str(name): value}
        tensors |= {k: v.detach() for k, v in inside.items() if isinstance(v, Tensor)}
    if not tensors:
        top = f"its keys are {some(map(str, found))}" if isinstance(found, Mapping) else f"it is {type(found).__name__}"
        raise ValueError(f"{what} holds no tensors by name: {top}")
    return _plain_names(tensors)


def _plain_names(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Without what torch.compile puts into them."""
    return {name.replace("_orig_mod.", ""): tensor for name, tensor in tensors.items()}


def some(names: Any, most: int = 6) -> str:
    """The first few of many names."""
    known = list(names)
    return ", ".join(known[:most]) + (f", ... ({len(known)} in all)" if len(known) > most else "")
