"""Rows unlike those of training are found, and the reason is named."""

import numpy as np
import pytest

from reloaded import reloaded
from wherefrom.tables.columns import Encoded, Quantity, TableEncoder
from wherefrom.tables.outside import FURTHER_UNSEEN, RATE, UNSEEN, Surroundings, short, weight

pytestmark = pytest.mark.slow


def quantity(name, kind="number"):
    return Quantity(name, kind, 0.0, 1.0, marks_missing=False)


def encoder(names):
    return TableEncoder(tuple(map(quantity, names)))


def encoded(raw, names, training=None, never_seen=()):
    """Rows as an encoder gives them: clipped to the range of training, and as they are written."""
    raw = np.atleast_2d(np.array(raw, dtype=float))
    training = raw if training is None else training
    values = np.clip(raw, np.nanmin(training, axis=0), np.nanmax(training, axis=0))
    values = np.where(np.isnan(values), np.nanmedian(training, axis=0), values)
    return Encoded(values, tuple(names), tuple(never_seen), raw=raw)


def learnt(training, names, **others):
    return Surroundings.of(encoder(names), encoded(training, names), **others)


def look(training, names, rows, never_seen=()):
    return learnt(training, names).look(encoded(rows, names, training, never_seen))


@pytest.fixture
def rows(random):
    """Two columns that go together, and one by itself."""

    def drawn(count):
        a = random.normal(size=count)
        return np.stack([a, a + 0.1 * random.normal(size=count), 5 * random.normal(size=count)], axis=1)

    return drawn


def test_a_column_that_is_far_off_is_named_with_its_range(rows):
    training = rows(3000)
    distance, why = look(training, "abc", [[0, 0, 60], [0, 0, 0]])
    low, high = (short(float(end)) for end in (training[:, 2].min(), training[:, 2].max()))
    assert distance[0] > 1 > distance[1]
    assert why == [f"c 60 (training {low} to {high})", ""]


def test_several_columns_are_named_farthest_first_and_three_at_most(rows):
    training = np.concatenate([rows(500), rows(500)[:, :1]], axis=1)
    distance, why = look(training, "abcd", [[20, 60, 1000, 900], [20, 0, 1000, 0]])
    assert [part.split()[0] for part in why[0].split("; ")] == ["d", "c", "b"]
    assert [part.split()[0] for part in why[1].split("; ")] == ["c", "a"]
    assert np.isfinite(distance).all()


def test_distances_grow_by_one_for_every_range(rows):
    training = rows(1000)
    around = learnt(training, "abc")
    size = np.ptp(training[:, 2])
    steps = np.array([0.0, 1, 3, 10, 100, 1e9])
    for end, sign in ((training[:, 2].max(), 1), (training[:, 2].min(), -1)):
        moved = np.zeros((len(steps), 3))
        moved[:, 2] = end + sign * steps * size
        distance, _ = around.look(encoded(moved, "abc", training))
        assert (np.diff(distance) > 0).all()
        assert (distance[1:] >= steps[1:] + 0.1).all()
        assert (distance <= steps + 1).all()
        assert (weight(distance)[2:] > 0.99).all()


def test_the_weight_rises_from_the_edge_to_one():
    distance = np.linspace(0, 6, 601)
    each = weight(distance)
    assert (each[distance <= 1] == 0).all()
    assert (np.diff(each) >= 0).all()
    assert each[-1] == 1
    assert np.diff(each).max() < 0.02  # without a step


def test_dates_are_written_as_dates():
    days = np.arange(18000.0, 19000.0)[:, None]
    when = TableEncoder((quantity("when", "date"),))
    training = encoded(days, ["when"])
    _, why = Surroundings.of(when, training).look(encoded([[47482.0], [1e8]], ["when"], days))
    assert why[0] == "when 2100-01-01 (training 2019-04-14 to 2022-01-07)"
    assert why[1].startswith("when day 1e+08 (training")


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
def test_a_column_is_judged_by_its_own_tail(seed, column, value):
    """A long tail elsewhere does not excuse it."""
    training = patients(np.random.default_rng(seed), 5000)
    row = np.array([57.0, 125.0, 80.0, 1.0])
    row[CLINICAL.index(column)] = value
    distance, why = look(training, CLINICAL, row)
    assert distance[0] > 1
    assert why[0].startswith(f"{column} {value} (training ")


