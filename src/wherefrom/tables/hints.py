"""Columns that are taken for something they may not be: what the user should know, and could do."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from wherefrom.tables.columns import is_code
from wherefrom.tables.raw import Column, RawTable, as_numbers
from wherefrom.tables.wording import option

_MOSTLY = 0.8  # of the rows
_FEW = 3  # different numbers: fewer are the same to a network as text
_PAIR = re.compile(r"\d+(\.\d+)?\s*/\s*\d+(\.\d+)?")
_CODE_NAME = re.compile(
    r"(^|.*[^a-z])(zip|zip_?code|post_?code|postal_?code|plz|icd_?(9|10)?|ndc|cpt|drg|atc|fips|sku|code)", re.IGNORECASE
)


def hints(table: RawTable, names: Sequence[str], kinds: Mapping[str, str]) -> list[str]:
    """Return a note for each column that may be taken for something else; columns in `kinds` are settled."""
    lines = (_hint(table, table.columns[name]) for name in names if name not in kinds)
    return [line for line in lines if line]


def _hint(table: RawTable, column: Column) -> str:
    if column.numbers is None and is_code(column.levels):
        example = next(level for level in column.levels if level.startswith("0") and len(level) > 1)
        return (
            f"column {column.name!r} has numbers with leading zeros ({example}): they are taken as codes, which are "
            f"text; if they are quantities, use {option('number', column.name)}"
        )
    if named_like_a_code(column.name) and _holds_whole_numbers(table, column):
        return (
            f"column {column.name!r} is named like a code, but its numbers are taken as quantities; if they are codes, "
            f"use {option('text', column.name)}"
        )
    if column.numbers is None and (pair := _pair(column)):
        return (
            f"column {column.name!r} holds two numbers in a cell ({pair}), which are taken as text: make two columns "
            "of it, so that they are learnt as numbers"
        )
    return ""


def named_like_a_code(name: str) -> bool:
    """
    >>> [named_like_a_code(name) for name in ("zip", "billing_zipcode", "ICD10", "zipper", "decode")]
    [True, True, True, False, False]
    """
    return bool(_CODE_NAME.fullmatch(name))


def _holds_whole_numbers(table: RawTable, column: Column) -> bool:
    if column.is_date:
        return False
    values = as_numbers(column.levels, table.decimal) if column.numbers is None else column.numbers[~column.missing]
    return len(np.unique(values)) > _FEW and bool((values == np.round(values)).all())


def _pair(column: Column) -> str:
    """Return a cell of two numbers with a slash, if most cells are; else an empty text."""
    if not column.levels or not _PAIR.fullmatch(column.levels[0]):
        return ""
    is_pair = np.array([bool(_PAIR.fullmatch(level)) for level in column.levels])
    counts = column.counts()
    return column.levels[0] if counts[is_pair].sum() >= _MOSTLY * counts.sum() else ""
