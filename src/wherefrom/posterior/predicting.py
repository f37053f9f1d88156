"""From a posterior to its predictions: samples or moments of all members, mixed, with noise and calibration."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from wherefrom.likelihoods.likelihood import MemberScores
from wherefrom.posterior.groups import Group, assembled, groups, inputs, refreshing
from wherefrom.posterior.left_out import outputs_left_out
from wherefrom.posterior.weighing import crossed_axes, explicit_weights, missing, turns
from wherefrom.predictive import monte_carlo
from wherefrom.predictive.components import CrossedAxis
from wherefrom.predictive.conformal import CrossConformal
from wherefrom.predictive.mixture import WHOLE_ROWS, Mixture
from wherefrom.predictive.shape import Shape
from wherefrom.training import streams
from wherefrom.training.data import Rows, as_rows
from wherefrom.training.executor import Calls
from wherefrom.training.memory import as_bytes, in_words
from wherefrom.training.precision import check_autocast

if TYPE_CHECKING:
    from wherefrom.posterior.posterior import Posterior
    from wherefrom.predictive.one_shot.member import Covariance, Head

Method = Literal["monte_carlo", "one_shot", "linearised", "auto"]

_PROBES = 128
_TOLERANCE = 0.05  # relative error of moments that are good
_BLOCK_NUMBERS = 2_000_000  # answers at a time
_MOST_ROWS = 4096  # of a block
_BYTES_OF_AN_ANSWER = 32  # in single precision, once as it is, and in double precision while scores are computed


def thetas(posterior: Posterior, n: int, seed: int) -> list[dict[str, Tensor]]:
    """Draw n thetas from the mixture, members taking turns by their weights."""
    if n < 1:
        raise ValueError(f"give at least one sample to draw, not {n}")
    whose = np.array(turns(posterior, n))
    drawn: dict[int, dict[str, Tensor]] = {}
    for group in groups(posterior):
        network, refresh = group.network, refreshing(posterior, group)
        for member, random in zip(group.numbers, group.thetas, strict=True):
            samples = monte_carlo.Thetas(random, seed)
            for number, k in enumerate(np.flatnonzero(whose == member).tolist()):
                theta = samples.get(np.array([number]))
                if refresh is not None:
                    theta = refresh(network.private("sample"), theta, [random.sampled(seed, number)])
                drawn[k] = network.layout.views(theta[0]) | group.whole.shared
    return [drawn[k] for k in range(n)]


def predicted(
    posterior: Posterior,
    x: Any,
    samples: int,
    method: Method,
    seed: int | None = None,
    tolerance: float = _TOLERANCE,
    drawn: CrossedAxis | None = None,
    left_out_by: Tensor | None = None,
    autocast: torch.dtype | None = None,
    elsewhere: Elsewhere | None = None,
) -> Any:
    """Predict at x in one of the ways that there are; rows that a draw of D left out, by its members alone.

    drawn: a variable whose draws are successive rows of x, one for each draw of each predicted row (default: none).
    autocast: in which networks multiply when they are sampled, where that is not their own type (default: None).
    elsewhere: other processes that sample the networks' outputs (default: none).
    """
    mixture = outputs_at(posterior, x, samples, method, seed, tolerance, drawn, left_out_by, autocast, elsewhere)
    return predictive(posterior, mixture, left_out_by)


def outputs_at(
    posterior: Posterior,
    x: Any,
    samples: int,
    method: Method,
    seed: int | None = None,
    tolerance: float = _TOLERANCE,
    drawn: CrossedAxis | None = None,
    left_out_by: Tensor | None = None,
    autocast: torch.dtype | None = None,
    elsewhere: Elsewhere | None = None,
) -> Mixture:
    """Return the networks' outputs at x, before the likelihood and the calibration; arguments as in `predicted`."""
    if method not in get_args(Method):
        raise ValueError(f'method must be "monte_carlo", "one_shot", "linearised" or "auto", not {method!r}')
    check_autocast(autocast, posterior.device)
    method = _best_method(posterior, x, tolerance) if method == "auto" else method
    seed = posterior.seed if seed is None else seed
    if elsewhere is not None and left_out_by is not None:
        raise ValueError(
            "other processes have all members, and cannot tell those that left a row out: leave executor out"
        )

    def outputs(part: Posterior, some: Any) -> Mixture:
        if method == "linearised":
            return linearised_outputs(part, some)
        if method == "one_shot":
            return moments_of_outputs(part, some, None, "low_rank", None)
        return sampled_outputs(part, some, samples, seed, autocast, elsewhere)

    if left_out_by is None:
        mixture = outputs(posterior, x)
    else:
        by = left_out_by if drawn is None else left_out_by.repeat_interleave(drawn.draws)
        mixture = outputs_left_out(posterior, posterior.schema.inputs(x), by, outputs)
    return mixture if drawn is None else mixture.crossed_with(drawn)


