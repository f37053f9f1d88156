"""Rows unlike those of training: what the report says of them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from wherefrom.report.outside import Outside, _distances, _rank_correlation

AXIS = {"key": "std", "label": "doubt"}


def lead(kind: str, values: list[float], doubt: list[float], edge: float | None = None) -> str:
    output = SimpleNamespace(spread=lambda: torch.tensor(doubt))
    return Outside(kind, torch.tensor(values), edge).shown(output, AXIS, len(values))["lead"]


def test_rows_beyond_the_edge_are_counted_with_their_doubt():
    values = [0.1, 0.2, 0.3, 2.0, 3.0]
    assert "2 rows of 5 are outside (above 1); none of them has less doubt" in lead(
        "score", values, [1.0, 2.0, 3.0, 4.0, 5.0], 1.0
    )
    assert "one of them has less doubt than the median row: do not rely on that." in lead(
        "score", values, [2.0, 3.0, 4.0, 1.0, 5.0], 1.0
    )
    assert "2 of them have less doubt than the median row: do not rely on those." in lead(
        "score", values, [3.0, 4.0, 5.0, 1.0, 2.0], 1.0
    )
    assert "1 row of 5 lies farther out than 95%" in lead("distance", values, [1.0, 2.0, 3.0, 4.0, 5.0], 2.5)
    assert "No row of 5 is outside" in lead("score", values, [1.0, 2.0, 3.0, 4.0, 5.0], 9.0)
    assert "outside," not in lead("score", values, [1.0, 2.0, 3.0, 4.0, 5.0])


def test_nothing_is_said_of_doubt_where_there_is_none():
    assert lead("score", [0.1, 0.2, 2.0], [0.0, 0.0, 0.0], 1.0).endswith("1 row of 3 is outside (above 1).")


def test_flags_are_found_by_their_doubt_or_not():
    flags = [0.0, 0.0, 0.0, 1.0, 1.0]
    found = (
        "2 rows are outside. A row from outside has more doubt than one from inside 100% of the time: doubt finds them."
    )
    assert found in lead("flag", flags, [1.0, 2.0, 3.0, 4.0, 5.0], 0.5)
    assert "0% of the time: doubt does not find them" in lead("flag", flags, [3.0, 4.0, 5.0, 1.0, 2.0], 0.5)
    assert "nothing to tell apart" in lead("flag", [0.0] * 3, [1.0, 2.0, 3.0], 0.5)


def test_ranks_are_correlated_as_by_spearman():
    stats = pytest.importorskip("scipy.stats")
    one, other = torch.randn(2, 40, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    other = other + 0.5 * one
    assert _rank_correlation(one, other) == pytest.approx(stats.spearmanr(one, other).statistic)
    assert _rank_correlation(one, torch.ones(40)) is None


def test_distances_are_in_units_of_what_is_usual():
    trained = torch.arange(20, dtype=torch.float64)[:, None] * 3
    aside = _distances(trained, torch.tensor([[0.0], [1.5], [57 + 30.0]], dtype=torch.float64))
    assert aside.values.tolist() == [0.0, 0.5, 10.0]
    assert aside.edge == 1.0
    assert aside.is_beyond.tolist() == [False, False, True]
