"""A recorder: the law that a trajectory leaves, from any training loop, one `update(model)` at a time.

It copies the weights that it is shown and keeps nothing of the model. What it holds is laid out as in the cohort
engine: one flat theta of what is trained, then floating-point buffers (the running statistics of batch normalisation
belong to theta), then frozen parameters, which have no law but belong to the network all the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from wherefrom.files import atomic, codec
from wherefrom.files.documents import parsed
from wherefrom.files.errors import FileError
from wherefrom.files.reading import blaming, check_format, read_tensors
from wherefrom.laws import Law, TrajectoryLaw, delta
from wherefrom.own_loop.running import Watch, watch
from wherefrom.training.network import Layout

FORMAT = 3
_MOST_UPDATES = 2**40
_MARK = "wherefrom recorder"  # in the metadata of a safetensors file, with the number of its format


class Recorder:
    """Record a training loop: call `update(model)` once an epoch, or every few steps, from the moment to collect.

    law: a law of trajectories, such as `wf.SWAG(rank=20)` (default: only the last weights are kept).
    expected: about how many updates there will be; only TRADI needs it, whose memory is a share of them.
    device: where the collected weights are kept (default: on the model's device).

    Half-precision weights are collected in single precision. SWAG takes the memory of 3 + rank copies of the weights (4
    + rank / 2 with `deviations="bfloat16"`), snapshots of up to 1 + 2 `keep`, TRADI of 5.

    >>> from wherefrom.laws import SWAG
    >>> net = nn.Linear(3, 1)
    >>> recorder = Recorder(SWAG(rank=5))
    >>> for step in range(10):
    ...     with torch.no_grad():
    ...         net.weight += 0.1  # stands for some steps of training
    ...     recorder.update(net)
    >>> recorder
    Recorder(SWAG(rank=5, diagonal_only=False, deviations=None), 10 updates)
    >>> recorder.law().mean.shape  # three weights and a bias
    torch.Size([4])
    """

    def __init__(
        self,
        law: TrajectoryLaw | None = None,
        *,
        expected: int | None = None,
        device: str | torch.device | None = None,
    ) -> None:
        if law is not None and (isinstance(law, type) or not hasattr(law, "collector")):
            raise TypeError(f"law must be a law such as wf.SWAG(rank=20), or None for the last weights, not {law!r}")
        if expected is not None and (int(expected) != expected or expected < 1):
            raise ValueError(f"expected is a number of updates, at least 1, not {expected}")
        self.how, self.expected, self.device = law, expected, device
        if law is not None:
            watch(law, torch.empty(0), expected)  # raises if the law must know more
        self.updates = 0
        self.layout: Layout | None = None  # of the model, from the first update on
        self._theta = torch.empty(0)  # the last one shown  # (size,)
        self._whole: dict[str, Tensor] = {}  # buffers of whole numbers
        self._watch: Watch | None = None

    def __repr__(self) -> str:
        return f"Recorder({self.how or 'the last weights'}, {self.updates} update{'s' * (self.updates != 1)})"

    # ------------------------------------------------------------------ watching

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Collect the model's weights as they are now. The model is neither changed nor kept.

        model: the network, after a step or an epoch.
        """
        self.finish(model)
        self.updates += 1
        if self._watch is not None and self.layout is not None:
            self._watch.collect(self._theta[: self.layout.varying_size])

    @torch.no_grad()
    def finish(self, model: nn.Module) -> None:
        """Keep the weights in which training ended, if the last update was earlier: they are no part of the law.

        model: the network, once training is over.
        """
        tensors, layout = self._looked_at(model)
        _check_finite({name: tensors[name] for name in layout.names}, self.updates)
        if self.layout is None:
            self._begin(layout, tensors)
        for name, view in layout.views(self._theta).items():
            view.copy_(tensors[name])
        self._whole = {
            name: tensor.detach().to(self._theta.device, copy=True)
            for name, tensor in tensors.items()
            if name not in layout.names and not name.endswith("num_batches_tracked")
        }

    def check(self, model: nn.Module) -> None:
        """Raise now what `update` would raise later: for the beginning of a training that takes days.

        model: the network that would be recorded.
        """
        self._looked_at(model)

    def _looked_at(self, model: nn.Module) -> tuple[dict[str, Tensor], Layout]:
        tensors = tensors_of(model)
        layout = _layout(tensors)
        if self.layout is not None and layout != self.layout:
            raise ValueError(f"the model is another than at the first update: {_difference(self.layout, layout)}")
        return tensors, layout

    def _begin(self, layout: Layout, tensors: dict[str, Tensor]) -> None:
        floats = [tensors[name] for name in layout.names]
        dtype = torch.float64 if any(tensor.dtype == torch.float64 for tensor in floats) else torch.float32
        theta = torch.empty(layout.size, dtype=dtype, device=self.device or floats[0].device)
        if self.how is not None:
            self._watch = watch(self.how, theta[: layout.varying_size], self.expected)
        self.layout, self._theta = layout, theta

    # ------------------------------------------------------------------ what it saw

    def law(self) -> Law:
        """The law of what it was shown, over trained parameters and buffers; of the last weights, if it has no law."""
        layout = self._seen()
        if self._watch is None or self.how is None:
            return delta(self._theta[: layout.varying_size].clone())
        if self.updates < self.how.fewest:
            raise ValueError(
                f"{self.how} needs at least {self.how.fewest} updates, and had {self.updates}: update more often, or "
                "begin earlier"
            )
        return self._watch.law()

    def last(self) -> dict[str, Tensor]:
        """The last weights by name, with buffers and frozen parameters: what `model.state_dict()` was."""
        return self._seen().views(self._theta.clone()) | dict(self._whole)

    def _seen(self) -> Layout:
        if self.layout is None:
            raise ValueError("this recorder has seen nothing yet: call recorder.update(model) in the training loop")
        return self.layout

    # ------------------------------------------------------------------ files

    def save(self, path: str | Path) -> None:
        """Write what was collected as one safetensors file, from which recording can also continue.

        path: the file.
        """
        layout, path = self._seen(), Path(path)
        if self.how is not None and not codec.is_stored(type(self.how)):
            raise ValueError(f"{self.how!r} is a law of your own, which a file cannot hold")
        values = {
            "law": self.how,
            "expected": self.expected,
            "updates": self.updates,
            "layout": layout,
            "theta": self._theta,
            "whole": self._whole,
            "watch": None if self._watch is None else self._watch.state(),
        }
        tensors: dict[str, Tensor] = {}
        about = json.dumps(codec.pack(values, tensors))
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic.write_tensors(path, tensors, {_MARK: str(FORMAT), "about": about})

    @classmethod
    def load(cls, path: str | Path, *, device: str | torch.device = "cpu") -> Recorder:
        """Read what `save` wrote.

        path: the file that `save` wrote.
        device: where its tensors should be (default "cpu").
        """
        metadata, tensors = read_tensors(path, str(device), follows_links=True)
        if not is_recording(metadata):
            raise FileError(f"{path} was not written by Recorder.save")
        with blaming(path):
            check_format(int(metadata[_MARK]), FORMAT, path)
            values = codec.unpack(parsed(metadata["about"]), tensors.__getitem__)
            codec.check(values, {"updates": int, "layout": Layout, "theta": Tensor, "whole": dict[str, Tensor]})
            _check_layout(values["layout"], values["theta"])
            recorder = cls(values["law"], expected=values["expected"], device=device)
            recorder.layout, recorder.updates = values["layout"], values["updates"]
            recorder._theta, recorder._whole = values["theta"], values["whole"]
            if recorder.how is not None:
                varying = recorder._theta[: values["layout"].varying_size]
                recorder._watch = watch(recorder.how, varying, recorder.expected)
                recorder._watch.restore(values["watch"])
                if recorder._watch.count != recorder.updates or not 0 <= recorder.updates < _MOST_UPDATES:
                    raise ValueError(f"it cannot be of {recorder._watch.count} iterates and {recorder.updates} updates")
        return recorder


def is_recording(metadata: Mapping[str, str] | None) -> bool:
    """True if a safetensors file with this metadata was written by a recorder."""
    return _MARK in (metadata or {})


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
    """A model's parameters and buffers by name, without what DataParallel, DDP and torch.compile wrap around it."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"a recorder looks at an nn.Module, not at {type(model).__name__}")
    model = unwrapped(model)
    found = dict(model.named_parameters()) | dict(model.named_buffers())
    for name, tensor in found.items():
        if isinstance(tensor, nn.UninitializedParameter | nn.UninitializedBuffer):
            raise ValueError(f"{name} is a lazy parameter without a size yet: run the model once first")
        if hasattr(tensor, "full_tensor"):
            raise ValueError(
                f"{name} is sharded over several processes: gather the weights (tensor.full_tensor()) into an ordinary "
                "network first, and show it that one"
            )
    return {name.replace("_orig_mod.", ""): tensor for name, tensor in found.items()}


def unwrapped(model: nn.Module) -> nn.Module:
    """The model itself, without wrappers."""
    while (inner := _wrapped(model)) is not None:
        model = inner
    return model


def _wrapped(model: nn.Module) -> nn.Module | None:
    """Return what is inside, if this is only a wrapper: it has a module and no parameters of its own."""
    if isinstance(inner := getattr(model, "_orig_mod", None), nn.Module):
        return inner
    alone = [name for name, _ in model.named_children()] == ["module"] and not [*model.parameters(recurse=False)]
    return model.get_submodule("module") if alone else None


def _layout(tensors: dict[str, Tensor]) -> Layout:
    trained = [name for name, tensor in tensors.items() if tensor.requires_grad]
    if not trained:
        raise ValueError("the model has no parameters that require a gradient: there is no training to be seen")
    for name in trained:
        if not tensors[name].is_floating_point():
            raise ValueError(f"{name} holds {tensors[name].dtype}; only real weights can be recorded")
    floating = [name for name, tensor in tensors.items() if tensor.is_floating_point() and name not in trained]
    moving = [name for name in floating if not isinstance(tensors[name], nn.Parameter)]
    names = (*trained, *moving, *(name for name in floating if name not in moving))
    return Layout(names, tuple(tensors[name].shape for name in names), len(trained), len(moving))


def _check_layout(layout: Layout, theta: Tensor) -> None:
    """Raise unless a layout is one of theta."""
    names, shapes = len(set(layout.names)), len(layout.shapes)
    if not names == len(layout.names) == shapes or not 0 < layout.trained <= names - layout.moving <= names:
        raise ValueError(f"its layout has {names} names, {shapes} shapes, {layout.trained} trained and {layout.moving}")
    if theta.ndim != 1 or len(theta) != layout.size or not theta.is_floating_point():
        raise ValueError(f"its weights have the shape {tuple(theta.shape)}, and must have {layout.size} numbers")


def _difference(before: Layout, now: Layout) -> str:
    was, is_ = (dict(zip(one.names, one.shapes, strict=True)) for one in (before, now))
    for name in {**was, **is_}:
        if name not in is_:
            return f"{name} is gone"
        if name not in was:
            return f"{name} was not there"
        if was[name] != is_[name]:
            return f"{name} had the shape {tuple(was[name])} and has {tuple(is_[name])}"
    for name in was:
        froze, freed = name in before.names[: before.trained], name in now.names[: now.trained]
        if froze != freed:
            return f"{name} was {'trained and is frozen' if froze else 'frozen and is trained'} now. Begin after that"
    return "its tensors stand in another order"


def _check_finite(tensors: dict[str, Tensor], updates: int) -> None:
    one = next(iter(tensors.values()))
    finite = torch.stack([torch.isfinite(tensor).all().to(one.device) for tensor in tensors.values()]).tolist()
    for name, is_finite in zip(tensors, finite, strict=True):
        if not is_finite:
            raise ValueError(
                f"{name} holds numbers that are not finite: this training has diverged. The {updates} updates before "
                "are as they were"
            )
