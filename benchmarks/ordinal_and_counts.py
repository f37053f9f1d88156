"""Ordered classes, counts and quantiles: this library beside the obvious linear models of statsmodels.

    python benchmarks/ordinal_and_counts.py --set-up      once: statsmodels, in a virtual environment of its own
    python benchmarks/ordinal_and_counts.py               5 folds of each table, 3,000 rows of it at most

Every model is trained on four fifths of the rows and scored on the rest, five times. This library's are five networks
with one hidden layer of 50 units and fixed settings, the same for all tables: nothing is searched, as for the others.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
FOLDS, ROWS = 5, 3000
LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
Scores = dict[str, float]


class Problem(NamedTuple):
    """A table, what of it is predicted, and by which kind of model."""

    name: str
    kind: str  # "ordinal", "counts" or "quantiles"
    read: Callable[[Path], tuple[np.ndarray, np.ndarray]]


# ---------------------------------------------------------------------- tables


def table(name: str, target: str, order: tuple[str, ...] = (), drop: tuple[str, ...] = (), keep: Any = None) -> Any:
    """Return a reader of a table as numbers: text as columns of 0 and 1, levels of the target by their numbers."""

    def read(data: Path) -> tuple[np.ndarray, np.ndarray]:
        import pandas

        frame = pandas.read_csv(data / "tables" / f"{name}.csv.gz").dropna()
        frame = frame if keep is None else frame[keep(frame)]
        y = frame[target]
        y = np.array([order.index(label) for label in y]) if order else y.to_numpy()
        x = pandas.get_dummies(frame.drop(columns=[target, *drop]), drop_first=True)
        return x.to_numpy(dtype=float), y.astype(float)

    return read


def uci(name: str) -> Any:
    def read(data: Path) -> tuple[np.ndarray, np.ndarray]:
        with gzip.open(data / "uci" / name / "data.csv.gz", "rt") as file:
            rows = np.loadtxt(file, delimiter=",", skiprows=1)
        return rows[:, :-1], rows[:, -1]

    return read


def wine(data: Path) -> tuple[np.ndarray, np.ndarray]:
    x, y = uci("wine")(data)
    return x, np.unique(y, return_inverse=True)[1].astype(float)


CUTS = ("Fair", "Good", "Very Good", "Premium", "Ideal")
PROBLEMS = (
    Problem("wine quality (6 levels)", "ordinal", wine),
    Problem("cut of diamonds (5 levels)", "ordinal", table("diamonds", "cut", CUTS)),
    Problem("visits to a doctor (Australia)", "counts", table("doctor_visits", "visits")),
    Problem(
        "visits to a doctor (Germany)",
        "counts",
        table("rwm5yr", "docvis", drop=("id", "hospvis", "year", "edlevel"), keep=lambda frame: frame["year"] == 1984),
    ),
    Problem("strength of concrete", "quantiles", uci("concrete")),
    Problem("medical expenses", "quantiles", table("med_exp", "med")),
)


# ---------------------------------------------------------------------- this library


def networks(kind: str, train: Any, test: Any, levels: int) -> dict[str, Scores]:
    """Return the scores of this library's models."""
    import torch
    from torch import nn

    import wherefrom as wf

    class SharedCutpoints(nn.Module):
        """Proportional odds: the location depends on x, the distances of the cutpoints do not."""

        def __init__(self, inputs: int) -> None:
            super().__init__()
            self.location = wf.MLP([50], dropout=0.05).sized(inputs, 1)()
            self.distances = nn.Parameter(torch.zeros(levels - 2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            location = self.location(x)
            return torch.cat([location, 10 * self.distances.expand(len(location), -1)], 1)  # 10: they learn as fast

    inputs, (x_test, y_test) = train[0].shape[1], test
    every = {
        "ordinal": {
            "wf.Ordinal": (wf.MLP([50], dropout=0.05), wf.Ordinal(levels=levels)),
            "wf.Ordinal, the same cutpoints for all rows": (lambda: SharedCutpoints(inputs), wf.Ordinal(levels=levels)),
            "wf.Classification": (wf.MLP([50], dropout=0.05), wf.Classification(classes=levels)),
        },
        "counts": {
            "wf.Counts(0), Poisson": (wf.MLP([50], dropout=0.05), wf.Counts(0)),
            "wf.Counts()": (wf.MLP([50], dropout=0.05), wf.Counts()),
            'wf.Counts("predicted")': (wf.MLP([50], dropout=0.05), wf.Counts("predicted")),
            'wf.Counts(zeros="inflated")': (wf.MLP([50], dropout=0.05), wf.Counts(zeros="inflated")),
        },
        "quantiles": {"wf.Quantiles": (wf.MLP([50], dropout=0.05), wf.Quantiles(LEVELS))},
    }
    results = {}
    for name, (model, likelihood) in every[kind].items():
        how = wf.Training(model, wf.Algorithm("adam", lr=0.003, batch_size=64), 30, likelihood)
        posterior = wf.marginalise(how, train, wf.recipes.deep_ensemble(5), progress=False)
        prediction = posterior.predict(x_test)
        if kind == "quantiles":
            scores = {"pinball": prediction.pinball(y_test) / float(np.std(y_test))}
            scores["coverage of 90%"] = prediction.coverage(y_test, 0.9)
        else:
            scores = {"NLL": prediction.nll(y_test)}
            if kind == "ordinal":
                scores["RPS"] = ranked(prediction.probabilities.numpy(), y_test)
        results[name] = scores
    return results


def ranked(probabilities: np.ndarray, y: np.ndarray) -> float:
    """Return the mean ranked probability score."""
    below = np.cumsum(probabilities, 1)[:, :-1]
    return float(((below - (y[:, None] <= np.arange(below.shape[1]))) ** 2).sum(1).mean())


# ---------------------------------------------------------------------- the others


def linear(kind: str, train: Any, test: Any, levels: int) -> dict[str, Scores]:
    """Return the scores of statsmodels' models, on standardised columns."""
    import statsmodels.api as sm
    from statsmodels.miscmodels.ordinal_model import OrderedModel

    warnings.simplefilter("ignore")
    (x, y), (x_test, y_test) = train, test
    mean, std = x.mean(0), np.where(x.std(0) > 0, x.std(0), 1.0)
    x, x_test = (x - mean) / std, (x_test - mean) / std
    some = np.std(x, 0) > 0
    x, x_test = x[:, some], x_test[:, some]
    design, design_test = (sm.add_constant(each, has_constant="add") for each in (x, x_test))
    if kind == "ordinal":
        fitted = OrderedModel(y.astype(int), x, distr="logit").fit(method="bfgs", maxiter=500, disp=False)
        p = np.clip(np.asarray(fitted.model.predict(fitted.params, exog=x_test)), 1e-12, 1)
        nll = -np.log(p[np.arange(len(y_test)), y_test.astype(int)]).mean()
        return {"proportional odds (statsmodels)": {"NLL": float(nll), "RPS": ranked(p, y_test)}}
    if kind == "counts":
        from scipy import stats

        poisson = sm.GLM(y, design, family=sm.families.Poisson()).fit()
        results = {"Poisson GLM": {"NLL": float(-stats.poisson.logpmf(y_test, poisson.predict(design_test)).mean())}}
        fitted = sm.NegativeBinomial(y, design).fit(disp=False, maxiter=300, start_params=[*poisson.params, 0.5])
        mu, a = fitted.predict(design_test), float(fitted.params[-1])
        nll = -stats.nbinom.logpmf(y_test, 1 / a, 1 / (1 + a * mu)).mean()
        return results | {"negative binomial GLM": {"NLL": float(nll)}}
    total, ends = 0.0, {}
    for p in LEVELS:
        error = y_test - (q := sm.QuantReg(y, design).fit(q=p, max_iter=3000).predict(design_test))
        total += float(np.maximum(p * error, (p - 1) * error).mean()) / len(LEVELS)
        ends[p] = q
    coverage = float(((y_test >= ends[0.05]) & (y_test <= ends[0.95])).mean())
    return {"QuantReg (statsmodels)": {"pinball": total / float(np.std(y_test)), "coverage of 90%": coverage}}


def of_peers(python: Path, task: dict[str, Any]) -> dict[str, Scores]:
    """Score the others in their own interpreter."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "task.npz"
        np.savez(path, **task)
        command = [str(python), str(Path(__file__).resolve()), "--peer", str(path)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    scores: dict[str, Scores] = json.loads(done.stdout.splitlines()[-1])
    return scores


# ---------------------------------------------------------------------- all of it


def run(problem: Problem, asked: argparse.Namespace) -> dict[str, dict[str, list[float]]]:
    """Return the scores of all models in all folds, by model and score."""
    x, y = problem.read(asked.data)
    order = np.random.default_rng(0).permutation(len(y))[: asked.rows]
    x, y, levels = x[order], y[order], int(y.max()) + 1
    results: dict[str, dict[str, list[float]]] = {}
    for fold in range(FOLDS):
        is_test = np.arange(len(y)) % FOLDS == fold
        task = {"x": x[~is_test], "y": y[~is_test], "x_test": x[is_test], "y_test": y[is_test]}
        train, test = (task["x"], task["y"]), (task["x_test"], task["y_test"])
        by_model = of_peers(asked.peers / "bin" / "python", task | {"kind": problem.kind, "levels": levels})
        by_model |= networks(problem.kind, train, test, levels)
        for model, scores in by_model.items():
            for score, value in scores.items():
                results.setdefault(model, {}).setdefault(score, []).append(value)
        print(problem.name, f"fold {fold + 1} of {FOLDS}", by_model, flush=True)
    return results


def page(results: dict[str, tuple[Problem, int, dict[str, dict[str, list[float]]]]]) -> str:
    """Return the page: a table for each kind, means over folds and their standard errors."""
    paragraphs = (__doc__ or "").split("\n\n")
    lines = [
        "# Ordered classes, counts and quantiles beside linear models",
        "",
        paragraphs[0],
        "",
        paragraphs[-1].strip(),
        "",
    ]
    lines += ["Means over 5 folds ± their standard error. NLL in nats; pinball loss in standard deviations of y.", ""]
    for kind in ("ordinal", "counts", "quantiles"):
        for problem, rows, scores in results.values():
            if problem.kind != kind:
                continue
            names = list(next(iter(scores.values())))
            lines += [f"## {problem.name}, {rows:,} rows", "", "| model | " + " | ".join(names) + " |"]
            lines += ["|---|" + "---|" * len(names)]
            for model, by_score in scores.items():
                cells = [
                    f"{np.mean(by_score[name]):.3f} ± {np.std(by_score[name], ddof=1) / np.sqrt(FOLDS):.3f}"
                    for name in names
                ]
                lines.append(f"| {model} | " + " | ".join(cells) + " |")
            lines.append("")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--set-up", action="store_true", help="make the peers' virtual environment, and end")
    parser.add_argument("--peer", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--peers", type=Path, default=ROOT / ".venv-peers", help="the peers' virtual environment")
    parser.add_argument("--rows", type=int, default=ROWS, help="of a table at most")
    parser.add_argument("--data", type=Path, default=os.environ.get("WHEREFROM_DATA", ROOT.parent / "shared" / "data"))
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "ordinal_and_counts.md")
    asked = parser.parse_args()
    if asked.set_up:
        subprocess.run([sys.executable, "-m", "venv", str(asked.peers)], check=True)
        pip = [str(asked.peers / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "statsmodels"], check=True)
        return
    if asked.peer is not None:
        task = np.load(asked.peer)
        train, test = (task["x"], task["y"]), (task["x_test"], task["y_test"])
        print(json.dumps(linear(str(task["kind"]), train, test, int(task["levels"]))))
        return
    results = {}
    for problem in PROBLEMS:
        scores = run(problem, asked)
        results[problem.name] = problem, min(asked.rows, len(problem.read(asked.data)[1])), scores
        asked.out.write_text(page(results), encoding="utf-8")


if __name__ == "__main__":
    main()
