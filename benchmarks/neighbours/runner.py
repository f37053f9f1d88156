"""One contender in an interpreter of its own: tasks come in as lines of JSON, results go out as lines of JSON.

    python -m neighbours.runner <neighbour> <method> <data> <rows at most> <epochs>

A task is {"table", "repeat", "fold"}. A result has the scores of every test row, CPU seconds of training and
prediction, of the start (imports, and a first training and prediction of 80 rows), and the peak memory of the process,
so that a process is for one task.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
import traceback
from functools import partial
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from neighbours.given import Setting, answered
from neighbours.listing import DEFAULTS, LOOP, NEIGHBOURS, OURS
from tabular.runner import Contender, contender, made, result
from tabular.sets import read

FIRST_EPOCHS, PREDICTED = 4, 10_000  # epochs of the first training, rows of the timed prediction


def contenders(neighbour: str, method: str, epochs: int) -> tuple[Contender, Contender]:
    """Return what trains and predicts in the first result, and what is measured after it."""
    if method == DEFAULTS:
        compete = contender("now" if neighbour == OURS else neighbour)
        return compete, compete
    module = "by_wherefrom" if neighbour == OURS else NEIGHBOURS[neighbour].module
    fit = import_module(f"neighbours.{module}").METHODS[method]
    first, later = (partial(answered, fit, method, Setting(count)) for count in (FIRST_EPOCHS, epochs))
    return first, later


def package(neighbour: str) -> str:
    """Name the library, with its version."""
    name = "torch" if neighbour == LOOP else NEIGHBOURS[neighbour].packages[0].partition("[")[0]
    return f"{name} {version(name)}"


def peak() -> float:
    """The most memory that this process has held, in MB.

    Linux passes ru_maxrss on to what a process starts, so that it would be no less than what the parent holds.
    """
    status = Path("/proc/self/status")
    if status.exists():
        (kilobytes,) = (line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(kilobytes) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024**2 if sys.platform == "darwin" else 1024)


def main() -> None:
    neighbour, method, root, most_rows, epochs = sys.argv[1:]
    out = os.fdopen(os.dup(1), "w")  # results only; whatever libraries print goes to standard error
    os.dup2(2, 1)
    small = made()
    began = time.process_time()
    try:
        first, compete = contenders(neighbour, method, int(epochs))
        failed = result(first, small, 0, 0).get("error")
    except Exception as error:  # of an import
        traceback.print_exc()
        failed = f"{type(error).__name__}: {error}"
    start = round(time.process_time() - began, 3)
    about = {"neighbour": neighbour, "method": method, "start": start}
    about["package"] = "" if neighbour == OURS else package(neighbour)
    about["torch"] = version("torch") if "torch" in sys.modules and find_spec("torch") else ""
    for line in sys.stdin:
        task = json.loads(line)
        if failed:
            scored = {"error": failed}
        else:
            problem = read(task["table"], Path(root), int(most_rows))
            scored = result(compete, problem, task["repeat"], task["fold"], PREDICTED)
        print(json.dumps(task | about | {"peak": round(peak(), 1)} | scored), file=out, flush=True)


if __name__ == "__main__":
    main()
