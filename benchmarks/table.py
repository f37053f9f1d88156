"""A table never seen before: `fit`, `predict` and `report` by their defaults, each in a process of its own.

    python benchmarks/table.py                      50,000 rows, 20 columns (about a minute of processor time)
    python benchmarks/table.py --rows 2000 --classes

Prints coverage on new rows, processor and clock seconds, and peak memory.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from made_table import made, write


def measured(*words: object) -> tuple[dict, str]:
    """Run a command; what it says as JSON, and what it took."""
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "wherefrom", *map(str, words), "--json", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(done.stderr)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    clock, peak = time.perf_counter() - began, after.ru_maxrss / 1e6  # of the largest child so far
    taken = f"{cpu:6.1f} s of processor, {clock:6.1f} s by the clock, peak {peak:.2f} GB"
    return json.loads(done.stdout), taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--new", type=int, default=20_000)
    parser.add_argument("--classes", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    target = "kind" if asked.classes else "y"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        train = write(folder / "train.csv", made(asked.rows, asked.seed, asked.classes))
        new = write(folder / "new.csv", made(asked.new, asked.seed + 1000, asked.classes))
        run = folder / "run"
        fitted, taken = measured("fit", train, "--target", target, "--out", run)
        print(f"fit      {asked.rows:>7,} rows  {taken}")
        print(f"         {fitted['epochs']} epochs, {fitted['members']} networks, {fitted['features']} features")
        print(f"         held out: {json.dumps(fitted['scores'])}")
        predicted, taken = measured("predict", run, new, "--out", folder / "predictions.csv")
        print(f"predict  {asked.new:>7,} rows  {taken}")
        print(f"         new rows: {json.dumps(predicted['scores'])}, {predicted['outside']} outside")
        _, taken = measured("report", run)
        print(f"report                 {taken}")


if __name__ == "__main__":
    main()
