"""Stochastic depth: branches that are dropped for whole rows, as one more site of dropout.

    y = x + m f(x),        m = 0 with probability p, and 1 / (1 - p) otherwise; one m for each row

timm, torchvision and transformers each have a layer that multiplies by m. It draws by itself, and in training only, so
that its masks could be neither named nor drawn in prediction. In our copies of a module, `RowDropout` stands in for it.
A layer is known by what it does, not by its name.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from wherefrom.training import streams

_RATES = ("drop_prob", "p")  # names of the rate: in timm and transformers, and in torchvision
_ROWS = 64
_known: weakref.WeakKeyDictionary[nn.Module, tuple[float, bool]] = weakref.WeakKeyDictionary()  # what was tried


class RowDropout(nn.Module):
    """Drops whole rows: each is one channel of torch's dropout of channels."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return torch.feature_dropout(x.unsqueeze(1), self.p, self.training).squeeze(1)


def stand_ins(parts: Iterable[nn.Module]) -> dict[int, nn.Module]:
    """Return a RowDropout for each layer of stochastic depth among the parts of a module, by the layer's identity."""
    layers = [(part, rate) for part in parts if (rate := _rate(part)) > 0]
    return {id(part): RowDropout(rate).train(part.training) for part, rate in layers if _is_known(part, rate)}


def _is_known(part: nn.Module, rate: float) -> bool:
    """Return True if a layer drops rows; each is tried once, though all draws of a model may share it."""
    before, result = _known.get(part, (0.0, False))
    if before != rate:
        result = _drops_rows(part)
        _known[part] = rate, result
    return result


def _rate(part: nn.Module) -> float:
    """Return the rate of what may be such a layer, and 0 for others."""
    if isinstance(part, RowDropout) or type(part).__module__.startswith("torch.nn."):
        return 0.0
    if any(next(each, None) is not None for each in (part.children(), part.parameters(), part.buffers())):
        return 0.0
    rate = next((getattr(part, name) for name in _RATES if hasattr(part, name)), 0.0)
    return float(rate) if isinstance(rate, int | float) and 0 <= rate < 1 else 0.0


def _drops_rows(part: nn.Module) -> bool:
    """Return True if a layer is the identity in prediction, and multiplies rows by 0 or by 1 / (1 - p) in training.

    A copy is tried at a rate of one half, so that 64 rows show both.
    """
    tried = copy.deepcopy(part)
    setattr(tried, next(name for name in _RATES if hasattr(part, name)), 0.5)
    x = torch.arange(1.0, 1.0 + 6 * _ROWS).reshape(_ROWS, 3, 2)
    try:
        with torch.no_grad(), streams.torch_seeded(0, "probe"):
            predicted, trained = tried.eval()(x.clone()), tried.train()(x.clone())
    except Exception:  # whatever takes something else than a tensor
        return False
    if not (isinstance(predicted, Tensor) and isinstance(trained, Tensor)) or trained.shape != x.shape:
        return False
    factors = (trained / x).flatten(1)
    is_kept = factors[:, :1] == 2
    return (
        torch.equal(predicted, x)
        and torch.equal(factors, torch.where(is_kept, 2.0, 0.0).expand_as(factors))
        and 0 < int(is_kept.sum()) < _ROWS
    )
