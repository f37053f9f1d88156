"""Monte Carlo: theta_k ~ p(theta | D, ...), and the network's answer for each.

Within a member, t and F are sampled. Where both are, samples come in blocks of four, two thetas crossed with two
sub-networks,

    f(theta_1, omega_1)  f(theta_1, omega_2)
    f(theta_2, omega_1)  f(theta_2, omega_2)

so that what theta and what the mask does to the answer can be told apart, with nearly as many independent thetas as
there would be without blocks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wherefrom.laws import Law, beside
from wherefrom.predictive.batch_norm import Refresh, Sampled
from wherefrom.training import streams
from wherefrom.training.network import Network
from wherefrom.training.probing import Site
from wherefrom.training.workers import available_cores, on_threads, one_core

_CALL_NUMBERS = 2**21  # activations of one call: 8 MB in single precision
_MOST_ROWS, _ROW_NUMBERS = 1024, 2**25  # of one call: activations of 128 MB, where a single row has many
_THREAD_NUMBERS = 2**23  # activations in all that are worth a second thread
_TELLING_NUMBERS = 64  # of a theta, before all of it is compared
_THETAS_IN_A_BLOCK, _BLOCK_NUMBERS = 20, 2**23  # fewer for large networks, whatever is asked for


@dataclass(frozen=True)
class Plan:
    """The theta and the mask that each sample of a member takes."""

    samples: int
    vary_theta: bool
    vary_mask: bool

    @classmethod
    def of(cls, samples: int, vary_theta: bool, vary_mask: bool) -> Plan:
        if int(samples) != samples or samples < 1:
            raise ValueError(f"samples must be a whole number, at least 1; it is {samples!r}")
        if not (vary_theta or vary_mask):
            return cls(1, False, False)  # every sample would be the same
        if vary_theta and vary_mask:
            samples = -(-samples // 4) * 4
        return cls(int(samples), vary_theta, vary_mask)

    @property
    def in_blocks(self) -> bool:
        return self.vary_theta and self.vary_mask

    def theta(self, sample: NDArray[np.int64]) -> NDArray[np.int64]:
        if self.in_blocks:
            return sample // 4 * 2 + sample % 4 // 2
        return sample if self.vary_theta else np.zeros_like(sample)

    def mask(self, sample: NDArray[np.int64]) -> NDArray[np.int64]:
        return sample // 4 * 2 + sample % 2 if self.in_blocks else sample


@dataclass(frozen=True, eq=False)
class RandomTheta:
    """A member's theta as it is sampled: its law, what does not vary, and its name in the streams."""

    law: Law  # in main memory, wherever the network runs
    fixed: Tensor  # the rest of theta, which no law speaks of, where the network runs
    name: tuple[str | int, ...]
    mean_of: Law | None = None  # the law whose mean `law` is, if that is all that it is

    def sampled(self, seed: int, number: int) -> Sampled:
        """Return the origin of one sample of theta, by which it is known from all others."""
        if self.mean_of is not None or not self.law.is_random:
            return Sampled(self.mean_of or self.law)
        return Sampled(self.law, seed, number)


