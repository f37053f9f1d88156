"""The part of a likelihood that training uses: how y is encoded, the number of outputs, and the loss.

The likelihoods themselves (room `likelihoods/`) also know what to predict; training never looks at that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self

from torch import Tensor

from wherefrom.training.losses import Loss
from wherefrom.training.offset import Offset

if TYPE_CHECKING:
    from wherefrom.training.data import Rows, Scaler

Label = str | int | bool


class Encoded(NamedTuple):
    """The user's y as numbers."""

    y: Tensor  # (rows, columns), double precision
    is_flat: bool  # the user's y was one-dimensional, so predictions are too
    targets: int  # how many things the network speaks of: columns, or classes
    names: tuple[str, ...] = ()  # of a frame's columns
    classes: tuple[Label, ...] = ()  # the labels whose numbers y holds, if it holds any
    logs: tuple[int, ...] = ()  # columns of y that hold the logarithm of the user's numbers


class Objective(Protocol):
    """The part of a likelihood that training sees."""

    settings: ClassVar[tuple[str, ...]]  # of the loss, that can be drawn at random
    learns_logs: ClassVar[bool]  # whether networks see the logarithm of y

    @property
    def fits_noise(self) -> bool:
        """True if rows must be held out of training to fit the noise on."""
        ...

    @property
    def held_out(self) -> float:
        """The fraction of the rows that is held out for that."""
        ...

    def encode(self, y: Any, classes: tuple[Label, ...] = ()) -> Encoded:
        """Check y and return it as numbers; `classes` are the labels that are known already, if any."""
        ...

    def units(self, y: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the location and scale that y, or its logarithm, is standardised by, where x is.  # (columns,) each"""
        ...

    def outputs(self, targets: int) -> int:
        """Return how many outputs the network must have."""
        ...

    def offset(self, x_names: tuple[str, ...], columns: int, targets: int) -> Offset | None:
        """Return the column of x whose logarithm is added to outputs, and is not seen by the network, if any."""
        ...

    def loss_for(self, scaler: Scaler) -> Loss:
        """Return the loss for y in these units."""
        ...

    def changed(self, settings: Mapping[str, Any]) -> Self:
        """Return the same likelihood with the drawn settings of its loss."""
        ...

    def row_weights(self, rows: Rows) -> Tensor | None:
        """Return what each row's loss is multiplied by, with a mean of one; None if all count the same."""
        ...

    def hopeless_loss(self, targets: int, is_standardised: bool) -> float:
        """Return a loss far above that of one answer for all rows."""
        ...

    def check_network(self, model: str, outputs: int, targets: int) -> None:
        """Raise where a model has the wrong number of outputs."""
        ...

    def doubt_network(
        self, model: str, outputs: Tensor, last_functions: frozenset[Any], is_trained: bool
    ) -> str | None:
        """Return a warning about the outputs of a fresh or trained network at some rows, if they look wrong."""
        ...


def own_row_weights(rows: Rows) -> Tensor | None:
    """The rows' own weights, with a mean of one.  # (rows,)"""
    return None if rows.weights is None else rows.weights / rows.weights.mean()
