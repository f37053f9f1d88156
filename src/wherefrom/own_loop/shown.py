"""Description of data that was trained on elsewhere: its columns, its targets, and the units in which it was seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from wherefrom.likelihoods import Likelihood
from wherefrom.training import streams
from wherefrom.training.data import Rows, Scaler, Schema, as_joined, as_rows, column_names
from wherefrom.training.joined import JoinedInputs
from wherefrom.training.mlp import MLP
from wherefrom.training.objective import Label
from wherefrom.variables.family import Factory

_PROBE_ROWS = 4
_UNITS = ("x_mean", "x_std", "y_mean", "y_std")


@dataclass(frozen=True, eq=False)
class Shown:
    """The given parts of the data: some rows of x, what y looks like, and whole tables, if they were given."""

    inputs: Tensor
    x_names: tuple[str, ...]
    targets: int | None
    y_names: tuple[str, ...]
    y_is_flat: bool | None
    classes: tuple[Label, ...]
    trained_on: Rows | None
    scaled_by: Rows | None
    aside: Rows | None
    likelihood: Likelihood
    joined: JoinedInputs | None

    @classmethod
    def of(cls, x: Any, y: Any, likelihood: Likelihood, data: Any, standardise_by: Any, held_out: Any) -> Shown:
        classes = _classes_of(y, likelihood, data)
        given = (data, standardise_by, held_out)
        tables = [None if table is None else as_rows(table, likelihood, classes) for table in given]
        known = next((table for table in tables if table is not None), None)
        if x is None and known is None:
            raise ValueError("give some rows of x, as the networks will be asked to predict on: x=x_train[:10]")
        inputs, joined = as_joined(x) if x is not None else (known.x, known.joined)  # type: ignore[union-attr]
        names = column_names(x) if x is not None else known.x_names  # type: ignore[union-attr]
        if not len(inputs):
            raise ValueError("x has no rows")
        for table in tables:
            if table is not None and (
                table.x.shape[1:] != inputs.shape[1:] or (table.joined is None) != (joined is None)
            ):
                raise ValueError(f"rows of x have the shapes {tuple(inputs.shape[1:])} and {tuple(table.x.shape[1:])}")
        targets: int | None
        is_flat: bool | None
        if y is not None:
            _, is_flat, targets, y_names, classes, _ = likelihood.encode(y, classes)
        elif known is not None:
            targets, y_names, is_flat, classes = known.targets, known.y_names, known.y_is_flat, known.classes
        else:
            targets, y_names, is_flat = len(classes) or None, (), True if classes else None
        trained_on, scaled_by, aside = tables
        return cls(inputs, names, targets, y_names, is_flat, classes, trained_on, scaled_by, aside, likelihood, joined)

    def example(self, units: Scaler, dtype: torch.dtype) -> Tensor:
        """A few rows as the networks see them."""
        rows = self.inputs[torch.arange(_PROBE_ROWS) % len(self.inputs)]
        return units.x(rows, dtype)

    def schema(self, targets: int) -> Schema:
        is_flat = targets == 1 if self.y_is_flat is None else self.y_is_flat
        digest = "" if self.trained_on is None else self.trained_on.schema.digest
        shape, is_float = tuple(self.inputs.shape[1:]), self.inputs.is_floating_point()
        return Schema(shape, self.x_names, is_float, targets, self.y_names, is_flat, digest, self.classes, self.joined)


def _classes_of(y: Any, likelihood: Likelihood, data: Any) -> tuple[Label, ...]:
    """The labels of y: those that the user has named, those in the data trained on, or those in some rows of y."""
    if likelihood.named_classes or likelihood.cells != "labels":
        return likelihood.named_classes
    if data is not None:
        return as_rows(data, likelihood).classes
    if y is not None:
        return likelihood.encode(y).classes
    raise ValueError("the classes are not known: name them, as likelihood=wf.Classification(classes=[...])")


def targets_of(factory: Factory, likelihood: Likelihood, example: Tensor) -> int:
    """Number of columns that y must have, by the outputs of the model."""
    if isinstance(factory, MLP):
        raise ValueError(f"{factory} takes its sizes from the data: give y, or some rows of it")
    with streams.torch_seeded(0, "probe"):
        module = factory()
    try:
        with torch.no_grad():
            answers = module.to(dtype=example.dtype if example.is_floating_point() else None).eval()(example)
    except (RuntimeError, IndexError):
        return 1  # the error is told where the model is built
    outputs = answers[0].numel() if isinstance(answers, Tensor) and answers.ndim else 1
    return max(1, outputs // likelihood.outputs(1))


def units_of(given: Scaler | Mapping[str, Any] | None, shown: Shown, targets: int | None) -> Scaler:
    """The units in which the networks saw the data: as it was, if nothing else is said."""
    if given is not None and shown.scaled_by is not None:
        raise ValueError("give either scaler or standardise_by")
    if shown.scaled_by is not None:
        return Scaler.of(shown.scaled_by, True, shown.likelihood)
    if isinstance(given, Scaler) and given.knots is not None:
        raise ValueError("networks that were trained elsewhere see no pieces: give a scaler of means and deviations")
    units = {name: getattr(given, name) for name in _UNITS} if isinstance(given, Scaler) else dict(given or {})
    if unknown := set(units) - set(_UNITS):
        raise ValueError(f"scaler has {', '.join(_UNITS)}, and no {', '.join(map(str, unknown))}")
    parts = []
    for name in _UNITS:
        part = torch.as_tensor(units.get(name, 0.0 if name.endswith("mean") else 1.0), dtype=torch.float64).cpu()
        if name.startswith("x"):
            shape = tuple(shown.inputs.shape[1:])
            part = part.reshape(1) if not part.ndim else part
            fits = part.ndim <= len(shape)
            fits = fits and all(a in (1, b) for a, b in zip(reversed(part.shape), reversed(shape), strict=False))
        else:
            shape = (part.numel() if targets is None else targets,)
            fits = part.ndim == 0 or part.shape == shape
            part = part.expand(shape).clone() if fits else part
        if not fits:
            raise ValueError(f"{name} has the shape {tuple(part.shape)}, which does not fit {shape}")
        if not bool(torch.isfinite(part).all()) or (name.endswith("std") and not bool((part > 0).all())):
            raise ValueError(f"{name} must hold finite numbers, and deviations above zero")
        parts.append(part)
    return Scaler(parts[0], parts[1], parts[2], parts[3], logs=shown.likelihood.learns_logs)
