"""Every kind of column becomes numbers by a rule that is learnt once, kept as JSON, and told."""

import numpy as np
import pytest

from reloaded import reloaded
from wherefrom.tables.columns import Categories, Dropped, Encoded, Quantity, TableEncoder
from wherefrom.tables.dates import Date
from wherefrom.tables.raw import Format
from wherefrom.tables.reading import read


def table_of(tmp_path, columns, name="data.csv", **how):
    from made_table import write

    return read(write(tmp_path / name, {key: list(map(str, cells)) for key, cells in columns.items()}), Format(**how))


def learnt(table, kinds=None, training=None):
    training = np.arange(len(table)) if training is None else np.array(training)
    return TableEncoder.of(table, list(table.columns), kinds or {}, training)


def rule(tmp_path, cells, kinds=None):
    return learnt(table_of(tmp_path, {"c": cells, "other": range(len(cells))}), kinds).rules[0]


def test_numbers_keep_their_values_and_gaps_are_the_median_until_they_are_drawn(tmp_path):
    table = table_of(tmp_path, {"a": [1, "", 3, 10, "NA"], "b": [1, 2, 3, 4, 5]})
    encoder = learnt(table)
    encoded = encoder.encode(table)
    assert encoded.columns == ("a", "a (missing)", "b")
    np.testing.assert_array_equal(encoded.values[:, 0], [1, 3, 3, 10, 3])
    np.testing.assert_array_equal(encoded.values[:, 1], [0, 1, 0, 0, 1])
    np.testing.assert_array_equal(encoded.values[:, 2], [1, 2, 3, 4, 5])


def test_a_gap_that_training_never_had_is_told(tmp_path):
    encoder = learnt(table_of(tmp_path, {"a": [1, 2, 3], "t": ["x", "y", "x"]}, "train.csv"), {"t": "text"})
    encoded = encoder.encode(table_of(tmp_path, {"a": ["", 5], "t": ["x", "x"]}))
    assert encoded.values[0, 0] == 2
    assert encoded.notes == (
        "column 'a' is missing in 1 row, but never was in training: values are drawn from training rows that are like "
        "them",
    )
    np.testing.assert_array_equal(encoded.has_gaps, [True, False])
    np.testing.assert_array_equal(encoded.cells.values, [[np.nan], [3]])  # the end of the range