def test_what_is_usual_on_one_side_can_be_far_off_on_the_other():
    training = np.random.default_rng(3).lognormal(size=(5000, 1))
    distance, why = look(training, "x", [[11.0], [-9.0]])
    assert distance[0] < 1 < distance[1]
    assert why[0] == ""
    assert why[1].startswith("x -9 (training 0.0")


def test_a_column_is_named_although_the_combination_is_unusual_too(rows):
    distance, why = look(rows(3000), "abc", [[20, 0, 0]])
    assert distance[0] > 1
    assert why[0].startswith("a 20 (training ")


def test_a_combination_that_does_not_go_together_is_seen(rows):
    distance, why = look(rows(3000), "abc", [[2, -2, 0], [2, 2, 0]])
    assert distance[0] > 1 > distance[1]
    assert why == ["an unusual combination: a 2, b -2", ""] or why == ["an unusual combination: b -2, a 2", ""]


def test_missing_values_are_inside_and_not_named(rows):
    training = rows(2000)
    training[::7, 1] = np.nan
    distance, why = look(training, "abc", [[0, np.nan, 0], [0, np.nan, 900]])
    assert distance[0] < 1 < distance[1]
    assert why[0] == ""
    assert why[1].startswith("c 900")


def test_a_row_with_gaps_is_as_far_as_its_known_columns_say(rows):
    """Gaps that were taken as the median would be unusual combinations where columns go together."""
    training = rows(3000)
    around = learnt(training, "abc")
    new = rows(400)
    new[:, 1] = np.nan
    distance, _ = around.look(encoded(new, "abc", training))
    assert (distance > 1).mean() < 4 * RATE + 3 * np.sqrt(4 * RATE / 400)
    covariance = np.linalg.inv(around.precision)[np.ix_([0, 2], [0, 2])]  # of the known columns alone
    z = (np.clip(new, training.min(axis=0), training.max(axis=0)) - around.centre)[:, [0, 2]] / around.spread[[0, 2]]
    oracle = np.sqrt((z * np.linalg.solve(covariance, z.T).T).sum(axis=1)) / around.edge
    joint = oracle > around._columns(new).max(axis=1)
    np.testing.assert_allclose(distance[joint], oracle[joint])
    for value in (-2.0, 0.0, 2.0):  # no completion is nearer
        complete = np.where(np.isnan(new), value, new)
        assert (around.look(encoded(complete, "abc", training))[0] >= distance - 1e-9).all()


@pytest.mark.parametrize(
    ("count", "lab"), [(5000, "lognormal"), (250, "lognormal"), (250, "t"), (3000, "t"), (100, "lognormal")]
)
def test_few_further_patients_are_outside(count, lab):
    """At most RATE by columns and as many by combinations; with long tails of few rows, still fewer than 1 in 100."""
    shares = []
    for seed in range(25):
        random = np.random.default_rng(seed)
        training, new = patients(random, count, lab), patients(random, 2000, lab)
        distance, _ = look(training, CLINICAL, new)
        shares.append(float((distance > 1).mean()))
    most = 2 * RATE if count >= 400 else 0.01
    assert np.mean(shares) < most + 3 * np.std(shares) / np.sqrt(len(shares))


