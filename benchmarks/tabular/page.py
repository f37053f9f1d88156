"""Results -> a page in Markdown, and the same numbers as JSON."""

from __future__ import annotations

import math
import platform
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

from setting import machine
from tabular.comparing import CLASS_SCORES, QUANTITY_SCORES, Comparison, Record, Result, record
from tabular.sets import FOLDS, Problem, read

CONTENDERS = {
    "now": "this library, `wf.fit`",
    "before": "`wf.fit` of an older version",
    "estimator": "this library, estimators",
    "catboost": "CatBoost",
    "lightgbm": "LightGBM",
    "ngboost": "NGBoost",
    "gp": "Gaussian process",
    "ensemble": "5-network deep ensemble",
}
IN_PEERS_VENV = ("catboost", "lightgbm", "ngboost", "gp")
RIVALS = ("catboost", "lightgbm", "ngboost", "gp", "ensemble")
OURS = ("now", "before", "estimator")
NAMES = {"nll": "NLL", "crps": "CRPS", "brier": "Brier score"}
COVERAGE, WORST_FIFTH = (0.93, 0.97), 0.88

Records = dict[str, dict[str, Record]]  # table -> contender
INTRODUCTION = """\
# Real tables, side by side

Written by `benchmarks/tables.py`.

- Quantities, also counts, are scored by the NLL of a density in the target's units, by CRPS, and by their 95% interval.
  Classes are scored by NLL, Brier score (added up over the classes) and AUC.
- This library runs with its defaults. Its NLL and CRPS are those that `model.score` prints. Its distribution is not a
  Gaussian where left-out rows show another shape, and the rivals' are: on skewed targets, part of its lead is that.
  Where values repeat (counts, zeros: azpro, doctor_visits, rwm5yr, med_exp, wine), densities reward narrow peaks at
  them, so that the NLL says too much: look at the CRPS there.
- The estimators for scikit-learn fit the same model: with the same seed, they predict what `wf.fit` predicts
  (tests/test_estimators.py). A run may leave them out (`--contenders`).
- CatBoost (`RMSEWithUncertainty`), NGBoost (`Normal`), the Gaussian process and the ensemble predict a Gaussian.
  CatBoost's mean is that of a model of the mean (`RMSE`) where validation rows prefer it.
  LightGBM has the interval of quantile models at 2.5% and 97.5%. Its Gaussian, for NLL and CRPS, is around a model of
  the mean; the standard deviation is that of the residuals, or proportional to the interval's width, as validation rows
  prefer.
- Boosted trees stop early on 15% of the training rows, with up to 2,000 trees at rate 0.03; the ensemble on 10%.
  CatBoost and LightGBM take text as categories. The others take one-hot columns, medians for gaps
  and columns that mark gaps.
- The Gaussian process fits its kernel on 500 rows and is conditioned on up to 3,000. It takes classes only up to 4,000
  rows times classes.
- Folds are by group where the table has one. A difference is the mean over rows of the difference of their scores,
  averaged over repeats; ± is its standard error over rows, or over groups. First: no rival is better. Level: the best
  rival is better by at most one standard error. Behind: by more.
- The worst fifth is that of the rows, by predicted mean, with the least coverage. On a small table it is low by chance.
"""


def written(results: Sequence[Result], tables: Iterable[str], data: Path, most_rows: int) -> tuple[str, dict[str, Any]]:
    """The page, and its numbers."""
    tables = list(tables)
    results = [each for name in tables for each in _finished(results, name)]
    problems: dict[str, Problem] = {}
    records: Records = {}
    for name in tables:
        of_table = [each for each in results if each["table"] == name and "scores" in each]
        if not of_table:
            continue
        problem = problems[name] = read(name, data, most_rows)
        records[name] = {
            contender: record(some, problem.y, problem.groups)
            for contender in CONTENDERS
            if (some := [each for each in of_table if each["contender"] == contender])
        }
    quantities = [name for name in records if not problems[name].labels]
    classes = [name for name in records if problems[name].labels]
    sections = [
        INTRODUCTION + "\n".join(_setting(results, most_rows)),
        "## In short",
        *_short(records, quantities, classes),
    ]
    for title, names, scores in (("Quantities", quantities, QUANTITY_SCORES), ("Classes", classes, CLASS_SCORES)):
        for score in scores:
            sections += [f"## {title}: {NAMES[score]}", _scores(records, names, score)]
    sections += [
        "## Coverage of the 95% interval, in percent: all rows (± standard error), worst fifth",
        _by_contender(records, quantities, _coverage),
        "## Mean width of the 95% interval",
        _by_contender(records, quantities, lambda each: digits(each.mean("width"))),
        "## AUC",
        _by_contender(
            records, [name for name in classes if len(problems[name].labels) == 2], lambda each: f"{each.auc():.3f}"
        ),
        "## CPU seconds of one fold: fit, predict",
        _by_contender(
            records, [*quantities, *classes], lambda each: f"{each.seconds('fit'):.1f}, {each.seconds('predict'):.2f}"
        ),
        *_claims(records),
        "## Tables",
        markdown_table(
            ("table", "rows", "columns", "target", "group"), [_described(problems[name]) for name in records]
        ),
    ]
    if missing := sorted({_missing(each) for each in results if "scores" not in each}):
        sections += ["## Not run", "\n".join(f"- {line}" for line in missing)]
    summary = {name: _numbers(of_table, bool(problems[name].labels)) for name, of_table in records.items()}
    return "\n\n".join(sections) + "\n", {"date": date.today().isoformat(), "rows": most_rows, "tables": summary}


