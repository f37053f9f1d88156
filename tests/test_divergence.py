"""Members that diverge: an error, a gap, or another draw of the same variable."""

import re

import pytest
import torch

import wherefrom as wf
from conftest import training

pytestmark = pytest.mark.slow

WILD = torch.distributions.Uniform(0.01, 1.2)  # of learning rates, some of which are too large
OVER = [wf.InitialCondition(2), wf.Hyperparameters(4, lr=WILD)]
REPLACED = "members diverged, and their draws of h were replaced"


def wild(**changes) -> wf.Training:
    return training(algorithm=wf.Algorithm("sgd", lr=0.01, batch_size=10), epochs=30, **changes)


def rates(posterior: wf.Posterior) -> dict[int, set[float]]:
    """The learning rates of the members with each draw of h."""
    by_draw: dict[int, set[float]] = {}
    for member in posterior.mixture:
        by_draw.setdefault(member.run.labels["h"], set()).add(member.run.choices["lr"])
    return by_draw


@pytest.fixture(scope="module")
def rows():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(90, 4, generator=generator)
    return x, 3 * x[:, 0] - x[:, 1].abs() + 0.3 * torch.randn(90, generator=generator)


@pytest.fixture(scope="module")
def dropped(rows) -> wf.Posterior:
    posterior = wf.marginalise(wild(), rows, OVER, on_divergence="drop")
    assert 0 < len(posterior) < 8  # some diverge, and some do not
    return posterior


@pytest.fixture(scope="module")
def redrawn(rows) -> wf.Posterior:
    with pytest.warns(UserWarning, match=REPLACED):
        return wf.marginalise(wild(), rows, OVER, on_divergence="redraw")


def test_dropped_members_are_counted(dropped):
    assert dropped.diverged_share == (8 - len(dropped)) / 8
    assert dropped.redrawn_share == 0
    assert "diverged" in repr(dropped)


def test_the_older_word_for_drop(rows, dropped):
    assert wf.marginalise(wild(), rows, OVER, on_divergence="keep").diverged == dropped.diverged


def test_others_take_the_place_of_those_that_diverge(dropped, redrawn):
    assert len(redrawn) == 8
    assert not redrawn.diverged
    assert all(torch.isfinite(member.trained.last).all() for member in redrawn.mixture)
    lost = {int(re.search(r"h (\d)", name)[1]) for name in dropped.diverged}
    assert {int(re.search(r"h (\d)", name)[1]) for name in redrawn.redrawn} == lost
    assert redrawn.redrawn_share >= dropped.diverged_share > 0
    assert "redrawn" in repr(redrawn)


def test_a_value_is_redrawn_for_all_members_that_share_it_from_its_own_stream(redrawn):
    variable, draws = OVER[1], {int(re.search(r"h (\d)", name)[1]) for name in redrawn.redrawn}
    for draw, values in rates(redrawn).items():
        (value,) = values  # one for both first weights
        first = variable.choices(0, draw)["lr"]
        later = [variable.choices(0, draw + 2**20 * attempt)["lr"] for attempt in range(1, 11)]
        assert value in later if draw in draws else value == first


def test_members_that_share_no_value_with_those_stay_as_they_are(dropped, redrawn):
    draws = {int(re.search(r"h (\d)", name)[1]) for name in redrawn.redrawn}
    before = {tuple(m.run.labels.values()): m.trained.last for m in dropped.mixture if m.run.labels["h"] not in draws}
    now = {tuple(m.run.labels.values()): m.trained.last for m in redrawn.mixture}
    assert before
    assert all(torch.equal(now[labels], theta) for labels, theta in before.items())


def test_further_draws_have_the_new_values_and_no_value_twice(redrawn, rows, tmp_path):
    redrawn.save(tmp_path / "run")
    for posterior in (redrawn, wf.load(tmp_path / "run", wild().model, rows)):
        assert posterior.redrawn == redrawn.redrawn
        more = posterior.extend(theta0=1, engine="torch", on_divergence="drop")
        assert len(more) + len(more.diverged) == 12
        assert rates(more) == rates(redrawn)
        longer = posterior.extend(h=1, engine="torch", on_divergence="drop")
        values = [value for some in rates(longer).values() for value in some]
        assert len(values) == len(set(values))


def test_folds_are_redrawn_by_themselves(rows):
    folds = [range(60), range(30, 90)]
    with pytest.warns(UserWarning, match=REPLACED):
        posteriors = wf.marginalise(wild(), rows, [OVER[1]], folds=folds, on_divergence="redraw")
    assert [len(posterior) for posterior in posteriors] == [4, 4]
    x, y = rows
    with pytest.warns(UserWarning, match=REPLACED):
        alone = wf.marginalise(wild(), (x[30:], y[30:]), [OVER[1]], seed=1, on_divergence="redraw")
    assert rates(alone) == rates(posteriors[1])


def test_what_diverges_again_and_again_is_an_error(rows):
    over = [wf.Hyperparameters(2, lr=torch.distributions.Uniform(1e9, 2e9))]
    with (
        pytest.warns(UserWarning, match=REPLACED),
        pytest.raises(wf.DivergedError, match="2 of 2 members diverged"),
    ):
        wf.marginalise(wild(), rows, over, on_divergence="redraw")


@pytest.mark.parametrize("over", [[], [wf.Hyperparameters(points=[dict(lr=0.1), dict(lr=0.2)])]])
def test_what_goes_through_all_of_its_values_cannot_be_redrawn(rows, over):
    with pytest.raises(ValueError, match='"redraw" needs a variable whose values are drawn at random'):
        wf.marginalise(wild(), rows, over, on_divergence="redraw")


def test_other_words_are_refused(rows):
    with pytest.raises(ValueError, match='must be "raise", "drop" or "redraw", not \'ignore\''):
        wf.marginalise(wild(), rows, [], on_divergence="ignore")


def test_the_report_states_the_shares(dropped, redrawn, rows, tmp_path):
    words = redrawn.report(tmp_path / "report.html", rows).read_text()
    assert f"({redrawn.redrawn_share:.0%}) diverged; other draws took their place" in words
    words = dropped.report(tmp_path / "dropped.html", rows).read_text()
    assert f"({dropped.diverged_share:.0%}) diverged and had to be left out" in words
