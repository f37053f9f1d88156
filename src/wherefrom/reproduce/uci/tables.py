"""Our scores as tables like the paper's, beside the paper's, and in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from wherefrom.reproduce.uci.printed import Printed, tables
from wherefrom.reproduce.uci.results import Results, mean_and_std
from wherefrom.reproduce.uci.setups import ALL_THREE, Combination
from wherefrom.reproduce.uci.study import SAMPLED_M
from wherefrom.table import Table

SYMBOLS = {"M": "M", "t": "t", "theta0": "θ₀", "alpha": "α"}
LETTERS = (
    "Marginalised: M the sub-networks that dropout leaves, t the moment of stopping (SWAG), θ₀ the initial weights "
    "(five networks, each with its own batch order), α the learning rate."
)
LEGEND = (
    "Mean ± standard deviation over folds; the best of a column is bold and italic, "
    "those within its deviation are bold."
)

Moments = dict[tuple[str, str], tuple[float, float]]  # (combination, set) -> mean and deviation over the folds


def markdown_page(
    results: Results,
    table: str,
    combinations: Sequence[Combination],
    caveats: Sequence[str] = (),
    sampled: Results | None = None,
) -> str:
    """Show every metric that the paper prints: ours, then ours beside the printed figures.

    `sampled` are the same posteriors' scores by Monte Carlo, to set a one-shot prediction's beside.
    """
    parts = [f"# UCI, {results.name}", *(f"**{caveat}**" for caveat in caveats), made_by([results]), LETTERS]
    for metric in ("nll", "rmse"):
        parts += [f"## {metric.upper()}", LEGEND, means_table(results, metric, combinations)]
        if sampled and (common := sorted({*results.sets} & {*sampled.sets})):
            parts += ["One-shot / Monte Carlo:", _two(results, sampled, metric, combinations, common)]
        if metric == "nll" and any(one.combination == SAMPLED_M for one in results.scores):
            parts.append(_sampled_dropout(results))
        if printed := tables().get((table, metric)):
            parts += [
                "Ours / printed (the distance in printed standard deviations):",
                _beside(results, metric, combinations, printed),
                "\n".join(f"- {sentence}" for sentence in summary(results, metric, printed)),
            ]
    return "\n\n".join(parts) + "\n"


def made_by(several: Sequence[Results]) -> str:
    """Return the origin of the numbers, and their cost."""
    records = [record for results in several for record in results.records.values()]
    commands, versions = ([*dict.fromkeys(record[what] for record in records)] for what in ("command", "versions"))
    return "\n".join(
        [
            *(f"    {command}" for command in commands),
            "",
            *(f"- {cost(results)}" for results in several),
            f"- {'; '.join(versions)}",
        ]
    )


def cost(results: Results) -> str:
    """Say what the sets took together.

    Sums over the finished sets, wherever they ran; the memory is the largest that the process held.
    """
    records = results.records.values()
    engines = ", ".join(sorted({record["engine"] for record in records}))
    trained, whole, wall = (
        sum(record[what] for record in records) for what in ("training_cpu_seconds", "cpu_seconds", "wall_seconds")
    )
    memory = max(record["peak_memory_mb"] for record in records)
    return (
        f"{results.name}: {len(results.records)} set{'s' * (len(results.records) != 1)}, engine {engines}, "
        f"{whole:.0f} s of CPU time ({trained:.0f} s of it training), {wall:.0f} s of wall time, "
        f"{memory:.0f} MB of memory at most."
    )


def moments(results: Results, metric: str) -> Moments:
    return {place: mean_and_std(values) for place, values in results.by_fold(metric).items()}


def summary(results: Results, metric: str, printed: Mapping[tuple[Combination, str], Printed]) -> list[str]:
    """Say how many cells agree, how far the others are off, and whether the order is the paper's."""
    ours = moments(results, metric)
    there = {place: cell for place, cell in printed.items() if ("+".join(place[0]), place[1]) in ours}
    means = {(names, name): ours["+".join(names), name][0] for names, name in there}
    known = {place: distance for place, cell in there.items() if (distance := cell.distance(means[place])) is not None}
    if not known:
        return []
    within = {limit: sum(abs(distance) <= limit for distance in known.values()) for limit in (1, 2)}
    strict = [error for place in known if (error := _in_errors(results, metric, *place, there[place])) is not None]
    sentences = [
        f"{within[1]} of {len(known)} cells lie within one printed standard deviation, {within[2]} within two.",
        "In standard errors of the difference of the two means over folds, which is stricter, "
        f"{sum(abs(z) > 2 for z in strict)} of {len(strict)} lie beyond two.",
    ]
    sentences += _best(means, {place: cell.mean for place, cell in there.items()}, results.sets)
    flat = [place for place, cell in there.items() if cell.std == 0]
    if flat:
        same = sum(there[place].is_rounded(means[place]) for place in flat)
        sentences.append(f"{len(flat)} cells are printed with a deviation of 0.000; {same} of ours round to the same.")
    far = sorted((place for place in known if not abs(known[place]) <= 2), key=lambda place: -abs(known[place]))
    if far:
        said = (f"{name} {title(names)} ({known[names, name]:+.1f})" for names, name in far)
        sentences.append(f"Further off: {', '.join(said)}.".replace("-", "−"))
    if metric == "nll" and any(names == ALL_THREE for names, _ in there):
        sentences += _order(ours, {place: cell.mean for place, cell in there.items()}, results.sets)
    return sentences


