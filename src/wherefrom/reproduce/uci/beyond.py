"""Results that no printed table has: sources, noise, calibration, and whether differences are more than chance."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from wherefrom.reproduce.uci import recommended
from wherefrom.reproduce.uci.printed import published
from wherefrom.reproduce.uci.results import Results, mean_and_std
from wherefrom.reproduce.uci.setups import Combination
from wherefrom.reproduce.uci.study import LEVEL
from wherefrom.reproduce.uci.tables import LEGEND, LETTERS, grid, made_by, means_table, moments, number, title
from wherefrom.table import Table

KINDS = {"none": "no noise (the paper's)", "fit": 'noise="fit"', "predicted": 'noise="predicted"'}
_PUBLISHED = ("deep ensemble (2017)", "MC-dropout, tuned", "best network", "best of all")


def page(by_noise: Mapping[str, Results], best: Results, combinations: Sequence[Combination]) -> str:
    """All of it as Markdown: `by_noise` has the same set-up without noise, with a fitted and with a predicted one."""
    whole = max(combinations, key=len)
    parts = [
        f"# UCI, {by_noise['none'].name}: beyond the paper's tables",
        made_by([*by_noise.values(), best]),
        LETTERS,
    ]
    parts += [
        "## Against the best published NLLs",
        f"NLL of the mixture, mean ± standard error over folds; ours with noise for {title(whole)}. Bold: better than "
        "the deep ensemble; italic too: better than the best network. The folds share most of their rows, so the "
        "standard errors are too small, here and below.",
        against_published(by_noise, best, whole),
        "## The recommended recipe",
        "Mean ± standard deviation over folds (NLL and coverage of the mixture, CRPS of its moments), and the mean "
        "weight of each candidate: "
        + "; ".join(f"{name}: {candidate}" for name, candidate in recommended.CANDIDATES.items())
        + ".",
        recommended_scores(best),
    ]
    if any(metric.startswith("share of ") for metric in by_noise["none"].metrics()):
        parts += [
            "## Where the variance comes from",
            f"Each source's share of the mean variance over a fold's test rows, {title(whole)} marginalised, in "
            "percent (mean over folds). Each member's batch order is drawn with its θ₀.",
            *(f"**{KINDS[kind]}**\n\n{shares(results, whole)}" for kind, results in by_noise.items()),
        ]
    for kind, results in by_noise.items():
        parts.append(f"## {KINDS[kind][0].upper()}{KINDS[kind][1:]}")
        nll, coverage = ("nll", "coverage") if kind == "none" else ("mixture nll", "mixture coverage")
        of = "" if kind == "none" else ", of the mixture"
        if kind != "none":
            parts += [f"NLL{of}. {LEGEND}", means_table(results, nll, combinations)]
        others = [names for names in combinations if names != whole]
        parts += [
            f"Coverage of {LEVEL:.0%} intervals{of}, in percent:",
            grid(combinations, results.sets, _percent(results, coverage)),
            f"CRPS of the Gaussian with the same moments, in each set's own unit. {LEGEND}",
            means_table(results, "crps", combinations),
            f"NLL{of}, of {title(whole)} minus that of each other combination, fold by fold: mean ± standard error. "
            "Below zero, it is better with all of them; bold where the difference, either way, is more than two "
            "standard errors.",
            grid(others, results.sets, _paired(results, nll, whole)),
        ]
    return "\n\n".join(parts) + "\n"


def against_published(by_noise: Mapping[str, Results], best: Results, whole: Combination) -> str:
    """One line for each set that all have: published figures, then ours."""
    columns = _columns(by_noise, best, whole)
    rows = []
    for name in _common(columns):
        known = published()[name]
        cells = [known[method].replace("-", "−") for method in _PUBLISHED]
        for results, combination in columns.values():
            mean, error = mean_and_error(results.by_fold("mixture nll")[combination, name])
            marks = "***" if mean < float(known["best network"]) else "**" if mean < float(known[_PUBLISHED[0]]) else ""
            cells.append(f"{marks}{number(mean, 'nll', name)} ± {number(error, 'nll', name)}{marks}")
        rows.append((name, *cells))
    return Table(("NLL", *_PUBLISHED, *columns), rows).markdown()


def console_table(by_noise: Mapping[str, Results], best: Results, whole: Combination) -> Table:
    """The NLL of the mixture beside the published deep ensemble's."""
    columns = _columns(by_noise, best, whole)
    rows = []
    for name in _common(columns):
        ours = [moments(results, "mixture nll")[label, name][0] for results, label in columns.values()]
        rows.append((name, *(number(one, "nll", name) for one in ours), published()[name][_PUBLISHED[0]]))
    return Table(("NLL", *columns, _PUBLISHED[0]), rows)