def _finished(results: Sequence[Result], table: str) -> list[Result]:
    """The results of the folds of a table that all contenders have finished."""
    of_table = [each for each in results if each["table"] == table]
    folds = Counter((each["repeat"], each["fold"]) for each in of_table)
    contenders = len({each["contender"] for each in results})
    return [each for each in of_table if folds[each["repeat"], each["fold"]] == contenders]


# ---------------------------------------------------------------------- sections


def _setting(results: Sequence[Result], most_rows: int) -> list[str]:
    repeats, folds = (len({each[name] for each in results}) for name in ("repeat", "fold"))
    packages = sorted({each["package"] for each in results if each["package"]})
    ours = [f"{name} {version(name)}" for name in ("torch", "numpy", "scikit-learn")]
    run = f"{repeats} repeat{'s' * (repeats > 1)} of {FOLDS} folds"
    run += (
        f", of which {folds} were run" * (folds < FOLDS) + f"; at most {most_rows:,} rows of a table, drawn at random"
    )
    return [
        f"- {date.today().isoformat()}, {machine()}, one thread for each contender",
        f"- Python {platform.python_version()}, {', '.join(ours)}; {', '.join(packages)}",
        f"- {run}",
    ]


def _best_rival(of_table: dict[str, Record], score: str) -> str | None:
    rivals = [name for name in RIVALS if name in of_table]
    return min(rivals, key=lambda name: of_table[name].mean(score)) if rivals else None


def _compared(of_table: dict[str, Record], who: str, score: str) -> Comparison | None:
    rival = _best_rival(of_table, score)
    return None if rival is None or who not in of_table else of_table[who].against(of_table[rival], score)


def _short(records: Records, quantities: Sequence[str], classes: Sequence[str]) -> list[str]:
    rows = []
    for who in OURS:
        for title, names, scores in (("quantities", quantities, QUANTITY_SCORES), ("classes", classes, CLASS_SCORES)):
            for score in scores:
                compared = [each for name in names if (each := _compared(records[name], who, score)) is not None]
                if compared:
                    counts = Counter(each.verdict for each in compared)
                    cells = [str(counts[verdict]) for verdict in ("first", "level", "behind")]
                    good = counts["first"] + counts["level"]
                    rows.append((CONTENDERS[who], f"{title}, {NAMES[score]}", *cells, f"{good} of {len(compared)}"))
    verdicts = markdown_table(("", "score", "first", "level", "behind", "first or level"), rows)
    rows = []
    for who in CONTENDERS:
        there = [records[name][who] for name in quantities if who in records[name]]
        if there:
            good = sum(COVERAGE[0] <= each.mean("covered") <= COVERAGE[1] for each in there)
            even = sum(each.worst_fifth() >= WORST_FIFTH for each in there)
            rows.append((CONTENDERS[who], f"{good} of {len(there)}", f"{even} of {len(there)}"))
    coverage = markdown_table(("", "coverage from 93% to 97%", "no fifth below 88%"), rows)
    lines = [line for name in records for line in _losses(name, records[name])]
    return [verdicts, coverage, "Where this library (`wf.fit`) is behind:", "\n".join(lines) or "- nowhere"]


def _losses(name: str, of_table: dict[str, Record]) -> list[str]:
    lines = []
    for score in [score for score in NAMES if all(score in each.by_row for each in of_table.values())]:
        compared = _compared(of_table, "now", score)
        if compared is not None and compared.verdict == "behind":
            rival = str(_best_rival(of_table, score))
            share = compared.difference / abs(of_table[rival].mean(score) or 1.0)
            size = f"{_difference(compared)}" + f" ({share:.1%})" * (score != "nll")
            lines.append(f"- {name}, {NAMES[score]}: {size} against {CONTENDERS[rival]}")
    return lines


