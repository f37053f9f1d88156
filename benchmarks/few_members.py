"""Coverage of 95% intervals of y by few members, by simulation with a truth that is set, for every likelihood.

    python benchmarks/few_members.py            # the tables, in some minutes on one core
    python benchmarks/few_members.py --quick    # fewer rows

Every row is a simulation by itself: its members are draws from one distribution, and y is the answer of one more draw,
with noise. `share` is the members' part of the variance of y, on the scale that networks answer on: log y, log means,
log times, logits. Two further tables ask why some figures differ from 95%: small counts are whole numbers, whose
intervals hold more whatever the number of members; and of two members, another formula holds more than it should.
The tables are written into benchmarks/results/few_members.md.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from wherefrom.likelihoods.counts import CountPrediction
from wherefrom.likelihoods.ordinal import OrdinalPrediction
from wherefrom.likelihoods.positive_prediction import PositivePrediction
from wherefrom.likelihoods.regression_prediction import Prediction
from wherefrom.likelihoods.survival_prediction import SurvivalPrediction
from wherefrom.predictive.components import CrossedAxis
from wherefrom.predictive.mixture import Mixture
from wherefrom.predictive.monte_carlo import Plan
from wherefrom.predictive.student import StudentT, quantile
from wherefrom.training.survival import LAWS

RESULTS = Path(__file__).parent / "results" / "few_members.md"
MEMBERS = (2, 3, 5, 10)
SHARES = (0.1, 0.3, 0.5, 0.7, 0.9, 0.95)
ONE = torch.ones(1, dtype=torch.float64)
DF = 4.0  # of Student's t
MEAN = 200.0  # of counts
LEVELS, LEVELS_APART = 40, 0.4  # ordered classes: their number, and the distance of cutpoints in standard deviations
Made = tuple[Any, Any]  # a prediction and y


def draws(generator: np.random.Generator, members: int, rows: int, share: float) -> tuple[np.ndarray, np.ndarray]:
    """Answers of members, and of one more, with the variance `share`.  # (members, rows), (rows,)"""
    values = math.sqrt(share) * generator.normal(size=(members + 1, rows))
    return values[1:], values[0]


def mixture(answers: np.ndarray, noise: float | Tensor | None) -> Mixture:
    """A mixture of members without samples.  # (members, rows) or (members, rows, outputs)"""
    values = torch.from_numpy(answers)
    values = values.reshape(len(answers), 1, answers.shape[1], -1)
    variance = noise * ONE if isinstance(noise, float) else noise
    return Mixture(values, Plan(1, False, False), (CrossedAxis("theta0", len(answers), False),), noise=variance)


def gaussian(generator: np.random.Generator, members: int, rows: int, share: float) -> Made:
    answers, truth = draws(generator, members, rows, share)
    y = truth + math.sqrt(1 - share) * generator.normal(size=rows)
    return Prediction(mixture(answers, 1 - share), 0 * ONE, ONE), y


def student(generator: np.random.Generator, members: int, rows: int, share: float) -> Made:
    answers, truth = draws(generator, members, rows, share)
    y = truth + math.sqrt((1 - share) * (DF - 2) / DF) * generator.standard_t(DF, size=rows)
    return Prediction(mixture(answers, 1 - share), 0 * ONE, ONE, shape=StudentT(DF * ONE)), y


def positive(generator: np.random.Generator, members: int, rows: int, share: float) -> Made:
    prediction, logs = gaussian(generator, members, rows, share)
    return PositivePrediction(prediction.mixture, 0 * ONE, ONE), np.exp(logs)


def hurdle(generator: np.random.Generator, members: int, rows: int, share: float) -> Made:
    """A y that is 0 in some 30% of the rows; members doubt how often."""
    prediction, y = positive(generator, members, rows, share)
    there = 1 / (1 + np.exp(-generator.normal(0.9, math.sqrt(share), size=(members + 1, rows))))
    presence = mixture(there[1:], torch.from_numpy(there[1:] * (1 - there[1:])).reshape(members, 1, rows, 1))
    y = np.where(generator.uniform(size=rows) < there[0], y, 0.0)
    return PositivePrediction(prediction.mixture, 0 * ONE, ONE, presence=presence), y


def counts(generator: np.random.Generator, members: int, rows: int, share: float) -> Made:
    """Negative binomials with a mean of about 200; on the scale of log means, the variance is 0.25 in all."""
    answers, truth = draws(generator, members, rows, share / 4)
    dispersion = max((1 - share) / 4 - 1 / MEAN, 0.0)
    rates = MEAN * np.exp(truth)
    if dispersion:
        rates = generator.gamma(1 / dispersion, dispersion * rates)
    means = np.exp(answers)
    noise = torch.from_numpy(means / MEAN + dispersion * means**2).reshape(members, 1, rows, 1)
    prediction = CountPrediction(mixture(means, noise), dispersion * ONE, MEAN * ONE)
    return prediction, generator.poisson(rates)


