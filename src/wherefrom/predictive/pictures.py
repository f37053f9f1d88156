"""Pictures of a prediction, its frame, and its HTML in a notebook."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from wherefrom import plots
from wherefrom.showing import Library, card, frame_of
from wherefrom.table import Table

Picture = Callable[[Any, Any, float, Any], Any]  # prediction, y or None, level, axes or None -> axes
_LEVELS = np.linspace(0.1, 0.9, 9)
_MOST_CURVES = 5
_SHOWN_ROWS = 5
_TIMES = 100


def drawn(prediction: Any, kind: str | None, y: Any, level: float, ax: Any) -> Any:
    """Draw one of the pictures that a prediction has, the first unless another is asked for."""
    kind = next(iter(prediction.picture_kinds)) if kind is None else kind
    if kind not in prediction.picture_kinds:
        raise ValueError(f"kind must be {' or '.join(map(repr, prediction.picture_kinds))}, not {kind!r}")
    return prediction.picture_kinds[kind](prediction, y, level, ax)


def framed(prediction: Any, level: float, library: Library | None) -> Any:
    """Return a frame with a row for each row: what is predicted, and each source's share of the doubt."""
    columns: dict[str, Any] = {}
    for name, values in prediction.columns(level)[0].items():
        values = np.asarray(values)
        names = [name] if values.ndim == 1 else [f"{name}_{output}" for output in _outputs(prediction, values)]
        columns |= dict(zip(names, values.reshape(len(values), -1).T, strict=True))
    shares = prediction.all_sources().columns() if hasattr(prediction, "all_sources") else {}
    return frame_of(columns | {f"share {name}": share for name, share in shares.items()}, library)


def html(prediction: Any) -> str:
    """Return the first rows as HTML."""
    first = prediction.of_rows(torch.arange(min(_SHOWN_ROWS, len(prediction))))
    columns = {name: np.asarray(values) for name, values in first.columns(0.95)[0].items()}
    columns = {name: values for name, values in columns.items() if values.ndim == 1}
    rows = [tuple(_plain(values[row]) for values in columns.values()) for row in range(len(first))]
    more = f"... {len(prediction) - len(first):,} more rows" * (len(prediction) > len(first))
    return card(repr(prediction), Table(tuple(columns), rows).html(), more)


def _outputs(prediction: Any, values: Any) -> list[str]:
    """Return names for the outputs of several."""
    names = list(getattr(prediction, "y_names", ()))
    return names if len(names) == values.shape[1] else [str(number) for number in range(values.shape[1])]


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _needed(y: Any, kind: str) -> np.ndarray:
    if y is None:
        raise ValueError(f"the picture {kind!r} needs the truth: plot({kind!r}, y)")
    return np.asarray(y)


# ---------------------------------------------------------------------- quantities


def intervals(prediction: Any, y: Any, level: float, ax: Any) -> Any:
    """Draw intervals against the truth, or, where that is not given, rows in order of their predictions."""
    columns, _ = prediction.columns(level)
    low, high = columns["lower"], columns["upper"]
    if low.ndim > 1:
        raise ValueError(f"there are {low.shape[1]} outputs: pictures of intervals are for one")
    middle = next((columns[name] for name in ("mean", "median", "q 0.5") if name in columns), (low + high) / 2)
    if y is None:
        return plots.intervals(middle, low, high, ax=ax)
    return plots.intervals_against_truth(np.asarray(y, dtype=np.float64), middle, low, high, ax=ax)


def calibration(prediction: Any, y: Any, level: float, ax: Any) -> Any:
    """Draw how often intervals of several levels hold the truth."""
    truth = _needed(y, "calibration")
    levels = np.append(_LEVELS, level)
    return plots.coverage(levels, [prediction.coverage(truth, each) for each in levels], len(prediction), ax)


def sources(prediction: Any, y: Any, level: float, ax: Any) -> Any:
    """Draw what each row's doubt is made of."""
    return prediction.all_sources().plot(ax=ax)


# ---------------------------------------------------------------------- classes


def reliability(prediction: Any, y: Any, level: float, ax: Any) -> Any:
    """Draw how often rows are right against how sure they were."""
    return plots.reliability_diagram(prediction.reliability(_needed(y, "reliability")), ax)


def risk_coverage(prediction: Any, y: Any, level: float, ax: Any) -> Any:
    """Draw the error of the rows that are answered, if only the most confident ones are."""
    return plots.risk_coverage_plot(prediction.risk_coverage(_needed(y, "risk_coverage")), ax)


# ---------------------------------------------------------------------- times


def survival_curves(prediction: Any, y: Any, level: float, ax: Any) -> Any:
    """Draw the survival curves of the first rows, with bands of the networks' doubt."""
    first = prediction.of_rows(torch.arange(min(_MOST_CURVES, len(prediction))))
    times = torch.linspace(0.0, float(first.quantile(0.9).max()), _TIMES + 1, dtype=torch.float64)[1:]
    low, high = first.survival_interval(times, level)
    names = [f"row {row}" for row in range(len(first))]
    return plots.bands(times.numpy(), first.survival(times).numpy(), low.numpy(), high.numpy(), names, ax)