def _in_errors(results: Results, metric: str, names: Combination, name: str, cell: Printed) -> float | None:
    """Return the distance from a printed cell in standard errors, where both have a scatter over folds."""
    folds = results.by_fold(metric)["+".join(names), name]
    mean, deviation = mean_and_std(folds)
    if cell.std is None or len(folds) < 2:
        return None
    error = math.sqrt((deviation**2 + cell.std**2) / len(folds))
    return (mean - cell.mean) / error if error else None


def _best(
    means: Mapping[tuple[Combination, str], float],
    printed: Mapping[tuple[Combination, str], float],
    sets: Sequence[str],
) -> list[str]:
    """Say on how many sets the same combination is the best as in the paper, where all of its combinations are."""

    def best(of: Mapping[tuple[Combination, str], float], name: str) -> Combination:
        return min((place for place in of if place[1] == name), key=lambda place: of[place])[0]

    differing = [name for name in sets if best(means, name) != best(printed, name)]
    but = f" (not on {', '.join(differing)})" if differing else ""
    return [f"The best combination is the same on {len(sets) - len(differing)} of {len(sets)} sets{but}."]


def _order(ours: Moments, printed: Mapping[tuple[Combination, str], float], sets: Sequence[str]) -> list[str]:
    """Say where all three beat each single one, as the paper has it."""
    singles = [(variable,) for variable in ALL_THREE]
    claimed = [name for name in sets if all(printed[ALL_THREE, name] < printed[one, name] for one in singles)]
    broken = [
        name
        for name in claimed
        if not all(ours["+".join(ALL_THREE), name][0] < ours["+".join(one), name][0] for one in singles)
    ]
    said = "; it does not hold for " + ", ".join(broken) if broken else ""
    return [
        f"Where the paper has all three marginalised beat each single one ({len(claimed)} of {len(sets)} sets), "
        f"they do so here on {len(claimed) - len(broken)}{said}."
    ] * bool(claimed)


def console_table(results: Results, metric: str, table: str, combinations: Sequence[Combination]) -> Table:
    """Our means, with the distance from the printed ones, for a terminal."""
    ours, printed = moments(results, metric), tables().get((table, metric), {})

    def cell(names: Combination, name: str) -> str:
        mean, _ = ours["+".join(names), name]
        there = printed.get((names, name))
        distance = there.distance(mean) if there else None
        return number(mean, metric, name) + ("" if distance is None else f" ({_signed(distance)})")

    rows = [(name, *(cell(names, name) for names in combinations)) for name in results.sets]
    return Table((metric.upper(), *(title(names) for names in combinations)), rows)


