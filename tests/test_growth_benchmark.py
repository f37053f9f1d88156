"""The benchmark of growth: exponents of known powers, budgets, and its page from made results."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))

import growth
from growth import SIZES, curves, draw, over_budget, written
from scaling import exponent

SIZES_OF_TEN = [10**k for k in range(1, 9)]


@pytest.mark.parametrize("power", [0.5, 1.0, 1.5, 2.0])
def test_exponents_of_known_powers(power):
    fitted = exponent(SIZES_OF_TEN, [0.3 * size**power for size in SIZES_OF_TEN])
    assert fitted is not None
    assert fitted.value == pytest.approx(power, abs=1e-9)
    assert fitted.error == pytest.approx(0, abs=1e-6)
    assert fitted.is_above_linear is (power > 1.05)
    assert fitted.sizes == tuple(SIZES_OF_TEN[4:])


def test_a_fixed_cost_does_not_flatten_the_exponent():
    """A second for all, and a microsecond for each: the smaller half would give an exponent of zero."""
    costs = [1 + 1e-6 * size for size in SIZES_OF_TEN]
    assert exponent(SIZES_OF_TEN, costs) is None  # two points only are twice the smallest
    sizes = [10 ** (k / 2) for k in range(2, 19)]
    fitted = exponent(sizes, [1 + 1e-6 * size for size in sizes])
    assert fitted is not None
    assert min(fitted.sizes) >= 1e6
    assert 0.8 < fitted.value < 1  # still a little below, since the fixed cost is half of the first point


def test_the_error_is_that_of_the_slope():
    """Over many noisy lines, the slopes are off by their errors: z has a standard deviation of t with 6 df, 1.22."""
    random = np.random.default_rng(0)
    sizes = np.logspace(1, 8, 16)
    zs = []
    for _ in range(500):
        fitted = exponent([*sizes], [*(sizes * np.exp(random.normal(scale=0.1, size=16)))])
        assert fitted is not None
        zs.append((fitted.value - 1) / fitted.error)
    spread = np.sqrt(6 / 4)  # of Student's t with 8 - 2 degrees of freedom
    assert abs(np.mean(zs)) < 4 * spread / np.sqrt(500)
    assert np.std(zs) == pytest.approx(spread, rel=0.2)


def test_flat_costs_have_no_exponent():
    assert exponent(SIZES_OF_TEN, [3.0] * 8) is None
    assert exponent([1, 10], [1.0, 100.0]) is None


def _point(size: int, seconds: float, memory: float = 1.0, name: str = "samples", part: str = "predict") -> dict:
    return {"name": name, "size": size, "parts": {part: {"seconds": seconds, "memory": memory}}}


def test_points_beyond_the_budget_are_left_out():
    assert over_budget([], 10**9) is None
    assert over_budget([_point(10, 1.0)], 100) is None
    assert over_budget([_point(10, 7.0)], 100) == "predict would take about 70 CPU seconds"
    assert over_budget([_point(1, 0.1), _point(10, 5.0)], 100) == "predict would take about 250 CPU seconds"
    assert over_budget([_point(1, 1e-3), _point(10, 0.5)], 100) is None  # noise, not an exponent of 2.7
    assert over_budget([_point(10, 1.0, memory=2000.0)], 100) == "predict would take about 20,000 MB"


def _made_results() -> list[dict]:
    sizes = SIZES["samples"].sizes
    results = [_point(size, 1e-4 * size**1.5, 2.0) for size in sizes[:-1]]
    results += [_point(size, 1e-3 * size, 0.5 * size, "draws", "sources") for size in SIZES["draws"].sizes]
    return [*results, {"name": "samples", "size": sizes[-1], "left_out": "predict would take about 70 CPU seconds"}]


def test_the_page_counts_what_is_above_linear_and_says_what_was_left_out():
    text = written(_made_results(), "picture.png")
    assert "**2 of 3 costs that grow are linear or below; 1 grow clearly faster than that.**" in text
    assert (
        "| predict, samples | CPU seconds | 10 to 31,623 | 0.003162 | 562.3 | 1.50 ± 0.00 | 1,000 to 31,623 |" in text
    )
    assert "| predict, samples | MB of memory | 10 to 31,623 | 2 | 2 | not fitted |  |" in text
    assert "- predict, samples, CPU seconds: 1.50 ± 0.00. Not explained yet." in text
    assert "- samples, 100,000: predict would take about 70 CPU seconds" in text
    assert "![CPU time and memory by size](picture.png)" in text


def test_an_explanation_is_on_the_page(monkeypatch):
    monkeypatch.setattr(growth, "EXPLAINED", {("samples", "predict", "seconds"): "A reason."})
    assert "1.50 ± 0.00. A reason." in written(_made_results(), "picture.png")


def test_curves_are_in_the_order_of_sizes_whatever_the_order_of_results():
    (first, *_) = curves([_point(100, 3.0), _point(10, 1.0)])
    assert (first.sizes, first.values) == ((10, 100), (1.0, 3.0))


def test_it_is_drawn(tmp_path):
    draw(_made_results(), tmp_path / "images" / "growth.png")
    assert (tmp_path / "images" / "growth.png").read_bytes().startswith(b"\x89PNG")


def test_every_explanation_is_of_a_cost_that_is_measured():
    for name, part, cost in growth.EXPLAINED:
        assert part in SIZES[name].parts
        assert cost in growth.COSTS
