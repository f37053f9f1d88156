"""The curvature of the loss at a trained member: generalised Gauss-Newton, in the shapes that can be inverted.

    H  =  sum over rows of  J^T L J,        J = d outputs / d theta,    L = second derivatives of the row's loss

It is positive where the loss is convex in the outputs, and is Fisher's information where the loss is a log-likelihood
of the exponential family. Four shapes of it are made here: its diagonal, all of it, the block of the last layer, and
Kronecker's product for each layer (Martens and Grosse, 2015), where a layer maps a to s = W a,

    H_W  =  mean of a a^T  x  sum of (ds)(ds)^T,        ds: derivatives of L^(1/2) J by s.

Each of them is kept as eigenvalues in rotated coordinates: another prior needs no other decomposition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wherefrom.laws.law import Finished
from wherefrom.laws.rotated import Block, Rotated

_ROWS = 256  # at a time, where all layers of a network are kept
JACOBIAN_NUMBERS = 2**23  # of the rows whose derivatives are taken together
_MOST_WHOLE = 2**13  # weights whose curvature is kept whole: half a gigabyte in double precision


@dataclass(frozen=True, eq=False)
class Curvature:
    """Eigenvalues of H, and the rotations to their coordinates.

    values: (weights,), in double precision; zero where nothing is learned.
    varies: (weights,), True where the structure speaks of a weight.
    rotations, blocks: as those of `Rotated`.
    """

    values: Tensor
    varies: Tensor
    rotations: Tensor
    blocks: Tensor

    def law(self, member: Finished, scale: Tensor) -> Rotated:
        """Return the Gaussian around the member's weights, with these standard deviations in rotated coordinates."""
        mean = member.theta[: member.size].cpu()
        padded = F.pad(torch.where(self.varies, scale, 0.0), (0, len(mean) - len(scale)))
        return Rotated(mean, padded.to(mean.dtype), self.rotations.to(mean.dtype), self.blocks)


