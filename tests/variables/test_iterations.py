"""t: which iterations make the law, and from where on a loss has levelled off."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import wherefrom as wf
from conftest import training
from reloaded import reloaded
from wherefrom.laws import TRADI
from wherefrom.variables.iterations import levelled_off


def seen(variable: wf.Iterations, epochs: int = 10, steps: int = 3, losses=None) -> list[int]:
    collection = variable.collection(epochs, steps, losses)
    found = [step for step in range(1, epochs * steps + 1) if collection.includes(step)]
    assert len(found) == collection.iterations
    return found


@pytest.mark.parametrize(
    ("start", "first"), [(0.5, 18), (0.0, 3), (0, 3), (1, 6), (np.int64(4), 15), (0.75, 27), (8, 27)]
)
def test_start_is_a_fraction_or_a_number_of_epochs(start, first):
    assert seen(wf.Iterations(wf.SWAG(), start)) == list(range(first, 31, 3))


def test_every_is_the_laws_own_unless_it_is_given():
    assert seen(wf.Iterations(wf.SWAG(), 0.8)) == seen(wf.Iterations(wf.SWAG(), 0.8, "epoch")) == [27, 30]
    assert seen(wf.Iterations(wf.Snapshots(), 0.8)) == [27, 30]
    assert seen(wf.Iterations(TRADI(), 0.8)) == seen(wf.Iterations(TRADI(), 0.8, 1)) == [25, 26, 27, 28, 29, 30]
    assert seen(wf.Iterations(TRADI(), 0.5, "epoch")) == [18, 21, 24, 27, 30]
    assert seen(wf.Iterations(TRADI(), 0.8, every=2)) == [26, 28, 30]


def test_steps_can_be_named():
    cycles = wf.Iterations(wf.Snapshots(), steps=[0.25, 0.5, 0.75, 1.0])
    assert seen(cycles, epochs=20) == [15, 30, 45, 60]
    assert seen(cycles, epochs=5) == [4, 8, 11, 15]  # the nearest
    assert seen(wf.Iterations(wf.SWAG(), steps=2 ** np.arange(5))) == [1, 2, 4, 8, 16]
    assert seen(wf.Iterations(wf.SWAG(), steps=(1.0, 7, 1, 0.001))) == [1, 7, 30]  # in any order, each once
    assert (
        repr(wf.Iterations(TRADI(), steps=[3, 0.5, 1.0])) == "Iterations(law=TRADI(memory=0.25), steps=(3, 0.5, 1.0))"
    )
    assert reloaded(cycles) == cycles


def test_a_law_may_name_its_steps():
    class AtCycles(TRADI):
        every = (0.5, 0.75, 1.0)

    assert seen(wf.Iterations(AtCycles())) == [15, 22, 30]
    assert seen(wf.Iterations(AtCycles(), 0.8, every=2)) == [26, 28, 30]


@pytest.mark.parametrize("steps", [[], [0], [-1], [1.5], [0.0], [float("nan")]], ids=repr)
def test_other_steps_are_refused(steps):
    with pytest.raises(ValueError, match=r"steps (are whole numbers|must name)"):
        wf.Iterations(wf.SWAG(), steps=steps)


def test_steps_stand_alone_and_within_the_training():
    for one in (0.5, 3, "epoch"):
        with pytest.raises(TypeError, match="steps must be a list"):
            wf.Iterations(wf.SWAG(), steps=one)
    for others in ({"start": 0.2}, {"start": "auto"}, {"every": "epoch"}):
        with pytest.raises(ValueError, match="leave out start and every"):
            wf.Iterations(wf.SWAG(), steps=[1, 2], **others)
    with pytest.raises(ValueError, match="names step 31, but a training has 30"):
        wf.Iterations(wf.SWAG(), steps=[3, 31]).collection(10, 3)
    for steps in ([1.0], [1.0, 30]):
        with pytest.raises(ValueError, match=r"sees 1 iteration of 10 epochs, .* 2: train longer, or name more steps"):
            wf.Iterations(wf.SWAG(), steps=steps).collection(10, 3)
    with pytest.raises(ValueError, match=r"sees 0 iterations of 1 epoch, .*: train longer, start earlier, or collect"):
        wf.Iterations(wf.SWAG(), start=1).collection(1, 3)


@pytest.mark.parametrize("engine", ["torch", "native"])
def test_snapshots_at_the_ends_of_cycles(engine, problem, tmp_path):
    """They are those of all steps, at the steps where the learning rate is smallest."""
    if engine == "native":
        pytest.importorskip("numba")
    cyclical = wf.Algorithm("sgd", lr=0.1, batch_size=25, schedule=wf.schedules.Cyclical(cycles=4, low=0.01))
    point = training(algorithm=cyclical, epochs=10)
    ends = wf.Iterations(wf.Snapshots(keep=4), steps=[0.25, 0.5, 0.75, 1.0])
    over = [wf.InitialCondition(2), ends]
    found = wf.marginalise(point, problem, over, engine=engine, checkpoints=tmp_path / "kept")
    every = wf.Iterations(wf.Snapshots(keep=40), start=0, every=1)
    whole = wf.marginalise(point, problem, [over[0], every], engine=engine)
    factors = cyclical.schedule(np.arange(40) / 40)
    lowest = [step for step in range(40) if step == 39 or factors[step + 1] > factors[step]]
    assert lowest == [9, 19, 29, 39]
    for law, trajectory in zip(found.laws(), whole.laws(), strict=True):
        assert torch.equal(law.points, trajectory.points[lowest])
    again = wf.marginalise(point, problem, over, engine=engine, checkpoints=tmp_path / "kept")
    found.save(tmp_path / "run")
    loaded = wf.load(tmp_path / "run", point.model, data=problem)
    assert loaded.design.iterations == ends
    for other in (again, loaded):
        assert torch.equal(found.predict(problem[0]).answers, other.predict(problem[0]).answers)
    wider = wf.marginalise(point, problem, [wf.InitialCondition(3), ends], engine=engine)
    for law, other in zip(loaded.extend(theta0=1).laws(), wider.laws(), strict=True):
        torch.testing.assert_close(law.points, other.points, rtol=0, atol=1e-5)


@pytest.mark.parametrize("start", [1.0, 2.5, -0.1, -1, True, "half", None, float("nan")], ids=repr)
def test_other_starts_are_refused(start):
    with pytest.raises(ValueError, match="fraction of the epochs"):
        wf.Iterations(wf.SWAG(), start)


@pytest.mark.parametrize("every", [0, -1, 1.5, True, "step"], ids=repr)
def test_other_intervals_are_refused(every):
    with pytest.raises(ValueError, match="every must be"):
        wf.Iterations(wf.SWAG(), every=every)


@pytest.mark.parametrize(
    ("variable", "needed"),
    [
        (wf.Iterations(wf.SWAG(), start=9), 2),
        (wf.Iterations(wf.SWAG(), start=12), 2),
        (wf.Iterations(TRADI(), start=8, every="epoch"), 3),
    ],
    ids=repr,
)
def test_too_few_iterations_are_refused(variable, needed):
    with pytest.raises(ValueError, match=f"needs at least {needed}"):
        variable.collection(10, 3)


# ---------------------------------------------------------------------- start="auto"


def test_auto_starts_where_the_loss_has_levelled_off():
    variable, losses = wf.Iterations(wf.SWAG(), start="auto"), [4.0, 2.0, *[1.0, 1.2, 1.1] * 6]
    assert seen(variable, epochs=20, losses=losses) == seen(replace(variable, start=2), epochs=20)


@pytest.mark.parametrize(("losses", "message"), [(None, "none are given"), ([1.0] * 9, "9 are given")])
def test_auto_needs_every_loss(losses, message):
    with pytest.raises(ValueError, match=message):
        wf.Iterations(wf.SWAG(), start="auto").collection(10, 3, losses)


@pytest.mark.parametrize("losses", [[], [1.0, float("nan")], [1.0, float("inf")]], ids=repr)
def test_a_loss_that_is_no_number_never_levels_off(losses):
    with pytest.raises(ValueError, match="finite in every epoch"):
        levelled_off(losses)


EPOCHS = 200
EPOCH = np.arange(EPOCHS)


def noise(seed: int, size: int = EPOCHS) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=size)


def found(curve) -> np.ndarray:
    """Where a hundred noisy copies of a curve level off."""
    return np.array([levelled_off(curve(seed)) for seed in range(100)])


@pytest.mark.parametrize("tau", [5.0, 10.0, 20.0])
@pytest.mark.parametrize("scatter", [0.02, 0.1])
def test_a_decay_levels_off_where_it_enters_the_noise(tau: float, scatter: float):
    starts = found(lambda seed: 1 + np.exp(-EPOCH / tau) + scatter * noise(seed))
    # From a quarter of the noise's standard deviation to three of them is left to fall, in nineteen curves of twenty.
    earliest, latest = (tau * np.log(1 / (scatter * share)) for share in (3.0, 0.25))
    assert np.mean((starts >= earliest - 1) & (starts <= latest + 1)) >= 0.95


def test_a_constant_loss_is_level_from_the_beginning():
    assert levelled_off([1.0] * 40) == 0
    starts = found(lambda seed: 1 + 0.1 * noise(seed))
    assert np.median(starts) == 0
    assert np.quantile(starts, 0.95) <= 0.05 * EPOCHS


@pytest.mark.parametrize("drop", [40, 100, 140])
def test_a_drop_is_waited_for(drop: int):
    steps = np.select([drop / 2 > EPOCH, drop > EPOCH], [2.5, 2.0], 1.0)
    starts = found(lambda seed: steps + 0.1 * noise(seed))
    assert np.median(starts) == drop
    assert (starts >= drop).all()


@pytest.mark.parametrize(
    "curve",
    [
        lambda seed: 2 - EPOCH / EPOCHS + 0.01 * noise(seed),
        lambda seed: (1 + EPOCH) ** -0.5 * (1 + 0.01 * noise(seed)),
        lambda seed: np.exp(-EPOCH / 50.0),
    ],
    ids=["line", "power", "without noise"],
)
def test_a_loss_that_falls_to_the_end_leaves_the_last_quarter(curve):
    starts = found(curve)
    assert starts.max() <= 0.75 * EPOCHS
    assert starts.min() >= 0.7 * EPOCHS


def test_spikes_decide_nothing():
    def spiked(seed: int) -> np.ndarray:
        curve = 1 + np.exp(-EPOCH / 10) + 0.05 * noise(seed)
        return curve + 20.0 * (np.random.default_rng(seed + 1000).random(EPOCHS) < 0.02)

    plain = found(lambda seed: 1 + np.exp(-EPOCH / 10) + 0.05 * noise(seed))
    assert np.mean(np.abs(found(spiked) - plain) <= 10) >= 0.95


@pytest.mark.parametrize("change", [lambda v: 1000 * v, lambda v: v - 5, np.log], ids=["times", "minus", "log"])
def test_the_losss_unit_does_not_matter(change):
    for seed in range(20):
        curve = 1 + np.exp(-EPOCH / 10) + 0.05 * noise(seed)
        assert levelled_off(change(curve)) == levelled_off(curve)


@pytest.mark.parametrize("epochs", range(1, 30))
def test_a_quarter_and_five_epochs_are_left_in_any_case(epochs: int):
    falling = np.arange(epochs, 0, -1.0)
    left = epochs - levelled_off(falling)
    assert left == min(epochs, max(5, -(-epochs // 4)))
    assert epochs - levelled_off(noise(epochs, epochs)) >= left


def test_auto_says_when_everyone_diverges(problem):
    wild = wf.Algorithm("sgd", lr=1e9, batch_size=25)
    with pytest.raises(wf.DivergedError, match="1 of 1 members diverged"):
        wf.marginalise(training(algorithm=wild, epochs=8), problem, [wf.Iterations(wf.SWAG(3), "auto")], progress=False)
