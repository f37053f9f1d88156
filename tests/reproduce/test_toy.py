"""The toy figure: its data, its 24 parts of one posterior, and the files it leaves."""

from __future__ import annotations

import csv
import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgb
from torch import nn

import wherefrom as wf
from wherefrom.plots import new_figure
from wherefrom.posterior.member import Origin
from wherefrom.reproduce import toy

DRAWS, COMBINED = 4, 2


@pytest.fixture(scope="module")
def posterior() -> wf.Posterior:
    return toy.train(toy.training_data(0), seed=0, progress=False, draws=DRAWS, epochs=6)


@pytest.fixture(scope="module")
def panels(posterior: wf.Posterior) -> list[toy.Panel]:
    return toy.score(posterior, progress=False, combined_draws=COMBINED, samples=200)


def panel(panels: list[toy.Panel], settings: tuple[int, ...], *names: str) -> toy.Panel:
    (found,) = [p for p in panels if p.settings == settings and p.marginalised == names]
    return found


def test_training_data_are_noisy_cubes() -> None:
    seeds = range(300)
    x, y = (np.concatenate(column) for column in zip(*map(toy.training_data, seeds), strict=True))
    noise = y - x**3
    assert toy.training_data(0)[0].shape == (10,)
    assert x.min() >= -4
    assert x.max() <= 4
    assert abs(x.mean()) < 4 * (4 / math.sqrt(3)) / math.sqrt(len(x))  # four standard errors
    assert abs(x.var() - 16 / 3) < 4 * (16 / 3) * math.sqrt(0.8 / len(x))  # a uniform's kurtosis is 1.8
    assert abs(noise.mean()) < 4 * 3 / math.sqrt(len(x))
    assert abs(noise.var() - 9) < 4 * 9 * math.sqrt(2 / len(x))
    assert abs(np.corrcoef(x, noise)[0, 1]) < 4 / math.sqrt(len(x))


def test_the_seed_decides_the_training_data() -> None:
    np.testing.assert_array_equal(toy.training_data(3), toy.training_data(3))
    assert not np.array_equal(toy.training_data(3), toy.training_data(4))


def test_the_curve_is_a_thousand_points_of_the_cube() -> None:
    x, y = toy.curve()
    assert len(x) == 1000
    assert (x[0], x[-1]) == (-6, 6)
    np.testing.assert_allclose(np.diff(x), 12 / 999)
    np.testing.assert_array_equal(y, x**3)


def test_the_network_is_the_papers() -> None:
    first, relu, dropout, last = toy.network().children()
    assert isinstance(first, nn.Linear)
    assert first.weight.shape == (100, 1)
    assert isinstance(relu, nn.ReLU)
    assert isinstance(dropout, nn.Dropout)
    assert dropout.p == 0.01
    assert isinstance(last, nn.Linear)
    assert last.weight.shape == (1, 100)
    for layer in (first, last):
        assert layer.weight.abs().max() <= math.sqrt(6 / 101)
        assert torch.count_nonzero(layer.bias) == 0


def test_one_posterior_holds_every_training(posterior: wf.Posterior) -> None:
    members = posterior.members()
    assert len(members) == DRAWS * 2
    assert list(zip(members["lr"], members["batch_size"], strict=True)) == [(0.04, 1), (0.05, 6)] * DRAWS


def test_columns_are_all_subsets() -> None:
    assert len(toy.SUBSETS) == len(set(map(frozenset, toy.SUBSETS))) == 8
    assert toy.SUBSETS[0] == ()


def test_panels_have_the_right_ensemble_sizes(panels: list[toy.Panel]) -> None:
    sizes = [[p.models for p in panels if p.settings == row] for row in toy.ROWS]
    assert sizes == [
        [1] * 4 + [DRAWS] * 4,
        [1] * 4 + [DRAWS] * 4,
        [2] * 4 + [2 * COMBINED] * 4,
    ]


def test_only_a_single_network_has_no_nll(panels: list[toy.Panel]) -> None:
    for p in panels:
        is_single = p.models == 1 and not p.marginalised
        assert (p.nll is None) == is_single
        assert np.all(p.std == 0) if is_single else np.all(p.std > 0)


