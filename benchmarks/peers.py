"""Every neighbour beside this library: costs and scores of deep ensembles, SWAG, MC-dropout, Laplace and others.

    make peers                                        set up, run (some hours), write benchmarks/results/peers.md
    python benchmarks/peers.py --quick                two small tables, 40 epochs, 2 rounds
    python benchmarks/peers.py --neighbours skorch    of one neighbour, and what of ours is beside it
    python benchmarks/peers.py --page                 write the page of the results so far

Each neighbour has a virtual environment in .venvs; all see the torch of one of them. One that cannot be installed is
named on the page; remove its folder to try again. Results are appended to a file of JSON lines beside the page, so an
interrupted run goes on where it stopped; `--again wherefrom` runs a contender anew. Tables are UCI sets, where `--data`
has them, and one that scikit-learn holds.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from interpreters import ROOT, SHARED, EndedError, Environment, Runner, Store, make, python_of
from neighbours import page
from neighbours.given import Setting
from neighbours.listing import LOOP, NEIGHBOURS, OURS
from tabular.sets import FOLDS, SETS

EPOCHS = {"quick": 40, "full": 200}
ROUNDS = {"quick": 2, "full": 5}
ROWS = {"quick": 1000, "full": 2000}
TABLES = {"quick": ("yacht", "diabetes"), "full": ("yacht", "concrete", "energy", "kin8nm", "diabetes")}
Task = tuple[str, int, int, str, str]  # table, repeat, fold, neighbour, method


def set_up(folder: Path, names: list[str]) -> dict[str, Environment]:
    """Make the virtual environments that are not there yet; return what became of each."""
    folder.mkdir(exist_ok=True)
    shared = folder / "shared"
    if error := make(shared, SHARED).error:
        raise SystemExit(f"torch cannot be installed: {error}")
    environments = {}
    for name in names:
        if NEIGHBOURS[name].packages:
            print(f"setting up {name}", flush=True)
            environments[name] = make(folder / name, NEIGHBOURS[name].packages, shared)
    return environments


def tasks(asked: argparse.Namespace, there: list[str]) -> Iterator[Task]:
    """All tasks: in a round, all contenders take their turn on a table before the next table, method by method."""
    methods = dict.fromkeys(method for name in there for method in NEIGHBOURS[name].methods)
    for k in range(asked.rounds):
        for table in asked.tables:
            for method in methods:
                beside = [name for name in there if method in NEIGHBOURS[name].methods]
                yield from ((table, k // FOLDS, k % FOLDS, name, method) for name in (OURS, *beside))


def run(asked: argparse.Namespace, there: list[str], store: Store) -> None:
    """Run all tasks that have no result yet, each in a new process."""
    done = {tuple(each[name] for name in ("table", "repeat", "fold", "neighbour", "method")) for each in store.read()}
    pending = [task for task in tasks(asked, there) if task not in done]
    for k, (table, repeat, fold, neighbour, method) in enumerate(pending):
        if neighbour == OURS:
            python, path = Path(sys.executable), [ROOT / "src"]
        else:
            python, path = python_of(asked.venvs / ("shared" if neighbour == LOOP else neighbour)), []
        words = ["neighbours.runner", neighbour, method, str(asked.data), str(asked.rows), str(asked.epochs)]
        runner = Runner(python, words, path)
        task: dict[str, Any] = {"table": table, "repeat": repeat, "fold": fold}
        try:
            result = runner.run(task)
        except EndedError:
            about = {"neighbour": neighbour, "method": method, "package": "", "torch": ""}
            result = task | about | {"error": "its interpreter ended before a result"}
        runner.close()
        store.append(result)
        outcome = result.get("error") or f"{result['fit']:.2f} + {result['predict']:.3f} CPU s, {result['peak']:.0f} MB"
        print(f"{k + 1}/{len(pending)} {table} {repeat}/{fold} {neighbour}, {method}: {outcome}", flush=True)


def arguments() -> argparse.Namespace:
    """Return what was asked for, with all defaults."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", dest="mode", action="store_const", const="quick", default="full")
    parser.add_argument("--set-up", action="store_true", help="make the virtual environments, and end")
    parser.add_argument("--page", action="store_true", help="write the page of the results so far, and end")
    parser.add_argument("--tables", help="names, separated by commas")
    parser.add_argument("--neighbours", default=",".join(NEIGHBOURS), help="names, separated by commas")
    parser.add_argument("--rounds", type=int, help="folds of each table (default: 5; quick: 2)")
    parser.add_argument("--epochs", type=int, help="of every network (default: 200; quick: 40)")
    parser.add_argument("--rows", type=int, help="of a table at most (default: 2,000; quick: 1,000)")
    parser.add_argument("--again", default="", help="contenders whose results are removed first")
    parser.add_argument("--venvs", type=Path, default=ROOT / ".venvs", help="folder of the virtual environments")
    parser.add_argument("--data", type=Path, default=os.environ.get("WHEREFROM_DATA", ROOT.parent / "shared" / "data"))
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "peers.md")
    asked = parser.parse_args()
    asked.data = Path(asked.data)
    there = [name for name in TABLES[asked.mode] if is_there(name, asked.data)]
    asked.tables = _names(asked.tables) if asked.tables else there
    asked.neighbours, asked.again = _names(asked.neighbours), _names(asked.again)
    quantities = [name for name, each in SETS.items() if not each.classes]
    if unknown := [*(set(asked.tables) - set(quantities)), *(set(asked.neighbours) - set(NEIGHBOURS))]:
        choices = f"tables are {', '.join(quantities)}; neighbours are {', '.join(NEIGHBOURS)}"
        parser.error(f"unknown: {', '.join(unknown)}; {choices}")
    for name, choice in (("epochs", EPOCHS), ("rounds", ROUNDS), ("rows", ROWS)):
        setattr(asked, name, getattr(asked, name) or choice[asked.mode])
    return asked


def is_there(table: str, data: Path) -> bool:
    """True if a table can be read here."""
    return SETS[table].folder == "sklearn" or (data / SETS[table].folder / SETS[table].file).is_dir()


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def main() -> None:
    asked = arguments()
    environments = set_up(asked.venvs, asked.neighbours)
    if asked.set_up:
        return
    there = [name for name in asked.neighbours if name == LOOP or not environments[name].error]
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    store = Store(asked.out.with_name(f"{asked.out.stem}-{asked.epochs}-{asked.rows}.jsonl"))
    if asked.again:
        store.forget(lambda result: result["neighbour"] in asked.again)
    if not asked.page:
        run(asked, there, store)
    text, summary = page.written(store.read(), environments, Setting(asked.epochs), asked.rows)
    asked.out.write_text(text, encoding="utf-8")
    asked.out.with_suffix(".json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    print(f"written: {asked.out}")


if __name__ == "__main__":
    main()
