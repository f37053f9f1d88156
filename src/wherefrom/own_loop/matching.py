"""The names of found weights -> the names of a network's own tensors: what stands in front of them often differs.

A Lightning module holds its network as `model.`, DistributedDataParallel as `module.`; a network that wraps another
one has more in front than a file of the inner one. Where all found names begin alike, that is taken off, and whatever
all of the network's names begin with is put on, if that makes them fit. Where weights of something else stand
beside them, the user has to say which are meant.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from wherefrom.own_loop.weights import some


@dataclass(frozen=True)
class Expected:
    """The tensors of a network: each by its own name, and by those of other places that share it."""

    shapes: dict[str, tuple[int, ...]]  # by own name
    own: dict[str, str]  # all names -> own name
    optional: frozenset[str]  # own names of what no state dict holds, and of whole numbers, which are no weights

    @classmethod
    def of(cls, module: nn.Module) -> Expected:
        firsts: dict[int, str] = {}
        shapes, own, whole = {}, {}, set()
        for name, tensor in [
            *module.named_parameters(remove_duplicate=False),
            *module.named_buffers(remove_duplicate=False),
        ]:
            own[name] = firsts.setdefault(id(tensor), name)
            shapes[own[name]] = tuple(tensor.shape)
            whole |= set() if tensor.is_floating_point() else {own[name]}
        stored = {own[name] for name in module.state_dict(keep_vars=True) if name in own}
        return cls(shapes, own, frozenset((set(shapes) - stored) | whole))

    def found_in(self, names: Collection[str], off: str, on: str) -> dict[str, str] | None:
        """Own name -> found name, with `off` taken off and `on` put on, if then they are the network's."""
        renamed = {on + name[len(off) :]: name for name in names if name.startswith(off)}
        if not set(renamed) <= set(self.own):
            return None
        found = {self.own[name]: before for name, before in renamed.items()}
        return found if set(self.shapes) - self.optional <= set(found) else None


def matched(expected: Expected, tensors: Mapping[str, Tensor], prefix: str | None, who: str) -> dict[str, str]:
    """Own name -> found name, for all of the network's tensors but those that are optional and were not found."""
    fronts = _begin_alike(tensors) if prefix is None else [f"{prefix.removesuffix('.')}." if prefix else ""]
    ways = [(off, on) for off in fronts for on in _begin_alike(expected.shapes)]
    for found in (expected.found_in(tensors, off, on) for off, on in ways):
        if found is not None:
            for own, name in found.items():
                if (shape := tuple(tensors[name].shape)) != expected.shapes[own]:
                    raise ValueError(
                        f"{who} does not fit the model: {name} has the shape {shape} there, and "
                        f"{expected.shapes[own]} in the model"
                    )
            return found
    raise ValueError(_why_not(expected, tensors, who))


def _begin_alike(names: Collection[str]) -> list[str]:
    """Return what all names begin with, in whole parts: nothing, then more and more."""
    parts = [name.split(".") for name in names]
    fronts = [""]
    for depth in range(min(map(len, parts)) - 1):
        if len({part[depth] for part in parts}) > 1:
            break
        fronts.append(f"{fronts[-1]}{parts[0][depth]}.")
    return fronts


def _why_not(expected: Expected, found: Collection[str], who: str) -> str:
    deeper = {".".join([*name.split(".")[:depth], ""]) for name in found for depth in range(1, name.count(".") + 1)}
    added = _begin_alike(expected.shapes)
    fits = [front for front in sorted(deeper) if any(expected.found_in(found, front, on) is not None for on in added)]
    if fits:
        which = "this is" if len(fits) == 1 else "one of these is"
        return (
            f"{who} holds more than one model's weights ({some(found)}). If {which} the one that is meant, say "
            f"{' or '.join(f'prefix={front!r}' for front in fits)}"
        )
    lacks = [name for name in expected.shapes if name not in expected.optional and name not in found]
    extra = [name for name in found if name not in expected.own]
    return (
        f"{who} does not fit the model. "
        + (f"The model has {some(lacks)}, which {who} has not. " if lacks else "")
        + (f"{who[:1].upper()}{who[1:]} has {some(extra)}, which the model has not. " if extra else "")
        + "Is it of another model, or does something stand in front of its names (prefix=...)?"
    )
