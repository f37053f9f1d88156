"""Trials of what files withstand: how often each was tried, and how often it held. The page is docs/reliability.md.

    python benchmarks/reliability.py kills                      every file operation of every writer
    python benchmarks/reliability.py bits --count 1000          single bits flipped
    python benchmarks/reliability.py mutations --minutes 15     files changed at random, with right and wrong digests;
                                                                --cases 100000 --minutes 600 for so many of them
    python benchmarks/reliability.py disk                       full, read-only, no descriptors, two writers, the clock
    python benchmarks/reliability.py signals --count 100        Ctrl-C and SIGTERM at random moments of trainings

Nothing outside of a temporary folder is touched. Mounting small and read-only file systems needs an administrator;
without one, those two lines say so.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from reliable import signals, trials
from reliable.cases import cases
from reliable.trials import Trial

KINDS = {"posterior": 250, "table": 100, "recorder": 500}  # changed files of each before the next: tables take longer


def kills(folder: Path, options: argparse.Namespace) -> Iterator[Trial]:
    """Kill every writer at, and within, each of its file operations."""
    for case in cases():
        for has_old in (True, False):
            if has_old or case.name not in ("wherefrom sign", "a file added to a run", "checkpoints"):
                yield trials.interruptions(case, folder, "die", has_old)
        yield trials.interruptions(case, folder, "die half-way", True)


def bits(folder: Path, options: argparse.Namespace) -> Iterator[Trial]:
    """Flip single bits."""
    yield trials.flipped_bits(folder / "table", options.count)
    yield trials.flipped_bits_of_members(folder / "posterior", max(1, options.count // 5))


def mutations(folder: Path, options: argparse.Namespace) -> Iterator[Trial]:
    """Change files at random, until the time is over, or there were as many as are asked for."""
    results = {name: Trial(f"files mutated: {name}") for name in KINDS}
    kinds = {name: trials.mutated_kind(folder / name, name) for name in KINDS}
    end = time.monotonic() + 60 * options.minutes
    while time.monotonic() < end and sum(each.tried for each in results.values()) < options.cases:
        for name, at_once in KINDS.items():
            first = options.first + results[name].tried
            trials.mutations(results[name], folder / name, kinds[name], range(first, first + at_once))
    yield from results.values()


def disk(folder: Path, options: argparse.Namespace) -> Iterator[Trial]:
    """Write where it cannot be, by two at once, and with a wrong clock."""
    every = cases()
    for case in every:
        yield trials.interruptions(case, folder, "fail", True)
    yield trials.tiny_disk(every[:2] + every[4:], folder)
    yield trials.read_only(every, folder)
    yield trials.no_descriptors(every, folder)
    yield trials.two_writers(every, folder, options.times)
    yield trials.clock_back(every[0], folder)


def interruptions(folder: Path, options: argparse.Namespace) -> Iterator[Trial]:
    """Send signals to trainings."""
    for engine, workers in (("torch", 1), ("torch", 2), ("native", 1), ("native", 2)):
        for number in (signal.SIGINT, signal.SIGTERM):
            name = f"{number.name}, {engine}, {workers} thread{'s' * (workers > 1)}"
            trial, how = Trial(name), dict(engine=engine, workers=workers)
            for outcome in signals.at_many_moments(folder / name, number, how, options.count // 8):
                fault = outcome.fault or (None if outcome.is_same else "it ended in other bits")
                trial.add(fault if outcome.kept >= outcome.reported else "epochs were lost")
            yield trial


TRIALS: dict[str, Callable[[Path, argparse.Namespace], Iterator[Trial]]] = {
    **{each.__name__: each for each in (kills, bits, mutations, disk)},
    "signals": interruptions,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", choices=TRIALS)
    parser.add_argument("--count", type=int, default=1000, help="bits to flip, or signals to send (1000)")
    parser.add_argument("--minutes", type=float, default=15, help="for mutations (15)")
    parser.add_argument("--cases", type=float, default=float("inf"), help="mutations at most, about")
    parser.add_argument("--first", type=int, default=0, help="number of the first mutation (0)")
    parser.add_argument("--times", type=int, default=20, help="two writers at once, each (20)")
    parser.add_argument("--folder", type=Path, default=None, help="for files (a temporary one)")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    results = []
    print("| what | tried | held | |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for trial in TRIALS[options.which](Path(folder), options):
            results.append(trial)
            print(trial, flush=True)
            for fault in trial.faults[:5]:
                print(f"  {fault}", file=sys.stderr, flush=True)
    tried, held = sum(trial.tried for trial in results), sum(trial.held for trial in results)
    print(f"| all | {tried:,} | {held:,} | |")
    return int(held < tried)


if __name__ == "__main__":
    sys.exit(main())
