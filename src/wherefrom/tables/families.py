"""F of a table: boosted trees and a Gaussian process beside the networks, where rows that were left out call for them.

    p(y | x)  =  sum over families of  w_f p_f(y | x)

Each family is trained on the same folds as the networks, by the same loss. The weights are those that give rows which
the folds left out the lowest CRPS, or classes the lowest NLL (stacking). Families that weigh little are left out. The
mixture is taken if it scores these rows better than the networks alone: a CRPS (or Brier score) that is lower by half a
standard error, and an NLL that is not higher by more than one. How much families disagree is a source of doubt: F.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from wherefrom.posterior import DivergedError, Posterior
from wherefrom.posterior.joining import joined
from wherefrom.posterior.left_out import judged_by
from wherefrom.posterior.marginalise import marginalise
from wherefrom.posterior.point import Training
from wherefrom.predictive.weights import crps_stacking, stacking
from wherefrom.tables import plan
from wherefrom.tables.options import FAMILIES
from wherefrom.tables.raw import Integers
from wherefrom.tables.telling import Tell
from wherefrom.tables.weighing import drawn_by_weight
from wherefrom.training.compute import Compute
from wherefrom.training.data import Rows, Scaler
from wherefrom.training.gaussian_process import GaussianProcess
from wherefrom.training.trees import Trees, boosted
from wherefrom.variables import Folds

NETWORK, TREES, PROCESS = FAMILIES
WORDS = {NETWORK: "networks", TREES: "boosted trees", PROCESS: "a Gaussian process"}
_MOST_TREES, _DEPTHS, _RATE = 300, (2, 4, 6), 0.2
_FEW_NUMBERS, _DEPTH_OF_MANY = 60_000, (5,)  # in a table for which several depths are tried, and that of others
_FEWEST_TREES = 3  # with fewer, the columns say next to nothing
_ENOUGH_ROWS = 500  # to choose their number by
_MOST_ROWS_OF_A_PROCESS = 10_000
_EXACT_ROWS, _CENTRES = 1000, 400  # up to 1,000 rows, each is a centre of the process; otherwise there are 400 centres
_SHARES, _LESS_ERROR = (0.25, 0.5, 0.75), 0.005  # in a mean with the networks, and of their error, in a first fit
_NOT_PROMISING = "{} left out: means of a first fit and of the networks are no better than those of the networks"
_LEAST_WEIGHT = 0.05
_WORTH_IT = 0.5  # standard errors


@dataclass(frozen=True)
class Family:
    """A family of models, its weight in the table's posterior, and its scores by itself, of rows that were left out."""

    name: str
    weight: float
    nll: float
    crps: float  # of classes, the Brier score


def with_families(
    networks: Posterior,
    others: Collection[str],
    rows: Rows,
    copies: Integers | None,
    validation: Sequence[tuple[Integers, Integers]],
    samples: int,
    compute: Compute,
    tell: Tell,
) -> tuple[Posterior, tuple[Family, ...]]:
    """Return the networks' posterior, or that with further families where left-out rows call for them.

    others: names of the families to try.
    copies: the same number for rows that stay together.
    validation: rows to fit trees to, and rows to choose their number by.
    """
    training = networks.training
    parts, judged = {NETWORK: networks}, {NETWORK: _Judged.of(networks, samples)}
    models = _models(training, others, rows, validation, _means(networks, validation[0][1], samples), tell)
    for name, model in models.items():
        over = [Folds(networks.design.parts)]
        try:
            part = marginalise(
                replace(training, model=model), rows, over, networks.seed, groups=copies, compute=compute
            )
        except (DivergedError, torch.linalg.LinAlgError) as error:  # the networks are there
            tell(f"{WORDS[name]} left out: {error}")
            continue
        parts[name] = replace(part, fold=networks.fold)  # of the same rows, some of which may judge
        judged[name] = _Judged.of(parts[name], samples)
    if len(parts) == 1:
        return networks, ()
    weights = {name: weight for name, weight in zip(parts, _weights(list(judged.values())), strict=True) if weight}
    best = networks
    if set(weights) != {NETWORK}:
        if NETWORK not in weights:  # they have the variables that the others lack
            least = _least_weight(judged[NETWORK], [judged[name] for name in weights])
            weights = {NETWORK: least} | {name: (1 - least) * weight for name, weight in weights.items()}
        mixed = joined({name: parts[name] for name in weights}, list(weights.values()))
        if _Judged.of(mixed, samples).is_better_than(judged[NETWORK]):
            best = mixed
            shares = ", ".join(f"{WORDS[name]} {_percent(weight)}" for name, weight in weights.items())
            tell(f"kinds of model, weighted on left-out rows: {shares}")
    if best is networks:
        weights = {NETWORK: 1.0}
        tell(f"{' and '.join(WORDS[name] for name in parts if name != NETWORK)} tried: no better on left-out rows")
    scores = {name: (each.mean_of(each.nll), each.mean_of(each.crps)) for name, each in judged.items()}
    return best, tuple(Family(name, weights.get(name, 0.0), *scores[name]) for name in parts)


