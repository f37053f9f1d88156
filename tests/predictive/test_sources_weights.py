"""Sources under weights: against the exact components of known functions, and the law of total variance."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import made_predictions
from made_predictions import changed
from wherefrom.likelihoods.regression_prediction import Prediction
from wherefrom.predictive.components import CrossedAxis, axes_of, hoeffding, weights_of
from wherefrom.predictive.monte_carlo import Plan

POPULATION = 7  # values that a random variable can take, all equally likely
P, Q = (0.6, 0.3, 0.1), (0.15, 0.85)

# Axes by name: the number of draws of a random variable, the probabilities of a finite one.
DESIGNS = {
    "one finite": {"h": P},
    "a random and a finite one": {"theta0": 3, "h": P},
    "a finite and two random ones": {"F": Q, "theta0": 3, "order": 2},
    "two finite ones and a random one": {"F": Q, "theta0": 2, "h": P},
    "finite ones, equal and not": {"F": (0.5, 0.5), "theta0": 4, "h": P},
}
WITHIN = {"": (), "t": ("t",), "t and masks": ("t", "M")}


def exact(table: np.ndarray, distributions: list[np.ndarray], names: list[str]) -> dict[str, float]:
    """Hoeffding's components of a function on a finite product space, by enumeration.

    V_u = sum over v in u of (-1)^(|u| - |v|) Var(E[f | v]), of which the products with E[f]^2 cancel.
    """

    def explained(v: tuple[int, ...]) -> float:
        mean, weight = table, np.ones(())
        for place in reversed(range(table.ndim)):
            if place not in v:
                mean = np.tensordot(mean, distributions[place], (place, 0))
        for place in v:
            weight = np.multiply.outer(weight, distributions[place])
        centre = (weight * mean).sum()
        return float((weight * (mean - centre) ** 2).sum())

    found = {}
    for size in range(1, table.ndim + 1):
        for u in itertools.combinations(range(table.ndim), size):
            subsets = [v for n in range(size + 1) for v in itertools.combinations(u, n)]
            found[" x ".join(names[i] for i in u)] = sum((-1) ** (size - len(v)) * explained(v) for v in subsets)
    return found


class Known:
    """A function of its draws, different variances within each member, and different noises, all of them known."""

    def __init__(self, design: dict[str, int | tuple[float, ...]], within: tuple[str, ...], seed: int) -> None:
        random = np.random.default_rng(seed)
        self.design, self.within = design, within
        sizes = [POPULATION if isinstance(axis, int) else len(axis) for axis in design.values()]
        self.table = random.normal(size=sizes) + sum(
            random.normal(size=[n if i == place else 1 for i, n in enumerate(sizes)]) for place in range(len(sizes))
        )
        self.noise = 0.2 + random.random(sizes)
        parts = [] if not within else ["t"] if len(within) == 1 else ["t", "M", "t x M"]
        self.spreads = {name: 10 ** random.uniform(-1.5, 1, sizes) for name in parts}
        self.masks = "M" if "F" in design else "F"

    @property
    def distributions(self) -> list[np.ndarray]:
        equal = (1 / POPULATION,) * POPULATION
        return [np.array(equal if isinstance(axis, int) else axis) for axis in self.design.values()]

    @property
    def truth(self) -> dict[str, float]:
        measure = np.ones(())
        for one in self.distributions:
            measure = np.multiply.outer(measure, one)
        between = exact(self.table, self.distributions, list(self.design))
        within = {name.replace("M", self.masks): float((measure * s).sum()) for name, s in self.spreads.items()}
        return between | within | {"noise": float((measure * self.noise).sum())}

    @property
    def axes(self) -> tuple[CrossedAxis, ...]:
        return tuple(
            CrossedAxis(name, axis, False) if isinstance(axis, int) else CrossedAxis(name, len(axis), True, axis)
            for name, axis in self.design.items()
        )

    def predict(self, generator: np.random.Generator, samples: int, rows: int) -> Prediction:
        """Every row is a design of its own, with draws of its own."""
        draws = [
            generator.integers(POPULATION, size=(axis, rows))
            if isinstance(axis, int)
            else np.tile(np.arange(len(axis))[:, None], rows)
            for axis in self.design.values()
        ]
        shape = [len(own) for own in draws]
        index = tuple(
            np.broadcast_to(np.expand_dims(own, [i for i in range(len(shape)) if i != place]), [*shape, rows])
            for place, own in enumerate(draws)
        )

        def normal(name: str, blocks: tuple[int, int, int]) -> np.ndarray:
            cells = np.sqrt(self.spreads[name][index]) if name in self.spreads else np.zeros([*shape, rows])
            return cells[..., None, None, None, :] * generator.normal(size=[*shape, *blocks, rows])

        two = len(self.within) == 2
        groups, side = (samples // 4, 2) if two else (samples, 1)
        answers = self.table[index][..., None, None, None, :] + normal("t", (groups, side, 1))
        answers = answers + normal("M", (groups, 1, side)) + normal("t x M", (groups, side, side))
        members = math.prod(shape)
        one = torch.ones(1, dtype=torch.float64)
        noise = torch.from_numpy(self.noise[index].reshape(members, 1, rows, 1))
        plan = Plan(samples, vary_theta=bool(self.within), vary_mask=two)
        values = torch.from_numpy(np.ascontiguousarray(answers).reshape(members, samples, rows, 1))
        return made_predictions.quantity(values, noise, 0 * one, one, True, plan, self.axes, None)


def within_errors(values: np.ndarray, truth: float, errors: float) -> bool:
    """Whether a mean of independent estimates is the truth, up to so many standard errors, and rounding."""
    return abs(values.mean() - truth) <= errors * values.std() / len(values) ** 0.5 + 1e-9


@pytest.mark.parametrize("within", WITHIN)
@pytest.mark.parametrize("design", DESIGNS)
def test_components_are_those_under_the_product_of_the_distributions(design, within):
    """The mean over 20,000 small designs lies within three standard errors of what enumeration says."""
    known = Known(DESIGNS[design], WITHIN[within], seed=6)
    samples = {0: 1, 1: 3, 2: 8}[len(WITHIN[within])]
    found = known.predict(np.random.default_rng(4), samples, rows=20_000).sources().variance
    assert found.keys() == known.truth.keys()
    for name, truth in known.truth.items():
        assert within_errors(found[name].numpy(), truth, 3), (name, float(found[name].mean()), truth)


def test_the_samples_part_is_that_of_the_members_that_weigh_most():
    """A test of the test above: with the members' mean variance in the place of each one's own, it would fail."""
    known = Known({"h": P}, ("t",), seed=6)
    prediction = known.predict(np.random.default_rng(4), 3, rows=20_000)
    weights, means = prediction.weights, prediction.answers.mean(1)[..., 0]
    between = torch.tensordot(weights, means.square(), 1) - torch.tensordot(weights, means, 1).square()
    variance = prediction.answers.var(1)[..., 0] / 3
    naive = between - (1 - float(weights.square().sum())) * variance.mean(0)
    right = between - torch.tensordot(weights * (1 - weights), variance, 1)
    torch.testing.assert_close(prediction.sources().variance["h"], right)
    assert within_errors(right.numpy(), known.truth["h"], 3)
    assert not within_errors(naive.numpy(), known.truth["h"], 10)


def test_one_sampling_variance_for_all_cells_is_that_of_each():
    axes = (CrossedAxis("F", 2, True, Q), CrossedAxis("theta0", 4, False), CrossedAxis("h", 3, True, P))
    values = torch.randn(2, 4, 3, 5, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    one = torch.tensor(0.7, dtype=torch.float64)
    together, each = hoeffding(values, axes, one), hoeffding(values, axes, one.expand_as(values))
    for name in each:
        torch.testing.assert_close(together[name], each[name], msg=name)


@pytest.mark.parametrize("within", ["", "t"])
def test_intervals_cover(within):
    """Truth within two standard errors in at least 80% of designs, and errors of the right size."""
    known = Known({"theta0": 12, "h": P}, WITHIN[within], seed=5)
    found = known.predict(np.random.default_rng(6), 4 if within else 1, rows=2000).sources()
    for name, truth in known.truth.items():
        estimates, errors = found.variance[name].numpy(), found.standard_error[name].numpy()
        assert np.mean(np.abs(estimates - truth) <= 2 * errors + 1e-9) > 0.8, name
        assert 0.8 < np.sqrt(np.mean(errors**2)) / estimates.std() < 1.25, name


def test_without_random_variables_errors_are_those_of_samples():
    known = Known({"h": P}, ("t",), seed=7)
    found = known.predict(np.random.default_rng(8), 40, rows=2000).sources()
    for name in ("h", "t"):
        estimates, errors = found.variance[name].numpy(), found.standard_error[name].numpy()
        assert 0.8 < np.sqrt(np.mean(errors**2)) / estimates.std() < 1.25, name
        assert np.mean(np.abs(estimates - known.truth[name]) <= 2 * errors) > 0.85, name
    assert float(found.standard_error["noise"].max()) < 1e-12


def crossed(axes: tuple[CrossedAxis, ...], samples: int = 1, rows: int = 6, seed: int = 0, **changes) -> Prediction:
    generator = torch.Generator().manual_seed(seed)
    members = math.prod(axis.draws for axis in axes)
    answers = torch.randn(members, samples, rows, 1, generator=generator, dtype=torch.float64)
    noise = 0.1 + torch.rand(members, 1, rows, 1, generator=generator, dtype=torch.float64)
    one = torch.ones(1, dtype=torch.float64)
    plan = Plan(samples, vary_theta=samples > 1, vary_mask=False)
    return changed(made_predictions.quantity(answers, noise, 3 * one, 2 * one, True, plan, axes, None), **changes)


def same(one, other, exactly: bool = False) -> None:
    assert one.names == other.names
    for name in one:
        for a, b in ((one.variance, other.variance), (one.standard_error, other.standard_error), (one, other)):
            if exactly:
                assert torch.equal(a[name], b[name]), name
            else:
                torch.testing.assert_close(a[name], b[name], rtol=1e-10, atol=1e-12, msg=name)


@pytest.mark.parametrize("samples", [1, 6])
def test_equal_weights_change_nothing_at_all(samples):
    axes = (CrossedAxis("theta0", 4, False), CrossedAxis("h", 3, True))
    plain = crossed(axes, samples)
    same(changed(plain, weights=torch.full((12,), 1 / 12, dtype=torch.float64)).sources(), plain.sources(), True)
    weighted = (axes[0], replace(axes[1], weights=(1 / 3,) * 3))
    same(crossed(weighted, samples).sources(), plain.sources(), True)


def test_whole_multiples_of_a_value_are_repetitions_of_it():
    """Where answers are known exactly: samples that are there twice would be taken for independent ones."""
    axes = (CrossedAxis("theta0", 4, False), CrossedAxis("h", 2, True, (0.75, 0.25)))
    weighted = crossed(axes)
    repeated = [member for draw in range(4) for member in (2 * draw,) * 3 + (2 * draw + 1,)]
    known = torch.rand(8, 6, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for within, parts in ((None, None), (lambda: {"t": known}, lambda: {"t": known[repeated]})):
        twice = changed(
            weighted,
            answers=weighted.answers[repeated],
            noise=weighted.mixture.noise[repeated],
            axes=(axes[0], CrossedAxis("h", 4, True)),
            weights=None,
            within=parts,
        )
        same(changed(weighted, within=within).sources(), twice.sources())


def test_values_that_weigh_nothing_are_left_out():
    axes = (CrossedAxis("theta0", 3, False), CrossedAxis("h", 3, True, (0.25, 0.0, 0.75)))
    whole = crossed(axes, samples=4)
    spoilt = changed(whole, answers=whole.answers.index_fill(0, torch.tensor([1, 4, 7]), math.nan))
    kept = [0, 2, 3, 5, 6, 8]
    part = changed(
        whole,
        answers=whole.answers[kept],
        noise=whole.mixture.noise[kept],
        axes=(axes[0], CrossedAxis("h", 2, True, (0.25, 0.75))),
        weights=None,
    )
    same(spoilt.sources(), part.sources(), True)


def test_probabilities_are_found_in_the_members_weights():
    """Axes need not say them: weights that are a product are the product's factors."""
    axes = (CrossedAxis("F", 2, True, Q), CrossedAxis("theta0", 3, False), CrossedAxis("h", 3, True, P))
    said = crossed(axes, samples=4)
    found = crossed(tuple(replace(axis, weights=None) for axis in axes), samples=4, weights=weights_of(axes))
    same(found.sources(), said.sources())
    assert "F x theta0 x h" in found.sources()
    alone = (CrossedAxis("h", 3, True, P),)
    one = crossed((CrossedAxis("h", 3, True),), samples=4, weights=weights_of(alone))
    assert axes_of(one.mixture) == alone
    same(one.sources(), crossed(alone, samples=4).sources())
    # And the members' weights are what counts, where the axes say something else.
    again = changed(said, weights=torch.full((18,), 1 / 18, dtype=torch.float64))
    same(again.sources(), crossed(tuple(replace(axis, weights=None) for axis in axes), samples=4).sources(), True)


