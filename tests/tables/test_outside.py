"""Rows unlike those of training are found, and the reason is named."""

import numpy as np
import pytest

from wherefrom.tables.columns import Encoded, Quantity, TableEncoder
from wherefrom.tables.outside import Surroundings


def quantity(name):
    return Quantity(name, "number", 0.0, 1.0, marks_missing=False)


@pytest.fixture
def around(random):
    """Two columns that go together, and one by itself."""
    encoder = TableEncoder((quantity("a"), quantity("b"), quantity("c")))

    def rows(count):
        a = random.normal(size=count)
        return np.stack([a, a + 0.1 * random.normal(size=count), 5 * random.normal(size=count)], axis=1)

    return Surroundings.of(encoder, rows(3000), rows(2000)), rows, encoder


def look(around, values, never_seen=()):
    return around.look(Encoded(np.atleast_2d(np.array(values, dtype=float)), ("a", "b", "c"), never_seen))


def test_one_in_two_hundred_usual_rows_is_outside(around):
    surroundings, rows, _ = around
    distance, _ = look(surroundings, rows(20_000))
    share = (distance > 1).mean()
    assert abs(share - 0.005) < 3 * np.sqrt(0.005 * 0.995 * (1 / 2000 + 1 / 20_000))


def test_a_column_that_is_far_off_is_named(around):
    distance, why = look(around[0], [[0, 0, 60], [0, 0, 0]])
    assert distance[0] > 1 > distance[1]
    assert why == ["c is far off", ""]


def test_a_combination_that_does_not_go_together_is_seen(around):
    distance, why = look(around[0], [[2, -2, 0], [2, 2, 0]])
    assert distance[0] > 1 > distance[1]
    assert why[0] == "an unusual combination"


def test_a_level_that_was_never_seen_is_as_far_as_can_be(around):
    distance, why = look(around[0], [[0, 0, 0], [0, 0, 0]], ((1, "colour", "teal"),))
    assert distance[0] < 1
    assert distance[1] == np.inf
    assert why == ["", "colour=teal was never seen"]


def test_it_goes_into_tensors_and_back(around):
    surroundings, rows, encoder = around
    again = Surroundings.from_tensors(encoder, surroundings.tensors())
    values = rows(50)
    np.testing.assert_array_equal(look(again, values)[0], look(surroundings, values)[0])


def test_tables_without_quantities_know_levels_alone():
    encoder = TableEncoder(())
    around = Surroundings.of(encoder, np.zeros((5, 2)), np.zeros((5, 2)))
    distance, _ = around.look(Encoded(np.zeros((2, 2)), ("x", "y"), ((0, "c", "z"),)))
    assert distance.tolist() == [np.inf, 0.0]


def test_columns_that_depend_on_each_other_exactly_do_no_harm(random):
    encoder = TableEncoder((quantity("a"), quantity("b")))
    a = random.normal(size=500)
    values = np.stack([a, 2 * a], axis=1)
    distance, _ = Surroundings.of(encoder, values, values).look(Encoded(values, ("a", "b")))
    assert np.isfinite(distance).all()


@pytest.mark.parametrize(("training", "held_out"), [(40, 10), (170, 30), (800, 150), (800, 250)])
def test_the_rate_holds_on_small_tables(training, held_out):
    """On average over tables at most 1 in 200, or 1 in as many rows as there are; and not far fewer."""
    encoder = TableEncoder(tuple(map(quantity, "abcde")))
    random, shares = np.random.default_rng(1), []
    for _ in range(60):
        scale = np.exp(random.normal(size=5))
        rows, held, new = (scale * random.standard_t(6, size=(count, 5)) for count in (training, held_out, 2000))
        distance, _ = Surroundings.of(encoder, rows, held).look(Encoded(new, tuple("abcde")))
        shares.append(float((distance > 1).mean()))
    counted = held_out if held_out >= 199 else training + held_out
    expected = max(0.005, 1 / (counted + 1))
    chance = 3 * np.std(shares) / np.sqrt(60)
    assert 0.5 * expected - chance < np.mean(shares) < expected + chance
