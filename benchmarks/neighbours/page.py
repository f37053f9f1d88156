"""Results -> a page in Markdown, and the same numbers as JSON.

A comparison is a neighbour's method on a table, beside ours, in one measure. Costs are compared as ratios, theirs
divided by ours, of the same fold: won if all rounds are above 1, lost if all are below, level if they differ. NLL and
CRPS are compared row by row: won or lost if the difference is more than one standard error. Coverage is compared by its
distance to 95%, in the same way.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal

import numpy as np

from interpreters import Environment
from neighbours.given import BATCH_OF_PREDICTION, TEMPERATURE, Setting
from neighbours.listing import NEIGHBOURS, OURS
from neighbours.runner import PREDICTED
from setting import machine
from tabular.comparing import Record, Result, record
from tabular.page import digits, markdown_table

Verdict = Literal["won", "level", "lost"]
COSTS = {
    "fit": "training, CPU time",
    "predict": "prediction, CPU time",
    "peak": "peak memory",
    "start": "start-up, CPU time",
}
SCORES = {"nll": "NLL", "crps": "CRPS", "covered": "coverage"}
MEASURES = COSTS | SCORES
LEVEL = 0.95


@dataclass(frozen=True)
class Compared:
    """One comparison.

    theirs, ours: the median of a cost over rounds, or the mean of a score over rows.
    middle: the median ratio of a cost, theirs / ours, or the difference of a score, ours - theirs.
    low, high: the smallest and the largest ratio over rounds; of a score, the difference plus or minus its error.
    """

    neighbour: str
    method: str
    table: str
    measure: str
    theirs: float
    ours: float
    middle: float
    low: float
    high: float
    verdict: Verdict

    def __str__(self) -> str:
        if self.measure in COSTS:
            return f"{factor(self.middle)} ({factor(self.low)} to {factor(self.high)})"
        if self.measure == "covered":
            return f"{100 * self.middle:+.1f} ± {self.error} points"
        return f"{self.middle:+.3g} ± {self.error}"

    @property
    def error(self) -> str:
        """Half of the way from low to high; of coverage, in points."""
        half = (self.high - self.low) / 2
        return f"{100 * half:.1f}" if self.measure == "covered" else f"{half:.2g}"

    @property
    def values(self) -> list[str]:
        """Their score and ours; the better one is bold."""
        shown = [
            f"{100 * each:.1f}%" if self.measure == "covered" else digits(each) for each in (self.theirs, self.ours)
        ]
        better = {"won": 1, "lost": 0}.get(self.verdict)
        return [f"**{text}**" if k == better else text for k, text in enumerate(shown)]


def factor(ratio: float) -> str:
    """
    >>> factor(0.0312), factor(1.04), factor(27.3), factor(1234.0)
    ('0.031', '1.04', '27', '1,234')
    """
    return f"{ratio:.2g}" if ratio < 1 else f"{ratio:.2f}" if ratio < 10 else f"{ratio:,.0f}"


# ---------------------------------------------------------------------- comparing


def comparisons(results: Sequence[Result]) -> list[Compared]:
    """Compare every neighbour's methods with ours, on every table that both have finished."""
    done = [each for each in results if "scores" in each]
    by_contender: dict[tuple[str, str, str], dict[tuple[int, int], Result]] = {}
    for each in done:
        key = each["neighbour"], each["method"], each["table"]
        by_contender.setdefault(key, {})[each["repeat"], each["fold"]] = each
    compared = []
    for (neighbour, method, table), theirs in by_contender.items():
        ours = by_contender.get((OURS, method, table), {})
        rounds = sorted(set(theirs) & set(ours))
        if neighbour == OURS or not rounds:
            continue
        about = neighbour, method, table
        pairs = [(theirs[each], ours[each]) for each in rounds]
        compared += [_cost(*about, cost, pairs) for cost in COSTS]
        compared += _scores(*about, pairs)
    order = list(NEIGHBOURS)
    return sorted(compared, key=lambda each: order.index(each.neighbour))


def _cost(neighbour: str, method: str, table: str, cost: str, pairs: Sequence[tuple[Result, Result]]) -> Compared:
    ratios = [max(theirs[cost], 1e-6) / max(ours[cost], 1e-6) for theirs, ours in pairs]
    low, high = min(ratios), max(ratios)
    verdict: Verdict = "won" if low > 1 else "lost" if high < 1 else "level"
    middles = (statistics.median(pair[k][cost] for pair in pairs) for k in range(2))
    return Compared(neighbour, method, table, cost, *middles, statistics.median(ratios), low, high, verdict)


def _scores(neighbour: str, method: str, table: str, pairs: Sequence[tuple[Result, Result]]) -> list[Compared]:
    theirs, ours = (_record([pair[k] for pair in pairs]) for k in range(2))
    compared = []
    for score in SCORES:
        difference = ours.against(theirs, score)
        worse = difference.difference
        if score == "covered":
            worse = abs(ours.mean(score) - LEVEL) - abs(theirs.mean(score) - LEVEL)
        verdict: Verdict = "level" if abs(worse) <= difference.error else "won" if worse < 0 else "lost"
        ends = difference.difference - difference.error, difference.difference + difference.error
        means = theirs.mean(score), ours.mean(score)
        compared.append(Compared(neighbour, method, table, score, *means, difference.difference, *ends, verdict))
    return compared