def test_scores_are_those_of_the_predictions(panels: list[toy.Panel]) -> None:
    _, y = toy.curve()
    for p in panels:
        error = y - p.mean
        assert p.rmse == pytest.approx(math.sqrt(np.mean(error**2)))
        assert p.coverage == pytest.approx(np.mean(np.abs(error) <= 3 * p.std), abs=1e-3)
        if p.nll is not None:
            each = 0.5 * (np.log(2 * np.pi * p.std**2) + (error / p.std) ** 2)
            assert p.nll == pytest.approx(each.mean())


def test_combined_row_mixes_the_same_trainings(panels: list[toy.Panel]) -> None:
    one, other, both = (panel(panels, row) for row in toy.ROWS)
    np.testing.assert_allclose(both.mean, (one.mean + other.mean) / 2, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(both.std, np.abs(one.mean - other.mean) / 2, rtol=1e-4, atol=1e-4)


def test_a_diverged_initial_condition_is_left_out_at_both_settings(posterior: wf.Posterior) -> None:
    kept = tuple(c for c in posterior.mixture if c.run.labels != {"theta0+order": 0, "h": 0})
    lame = replace(posterior, mixture=kept, origin=Origin(("theta0+order 0, h 0",)))
    panels = toy.score(lame, progress=False, combined_draws=COMBINED, samples=20)
    assert panel(panels, (0,), "theta0").models == panel(panels, (1,), "theta0").models == DRAWS - 1
    assert panel(panels, (0, 1), "theta0").models == 2 * COMBINED
    first_left = posterior.select(theta0=1, h=1).marginalising().predict(toy.curve()[0].reshape(-1, 1))
    np.testing.assert_array_equal(panel(panels, (1,)).mean, first_left.mean.numpy())


def test_too_few_trainings_are_an_error(posterior: wf.Posterior) -> None:
    lame = replace(posterior, mixture=posterior.mixture[:3], origin=Origin(("theta0+order 1, h 1",)))
    with pytest.raises(wf.DivergedError, match="theta0\\+order 1, h 1"):
        toy.score(lame, progress=False)


def test_borders_say_nll_and_models(panels: list[toy.Panel]) -> None:
    whole = new_figure(16, 7.4)
    toy.draw(whole, panels, toy.training_data(0))
    axes = whole.axes[:24]
    width = [a.spines["left"].get_linewidth() for a in axes]
    assert width[1] > width[17] > width[23]  # 1, 2 and 4 models
    colour = [to_rgb(a.spines["left"].get_edgecolor()) for a in axes]
    scored = [i for i, p in enumerate(panels) if p.nll is not None]
    redness = {i: colour[i][0] - colour[i][1] for i in scored}
    by_nll = sorted(scored, key=lambda i: panels[i].nll or 0.0)
    assert redness[by_nll[0]] < 0 < redness[by_nll[-1]]
    assert colour[0] == colour[8] == to_rgb(toy.GREY)
    assert len({a.get_ylim() for a in axes}) == 1


def test_run_writes_the_figure_and_its_scores(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new" / "folder"
    toy.run(out, seed=1, progress=False, draws=2, combined_draws=2, epochs=4, samples=20)
    assert (out / "toy.png").read_bytes().startswith(b"\x89PNG")
    with (out / "toy.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["h", "marginalised", "models", "nll", "rmse", "coverage"]
    assert [row["h"] for row in rows] == ["(0.04, 1)"] * 8 + ["(0.05, 6)"] * 8 + ["both"] * 8
    assert [row["marginalised"] for row in rows[:3]] == ["classical", "M", "t"]
    assert rows[0]["nll"] == ""
    assert all(math.isfinite(float(row["rmse"])) for row in rows)
    printed = capsys.readouterr().out
    assert str(out / "toy.png") in printed
    assert str(out / "toy.csv") in printed


def test_without_matplotlib_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"pip install .wherefrom\[plot\]"):
        toy.run(tmp_path)