def test_levels_that_are_frequent_enough_have_a_column_each(tmp_path):
    table = table_of(tmp_path, {"c": ["red"] * 8 + ["blue"] * 6 + ["pink"] * 2 + [""] * 3, "n": range(19)})
    encoder = learnt(table)
    colour = encoder.rules[0]
    assert isinstance(colour, Categories)
    assert colour.features == ("c=red", "c=blue", "c (other)", "c (missing)")
    encoded = encoder.encode(table_of(tmp_path, {"c": ["blue", "pink", "teal", "NA"], "n": [1, 2, 3, 4]}, "new.csv"))
    np.testing.assert_array_equal(encoded.values[:, :4], [[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
    assert "column 'c' has levels that training never saw, in 1 row: 'teal'" in encoded.notes[0]


def test_a_new_level_is_a_surprise_only_where_rare_ones_are(tmp_path):
    closed = learnt(table_of(tmp_path, {"c": ["a", "b"] * 10, "n": range(20)}))
    new = table_of(tmp_path, {"c": ["a", "z"], "n": [1, 2]}, "new.csv")
    encoded = closed.encode(new)
    assert encoded.never_seen == ((1, "c", "z"),)
    np.testing.assert_array_equal(encoded.values[1, :2], [0, 0])  # no column that was never trained
    mixed = learnt(table_of(tmp_path, {"c": ["a", "b"] * 10 + list("pqrs"), "n": range(24)}))
    assert mixed.encode(new).never_seen == ()


def test_text_of_its_own_in_every_row_is_dropped_unless_gaps_tell(tmp_path):
    names = [f"person {k}" for k in range(30)]
    found = rule(tmp_path, names)
    assert isinstance(found, Dropped)
    assert "almost every value is unique" in found.why
    found = rule(tmp_path, [*names, *[""] * 10])
    assert isinstance(found, Categories)
    assert found.features == ("c (other)", "c (missing)")


@pytest.mark.parametrize("name", ["id", "ID", "customer_id", "PassengerId", "row"])
def test_numbers_that_are_names_of_rows_are_dropped(tmp_path, name):
    table = table_of(tmp_path, {name: range(100, 130), "paid": range(30), "x": np.arange(30) % 7})
    encoder = learnt(table)
    assert [rule.name for rule in encoder.dropped] == [name]
    assert not learnt(table, {name: "number"}).dropped


def test_constant_and_empty_columns_are_dropped(tmp_path):
    table = table_of(tmp_path, {"a": [1] * 5, "b": ["x"] * 5, "c": [""] * 5, "d": range(5)})
    assert {one.name: one.why for one in learnt(table).dropped} == {
        "a": "always the same",
        "b": "always the same",
        "c": "empty",
    }
    with pytest.raises(ValueError, match=r"no column of .* is left to learn from: a \(always the same\)"):
        learnt(table_of(tmp_path, {"a": [1] * 5}))


def test_true_and_false(tmp_path):
    table = table_of(tmp_path, {"a": ["yes", "no", "YES", ""], "n": range(4)})
    np.testing.assert_array_equal(learnt(table).encode(table).values[:, :2], [[1, 0], [0, 0], [1, 0], [1, 1]])


@pytest.mark.parametrize(
    ("cells", "written"),
    [
        (["1970-01-02", "1970-01-11", "1970-01-03"], "iso"),
        (["1970-01-02T00:00:00Z", "1970-01-11 00:00", "1970-01-03"], "iso"),
        (["02.01.1970", "11.01.1970", "03.01.1970"], "%d.%m.%Y"),
        (["1970/01/02", "1970/01/11", "1970/01/03"], "%Y/%m/%d"),
        (["02 Jan 1970", "11 Jan 1970", "03 Jan 1970"], "%d %b %Y"),
    ],
)
def test_dates_are_days(tmp_path, cells, written):
    table = table_of(tmp_path, {"c": cells, "n": range(3)})
    encoder = learnt(table)
    assert isinstance(encoder.rules[0], Date)
    assert encoder.rules[0].date_format == written
    np.testing.assert_array_equal(encoder.encode(table).values[:, 0], [1, 10, 2])
    assert "dates: c (trend)" in encoder.describe()


def test_a_day_above_twelve_tells_days_from_months(tmp_path):
    assert rule(tmp_path, ["03/04/2020", "25/04/2020", "01/02/2021"]).date_format == "%d/%m/%Y"
    assert rule(tmp_path, ["03/04/2020", "04/25/2020", "01/02/2021"]).date_format == "%m/%d/%Y"
    with pytest.raises(
        ValueError, match=r"column 'c', row 2: '03/04/2020' may have the day or the month first.*date=\['c=%d/%m/%Y'\]"
    ):
        rule(tmp_path, ["03/04/2020", "05/04/2020", "01/02/2021"])
    assert rule(tmp_path, ["03/04/2020", "05/04/2020", "01/02/2021"], {"c": "date:%m/%d/%Y"}).date_format == "%m/%d/%Y"


def test_a_stray_word_among_numbers_is_told_by_column_row_and_value(tmp_path):
    cells = [*map(str, range(20)), "old", "older"]
    with pytest.raises(
        ValueError,
        match=r"data.csv, column 'c', row 22: 'old' is no number \(and 1 more, such as 'older'\); correct it, or use "
        r"missing=\['old'\] if it means missing, or use text=\['c'\]",
    ):
        rule(tmp_path, cells)
    assert isinstance(rule(tmp_path, cells, {"c": "text"}), Dropped | Categories)
    table = table_of(tmp_path, {"c": cells, "n": range(22)}, missing=("old", "older"))
    assert learnt(table).rules[0].kind == "number"


def test_infinite_numbers_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"column 'c', row 4: infinite"):
        rule(tmp_path, [1, 2, "inf", 3])
    with pytest.raises(ValueError, match=r"column 'c', row 3: infinite"):
        rule(tmp_path, [1, "1e999", 3])


def test_numbers_with_signs_of_money_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"column 'c', row 2: '\$1,000' is a number with signs.*text=\['c'\]"):
        rule(tmp_path, [f"${k},{k}00" if k else "$1,000" for k in range(20)])


def test_long_tails_are_drawn_in(tmp_path):
    values = np.exp(np.random.default_rng(0).normal(size=400) * 2)
    table = table_of(tmp_path, {"c": values, "n": np.arange(400)})
    encoder = learnt(table)
    assert encoder.rules[0].is_drawn_in
    assert not encoder.rules[1].is_drawn_in
    drawn_in = encoder.encode(table).values[:, 0]
    assert np.abs(drawn_in).max() < 10
    np.testing.assert_array_equal(np.argsort(drawn_in), np.argsort(values))


def test_only_training_rows_teach(tmp_path):
    table = table_of(tmp_path, {"a": [1, 2, 3, 100, 200], "c": ["x", "x", "y", "z", "z"]})
    encoder = learnt(table, {"c": "text"}, training=[0, 1, 2])
    assert encoder.rules[0].median == 2
    assert (
        "z" not in (*encoder.rules[1].levels, *encoder.rules[1].rare) if isinstance(encoder.rules[1], Categories) else 1
    )


def test_an_encoder_is_plain_data(tmp_path):
    from made_table import made, write

    table = read(write(tmp_path / "data.csv", made(200)))
    encoder = learnt(table)
    again = reloaded(encoder)
    assert again == encoder
    np.testing.assert_array_equal(again.encode(table).values, encoder.encode(table).values)
    assert len(encoder.features) == encoder.encode(table).values.shape[1]
    assert {encoder.features[place] for place in encoder.quantities()} == {
        one.name for one in encoder.rules if isinstance(one, Quantity | Date)
    }


def test_columns_in_another_order_are_the_same_and_lacking_ones_are_named(tmp_path):
    from made_table import made, without, write

    cells = made(60)
    table = read(write(tmp_path / "data.csv", cells))
    encoder = learnt(table)
    turned = read(write(tmp_path / "turned.csv", dict(reversed(cells.items()))))
    np.testing.assert_array_equal(encoder.encode(turned).values, encoder.encode(table).values)
    read_without = read(write(tmp_path / "less.csv", without(cells, "age", "region", "id")))
    with pytest.raises(ValueError, match=r"less.csv lacks the columns 'age', 'region', which .* add them"):
        encoder.encode(read_without)


def test_a_code_of_digits_is_text_if_it_has_leading_zeros_or_is_asked_to_be(tmp_path):
    table = table_of(tmp_path, {"zip": ["010", "120", "010", "010", "010", "120", "010"] * 3, "n": range(21)})
    assert learnt(table).rules[0].levels == ("010", "120")
    assert learnt(table, {"zip": "number"}).rules[0].median == 10
    plain = table_of(tmp_path, {"zip": ["10", "120", "0"] * 7, "n": range(21)}, "plain.csv")
    assert isinstance(learnt(plain).rules[0], Quantity)
    assert learnt(plain, {"zip": "text"}).rules[0].levels == ("0", "10", "120")
    with pytest.raises(ValueError, match=r"no column 'zp'; did you mean 'zip'"):
        learnt(table, {"zp": "text"})


def test_very_many_levels_share_the_room(tmp_path, monkeypatch):
    from wherefrom.tables import columns

    monkeypatch.setattr(columns, "MOST_FEATURES", 20)
    levels = [f"level {k % 12}" for k in range(120)] + ["level 0"] * 10
    table = table_of(tmp_path, {"a": levels, "b": levels, "n": range(130)})
    encoder = learnt(table)
    text = [rule for rule in encoder.rules if isinstance(rule, Categories)]
    assert [len(rule.levels) for rule in text] == [8, 8]
    assert all(rule.levels[0] == "level 0" and rule.has_others for rule in text)
    assert all(abs(sum(rule.shares) + rule.others_share - 1) < 1e-12 for rule in text)
    assert encoder.encode(table).values[:, :9].sum(1).tolist() == [1.0] * 130
    assert not encoder.encode(table).notes


@pytest.mark.parametrize("pair", ["F N", "T Y", "no n", "yes true"])
def test_two_words_for_the_same_truth_are_text(tmp_path, pair):
    found = rule(tmp_path, pair.split() * 10)
    assert isinstance(found, Categories)
    assert set(found.levels) == set(pair.split())


@pytest.mark.parametrize("pair", ["F T", "yes no", "TRUE False", "y N"])
def test_a_truth_and_its_opposite_are_0_and_1(tmp_path, pair):
    found = rule(tmp_path, pair.split() * 10)
    assert isinstance(found, Quantity)
    assert found.kind == "boolean"


def test_surprises_of_all_text_columns_share_one_budget(tmp_path):
    def one(name, rare):
        return Categories(name, ("a", "b"), (0.5, 0.5), has_others=True, has_missing=False, others_share=rare)

    new = table_of(tmp_path, {name: ["z"] for name in "pqr"})
    encoder = TableEncoder((one("p", 0.008), one("q", 0.007), one("r", 0.001)))
    assert [name for _, name, _ in encoder.encode(new).never_seen] == ["q", "r"]


def test_typed_columns_are_held_against_the_rule(tmp_path):
    polars = pytest.importorskip("polars")
    encoder = learnt(
        table_of(
            tmp_path, {"day": [f"2020-01-{k:02d}" for k in range(1, 21)], "ok": ["yes", "no"] * 10, "n": range(20)}
        )
    )
    path = tmp_path / "new.parquet"
    dates = polars.Series(["2020-01-05"]).str.to_date()

    def encoded(day, ok, n):
        polars.DataFrame({"day": day, "ok": ok, "n": n}).write_parquet(path)
        return encoder.encode(read(path)).values

    assert encoded(dates, [1], [3])[0, 1] == 1
    with pytest.raises(ValueError, match=r"column 'day', holds numbers instead of dates"):
        encoded([18_000], [1], [3])
    with pytest.raises(ValueError, match=r"column 'ok', row 1: 7 is neither 0 nor 1"):
        encoded(dates, [7], [3])
    with pytest.raises(ValueError, match=r"column 'n', holds dates instead of numbers"):
        encoded(dates, [0], dates)


def test_many_rare_levels_are_told_apart_by_how_frequent_they_are(tmp_path):
    levels = [*["often"] * 40, *(f"rare {k}" for k in range(30) for _ in range(1 + k % 2)), "", ""]
    table = table_of(tmp_path, {"c": levels, "n": range(len(levels))})
    encoder = learnt(table)
    assert encoder.rules[0].features == ("c=often", "c (other)", "c (missing)", "c (log frequency)")
    new = table_of(tmp_path, {"c": ["often", "rare 0", "rare 1", "never", ""], "n": range(5)}, "new.csv")
    values = encoder.encode(new).values
    np.testing.assert_allclose(values[:, 3], np.log([41, 2, 3, 1, 1]))
    np.testing.assert_array_equal(values[:, :3], [[1, 0, 0], [0, 1, 0], [0, 1, 0], [0, 1, 0], [0, 0, 1]])
    few = table_of(tmp_path, {"c": ["often"] * 40 + ["rare 1", "rare 2"], "n": range(42)}, "few.csv")
    assert learnt(few).rules[0].features == ("c=often", "c (other)")


def test_levels_beyond_the_room_keep_their_frequency(tmp_path, monkeypatch):
    from wherefrom.tables import columns

    levels = [f"often {k}" for k in range(6) for _ in range(5 + k)] + [f"rare {k}" for k in range(25)]
    table = table_of(tmp_path, {"c": levels, "n": range(len(levels))})
    before = learnt(table).encode(table).values
    monkeypatch.setattr(columns, "MOST_FEATURES", 5)
    encoder = learnt(table)
    assert encoder.rules[0].levels == ("often 5", "often 4", "often 3")
    after = encoder.encode(table).values
    np.testing.assert_array_equal(after[:, encoder.features.index("c (log frequency)")], before[:, 7])


@pytest.mark.parametrize("rows", [np.array([3, 0, 3, 1]), np.arange(4) > 0, slice(1, 4), np.empty(0, dtype=int)])
def test_levels_that_were_never_seen_move_with_their_rows(rows):
    whole = Encoded(np.zeros((4, 1)), ("a",), ((3, "ward", "X"), (1, "ward", "Y"), (3, "kind", "Z")))
    kept = np.arange(4)[rows].tolist()
    expected = [(k, name, level) for k, row in enumerate(kept) for of, name, level in whole.never_seen if of == row]
    assert list(whole.take(rows).never_seen) == expected
