"""What none of the printed tables has: sources, noise, calibration, and whether differences are more than chance."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from wherefrom.reproduce.uci import recommended
from wherefrom.reproduce.uci.printed import published
from wherefrom.reproduce.uci.results import Results, mean_and_std
from wherefrom.reproduce.uci.setups import ALL_THREE, Combination
from wherefrom.reproduce.uci.study import LEVEL
from wherefrom.reproduce.uci.tables import grid, made_by, means_table, moments, number, title
from wherefrom.table import Table

WHOLE = "+".join(ALL_THREE)
KINDS = {"none": "no noise (the paper's)", "fit": 'noise="fit"', "predicted": 'noise="predicted"'}
_PUBLISHED = ("deep ensemble (2017)", "MC-dropout, tuned", "best network", "best of all")


def page(heading: str, by_noise: Mapping[str, Results], best: Results, combinations: Sequence[Combination]) -> str:
    """All of it as Markdown: `by_noise` has the same set-up without noise, with a fitted and with a predicted one."""
    parts = [f"# {heading}"]
    parts += [made_by([*by_noise.values(), best])]
    parts += ["## Against the best published NLLs", against_published(by_noise, best)]
    parts += ["## The recommended recipe", recommended_scores(best)]
    parts += [
        "## Where the variance comes from",
        "Each source's share of the mean variance over a fold's test rows, all three marginalised, in percent (mean "
        "over folds). Each member's batch order is drawn with its θ₀.",
    ]
    parts += [f"**{KINDS[kind]}**\n\n{shares(results)}" for kind, results in by_noise.items()]
    for kind, results in by_noise.items():
        parts.append(f"## {KINDS[kind][0].upper()}{KINDS[kind][1:]}")
        nll = _nll(results)
        if kind != "none":
            parts += ["NLL of the mixture:", means_table(results, nll, combinations)]
        parts += [
            f"Coverage of {LEVEL:.0%} intervals, in percent:",
            grid(combinations, results.sets, _percent(results)),
            "CRPS, in each set's own unit:",
            means_table(results, "crps", combinations),
            f"NLL of {title(ALL_THREE)} minus that of each other combination, fold by fold: mean ± standard error. "
            "Below zero, all three are better; bold, by more than two standard errors.",
            paired_table(results, nll, [names for names in combinations if names != ALL_THREE]),
        ]
    return "\n\n".join(parts) + "\n"


def against_published(by_noise: Mapping[str, Results], best: Results) -> str:
    """One line for each set: published figures, then ours (± standard error).

    Ours is bold where it beats the deep ensemble, in italics too where it beats the best network.
    """
    columns = {KINDS[kind]: (results, WHOLE) for kind, results in by_noise.items() if kind != "none"}
    columns[recommended.NAME] = (best, recommended.NAME)
    lines = [
        f"| NLL | {' | '.join(_PUBLISHED)} | {' | '.join(columns)} |",
        "|---" * (len(_PUBLISHED) + len(columns) + 1) + "|",
    ]
    for name in best.sets:
        known = published()[name]
        cells = [known[method].replace("-", "−") for method in _PUBLISHED]
        for results, combination in columns.values():
            mean, error = mean_and_error(results.by_fold("mixture nll")[combination, name])
            marks = "***" if mean < float(known["best network"]) else "**" if mean < float(known[_PUBLISHED[0]]) else ""
            cells.append(f"{marks}{number(mean, 'nll', name)} ± {number(error, 'nll', name)}{marks}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def recommended_scores(best: Results) -> str:
    """How the mixture scores, and what it is made of."""
    readings = [metric for metric in best.metrics() if metric.startswith("weight of ")]
    used = {reading.split()[2] for reading in readings}
    candidates = [name for name in recommended.CANDIDATES if name in used]
    lines = [
        f"| | NLL | RMSE | CRPS | coverage of {LEVEL:.0%} | {' | '.join(f'{name}, %' for name in candidates)} |",
        "|---" * (5 + len(candidates)) + "|",
    ]
    for name in best.sets:
        scores = {metric: moments(best, metric)[recommended.NAME, name] for metric in ("mixture nll", "rmse", "crps")}
        cells = ["{} ± {}".format(*(number(one, metric, name) for one in both)) for metric, both in scores.items()]
        coverage, _ = moments(best, "mixture coverage")[recommended.NAME, name]
        weights = dict.fromkeys(candidates, 0.0)
        for metric in readings:
            values = best.by_fold(metric).get((recommended.NAME, name), [])
            weights[metric.split()[2]] += sum(values) / best.records[name]["folds"]
        cells += [f"{100 * coverage:.1f}", *(f"{100 * weight:.0f}" for weight in weights.values())]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def console_table(by_noise: Mapping[str, Results], best: Results) -> Table:
    """The NLL of the mixture beside the published deep ensemble's."""
    columns = {f"noise {kind}": (results, WHOLE) for kind, results in by_noise.items() if kind != "none"}
    columns[recommended.NAME] = (best, recommended.NAME)
    rows = []
    for name in best.sets:
        ours = [moments(results, "mixture nll")[label, name][0] for results, label in columns.values()]
        rows.append((name, *(number(one, "nll", name) for one in ours), published()[name][_PUBLISHED[0]]))
    return Table(("NLL", *columns, _PUBLISHED[0]), rows)


def shares(results: Results) -> str:
    """Sources by set, in percent."""
    metrics = [metric for metric in results.metrics() if metric.startswith("share of ")]
    names = [metric.removeprefix("share of ").replace("theta0", "θ₀") for metric in metrics]
    lines = [f"| | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for name in results.sets:
        cells = [f"{100 * moments(results, metric)[WHOLE, name][0]:.1f}" for metric in metrics]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def paired_table(results: Results, metric: str, others: Sequence[Combination]) -> str:
    values = results.by_fold(metric)

    def cell(names: Combination, name: str) -> str:
        mean, error = paired_difference(values[WHOLE, name], values["+".join(names), name])
        text = f"{number(mean, metric, name)} ± {number(error, metric, name)}"
        return f"**{text}**" if abs(mean) > 2 * error else text

    return grid(others, results.sets, cell)


def paired_difference(ours: Sequence[float], others: Sequence[float]) -> tuple[float, float]:
    """Mean of ours minus the others', fold by fold, and its standard error.

    >>> paired_difference([1.0, 2.0, 3.0], [2.0, 2.0, 5.0])
    (-1.0, 0.5773502691896258)
    """
    return mean_and_error([a - b for a, b in zip(ours, others, strict=True)])


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    mean, std = mean_and_std(list(values))
    return mean, std / math.sqrt(len(values))


def _nll(results: Results) -> str:
    """The NLL that a set-up is judged by: of the mixture, where the mixture has a density."""
    return "mixture nll" if "mixture nll" in results.metrics() else "nll"


def _percent(results: Results) -> Callable[[Combination, str], str]:
    ours = moments(results, "coverage")
    return lambda names, name: f"{100 * ours['+'.join(names), name][0]:.1f}"