# ---------------------------------------------------------------------- weights that are no product

AXES = (CrossedAxis("theta0", 4, False), CrossedAxis("h", 2, True))
STACKED = torch.tensor([0.4, 0.0, 0.1, 0.2, 0.0, 0.25, 0.05, 0.0], dtype=torch.float64)


def test_other_weights_leave_one_share_to_all_that_differs_between_members():
    prediction = crossed(AXES, weights=STACKED)
    sources = prediction.sources()
    assert sources.names == ("theta0+h", "noise")
    torch.testing.assert_close(sources.variance["theta0+h"] + sources.variance["noise"], prediction.variance)
    torch.testing.assert_close(sources.variance["noise"], prediction.noise_variance)
    assert sources.overall["theta0+h"].share_error == 0.0  # the members are all there are, and exact
    joint = (CrossedAxis("theta0+order", 4, False), CrossedAxis("h", 2, True))
    assert crossed(joint, weights=STACKED).sources().names == ("theta0+order+h", "noise")


def test_the_law_of_total_variance_without_bias():
    """Between members, within them and noise: the mean over 20,000 rows lies within three standard errors."""
    random = np.random.default_rng(9)
    weights = random.dirichlet(np.ones(8))
    centre, spread, noise = random.normal(size=8), 3 * random.random(8), random.random(8)
    answers = centre[:, None, None] + np.sqrt(spread)[:, None, None] * random.normal(size=(8, 3, 20_000))
    prediction = crossed(
        AXES,
        samples=3,
        answers=torch.from_numpy(answers[..., None]),
        noise=torch.from_numpy(noise)[:, None, None, None].expand(8, 1, 20_000, 1),
        weights=torch.from_numpy(weights),
    )
    found = prediction.sources().variance
    mean = (weights * centre).sum()
    truth = {
        "theta0+h": (weights * (centre - mean) ** 2).sum(),
        "t": (weights * spread).sum(),
        "noise": (weights * noise).sum(),
    }
    unit = float(prediction.scale) ** 2
    assert found.keys() == truth.keys()
    for name, value in truth.items():
        assert within_errors(found[name].numpy(), unit * value, 3), name


