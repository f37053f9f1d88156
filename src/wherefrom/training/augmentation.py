"""Augmentation: what is done, at random, to the rows of every batch before a member sees them.

An augmentation is any function (batch, generator) -> batch of the same shape, where the batch holds all rows of one
step of one member. The generator is torch's, on the CPU, and starts anew from the address (the member's stream, the
step): what a member sees does not depend on who else trains, nor on where a training was taken up again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from wherefrom.files.codec import stored
from wherefrom.files.stand_in import Code
from wherefrom.training import streams
from wherefrom.training.cohort import Augmentation

__all__ = ["Compose", "CropAndFlip"]

NOT_STORED = Code("the augmentation {name} is code, which is not stored: give it again, as wf.load(augment=...)")


@stored("CropAndFlip")
@dataclass(frozen=True)
class CropAndFlip:
    """Images moved by up to `padding` pixels, with zeros where nothing was, and every second one mirrored.

    Each row has its own move, uniform in both directions, and its own toss. `padding=0` only mirrors, `flip=False`
    only moves.

    >>> images = torch.arange(8.0).reshape(2, 1, 2, 2)
    >>> CropAndFlip(padding=1)(images, torch.Generator().manual_seed(0)).shape
    torch.Size([2, 1, 2, 2])
    """

    padding: int = 4
    flip: bool = True

    def __post_init__(self) -> None:
        if int(self.padding) != self.padding or self.padding < 0:
            raise ValueError(f"padding must be a whole number of pixels, not {self.padding!r}")

    def __call__(self, batch: Tensor, generator: torch.Generator) -> Tensor:
        """batch: (rows, channels, height, width)"""
        if batch.ndim != 4:
            raise ValueError(f"CropAndFlip takes rows of (channels, height, width), not {tuple(batch.shape[1:])}")
        rows, channels, height, width = batch.shape
        down, right = torch.randint(2 * self.padding + 1, (2, rows, 1), generator=generator)
        line, column = down + torch.arange(height), torch.arange(width).expand(rows, -1)
        if self.flip:
            mirrored = torch.randint(2, (rows, 1), generator=generator).bool()
            column = torch.where(mirrored, width - 1 - column, column)
        column = column + right
        padded = F.pad(batch, (self.padding,) * 4).flatten(2)  # (rows, channels, pixels)
        pixels = line.unsqueeze(2) * (width + 2 * self.padding) + column.unsqueeze(1)
        chosen = pixels.reshape(rows, 1, -1).to(batch.device).expand(-1, channels, -1)
        return padded.gather(2, chosen).view(batch.shape)


@stored("Compose", code={"steps": NOT_STORED})
@dataclass(frozen=True)
class Compose:
    """Several augmentations, one after another, on one generator.

    >>> Compose([CropAndFlip(padding=2), lambda batch, generator: batch * 2])(
    ...     torch.zeros(3, 1, 4, 4), torch.Generator()
    ... ).shape
    torch.Size([3, 1, 4, 4])
    """

    steps: Sequence[Augmentation]

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", tuple(self.steps))

    def __call__(self, batch: Tensor, generator: torch.Generator) -> Tensor:
        for step in self.steps:
            batch = step(batch, generator)
        return batch


def augmented(augment: Augmentation, batch: Tensor, stream: int, step: int) -> Tensor:
    """A member's batch as it sees it at a step (counted from 0); what no training could take is named."""
    # The generator may be given away, so it is a new one each time; the batch may be written to.
    try:
        result = augment(batch, streams.torch_generator(stream, "step", step))
    except RuntimeError as error:
        if batch.device.type == "cpu":
            raise
        raise ValueError(
            f"the augmentation {augment!r} failed on a batch on {batch.device}: {error}. Its generator is the CPU's: "
            "draw with it there and move the numbers, as torch.randn(batch.shape, generator=generator).to(batch.device)"
        ) from error
    if not isinstance(result, Tensor):
        raise TypeError(f"the augmentation {augment!r} must return a tensor; it returned {type(result).__name__}")
    if result.shape != batch.shape or result.dtype != batch.dtype:
        raise ValueError(
            f"the augmentation {augment!r} must keep a batch's shape and type: it was given {_described(batch)}, "
            f"and returned {_described(result)}"
        )
    # A sum that is a number has no missing term, and costs a tenth of asking them all.
    if not bool(torch.isfinite(result.sum())) and not bool(torch.isfinite(result).all()):
        raise ValueError(f"the augmentation {augment!r} returned missing or infinite values at step {step}")
    return result


def _described(batch: Tensor) -> str:
    return f"{tuple(batch.shape)} of {str(batch.dtype).removeprefix('torch.')}"