def outputs_to_judge(
    posterior: Posterior, rows: Rows, samples: int, method: Literal["monte_carlo", "linearised"] | None
) -> Mixture:
    """Sample the outputs at rows that were not trained on, or at each those of the members that did not see it.

    method: of the networks themselves or of their linear expansions (None: the one that the law belongs to).
    """
    design = posterior.design
    if method is None:
        is_linear = design.iterations is not None and getattr(design.iterations.law, "is_linearised", False)
        method = "linearised" if is_linear and design.dropout is None else "monte_carlo"

    def outputs(part: Posterior, x: Any) -> Mixture:
        if method == "linearised":
            return _sampled_expansions(part, x, samples)
        return sampled_outputs(part, x, samples, posterior.seed)

    if rows.left_out_by is None:
        return outputs(posterior, rows.x)
    return outputs_left_out(posterior, rows.x, rows.left_out_by, outputs)


@dataclass(frozen=True, eq=False)
class Block:
    """The prediction of some rows, filled up to a whole multiple of some number with the last row again.

    Matrices of other heights may be multiplied in another order; so, a row has the same answer to the last bit alone
    and among others.
    """

    rows: slice
    prediction: Any

    def __len__(self) -> int:
        return int(self.rows.stop - self.rows.start)

    @property
    def filled(self) -> Tensor:
        """Number of each row that is predicted, the last one again where it was filled up."""
        return torch.arange(self.rows.start, self.rows.start + len(self.prediction)).clamp_max(self.rows.stop - 1)

    def cut(self, values: Any) -> Any:
        """Return what belongs to the rows themselves of what there is for all that are predicted."""
        return values[: len(self)]


