"""Mean squares against the components, and the coverage of the intervals that follow from them."""

import importlib.util
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from torch.utils._python_dispatch import TorchDispatchMode

from wherefrom.predictive.components import CrossedAxis, hoeffding
from wherefrom.predictive.mean_squares import Chances, MeanSquares, _inverse_chi_squares, names_of

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "coverage_of_sources.py"


@pytest.fixture(scope="module")
def simulation():
    spec = importlib.util.spec_from_file_location("coverage_of_sources", BENCHMARK)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


AXES = {
    "random": (CrossedAxis("a", 3, False), CrossedAxis("b", 4, False), CrossedAxis("c", 2, False)),
    "finite": (CrossedAxis("a", 3, False), CrossedAxis("b", 4, True), CrossedAxis("c", 3, False)),
    "weighted": (CrossedAxis("a", 3, False), CrossedAxis("b", 4, True, (0.1, 0.2, 0.3, 0.4))),
}


@pytest.mark.parametrize("kind", AXES)
def test_components_are_sums_of_mean_squares(kind):
    """Those in which a random variable takes part; and the variance of the mean, V_u / product of draws."""
    axes = AXES[kind]
    values = torch.from_numpy(np.random.default_rng(0).normal(size=[*(axis.draws for axis in axes), 5, 2]))
    squares, parts = MeanSquares.of(values, axes), hoeffding(values, axes, torch.zeros((), dtype=torch.float64))
    of_mean = torch.zeros(5, 2, dtype=torch.float64)
    for name, places in names_of(axes).items():
        drawn = [axes[i].draws for i in places if not axes[i].is_finite]
        if drawn:
            total = sum(factor * squares.squares[subset] for subset, factor in squares.coefficients(places).items())
            torch.testing.assert_close(parts[name], total)
        if len(drawn) == len(places):
            of_mean += parts[name] / math.prod(drawn)
    torch.testing.assert_close(squares.variance_of_mean(), of_mean.clamp_min(0))


def test_degrees_of_freedom_count_rows_that_vary_by_themselves():
    """40 rows: as one, and each by itself; the estimate is taken 1 + 2 / d times."""
    generator, axes = np.random.default_rng(1), (CrossedAxis("a", 12, False),)
    same = torch.from_numpy(np.repeat(generator.normal(size=(12, 1)), 40, 1)).unsqueeze(-1)
    own = torch.from_numpy(generator.normal(size=(12, 40, 1)))
    as_one, apart = (MeanSquares.of(each, axes, over_rows=True).degrees[0,] for each in (same, own))
    assert float(as_one) == pytest.approx(11)
    assert 0.7 * 11 * 40 / (1 + 2 / 11) < float(apart) <= 11 * 40
    two = MeanSquares.of(own[:2], (CrossedAxis("a", 2, False),), over_rows=True).degrees[0,]
    assert float(two) == 1


@pytest.mark.parametrize("degrees", [1.0, 2.5, 12.0, 49.0, 51.0, 400.0])
def test_chi_squares(degrees):
    found = _inverse_chi_squares(degrees, 1000)
    expected = degrees / stats.chi2.ppf((np.arange(1000) + 0.5) / 1000, degrees)
    np.testing.assert_allclose(found, expected, rtol=5e-3)


def test_chances_of_different_names_are_independent():
    chances = Chances(2000)
    one, other = (chances.of(name, torch.tensor([9.0]))[:, 0, 0] for name in ("a", "b"))
    assert torch.equal(one, chances.of("a", torch.tensor([9.0]))[:, 0, 0])
    assert abs(float(torch.corrcoef(torch.stack([one, other]))[0, 1])) < 4 / math.sqrt(2000)


@pytest.mark.slow
@pytest.mark.parametrize("draws", [(5,), (2, 2), (3, 3), (5, 4), (3, 3, 3)])
def test_intervals_of_single_rows_hold(simulation, draws):
    """Of variances and shares, in 1,500 designs, within four binomial standard errors, and as the results say.

    The shares of t lack more where three variables are crossed: they hold as often as the results say.
    """
    published = coverages(simulation.RESULTS, "Single rows")
    for name, values in simulation.covered_rows(draws, 1500, seed=1).items():
        said = published[" x ".join(map(str, draws)), name]
        for number, (coverage, earlier) in enumerate(zip(values[:4], said, strict=True)):
            level = simulation.LEVELS[number % 2]
            error, its_error = (math.sqrt(level * (1 - level) / rows) for rows in (1500, 2000))
            assert abs(coverage - earlier) < 4 * math.hypot(error, its_error), (name, number)
            if name != "t" or number < 2 or len(draws) < 3:
                assert coverage > level - 4 * error, (name, number, coverage)
        if min(draws) > 2 and name != "t":
            assert 0.9 < values[6] < 1.1, name  # the standard error


def coverages(path: Path, title: str) -> dict[tuple[str, str], list[float]]:
    """Return the first four coverages of a table of results, by design and source."""
    section = path.read_text().split(f"### {title}\n")[1].split("###")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in section.splitlines() if "%" in line]
    return {(row[0], row[1]): [float(cell[:-1]) / 100 for cell in row[2:6]] for row in rows if row[0] != "design"}


@pytest.mark.slow
@pytest.mark.parametrize("draws", [(5,), (3, 3), (5, 4)])
def test_intervals_of_all_rows_hold(simulation, draws):
    for name, values in simulation.covered_overall(draws, 120).items():
        for level, coverage in zip(simulation.LEVELS * 2, values[:4], strict=True):
            assert coverage > level - 4 * math.sqrt(level * (1 - level) / 120), (name, level, coverage)


class _Largest(TorchDispatchMode):
    """Note the number of entries of the largest tensor that is made."""

    entries = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        self.entries = max(self.entries, made.numel() if isinstance(made, torch.Tensor) else 0)
        return made


def test_memory_is_linear_in_the_draws():
    draws, rows = 2000, 5
    values = torch.randn(draws, rows, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    with _Largest() as largest:
        MeanSquares.of(values, (CrossedAxis("a", draws, False),), over_rows=True)
    assert largest.entries == draws * rows


def test_degrees_of_freedom_are_those_of_the_gram_matrix_of_the_draws():
    """With more draws than rows, products are taken over rows: the traces are the same."""
    draws, rows = 40, 6
    values = torch.randn(draws, rows, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    values[:, 3:] = values[:, :3] + 0.1 * values[:, 3:]  # rows that vary together
    degrees = MeanSquares.of(values, (CrossedAxis("a", draws, False),), over_rows=True).degrees[0,]
    effect = (values - values.mean(0)).flatten(1)
    gram = effect @ effect.T
    trace, square, d = float(gram.trace()), float(gram.square().sum()), draws - 1
    rho = (d * square - trace**2) / ((d + 1) * trace**2 - 2 * square)
    assert float(degrees) == pytest.approx(d / (rho * (1 + 2 / d)), rel=1e-9)