def outputs(
    network: Network,
    members: Sequence[RandomTheta],
    plan: Plan,
    x: Tensor,
    seed: int,
    refresh: Refresh | None = None,
    autocast: torch.dtype | None = None,
    elsewhere: Callable[[Tensor, Sequence[Job]], list[NDArray[Any]]] | None = None,
) -> Tensor:
    """The network's outputs for every member, sample and row, in bounded memory.  # (members, samples, rows, out)

    autocast: in which the network multiplies, where that is not theta's own type (default: None).
    elsewhere: has jobs done by other processes, as `answer_job` does them (default None: threads of this one).
    """
    has_masks = plan.vary_mask and bool(network.sites)
    if not has_masks and not any(member.law.is_random for member in members):
        if plan.samples > 1:
            once = outputs(network, members, Plan(1, False, False), x, seed, refresh, autocast, elsewhere)
            return once.expand(-1, plan.samples, -1, -1).contiguous()  # all samples are the same
        different, which = _different(members)
        if len(different) < len(members) and elsewhere is None:  # others know the members by their numbers
            return outputs(network, different, plan, x, seed, refresh, autocast)[which]
    result = torch.empty(len(members), plan.samples, len(x), network.outputs, dtype=members[0].law.mean.dtype)
    # Whole blocks of thetas, in jobs that are small enough to be shared out evenly.
    size = 2 * _THETAS_IN_A_BLOCK if plan.in_blocks else _THETAS_IN_A_BLOCK
    starts = range(0, plan.samples, size)
    jobs = [(k, np.arange(a, min(a + size, plan.samples))) for k in range(len(members)) for a in starts]
    if elsewhere is not None:
        given = elsewhere(x, [Job(k, plan, samples, seed, autocast) for k, samples in jobs])
        for (k, samples), answers in zip(jobs, given, strict=True):
            result.numpy()[k, samples[0] : samples[-1] + 1] = answers
        return result
    work = result[..., 0].numel() * network.numbers_per_row
    threads = min(available_cores(), len(jobs)) if x.device.type == "cpu" and work > _THREAD_NUMBERS else 1
    networks = [network.private(worker) for worker in range(threads)]  # of this thread, for those that it starts

    def answer(worker: int) -> None:
        thetas: Thetas | None = None
        for k, samples in jobs[worker::threads]:
            if thetas is None or thetas.member is not members[k]:
                thetas = Thetas(members[k], seed)
            _answer(networks[worker], thetas, plan, samples, x, refresh, autocast, result[k, samples[0] :])

    on_threads(answer, range(threads), threads)
    return result