def _record(results: Sequence[Result]) -> Record:
    count = 1 + max(max(each["rows"]) for each in results)
    return record(results, np.zeros(count), np.arange(count))


# ---------------------------------------------------------------------- the page


def written(
    results: Sequence[Result], environments: Mapping[str, Environment], setting: Setting, most_rows: int
) -> tuple[str, dict[str, Any]]:
    """The page, and its numbers."""
    compared = comparisons(results)
    tables = list(dict.fromkeys(each["table"] for each in results))
    sections = [
        "# Other libraries, side by side",
        "Written by `make peers`.",
        _sentence(compared),
        _counts(compared),
        "\n".join(_about(results, most_rows)),
        "## What is compared",
        _explained(setting),
        "## Costs",
        "Theirs divided by ours: above 1, this library is cheaper. The median over tables of the medians over rounds, "
        "and the smallest and the largest ratio.",
        _ratios(compared),
        "## Scores",
        "On the same rows, lower is better for NLL and CRPS; coverage is that of intervals of 95%. ± is the standard "
        "error over rows of the difference to ours. Bold: the better one, by more than it. It leaves out that another "
        "seed trains another network: in few rounds, some methods of one network win or lose by chance.",
        *(f"### {table}\n\n{_scored(compared, table)}" for table in tables),
        "## CPU seconds and memory",
        "Medians over rounds: seconds of training, seconds of a prediction of "
        f"{PREDICTED:,} rows, MB of memory at most, seconds of start-up.",
        *(f"### {table}\n\n{_seconds(results, table)}" for table in tables),
        "## Where this library loses",
        _losses(compared),
        "## Not compared",
        "\n".join(_missing(results, environments)) or "Nothing: all of them ran.",
    ]
    summary = {
        "date": date.today().isoformat(),
        "epochs": setting.epochs,
        "rows": most_rows,
        "counts": dict(Counter(each.verdict for each in compared)),
        "comparisons": [_numbers(each) for each in compared],
        "not_installed": {name: each.error for name, each in environments.items() if each.error},
    }
    return "\n\n".join(sections) + "\n", summary


def _sentence(compared: Sequence[Compared]) -> str:
    if not compared:
        return "**Nothing has been compared yet.**"
    counts = Counter(each.verdict for each in compared)
    costs, scores = (Counter(each.verdict for each in compared if each.measure in some) for some in (COSTS, SCORES))
    return (
        f"**Of {len(compared):,} comparisons, this library wins {counts['won']:,} and loses {counts['lost']:,}; "
        f"{counts['level']:,} are level.** In costs (time, memory) it wins {costs['won']:,} and loses "
        f"{costs['lost']:,}; in scores (NLL, CRPS, coverage) it wins {scores['won']:,} and loses {scores['lost']:,}. "
        "[All losses](#where-this-library-loses) are listed below."
    )


def _counts(compared: Sequence[Compared]) -> str:
    rows = []
    for measure, name in MEASURES.items():
        counts = Counter(each.verdict for each in compared if each.measure == measure)
        rows.append((name, *(str(counts[verdict]) for verdict in ("won", "level", "lost"))))
    return markdown_table(("", "won", "level", "lost"), rows)


def _about(results: Sequence[Result], most_rows: int) -> list[str]:
    packages = sorted({each["package"] for each in results if each["package"]})
    torches = Counter(each["torch"] for each in results if each["torch"])
    usual = torches.most_common(1)[0][0] if torches else "none"
    others = sorted(
        {f"{each['neighbour']} needs {each['torch']}" for each in results if each["torch"] not in ("", usual)}
    )
    rounds = len({(each["repeat"], each["fold"]) for each in results})
    return [
        f"- {date.today().isoformat()}, {machine()}, one thread for each contender",
        f"- {', '.join(packages)}",
        f"- torch {usual}" + (f"; {', '.join(others)}" if others else ", the same for all that use it"),
        f"- {'1 round' if rounds == 1 else f'Up to {rounds} rounds, each with another fold'}; in a round, all "
        f"contenders take their turn on a table before the next table. At most {most_rows:,} rows of a table",
    ]