def means_table(results: Results, metric: str, combinations: Sequence[Combination]) -> str:
    """Mean ± standard deviation over folds, marked as `LEGEND` says."""
    ours = moments(results, metric)
    best = {
        name: min((ours["+".join(names), name] for names in combinations), key=lambda one: (math.isnan(one[0]), one[0]))
        for name in results.sets
    }

    def cell(names: Combination, name: str) -> str:
        mean, std = ours["+".join(names), name]
        text = f"{number(mean, metric, name)} ± {number(std, metric, name)}"
        if mean == best[name][0]:
            return f"***{text}***"
        return f"**{text}**" if mean <= sum(best[name]) else text

    return grid(combinations, results.sets, cell)


def _beside(
    results: Results,
    metric: str,
    combinations: Sequence[Combination],
    printed: Mapping[tuple[Combination, str], Printed],
) -> str:
    ours = moments(results, metric)

    def cell(names: Combination, name: str) -> str:
        mean, there = ours["+".join(names), name][0], printed[names, name]
        if there.is_vague:
            return f"{number(mean, metric, name)} / ~{there.mean:.0e}".replace("e+0", "e")
        distance = there.distance(mean)
        text = f"{number(mean, metric, name)} / {there.mean:.3f}".replace("-", "−")
        return text if distance is None else f"{text} ({_signed(distance)})"

    return grid(combinations, results.sets, cell)


def _two(one: Results, other: Results, metric: str, combinations: Sequence[Combination], sets: Sequence[str]) -> str:
    first, second = moments(one, metric), moments(other, metric)

    def cell(names: Combination, name: str) -> str:
        return " / ".join(number(means["+".join(names), name][0], metric, name) for means in (first, second))

    return grid(combinations, sets, cell)


def _sampled_dropout(results: Results) -> str:
    """M alone from samples, which can all agree at a row, beside its exact moments."""
    ours = moments(results, "nll")
    empty = {place: math.fsum(values) for place, values in results.by_fold("zero-variance rows").items()}
    lead = (
        "M alone is scored by its exact moments; beside them what 100 samples give. Rows at which all sub-networks "
        "agree (all units are inactive), or all those that were sampled, have a variance of zero and no density. They "
        "are counted, and the NLL is that of the other rows."
    )
    rows = []
    for name in results.sets:
        pairs = ((number(ours[label, name][0], "nll", name), f"{empty[label, name]:.0f}") for label in ("M", SAMPLED_M))
        rows.append((name, *(cell for pair in pairs for cell in pair)))
    zero = "rows of variance zero"
    return f"{lead}\n\n{Table(('M alone', 'exact', zero, 'sampled', zero), rows).markdown()}"


def grid(combinations: Sequence[Combination], sets: Sequence[str], cell: Callable[[Combination, str], str]) -> str:
    """A line for each combination, a column for each set."""
    rows = [(title(names), *(cell(names, name) for name in sets)) for names in combinations]
    return Table(("", *sets), rows).markdown()


def title(names: Combination) -> str:
    """
    >>> title(("M", "t", "theta0"))
    'M + t + θ₀'
    """
    return " + ".join(SYMBOLS[name] for name in names)


def number(value: float, metric: str, name: str) -> str:
    """Return as many digits as the paper prints; two more for naval's RMSE and CRPS, whose unit is large for them."""
    if math.isnan(value):
        return "–"
    if abs(value) >= 1e6:
        return f"{value:.1e}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    digits = 5 if name == "naval" and metric in ("rmse", "crps") else 3
    return f"{value:.{digits}f}".replace("-", "−")


def _signed(distance: float) -> str:
    """One decimal with its sign, and a plain zero."""
    text = f"{distance:+.1f}".replace("-", "−")
    return "0.0" if text in ("+0.0", "−0.0") else text
