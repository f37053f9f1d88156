"""Pictures of class scores: that they are drawn, and that what is drawn is what was found."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from wherefrom.plots import new_figure, reliability_diagram, risk_coverage_plot
from wherefrom.predictive.class_scores import correct, entropy, reliability, risk_coverage

pytest.importorskip("matplotlib", reason="pictures need matplotlib: pip install 'wherefrom[plot]'")


@pytest.fixture
def drawn() -> tuple[torch.Tensor, torch.Tensor]:
    """Probabilities of three classes, and classes drawn from them."""
    generator = torch.Generator().manual_seed(0)
    probabilities = torch.softmax(3 * torch.randn(500, 3, generator=generator, dtype=torch.float64), 1)
    return probabilities, torch.multinomial(probabilities, 1, generator=generator).squeeze(1)


def test_a_reliability_diagram_shows_the_bins_with_rows(drawn, tmp_path):
    found = reliability(*drawn)
    axes = reliability_diagram(found, tmp_path / "one.png")
    assert (tmp_path / "one.png").stat().st_size > 5000
    curve = axes.get_lines()[1]  # after the diagonal
    filled = found.count > 0
    np.testing.assert_allclose(curve.get_xdata(), found.confidence[filled])
    np.testing.assert_allclose(curve.get_ydata(), found.accuracy[filled])
    assert axes.get_legend().get_texts()[0].get_text() == f"ece {found.ece:.3f}"


def test_several_reliabilities_share_axes(drawn):
    probabilities, y = drawn
    axes = new_figure(4, 4).subplots()
    sharper = torch.softmax(3 * probabilities.log(), 1)
    shown = {"drawn": reliability(probabilities, y), "sharper": reliability(sharper, y, adaptive=True)}
    assert reliability_diagram(shown, axes) is axes
    assert len(axes.get_lines()) == 3
    assert [text.get_text().split(",")[0] for text in axes.get_legend().get_texts()] == ["drawn", "sharper"]


def test_a_risk_coverage_plot_shows_the_best_once(drawn, tmp_path):
    probabilities, y = drawn
    errors = ~correct(probabilities, y)
    by_confidence, by_entropy = (
        risk_coverage(probabilities.amax(1), errors),
        risk_coverage(-entropy(probabilities), errors),
    )
    axes = risk_coverage_plot({"confidence": by_confidence, "entropy": by_entropy}, str(tmp_path / "two.png"))
    assert (tmp_path / "two.png").stat().st_size > 5000
    best, one, other = axes.get_lines()
    np.testing.assert_allclose(best.get_ydata(), by_confidence.best)
    np.testing.assert_allclose(one.get_ydata(), by_confidence.risk)
    np.testing.assert_allclose(other.get_ydata(), by_entropy.risk)
    assert len(risk_coverage_plot(by_entropy, tmp_path / "one.png").get_lines()) == 2
