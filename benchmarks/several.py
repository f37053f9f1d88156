"""Several targets of different kinds: one network for all of them beside one for each, and beside linear models.

    python benchmarks/several.py          5 folds of two real tables; a few minutes of one core

Networks have one hidden layer of 50 units, and fixed settings, the same for all tables and models. Patients with
several rows are on one side. The NLL of a row is that of all its targets, added up.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import wherefrom as wf

ROOT = Path(__file__).resolve().parents[1]
FOLDS, MEMBERS = 5, 5


@dataclass(frozen=True)
class Problem:
    """A table, and the likelihoods of its targets."""

    name: str
    file: str
    likelihoods: dict[str, Any]
    group: str
    drop: tuple[str, ...] = ()
    year: int | None = None

    def read(self, data: Path) -> tuple[np.ndarray, pd.DataFrame, np.ndarray]:
        """Return the inputs as numbers, the targets, and the group of each row; rows with gaps are left out."""
        frame = pd.read_csv(data / "tables" / f"{self.file}.csv.gz").dropna()
        frame = frame if self.year is None else frame[frame["year"] == self.year]
        targets = list(self.likelihoods)
        x = pd.get_dummies(frame.drop(columns=[*targets, self.group, *self.drop]), drop_first=True)
        labels = {name: int for name, each in self.likelihoods.items() if isinstance(each, wf.Classification)}
        y = frame[targets].astype(labels).reset_index(drop=True)
        return x.to_numpy(dtype=float), y, frame[self.group].to_numpy()


PROBLEMS = (
    Problem(
        "visits of patients with a liver disease",
        "pbcseq",
        {"bili": wf.Positive("fit"), "albumin": wf.Regression("fit"), "hepato": wf.Classification(classes=[0, 1])},
        group="id",
        drop=("futime", "status"),
    ),
    Problem(
        "people in Germany, 1984",
        "rwm5yr",
        {"docvis": wf.Counts(), "hospvis": wf.Counts(), "outwork": wf.Classification(classes=[0, 1])},
        group="id",
        drop=("year", "edlevel"),
        year=1984,
    ),
)


def predicted(model: Any, likelihood: Any, train: tuple[Any, Any], x: np.ndarray) -> Any:
    """Train a few networks, and predict at x."""
    how = wf.Training(model, wf.Algorithm("adam", lr=0.003, batch_size=64), 30, likelihood)
    return wf.marginalise(how, train, wf.recipes.deep_ensemble(MEMBERS), progress=False).predict(x)


def together(likelihoods: dict[str, Any], train: tuple[Any, pd.DataFrame], test: tuple[Any, pd.DataFrame]) -> Any:
    """Return the NLL of each target and row, by one network for all targets."""
    prediction = predicted(wf.MLP([50], dropout=0.05), wf.Several(**likelihoods), train, test[0])
    return {name: np.asarray(prediction[name].nll(test[1][name].to_numpy(), by_row=True)) for name in likelihoods}


def apart(hidden: tuple[int, ...]) -> Callable[..., Any]:
    """Return the same of one network for each target; without hidden units it is a linear model."""

    def scores(likelihoods: dict[str, Any], train: Any, test: Any) -> dict[str, np.ndarray]:
        model = wf.MLP(hidden, dropout=0.05) if hidden else wf.MLP(())
        result = {}
        for name, likelihood in likelihoods.items():
            rows = (train[0], train[1][name].to_numpy())
            prediction = predicted(model, likelihood, rows, test[0])
            result[name] = np.asarray(prediction.nll(test[1][name].to_numpy(), by_row=True))
        return result

    return scores


MODELS = {"wf.Several": together, "a network for each": apart((50,)), "a linear model for each": apart(())}


Scores = dict[str, dict[str, np.ndarray]]  # by model and target: the NLL of every row


def run(problem: Problem, data: Path) -> tuple[np.ndarray, Scores]:
    """Return the group of every row, and the scores."""
    x, y, groups = problem.read(data)
    names, group = np.unique(groups, return_inverse=True)
    fold_of = (np.random.default_rng(0).permutation(len(names)) % FOLDS)[group]
    scores = {model: {name: np.empty(len(y)) for name in y} for model in MODELS}
    for fold in range(FOLDS):
        is_test = fold_of == fold
        train, test = ((x[rows], y[rows].reset_index(drop=True)) for rows in (~is_test, is_test))
        for model, score in MODELS.items():
            for name, nll in score(problem.likelihoods, train, test).items():
                scores[model][name][is_test] = nll
    return group, scores


def page(results: list[tuple[Problem, np.ndarray, Scores]]) -> str:
    """Write the results as a page."""
    lines = ["# Several targets at once", "", "By benchmarks/several.py: NLL of left-out rows, five folds.", ""]
    for problem, group, scores in results:
        targets = list(problem.likelihoods)
        lines += [
            f"## {problem.name}, {len(group):,} rows",
            "",
            f"| model | {' | '.join(targets)} | all | above the first |",
        ]
        lines += ["|---" * (len(targets) + 3) + "|"]
        first = sum(scores[next(iter(MODELS))].values())
        for model, each in scores.items():
            whole = sum(each.values())
            gap = whole - first
            cells = [f"{each[name].mean():.3f}" for name in targets] + [f"{whole.mean():.3f}"]
            by_group = np.bincount(group, gap - gap.mean())  # rows of a group are not independent
            error = np.sqrt(np.square(by_group).sum()) / len(gap)
            cells.append(f"{gap.mean():+.3f} ± {error:.3f}" if model != "wf.Several" else "")
            lines.append(f"| {model} | {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("WHEREFROM_DATA", ROOT.parent / "shared" / "data"))
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "several.md")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    text = page([(problem, *run(problem, Path(asked.data))) for problem in PROBLEMS])
    asked.out.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
