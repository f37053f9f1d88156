"""Data as the user has it -> checked tensors; standardisation in, the user's units out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from wherefrom.files.codec import stored
from wherefrom.files.digests import digest
from wherefrom.training import streamed
from wherefrom.training.joined import JoinedInputs, check_same, inputs_of, is_several, names_of
from wherefrom.training.objective import Label, Objective
from wherefrom.training.offset import geometric_mean
from wherefrom.training.pieces import Knots, Pieces
from wherefrom.training.streamed import Streamed

_ROWS_AT_ONCE = 10_000
_NUMBERS_AT_ONCE = 2**25  # of all columns: of more, moments are computed one column at a time
_MOST = 1e100  # whose squares, and sums of them, are numbers

Standardise = bool | Pieces | dict[str, bool] | tuple[bool, ...]  # the last two for each of several inputs


@dataclass(frozen=True)
class Rows:
    """Checked data: x (rows, ...), y (rows, outputs), and what is needed to speak of them in the user's terms."""

    x: Tensor  # or a Streamed one, in its place
    y: Tensor
    x_names: tuple[str, ...]  # of a frame's columns; empty for arrays
    y_names: tuple[str, ...]
    y_is_flat: bool  # the user's y was one-dimensional, so predictions are too
    targets: int  # how many things the network speaks of: columns of y, or classes
    classes: tuple[Label, ...] = ()  # the labels whose numbers y holds, if it holds any
    weights: Tensor | None = None  # (rows,), how much each counts in relation to the others
    left_out_by: Tensor | None = None  # (rows,), the draw of D whose members did not see each, and are to predict it
    versions: Tensor | None = None  # (draws, rows, ...), x to train on in each draw of D, where parts of it are random
    y_logs: tuple[int, ...] = ()  # columns of y that hold the logarithm of the user's numbers
    joined: JoinedInputs | None = None  # the inputs that stand side by side in x, where there are several

    @property
    def truth(self) -> Any:
        """y as its owner would write it: classes by their labels, and no logarithms."""
        is_labels = self.classes and self.y.shape[1] == 1
        return [self.classes[int(number)] for number in self.y.flatten()] if is_labels else self.numbers

    @property
    def numbers(self) -> Tensor:
        """y in the user's units; classes by their numbers.  # (rows, columns)"""
        if not self.y_logs:
            return self.y
        is_log = torch.tensor([column in self.y_logs for column in range(self.y.shape[1])])
        return torch.where(is_log, self.y.exp(), self.y)

    def __len__(self) -> int:
        return len(self.y)

    def take(self, index: Any) -> Rows:
        """Some of the rows: a slice, an array of indices, or a mask."""
        if not isinstance(index, slice):
            index = self._checked(index)
        weights, by = (None if each is None else each[index] for each in (self.weights, self.left_out_by))
        versions = None if self.versions is None else self.versions[:, index]
        return replace(self, x=self.x[index], y=self.y[index], weights=weights, left_out_by=by, versions=versions)

    @property
    def that_count(self) -> Rows:
        """Without those that weigh nothing: to weigh a row nothing is to leave it out."""
        if self.weights is None or bool((self.weights > 0).all()):
            return self
        if not bool((self.weights > 0).any()):
            raise ValueError("all rows weigh nothing: there is nothing to learn from")
        return self.take(self.weights > 0)

    def _checked(self, index: Any) -> Tensor:
        if isinstance(index, tuple) and len(index) == 2:
            raise ValueError(
                "a fold is the indices of its training rows alone, not a pair: "
                "folds=[train for train, _ in KFold(5).split(x)]"
            )
        chosen = torch.as_tensor(np.asarray(index))
        if not len(chosen):
            raise ValueError("a fold has no rows")
        if chosen.ndim != 1 or chosen.is_floating_point():
            raise ValueError(f"a fold must be a list of row numbers or a mask, not of shape {tuple(chosen.shape)}")
        if chosen.dtype == torch.bool:
            if len(chosen) != len(self):
                raise ValueError(f"a fold's mask has {len(chosen)} entries for {len(self)} rows")
            chosen = torch.nonzero(chosen).flatten()
        if not len(chosen):
            raise ValueError("a fold has no rows")
        if int(chosen.min()) < 0 or int(chosen.max()) >= len(self):
            raise ValueError(f"a fold names rows outside of 0 to {len(self) - 1}")
        if len(torch.unique(chosen)) < len(chosen):
            raise ValueError("a fold names rows twice; let a draw of the data do that on purpose")
        return chosen.long()

    @property
    def schema(self) -> Schema:
        parts = (self.x, self.y) if self.weights is None else (self.x, self.y, self.weights)
        return Schema(
            tuple(self.x.shape[1:]),
            self.x_names,
            self.x.is_floating_point(),
            self.targets,
            self.y_names,
            self.y_is_flat,
            digest(*(part.fingerprint() if isinstance(part, Streamed) else part for part in parts)),
            self.classes,
            self.joined,
        )


