"""Augmentation: what is done, at random, to the rows of every batch before a member sees them.

An augmentation is any function (batch, generator) -> batch of the same shape, where the batch holds all rows of one
step of one member. The generator is torch's, on the CPU, and starts anew from the address (the member's stream, the
step): what a member sees does not depend on who else trains, nor on where a training was taken up again.

One that draws first and then acts, by `draw(shape, generator)` and `apply(batch, drawn)`, costs a GPU no waiting: the
numbers of many steps are drawn on the CPU and sent at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from wherefrom.devices import sent
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

    padding: pixels by which an image can be shifted (default 4).
    flip: mirror half of the images (default True).

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
        drawn = self.draw(batch.shape, generator)
        return self.apply(batch, [each.to(batch.device) for each in drawn])

    def draw(self, shape: torch.Size, generator: torch.Generator) -> list[Tensor]:
        """Draw the moves, down and right, and which rows are mirrored.  # (2, rows, 1) and (rows, 1)"""
        moves = torch.randint(2 * self.padding + 1, (2, shape[0], 1), generator=generator)
        return [moves, torch.randint(2, (shape[0], 1), generator=generator)] if self.flip else [moves]

    def apply(self, batch: Tensor, drawn: list[Tensor]) -> Tensor:
        """Move and mirror a batch by numbers that are on its device."""
        if batch.ndim != 4:
            raise ValueError(f"CropAndFlip takes rows of (channels, height, width), not {tuple(batch.shape[1:])}")
        rows, channels, height, width = batch.shape
        down, right = drawn[0]
        line = down + torch.arange(height, device=batch.device)
        column = torch.arange(width, device=batch.device).expand(rows, -1)
        if self.flip:
            column = torch.where(drawn[1].bool(), width - 1 - column, column)
        column = column + right
        padded = F.pad(batch, (self.padding,) * 4).flatten(2)  # (rows, channels, pixels)
        pixels = line.unsqueeze(2) * (width + 2 * self.padding) + column.unsqueeze(1)
        return padded.gather(2, pixels.reshape(rows, 1, -1).expand(-1, channels, -1)).view(batch.shape)


@stored("Compose", code={"steps": NOT_STORED})
@dataclass(frozen=True)
class Compose:
    """Several augmentations, one after another, on one generator.

    steps: the augmentations, in their order.

    >>> Compose([CropAndFlip(padding=2), lambda batch, generator: batch * 2])(
    ...     torch.zeros(3, 1, 4, 4), torch.Generator()
    ... ).shape
    torch.Size([3, 1, 4, 4])
    """

    steps: Sequence[Any]  # augmentations

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", tuple(self.steps))

    def __call__(self, batch: Tensor, generator: torch.Generator) -> Tensor:
        for step in self.steps:
            batch = step(batch, generator)
        return batch

    def draw(self, shape: torch.Size, generator: torch.Generator) -> list[Any]:
        """Draw what each step draws; for steps that all draw first."""
        return [step.draw(shape, generator) for step in self.steps]

    def apply(self, batch: Tensor, drawn: list[Any]) -> Tensor:
        """Apply every step to a batch, by numbers that are on its device."""
        for step, numbers in zip(self.steps, drawn, strict=True):
            batch = step.apply(batch, numbers)
        return batch


def draws_first(augment: Augmentation) -> bool:
    """Return True if an augmentation can draw its numbers before it gets a batch."""
    if isinstance(augment, Compose):
        return all(map(draws_first, augment.steps))
    owners = [
        next((c for c in type(augment).__mro__ if name in vars(c)), None) for name in ("draw", "apply", "__call__")
    ]
    return None not in owners and len(set(owners)) == 1  # a class that overrides one of them means something else


def drawn_ahead(
    augment: Any, streams_and_steps: Sequence[tuple[int, int, torch.Size]], device: torch.device
) -> list[Any]:
    """Draw the numbers of some batches, each given by its stream, its step and its shape, and send them all at once."""
    drawn = [
        augment.draw(shape, streams.torch_generator(stream, "step", step)) for stream, step, shape in streams_and_steps
    ]
    leaves, structure = tree_flatten(drawn)
    moved = list(leaves)
    for dtype in {leaf.dtype for leaf in leaves}:
        of_type = [k for k, leaf in enumerate(leaves) if leaf.dtype == dtype]
        together = sent(torch.cat([leaves[k].reshape(-1) for k in of_type]), device)
        for k, numbers in zip(of_type, together.split([leaves[k].numel() for k in of_type]), strict=True):
            moved[k] = numbers.view(leaves[k].shape)
    return list(tree_unflatten(moved, structure))


def augmented(augment: Augmentation, batch: Tensor, stream: int, step: int) -> Tensor:
    """A member's batch as it sees it at a step (counted from 0); what no training could take is named."""
    result = seen(augment, batch, stream, step)
    # A sum that is a number has no missing term, and costs a tenth of asking them all.
    if not bool(torch.isfinite(result.sum())) and not bool(torch.isfinite(result).all()):
        raise not_finite(augment, step)
    return result


def seen(augment: Any, batch: Tensor, stream: int, step: int, drawn: Any = None) -> Tensor:
    """A member's batch as it sees it at a step, by numbers that were drawn ahead, if any; it may not be finite."""
    # The generator may be given away, so it is a new one each time; the batch may be written to.
    try:
        if drawn is None:
            result = augment(batch, streams.torch_generator(stream, "step", step))
        else:
            result = augment.apply(batch, drawn)
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
    return result


def not_finite(augment: Augmentation, step: int) -> ValueError:
    """Return the error of an augmentation that made numbers of which none can be learned."""
    return ValueError(f"the augmentation {augment!r} returned missing or infinite values at step {step}")


def _described(batch: Tensor) -> str:
    return f"{tuple(batch.shape)} of {str(batch.dtype).removeprefix('torch.')}"
