"""Coverage of the intervals of `prediction.sources()`, by simulation with variance components that are set.

    python benchmarks/coverage_of_sources.py            # the tables, in about ten minutes on one core
    python benchmarks/coverage_of_sources.py --quick    # fewer repetitions

Answers are sums of independent effects, one for each set of crossed variables, and of samples within members. The
tables are written into benchmarks/results/coverage_of_sources.md: single rows, all rows together, effects that are not
Gaussian, and the mutual information of classes. Intervals of y by few members: benchmarks/few_members.py.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from wherefrom.likelihoods.classification import ClassPrediction
from wherefrom.likelihoods.regression_prediction import Prediction
from wherefrom.predictive.components import CrossedAxis
from wherefrom.predictive.mixture import Mixture
from wherefrom.predictive.monte_carlo import Plan

RESULTS = Path(__file__).parent / "results" / "coverage_of_sources.md"
DESIGNS = ((5,), (2, 2), (3, 3), (5, 4), (10, 10), (3, 3, 3), (5, 4, 3), (10, 10, 5))
NAMES = ("theta0", "order", "D")
LEVELS = (0.95, 0.80)
SAMPLES = 12
Effect = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


def gaussian(generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return generator.normal(size=shape)


def skewed(generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return generator.exponential(size=shape) - 1


def flat(generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return generator.uniform(-math.sqrt(3), math.sqrt(3), size=shape)


def truth(draws: tuple[int, ...]) -> dict[str, float]:
    """Variance of each component: 4, 2 and 1 of the variables, less for those that they cause together, 2 of t."""
    main = dict(zip(NAMES, (4.0, 2.0, 1.0), strict=True))
    places = range(len(draws))
    parts = {}
    for size in range(1, len(draws) + 1):
        for some in itertools.combinations(places, size):
            each = [NAMES[i] for i in some]
            parts[" x ".join(each)] = main[each[0]] if size == 1 else 0.5 ** (size - 2)
    return parts | {"t": 2.0}


def made(
    generator: np.random.Generator, draws: tuple[int, ...], rows: int, effect: Effect, independent: float = 1.0
) -> Prediction:
    """A prediction with these components at every row; `independent` is the part of a row's effects that is its own."""
    answers = np.zeros((*draws, SAMPLES, rows))
    for name, part in truth(draws).items():
        axes = set(name.split(" x "))
        shape = [n if NAMES[i] in axes else 1 for i, n in enumerate(draws)]
        shape = [*(draws if name == "t" else shape), SAMPLES if name == "t" else 1]
        of_rows = math.sqrt(independent) * effect(generator, (*shape, rows))
        directions = effect(generator, (*shape, 3)) @ _directions(rows)
        answers = answers + math.sqrt(part) * (of_rows + math.sqrt(1 - independent) * directions)
    values = torch.from_numpy(answers.reshape(math.prod(draws), SAMPLES, rows, 1))
    crossed = tuple(CrossedAxis(NAMES[i], n, False) for i, n in enumerate(draws))
    plan, one = Plan(SAMPLES, vary_theta=True, vary_mask=False), torch.ones(1, dtype=torch.float64)
    return Prediction(Mixture(values, plan, crossed), 0 * one, one)


def _directions(rows: int) -> np.ndarray:
    """Three directions over rows that all share: of unit variance at each row.  # (3, rows)"""
    each = np.random.default_rng(5).normal(size=(3, rows))
    return each / np.sqrt((each**2).sum(0))


def covered_rows(draws: tuple[int, ...], rows: int, effect: Effect = gaussian, seed: int = 0) -> dict[str, list[float]]:
    """Coverage of single rows, each a design by itself: variances and shares at the levels, then ± once and twice."""
    shares = made(np.random.default_rng(seed), draws, rows, effect).sources()
    variances = truth(draws)
    whole = sum(variances.values())
    ends = {(of, level): shares.row_interval(level, of) for of in ("variance", "share") for level in LEVELS}
    result = {}
    for name, part in variances.items():
        each = []
        for (of, _), by_name in ends.items():
            low, high = by_name[name]
            target = part if of == "variance" else part / whole
            each.append(float(((low <= target) & (target <= high)).double().mean()))
        away, error = (shares.variance[name] - part).abs(), shares.standard_error[name]
        ratio = float(error.square().mean().sqrt() / shares.variance[name].std())
        result[name] = [*each, *(float((away <= k * error).double().mean()) for k in (1, 2)), ratio]
    return result


def covered_overall(
    draws: tuple[int, ...], repeats: int, rows: int = 40, effect: Effect = gaussian, seed: int = 0
) -> dict[str, list[float]]:
    """Coverage over all rows together, in repetitions; half of a row's effects is its own."""
    generator, variances = np.random.default_rng(seed), truth(draws)
    whole = sum(variances.values())
    hits = {name: [] for name in variances}
    for _ in range(repeats):
        shares = made(generator, draws, rows, effect, independent=0.5).sources()
        ends = [shares.interval(level, of) for of in ("variance", "share") for level in LEVELS]
        for name, part in variances.items():
            targets = (part, part, part / whole, part / whole)
            inside = [
                low <= target <= high for (low, high), target in zip((e[name] for e in ends), targets, strict=True)
            ]
            overall = shares.overall[name]
            away = abs(overall.share - part / whole)
            inside += [away <= k * overall.share_error for k in (1, 2)]
            hits[name].append([*inside, overall.share_error, overall.share])
    result = {}
    for name, each in hits.items():
        table = np.array(each, dtype=np.float64)
        ratio = math.sqrt((table[:, 6] ** 2).mean()) / table[:, 7].std()
        result[name] = [*table[:, :6].mean(0), ratio]
    return result


