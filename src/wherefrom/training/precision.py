"""Agreement of two computations of the same numbers, by the precision of their products.

Rounding errors are a part of the largest numbers that were added up, not of each result: what comes out near zero has
no correct digits. So tolerances are relative to the largest answer.

    float32, float64 on a CPU     1e-3     another processor, or another order of additions
    float32 on other devices      1e-2     TF32, which CUDA uses for convolutions by default, keeps 11 of 24 bits
    bfloat16 (autocast)           3e-2     8 bits
"""

from __future__ import annotations

import torch
from torch import Tensor


def tolerance(device: torch.device, dtype: torch.dtype) -> float:
    """Return how far two computations on a device may be apart, relative to the largest answer.

    >>> tolerance(torch.device("cpu"), torch.float32), tolerance(torch.device("cuda"), torch.float32)
    (0.001, 0.01)
    """
    if dtype == torch.bfloat16:
        return 3e-2
    return 1e-2 if device.type != "cpu" and dtype != torch.float64 else 1e-3


def agree(answers: Tensor, expected: Tensor, relative: float = 1e-3) -> bool:
    """Return True if answers are those that were expected up to rounding, infinities and missing values included.

    >>> agree(torch.tensor([100.0, 1e-3]), torch.tensor([100.01, -1e-3]))
    True
    >>> agree(torch.ones(2), torch.tensor([1.0, 1.1]))
    False
    """
    if answers.shape != expected.shape:
        return False
    largest = float(torch.nan_to_num(expected.detach(), 0.0, 0.0, 0.0).abs().max()) if expected.numel() else 0.0
    return torch.allclose(answers, expected, rtol=0, atol=relative * largest + 1e-7, equal_nan=True)