def _percent(share: float) -> str:
    """
    >>> _percent(0.946), _percent(0.003)
    ('95%', 'below 1%')
    """
    return f"{share:.0%}" if share >= 0.005 else "below 1%"


def _means(networks: Posterior, some: Integers, samples: int) -> Tensor | None:
    """Return means of rows by networks that did not see them; None if the target is no quantity.  # (rows, targets)"""
    fold, numbers = networks.fold, torch.from_numpy(some)
    assert fold.rows is not None
    assert fold.parts is not None
    aside = replace(fold.rows.take(numbers), left_out_by=fold.parts[numbers])
    mean = _Judged.of(replace(networks, fold=replace(fold, held_out=aside)), samples).mean
    return None if mean is None or mean.numel() != aside.y.numel() else mean.reshape(aside.y.shape)


def _models(
    training: Training,
    others: Collection[str],
    rows: Rows,
    validation: Sequence[tuple[Integers, Integers]],
    of_networks: Tensor | None,
    tell: Tell,
) -> dict[str, Trees | GaussianProcess]:
    """Return the models to try beside the networks.

    of_networks: means of the first rows to choose by, by networks that did not see them, if the target is a quantity.
    """
    scaler = Scaler.of(rows, training.standardise, training.likelihood)
    loss, outputs = training.likelihood.loss_for(scaler), training.likelihood.outputs(rows.targets)
    columns = rows.x.shape[1]
    x, y = scaler.x(rows.x, torch.float32)[:, :columns], scaler.y(rows.y, torch.float32)
    table = _Table(x, y, training.likelihood.row_weights(rows), loss, outputs)
    rival = None if of_networks is None else ((of_networks - scaler.y_mean) / scaler.y_std).to(y)
    models: dict[str, Trees | GaussianProcess] = {}
    if TREES in others and importlib.util.find_spec("numba") is not None:
        trees = _best_trees(table, validation, rival)
        if trees is None:
            tell(_NOT_PROMISING.format(WORDS[TREES]))
        models |= {} if trees is None else {TREES: replace(trees, columns=columns)}
    process = GaussianProcess(len(rows) if len(rows) <= _EXACT_ROWS else _CENTRES, columns)
    is_small = len(rows) <= _MOST_ROWS_OF_A_PROCESS
    if PROCESS in others and is_small and rival is not None and process.fits(loss):
        promising = _promising(process, table, *validation[0], rival)
        if promising is None:
            tell(_NOT_PROMISING.format(WORDS[PROCESS]))
        models |= {} if promising is None else {PROCESS: promising}
    return models


class _Table(NamedTuple):
    """Rows as the families see them."""

    x: Tensor
    y: Tensor
    weights: Tensor | None
    loss: Any
    outputs: int

    def rows(self, some: Integers) -> tuple[Tensor, Tensor, Tensor | None]:
        return self.x[some], self.y[some], None if self.weights is None else self.weights[some]

    def adds_nothing(self, module: nn.Module, aside: Integers, of_networks: Tensor) -> bool:
        """Return True if no mean of a model and the networks is better than these, on rows that none of them saw.

        The errors would have to be smaller by half a percent, and are not so within a standard error.

        of_networks: means of the networks of these rows.  # (rows, targets)
        """
        x, y, weights = self.rows(aside)
        if len(y) < 2:
            return False
        with torch.no_grad():
            means = module(x)[:, : y.shape[1]]
        counts = torch.ones(len(y)) if weights is None else weights / weights.mean()
        errors = counts * (of_networks - y).abs().mean(1)
        for share in _SHARES:
            gain = errors - counts * (share * means + (1 - share) * of_networks - y).abs().mean(1)
            if gain.mean() + gain.std() / len(gain) ** 0.5 > _LESS_ERROR * errors.mean():
                return False
        return True


def _promising(
    process: GaussianProcess, table: _Table, train: Integers, aside: Integers, of_networks: Tensor
) -> GaussianProcess | None:
    """Return the process with a start for all folds; None if a first fit adds nothing to the networks."""
    module = process.sized(table.x.shape[1], table.outputs)()
    try:
        process = replace(process, start=process.search(*table.rows(train)))
        module.load_state_dict(process.fit(*table.rows(train), table.loss, table.outputs))
    except torch.linalg.LinAlgError:
        return None
    return None if table.adds_nothing(module, aside, of_networks) else process