def survival(generator: np.random.Generator, members: int, rows: int, share: float) -> Made:
    """Weibull times, none of them censored."""
    answers, truth = draws(generator, members, rows, share)
    law = LAWS["weibull"]
    scale = math.sqrt((1 - share) / law.variance)
    w = law.quantile(torch.from_numpy(generator.uniform(size=rows))).numpy()
    times = np.exp(truth + scale * (w - law.mean))
    return SurvivalPrediction(mixture(answers, 1 - share), 0 * ONE, ONE, "weibull"), (times, np.ones(rows))


def ordinal(generator: np.random.Generator, members: int, rows: int, share: float) -> Made:
    """Many levels, so that intervals of levels hold little more than they should."""
    answers, truth = draws(generator, members, rows, share)
    scale = math.sqrt((1 - share) * 3) / math.pi  # of the logistic noise
    cuts = LEVELS_APART * (np.arange(LEVELS - 1) - (LEVELS - 2) / 2)
    y = np.searchsorted(cuts, truth + scale * generator.logistic(size=rows))
    below = 1 / (1 + np.exp(-(cuts - answers[..., None]) / scale))  # (members, rows, cuts)
    none = np.zeros((*answers.shape, 1))
    probabilities = np.diff(np.concatenate([none, below, none + 1], -1), axis=-1)
    return OrdinalPrediction(mixture(np.log(np.maximum(probabilities, 1e-300)), None), tuple(range(LEVELS))), y


LIKELIHOODS: dict[str, Callable[[np.random.Generator, int, int, float], Made]] = {
    "Gaussian": gaussian,
    "Student's t": student,
    "Positive": positive,
    "Positive, zeros": hurdle,
    "Counts": counts,
    "Survival": survival,
    "Ordinal": ordinal,
}


def coverage(name: str, members: int, share: float, rows: int, reading: str | None, level: float = 0.95) -> float:
    """The share of rows whose y lies within its interval."""
    prediction, y = LIKELIHOODS[name](np.random.default_rng(members), members, rows, share)
    if name != "Ordinal":
        return float(prediction.coverage(y, level, reading))
    low, high = prediction.interval(level, reading)
    return float(np.mean((y >= low) & (y <= high)))


# ---------------------------------------------------------------------- crossed variables, and samples within members


def crossed(members: tuple[int, ...], noise: float, reading: str, rows: int, samples: int = 1) -> float:
    """Coverage of the 95% interval of y, of Gaussian effects with variance 1 in all, and noise."""
    generator = np.random.default_rng(len(members) + members[0])

    def drawn(sizes: tuple[int, ...], count: int) -> np.ndarray:
        values = np.zeros((*sizes, count, rows))
        for size in range(1, len(sizes) + 1):
            for some in itertools.combinations(range(len(sizes)), size):
                shape = [n if i in some else 1 for i, n in enumerate(sizes)]
                values = values + generator.normal(size=(*shape, 1, rows)) / math.sqrt(2 ** len(sizes) - 1)
        return values + (generator.normal(size=(*sizes, count, rows)) if samples > 1 else 0.0)

    y = drawn((1,) * len(members), 1).reshape(-1) + math.sqrt(noise) * generator.normal(size=rows)
    answers = torch.from_numpy(drawn(members, samples).reshape(-1, samples, rows, 1))
    axes = tuple(CrossedAxis(name, n, False) for name, n in zip("abc", members, strict=False))
    plan = Plan(samples, vary_theta=samples > 1, vary_mask=False)
    each = Mixture(answers, plan, axes, noise=noise * ONE if noise else None)
    return Prediction(each, 0 * ONE, ONE).coverage(y, 0.95, reading)


# ---------------------------------------------------------------------- small counts, and the fiducial interval


def small_counts(mean: float, variance: float, members: int, rows: int, reading: str) -> float:
    """Coverage of the 95% interval of Poisson counts whose log means vary by this variance between members."""
    generator = np.random.default_rng(members)
    logs = math.sqrt(variance) * generator.normal(size=(members + 1, rows))
    means = np.exp(logs[1:])
    noise = torch.from_numpy(means / mean).reshape(members, 1, rows, 1)
    prediction = CountPrediction(mixture(means, noise), 0 * ONE, mean * ONE)
    return prediction.coverage(generator.poisson(mean * np.exp(logs[0])), 0.95, reading)


