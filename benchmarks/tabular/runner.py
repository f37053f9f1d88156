"""One contender in an interpreter of its own: tasks come in as lines of JSON, results go out as lines of JSON.

    python -m tabular.runner <contender> <data> <rows at most>

A task is {"table", "repeat", "fold"}. A result has the scores of every test row, and CPU seconds of fit and predict.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tabular.answers import Answer, Skipped
from tabular.sets import Integers, Problem, TableSet, read

_WARMING = 400  # rows of the table that every contender fits first
Contender = Callable[[Problem, Integers, Integers, int], tuple[Answer, float, float]]
PACKAGES = {name: name for name in ("catboost", "lightgbm", "ngboost")} | {"gp": "scikit-learn", "ensemble": "torch"}


def contender(name: str) -> Contender:
    """Return the function that trains and predicts; it imports only what this contender needs."""
    if name in ("before", "now"):
        from tabular.ours import command

        return command
    if name == "estimator":
        from tabular.ours import estimator

        return estimator
    if name == "ensemble":
        from tabular.ensemble import deep_ensemble

        return deep_ensemble
    from tabular import peers

    fits = {
        "catboost": peers.catboost,
        "lightgbm": peers.lightgbm,
        "ngboost": peers.ngboost,
        "gp": peers.gaussian_process,
    }
    return partial(peers.run, fits[name])


def result(compete: Contender, problem: Problem, repeat: int, fold: int, fewest: int = 0) -> dict[str, Any]:
    """Scores by row and CPU seconds of one fold; an error, or the reason why it was skipped, in words.

    fewest: rows to predict at least, so that the time of prediction is more than that of a call; the test rows are
        repeated for it, and scored once.
    """
    train, test = problem.fold(repeat, fold)
    rows = np.resize(test, max(fewest, len(test)))
    try:
        answer, fitting, predicting = compete(problem, train, rows, 100 * repeat + fold)
        scores = {name: values[: len(test)] for name, values in answer.scored(problem.y[rows]).items()}
    except Skipped as reason:
        return {"skipped": str(reason)}
    except Exception as error:  # the others go on
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}"}
    seconds = {"fit": round(fitting, 6), "predict": round(predicting, 6)}
    claim = {} if answer.claim is None else {"claim": list(answer.claim)}
    return {"rows": test.tolist(), "scores": scores} | seconds | claim


def made() -> Problem:
    """A table to warm up on, large enough that every kernel is compiled: compilations are not the contender's time."""
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"a": random.normal(size=_WARMING), "b": random.normal(size=_WARMING)})
    frame["y"] = frame["a"] + random.normal(size=_WARMING)
    return Problem(TableSet("made", "", ""), "y", frame, frame["y"].to_numpy(), (), np.arange(_WARMING))


def main() -> None:
    name, root, most_rows = sys.argv[1:]
    out = os.fdopen(os.dup(1), "w")  # results only; whatever libraries print goes to standard error
    os.dup2(2, 1)
    compete = contender(name)
    result(compete, made(), 0, 0)
    table = cache(lambda table: read(table, Path(root), int(most_rows)))
    package = PACKAGES.get(name)
    about = {"contender": name, "package": f"{package} {version(package)}" if package else ""}
    for line in sys.stdin:
        task = json.loads(line)
        problem = table(task["table"])
        done = task | about | result(compete, problem, task["repeat"], task["fold"])
        print(json.dumps(done), file=out, flush=True)


if __name__ == "__main__":
    main()