def _best_trees(
    table: _Table, validation: Sequence[tuple[Integers, Integers]], of_networks: Tensor | None
) -> Trees | None:
    """Return as many trees, as deep, as validation rows prefer; None if they prefer none, or the networks alone."""
    best, lowest, first = None, np.inf, None
    some = 1 + int((np.cumsum([len(aside) for _, aside in validation]) < _ENOUGH_ROWS).sum())
    for depth in _DEPTHS if table.x.numel() <= _FEW_NUMBERS else _DEPTH_OF_MANY:
        how, total = Trees(_MOST_TREES, depth, _RATE), np.zeros(_MOST_TREES + 1)
        fits = []
        for train, aside in validation[:some]:
            fits.append(boosted(how, *table.rows(train), table.loss, table.outputs, table.rows(aside)))
            curve = fits[-1].watched
            total += len(aside) * np.pad(curve, (0, len(total) - len(curve)), mode="edge")
        count = int(total.argmin())
        if count >= _FEWEST_TREES and total[count] < lowest:
            best, lowest, first = replace(how, count=count), total[count], fits[0].first(count)
    if best is None or first is None or of_networks is None:
        return best
    module = best.sized(table.x.shape[1], table.outputs)()
    module.load_state_dict(first)
    return None if table.adds_nothing(module, validation[0][1], of_networks) else best


def _least_weight(networks: _Judged, others: Sequence[_Judged]) -> float:
    """Return the weight of networks that are kept for their variables alone.

    With a weight w, errors k times as large as those of the others add w k^2 to the variance: it is small beside 1.
    """
    best = min(each.mean_of(each.crps) for each in others)
    times = networks.mean_of(networks.crps) / max(best, 1e-300)
    return _LEAST_WEIGHT / max(1.0, times) ** 2


@dataclass(frozen=True, eq=False)
class _Judged:
    """Scores of rows that were left out, before calibration."""

    nll: Tensor  # or the CRPS, where there is no density
    crps: Tensor  # of classes, the Brier score
    mean: Tensor | None  # of quantities, and of the logarithms of some
    variance: Tensor | None
    truth: Tensor  # the same
    weights: Tensor | None

    @classmethod
    def of(cls, posterior: Posterior, samples: int) -> _Judged:
        assert posterior.held_out is not None
        some = torch.from_numpy(plan.to_choose(len(posterior.held_out), posterior.seed))
        posterior = judged_by(posterior, some)
        rows = posterior.held_out
        assert rows is not None
        answer = posterior.out_of_fold(samples)
        if hasattr(answer, "linear_moments"):
            crps = answer.crps(rows.truth, by_row=True)
            nll = answer.nll(rows.truth, by_row=True) if posterior.training.likelihood.has_density else crps
            mean, variance, truth = answer.linear_moments(rows.truth) or (None, None, rows.y)
            return cls(nll, crps, mean, variance, truth, rows.weights)
        nll, brier = answer.nll(rows.truth, by_row=True), answer.brier(rows.truth, by_row=True)
        return cls(nll, brier, None, None, rows.y, rows.weights)

    def mean_of(self, scores: Tensor) -> float:
        """Return the mean over rows, by their weights."""
        return float(scores.mean() if self.weights is None else scores @ (self.weights / self.weights.sum()))

    def is_better_than(self, other: _Judged) -> bool:
        """Return True if the CRPS is lower by half a standard error, and the NLL not higher by more than one."""
        (crps, crps_error), (nll, nll_error) = (
            (self.mean_of(gain), float(gain.std()) / len(gain) ** 0.5)
            for gain in (other.crps - self.crps, other.nll - self.nll)
        )
        return crps > _WORTH_IT * crps_error and nll >= -nll_error


def _weights(families: Sequence[_Judged]) -> list[float]:
    """Return the weights of the families, without those that are small."""
    first = families[0]
    if first.mean is None:
        by_weight = None if first.weights is None else first.weights.numpy()
        rows = drawn_by_weight(np.arange(len(first.nll)), by_weight)
        weights = stacking(-torch.stack([family.nll[rows] for family in families]))
    else:
        scale = first.truth.std(0, correction=0).clamp_min(1e-300)  # several targets count the same
        means, variances = (
            torch.stack([each.reshape(first.truth.shape) for each in some])
            for some in zip(*((family.mean, family.variance) for family in families), strict=True)
        )
        counts = None if first.weights is None else first.weights.repeat_interleave(first.truth.shape[1])
        scaled = (means / scale).flatten(1), (variances / scale.square()).flatten(1), (first.truth / scale).flatten()
        weights = crps_stacking(*scaled, counts)
    weights = torch.where(weights >= _LEAST_WEIGHT, weights, 0.0)
    return (weights / weights.sum()).tolist()
