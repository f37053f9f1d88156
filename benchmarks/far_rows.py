"""Rows moved out of real tables: how many are flagged, how wide their intervals become, and how many false alarms.

    python benchmarks/far_rows.py ../shared/data            about five minutes of processor time
    python benchmarks/far_rows.py ../shared/data --rows 500

Every column of numbers of every table is moved out, down and up, by 1, 3, 10 and 100 ranges of training; 0 is the end
of the range. False alarms are rows that are outside by what is learnt without their fold of five. Widths are of the
95% interval (of classes, the entropy) over the mean width of the rows before they are moved. The last columns are the
largest fall of a width, or a standard deviation, on the way, and the least width, both over that mean.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import wherefrom as wf
from far_rows import RANGES, inputs, left_out, moved, real_tables
from wherefrom.tables.predicting import Predicted
from wherefrom.tables.raw import RawTable


def widths(predicted: Predicted) -> tuple[np.ndarray, np.ndarray]:
    """Return the width and the standard deviation of each row; of classes, the entropy twice."""
    answers = predicted.answers
    if "entropy" in answers:
        return answers["entropy"], answers["entropy"]
    return answers["upper"] - answers["lower"], answers["std"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--rows", type=int, default=1000, help="of each table, that networks are trained on")
    parser.add_argument("--moved", type=int, default=10, help="rows of each table")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    steps = RANGES[1:]
    header = ("table", "rows", "columns", "false alarms", *(f"flagged at {step}" for step in steps))
    header = (*header, *(f"width at {step}" for step in RANGES), "largest fall", "least width")
    print(_line(header), _line(["---"] * len(header)), sep="\n", flush=True)
    flagged, alarms = [], []
    for (name, case, table), (_, _, whole) in zip(
        real_tables(asked.data, asked.rows), real_tables(asked.data), strict=True
    ):
        columns = {each: table.columns[each] for each in (*inputs(table, case), case.target, case.group) if each}
        model = wf.fit(
            RawTable(table.source, columns, table.rows, table.decimal),
            case.target,
            task=case.task,
            group=case.group,
            draws=3,
            epochs=20,
            samples=20,
        )
        rows = np.random.default_rng(1).permutation(len(table))[: asked.moved]
        far = moved(table, model.encoder, rows)
        looked = model.look(far.table)
        is_outside = looked.outside.reshape(far.shape)
        width, std = (each.reshape(far.shape) for each in widths(looked.predicted))
        usual = widths(model.look(table.take(np.sort(rows))).predicted)[0].mean()
        falls = max(float(-np.diff(each, axis=2).min()) for each in (width, std)) / usual
        flagged.append(is_outside.mean(axis=3).reshape(-1, len(RANGES)))
        alarms.append((left_out(whole, case) > 1).mean())
        cells = (
            name,
            f"{len(whole):,}",
            str(far.shape[0]),
            f"{alarms[-1]:.2%}",
            *(f"{share:.0%}" for share in flagged[-1].mean(axis=0)[1:]),
            *(f"{np.median(width[:, :, step]) / usual:.2f}" for step in range(len(RANGES))),
            f"{max(0.0, falls):.0e}",
            f"{width.min() / usual:.2f}",
        )
        print(_line(cells), flush=True)
    shares = np.concatenate(flagged).mean(axis=0)[1:]
    columns = str(sum(map(len, flagged)) // 2)
    last = ("all", "", columns, f"{np.mean(alarms):.2%}", *(f"{share:.1%}" for share in shares))
    print(_line((*last, *[""] * (len(header) - len(last)))))


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
