"""What the numbers of a report mean, in plain words: names of sources, verdicts, and what to spend on next.

The rules are few and can be read: the largest source decides the advice, the second is named if it matters, and where
the estimates cannot tell them apart that is said instead.
"""

from __future__ import annotations

import math
from typing import Any

_MEANING = {
    "theta0": "initial weights",
    "order": "order of the batches",
    "h": "settings of the algorithm",
    "gamma": "choice of algorithm",
    "t": "moment training stops",
    "D": "choice of training rows",
    "M": "sub-network that dropout leaves",
    "noise": "noise in y itself",
    "overlap": "classes that overlap",
    "others": "all smaller sources together",
}

# What lowers the doubt of each source: first as a heading, then as a sentence.
_REMEDY = {
    "noise": (
        "Measure y better, or measure more",
        "It is whatever no network of this run explains: more networks and longer training would not lower it. "
        "A less noisy y or further columns could, and so could a richer family of networks if this one is too simple.",
    ),
    "overlap": (
        "Look for columns that tell the classes apart",
        "Every network has this doubt by itself: in these columns the classes overlap. More networks would not lower "
        "it. Further columns or cleaner labels could.",
    ),
    "theta0": (
        "Average more networks, or make them agree",
        "Networks that differ only in where they started disagree. More of them (posterior.extend) make their mean "
        "steadier; more rows or more weight decay bring them closer together.",
    ),
    "order": (
        "Average more networks, or make them agree",
        "Networks that saw the same rows in another order disagree. More of them (posterior.extend) make their mean "
        "steadier; larger batches or a lower last learning rate bring them closer together.",
    ),
    "t": (
        "Settle where training stops",
        "The answers still move while training goes on. Train longer, let the learning rate fall towards the end "
        "(wf.schedules), and try another start of the law: its width depends on it.",
    ),
    "h": (
        "Settle the settings",
        "The answers depend on settings that were left open. Weigh the members by rows held out (posterior.weighted("
        '"stacking", data)), or narrow the ranges to those that score well.',
    ),
    "gamma": (
        "Settle the algorithm",
        'Algorithms disagree. Weigh the members by rows held out (posterior.weighted("stacking", data)), or keep those '
        "that score well.",
    ),
    "D": (
        "Collect more rows",
        "Another draw of the training rows would have given other answers: this is the doubt that more rows lower.",
    ),
    "M": (
        "Drop less, or widen the network",
        "Sub-networks disagree. A lower dropout rate or wider layers bring them closer together.",
    ),
    "F": (
        "Settle the architecture",
        'Families of networks disagree. Weigh them by rows held out (posterior.weighted("stacking", data)), or collect '
        "rows where they differ.",
    ),
}

_NOTABLE = 0.15  # a share worth a sentence of its own
_NEGLIGIBLE = 0.02  # a distance from what was promised that nobody need act on
_UNSURE = 0.15  # a standard error of a share that forbids conclusions


def meaning(source: str, has_families: bool = False) -> str:
    """A source's name in words; F is the family of networks where there are several, else what dropout leaves.

    >>> meaning("theta0+order"), meaning("t x F")
    ('initial weights and order of the batches', 'moment training stops, together with sub-network that dropout leaves')
    """
    known = _MEANING | {"F": "family of networks" if has_families else _MEANING["M"]}
    each = [" and ".join(known.get(slot, slot) for slot in part.split("+")) for part in source.split(" x ")]
    return ", together with ".join(each)


def remedy(source: str, has_families: bool = False) -> tuple[str, str]:
    """What to do about a source: a heading and a sentence. Of several, the first decides."""
    first = source.split(" x ")[0].split("+")[0]
    if first == "F" and not has_families:
        first = "M"
    return _REMEDY.get(first, ("Look at the rows most in doubt", "No single choice stands out."))


def verdict(observed: float, expected: float, error: float) -> str:
    """Whether intervals, or confidences, hold what they promise, within chance and two percent.

    >>> verdict(0.85, 0.95, 0.02), verdict(0.94, 0.95, 0.02)
    ('too sure', 'about right')
    """
    if abs(observed - expected) <= max(1.96 * error, _NEGLIGIBLE):
        return "about right"
    return "too sure" if observed < expected else "too careful"


