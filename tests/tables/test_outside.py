"""Rows unlike those of training are found, and the reason is named."""

import numpy as np
import pytest

from reloaded import reloaded
from wherefrom.tables.columns import Encoded, Quantity, TableEncoder
from wherefrom.tables.outside import Surroundings

pytestmark = pytest.mark.slow


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


CLINICAL = ("age", "pressure", "heart rate", "lab")


def patients(random, count, lab="lognormal"):
    """Ages of 18 to 97, and a laboratory value with a long tail."""
    age = random.uniform(18, 97, size=count)
    pressure = random.normal(125, 18, size=count) + 0.3 * (age - 57)
    rate = random.normal(80, 15, size=count)
    long = random.lognormal(size=count) if lab == "lognormal" else random.standard_t(2, size=count)
    return np.stack([age, pressure, rate, long], axis=1)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("column", "value"), [("age", 140), ("age", 120), ("pressure", 20), ("heart rate", 5), ("lab", 200)]
)
def test_a_column_is_judged_by_how_far_it_went_itself(seed, column, value):
    """A long tail elsewhere does not excuse it; and what is usual on one side can be far off on the other."""
    random = np.random.default_rng(seed)
    around = Surroundings.of(
        TableEncoder(tuple(map(quantity, CLINICAL))), patients(random, 5000), patients(random, 1500)
    )
    row = np.array([57.0, 125.0, 80.0, 1.0])
    row[CLINICAL.index(column)] = value
    distance, why = around.look(Encoded(row[None], CLINICAL))
    assert distance[0] > 1
    assert why == [f"{column} is far off"]


def test_a_column_is_judged_by_the_side_it_is_far_off_on():
    random = np.random.default_rng(3)
    around = Surroundings.of(TableEncoder((quantity("x"),)), *(random.lognormal(size=(n, 1)) for n in (5000, 1500)))
    distance, why = around.look(Encoded(np.array([[11.0], [-9.0]]), ("x",)))
    assert distance[0] < 1 < distance[1]
    assert why == ["", "x is far off"]


def test_a_column_is_named_although_the_combination_is_unusual_too(around):
    distance, why = look(around[0], [[20, 0, 0]])
    assert distance[0] > 1
    assert why == ["a is far off"]


@pytest.mark.parametrize(
    ("training", "held_out", "lab"),
    [(5000, 1500, "lognormal"), (250, 50, "lognormal"), (250, 50, "t"), (3000, 1000, "t")],
)
def test_at_most_one_in_two_hundred_further_patients_is_outside(training, held_out, lab):
    encoder = TableEncoder(tuple(map(quantity, CLINICAL)))
    shares = []
    for seed in range(25):
        random = np.random.default_rng(seed)
        known, held, new = (patients(random, count, lab) for count in (training, held_out, 2000))
        distance, _ = Surroundings.of(encoder, known, held).look(Encoded(new, CLINICAL))
        shares.append(float((distance > 1).mean()))
    assert 0 < np.mean(shares) < 0.005 + 3 * np.std(shares) / np.sqrt(len(shares))


def test_columns_that_are_mostly_the_same_do_not_flag_what_training_had():
    """Rarely true, mostly missing (and filled in by the median), and always the same."""
    random, names = np.random.default_rng(4), ("true", "filled", "same", "x")

    def rows(count):
        filled = np.where(random.random(count) < 0.95, 0.0, random.normal(size=count))
        return np.stack([random.random(count) < 0.05, filled, np.ones(count), random.normal(size=count)], axis=1)

    around = Surroundings.of(TableEncoder(tuple(map(quantity, names))), rows(5000), rows(1500))
    usual = np.array([[0, 0, 1, 0], [1, 0, 1, 0], [0, 0.5, 1, 0], [0, 0, 1, 2]], dtype=float)
    distance, why = around.look(Encoded(usual, names))
    assert (distance < 1).all()
    assert why == [""] * 4


def test_a_column_that_is_hardly_ever_true_reaches_as_far_as_true():
    values = np.zeros((5000, 1))
    values[:3] = 1
    around = Surroundings.of(TableEncoder((quantity("flag"),)), values, np.zeros((300, 1)))
    assert around.reach[1, 0] == 1
    assert 0 < around.reach[0, 0] == around.spread[0]


def test_a_combination_that_does_not_go_together_is_seen(around):
    distance, why = look(around[0], [[2, -2, 0], [2, 2, 0]])
    assert distance[0] > 1 > distance[1]
    assert why[0] == "an unusual combination"


def test_a_level_that_was_never_seen_is_as_far_as_can_be(around):
    distance, why = look(around[0], [[0, 0, 0], [0, 0, 0]], ((1, "colour", "teal"),))
    assert distance[0] < 1
    assert distance[1] == np.inf
    assert why == ["", "colour=teal was never seen"]


def test_it_goes_into_a_file_and_back(around):
    surroundings, rows, _ = around
    again = reloaded(surroundings)
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