@pytest.mark.parametrize("training", [40, 170, 800])
def test_the_rate_holds_on_small_tables(training):
    """On average over tables at most 1 in 200, or 1 in as many rows as there are."""
    random, shares = np.random.default_rng(1), []
    for _ in range(60):
        scale = np.exp(random.normal(size=5))
        rows, new = (scale * random.standard_t(6, size=(count, 5)) for count in (training, 2000))
        distance, _ = look(rows, "abcde", new)
        shares.append(float((distance > 1).mean()))
    assert np.mean(shares) < max(0.005, 1 / (training + 1)) + 3 * np.std(shares) / np.sqrt(60)


def test_rows_of_a_group_are_left_out_together():
    """Copies of a row say nothing about a further one."""
    random = np.random.default_rng(2)
    patient = np.repeat(np.arange(60), 20)

    def visits():
        return (3 * random.standard_t(3, size=(60, 3)))[patient] + 0.01 * random.normal(size=(1200, 3))

    shares = {True: [], False: []}
    for _ in range(20):
        training, new = visits(), visits()
        for by_group in shares:
            around = learnt(training, "abc", copies=patient if by_group else None)
            shares[by_group].append((around.look(encoded(new, "abc", training))[0] > 1).mean())
    assert np.mean(shares[True]) < 0.5 * np.mean(shares[False])


def test_columns_that_are_mostly_the_same_do_not_flag_what_training_had():
    """Rarely true, mostly missing, always the same, and a few whole numbers."""
    random, names = np.random.default_rng(4), ("true", "filled", "same", "x", "few")

    def rows(count):
        filled = np.where(random.random(count) < 0.95, np.nan, random.normal(size=count))
        columns = [random.random(count) < 0.05, filled, np.ones(count), random.normal(size=count)]
        return np.stack([*columns, random.integers(0, 4, count)], axis=1).astype(float)

    training = rows(5000)
    usual = [[0, np.nan, 1, 0, 0], [1, 0.3, 1, 0, 3], [0, 0.5, 1, 0, 1], [0, np.nan, 1, 2, 2]]
    distance, why = look(training, names, usual)
    assert (distance < 1).all()
    assert why == [""] * 4
    distance, why = look(training, names, [[0, 0, 5, 0, 0], [0, 0, 1, 0, 6]])
    assert why == ["same 5 (training 1 to 1)", "few 6 (training 0 to 3)"]


def test_a_column_that_is_hardly_ever_true_reaches_as_far_as_true():
    values = np.zeros((5000, 1))
    values[:3] = 1
    distance, why = look(values, ["flag"], [[1.0], [2.0]])
    assert distance[0] < 1 < distance[1]
    assert why[1] == "flag 2 (training 0 to 1)"


def test_levels_that_were_never_seen_have_a_distance(rows):
    never_seen = ((1, "colour", "teal"), (2, "colour", "teal"), (2, "ward", "Z"))
    distance, why = look(rows(500), "abc", np.zeros((3, 3)), never_seen)
    assert distance[0] < 1
    assert distance[1:].tolist() == [UNSEEN, UNSEEN + FURTHER_UNSEEN]
    assert why == ["", "colour=teal was never seen", "colour=teal was never seen; ward=Z was never seen"]


def test_it_goes_into_a_file_and_back(rows):
    training = rows(300)
    around, new = learnt(training, "abc"), encoded(rows(50) * 2, "abc", training)
    np.testing.assert_array_equal(reloaded(around).look(new)[0], around.look(new)[0])


def test_tables_without_quantities_know_levels_alone():
    nothing = Encoded(np.zeros((5, 2)), ("x", "y"), raw=np.empty((5, 0)))
    around = Surroundings.of(TableEncoder(()), nothing)
    distance, _ = around.look(Encoded(np.zeros((2, 2)), ("x", "y"), ((0, "c", "z"),), raw=np.empty((2, 0))))
    assert distance.tolist() == [UNSEEN, 0.0]


def test_columns_that_depend_on_each_other_exactly_do_no_harm(random):
    a = random.normal(size=500)
    values = np.stack([a, 2 * a], axis=1)
    distance, _ = look(values, "ab", values)
    assert np.isfinite(distance).all()
    assert (distance > 1).mean() < 0.01
