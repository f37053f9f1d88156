"""Plain words for the numbers of a report: names of sources, and what to spend on next.

The rules are few: the largest source decides the advice, the second is named if it matters, and where the estimates
cannot tell them apart, the report says so. Whatever there is to do is written as Python for a posterior, as options of
the command line, or as arguments of `wf.fit`: `_HOW` has all three. Here is what holds for every kind of target; the
rest comes from the kinds, by `Words`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from wherefrom.likelihoods import views as kinds
from wherefrom.predictive.advice import TRY, Advice, Option, listed
from wherefrom.predictive.background import OUTSIDE
from wherefrom.predictive.panels import Output, Words, told_apart
from wherefrom.report.columns import UNUSUAL

Language = Literal["python", "command", "fit"]
_LANGUAGES = ("python", "command", "fit")
INPUTS, COLUMNS = "the inputs", "your columns"  # what the networks are given: in general, and of a table

_FAMILY, _MASKS = ("kind of model", "architecture"), ("units that dropout keeps", "dropout")
# In words, and as a name in tables, which every program takes.
_NAMES = {
    "theta0": ("initial weights", "initial_weights"),
    "order": ("order of the batches", "batch_order"),
    "h": ("settings of the algorithm", "settings"),
    "gamma": ("choice of algorithm", "algorithm"),
    "t": ("moment training stops", "stopping"),
    "D": ("choice of training rows", "rows"),
    "gaps": ("values missing in the row", "gaps"),
    "M": _MASKS,
    "others": ("all smaller sources together", "others"),
    OUTSIDE: ("row unlike those of training", OUTSIDE),
    **{name: (source.meaning, source.column) for name, source in kinds.SOURCES.items()},
}
_TOGETHER = "together"  # the column of all interactions

# How it is done: of a posterior, on the command line, and by wf.fit.
_HOW = {
    "more": ("posterior.extend", "--draws 10, or theta0=10 in --over", 'draws=10, or theta0=10 in over="..."'),
    "tighter": ("more weight decay", "fewer hidden units (--hidden 32)", "fewer hidden units (hidden=32)"),
    "richer": (
        "a richer family of networks",
        "a larger network (--hidden 128,128)",
        "a larger network (hidden=[128, 128])",
    ),
    "smoother": (
        "larger batches or a lower last learning rate",
        "larger batches (--batch-size) or a lower --lr",
        "larger batches (batch_size=) or a lower learning rate (lr=)",
    ),
    "longer": (
        "Train longer, let the learning rate fall towards the end (wf.schedules), and try another start of the law: "
        "its width depends on it.",
        "Train longer (--epochs 300), or at a lower --lr.",
        "Train longer (epochs=300), or at a lower learning rate (lr=0.001).",
    ),
    "later": (
        "Start to collect later (wf.Iterations(..., start=0.75)), or train longer",
        "Train longer (--epochs 300)",
        "Train longer (epochs=300)",
    ),
    "settle": (
        'Weigh the members by held-out rows (posterior.weighted("stacking", data)), or keep what scores well.',
        "Leave h out of --over, and name what scores well: --lr 0.001.",
        'Leave h out of over="...", and name what scores well: lr=0.001.',
    ),
    "drop less": (
        "A lower dropout rate or wider layers",
        "A lower rate (--dropout 0.02) or wider layers (--hidden)",
        "A lower rate (dropout=0.02) or wider layers (hidden=)",
    ),
    "start": (
        "over=wf.recipes.deep_ensemble(5)",
        "--recipe deep_ensemble --draws 5",
        'recipe="deep_ensemble", draws=5',
    ),
    "extend": (
        "Extend the run (posterior.extend)",
        "Fit it again with more draws (--draws 10)",
        "Fit it again with more draws (draws=10)",
    ),
    "hold out": ("on more rows", "on more rows (--held-out 0.3)", "on more rows (held_out=0.3)"),
    "rethink": (
        "look at its columns, its settings and its losses",
        "look at its columns, and try other --epochs and --lr",
        "look at its columns, and try other epochs= and lr=",
    ),
    "samples": ("samples={}", "--samples {}", "samples={}"),
    **kinds.HOW,
}

# What lowers the doubt of each source: first as a heading, then as a sentence.
_REMEDY = {
    **{name: (source.remedy, source.advice) for name, source in kinds.SOURCES.items()},
    "theta0": (
        "Average more networks, or make them agree",
        "Networks that differ only in their initial weights disagree. More of them ({more}) make their mean "
        "steadier; more rows or {tighter} bring them closer together.",
    ),
    "order": (
        "Average more networks, or make them agree",
        "Networks that were trained on the same rows in another order disagree. More of them ({more}) make their mean "
        "steadier; {smoother} bring them closer together.",
    ),
    "t": ("Settle where training stops", "The answers still move while training goes on. {longer}"),
    "h": ("Settle the settings", "The answers depend on settings that were left open. {settle}"),
    "gamma": ("Settle the algorithm", "Algorithms disagree. {settle}"),
    "D": (
        "Collect more rows",
        "Another draw of the training rows would have given other answers: this is the doubt that more rows lower.",
    ),
    "M": (
        "Drop less, or widen the network",
        "Networks with other units left out disagree. {drop less} bring them closer together.",
    ),
    OUTSIDE: (
        "Check the rows outside, or collect more like them",
        "Rows unlike those of training are answered by the {target} of all training rows. Check their units and codes; "
        "if they are right, train on rows like them.",
    ),
    "F": (
        "Settle the architecture",
        "Several kinds of model disagree. {settle} Rows where they differ would tell.",
    ),
}

# How a variable is marginalised by the command and by wf.fit, in their option `over`.
_TRY = {"theta0": "theta0=5", "t": "t=swag", "h": "h=5", "order": "order=5", "F": "F=dropout", "D": "D=5"}

_NOTABLE = 0.15  # a share worth a sentence
_UNSURE = 0.15  # a standard error of a share that forbids conclusions
_ENOUGH = 0.005  # nats a row that more trainings would save: not worth them, as posterior.advise has it


def meaning(source: str, has_families: bool = False, inputs: str = INPUTS) -> str:
    """A source's name in words; F is the kind of model where there are several, else what dropout keeps.

    inputs: what the networks are given, in words.

    >>> meaning("theta0+order"), meaning("t x F")
    ('initial weights and order of the batches', 'moment training stops, together with units that dropout keeps')
    >>> meaning("noise"), meaning("noise", inputs=COLUMNS)
    ('not explained by the inputs', 'not explained by your columns')
    """
    names = _names(has_families)
    each = [
        " and ".join(names[slot][0].format(inputs=inputs) if slot in names else slot for slot in part.split("+"))
        for part in source.split(" x ")
    ]
    return ", together with ".join(each)


def column_of(source: str, has_families: bool = False) -> str:
    """Return the name of a source's column in a table.

    Variables drawn jointly have the name of the first. All interactions share one column.

    >>> column_of("theta0+order"), column_of("t x F"), column_of("noise"), column_of("my annotator")
    ('initial_weights', 'together', 'unexplained', 'my_annotator')
    """
    if " x " in source:
        return _TOGETHER
    first, names = source.split("+")[0], _names(has_families)
    return names[first][1] if first in names else re.sub(r"\W+", "_", first)


def _names(has_families: bool) -> dict[str, tuple[str, str]]:
    return _NAMES | {"F": _FAMILY if has_families else _MASKS}


@dataclass(frozen=True)
class Voice:
    """The voice of a page: what the target is called, and for whom advice is written.

    Whoever has a posterior is advised in Python, others by options of the command, or by arguments of `wf.fit`.

    >>> Voice("length of stay", "command").how("Regression row by row")
    '--noise predicted'
    """

    target: str = "y"
    speaks: Language = "python"
    has_families: bool = False
    is_calibrated: bool = False
    words: Words = field(default_factory=Words)

    def __post_init__(self) -> None:
        if self.speaks not in _LANGUAGES:
            raise ValueError(f'speaks is "python", "command" or "fit", not {self.speaks!r}')

    def how(self, name: str) -> str:
        return _HOW[name][_LANGUAGES.index(self.speaks)]

    def meaning(self, source: str) -> str:
        return meaning(source, self.has_families, self.inputs)

    @property
    def inputs(self) -> str:
        """Return a word for the inputs of the networks: for a table, its columns."""
        return INPUTS if self.speaks == "python" else COLUMNS

    def remedy(self, source: str) -> tuple[str, str]:
        """Return what to do about a source: a heading and a sentence. Of several, the first decides."""
        first = source.split(" x ")[0].split("+")[0]
        if first == "F" and not self.has_families:
            first = "M"
        if first not in _REMEDY:
            return "Look at the rows with the largest doubt", "No single choice stands out."
        lead, what = _REMEDY[first]
        return self.filled(lead), self.filled(what)

    def filled(self, text: str, **more: str) -> str:
        """A text with its braces filled in: the target, the inputs, and how things are done."""
        names = {"target": self.target, "inputs": self.inputs}
        return text.format_map({name: self.how(name) for name in _HOW} | names | more)


# ---------------------------------------------------------------------- what to do next


def advice(
    view: dict[str, Any], voice: Voice, further: dict[str, Any] | None = None, outside: int | None = None
) -> dict[str, Any]:
    """A heading and some sentences, by the rules above.

    `further` says what more trainings would do, `outside` how many rows are unlike those of training.
    """
    sources = view["sources"]
    parts = sorted(sources["overall"], key=lambda part: -part["share"])
    say: list[str] = []
    if sources["problem"]:
        lead = "Find out the sources"
        say.append(f"The sources of the doubt are unknown: {sources['problem']}.")
    elif not any(part["share"] for part in parts):
        lead = "Leave a choice open"
        say.append(
            "Nothing was random in this run, so it has no doubt that could be traced. Leave at least the "
            f"initial weights open: {voice.how('start')}."
        )
    else:
        lead = _about_sources(parts, voice, say)
    if further is not None:
        say.append(further["say"][0])
        if further["is_enough"] and lead == _REMEDY["theta0"][0]:
            lead = "Make the networks agree"
    if not_better := _about_no_model(view, voice):
        lead = "First make it better than no model"
        say.insert(0, not_better)
    _about_calibration(view["verdict"], voice, say)
    _about_groups(view, voice, say)
    if outside:
        rows = "One row is" if outside == 1 else f"{outside:,} rows are"
        say.append(
            f"{rows} outside, unlike those that were trained on: predictions there are guesses. They are marked."
        )
    _about_combinations(view["combinations"], voice, say)
    return {"lead": lead, "say": say}


def _about_sources(parts: list[dict[str, Any]], voice: Voice, say: list[str]) -> str:
    largest, *others = parts
    lead, what = voice.remedy(largest["name"])
    most = "Most of the doubt" if largest["share"] > 0.5 else "The largest part of the doubt"
    say.append(f"{most}, {_share(largest)}, has one source: {voice.meaning(largest['name'])}. {what}")
    error = largest["share_error"]
    if others and others[0]["share"] >= _NOTABLE:
        second = others[0]
        say.append(
            f"Next comes, with {_share(second)}: {voice.meaning(second['name'])}. {voice.remedy(second['name'])[1]}"
        )
        errors = [part["share_error"] for part in (largest, second) if part["share_error"] is not None]
        if errors and largest["share"] - second["share"] < max(errors):
            say.append("Which of the two is larger is unclear: they differ by less than the error of the estimate.")
    if error is not None and error > _UNSURE:
        say.append(f"These shares rest on few draws. {voice.how('extend')} before spending much on them.")
    elif error is None and not largest["is_noise"]:
        say.append(
            f"With so few draws the error of these shares is unknown. {voice.how('extend')} before spending on them."
        )
    return lead


def _about_no_model(view: dict[str, Any], voice: Voice) -> str | None:
    """A sentence if the run does not beat no model, beyond chance."""
    without, word, words = view["baseline"]["scores"], view["baseline"]["gain"]["word"], voice.words
    if word == "better":
        return None
    pair = (view["scores"].get(words.main_score), without.get(words.main_score))
    numbers = ""
    if None not in pair:
        numbers = " against ".join(told_apart(*pair, digits=3))
        numbers = f" ({words.scores[words.main_score].short} {numbers}; lower is better)"
    if word == "worse":
        what = f"On these rows the run is worse than {words.no_model}{numbers}."
        return f"{what} Do not use it as it is: {voice.how('rethink')}."
    return (
        f"These rows do not show that the run is better than {words.no_model}{numbers}. Test it on more rows; further "
        "columns would help."
    )


def _about_groups(view: dict[str, Any], voice: Voice, say: list[str]) -> None:
    """Predictions may be calibrated on average, and off where it matters."""
    off = [group for group in view["groups"] if group["word"] != "about right"]
    if not off:
        return
    worst = max(off, key=lambda group: abs(group["observed"] - group["expected"]))
    others = f" It is one of {len(off)} groups of {len(view['groups'])} that are off." if len(off) > 1 else ""
    cure = voice.filled(voice.words.mend_group, group=worst["name"])
    say.append(f"{worst['say']}: {worst['word']} there, by more than chance.{others} {cure}")


def _about_calibration(verdict: dict[str, Any], voice: Voice, say: list[str]) -> None:
    cure = voice.filled(voice.words.cause or voice.words.calibrate)
    if voice.is_calibrated and not voice.words.cause:
        cure = f"It is calibrated already: calibrate it {voice.how('hold out')}, or leave more choices open."
    if verdict["word"] == "too sure":
        say.append(f"{verdict['say']}: the run is too sure. {cure}")
    elif verdict["word"] == "too careful":
        narrow = f"Calibration {voice.how('hold out') if voice.is_calibrated else 'on held-out rows'} would narrow it."
        say.append(f"{verdict['say']}: the run is too careful. {narrow}")


def _about_combinations(table: dict[str, Any], voice: Voice, say: list[str]) -> None:
    """Say whether a cheaper combination does as well, by its NLL row by row against that of all variables together."""
    rows = [row for row in table["rows"] if row["nll_gap_error"] is not None]
    everything = next((row for row in rows if row["is_all"]), None)
    if everything is None or len(rows) < 2:
        return
    best = min(rows, key=lambda row: row["scores"]["nll"])
    if not best["is_all"] and best["nll_gap"] < -1.96 * best["nll_gap_error"]:
        say.append(
            f"Of the combinations, the one {_opened(best, voice)} scores best (NLL "
            f"{_gap(best)}), by more than chance. It was chosen on these rows: check it on others."
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
        say.append(
            f"If cost matters: {networks}, {_opened(least, voice)}, {score} about as well on these rows as all "
            f"{everything['members']} together (NLL {_gap(least)})."
        )


def _opened(row: dict[str, Any], voice: Voice) -> str:
    if not row["on"]:
        return "with nothing left open"
    return f"with only the {listed([voice.meaning(name) for name in row['on']])} left open"


def _gap(row: dict[str, Any]) -> str:
    error = row["nll_gap_error"]
    places = 3 if not error else max(3, min(6, 1 - math.floor(math.log10(error))))
    return f"{row['nll_gap']:+.{places}f} ± {error:.{places}f}".replace("-", "−")


def _share(part: dict[str, Any]) -> str:
    error = part["share_error"]
    has_error = error is not None and math.isfinite(error) and error >= 0.005
    digits = 1 if 0.995 <= part["share"] < 1 else 0
    return f"{part['share']:.{digits}%}" + (f" ± {error:.0%}" if has_error else "")


# ---------------------------------------------------------------------- what further trainings would do


def further(advised: Advice, voice: Voice, samples: int) -> list[str]:
    """Sentences about what `posterior.advise` gives: what to do first, then the rest."""
    say = [_to_train(advised, voice, samples)]
    if advised.noise_share > 0.5:
        what = voice.filled(voice.words.irreducible)
        say.append(f"{advised.noise_share:.0%} of the predictive variance is {what}: no further network lowers it.")
    if dear := [f"{cost} for the {voice.meaning(name)}" for name, cost in advised.costs.items() if cost > 1]:
        say.append(f"Networks for one further draw, with all draws of the others: {listed(dear)}.")
    if two := [voice.meaning(name) for name, draws in advised.draws.items() if draws < 3]:
        say.append(f"With two draws of the {listed(two)}, a variance has no error estimate: a third would give one.")
    if advised.gone_through:
        every = listed([voice.meaning(name) for name in advised.gone_through])
        say.append(f"All values of the {every} were used: there are none left to draw.")
    if advised.untried:
        written = TRY if voice.speaks == "python" else _TRY
        ways = "; ".join(f"{voice.meaning(name)} ({written[name]})" for name in advised.untried)
        say.append(f"Not tested here; add it {'with --over' if voice.speaks == 'command' else 'to over'}: {ways}.")
    return say


def _to_train(advised: Advice, voice: Voice, samples: int) -> str:
    off = f"a typical prediction would move by about {_percent(advised.now.mean_error)} of its standard deviation"
    if advised.best == "samples":
        more = voice.how("samples").format(10 * samples)
        return (
            f"Draw more samples, not more networks: they cause {advised.sample_share:.0%} of the chance in a "
            f"prediction, and need no training. Predict with ten times as many ({more})."
        )
    if advised.best is None:
        if advised.now.price < _ENOUGH:
            return f"More networks are not needed: with very many of them, {off}."
        if not advised.draws:
            return f"With very many networks {off}, but no choice is uncertain of which more could be drawn."
        return f"With very many networks {off}, but ten more are not enough for one further draw of any choice."
    chosen = _chosen(advised)
    tied = ""
    if advised.tied:
        tied = (
            f" By their errors, more of the {listed([voice.meaning(name) for name in advised.tied])} might do as well."
        )
    networks = "one further network" if chosen.trainings == 1 else f"{chosen.trainings} further networks"
    if advised.now.mean_error**2 / 2 < _ENOUGH:
        now, then = told_apart(advised.now.variance_error * 100, chosen.variance_error * 100)
        return (
            f"With very many networks {off}. More would mainly help to estimate {voice.words.spread}: {networks} "
            f"({_draw_more(chosen, advised, voice)}) would lower its error from {now}% to {then}%.{tied}"
        )
    now, then = told_apart(advised.now.mean_error * 100, chosen.mean_error * 100)
    error = "" if math.isnan(chosen.mean_error_se) else f" ± {chosen.mean_error_se * 100:.1g}"
    return (
        f"Spend on the {voice.meaning(chosen.variable)}: {networks} ({_draw_more(chosen, advised, voice)}) would lower "
        f"the chance in a typical prediction from {now}% to {then}{error}% of its standard deviation.{tied}"
    )


def _chosen(advised: Advice) -> Option:
    options = [each for each in advised.options if each.variable == advised.best and each.draws]
    return max(options, key=lambda each: each.budget)


def _draw_more(chosen: Option, advised: Advice, voice: Voice) -> str:
    if voice.speaks == "python":
        return f"posterior.extend({chosen.variable.split('+')[0]}={chosen.draws})"
    draws = advised.draws[chosen.variable] + chosen.draws
    if voice.speaks == "fit":
        return f"draws={draws}, or {chosen.variable}={draws} in over="
    return f"--draws {draws}, or {chosen.variable}={draws} in --over"


def _percent(value: float) -> str:
    return f"{value:.0%}" if value >= 0.01 else f"{100 * value:.1g}%"


# ---------------------------------------------------------------------- words that need explaining


def glossary(outputs: Sequence[Output]) -> dict[str, list[str]]:
    """Explain every score: its name, and a sentence."""
    target = outputs[0].name if len(outputs) == 1 else "y"
    terms = {
        name: term for output in outputs for name, term in {**output.words.scores, **output.words.glossary}.items()
    }
    return {name: [term.name, term.meaning.format(target=target)] for name, term in terms.items()} | _GLOSSARY


_GLOSSARY = {
    "share": [
        "Share",
        "The part of the doubt that this source causes: what would go away if the choice were settled. Shares add up "
        "to 100%.",
    ],
    "open": [
        "Left open",
        "A training choice that is treated as uncertain: the run trained or sampled several values of it, and averages "
        "over them. Statisticians say: marginalised.",
    ],
    "without": [
        "No model",
        "The same answer for all rows, fitted on these very rows: a little better than anyone could do in advance. A "
        "model should beat it.",
    ],
    "outside": [
        "Outside, distance",
        "A row is outside if it is unlike the training rows. Its distance says how unlike; 1 is the edge. Predictions "
        "outside are guesses, however sure they look.",
    ],
    "unusual": ["Unusual value", UNUSUAL],
    "error": [
        "±",
        "One standard error: on as many other rows, a score would typically differ by this much, and rarely by twice "
        "as much. For shares near 0 and 100%, brackets show the 95% interval instead.",
    ],
}
