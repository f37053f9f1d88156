"""Columns of tables as people have them: dates, codes, many levels. They are not part of the project."""

import numpy as np
import pytest

from conftest import data_root
from wherefrom.tables.columns import Categories, TableEncoder
from wherefrom.tables.dates import Date
from wherefrom.tables.reading import read


def read_table(name):
    root = data_root()
    path = None if root is None else root / "tables" / f"{name}.csv.gz"
    if path is None or not path.exists():
        pytest.skip(f"the table {name} is not here: set WHEREFROM_DATA to a folder that holds tables/{name}.csv.gz")
    return read(path)


@pytest.mark.parametrize(
    ("name", "target", "dates", "many"),
    [
        ("flights", "arr_delay", {"time_hour": ("trend", "weekday", "time of day")}, {"tailnum", "dest"}),
        ("loans", "interest_rate", {}, set()),
        ("stackoverflow", "Remote", {}, set()),
    ],
)
def test_columns_are_what_their_owner_takes_them_for(name, target, dates, many):
    table = read_table(name).take(slice(0, 4000))
    columns = [column for column in table.columns if column != target]
    encoder = TableEncoder.of(table, columns, {}, np.arange(len(table)))
    assert {rule.name: rule.parts for rule in encoder.rules if isinstance(rule, Date)} == dates
    assert {rule.name for rule in encoder.rules if isinstance(rule, Categories) and rule.counts} == many
    assert np.isfinite(encoder.encode(table).values).all()