def _scores(records: Records, names: Sequence[str], score: str) -> str:
    there = [who for who in CONTENDERS if any(who in records[name] for name in names)]
    rows = []
    for name in names:
        of_table = records[name]
        means = {who: of_table[who].mean(score) for who in there if who in of_table}
        best = min(means.values())
        cells = [
            (f"**{digits(means[who])}**" if means[who] == best else digits(means[who])) if who in means else ""
            for who in there
        ]
        compared = _compared(of_table, "now", score)
        against = "" if compared is None else f"{_difference(compared)} {compared.verdict}"
        rows.append((name, *cells, against))
    return markdown_table(("", *(CONTENDERS[who] for who in there), "`wf.fit` - best rival"), rows)


def _by_contender(records: Records, names: Sequence[str], cell: Callable[[Record], str]) -> str:
    there = [who for who in CONTENDERS if any(who in records[name] for name in names)]
    rows = [(name, *(cell(records[name][who]) if who in records[name] else "" for who in there)) for name in names]
    return markdown_table(("", *(CONTENDERS[who] for who in there)), rows)


def _claims(records: Records) -> list[str]:
    """Compare what `wf.fit` says of itself with the test rows; no section where no result has it."""
    rows, zs, gaps = [], [], []
    for name, of_table in records.items():
        claimed = [claim for claim in of_table["now"].claims() if math.isfinite(claim.z)] if "now" in of_table else []
        if claimed:
            of_name = [sum(claim.gap for claim in claimed) / len(claimed), sum(c.z for c in claimed) / len(claimed)]
            rows.append((name, f"{of_name[0]:+.3f}", f"{of_name[1]:+.2f}"))
            zs += [claim.z for claim in claimed]
            gaps.append(of_name[0])
    if not rows:
        return []
    mean = sum(zs) / len(zs)
    spread = math.sqrt(sum((z - mean) ** 2 for z in zs) / max(1, len(zs) - 1))
    words = (
        "The NLL of the test rows minus that which `fit` printed for the training rows, each by networks that did not "
        "see it: above 0, `fit` was too optimistic. z is this difference in standard errors of both, the mean over "
        f"the folds. Over all {len(zs)} folds, z has mean {mean:+.2f} and standard deviation {spread:.2f}; the median "
        f"difference of a table is {sorted(gaps)[len(gaps) // 2]:+.3f}."
    )
    return ["## How far `fit` may be believed about itself", words, markdown_table(("", "difference", "z"), rows)]


def _coverage(each: Record) -> str:
    return f"{100 * each.mean('covered'):.1f} ± {100 * each.error('covered'):.1f}, {100 * each.worst_fifth():.0f}"


def _described(problem: Problem) -> tuple[str, ...]:
    about = problem.about
    what = f"{problem.target}, {len(problem.labels)} classes" if problem.labels else problem.target
    return about.name, f"{len(problem.y):,}", str(problem.inputs.shape[1]), what, about.group or ""


def _missing(result: Result) -> str:
    why = result.get("skipped") or result["error"]
    return f"{result['table']}, {CONTENDERS[result['contender']]}: {why}"


def _numbers(of_table: dict[str, Record], is_classes: bool) -> dict[str, Any]:
    """The scores of every contender on a table, and this library's differences to it."""
    names = CLASS_SCORES if is_classes else (*QUANTITY_SCORES, "covered", "width")
    summary = {}
    for who, each in of_table.items():
        scores: dict[str, Any] = {name: _rounded(each.mean(name)) for name in names}
        scores |= {"auc": each.auc()} if is_classes else {"worst_fifth": _rounded(each.worst_fifth())}
        scores |= {
            "fit_seconds": each.seconds("fit"),
            "predict_seconds": each.seconds("predict"),
            "folds": len(each.parts),
        }
        if who != "now" and "now" in of_table:
            for name in CLASS_SCORES if is_classes else QUANTITY_SCORES:
                compared = of_table["now"].against(each, name)
                scores[f"now_minus_this_{name}"] = [_rounded(compared.difference), _rounded(compared.error)]
        summary[who] = scores
    return summary


# ---------------------------------------------------------------------- words


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---", *("---:" for _ in columns[1:])], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def digits(value: float) -> str:
    """
    >>> digits(0.012345), digits(1.5), digits(1234.5)
    ('0.01235', '1.500', '1,234')
    """
    if not math.isfinite(value):
        return str(value)
    size = math.floor(math.log10(abs(value))) if value else 0
    return f"{value:,.{max(0, 3 - size)}f}"


def _difference(compared: Comparison) -> str:
    size = compared.error if compared.error > 0 and math.isfinite(compared.error) else abs(compared.difference)
    digits = max(0, 1 - math.floor(math.log10(size))) if size else 3
    return f"{compared.difference:+,.{digits}f} ± {compared.error:,.{digits}f}"


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")