def in_blocks(
    posterior: Posterior,
    rows: int,
    take: Callable[[slice], Any],
    samples: int,
    method: Method = "monte_carlo",
    drawn: CrossedAxis | None = None,
    left_out_by: Tensor | None = None,
    autocast: torch.dtype | None = None,
    elsewhere: Elsewhere | None = None,
) -> Iterator[Block]:
    """Predict some rows at a time, since all samples of all rows may be more than fits into memory.

    `take` gives the x of a slice of the rows; with a variable `drawn`, all its draws of each row one after the other.
    """
    draws = 1 if drawn is None else drawn.draws
    answers = len(posterior) * samples * posterior.schema.targets * draws
    most = max(WHOLE_ROWS, min(_MOST_ROWS, _block_numbers(posterior) // answers) // WHOLE_ROWS * WHOLE_ROWS)
    for start in range(0, rows, most):
        block = slice(start, min(rows, start + most))
        x = posterior.schema.inputs(take(block))
        missing = -len(x) % (WHOLE_ROWS * draws)
        filled = torch.cat([x, x[-1:].expand(missing, *x.shape[1:])])
        by = None if left_out_by is None else left_out_by[block]
        by = by if by is None else torch.cat([by, by[-1:].expand(missing // draws)])
        prediction = predicted(
            posterior,
            filled,
            samples,
            method,
            drawn=drawn,
            left_out_by=by,
            autocast=autocast,
            elsewhere=elsewhere,
        )
        yield Block(block, prediction)


def _block_numbers(posterior: Posterior) -> int:
    """Return how many answers to compute at a time."""
    limit = posterior.compute.memory_limit
    return _BLOCK_NUMBERS if limit is None else min(_BLOCK_NUMBERS, as_bytes(limit) // _BYTES_OF_AN_ANSWER)


def _check_memory(posterior: Posterior, rows: int, samples: int) -> None:
    """Raise if the answers to all rows at once would take more than the limit."""
    limit = posterior.compute.memory_limit
    outputs = max(network.outputs for network in posterior.networks.values())
    each = len(posterior) * samples * outputs * _BYTES_OF_AN_ANSWER
    if limit is not None and rows * each > as_bytes(limit):
        raise ValueError(
            f"memory_limit is {limit}, but predicting {rows:,} rows by {len(posterior)} members with {samples} samples "
            f"each takes about {in_words(rows * each)}: predict {max(1, as_bytes(limit) // each):,} rows at a time, or "
            "take fewer samples"
        )


# ---------------------------------------------------------------------- by samples


class Elsewhere:
    """Other processes, which have the members of a posterior and sample their outputs."""

    def __init__(self, calls: Calls, of_groups: list[Group]) -> None:
        self.calls, self.first = calls, [0]  # number of each group's first member among all parts
        for group in of_groups:
            self.first.append(self.first[-1] + len(group.thetas))

    def answers(self, group: int, x: Tensor, jobs: Sequence[monte_carlo.Job]) -> list[Any]:
        """Return the answers of a group's members to rows, for the samples of each job."""
        each = [(group, self.first[group] + job.member, job) for job in jobs]
        return self.calls.run(monte_carlo.answer_job, x, each)


@contextmanager
def sampling_elsewhere(posterior: Posterior, executor: Any, method: Method) -> Iterator[Elsewhere | None]:
    """Send the members to the processes of an executor, and yield what samples there; None where nothing does."""
    if executor is None or method in ("one_shot", "linearised"):
        yield None
        return
    if not hasattr(executor, "calling"):
        raise TypeError(f"{executor!r} trains, but does not predict: use wf.executors.Processes or wf.executors.Ray")
    if posterior.device.type != "cpu":
        raise ValueError(f"executors predict on CPUs, but the posterior is on {posterior.device}: leave executor out")
    each = groups(posterior)
    common = [(group.network, refreshing(posterior, group)) for group in each]
    with executor.calling(common, [theta for group in each for theta in group.thetas]) as calls:
        yield Elsewhere(calls, each)


def sampled_outputs(
    posterior: Posterior,
    x: Any,
    samples: int,
    seed: int,
    autocast: torch.dtype | None = None,
    elsewhere: Elsewhere | None = None,
) -> Mixture:
    """Sample the networks' outputs at x, `samples` times for each member; here, or elsewhere."""
    rows, design = inputs(posterior, x), posterior.design
    plan = monte_carlo.Plan.of(samples, vary_theta=design.iterations is not None, vary_mask=design.dropout is not None)
    _check_memory(posterior, len(rows), plan.samples)
    answers = {}
    for number, group in enumerate(groups(posterior)):
        refresh = refreshing(posterior, group)
        there = None if elsewhere is None else partial(elsewhere.answers, number)
        answers[group] = monte_carlo.outputs(
            group.network, group.thetas, plan, group.seen(rows), seed, refresh, autocast, there
        )
    return _mixture(posterior, assembled(answers), plan)


def member_scores(posterior: Posterior, data: Any) -> MemberScores:
    """Return the scores of each member by itself, row by row; members are points, of which nothing is sampled.

    Noise that is to be fitted is fitted for each member, on these rows.
    """
    likelihood = posterior.training.likelihood
    rows = as_rows(data, likelihood, posterior.schema.classes)
    x = inputs(posterior, rows.x)
    outputs = assembled(
        {
            group: monte_carlo.outputs_of_points(group.network.private("scores"), group.thetas, group.seen(x))
            for group in groups(posterior)
        }
    )
    scores = likelihood.member_scores(outputs, rows.y, posterior.scaler)
    return scores._replace(nll=scores.nll.nan_to_num(nan=math.inf), crps=scores.crps.nan_to_num(nan=math.inf))


# ---------------------------------------------------------------------- by moments


def by_moments(posterior: Posterior, x: Any, x_std: Any, covariance: Covariance, rank: int | None) -> Any:
    """Predict at x by one pass of moments for each member."""
    return predictive(posterior, moments_of_outputs(posterior, x, x_std, covariance, rank))


def moments_of_outputs(posterior: Posterior, x: Any, x_std: Any, covariance: Covariance, rank: int | None) -> Mixture:
    """Compute mean and variance of each member's outputs at x."""
    from wherefrom.predictive.one_shot.propagate import propagate

    design, head = posterior.design, head_of(posterior)
    rows, x_variance = inputs(posterior, x), _input_variance(posterior, x, x_std)
    probes = None if rank is None else _probes(posterior)
    parts = {
        group: propagate(
            group.network,
            group.thetas,
            group.seen(rows),
            vary_theta=design.iterations is not None,
            vary_mask=design.dropout is not None,
            x_variance=x_variance,
            covariance=covariance,
            rank=rank,
            probes=None if probes is None else group.seen(probes),
            refresh=refreshing(posterior, group),
            head=head,
        )
        for group in groups(posterior, whole=x_variance is not None)
    }
    components = max(part.mean.shape[1] for part in parts.values())  # one where nothing is random within members
    mean, spread = (
        assembled({group: each(part).expand(-1, components, -1, -1) for group, part in parts.items()})
        for each in (attrgetter("mean"), attrgetter("variance"))
    )

    def named(name: str) -> str:
        """Components within members, as dropout is called in this design."""
        return " x ".join(design.of_masks if part == "F" else part for part in name.split(" x "))

    def within() -> dict[str, Tensor]:
        by_group = {group: part.within() for group, part in parts.items()}
        names = next(iter(by_group.values()))
        return {named(name): assembled({group: part[name] for group, part in by_group.items()}) for name in names}

    plan = monte_carlo.Plan(mean.shape[1], vary_theta=False, vary_mask=False)
    moments = {"spread": spread, "within": within, "covariance": covariance}
    return _mixture(posterior, mean, plan, **moments)


def linearised_outputs(posterior: Posterior, x: Any) -> Mixture:
    """Compute mean and variance of each member's outputs at x, by the slopes of its outputs at the law's mean."""
    from wherefrom.predictive.linearised import linearised
    from wherefrom.predictive.one_shot.graph import NoRuleError

    design, head = posterior.design, head_of(posterior)
    if design.dropout is not None:
        raise NoRuleError(
            'method="linearised" expands the outputs in the weights alone, and dropout is marginalised, too: use '
            'method="monte_carlo", or posterior.marginalising(...) without F'
        )
    rows = inputs(posterior, x)
    parts = {
        group: linearised(
            group.network,
            group.thetas,
            group.seen(rows),
            design.iterations is not None,
            refreshing(posterior, group),
            head,
        )
        for group in groups(posterior)
    }
    mean, spread = (assembled({group: part[k] for group, part in parts.items()}) for k in range(2))

    def within() -> dict[str, Tensor]:
        return {"t": spread.double().mean(1)} if design.iterations is not None else {}

    plan = monte_carlo.Plan(1, vary_theta=False, vary_mask=False)
    return _mixture(posterior, mean, plan, spread=spread, within=within, covariance="linearised")


def _sampled_expansions(posterior: Posterior, x: Any, samples: int) -> Mixture:
    """Sample the outputs of the networks' linear expansions, each row and output by itself."""
    moments = linearised_outputs(posterior, x)
    assert moments.spread is not None
    shape = (len(moments.answers), samples, *moments.answers.shape[2:])
    generator = streams.torch_generator(posterior.seed, "t", "linear expansion")
    normal = torch.randn(shape, generator=generator, dtype=moments.answers.dtype)
    plan = monte_carlo.Plan(samples, vary_theta=True, vary_mask=False)
    return _mixture(posterior, moments.answers + moments.spread.sqrt() * normal, plan)


def _best_method(posterior: Posterior, x: Any, tolerance: float) -> Method:
    """Return the first way without samples whose errors are within the tolerance on these rows, and remember them."""
    from wherefrom.predictive.one_shot.check import remembered

    if posterior.training.likelihood.head == "none":
        return "monte_carlo"
    if not posterior.design.sampled:  # nothing is uncertain within members, and a single sample is exact
        return "monte_carlo"
    methods: tuple[Literal["one_shot", "linearised"], ...] = ("one_shot", "linearised")
    for method in methods:
        check = remembered(posterior, method, partial(posterior.check_one_shot, x, method=method))
        if check is not None and check.is_within(tolerance):
            return method
    return "monte_carlo"


def head_of(posterior: Posterior) -> Head:
    """Return what is applied to the outputs; raise where the likelihood cannot take their moments."""
    likelihood = posterior.training.likelihood
    if likelihood.head == "none":
        raise ValueError(
            f"{likelihood} has no one-shot prediction: the moments of single outputs do not give those of "
            f"{likelihood.target}. Use predict(x, samples=...), which samples"
        )
    return likelihood.head


def _probes(posterior: Posterior) -> Tensor | None:
    """Return rows by which the shared deviations of theta are chosen; None where x is standardised: normal ones do."""
    if posterior.training.standardise is True and posterior.schema.joined is None:
        return None
    if posterior.rows is None:
        raise ValueError(
            "rank needs training rows where x is not only standardised: give them to wf.load(..., data=(x, y))"
        )
    step = -(-len(posterior.rows) // _PROBES)
    return inputs(posterior, posterior.rows.x[::step])


def _input_variance(posterior: Posterior, x: Any, x_std: Any) -> Tensor | None:
    """Return the inputs' own noise as a variance, standardised as x is."""
    if x_std is None:
        return None
    rows = posterior.schema.inputs(x)
    if not rows.is_floating_point():
        raise ValueError("x_std is for measurements; whole numbers are taken as indices")
    if posterior.schema.joined is not None:
        raise ValueError("x_std is for a single input, and the model was trained on several")
    if posterior.scaler.knots is not None:
        raise ValueError("x_std is not for networks that see their inputs in pieces: train with standardise=True")
    given = x_std.detach().cpu() if isinstance(x_std, Tensor) else np.asarray(x_std)
    std = torch.as_tensor(given, dtype=torch.float64)
    if std.shape not in ((), rows.shape[1:], rows.shape):
        raise ValueError(
            f"x_std has shape {tuple(std.shape)}, but x has {tuple(rows.shape)}: give one number, one for each "
            "column, or one for each entry"
        )
    std = std.expand(rows.shape)
    if not bool((std >= 0).all()):
        raise ValueError("x_std must not be negative, nor missing")
    return (std / posterior.scaler.x_std).square().to(posterior.dtype).to(posterior.device)


# ---------------------------------------------------------------------- as predictions


def _mixture(posterior: Posterior, outputs: Tensor, plan: monte_carlo.Plan, **moments: Any) -> Mixture:
    """Put the members' outputs together with their weights and labels."""
    return Mixture(
        outputs,
        plan,
        crossed_axes(posterior),
        missing(posterior),
        weights=explicit_weights(posterior),
        **moments,
    )


def predictive(posterior: Posterior, outputs: Mixture, left_out_by: Tensor | None = None) -> Any:
    """Let the likelihood make a prediction of the outputs, and calibrate it; rows left out, by the others."""
    likelihood = posterior.training.likelihood
    prediction: Any = likelihood.predictive(outputs, posterior.schema, posterior.scaler, posterior.fitted_noise)
    for calibration in posterior.calibration:
        if left_out_by is not None and isinstance(calibration, CrossConformal | Shape):
            calibration = calibration.of_left_out(left_out_by)
        prediction = calibration.applied(prediction)
    return prediction