def _columns(by_noise: Mapping[str, Results], best: Results, whole: Combination) -> dict[str, tuple[Results, str]]:
    """Ours with noise: heading -> results, and the combination in them."""
    noisy = {KINDS[kind]: (results, "+".join(whole)) for kind, results in by_noise.items() if kind != "none"}
    return noisy | {recommended.NAME: (best, recommended.NAME)}


def _common(columns: Mapping[str, tuple[Results, str]]) -> list[str]:
    """The sets that all of them have: files of one folder can hold more than was asked for this time."""
    return sorted(set.intersection(*(set(results.sets) for results, _ in columns.values())))


def recommended_scores(best: Results) -> str:
    """Table of the mixture's scores, and of what it is made of."""
    readings = [metric for metric in best.metrics() if metric.startswith("weight of ")]
    used = {reading.split()[2] for reading in readings}
    candidates = [name for name in recommended.CANDIDATES if name in used]
    rows = []
    for name in best.sets:
        scores = {metric: moments(best, metric)[recommended.NAME, name] for metric in ("mixture nll", "rmse", "crps")}
        cells = [" ± ".join(number(one, metric, name) for one in both) for metric, both in scores.items()]
        coverage, _ = moments(best, "mixture coverage")[recommended.NAME, name]
        weights = dict.fromkeys(candidates, 0.0)
        for metric in readings:
            values = best.by_fold(metric).get((recommended.NAME, name), [])
            weights[metric.split()[2]] += sum(values) / best.records[name]["folds"]
        rows.append((name, *cells, f"{100 * coverage:.1f}", *(f"{100 * weight:.0f}" for weight in weights.values())))
    heads = ("", "NLL", "RMSE", "CRPS", f"coverage of {LEVEL:.0%}", *(f"{name}, %" for name in candidates))
    return Table(heads, rows).markdown()


def shares(results: Results, whole: Combination) -> str:
    """Sources by set, in percent."""
    metrics = [metric for metric in results.metrics() if metric.startswith("share of ")]
    names = [metric.removeprefix("share of ").replace("theta0", "θ₀").replace("alpha", "α") for metric in metrics]
    rows = [
        (name, *(f"{100 * moments(results, metric)['+'.join(whole), name][0]:.1f}" for metric in metrics))
        for name in results.sets
    ]
    return Table(("", *names), rows).markdown()


def _paired(results: Results, metric: str, whole: Combination) -> Callable[[Combination, str], str]:
    values = results.by_fold(metric)

    def cell(names: Combination, name: str) -> str:
        mean, error = paired_difference(values["+".join(whole), name], values["+".join(names), name])
        text = f"{number(mean, metric, name)} ± {number(error, metric, name)}"
        return f"**{text}**" if abs(mean) > 2 * error else text

    return cell


def paired_difference(ours: Sequence[float], others: Sequence[float]) -> tuple[float, float]:
    """Mean of ours minus the others', fold by fold, and its standard error.

    >>> paired_difference([1.0, 2.0, 3.0], [2.0, 2.0, 5.0])
    (-1.0, 0.5773502691896258)
    """
    return mean_and_error([a - b for a, b in zip(ours, others, strict=True)])


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    mean, std = mean_and_std(list(values))
    return mean, std / math.sqrt(len(values))


def _percent(results: Results, metric: str) -> Callable[[Combination, str], str]:
    ours = moments(results, metric)
    return lambda names, name: f"{100 * ours['+'.join(names), name][0]:.1f}"
