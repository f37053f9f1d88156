"""Memory and CPU time of `wherefrom predict`, `sources` and `fit` as tables get longer or wider.

Every figure is that of a process of its own: its largest resident memory (`resource.getrusage`), and its CPU time,
of which "reading and writing" is what is spent outside of the prediction of rows. Tables are 18 columns of numbers with
five decimals, one of text, an identifier, and the target; nothing is missing.

    python benchmarks/rows.py predict --rows 100000 1000000 10000000
    python benchmarks/rows.py fit --rows 100000 1000000
    python benchmarks/rows.py fit --rows 10000000 --most-rows 10000000 --ending parquet
    python benchmarks/rows.py wide --columns 500 1000 10000
    python benchmarks/rows.py bomb
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

NUMBERS = 18
_AT_ONCE = 100_000
_QUICK = ["--epochs", "3", "--samples", "4", "--quiet"]


def write_table(path: Path, rows: int, seed: int = 0) -> Path:
    """Write a CSV or Parquet file of so many rows, some at a time."""
    import polars

    parts = []
    random = np.random.default_rng(seed)
    for start in range(0, rows, _AT_ONCE):
        count = min(_AT_ONCE, rows - start)
        x = random.normal(size=(count, NUMBERS)).round(5)
        frame = polars.DataFrame(
            {
                "id": np.arange(start, start + count),
                **{f"x{k}": x[:, k] for k in range(NUMBERS)},
                "ward": np.array(["A", "B", "C", "D"])[random.integers(4, size=count)],
                "y": (np.sin(x[:, 0]) + x[:, 1] * x[:, 2] + random.normal(size=count)).round(5),
            }
        )
        if path.suffix == ".parquet":
            parts.append(path.with_name(f"part-{start}.parquet"))
            frame.write_parquet(parts[-1])
        else:
            with path.open("ab" if start else "wb") as file:
                frame.write_csv(file, include_header=not start)
    if parts:
        polars.concat([polars.scan_parquet(part) for part in parts]).sink_parquet(path)
        for part in parts:
            part.unlink()
    return path


def write_wide(path: Path, columns: int, rows: int) -> Path:
    """Write a CSV file of so many columns of numbers."""
    import polars

    x = np.random.default_rng(0).normal(size=(rows, columns)).round(4)
    data = {f"x{k}": x[:, k] for k in range(columns)}
    polars.DataFrame(data | {"y": (x[:, 0] + x[:, 1]).round(4)}).write_csv(path)
    return path


def child(*command: str) -> dict[str, float]:
    """Run a command of ours in a process of its own, and return what it took."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    output = subprocess.run(
        [sys.executable, __file__, "child", *command], capture_output=True, text=True, env=environment, check=False
    )
    if output.returncode:
        raise SystemExit(output.stderr)
    return json.loads(output.stdout.splitlines()[-1])


def run_child(command: list[str]) -> None:
    """Run the command, and print its figures as the last line."""
    from typer.testing import CliRunner

    from wherefrom.cli import app
    from wherefrom.tables import looking

    predicting = 0.0
    actual = looking.predict_rows

    def timed(*args: object, **settings: object) -> object:
        nonlocal predicting
        began = time.process_time()
        try:
            return actual(*args, **settings)  # type: ignore[arg-type]
        finally:
            predicting += time.process_time() - began

    looking.predict_rows = timed  # type: ignore[assignment]
    start = time.process_time()
    result = CliRunner().invoke(app, command)
    if result.exit_code:
        raise SystemExit(f"{result.output}\n{result.exception}")
    figures = {
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9,
        "cpu": time.process_time() - start,
        "predicting": predicting,
    }
    print(json.dumps(figures))


def show(what: str, figures: dict[str, float]) -> None:
    rest = figures["cpu"] - figures["predicting"]
    seconds = " | ".join(f"{each:.0f} s" for each in (figures["cpu"], figures["predicting"], rest))
    print(f"| {what} | {figures['memory']:.2f} GB | {seconds} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["predict", "sources", "fit", "wide", "bomb"])
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--columns", type=int, nargs="+", default=[500, 1000])
    parser.add_argument("--ending", choices=["csv", "parquet", "csv.gz"], default="csv")
    parser.add_argument("--quick", action="store_true", help="a run of two networks, without folds and calibration")
    parser.add_argument("--most-rows", type=int, help="to train on, for fit; a million if not said")
    parser.add_argument("--folder", type=Path, help="for tables and runs; a temporary one if not said")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = asked.folder or Path(temporary)
        print("| | largest memory | CPU time | predicting | all else |\n|---|---|---|---|---|")
        if asked.what in ("predict", "sources"):
            run = folder / "run"
            few = ["--over", "theta0=2", "--held-out", "0.3", "--calibrate", "none", "--noise", "fit"]
            quick = few if asked.quick else ["--draws", "2"]
            train = write_table(folder / "train.csv", 2000)
            child("fit", str(train), "--target", "y", "--out", str(run), "--overwrite", *_QUICK, *quick)
            for rows in asked.rows:
                path = folder / f"rows-{rows}.{asked.ending.removesuffix('.gz')}"
                if not path.exists():
                    write_table(path, rows, 1)
                if asked.ending == "csv.gz":
                    path = packed(path)
                out = folder / f"out.{asked.ending.removesuffix('.gz')}"
                show(f"{rows:,} rows", child(asked.what, str(run), str(path), "--out", str(out), "--quiet"))
        elif asked.what == "fit":
            for rows in asked.rows:
                path = folder / f"rows-{rows}.{asked.ending}"
                if not path.exists():
                    write_table(path, rows, 1)
                command = ("fit", str(path), "--target", "y", "--out", str(folder / f"fit-{rows}"), "--overwrite")
                most = ("--most-rows", str(asked.most_rows)) if asked.most_rows else ()
                show(f"{rows:,} rows", child(*command, *_QUICK, "--draws", "2", *most))
        elif asked.what == "wide":
            for columns in asked.columns:
                path = write_wide(folder / f"wide-{columns}.csv", columns, 60)
                command = ("fit", str(path), "--target", "y", "--out", str(folder / f"wide-{columns}"), "--overwrite")
                show(f"{columns:,} columns", child(*command, *_QUICK, "--draws", "2"))
        else:
            bomb = folder / "bomb.csv.gz"
            with gzip.open(bomb, "wb") as file:
                file.write(b"a,b\n")
                for _ in range(1000):
                    file.write(b"1,2\n" * 262_144)
            print(f"{bomb.stat().st_size:,} bytes")
            figures = subprocess.run(
                [sys.executable, "-m", "wherefrom", "fit", str(bomb), "--target", "a", "--out", str(folder / "run")],
                capture_output=True,
                text=True,
                check=False,
            )
            memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / 1e9
            print(f"exit code {figures.returncode}, {memory:.2f} GB\n{figures.stderr}")


def packed(path: Path) -> Path:
    """Compress a file."""
    target = path.with_name(f"{path.name}.gz")
    if not target.exists():
        with path.open("rb") as source, gzip.open(target, "wb", compresslevel=1) as file:
            while block := source.read(1 << 20):
                file.write(block)
    return target


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        run_child(sys.argv[2:])
    else:
        main()