# ---------------------------------------------------------------------- classes


def of_classes(
    generator: np.random.Generator, members: int, samples: int, rows: int, shared: float = 0.0
) -> ClassPrediction:
    """Three classes with Gaussian logits: of deviation 1.5 between members, 1 within; `shared` by all rows."""
    between = generator.normal(size=(members, 1, rows, 3)) * math.sqrt(1 - shared)
    between = between + generator.normal(size=(members, 1, 1, 3)) * math.sqrt(shared)
    within = generator.normal(size=(members, samples, rows, 3)) if samples > 1 else 0.0
    logs = torch.log_softmax(torch.from_numpy(1.5 * between + within), -1)
    plan = Plan(samples, vary_theta=samples > 1, vary_mask=False)
    return ClassPrediction(Mixture(logs, plan, (CrossedAxis("theta0", members, False),)), ("a", "b", "c"))


def true_entropies(samples: int) -> tuple[float, float]:
    """Mutual information and expected entropy, by a million draws."""
    p = of_classes(np.random.default_rng(9), 1_000_000, samples=2 if samples > 1 else 1, rows=1).answers[:, 0, 0]
    expected = float(torch.special.entr(p).sum(-1).mean())
    return float(torch.special.entr(p.mean(0)).sum()) - expected, expected


def of_mutual_information(members: int, samples: int, rows: int, repeats: int) -> list[float]:
    """Bias of both estimates, their root mean squared errors, and coverage of the overlap's share of 95%.

    Coverage is that of single rows, and of 40 rows together, half of whose variance they share.
    """
    truth, overlap = true_entropies(samples)
    generator = np.random.default_rng(members)
    prediction = of_classes(generator, members, samples, rows)
    corrected, plain = prediction.mutual_information, prediction.entropy - prediction.expected_entropy
    values = [float(each.mean()) / truth - 1 for each in (plain, corrected)]
    values += [float((each - truth).square().mean().sqrt()) for each in (plain, corrected)]
    target = overlap / (overlap + truth)
    low, high = prediction.sources(of="entropy").row_interval()["overlap"]
    values.append(float(((low <= target) & (target <= high)).double().mean()))
    ends = [
        of_classes(generator, members, samples, 40, shared=0.5).sources(of="entropy").interval()["overlap"]
        for _ in range(repeats)
    ]
    return [*values, float(np.mean([low <= target <= high for low, high in ends]))]


def shown_entropies(rows: int, repeats: int) -> str:
    lines = [
        "### Mutual information of three classes",
        "",
        "Gaussian logits. Errors of the paper's estimate and of the corrected one; coverage of the 95% interval of the "
        "overlap's share.",
        "",
        "| members | samples | bias: paper | corrected | error: paper | corrected | single rows | 40 rows together |",
        "|---" * 8 + "|",
    ]
    for samples in (1, 10):
        for members in (2, 3, 5, 10, 30):
            plain, corrected, rmse, rmse_corrected, row, overall = of_mutual_information(
                members, samples, rows, repeats
            )
            lines.append(
                f"| {members} | {samples} | {plain:+.1%} | {corrected:+.1%} | {rmse:.3f} | {rmse_corrected:.3f} | "
                f"{row:.1%} | {overall:.1%} |"
            )
    return "\n".join(lines)


# ---------------------------------------------------------------------- tables


def shown(title: str, coverages: dict[str, dict[str, list[float]]], about: str) -> str:
    head = "| design | source | variance 95% | variance 80% | share 95% | share 80% | ± once | ± twice | ± / spread |"
    lines = [f"### {title}", "", about, "", head, "|---" * 9 + "|"]
    for design, parts in coverages.items():
        for name, values in parts.items():
            each = [f"{value:.1%}" for value in values[:4]]
            is_known = not math.isnan(values[6])  # two draws have no ±
            each += [*(f"{value:.1%}" for value in values[4:6]), f"{values[6]:.2f}"] if is_known else ["–"] * 3
            lines.append(f"| {design} | {name} | {' | '.join(each)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--out", type=Path, default=RESULTS)
    quick = (options := parser.parse_args()).quick
    torch.set_num_threads(1)
    named = {" x ".join(map(str, draws)): draws for draws in DESIGNS}
    rows = {name: covered_rows(draws, _rows(draws, quick)) for name, draws in named.items()}
    overall = {name: covered_overall(draws, 60 if quick else 200) for name, draws in named.items()}
    other = {
        f"5 x 4, {effect.__name__}": covered_rows((5, 4), 400 if quick else 2000, effect) for effect in (skewed, flat)
    }
    text = "\n\n".join(
        [
            "# Coverage of the sources' intervals",
            "By benchmarks/coverage_of_sources.py. ± of single rows is that of the variance, else of the share.",
            shown("Single rows", rows, "Each row is a design by itself."),
            shown("All rows together", overall, "40 rows, half of whose variance they share."),
            shown("Single rows, effects that are not Gaussian", other, "Exponential, and uniform."),
            shown_entropies(400 if quick else 2000, 50 if quick else 200),
        ]
    )
    options.out.parent.mkdir(exist_ok=True)
    options.out.write_text(text + "\n")
    print(text)


def _rows(draws: tuple[int, ...], quick: bool) -> int:
    return 400 if quick else 2000


if __name__ == "__main__":
    main()