def _explained(setting: Setting) -> str:
    return f"""\
- Each fold of each contender is a process of its own, in a virtual environment of its own.
- Networks have one hidden layer of {setting.units} units (ReLU), and train for {setting.epochs} epochs by Adam, with a
  learning rate of {setting.lr:g} and batches of {setting.batch_size}. Ensembles have {setting.members} members. SWAG
  starts after half of the epochs, with rank {setting.rank}; SWAG, MC-dropout (rate {setting.dropout:g}) and IVON
  predict by {setting.samples} samples. Laplace has Kronecker factors, and predicts by linearisation.
- SGLD and IVON have a temperature of {TEMPERATURE:g} and learning rates of 0.1 and 0.3, the same on both sides.
- Deep ensembles and Bayesian ensembles learn the noise. For all others, one function adds to the variance of the
  network's answers the noise that makes a tenth of the training rows most likely, on which nobody trains.
- This library trains with `wf.marginalise` and the recipe of the same name. Where a library leaves training to its
  users, a plain PyTorch loop trains.
- torch-uncertainty trains all members in one loop, on the same batches, and takes the mean of their scales; its network
  has dropout before the ReLU. lightning-uq-box starts SWAG from a trained network, and goes on by SGD.
- bde samples from each network by Langevin dynamics, with the settings of its documentation; beside it stands this
  library's multiSWAG, which is another method of the same kind. fortuna has a second network for the variance.
- CatBoost, LightGBM and NGBoost stop early on 15% of the training rows; beside them stands `wf.fit` with its defaults,
  which chooses its own networks. [Real tables](tables.md) has more of this comparison.
- Two things were needed for neighbours to run at all: fortuna gets JAX below 0.4.36, since its flax fails with later
  ones; and two operators of torchvision, which no table needs, are declared empty where its build does not match that
  of torch.
- laplace-torch, also within torch-uncertainty, predicts {BATCH_OF_PREDICTION} rows at a time: 10,000 at once needed
  more than 12 GB.
- Start-up is what imports and a first training and prediction of 80 rows take, networks for 4 epochs. Compiled code of
  earlier runs is cached where a library does that by itself, as this one does."""


def _ratios(compared: Sequence[Compared]) -> str:
    rows = []
    for neighbour, method in dict.fromkeys((each.neighbour, each.method) for each in compared):
        some = [each for each in compared if (each.neighbour, each.method) == (neighbour, method)]
        cells = []
        for cost in COSTS:
            of_cost = [each for each in some if each.measure == cost]
            middle = statistics.median(each.middle for each in of_cost)
            cells.append(
                f"{factor(middle)} ({factor(min(e.low for e in of_cost))} to {factor(max(e.high for e in of_cost))})"
            )
        rows.append((neighbour, method, *cells))
    return markdown_table(("", "method", *COSTS.values()), rows)


def _scored(compared: Sequence[Compared], table: str) -> str:
    rows: dict[tuple[str, str], list[str]] = {}
    for each in compared:
        if each.table == table and each.measure in SCORES:
            rows.setdefault((each.neighbour, each.method), []).extend([*each.values, each.error])
    columns = [column for name in SCORES.values() for column in (f"{name}, theirs", "ours", "±")]
    return markdown_table(("", "method", *columns), [(*who, *cells) for who, cells in rows.items()])


def _seconds(results: Sequence[Result], table: str) -> str:
    there = [each for each in results if each["table"] == table and "scores" in each]
    rows = []
    for who, method in sorted({(each["neighbour"], each["method"]) for each in there}, key=_method_first):
        some = [each for each in there if (each["neighbour"], each["method"]) == (who, method)]
        middle = {cost: statistics.median(each[cost] for each in some) for cost in COSTS}
        cells = (digits(middle["fit"]), digits(middle["predict"]), f"{middle['peak']:,.0f}", f"{middle['start']:.1f}")
        rows.append((method, "**this library**" if who == OURS else who, *cells))
    return markdown_table(("method", "library", *COSTS.values()), rows)


def _method_first(contender: tuple[str, str]) -> tuple[str, bool, str]:
    who, method = contender
    return method, who != OURS, who


def _losses(compared: Sequence[Compared]) -> str:
    lost = [each for each in compared if each.verdict == "lost"]
    rows = [(each.neighbour, each.method, each.table, MEASURES[each.measure], str(each)) for each in lost]
    if not rows:
        return "Nowhere."
    return markdown_table(("", "method", "table", "measure", "theirs / ours, or ours - theirs"), rows)


def _missing(results: Sequence[Result], environments: Mapping[str, Environment]) -> Iterable[str]:
    for name, each in environments.items():
        if each.error:
            yield f"- {name} could not be installed: {each.error}"
        if each.other_torch:
            yield f"- {name} needs another version of torch than this project's: {each.other_torch}"
    failures = {(each["neighbour"], each["method"], each["error"]) for each in results if "error" in each}
    for neighbour, method, error in sorted(failures):
        yield f"- {neighbour}, {method}: {' '.join(error.split())[:300]}"
    yield "- deephyper searches hyperparameters, and its users train: it has none of these methods."
    yield "- Laplace of lightning-uq-box is a test run of Lightning around laplace-torch, which is compared itself."


def _numbers(each: Compared) -> dict[str, Any]:
    numbers = {name: float(f"{getattr(each, name):.6g}") for name in ("theirs", "ours", "middle", "low", "high")}
    words = {name: getattr(each, name) for name in ("neighbour", "method", "table", "measure", "verdict")}
    return words | numbers