@stored("Schema")
@dataclass(frozen=True)
class Schema:
    """The shape and names that data must have to be predicted, without the data."""

    x_shape: tuple[int, ...]
    x_names: tuple[str, ...]
    x_is_float: bool
    targets: int
    y_names: tuple[str, ...]
    y_is_flat: bool
    digest: str  # of the training rows, to know them again
    classes: tuple[Label, ...] = ()
    joined: JoinedInputs | None = None

    def inputs(self, x: Any) -> Tensor:
        """x as a tensor, if it looks like what was trained on; several inputs side by side."""
        if self.joined is not None and not isinstance(x, Tensor | Streamed | Dataset):  # others have one row of numbers
            self.joined.check_inputs(x)
        if is_several(x) or (self.joined is not None and isinstance(x, Dataset)):
            x, joined = as_joined(x)
            check_same(self.joined, joined)
        names = column_names(x)
        if names and self.x_names and names != self.x_names:
            if sorted(names) == sorted(self.x_names):
                raise ValueError(f"x has its columns in another order than in training: use x[{list(self.x_names)}]")
            missing = [name for name in self.x_names if name not in names]
            extra = [name for name in names if name not in self.x_names]
            raise ValueError(f"x has other columns than in training: missing {missing}, not known {extra}")
        tensor = as_inputs(x)
        if self.x_is_float and not tensor.is_floating_point():
            tensor = tensor.double()
        if not self.x_is_float and tensor.is_floating_point():
            raise ValueError("the model was trained on whole numbers (indices), but x holds real ones")
        if not len(tensor):
            raise ValueError("x has no rows")
        if tuple(tensor.shape[1:]) != self.x_shape:
            raise ValueError(
                f"a row of x has shape {tuple(tensor.shape[1:])}, but the model was trained on rows of {self.x_shape}"
            )
        return tensor


def as_rows(data: Any, likelihood: Objective, known: Sequence[Label] = ()) -> Rows:
    """Rows from (x, y) or (x, y, weights) of arrays, tensors or frames, or from a map-style torch Dataset.

    The likelihood encodes y; `known` are its classes, if it has any that are known already.
    """
    if isinstance(data, Rows):
        return data
    w_raw, joined = None, None
    if isinstance(data, tuple | list) and len(data) in (2, 3):
        x_raw, y_raw, w_raw = data if len(data) == 3 else (*data, None)
    elif isinstance(data, Dataset):
        x_raw, y_raw, w_raw, joined = streamed.of_dataset(data)
    else:
        raise TypeError(
            f"data must be (x, y), (x, y, weights) or a map-style torch Dataset, not {type(data).__name__}: "
            "marginalise(training, (x, y), over=[...])"
        )
    x, joined = (as_inputs(x_raw), joined) if isinstance(data, Dataset) else as_joined(x_raw)
    y, is_flat, targets, y_names, classes, logs = likelihood.encode(y_raw, tuple(known))
    if len(x) != len(y):
        raise ValueError(f"x has {len(x)} rows but y has {len(y)}")
    if len(y) == 0:
        raise ValueError("the data has no rows")
    _check_same_index(x_raw, y_raw)
    names = column_names(x_raw)
    if (offset := likelihood.offset(names, _columns(x), targets)) is not None:
        if joined is not None:
            raise ValueError("an exposure is a column of a single table, and x holds several inputs")
        offset.check(x, names)
    weights = None if w_raw is None else as_weights(w_raw, len(y))
    return Rows(x, y, names, y_names, is_flat, targets, classes, weights, y_logs=logs, joined=joined)


