"""The comparison with other libraries: its page from made results, and what it does with answers."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))

import interpreters
from interpreters import Environment, Store, make
from neighbours import page
from neighbours.given import PREDICTED_NOISE, Given, Setting, answered, noise
from neighbours.listing import DEFAULTS, LOOP, METHODS, NEIGHBOURS, OURS
from neighbours.runner import contenders
from tabular.answers import Z
from tabular.runner import made, result

BENCHMARKS = str(Path(interpreters.__file__).parent)
ROWS = 40


def _result(neighbour: str, fold: int, nll: float = 1.0, **costs: float) -> dict:
    """A result whose scores vary from row to row by numbers that all contenders share."""
    noise = np.random.default_rng(fold).normal(size=ROWS)
    scores = {"nll": nll + noise, "crps": 1 + noise, "mean": noise, "covered": np.ones(ROWS), "width": np.ones(ROWS)}
    about = {"table": "made", "repeat": 0, "fold": fold, "neighbour": neighbour, "method": "deep ensemble"}
    about |= {"package": "" if neighbour == OURS else f"{neighbour} 1.0", "torch": "2.13.0"}
    usual = {"fit": 1.0, "predict": 1.0, "peak": 100.0, "start": 1.0}
    rows = range(ROWS * fold, ROWS * (fold + 1))
    return about | usual | costs | {"rows": [*rows], "scores": {name: [*map(float, s)] for name, s in scores.items()}}


def _compared(results: list[dict]) -> dict[str, page.Compared]:
    return {each.measure: each for each in page.comparisons(results)}


def test_a_ratio_is_the_median_of_the_rounds_with_its_smallest_and_largest():
    ours = [_result(OURS, fold, fit=2.0) for fold in range(3)]
    theirs = [_result("skorch", fold, fit=seconds) for fold, seconds in enumerate((4.0, 10.0, 3.0))]
    fit = _compared(ours + theirs)["fit"]
    assert (fit.middle, fit.low, fit.high) == (2.0, 1.5, 5.0)
    assert fit.verdict == "won"
    assert str(fit) == "2.00 (1.50 to 5.00)"


@pytest.mark.parametrize(
    ("seconds", "verdict"), [((3.0, 4.0), "won"), ((0.5, 0.9), "lost"), ((0.5, 3.0), "level"), ((1.0, 3.0), "level")]
)
def test_a_cost_is_won_or_lost_only_if_all_rounds_agree(seconds, verdict):
    theirs = [_result("skorch", fold, predict=each) for fold, each in enumerate(seconds)]
    assert _compared([_result(OURS, 0), _result(OURS, 1), *theirs])["predict"].verdict == verdict


def test_rounds_that_only_one_of_them_has_finished_are_left_out():
    results = [_result(OURS, 0), _result(OURS, 1, fit=50.0), _result("skorch", 0, fit=3.0)]
    assert _compared(results)["fit"].middle == 3.0
    assert page.comparisons([_result(OURS, 0), _result("skorch", 1)]) == []


@pytest.mark.parametrize(("theirs", "verdict"), [(1.5, "won"), (0.5, "lost"), (1.0, "level")])
def test_scores_are_compared_row_by_row(theirs, verdict):
    """The spread between rows is 1, but both have it: the difference has no error."""
    nll = _compared([_result(OURS, 0), _result("skorch", 0, nll=theirs)])["nll"]
    assert nll.middle == pytest.approx(1 - theirs, abs=1e-9)
    assert nll.verdict == verdict


def test_coverage_is_compared_by_its_distance_to_95_percent():
    ours, theirs = _result(OURS, 0), _result("skorch", 0)
    ours["scores"]["covered"] = [1.0] * 38 + [0.0] * 2  # 95%
    theirs["scores"]["covered"] = [1.0] * 30 + [0.0] * 10  # 75%
    assert _compared([ours, theirs])["covered"].verdict == "won"
    ours["neighbour"], theirs["neighbour"] = "skorch", OURS
    assert _compared([ours, theirs])["covered"].verdict == "lost"


def test_the_page_counts_wins_and_losses_and_lists_every_loss():
    results = [_result(OURS, 0), _result("skorch", 0, nll=0.5, fit=30.0, peak=50.0)]
    text, summary = page.written(results, {}, Setting(40), 1000)
    assert "**Of 7 comparisons, this library wins 1 and loses 2; 4 are level.**" in text
    assert summary["counts"] == {"won": 1, "lost": 2, "level": 4}
    losses = text.partition("## Where this library loses")[2].partition("\n## ")[0]
    rows = [line for line in losses.splitlines() if line.startswith("| skorch")]
    assert len(rows) == 2
    assert "| peak memory | 0.5 (0.5 to 0.5) |" in rows[0]
    assert "| NLL | +0.5 ± " in rows[1]
    assert len(summary["comparisons"]) == 7
    assert json.loads(json.dumps(summary)) == summary


def test_the_page_names_what_was_not_run():
    failed = {**_result("probly", 0), "error": "ValueError: no\nluck"}
    del failed["scores"]
    environments = {
        "bde": Environment(("bde",), error="ERROR: No matching distribution found for bde"),
        "skorch": Environment(("skorch",), other_torch="ERROR: ResolutionImpossible"),
    }
    other = _result("skorch", 0) | {"torch": "2.6.0"}
    results = [_result(OURS, 0), _result(OURS, 1), other, failed]
    text, summary = page.written(results, environments, Setting(40), 1000)
    assert "- bde could not be installed: ERROR: No matching distribution found for bde" in text
    assert "- skorch needs another version of torch than this project's: ERROR: ResolutionImpossible" in text
    assert "- torch 2.13.0; skorch needs 2.6.0" in text
    assert "- probly, deep ensemble: ValueError: no luck" in text
    assert summary["not_installed"] == {"bde": "ERROR: No matching distribution found for bde"}


def test_the_page_can_be_written_without_results():
    assert "Nothing has been compared yet" in page.written([], {}, Setting(40), 1000)[0]


def test_results_can_be_forgotten_and_a_line_that_was_cut_off_is_no_result(tmp_path):
    store = Store(tmp_path / "results.jsonl")
    for name in ("a", "b"):
        store.append({"neighbour": name})
    with store.path.open("a") as file:
        file.write('{"neighbour": "c"')
    store.forget(lambda each: each["neighbour"] == "a")
    assert store.read() == [{"neighbour": "b"}]


# ---------------------------------------------------------------------- what is given to all


def test_the_noise_is_that_of_the_residuals_beyond_the_variance():
    random = np.random.default_rng(0)
    variance = np.full(20_000, 0.3)
    y = random.normal(scale=np.sqrt(0.5), size=20_000)
    steps = 10 ** (7 / 199)  # between neighbours of the grid; the variance of 20,000 squares adds 1%
    assert noise(np.zeros(20_000), variance, y) == pytest.approx(0.2, rel=steps - 1 + 4 * 0.5 / 0.2 * np.sqrt(2 / 2e4))


def _constant(spread: float):
    def fit(given: Given, seed: int):
        return lambda x: (np.zeros(len(x)), np.full(len(x), spread**2))

    return fit


def test_an_answer_is_in_the_units_of_the_target_and_has_noise_where_it_is_not_predicted():
    problem = made()
    train, test = problem.fold(0, 0)
    predicted, _, _ = answered(_constant(1.0), PREDICTED_NOISE[0], Setting(1), problem, train, test, 0)
    other, _, _ = answered(_constant(0.0), "SWAG", Setting(1), problem, train, test, 0)
    std = problem.y[train].std()
    assert (predicted.upper - predicted.lower) / (2 * Z) == pytest.approx(np.full(len(test), std), rel=0.2)
    assert other.std is not None
    assert 0.4 * std < other.std[0] < 1.6 * std


def test_an_answer_that_is_not_finite_is_an_error():
    problem = made()
    scored = result(lambda *fold: answered(_constant(np.nan), "SWAG", Setting(1), *fold), problem, 0, 0)
    assert scored["error"] == "ValueError: an answer is not finite"


def test_rows_are_repeated_to_time_a_prediction_and_scored_once():
    counts = []

    def compete(problem, train, test, seed):
        counts.append(len(test))
        return answered(_constant(1.0), "deep ensemble", Setting(1), problem, train, test, seed)

    once, many = (result(compete, made(), 0, 0, fewest) for fewest in (0, 500))
    assert counts == [len(made().fold(0, 0)[1]), 500]
    assert once["rows"] == many["rows"]
    assert once["scores"] == many["scores"]


# ---------------------------------------------------------------------- contenders


def test_every_method_of_a_neighbour_has_one_of_ours():
    from neighbours.by_wherefrom import METHODS as ours

    assert {method for each in NEIGHBOURS.values() for method in each.methods} == {*ours, DEFAULTS} == set(METHODS)


@pytest.mark.parametrize("method", [method for method in METHODS if method != DEFAULTS])
def test_ours_train_and_predict(method):
    first, _ = contenders(OURS, method, 4)
    assert np.isfinite(result(first, made(), 0, 0)["scores"]["nll"]).all()


@pytest.mark.parametrize("method", NEIGHBOURS[LOOP].methods)
def test_the_plain_loop_trains_and_predicts(method):
    first, _ = contenders(LOOP, method, 4)
    assert np.isfinite(result(first, made(), 0, 0)["scores"]["nll"]).all()


def test_the_peak_of_memory_is_that_of_the_process_and_not_of_its_parent():
    much = np.ones(10**8)  # 800 MB here, while a child starts
    code = f"import sys; sys.path.append({BENCHMARKS!r}); from neighbours.runner import peak; print(peak())"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 10 < float(child.stdout) < much.nbytes / 2**20


def test_an_environment_is_made_once(tmp_path, monkeypatch):
    calls = []

    def run(command, **_):
        calls.append(command)
        (Path(command[-1]) / "lib" / "python3" / "site-packages").mkdir(parents=True, exist_ok=True)
        failed = "install" in command and "impossible" in command
        return subprocess.CompletedProcess(command, int(failed), "", "a word\nERROR: first\nERROR: last\n")

    monkeypatch.setattr(interpreters.subprocess, "run", run)
    first = make(tmp_path / "a", ("skorch",))
    assert first == make(tmp_path / "a", ("skorch",)) == Environment(("skorch",))
    assert len(calls) == 2  # venv and pip
    impossible = make(tmp_path / "b", ("impossible",))
    assert impossible == make(tmp_path / "b", ("impossible",)) == Environment(("impossible",), "ERROR: last")
    make(tmp_path / "a", ("skorch", "other"))
    assert len(calls) == 6
