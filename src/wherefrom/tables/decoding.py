"""Rows of a table back into what was written in them: for people who look at a row.

Networks take compressed numbers, parts of dates and a 0 or 1 for each level. A report shows the number, the date and
the level. Missing values are empty, also where one was drawn for the networks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from wherefrom.predictive.row_scores import finite_or_none
from wherefrom.report.columns import RARE, RawColumn, how_unusual, spread, usual_levels, usual_numbers
from wherefrom.tables.columns import Categories, Dropped, Exposure, Quantity, Rule, written_date
from wherefrom.tables.dates import Date
from wherefrom.tables.labelled import Labelled
from wherefrom.tables.raw import Numbers
from wherefrom.tables.writing import decimal

OTHER = "another level"  # one that is too rare to have a feature
_DIGITS = 6
_FEW = 4  # different numbers, whose shares say more than their median


def raw_columns(rows: Labelled, is_new: bool) -> list[RawColumn]:
    """Return all columns that the networks take, as they were written.

    is_new: whether these are other rows than those of training, so that a comparison tells something.
    """
    encoder = rows.model.encoder
    slices, features = encoder.feature_slices, rows.rows.x.double().numpy()
    drawn = {rule.name: k for k, rule in enumerate(encoder.drawn)}
    quantities = [rule.name for rule in encoder.rules if isinstance(rule, Quantity | Date)]
    unseen = {(row, name): level for row, name, level in rows.x.never_seen}
    columns = []
    for rule in encoder.rules:
        if isinstance(rule, Dropped):
            continue
        block = features[:, slices[rule.name]]
        gaps = _gaps(rows, drawn.get(rule.name), block, rule)
        limits = _limits(rows, drawn.get(rule.name), rule, gaps)
        if isinstance(rule, Categories):
            levels = _levels(rule, block, gaps)
            texts = [unseen.get((row, rule.name), level) for row, level in enumerate(levels)]
            columns.append(_text_column(rule, texts, is_new))
            continue
        values = _numbers(rule, block)
        if rows.x.raw.size and rule.name in quantities:  # not cut off at the ends of the training rows' range
            written = rows.x.raw[:, quantities.index(rule.name)]
            values = np.where(np.isnan(written), values, written)
        columns.append(_number_column(rule, np.where(gaps, np.nan, values), limits, is_new))
    return columns


def _gaps(rows: Labelled, column: int | None, block: Numbers, rule: Rule) -> NDArray[np.bool_]:
    """Return where a value is missing.  # (rows,)"""
    if column is not None and rows.x.cells is not None:
        return np.asarray(rows.x.cells.gaps[:, column])
    if isinstance(rule, Categories):
        return np.asarray(block[:, : len(rule.levels) + rule.has_others].sum(axis=1) == 0)
    return np.zeros(len(block), dtype=bool)


def _limits(rows: Labelled, column: int | None, rule: Rule, gaps: NDArray[np.bool_]) -> dict[int, str]:
    """Return the text of cells that hold a limit, as "<0.6", by row."""
    if column is None or rows.x.cells is None or not isinstance(rule, Quantity):
        return {}
    low, high = (rule.as_written(each[:, column]) for each in (rows.x.cells.low, rows.x.cells.high))
    texts = {}
    for row in np.flatnonzero(gaps & (np.isfinite(low) | np.isfinite(high))).tolist():
        below = np.isfinite(high[row])
        texts[row] = f"{'≤' if below else '≥'} {decimal(float(high[row] if below else low[row]), _DIGITS)}"
    return texts


def _numbers(rule: Quantity | Date | Exposure, block: Numbers) -> Numbers:
    return rule.as_written(block[:, 0]) if isinstance(rule, Quantity) else block[:, 0]


def _levels(rule: Categories, block: Numbers, gaps: NDArray[np.bool_]) -> list[str]:
    if not rule.levels:  # no level is common enough to be learnt: all that networks see is whether there is a text
        return ["" if gap else "given" for gap in gaps]
    names = [*rule.levels, *[OTHER] * rule.has_others]
    best = block[:, : len(names)].argmax(axis=1)
    return ["" if gap else names[k] for gap, k in zip(gaps.tolist(), best.tolist(), strict=True)]


def _number_column(
    rule: Quantity | Date | Exposure, values: Numbers, limits: dict[int, str], is_new: bool
) -> RawColumn:
    there = values[~np.isnan(values)]
    here = spread(there, float(np.median(there))) if len(there) else 0.0
    width = rule.spread if isinstance(rule, Quantity) else here  # other rules hold no spread of the training rows
    away = how_unusual(values, rule.median, width)
    is_truth = isinstance(rule, Quantity) and rule.kind == "boolean"
    cells = [limits.get(row, _cell(rule, value)) for row, value in enumerate(values.tolist())]
    low, high = getattr(rule, "low", None), getattr(rule, "high", None)
    beyond = moved = None
    if is_new and len(there):
        moved = finite_or_none((float(np.median(there)) - rule.median) / width) if width else None
        beyond = None if low is None or high is None else float(((there < low) | (there > high)).mean())
    if is_truth:
        away = np.zeros(len(values))
    if is_truth or len(np.unique(there)) <= _FEW:
        usual = _shares(cells)
    elif isinstance(rule, Date):
        usual = _date_range(there)
    else:
        usual = usual_numbers(torch.from_numpy(there))
    return RawColumn(rule.name, cells, np.nan_to_num(away).tolist(), usual, None, moved, beyond)


def _cell(rule: Quantity | Date | Exposure, value: float) -> str:
    if value != value:
        return ""
    if isinstance(rule, Date):
        return written_date(value)
    if isinstance(rule, Quantity) and rule.kind == "boolean":
        return "yes" if value else "no"
    return decimal(value, _DIGITS)


def _date_range(days: Numbers) -> str:
    return f"{written_date(float(days.min()))} to {written_date(float(days.max()))}" if len(days) else "–"


def _text_column(rule: Categories, texts: Sequence[str], is_new: bool) -> RawColumn:
    share_of = dict(zip(rule.levels, rule.shares, strict=True))
    if rule.levels and rule.has_others:
        share_of[OTHER] = rule.others_share
    unusual = [RARE / max(share_of.get(text, 0.0), 1e-3) if text and share_of else 0.0 for text in texts]
    trained = usual_levels(list(share_of.items())) if is_new and share_of else None
    return RawColumn(rule.name, texts, unusual, _shares(texts), trained)


def _shares(texts: Sequence[str]) -> str:
    counts = Counter(text for text in texts if text)
    total = sum(counts.values())
    return usual_levels([(text, count / total) for text, count in counts.items()]) if total else "–"
