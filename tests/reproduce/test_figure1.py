"""The first figure: fifteen parts of the same sixteen trainings, and they show what the paper's drawing shows."""

from __future__ import annotations

import csv
import sys
from collections.abc import Mapping
from functools import partial

import numpy as np
import pytest
import torch

import wherefrom as wf
from wherefrom.reproduce import figure1
from wherefrom.reproduce.figure1 import PANELS, Shown

GRID = torch.linspace(*figure1.SEEN, 3000, dtype=torch.float64)

Posteriors = Mapping[str, wf.Posterior]
Panels = Mapping[tuple[str, ...], list[Shown]]


@pytest.fixture(scope="module")
def posteriors() -> Posteriors:
    return figure1.train(seed=0, progress=False)


@pytest.fixture(scope="module")
def shown(posteriors: Posteriors) -> Panels:
    return {panel: figure1.members(posteriors, panel) for panel in PANELS}


@pytest.fixture(scope="module")
def minima(posteriors: Posteriors) -> dict[str, torch.Tensor]:
    return {
        family: GRID[1:-1][figure1.is_peak(-figure1.loss(posterior, GRID))] for family, posterior in posteriors.items()
    }


def nearest(minima: dict[str, torch.Tensor], member: Shown) -> float:
    among = minima[member.family]
    return among[(among - member.theta_t).abs().argmin()].item()


def test_the_loss_has_three_separate_minima_and_the_other_family_has_them_elsewhere(minima):
    for found in minima.values():
        assert len(found) == 3
        assert found.diff().min() > 2
    ours, others = minima.values()
    assert (ours - others).abs().min() > 0.5


@pytest.mark.parametrize("family", figure1.FAMILIES)
def test_the_loss_is_the_mean_squared_error(posteriors, family):
    x, y = (part.numpy() for part in figure1.signal())
    for theta in (2.0, 5.5, 9.0):
        expected = np.square(np.sin(theta * x + figure1.FAMILIES[family] * x**3) - y).mean()
        found = figure1.loss(posteriors[family], torch.tensor([theta])).item()
        assert found == pytest.approx(expected, rel=1e-12)


def test_the_loss_that_is_drawn_is_the_loss_that_was_trained_on(posteriors):
    """A step of zero length stays where it starts, and its mean loss over the epoch is the loss of all rows there."""
    still = wf.marginalise(
        wf.Training(
            partial(figure1.Tone, figure1.FAMILIES["F"]),
            wf.Algorithm("sgd", lr=0.0, batch_size=figure1.BATCH_SIZE),
            epochs=1,
            standardise=False,
        ),
        figure1.signal(),
        over=[wf.InitialCondition(figure1.DRAWS)],
        seed=0,
        progress=False,
    )
    for draw, component in enumerate(still.mixture):
        theta0 = figure1.initial_condition(posteriors["F"], draw)
        assert torch.equal(theta0, component.trained.last)
        assert figure1.loss(posteriors["F"], theta0).item() == pytest.approx(component.trained.losses[0], rel=1e-5)


def test_every_combination_of_the_four_variables_has_its_panel(shown):
    assert len(PANELS) == len(set(PANELS)) == 15
    for panel, some in shown.items():
        trainings = (
            (figure1.DRAWS if "theta0" in panel else 1)
            * (len(figure1.ALGORITHMS) if "h" in panel else 1)
            * (len(figure1.FAMILIES) if "F" in panel else 1)
        )
        assert len(some) == len(set(some)) == trainings
        assert len({member.theta0 for member in some}) == (figure1.DRAWS if "theta0" in panel else 1)


def test_panels_are_parts_of_the_same_trainings(shown):
    whole = {(m.family, m.algorithm, m.theta0, m.theta_t) for m in shown["t", "theta0", "h", "F"]}
    for some in shown.values():
        assert {(m.family, m.algorithm, m.theta0, m.theta_t) for m in some} <= whole


def test_trainings_end_near_a_minimum_and_their_bands_hold_it(shown, minima):
    for member in shown["t", "theta0", "h", "F"]:
        minimum = nearest(minima, member)
        assert abs(member.theta_t - minimum) < 0.7
        assert member.band_low < minimum < member.band_high
        assert member.band_high - member.band_low < 2  # in one valley: the next one is further away


def test_there_are_bands_where_t_is_random_and_only_there(shown):
    for panel, some in shown.items():
        for member in some:
            assert member.band_low <= member.theta_t <= member.band_high
            assert (member.band_low < member.band_high) == ("t" in panel)


def test_starts_reach_different_minima(shown, minima):
    assert len({nearest(minima, member) for member in shown["theta0",]}) >= 2


def test_algorithms_and_families_end_in_different_places_from_the_same_start(shown, minima):
    for panel in (("h",), ("F",)):
        one, other = shown[panel]
        assert one.theta0 == other.theta0
        assert nearest(minima, one) != nearest(minima, other)
        assert abs(one.theta_t - other.theta_t) > 1


def test_a_valley_is_known_by_the_barriers_before_it(posteriors, minima):
    for family, posterior in posteriors.items():
        first, second, third = (figure1.valley(posterior, theta) for theta in minima[family].tolist())
        assert second == first + 1
        assert third == first + 2


@pytest.mark.slow
def test_run_writes_the_figure_and_its_numbers_and_says_what_is_seen(tmp_path, shown, capsys):
    out = tmp_path / "new" / "[folder]"
    figure1.run(out, seed=0, progress=False)
    assert (out / "figure1.png").read_bytes().startswith(b"\x89PNG")
    with (out / "figure1.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == sum(map(len, shown.values()))
    assert list(dict.fromkeys(row["panel"] for row in rows)) == [figure1.title(panel) for panel in PANELS]
    assert [float(row["theta_t"]) for row in rows] == [m.theta_t for some in shown.values() for m in some]
    said = capsys.readouterr().out
    assert "16 trainings" in said
    assert str(out / "figure1.png") in said


def test_the_figure_holds_all_panels_in_the_papers_order(posteriors, shown):
    axes = figure1.draw(posteriors, shown).get_axes()
    assert len(axes) == len(PANELS)
    expected = [",".join(figure1.MATHS[name] for name in panel) for panel in PANELS]
    assert [ax.get_title().strip("$").replace(r",\ ", ",") for ax in axes] == expected
    for ax, some in zip(axes, shown.values(), strict=True):
        assert len(ax.lines) == len({member.family for member in some})


def test_without_matplotlib_it_says_what_to_install(monkeypatch, posteriors, shown):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"pip install .wherefrom\[plot\]"):
        figure1.draw(posteriors, shown)
