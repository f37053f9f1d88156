"""Real tables: this library beside CatBoost, LightGBM, NGBoost, a Gaussian process and a deep ensemble.

    python benchmarks/tables.py --set-up                      once: the peers' packages, in a venv of their own
    python benchmarks/tables.py --quick                       one repeat of 5 folds, 2,000 rows of each table at most
    python benchmarks/tables.py --full --before ../older      5 repeats, 10,000 rows; also an older source tree

Every contender runs in its own interpreter, on one thread. Results are appended to a file of JSON lines beside the
page, so an interrupted run goes on where it stopped. `--again now` runs a contender anew, as after a change of its
code. At the end, and with `--page` at once, the page and a JSON summary are written, of the folds that all contenders
have finished.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any

from tabular import page
from tabular.sets import FOLDS, SETS

ROOT = Path(__file__).resolve().parents[1]
PEER_PACKAGES = ("catboost", "lightgbm", "ngboost", "scikit-learn", "pandas")
ROWS = {"quick": 2000, "full": 10_000}
REPEATS = {"quick": 1, "full": 5}
Task = tuple[str, int, int, str]  # table, repeat, fold, contender


class Store:
    """Results as lines of JSON, in the order in which they came."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = Lock()

    def read(self) -> list[dict[str, Any]]:
        """Return all results; a last line that was cut off is left out."""
        if not self.path.exists():
            return []
        lines = self.path.read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines if line.endswith("}")]

    def append(self, result: dict[str, Any]) -> None:
        """Add a result at the end."""
        with self._lock, self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(result) + "\n")

    def forget(self, contenders: Sequence[str]) -> None:
        """Remove all results of these contenders."""
        kept = [result for result in self.read() if result["contender"] not in contenders]
        self.path.write_text("".join(json.dumps(result) + "\n" for result in kept), encoding="utf-8")


def set_up(folder: Path) -> None:
    """Make the peers' virtual environment."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *PEER_PACKAGES], check=True)


class Runner:
    """A contender's interpreter; it is started with its first task."""

    def __init__(self, contender: str, asked: argparse.Namespace) -> None:
        source = asked.before if contender == "before" else ROOT
        source = source / "src" if (source / "src").is_dir() else source
        is_peer = contender in page.IN_PEERS_VENV
        self._command = [str(asked.peers / "bin" / "python") if is_peer else sys.executable, "-m", "tabular.runner"]
        self._command += [contender, str(asked.data), str(asked.rows)]
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        path = [str(Path(__file__).parent), *([] if is_peer else [str(source)])]
        self._environment = os.environ | threads | {"PYTHONPATH": os.pathsep.join(path), "PYTHONWARNINGS": "ignore"}
        self._process: subprocess.Popen[str] | None = None
        self._revision = "" if is_peer or contender == "ensemble" else f"wherefrom ({contender}) {revision(source)}"

    def run(self, task: dict[str, Any]) -> dict[str, Any]:
        """Send a task, and wait for its result."""
        if self._process is None:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            self._process = subprocess.Popen(self._command, env=self._environment, **pipes)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(task) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the interpreter of a contender ended: {' '.join(self._command)}")
        result = json.loads(line)
        return result | {"package": result["package"] or self._revision}

    def close(self) -> None:
        """End the interpreter."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._process.wait()


def revision(source: Path) -> str:
    """The last commit that changed a source tree, or nothing where there is no git."""
    command = ["git", "-C", str(source), "log", "-1", "--format=%h", "--", "."]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


def tasks(asked: argparse.Namespace) -> Iterator[Task]:
    """All tasks: a fold of every table before the next fold, so that a part of a run speaks of all tables."""
    for repeat in range(asked.repeats):
        for fold in range(asked.folds):
            for table in asked.tables:
                yield from ((table, repeat, fold, contender) for contender in asked.contenders)


def run(asked: argparse.Namespace, store: Store) -> None:
    """Run all tasks that have no result yet; each of `--jobs` threads has some of the contenders."""
    done = {(each["table"], each["repeat"], each["fold"], each["contender"]) for each in store.read()}
    pending = [task for task in tasks(asked) if task not in done]

    def work(contenders: Sequence[str]) -> None:
        runners = {contender: Runner(contender, asked) for contender in contenders}
        for table, repeat, fold, contender in pending:
            if contender in runners:
                result = runners[contender].run({"table": table, "repeat": repeat, "fold": fold})
                store.append(result)
                outcome = result.get("error") or result.get("skipped") or f"{result['fit']:.1f} CPU s"
                print(f"{table} {repeat}/{fold} {contender}: {outcome}", flush=True)
        for runner in runners.values():
            runner.close()

    with ThreadPoolExecutor(asked.jobs) as pool:
        for thread in [pool.submit(work, asked.contenders[k :: asked.jobs]) for k in range(asked.jobs)]:
            thread.result()


def arguments() -> argparse.Namespace:
    """Return what was asked for, with all defaults."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--quick", dest="mode", action="store_const", const="quick", default="quick")
    mode.add_argument("--full", dest="mode", action="store_const", const="full")
    parser.add_argument("--set-up", action="store_true", help="make the peers' virtual environment, and end")
    parser.add_argument("--page", action="store_true", help="write the page of the results so far, and end")
    parser.add_argument("--tables", default=",".join(SETS), help="names, separated by commas")
    parser.add_argument("--contenders", default=",".join(page.CONTENDERS), help="names, separated by commas")
    parser.add_argument("--repeats", type=int, help="of the folds (default: 1 or 5)")
    parser.add_argument("--folds", type=int, default=FOLDS, choices=range(1, FOLDS + 1), help="of 5 that are run")
    parser.add_argument("--rows", type=int, help="of a table at most (default: 2,000 or 10,000)")
    parser.add_argument("--before", type=Path, help="an older source tree of this library, to compare with")
    parser.add_argument("--again", default="", help="contenders whose results are removed first")
    parser.add_argument("--jobs", type=int, default=1, help="contenders that run at the same time")
    parser.add_argument("--peers", type=Path, default=ROOT / ".venv-peers", help="the peers' virtual environment")
    parser.add_argument("--data", type=Path, default=os.environ.get("WHEREFROM_DATA", ROOT.parent / "shared" / "data"))
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "tables.md")
    asked = parser.parse_args()
    asked.tables, asked.contenders, asked.again = (
        [name for name in names.split(",") if name] for names in (asked.tables, asked.contenders, asked.again)
    )
    if unknown := [*(set(asked.tables) - set(SETS)), *(set(asked.contenders) - set(page.CONTENDERS))]:
        choices = f"tables are {', '.join(SETS)}; contenders are {', '.join(page.CONTENDERS)}"
        parser.error(f"unknown: {', '.join(unknown)}; {choices}")
    if asked.before is None:
        asked.contenders = [name for name in asked.contenders if name != "before"]
    asked.rows = asked.rows or ROWS[asked.mode]
    asked.repeats = asked.repeats or REPEATS[asked.mode]
    return asked


def main() -> None:
    asked = arguments()
    if asked.set_up:
        set_up(asked.peers)
        return
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    store = Store(asked.out.with_name(f"{asked.out.stem}-{asked.rows}.jsonl"))
    if not asked.page:
        if asked.again:
            store.forget(asked.again)
        run(asked, store)
    text, summary = page.written(store.read(), asked.tables, asked.data, asked.rows)
    asked.out.write_text(text, encoding="utf-8")
    asked.out.with_suffix(".json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    print(f"written: {asked.out}")


if __name__ == "__main__":
    main()