def advice(
    view: dict[str, Any], has_families: bool, has_noise: bool, further: dict[str, Any] | None = None
) -> dict[str, Any]:
    """A heading and some sentences, by rules on what was found; `further` says what more trainings would do."""
    sources = view["sources"]
    found = sorted(sources["overall"], key=lambda part: -part["share"])
    say: list[str] = []
    if sources["problem"]:
        lead = "Make the sources known"
        say.append(f"Where the doubt comes from cannot be told: {sources['problem']}.")
    elif not found or not sum(part["share"] for part in found):
        lead = "Leave a choice open"
        say.append(
            "Nothing was random in this run, so it holds no doubt that could be traced. Marginalise at least the "
            "initial weights: over=wf.recipes.deep_ensemble(5)."
        )
    else:
        lead = _about_sources(found, has_families, say)
    if further is not None:
        say.append(further["say"][0])
        if further["is_enough"] and lead == _REMEDY["theta0"][0]:
            lead = "Make the networks agree"
    _about_calibration(view["verdict"], has_noise, say)
    _about_combinations(view["combinations"], say)
    return {"lead": lead, "say": say}


def _about_sources(found: list[dict[str, Any]], has_families: bool, say: list[str]) -> str:
    largest, *others = found
    lead, what = remedy(largest["name"], has_families)
    most = "Most of the doubt" if largest["share"] > 0.5 else "The largest part of the doubt"
    name = meaning(largest["name"], has_families)
    say.append(f"{most}, {_share(largest)}, has one source: {name}. {what}")
    error = largest["share_error"]
    if others and others[0]["share"] >= _NOTABLE:
        second = others[0]
        name, what = meaning(second["name"], has_families), remedy(second["name"], has_families)[1]
        say.append(f"Next comes, with {_share(second)}: {name}. {what}")
        errors = [part["share_error"] for part in (largest, second) if part["share_error"] is not None]
        if errors and largest["share"] - second["share"] < max(errors):
            say.append("Which of the two is larger cannot be told: they lie within the error of the estimate.")
    if error is not None and error > _UNSURE:
        say.append("These shares rest on few draws. Extend the run before spending much on them.")
    elif error is None and largest["name"] not in ("noise", "overlap"):
        say.append("With so few draws the error of these shares is not known. Extend the run before spending on them.")
    return lead


def _about_calibration(found: dict[str, Any], has_noise: bool, say: list[str]) -> None:
    if found["kind"] == "confidence":
        told = f"The mean confidence is {found['expected']:.0%}, and {found['observed']:.0%} of the answers are right"
        cure = 'Calibrate them on rows held out: posterior.calibrated("temperature", data).'
    else:
        told = f"The 95% intervals hold {found['observed']:.0%} of the truth"
        cure = 'Calibrate them on rows held out (posterior.calibrated("variance", data)), or leave more choices open.'
        if not has_noise:
            cure = 'The likelihood has no noise, so the intervals hold none: wf.Regression(noise="fit") adds it.'
    if found["word"] == "too sure":
        say.append(f"{told}: the run is too sure of itself. {cure}")
    elif found["word"] == "too careful":
        say.append(f"{told}: the run is more careful than it need be. Calibration on rows held out would narrow it.")


def _about_combinations(table: dict[str, Any], say: list[str]) -> None:
    """Whether a cheaper combination does as well, by its NLL row by row against that of all variables together."""
    rows = [row for row in table["rows"] if row["nll_gap_error"] is not None]
    everything = next((row for row in rows if row["is_all"]), None)
    if everything is None or len(rows) < 2:
        return
    best = min(rows, key=lambda row: row["scores"]["nll"])
    if not best["is_all"] and best["nll_gap"] < -1.96 * best["nll_gap_error"]:
        say.append(
            f"Of the combinations, {_named(best)} scores best: its NLL is {-best['nll_gap']:.2g} below that of all "
            "together, which is more than chance. It was chosen on these rows: check it on others."
        )
        return
    cheaper = [
        row
        for row in rows
        if row["members"] < everything["members"] and row["nll_gap"] < 1.96 * row["nll_gap_error"] and row["on"]
    ]
    if cheaper and everything["members"] > 1:
        least = min(cheaper, key=lambda row: (row["members"], row["scores"]["nll"]))
        networks = "one network" if least["members"] == 1 else f"{least['members']} networks"
        score = "scores" if least["members"] == 1 else "score"
        gap = f"NLL {_signed(least['nll_gap'])} ± {least['nll_gap_error']:.3f}"
        say.append(
            f"If cost matters: {networks}, {_named(least)}, {score} about as well on these rows as all "
            f"{everything['members']} together ({gap})."
        )


def _named(row: dict[str, Any]) -> str:
    return "marginalising " + (", ".join(row["on"]) or "nothing")


def _share(part: dict[str, Any]) -> str:
    error = part["share_error"]
    known = error is not None and math.isfinite(error) and error >= 0.005
    return f"{part['share']:.0%}" + (f" ± {error:.0%}" if known else "")


def _signed(value: float) -> str:
    return f"{value:+.3f}".replace("-", "−")