def _columns(x: Tensor) -> int:
    """Number of columns of a table; 0 where x is none."""
    return int(x.shape[1]) if x.ndim == 2 else 0


def as_weights(weights: Any, rows: int) -> Tensor:
    """Return the weight of each row, in double precision.  # (rows,)"""
    tensor = _as_tensor(weights, "weights").double()
    if tensor.shape != (rows,):
        raise ValueError(f"weights must have one number for each of the {rows} rows, not shape {tuple(tensor.shape)}")
    _check_finite(tensor, "weights", ())
    if bool((tensor < 0).any()):
        row = int(torch.nonzero(tensor < 0)[0])
        raise ValueError(f"weights must not be negative; the one of row {row} is {float(tensor[row]):g}")
    if not bool((tensor > 0).any()):
        raise ValueError("all weights are zero: there is nothing to learn from")
    return tensor


def as_joined(x: Any) -> tuple[Tensor, JoinedInputs | None]:
    """Return inputs as one tensor, and what stands side by side in it where there are several."""
    if isinstance(x, Dataset):
        return streamed.inputs_of_dataset(x)
    if not is_several(x):
        return as_inputs(x), None
    inputs = inputs_of(x)
    if not inputs:
        raise ValueError("x holds no inputs")
    tensors = [_as_one_of_several(part, called) for called, part in inputs.items()]
    joined = JoinedInputs.of(names_of(x), tensors, [column_names(part) for part in inputs.values()])
    return joined.joined(tensors), joined


def _as_one_of_several(x: Any, called: str) -> Tensor:
    """Return one of several inputs, checked: real numbers, whole ones or truth values.  # (rows, ...)"""
    tensor = _as_tensor(x, called)
    if not tensor.ndim:
        raise ValueError(f"{called} is a single number: give one for each row")
    tensor = tensor if tensor.dtype == torch.bool else streamed.as_numbers(tensor)
    _check_finite(tensor, called, column_names(x))
    return tensor


def as_inputs(x: Any) -> Tensor:
    """A finite tensor of inputs in its own precision; integer arrays (for embeddings) stay integers, frames do not.

    Images of bytes are pixels, and become numbers from 0 to 1. What is streamed stays so, and was checked as it came.
    """
    if isinstance(x, Streamed):
        return cast(Tensor, x)
    tensor = streamed.as_numbers(streamed.inputs_of_dataset(x)[0] if isinstance(x, Dataset) else _as_tensor(x, "x"))
    if tensor.ndim < 2:
        raise ValueError(
            f"x must have rows and columns; its shape is {tuple(tensor.shape)}. "
            "For a single column use x.reshape(-1, 1), for a single row x.reshape(1, -1)"
        )
    if column_names(x) and not tensor.is_floating_point():
        tensor = tensor.double()
    _check_finite(tensor, "x", column_names(x))
    if tensor.dtype == torch.float64 and tensor.numel() and (largest := _largest(tensor)) > _MOST:
        raise ValueError(f"x is as large as {float(largest):.3g}, too large to be squared: give it in other units")
    return tensor


def _largest(tensor: Tensor) -> float:
    """Return the largest number, whatever its sign."""
    return max(abs(float(end)) for end in tensor.aminmax())


def as_targets(y: Any) -> Tensor:
    tensor = _as_tensor(y, "y")
    if tensor.dtype == torch.bool:
        raise ValueError(
            "y is true or false, which is no quantity to regress; if it is meant as 0 and 1, say y.astype(float)"
        )
    tensor = tensor.double()
    if tensor.ndim not in (1, 2):
        raise ValueError(f"y must have shape (rows,) or (rows, outputs), not {tuple(tensor.shape)}")
    _check_finite(tensor, "y", column_names(y))
    if len(tensor) and float(largest := tensor.abs().max()) > _MOST:
        raise ValueError(f"y is as large as {float(largest):.3g}, too large to be squared: give it in other units")
    return tensor


