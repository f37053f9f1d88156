"""The scores as a page: for each regime all members of every combination, ensembles of every size, other images."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from wherefrom.reproduce.cifar10.presets import COMBINATIONS, PLAIN, Combination, Regime
from wherefrom.reproduce.cifar10.scores import Scores
from wherefrom.reproduce.cifar10.shift import SEVERITIES
from wherefrom.reproduce.uci.tables import SYMBOLS
from wherefrom.table import Table

LETTERS = (
    "Marginalised: θ₀ the initial weights (with each network's own batch order), α the learning rates, M the "
    "sub-networks that dropout leaves, t the moment of stopping (SWAG)."
)
METRICS = {
    "nll": "NLL",
    "accuracy": "accuracy",
    "over-confidence": "over-confidence",
    "brier": "Brier",
    "ece": "ECE",
}
_SHIFTED = {"nll": "NLL", "ece": "ECE", "auroc": "AUROC"}


def title(names: Combination) -> str:
    """A combination as it is shown.

    >>> title(("M", "t", "theta0"))
    'θ₀ + M + t'
    """
    order = [name for name in ("theta0", "alpha", "M", "t") if name in names]
    return " + ".join(SYMBOLS[name] for name in order)


def regime_title(regime: Regime) -> str:
    """A regime in words.

    >>> regime_title(Regime("fitted", augment=False, dropout=0.1))
    'Fitted: images as they are, dropout 0.1'
    """
    images = "images shifted and mirrored at random" if regime.augment else "images as they are"
    return f"{regime.name.capitalize()}: {images}, dropout {regime.dropout:g}"


def page(found: Mapping[str, Scores], regimes: Sequence[Regime], summary: Mapping[str, Any]) -> str:
    """Everything that a reader may want to look up, in Markdown."""
    preset, images = summary["preset"], summary["images"]
    parts = [
        f"# CIFAR-10, {preset['name']}",
        "\n".join(f"    {line}" for line in [summary["command"]]),
        "\n".join([f"- {summary['versions']}", f"- {cost(summary)}", f"- {described(preset, images)}"]),
        LETTERS,
        "Δ is the difference from θ₀ alone, with the same networks on the same images. Its two standard errors follow: "
        "over images, and over networks (jackknife). Over-confidence is the mean confidence less the accuracy. Brier "
        "scores add up over the classes; the ECE has 15 bins.",
    ]
    for regime in regimes:
        parts += _regime_page(found[regime.name], regime, summary)
    return "\n\n".join(parts) + "\n"


def _regime_page(scores: Scores, regime: Regime, summary: Mapping[str, Any]) -> list[str]:
    parts = [
        f"## {regime_title(regime)}",
        training_loss(summary, regime),
        f"### All {scores.members} networks",
        main_table(scores).markdown(),
        "### By ensemble size",
        "The mean over all ensembles of that size that these networks make.",
    ]
    for metric in ("nll", "accuracy", "over-confidence"):
        parts += [f"#### {METRICS[metric]}", by_size(scores, metric).markdown()]
    for metric in ("nll", "accuracy"):
        parts += [f"#### Δ {METRICS[metric]}", by_size_difference(scores, metric).markdown()]
    parts += [
        "### Corrupted images",
        "The mean over Gaussian noise, blur, contrast and brightness at five severities (0: clean). AUROC: how well "
        "the entropy tells corrupted images from clean ones (0.5: not at all).",
    ]
    for metric, name in _SHIFTED.items():
        parts += [f"#### {name}", by_severity(scores, metric).markdown()]
    if scores.others:
        parts += [
            "### Images of other things",
            "AUROC: how well doubt tells them from CIFAR's test images, by the entropy, and by how much the answers "
            "disagree (mutual information).",
            other_things(scores).markdown(),
        ]
    return parts


def training_loss(summary: Mapping[str, Any], regime: Regime) -> str:
    """Say whether the networks had settled when SWAG began."""
    losses = summary["regimes"][regime.name]["training_loss"]["fixed"]
    return (
        f"Mean training loss {losses['start']:.3f} when SWAG starts, {losses['end']:.3f} at the end "
        "(of batches while training, dropout included)."
    )


def main_table(scores: Scores) -> Table:
    metrics = ("accuracy", "over-confidence", "brier", "ece")
    rows = [
        (
            title(names),
            scores.get(names, "nll").value,
            "" if names == PLAIN else str(scores.difference(names, "nll")),
            *(scores.get(names, metric).value for metric in metrics),
        )
        for names in COMBINATIONS
    ]
    return Table(("marginalised", "NLL", "Δ NLL", *(METRICS[metric] for metric in metrics)), rows)


def by_size(scores: Scores, metric: str) -> Table:
    sizes = range(1, scores.members + 1)
    return _table(sizes, lambda names, size: scores.get(names, metric, members=size).value)


def by_size_difference(scores: Scores, metric: str = "nll") -> Table:
    """Differences of all combinations from theta0 alone: one row for each ensemble size, since the cells are wide."""
    others = [names for names in COMBINATIONS if names != PLAIN]
    rows = [
        (str(size), *(str(scores.difference(names, metric, size)) for names in others))
        for size in range(1, scores.members + 1)
    ]
    return Table(("networks", *(f"Δ {METRICS[metric]}, {title(names)}" for names in others)), rows)


def by_severity(scores: Scores, metric: str) -> Table:
    return _table((0, *SEVERITIES), lambda names, severity: scores.at_severity(names, metric, severity))


def other_things(scores: Scores) -> Table:
    columns = [(name, metric) for name in scores.others for metric in ("auroc", "auroc by disagreement")]
    rows = [
        (title(names), *(scores.get(names, metric, name).value for name, metric in columns)) for names in COMBINATIONS
    ]
    heads = [f"{name}, {'entropy' if metric == 'auroc' else 'disagreement'}" for name, metric in columns]
    return Table(("marginalised", *heads), rows)


def cost(summary: Mapping[str, Any]) -> str:
    """Say what the run took, training apart from the rest."""
    cpu, wall = summary["cpu_seconds"], summary["wall_seconds"]
    return (
        f"{cpu['training'] + cpu['answers']:.0f} s of CPU time ({cpu['training']:.0f} s of it training), "
        f"{wall['training'] + wall['answers']:.0f} s of wall time, on {summary['device']}; seed {summary['seed']}"
    )


def described(preset: Mapping[str, Any], images: Mapping[str, Any]) -> str:
    norm = "with" if preset["batch_norm"] else "without"
    return (
        f"VGG16 of width {preset['width']:g} {norm} batch norm, {preset['epochs']} epochs, SWAG from "
        f"{preset['start']:.2f} of them on ({preset['schedule']} schedule), {preset['members']} networks in each of "
        f"two sets, {preset['samples']} samples a network; {images['train']:,} images to train on, "
        f"{images['test']:,} to test on, {images['shifted']:,} of each corruption and severity"
        f"{''.join(f', {count:,} of {name}' for name, count in images['others'].items())}"
        f"{' (made by the program)' if preset['is_made'] else ''}"
    )


def _table(columns: Sequence[int] | range, value: Callable[[Combination, int], float]) -> Table:
    rows = [(title(names), *(value(names, column) for column in columns)) for names in COMBINATIONS]
    return Table(("marginalised", *map(str, columns)), rows)