def outputs_of_points(network: Network, members: Sequence[RandomTheta], x: Tensor) -> Tensor:
    """The network's outputs for members whose thetas are points, as many at a time as a call takes.

    They may differ from those of `outputs`, which asks each member alone, in their last bits.
    # (members, rows, outputs)
    """
    result = torch.empty(len(members), len(x), network.outputs, dtype=members[0].law.mean.dtype)
    together = _evenly(len(members), _CALL_NUMBERS // max(1, network.numbers_per_row * len(x)))
    with torch.no_grad(), one_core():
        for start in _starts(len(members), together):
            some = slice(start, start + together)
            thetas = [torch.cat([member.law.mean.to(member.fixed), member.fixed]) for member in members[some]]
            result[some] = network.answers(torch.stack(thetas), x, [])
    return result


def _different(members: Sequence[RandomTheta]) -> tuple[list[RandomTheta], list[int]]:
    """Return the members whose thetas differ, and for each member the number of the one among them that it is.

    Those of a family without theta0, as trees are, stand for all draws of it.
    """
    by_first_numbers: dict[bytes, list[int]] = defaultdict(list)
    different: list[RandomTheta] = []
    which = []
    for member in members:
        theta = member.law.mean
        alike = by_first_numbers[theta[:_TELLING_NUMBERS].cpu().numpy().tobytes()]
        for number in alike:
            other = different[number]
            if torch.equal(other.law.mean, theta) and torch.equal(other.fixed, member.fixed):
                which.append(number)
                break
        else:
            alike.append(len(different))
            which.append(len(different))
            different.append(member)
    return different, which


@dataclass(frozen=True, eq=False)
class Job:
    """Some samples of one member."""

    member: int  # its number among those with the same network
    plan: Plan
    samples: NDArray[np.int64]
    seed: int
    autocast: torch.dtype | None = None


def answer_job(common: tuple[Network, Refresh | None], member: RandomTheta, x: Tensor, job: Job) -> NDArray[Any]:
    """Return a member's answers for the samples of a job, in any process.  # (samples, rows, outputs)"""
    network, refresh = common
    result = torch.empty(len(job.samples), len(x), network.outputs, dtype=member.law.mean.dtype)
    with one_core():
        thetas = Thetas(member, job.seed)
        _answer(network.private("answers"), thetas, job.plan, job.samples, x, refresh, job.autocast, result)
    return result.numpy()


def _answer(
    network: Network,
    thetas: Thetas,
    plan: Plan,
    samples: NDArray[np.int64],
    x: Tensor,
    refresh: Refresh | None,
    autocast: torch.dtype | None,
    result: Tensor,
) -> None:
    """Fill in some of a member's answers.  # result: (these samples, rows, outputs)"""
    rows = _evenly(len(x), min(_MOST_ROWS, max(1, _ROW_NUMBERS // network.numbers_per_row)))
    together = _evenly(len(samples), _CALL_NUMBERS // max(1, network.numbers_per_row * rows))
    member, seed = thetas.member, thetas.seed
    with torch.no_grad():
        for first in _starts(len(samples), together):
            some = samples[first : first + together]
            numbers = plan.theta(some)
            theta = thetas.get(numbers)
            if refresh is not None:
                theta = refresh(network, theta, [member.sampled(seed, number) for number in numbers.tolist()])
            sites = enumerate(network.sites) if plan.vary_mask else ()
            masks = [prediction_masks(site, i, member, plan.mask(some), seed) for i, site in sites]
            given = [torch.from_numpy(mask).to(theta) for mask in masks]
            for row in _starts(len(x), rows):
                answers = network.answers(theta, x[row : row + rows], given, autocast)
                result[some[0] - samples[0] : some[-1] + 1 - samples[0], row : row + rows] = answers


def _evenly(count: int, most: int) -> int:
    """Number of items a turn, in as few turns as `most` allows, and of about the same size."""
    turns = -(-count // max(1, most))
    return -(-count // turns)


def _starts(count: int, size: int) -> Iterator[int]:
    """Return where turns of one size begin. The last is whole, too, and repeats some of the one before:
    what is recorded for one size would have to be recorded again for another."""
    return (min(start, count - size) for start in range(0, count, size))


class Thetas:
    """A member's samples of theta by their numbers, drawn a block at a time where the network runs, if its law has room
    there, and else where the law lies; the last block is kept."""

    def __init__(self, member: RandomTheta, seed: int) -> None:
        self.member, self.seed, self.law = member, seed, beside(member.law, member.fixed.device)
        self.size = max(1, min(_THETAS_IN_A_BLOCK, _BLOCK_NUMBERS // member.law.mean.numel()))
        self.kept = (-1, member.law.mean)

    def get(self, numbers: NDArray[np.int64]) -> Tensor:
        """The samples with these ascending numbers.  # (numbers, size)"""
        if self.member.law.is_random:
            cuts = np.flatnonzero(np.diff(numbers // self.size)) + 1
            parts = [self._block(int(own[0] // self.size))[own % self.size] for own in np.split(numbers, cuts)]
            theta = parts[0] if len(parts) == 1 else torch.cat(parts)
        else:
            theta = self.member.law.mean.to(self.member.fixed.device).expand(len(numbers), -1)
        if not self.member.fixed.numel():
            return theta
        return torch.cat([theta, self.member.fixed.expand(len(numbers), -1)], dim=1)

    def _block(self, block: int) -> Tensor:
        if self.kept[0] != block:
            generator = streams.torch_generator(self.seed, "t", *self.member.name, block)
            self.kept = block, self.law.sample(self.size, generator).to(self.member.fixed.device)
        return self.kept[1]


def prediction_masks(
    site: Site, index: int, member: RandomTheta, masks: NDArray[np.int64], seed: int
) -> NDArray[np.float64]:
    """The masks with the given numbers at one site, the same for all rows.  # (masks, 1, *site shape)"""
    key = np.array([[streams.key(seed, "F", *member.name, "site", index)]], dtype=np.uint64)
    cells = np.arange(site.cells, dtype=np.uint64)[None, :]
    uniform = streams.unit(streams.numbers(key, streams.address(masks[:, None], cells)))
    kept = np.where(uniform >= site.rate, site.scale, 0.0)
    return kept.reshape(len(masks), 1, *site.shape)