def as_classes(y: Any, known: int | tuple[Label, ...] | None) -> tuple[Tensor, tuple[Label, ...]]:
    """Every row's class by its number, in double precision as all y, and the labels that the numbers stand for.

    # (rows,)
    """
    array = _labels(y)
    if known is None:
        labels = tuple(np.unique(array).tolist())
        if len(labels) < 2:
            said = f"only {labels[0]!r}" if labels else "nothing"
            raise ValueError(f"y holds {said}: to tell classes apart, it takes rows of at least two")
        if len(labels) > max(100, len(array) // 2):
            raise ValueError(
                f"y holds {len(labels)} different values in {len(array)} rows: is it a quantity? Then use "
                "wf.Regression(), else name the classes, as wf.Classification(classes=...)"
            )
    else:
        labels = tuple(range(known)) if isinstance(known, int) else known
    numbers = {label: number for number, label in enumerate(labels)}
    found = [numbers.get(label, -1) for label in array.tolist()]
    if -1 in found:
        row = found.index(-1)
        shown = ", ".join(map(repr, labels[:10])) + ", ..." * (len(labels) > 10)
        raise ValueError(f"y is {array[row].item()!r} in row {row}, which is none of the classes {shown}")
    return torch.tensor(found, dtype=torch.float64), labels


def _labels(y: Any) -> np.ndarray:
    """y as one array of whole numbers, words, or truth values.  # (rows,)"""
    if isinstance(y, Tensor):
        array = (y.double() if y.is_floating_point() else y).detach().cpu().numpy()
    else:
        if isinstance(y, list | tuple) and not any(
            isinstance(label, list | tuple | np.ndarray | Tensor) for label in y
        ):
            _check_one_kind([label for label in y if not _is_missing(label)])
        array = np.asarray(y.to_numpy() if hasattr(y, "to_numpy") else y)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise ValueError(
            f"y must be one column of classes, not of shape {array.shape}; for one-hot columns use y.argmax(1)"
        )
    if array.dtype == object:
        missing = [row for row, label in enumerate(array) if _is_missing(label)]
        if missing:
            raise ValueError(f"y has {len(missing)} missing values, the first in row {missing[0]}: remove these rows")
        _check_one_kind(array)
        array = np.array([label.item() if isinstance(label, np.generic) else label for label in array])
    if array.dtype.kind == "f":
        bad = np.flatnonzero(~np.isfinite(array))
        if len(bad):
            raise ValueError(f"y has {len(bad)} missing or infinite values, the first in row {bad[0]}: remove them")
        uneven = np.flatnonzero((array != np.round(array)) | (np.abs(array) > 2.0**53))
        if len(uneven):
            raise ValueError(
                f"y is {array[uneven[0]]} in row {uneven[0]}, which is no class: classes are whole numbers, words, or "
                "true and false. For a quantity use wf.Regression()"
            )
        array = array.astype(np.int64)
    if array.dtype.kind not in "iubU":
        raise ValueError(f"y holds {array.dtype}; classes are whole numbers, words, or true and false")
    return array


def _is_missing(label: Any) -> bool:
    """None, or what is not equal to itself; pandas' NA does not even say whether it is."""
    return label is None or type(label).__name__ in ("NAType", "NaTType") or bool(label != label)


def _check_one_kind(labels: Any) -> None:
    """Words, numbers and truth values are not to be mixed: numpy would make words of them all."""
    kinds = {type(label.item() if isinstance(label, np.generic) else label).__name__ for label in labels}
    if len(kinds - {"int", "float"}) > 1 or (kinds & {"int", "float"} and kinds - {"int", "float"}):
        raise ValueError(f"y mixes {' and '.join(sorted(kinds))}: use one kind of label")


def _check_same_index(x: Any, y: Any) -> None:
    """Two pandas objects whose rows are labelled differently were put side by side by accident."""
    labels = [table.index for table in (x, y) if hasattr(table, "iloc")]
    if len(labels) == 2 and not labels[0].equals(labels[1]):
        raise ValueError("x and y have different row labels (their pandas index): align them, as y = y.loc[x.index]")


def column_names(table: Any) -> tuple[str, ...]:
    columns = getattr(table, "columns", None)
    return () if columns is None else tuple(map(str, columns))


def _as_tensor(values: Any, what: str) -> Tensor:
    if isinstance(values, Tensor):
        return values.detach().cpu()
    if hasattr(values, "toarray"):
        raise ValueError(f"{what} is sparse; use {what}.toarray()")
    array = values.to_numpy() if hasattr(values, "to_numpy") else np.asarray(values)
    if array.dtype == object:
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError):
            bad = _first_column_without_numbers(array, column_names(values))
            raise ValueError(f"{what}{bad} holds something that is not a number; encode it first") from None
    if array.dtype.kind not in "fiub":
        kind = "text" if array.dtype.kind in "US" else str(array.dtype)
        classes = ", or use wf.Classification() if these are classes" * (what == "y")
        raise ValueError(f"{what} holds {kind}, not numbers: encode it first{classes}")
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        array = array.astype(np.int64)
    return torch.from_numpy(np.array(array, order="C"))  # a copy: frames may hand out memory that is not theirs to give