def batches(member: Finished, weights: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield x, y and row weights, for as many rows as there is memory for the derivatives by all weights."""
    count = max(1, min(_ROWS, JACOBIAN_NUMBERS // max(1, weights * member.network.outputs)))
    for x, y, row_weights in member.batches(count):
        yield x, y, y.new_ones(len(y)) if row_weights is None else row_weights


def jacobian(
    outputs: Callable[[Tensor, Tensor], Tensor],
    parameters: Tensor,
    x: Tensor,
    stackable: bool,
    index: Tensor | None = None,
) -> Tensor:
    """Return derivatives of outputs by parameters, or by some of them.  # (rows, outputs, parameters)

    outputs: (parameters, x) -> (rows, outputs).
    stackable: True if vmap can call it for many rows at once; else they are taken one by one.
    index: numbers of the parameters (default None: all).
    """
    values = parameters if index is None else parameters[index]

    def answer(values: Tensor, row: Tensor) -> Tensor:
        theta = values if index is None else parameters.scatter(0, index, values)
        return outputs(theta, row.unsqueeze(0))[0]

    if stackable:
        return torch.func.vmap(torch.func.jacrev(answer), (None, 0))(values, x)
    rows = []
    for row in x:
        with torch.enable_grad():
            free = values.detach().clone().requires_grad_()
            each = [torch.autograd.grad(output, free, retain_graph=True)[0] for output in answer(free, row)]
        rows.append(torch.stack(each))
    return torch.stack(rows)


def slopes(member: Finished, x: Tensor, index: Tensor | None = None) -> Tensor:
    """Return derivatives of a member's outputs by its parameters, or by some.  # (rows, outputs, parameters)"""
    return jacobian(member.outputs, member.parameters, x, member.network.stackable, index)


def roots(member: Finished, outputs: Tensor, y: Tensor, row_weights: Tensor) -> Tensor:
    """Return the square root of each row's L, where the loss curves upwards.  # (rows, outputs, outputs)"""
    curved = member.information(outputs, y).cpu().double()  # some devices have neither float64 nor eigenvalues
    values, vectors = torch.linalg.eigh(curved)
    root = vectors * values.clamp_min(0.0).sqrt().unsqueeze(-2)
    return (root * row_weights.cpu().double().sqrt()[:, None, None]).to(outputs)


def diagonal(member: Finished) -> Curvature:
    """Return the diagonal of H."""
    values = _diagonal_of(member, None)
    return _without_blocks(values, torch.ones_like(values, dtype=torch.bool))


def full(member: Finished) -> Curvature:
    """Return all of H."""
    return _whole(member, 0, len(member.parameters), 'use structure="kron", "last_layer" or "diagonal"')


def last_layer(member: Finished) -> Curvature:
    """Return the block of H that belongs to the last layer with weights."""
    names = _called(member)
    if not names:
        raise ValueError('the network has no layer with trained weights of its own: use structure="diagonal"')
    first, last = _tensor_positions(member, [name for name in _layout(member) if name in names[-1]])
    return _whole(member, first, last, 'use structure="diagonal" or "kron"')


def kron(member: Finished) -> Curvature:
    """Return Kronecker's products for linear and convolutional layers, and the diagonal of H for what else there is."""
    layers = _Layers(member)
    size = len(member.parameters)
    values, rest = torch.zeros(size, dtype=torch.float64), torch.ones(size, dtype=torch.bool)
    rotations, blocks = [], []
    for block, inputs, slopes in layers.factors():
        row_values, left = torch.linalg.eigh(slopes)
        column_values, right = torch.linalg.eigh(inputs)
        products = torch.outer(row_values.clamp_min(0.0), column_values.clamp_min(0.0))
        block.write(products, values)
        block.write(torch.zeros(products.shape, dtype=torch.bool), rest)
        rotations += [left.flatten(), right.flatten()]
        blocks.append([block.start, block.bias, block.rows, block.columns])
    if rest.any():
        index = torch.nonzero(rest).flatten()
        values[index] = _diagonal_of(member, index.to(member.theta.device))
    if not blocks:
        return _without_blocks(values, torch.ones_like(rest))
    return Curvature(values, torch.ones_like(rest), torch.cat(rotations), torch.tensor(blocks))


STRUCTURES: dict[str, Callable[[Finished], Curvature]] = {
    "diagonal": diagonal,
    "kron": kron,
    "full": full,
    "last_layer": last_layer,
}


def _without_blocks(values: Tensor, varies: Tensor) -> Curvature:
    return Curvature(values, varies, values.new_zeros(0), torch.zeros(0, 4, dtype=torch.int64))


def _rooted(member: Finished, index: Tensor | None) -> Iterator[Tensor]:
    """Yield L^(1/2) J, a few rows at a time.  # (rows, outputs, parameters)"""
    for x, y, row_weights in batches(member, len(member.parameters) if index is None else len(index)):
        root = roots(member, member.outputs(member.parameters, x).detach(), y, row_weights)
        yield root.mT @ slopes(member, x, index)


def _diagonal_of(member: Finished, index: Tensor | None) -> Tensor:
    total = torch.zeros(len(member.parameters) if index is None else len(index), dtype=torch.float64)
    for part in _rooted(member, index):
        total += part.square().sum((0, 1)).cpu()
    return total


def _whole(member: Finished, first: int, last: int, instead: str) -> Curvature:
    """Return the block of H between two weights."""
    size = last - first
    if size > _MOST_WHOLE:
        raise ValueError(
            f"the curvature of {size:,} weights would have {size**2:,} numbers; {_MOST_WHOLE:,} weights are the most: "
            + instead
        )
    index = None if size == len(member.parameters) else torch.arange(first, last, device=member.theta.device)
    total = torch.zeros(size, size, dtype=torch.float64)
    for part in _rooted(member, index):
        flat = part.flatten(0, 1)
        total += (flat.T @ flat).cpu()
    each, vectors = torch.linalg.eigh(total)
    values = torch.zeros(len(member.parameters), dtype=torch.float64)
    values[first:last] = each.clamp_min(0.0)
    varies = torch.zeros(len(values), dtype=torch.bool)
    varies[first:last] = True
    rotations = torch.cat([values.new_ones(1), vectors.flatten()])
    return Curvature(values, varies, rotations, torch.tensor([[first, -1, 1, size]]))


# ---------------------------------------------------------------------- the network's layers


def _layout(member: Finished) -> Sequence[str]:
    """Return the names of the trained tensors, in theta's order."""
    layout = member.network.layout
    names: Sequence[str] = layout.names[: layout.trained]
    return names


def _tensor_positions(member: Finished, names: Sequence[str]) -> tuple[int, int]:
    """Return where tensors begin and end in theta; they stand one after the other."""
    layout = member.network.layout
    numbers = [layout.names.index(name) for name in names]
    assert numbers == list(range(numbers[0], numbers[-1] + 1))
    return sum(layout.sizes[: numbers[0]]), sum(layout.sizes[: numbers[-1] + 1])


def _trained_of(module: nn.Module, name: str, trained: Sequence[str]) -> set[str]:
    """Return the names of a module's parameters that are trained, without those of its parts."""
    prefix = f"{name}." if name else ""
    return {prefix + name for name, _ in module.named_parameters(recurse=False)} & set(trained)


def _called(member: Finished) -> list[set[str]]:
    """Return the trained tensors of each module that has any, in the order in which they are last called."""
    skeleton: nn.Module = member.network.skeleton(False)
    trained = _layout(member)
    order: list[set[str]] = []

    def note(names: set[str]) -> Callable[..., None]:
        def called(*_: Any) -> None:
            if names in order:
                order.remove(names)
            order.append(names)

        return called

    of_modules = [(module, _trained_of(module, name, trained)) for name, module in skeleton.named_modules()]
    handles = [module.register_forward_hook(note(names)) for module, names in of_modules if names]
    try:
        x, _, _ = next(member.batches(1))
        member.outputs(member.parameters, x)
    finally:
        for handle in handles:
            handle.remove()
    return order


class _Layers:
    """The linear and convolutional layers of a network, whose inputs and slopes a pass leaves behind."""

    def __init__(self, member: Finished) -> None:
        self.member, trained = member, _layout(member)
        skeleton: nn.Module = member.network.skeleton(False)
        self.layers: dict[nn.Module, Block] = {}
        for name, module in skeleton.named_modules():
            names = _trained_of(module, name, trained)
            if _is_matrix(module) and any(name.endswith("weight") for name in names):
                self.layers[module] = self._block(names)

    def _block(self, names: set[str]) -> Block:
        layout = self.member.network.layout
        weight = next(name for name in names if name.endswith("weight"))
        bias = next((name for name in names if name.endswith("bias")), None)
        rows, *others = layout.shapes[layout.names.index(weight)]
        start, _ = _tensor_positions(self.member, [weight])
        bias_start = -1 if bias is None else _tensor_positions(self.member, [bias])[0]
        return Block(start, bias_start, rows, torch.Size(others).numel())

    def factors(self) -> Iterator[tuple[Block, Tensor, Tensor]]:
        """Yield each layer's block, the mean of a a^T, and the sum of (ds)(ds)^T, in double precision."""
        widths = {module: (block.width, block.rows) for module, block in self.layers.items()}
        inputs = {m: torch.zeros(width, width, dtype=torch.float64) for m, (width, _) in widths.items()}
        slopes = {m: torch.zeros(rows, rows, dtype=torch.float64) for m, (_, rows) in widths.items()}
        counts = dict.fromkeys(self.layers, 0.0)
        for x, y, row_weights in batches(self.member, 1):
            calls, outputs = self._passed(x)
            root = roots(self.member, outputs.detach(), y, row_weights)
            for module, seen, _ in calls:
                a = _positions(module, seen, self.layers[module].bias >= 0)  # (rows, positions, width)
                weighted = a * row_weights[:, None, None]
                inputs[module] += (weighted.flatten(0, 1).T @ a.flatten(0, 1)).cpu()
                counts[module] += float(row_weights.sum()) * a.shape[1]
            answers = [answer for _, _, answer in calls]
            for column in root.unbind(-1) if answers else ():
                each = torch.autograd.grad(
                    (outputs * column).sum(), answers, retain_graph=True, allow_unused=True, materialize_grads=True
                )
                for (module, _, _), slope in zip(calls, each, strict=True):
                    flat = _channels_last(module, slope).flatten(0, -2)
                    slopes[module] += (flat.T @ flat).cpu()
        for module, block in self.layers.items():
            if counts[module]:
                yield block, inputs[module] / counts[module], slopes[module]

    def _passed(self, x: Tensor) -> tuple[list[tuple[nn.Module, Tensor, Tensor]], Tensor]:
        """Return the layer, the input and the output of every call of a layer, and the network's outputs."""
        calls: list[tuple[nn.Module, Tensor, Tensor]] = []

        def note(module: nn.Module, inputs: tuple[Tensor, ...], answer: Tensor) -> None:
            calls.append((module, inputs[0].detach(), answer))

        handles = [module.register_forward_hook(note) for module in self.layers]
        try:
            with torch.enable_grad():
                outputs = self.member.outputs(self.member.parameters.detach().requires_grad_(), x)
        finally:
            for handle in handles:
                handle.remove()
        return calls, outputs


def _is_matrix(module: nn.Module) -> bool:
    """Return True for layers that multiply by one matrix at each position."""
    if type(module) is nn.Conv2d:
        return module.groups == 1 and module.padding_mode == "zeros" and not isinstance(module.padding, str)
    return type(module) is nn.Linear


def _positions(module: nn.Module, x: Tensor, has_bias: bool) -> Tensor:
    """Return what the layer's matrix multiplies at each position of a row.  # (rows, positions, width)"""
    if isinstance(module, nn.Conv2d):
        padding: Any = module.padding
        patches = F.unfold(x, module.kernel_size, module.dilation, padding, module.stride)
        a = patches.mT
    else:
        a = x.reshape(len(x), -1, x.shape[-1])
    return F.pad(a, (0, 1), value=1.0) if has_bias else a


def _channels_last(module: nn.Module, values: Tensor) -> Tensor:
    return values.movedim(1, -1) if isinstance(module, nn.Conv2d) else values
