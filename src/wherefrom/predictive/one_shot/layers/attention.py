"""Scaled dot-product attention: softmax(q k^T / sqrt(d) + bias) v, with q, k and v uncertain.

To first order in what varies, around weights p that are those of the expected scores, corrected to second order:

    p = softmax(s + c / 2),    c_j = Var(s_j) (1 - 2 p_j) + sum_r (s_rj - sum_i p_i s_ri)^2
    d out = sum_j p_j (ds_j (v_j - out) + dv_j),    ds_j = dq k_j + q dk_j

The rests of q, k and v are taken as independent of each other, though they have their inputs in common; all keys see
the same dq. Shared factors are followed. What is left out grows with the standard deviation of the scores: against
samples, the standard deviation of the outputs is 1 to 3% off where that is 0.2, 6% at 0.4, 12% at 0.75, 27% at 1.9.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap

from wherefrom.predictive.one_shot.layers.weights import bilinear
from wherefrom.predictive.one_shot.moments import Moments, added, rearranged, scaled
from wherefrom.predictive.one_shot.rules import rule
from wherefrom.training.attention import ATTENTION


@rule(ATTENTION)
def attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Moments:
    """Follow attention; `dropout_p` is the rate at which its weights are dropped.  # (..., queries, units)"""
    query, key, value = (part if isinstance(part, Moments) else Moments(part) for part in (query, key, value))
    if enable_gqa:
        times = query.mean.shape[-3] // key.mean.shape[-3]
        key, value = (rearranged(part, lambda v: v.repeat_interleave(times, -3)) for part in (key, value))
    query = scaled(query, query.mean.shape[-1] ** -0.5 if scale is None else scale)
    scores = bilinear(query, key, None, _scores)
    p = _weights(scores, _bias(scores.mean, attn_mask, is_causal))
    out = p @ value.mean
    factors = None if value.factors is None else vmap(lambda t: p @ t)(value.factors)
    if scores.factors is not None:
        centred = scores.factors - (p * scores.factors).sum(-1, keepdim=True)
        factors = added(factors, vmap(lambda s: (p * s) @ value.mean)(centred))
        if value.factors is not None:
            out = out + vmap(lambda s, t: (p * s) @ t)(centred, value.factors).sum(0)
    return Moments(out, _rest(query, key, value, p, out, dropout_p), factors)


def _scores(query: Tensor, key: Tensor) -> Tensor:
    return query @ key.transpose(-2, -1)


def _bias(scores: Tensor, mask: Any, is_causal: bool) -> Tensor:
    """Return what is added to scores: minus infinity where a query does not see a key."""
    mask = mask.mean if isinstance(mask, Moments) else mask
    bias = scores.new_zeros(())
    if mask is not None:
        bias = torch.where(mask, 0.0, -math.inf).to(scores) if mask.dtype == torch.bool else mask
    if is_causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        bias = bias + scores.new_zeros(later.shape).masked_fill(later, -math.inf)
    return bias


def _weights(scores: Moments, bias: Tensor) -> Tensor:
    """Return the expected weights, to second order, as a softmax, so that they stay weights."""
    p = torch.softmax(scores.mean + bias, -1)
    shift = torch.zeros_like(p) if scores.variance is None else scores.variance * (1 - 2 * p)
    if scores.factors is not None:
        shift = shift + (scores.factors - (p * scores.factors).sum(-1, keepdim=True)).square().sum(0)
    return torch.softmax(scores.mean + shift / 2 + bias, -1)


def _rest(query: Moments, key: Moments, value: Moments, p: Tensor, out: Tensor, rate: float) -> Tensor | None:
    """Return the variance of the outputs' rest."""
    parts = []
    if query.variance is not None:  # the slope of each output by each unit of its query
        together = torch.einsum("...ij,...je,...jd->...ied", p, key.mean, value.mean)
        slope = together - (p @ key.mean).unsqueeze(-1) * out.unsqueeze(-2)
        parts.append((query.variance.unsqueeze(-2) @ slope.square()).squeeze(-2))
    if key.variance is not None:
        moved = p.square() * _scores(query.mean.square() + query.total_variance, key.variance)
        around = moved @ value.mean.square() - 2 * out * (moved @ value.mean)
        parts.append((around + out.square() * moved.sum(-1, keepdim=True)).clamp_min(0.0))
    if value.variance is not None:
        parts.append(p.square() @ value.variance)
    if rate:
        parts.append(rate / (1 - rate) * (p.square() @ value.second_moment))
    return added(*parts) if parts else None