def _first_column_without_numbers(array: np.ndarray, names: tuple[str, ...]) -> str:
    for i in range(array.shape[1] if array.ndim == 2 else 0):
        try:
            array[:, i].astype(np.float64)
        except (TypeError, ValueError):
            return f" ({_column(i, names)})"
    return ""


def _check_finite(tensor: Tensor, what: str, names: tuple[str, ...]) -> None:
    if not tensor.is_floating_point() or all(bool(torch.isfinite(some).all()) for some in tensor.split(2**18)):
        return
    bad = torch.nonzero(~torch.isfinite(tensor))
    row = int(bad[0, 0])
    place = f"{_column(int(bad[0, 1]), names)}, " if tensor.ndim == 2 else ""
    raise ValueError(
        f"{what} has {len(bad)} missing or infinite value{'s' if len(bad) > 1 else ''}, the first in {place}row {row}. "
        "Fill or remove them first: a wrong figure would come out otherwise"
    )


def _column(index: int, names: tuple[str, ...]) -> str:
    return f"column {names[index]!r}" if names else f"column {index}"


@stored("Scaler")
class Scaler(NamedTuple):
    """The training rows' means and standard deviations, in double precision; a constant column is only shifted.

    Where rows have weights, these are weighted: a row of weight 2 counts as two such rows. The same holds for y.
    All scaling is done before rounding to the training's own precision, so a column such as a year or a count in the
    millions loses nothing.
    """

    x_mean: Tensor
    x_std: Tensor
    y_mean: Tensor
    y_std: Tensor
    knots: Knots | None = None  # of columns that networks see in pieces as well
    logs: bool | tuple[bool, ...] = False  # whether networks see log y, of which y_mean and y_std are; for each column

    @classmethod
    def of(cls, rows: Rows, standardise: Standardise, likelihood: Objective) -> Scaler:
        """Standardise tables column by column, and y where the likelihood says so; leave images and integers."""
        is_table = rows.x.ndim == 2 and rows.x.is_floating_point()
        some = None  # of the columns, where others are left as they are
        if rows.joined is not None:
            if isinstance(standardise, Pieces):
                raise ValueError("pieces are of the columns of a single table, and x holds several inputs")
            some = rows.joined.standardised(standardise)
            is_table = bool(some.any())
        elif isinstance(standardise, dict | tuple):
            raise ValueError("standardise speaks of several inputs, but x is one: use standardise=True or False")
        if standardise and is_table and isinstance(rows.x, Streamed):
            raise ValueError(
                "a Dataset that is streamed, since it draws at random or is large, cannot be standardised column by "
                "column: do so in the Dataset, and say Training(..., standardise=False)"
            )
        offset, x = likelihood.offset(rows.x_names, _columns(rows.x), rows.targets), rows.x
        x_moments = _moments(x, rows.weights, some) if standardise and is_table else no_change(1)
        if offset is not None and standardise:  # the exposure of a row in units of the usual one
            (x_mean, x_std), column = x_moments, offset.column
            x_std[column], x_mean[column] = geometric_mean(x[:, column], rows.weights), 0.0
            x = x.clone()
            x[:, column] = 1.0  # so that there are no pieces of it
        y_moments = likelihood.units(rows.y, rows.weights) if standardise else no_change(rows.y.shape[1])
        if not isinstance(standardise, Pieces):
            return cls(*x_moments, *y_moments, logs=likelihood.learns_logs)
        if not is_table:
            raise ValueError("pieces are of the columns of a table of numbers: use Training(..., standardise=True)")
        return cls(*x_moments, *y_moments, standardise.knots(x, rows.weights), likelihood.learns_logs)

    def x(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        if not x.is_floating_point():
            return x
        return self.scaled(streamed.in_memory(x), dtype) if self.scales_x else x.to(dtype)  # images are large

    @property
    def scales_x(self) -> bool:
        return self.knots is not None or bool(self.x_mean.any()) or not bool((self.x_std == 1).all())

    def scaled(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        if self.knots is None:
            result = torch.empty_like(x, dtype=dtype)
            for some, block in zip(result.split(_ROWS_AT_ONCE), x.split(_ROWS_AT_ONCE), strict=True):
                some.copy_(self._standardised(block.double(), dtype))  # in memory once, however many rows there are
            return result
        blocks = [block.double() for block in x.split(_ROWS_AT_ONCE)]  # there are many pieces: a few rows at a time
        return torch.cat([torch.cat([self._standardised(x, dtype), self.knots(x).to(dtype)], 1) for x in blocks])

    def _standardised(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        return ((x - self.x_mean) / self.x_std).to(dtype)

    def input_shape(self, x_shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of a row as networks see it, of a row as the user has it."""
        return x_shape if self.knots is None else (x_shape[0] + self.knots.inputs,)

    def y(self, y: Tensor, dtype: torch.dtype) -> Tensor:
        """Return y as networks see it: standardised; its logarithm is -inf where it is 0."""
        values = y.double()
        if any(self.logs) if isinstance(self.logs, tuple) else self.logs:
            values = torch.where(torch.tensor(self.logs, device=y.device), values.log(), values)
        return ((values - self.y_mean) / self.y_std).to(dtype)


def _moments(x: Tensor, weights: Tensor | None, some: Tensor | None) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each column, or of some; the others are left as they are.  # (columns,) each"""
    if some is None:
        return column_moments(x, weights)
    mean, std = no_change(x.shape[1])
    mean[some], std[some] = column_moments(x[:, some], weights)
    return mean, std


def column_moments(columns: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each column; a constant one has a deviation of 1.  # (columns,) each"""
    if columns.numel() > _NUMBERS_AT_ONCE and columns.shape[1] > 1:
        each = [column_moments(columns[:, k : k + 1], weights) for k in range(columns.shape[1])]
        return torch.cat([mean for mean, _ in each]), torch.cat([std for _, std in each])
    columns = columns.double()
    if weights is None:
        mean, std = columns.mean(0), columns.std(0, correction=0)
    else:
        shares = (weights / weights.sum()).unsqueeze(1)
        mean = (shares * columns).sum(0)
        std = (shares * (columns - mean).square()).sum(0).sqrt()
    constant = std <= 1e-12 * columns.abs().amax(0)
    return mean, torch.where(constant, 1.0, std)


def no_change(width: int) -> tuple[Tensor, Tensor]:
    """Location and scale of what is left as it is.  # (width,) each"""
    return torch.zeros(width, dtype=torch.float64), torch.ones(width, dtype=torch.float64)
