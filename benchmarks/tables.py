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

from interpreters import ROOT, Runner, Store, make, python_of
from tabular import page
from tabular.sets import FOLDS, SETS

PEER_PACKAGES = ("catboost", "lightgbm", "ngboost", "scikit-learn", "pandas")
ROWS = {"quick": 2000, "full": 10_000}
REPEATS = {"quick": 1, "full": 5}
Task = tuple[str, int, int, str]  # table, repeat, fold, contender


def set_up(folder: Path) -> None:
    """Make the peers' virtual environment."""
    if error := make(folder, PEER_PACKAGES).error:
        raise SystemExit(error)


def runner(contender: str, asked: argparse.Namespace) -> tuple[Runner, str]:
    """The interpreter of a contender, and the revision of this library in it, if it is one of ours."""
    words = ["tabular.runner", contender, str(asked.data), str(asked.rows)]
    if contender in page.IN_PEERS_VENV:
        return Runner(python_of(asked.peers), words), ""
    source = asked.before if contender == "before" else ROOT
    source = source / "src" if (source / "src").is_dir() else source
    about = "" if contender == "ensemble" else f"wherefrom ({contender}) {revision(source)}"
    return Runner(sys.executable, words, [source]), about


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
        runners = {contender: runner(contender, asked) for contender in contenders}
        for table, repeat, fold, contender in pending:
            if contender in runners:
                interpreter, about = runners[contender]
                result = interpreter.run({"table": table, "repeat": repeat, "fold": fold})
                result["package"] = result["package"] or about
                store.append(result)
                outcome = result.get("error") or result.get("skipped") or f"{result['fit']:.1f} CPU s"
                print(f"{table} {repeat}/{fold} {contender}: {outcome}", flush=True)
        for interpreter, _ in runners.values():
            interpreter.close()

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
            store.forget(lambda result: result["contender"] in asked.again)
        run(asked, store)
    text, summary = page.written(store.read(), asked.tables, asked.data, asked.rows)
    asked.out.write_text(text, encoding="utf-8")
    asked.out.with_suffix(".json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    print(f"written: {asked.out}")


if __name__ == "__main__":
    main()