def test_known_variances_within_members_are_weighted_too():
    known = torch.rand(8, 6, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    prediction = crossed(AXES, weights=STACKED, within=lambda: {"t": known}, spread=known[:, None])
    sources = prediction.sources()
    assert sources.names == ("theta0+h", "t", "noise")
    torch.testing.assert_close(sources.variance["t"], 4 * torch.einsum("m,mr->r", STACKED, known[..., 0]))
    torch.testing.assert_close(torch.stack(list(sources.variance.values())).sum(0), prediction.variance)


@pytest.mark.parametrize("samples", [1, 5])
def test_members_that_weigh_nothing_are_left_out(samples):
    whole = crossed(AXES, samples, weights=STACKED)
    dead = torch.nonzero(STACKED == 0).flatten()
    live = torch.nonzero(STACKED).flatten()
    spoilt = changed(whole, answers=whole.answers.index_fill(0, dead, math.nan))
    part = changed(whole, answers=whole.answers[live], noise=whole.mixture.noise[live], weights=STACKED[live])
    same(spoilt.sources(), part.sources(), True)  # which has fewer members than its axes, and may


def test_random_draws_that_do_not_count_the_same_are_a_population():
    """Weights of random draws were chosen, and their draws are random no more: divisor n, and errors of samples."""
    axes = (CrossedAxis("theta0", 3, False),)
    prediction = crossed(axes, weights=torch.tensor([0.5, 0.5, 0.0], dtype=torch.float64))
    sources = prediction.sources()
    assert sources.names == ("theta0", "noise")
    torch.testing.assert_close(sources.variance["theta0"] + sources.variance["noise"], prediction.variance)


def test_missing_members_matter_only_to_a_crossed_design():
    lost = crossed(AXES, missing="these diverged: theta0 3, h 1")
    with pytest.raises(ValueError, match="need every member of the crossed design, but these diverged"):
        lost.sources()
    some = changed(
        lost, answers=lost.answers[:5], noise=lost.mixture.noise[:5], weights=torch.full((5,), 0.2, dtype=torch.float64)
    )
    assert some.sources().names == ("theta0+h", "noise")


def test_members_without_axes_are_called_members():
    assert changed(crossed(AXES, weights=STACKED), axes=()).sources().names == ("members", "noise")
    alone = crossed((), weights=torch.ones(1, dtype=torch.float64))
    assert alone.sources().names == ("noise",)


def test_masks_have_a_name_of_their_own_beside_families():
    for name, masks in (("F", "M"), ("F+theta0", "M"), ("theta0", "F")):
        axes = (CrossedAxis(name, 3, False),)
        both = crossed(axes, samples=8, plan=Plan(8, True, True)).sources()
        assert both.names == (name, "t", masks, f"t x {masks}", "noise")
        one = crossed(axes, samples=8, plan=Plan(8, False, True)).sources()
        assert one.names == (name, masks, "noise")
        torch.testing.assert_close(
            torch.stack([part.double() for part in both.values()]).sum(0), torch.ones(6, dtype=torch.float64)
        )


@pytest.mark.parametrize(
    ("axis", "message"),
    [
        (("theta0", 2, False, (0.5, 0.5)), "the draws of theta0 are random"),
        (("h", 2, True, (0.5, 0.25, 0.25)), "h has 2 draws, but 3 weights"),
        (("h", 2, True, (0.5, 0.6)), "add up to 1"),
        (("h", 2, True, (1.5, -0.5)), "not negative"),
    ],
)
def test_wrong_probabilities_are_refused(axis, message):
    with pytest.raises(ValueError, match=message):
        CrossedAxis(*axis)


def test_weights_of_members_are_products():
    assert weights_of(()) is None
    assert weights_of((CrossedAxis("theta0", 3, False), CrossedAxis("h", 2, True))) is None
    found = weights_of((CrossedAxis("F", 2, True, Q), CrossedAxis("theta0", 2, False), CrossedAxis("h", 3, True, P)))
    expected = [q * 0.5 * p for q in Q for _ in range(2) for p in P]
    assert found.tolist() == pytest.approx(expected)