def fiducial(members: int, share: float, rows: int) -> tuple[float, float]:
    """Coverage of the interval by Behrens and Fisher, and its median width over that of `few_members`.

    The variance between members is B d / chi-square, as if nothing else were known of it: y - mean is the sum of
    N(0, W) and of sqrt(B) times Student's t with d degrees of freedom.
    """
    prediction, y = gaussian(np.random.default_rng(members), members, rows, share)
    few = prediction._few
    ratios = np.concatenate([[0.0], np.geomspace(1e-3, 1e3, 61)])
    probabilities = (torch.arange(4000, dtype=torch.float64) + 0.5) / 4000
    t = quantile(probabilities, torch.full((4000,), members - 1.0, dtype=torch.float64))
    low, high = torch.zeros(len(ratios)).double(), torch.from_numpy(3.0 + 2 * float(t[-1]) * ratios)
    for _ in range(60):
        middle = (low + high) / 2
        is_low = torch.special.ndtr(middle - torch.from_numpy(ratios) * t[:, None]).mean(0) < 0.975
        low, high = torch.where(is_low, middle, low), torch.where(is_low, high, middle)
    within, between = (part[:, 0].numpy() for part in (few.within, few.between))
    reach = np.sqrt(within) * np.interp(np.sqrt(between / within), ratios, high.numpy())
    ends = prediction.interval(0.95)
    width = (ends[1] - ends[0]).numpy() / 2
    return float(np.mean(np.abs(y - prediction.mean.numpy()) <= reach)), float(np.median(reach) / np.median(width))


# ---------------------------------------------------------------------- tables


def shown_likelihoods(rows: int) -> str:
    head = " | ".join(f"{share:g}" for share in SHARES)
    lines = ["### Every likelihood, by the members' share of the variance", ""]
    lines += [f"| likelihood | members | reading | {head} |", "|---" * (3 + len(SHARES)) + "|"]
    for name in LIKELIHOODS:
        for members in MEMBERS:
            for reading in ("paper", "few_members"):
                each = [f"{coverage(name, members, share, rows, reading):.1%}" for share in SHARES]
                lines.append(f"| {name} | {members} | {reading} | {' | '.join(each)} |")
    return "\n".join(lines)


def shown_crossed(rows: int) -> str:
    lines = ["### Crossed variables, and samples within members", ""]
    lines += ["Gaussian effects of variance 1 in all; samples add 1 within members.", ""]
    lines += ["| members | samples | no noise: paper | few_members | noise 1: paper | few_members | noise 10: paper |"]
    lines[-1] += " few_members |"
    lines += ["|---" * 8 + "|"]
    for members, samples in [*(((n,), 1) for n in MEMBERS), ((3,), 20), ((2, 2), 1), ((3, 3), 1), ((5, 4), 1)]:
        each = [
            f"{crossed(members, noise, reading, rows, samples):.1%}"
            for noise in (0, 1, 10)
            for reading in ("paper", "few_members")
        ]
        lines.append(f"| {' x '.join(map(str, members))} | {samples} | {' | '.join(each)} |")
    return "\n".join(lines)


def shown_small_counts(rows: int) -> str:
    lines = ["### Small counts", ""]
    lines += [
        "Poisson counts of a mean; the log means vary between members. An interval of whole numbers cannot hold "
        "exactly 95%: with 200 members, and the paper's reading, nothing but that is left.",
        "",
    ]
    lines += ["| mean | variance of log means | 2 members | 5 | 10 | 200, paper |", "|---" * 6 + "|"]
    for mean, variance in itertools.product((0.5, 2.0, 20.0, 200.0), (0.05, 0.2, 0.5)):
        each = [small_counts(mean, variance, members, rows, "few_members") for members in (2, 5, 10)]
        each.append(small_counts(mean, variance, 200, rows, "paper"))
        lines.append(f"| {mean:g} | {variance:g} | {' | '.join(f'{one:.1%}' for one in each)} |")
    return "\n".join(lines)


def shown_fiducial(rows: int) -> str:
    lines = ["### Another interval: by Behrens and Fisher", ""]
    lines += [
        "Gaussian noise. Its coverage is 95% or more; its median width is relative to that of `few_members`; columns "
        "are the members' share of the variance.",
        "",
    ]
    head = " | ".join(f"{share:g}" for share in SHARES)
    lines += [f"| members | | {head} |", "|---" * (2 + len(SHARES)) + "|"]
    for members in MEMBERS:
        each = [fiducial(members, share, rows) for share in SHARES]
        lines.append(f"| {members} | coverage | {' | '.join(f'{one:.1%}' for one, _ in each)} |")
        lines.append(f"| {members} | width | {' | '.join(f'{width:.2f}' for _, width in each)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rows")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = 2000 if options.quick else 10_000
    text = "\n\n".join(
        [
            "# Coverage of 95% intervals by few members",
            f"By benchmarks/few_members.py: {rows:,} simulations for each figure. `few_members` is the default.",
            shown_likelihoods(rows),
            shown_crossed(rows),
            shown_small_counts(rows),
            shown_fiducial(rows),
        ]
    )
    options.out.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
