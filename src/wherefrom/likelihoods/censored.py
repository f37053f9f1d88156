"""Times that may be censored, as people have them: two or three columns, a frame, a structured array, a dictionary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wherefrom.training.data import column_names

NEVER = -700.0  # the logarithm of an entry at 0
_MOST = 1e100
_HOW = 'give y as columns (time, event) or (time, event, entry), or as {"time": ..., "event": ...}'


class Censored(NamedTuple):
    """Times of rows: how long each was seen, whether the event was seen then, and from when on it was seen."""

    time: Tensor  # (rows,), above zero, and so are all others
    event: Tensor  # true or false
    entry: Tensor  # 0 where rows were seen from the start

    @property
    def encoded(self) -> Tensor:
        """log time, event and log entry.  # (rows, 3)"""
        return torch.stack([self.time.log(), self.event.double(), self.entry.log().clamp_min(NEVER)], 1)

    @classmethod
    def decoded(cls, y: Tensor) -> Censored:
        """Return the times of what `encoded` has returned."""
        return cls(y[:, 0].exp(), y[:, 1] > 0, torch.where(y[:, 2] > NEVER, y[:, 2].exp(), 0.0))

    def numpy(self) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.float64]]:
        return self.time.numpy(), self.event.numpy(), self.entry.numpy()


def as_censored(y: Any) -> Censored:
    """Return y as times, checked.

    >>> as_censored([[5.0, 1], [7.0, 0]]).event
    tensor([ True, False])
    >>> as_censored({"time": [5.0, 7.0], "event": [True, False]}).time
    tensor([5., 7.], dtype=torch.float64)
    """
    if isinstance(y, Censored):
        return y
    of_time, of_event, of_entry = _parts(y)
    time, event = _numbers(of_time, "time"), _numbers(of_event, "event")
    entry = torch.zeros_like(time) if of_entry is None else _numbers(of_entry, "entry")
    if not len(time) == len(event) == len(entry):
        raise ValueError(f"y has {len(time)} times, but {len(event)} events: {_HOW}")
    _check(time > 0, time, "time", "which is not above zero: a time is how long a row was seen. Remove such rows")
    _check(time < _MOST, time, "time", "which is too large: use another unit")
    _check((event == 0) | (event == 1), event, "event", "but is 1 (the event was seen) or 0 (the row is censored)")
    _check(entry >= 0, entry, "entry", "which is below zero")
    _check(entry < time, entry, "entry", "which is not before the time of this row")
    return Censored(time, event > 0, entry)


def _parts(y: Any) -> tuple[Any, Any, Any]:
    """Return the columns for the time, the event and the entry; None where there is no entry."""
    names = tuple(y) if isinstance(y, Mapping) else column_names(y)
    if names:
        if "time" in names and "event" in names:
            return y["time"], y["event"], y["entry"] if "entry" in names else None
        if isinstance(y, Mapping) or len(names) not in (2, 3):
            raise ValueError(f"y has the columns {list(names)}: {_HOW}")
        columns = y.to_numpy()
        return columns[:, 0], columns[:, 1], columns[:, 2] if len(names) == 3 else None
    if isinstance(y, tuple) and len(y) in (2, 3) and all(np.ndim(part) == 1 for part in y):
        return y[0], y[1], y[2] if len(y) == 3 else None
    array = y.detach().cpu().double().numpy() if isinstance(y, Tensor) else np.asarray(y)
    if array.dtype.names:
        return _of_fields(array)
    if array.ndim != 2 or array.shape[1] not in (2, 3):
        raise ValueError(f"y has the shape {array.shape}: {_HOW}")
    return array[:, 0], array[:, 1], array[:, 2] if array.shape[1] == 3 else None


def _of_fields(array: NDArray[Any]) -> tuple[Any, Any, Any]:
    """Return the parts of a structured array: by their names, or else the event is the field of true and false."""
    names = tuple(array.dtype.names or ())
    if "time" in names and "event" in names:
        return array["time"], array["event"], array["entry"] if "entry" in names else None
    events = [name for name in names if array.dtype[name].kind == "b"]
    times = [name for name in names if name not in events and name != "entry"]
    if len(events) != 1 or len(times) != 1:
        raise ValueError(f"y has the fields {list(names)}, and one of true and false and one of times is needed")
    return array[times[0]], array[events[0]], array["entry"] if "entry" in names else None


def _numbers(part: Any, name: str) -> Tensor:
    array = part.detach().cpu().numpy() if isinstance(part, Tensor) else np.asarray(part)
    try:
        values = torch.from_numpy(np.array(array, dtype=np.float64))
    except (TypeError, ValueError):
        raise ValueError(f"{name} of y holds something that is not a number: encode it first") from None
    if values.ndim != 1:
        raise ValueError(f"{name} of y has the shape {tuple(values.shape)}, and should have one number for each row")
    _check(values.isfinite(), values, name, "but must be a number: fill or remove such rows")
    return values


def _check(is_good: Tensor, values: Tensor, name: str, why: str) -> None:
    wrong = torch.nonzero(~is_good).flatten()
    if len(wrong):
        row = int(wrong[0])
        rows = f"{len(wrong)} row{'s' * (len(wrong) > 1)} in all"
        raise ValueError(f"{name} of y is {float(values[row]):g} in row {row} ({rows}), {why}")
