"""Attention that drops units, with masks that are given from outside.

    softmax(q k^T / sqrt(d) + bias) * mask   times   v

nn.functional.scaled_dot_product_attention draws its masks itself, and has no setting for training: in prediction its
rate is zero. nn.MultiheadAttention calls it inside of one torch function, whose code is run here as its own calls.
"""

from __future__ import annotations

import math
from types import FunctionType
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

ATTENTION: Any = F.scaled_dot_product_attention
_MANY_HEADS: Any = F.multi_head_attention_forward

# The same code, but it does not hand itself over to whoever watches torch's functions: what it calls is seen instead.
_OPEN = FunctionType(
    _MANY_HEADS.__code__,
    vars(F) | {"has_torch_function": lambda tensors: False},
    _MANY_HEADS.__name__,
    _MANY_HEADS.__defaults__,
)


class Attention(NamedTuple):
    """The arguments of a call, by torch's names."""

    query: Tensor
    key: Tensor
    value: Tensor
    attn_mask: Tensor | None = None
    dropout_p: float = 0.0
    is_causal: bool = False
    scale: float | None = None
    enable_gqa: bool = False

    @property
    def mask_shape(self) -> tuple[int, ...]:
        """The shape of the weights that are dropped, of one row."""
        return (*self.query.shape[1:-1], self.key.shape[-2])

    @property
    def is_of_many(self) -> bool:
        """Return True within a vmap over members, which has no rule for torch's own attention on a CPU."""
        return any(torch._C._functorch.is_batchedtensor(part) for part in self[:3])

    def without_dropout(self) -> Tensor:
        """Compute it as in prediction."""
        if self.is_of_many:
            return self.masked(None)
        result: Tensor = ATTENTION(
            self.query,
            self.key,
            self.value,
            self.attn_mask,
            is_causal=self.is_causal,
            scale=self.scale,
            enable_gqa=self.enable_gqa,
        )
        return result

    def masked(self, mask: Tensor | None) -> Tensor:
        """Compute it with weights that are multiplied by a mask, where there is one."""
        query, key, value = self.query, self.key, self.value
        if self.enable_gqa:
            key, value = (part.repeat_interleave(query.shape[-3] // part.shape[-3], -3) for part in (key, value))
        scores = query @ key.transpose(-2, -1) * (1 / math.sqrt(query.shape[-1]) if self.scale is None else self.scale)
        if self.is_causal:
            later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
            scores = scores.masked_fill(later, -math.inf)
        if self.attn_mask is not None and self.attn_mask.dtype == torch.bool:
            scores = scores.masked_fill(~self.attn_mask, -math.inf)
        elif self.attn_mask is not None:
            scores = scores + self.attn_mask
        weights = torch.softmax(scores, -1)
        return (weights if mask is None else weights * mask) @ value


def is_closed(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return True if a call hides torch's own attention, and can be opened: it returns no weights."""
    if function is not _MANY_HEADS:
        return False
    return not kwargs.get("need_weights", args[15] if len(args) > 15 else True)


def opened(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Make the call, such that what it calls inside can be seen."""
    return _OPEN(*args, **kwargs)
