"""How much the coverage of `wf.fit` depends on its seed, and what a fit costs beside an older version.

    python benchmarks/coverage_by_seed.py                               coverage over 13 seeds, one table of 4,000 rows
    python benchmarks/coverage_by_seed.py --cost --before ../older      CPU seconds of fit, now / before

The table is made: nine columns of numbers, one of text, skewed noise whose scale depends on the row. All seeds are
judged on the same 10,000 fresh rows, so the standard deviation over seeds is that of the fit. Costs are measured in
turns, each fit in its own process, on tables of 300, 4,000 and 50,000 rows. Imports and compilations are left out.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

ROOT = Path(__file__).resolve().parents[1]
FRESH = 10_000
SIZES = (300, 4000, 50_000)
TARGET, LEVEL = "y", 0.95


def made(rows: int, seed: int) -> pd.DataFrame:
    """A skewed table: y = f(x) + s(x) (G - 2), with G of a gamma distribution of shape 2."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, 9))
    ward = random.integers(4, size=rows)
    centre = 2 * np.sin(x[:, 0]) + x[:, 1] * x[:, 2] + 0.5 * x[:, 3] + np.array([0.0, 1.0, -1.0, 2.0])[ward]
    scale = 0.3 + 0.5 * np.log1p(np.exp(x[:, 4])) + 0.4 * (ward == 3)
    table = pd.DataFrame(x, columns=[f"x{k}" for k in range(9)]).assign(ward=np.array(list("ABCD"))[ward])
    return table.assign(**{TARGET: 50 + centre + scale * (random.gamma(2.0, size=rows) - 2)})


def coverage(rows: int, seeds: int) -> None:
    """Print the coverage on fresh rows for each seed, and its standard deviation over the seeds."""
    import wherefrom as wf

    table, fresh = made(rows, 0), made(FRESH, 1)
    y = fresh[TARGET].to_numpy()
    covered, worst = [], []
    for seed in range(seeds):
        began = time.process_time()
        model = wf.fit(table, TARGET, level=LEVEL, seed=seed, workers=1)
        taken = time.process_time() - began
        answers = model.predict(fresh.drop(columns=TARGET))
        is_covered = ((y >= answers["lower"]) & (y <= answers["upper"])).to_numpy()
        fifths = np.array_split(is_covered[np.argsort(answers["mean"].to_numpy(), kind="stable")], 5)
        covered.append(100 * is_covered.mean())
        worst.append(100 * min(fifth.mean() for fifth in fifths))
        width = float((answers["upper"] - answers["lower"]).mean())
        shown = f"{covered[-1]:.2f}% covered, worst fifth {worst[-1]:.1f}%, width {width:.2f}, fit {taken:.1f} CPU s"
        print(f"seed {seed:>2}: {shown}", flush=True)
    spread = statistics.stdev(covered) if seeds > 1 else float("nan")
    print(f"{rows:,} rows, {seeds} seeds, {FRESH:,} fresh rows: coverage {statistics.mean(covered):.2f}%,")
    print(f"standard deviation over seeds {spread:.2f} points, least worst fifth {min(worst):.1f}%")


def fit_seconds(rows: int) -> float:
    """CPU seconds of one fit, after a small one that imports and compiles."""
    import wherefrom as wf

    wf.fit(made(200, 2), TARGET, workers=1)
    table = made(rows, 0)
    began = time.process_time()
    wf.fit(table, TARGET, workers=1)
    return time.process_time() - began


def cost(before: Path, rounds: int) -> None:
    """Print CPU seconds of fit, now and before, and the median of the ratios of each round."""
    sources = {"now": ROOT, "before": before}
    for rows in SIZES:
        seconds: dict[str, list[float]] = {name: [] for name in sources}
        for _ in range(rounds):
            for name, source in sources.items():
                path = source / "src" if (source / "src").is_dir() else source
                environment = os.environ | {"PYTHONPATH": str(path), "OMP_NUM_THREADS": "1"}
                command = [sys.executable, __file__, "--seconds-of", str(rows)]
                done = subprocess.run(command, env=environment, capture_output=True, text=True)
                if done.returncode:
                    raise SystemExit(done.stderr)
                seconds[name].append(float(done.stdout.split()[-1]))
        ratio = statistics.median(now / then for now, then in zip(seconds["now"], seconds["before"], strict=True))
        now, then = (statistics.median(seconds[name]) for name in sources)
        print(f"{rows:>6,} rows: now {now:.1f} CPU s, before {then:.1f}: {ratio:.2f} times", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--seeds", type=int, default=13)
    parser.add_argument("--cost", action="store_true", help="compare the cost of fit with --before instead")
    parser.add_argument("--before", type=Path, help="an older source tree of this library")
    parser.add_argument("--rounds", type=int, default=3, help="of the cost")
    parser.add_argument("--seconds-of", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    if asked.seconds_of:
        print(fit_seconds(asked.seconds_of))
    elif asked.cost:
        if asked.before is None:
            parser.error("--cost compares with --before, a source tree")
        cost(asked.before, asked.rounds)
    else:
        coverage(asked.rows, asked.seeds)


if __name__ == "__main__":
    main()
