"""A posterior of networks that were trained elsewhere: from their weights, or from what recorders saw of them.

What `wf.marginalise` knows of its own trainings has to be said here: which draws the members are of (labels), what the
numbers that they return mean (likelihood), and in which units they saw the data (scaler).
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from wherefrom.files.digests import digest
from wherefrom.laws import Law, TrajectoryLaw
from wherefrom.likelihoods import Likelihood, Regression
from wherefrom.own_loop.labels import Labelled
from wherefrom.own_loop.matching import Expected, matched
from wherefrom.own_loop.recorder import Recorder, unwrapped
from wherefrom.own_loop.shown import Shown, targets_of, units_of
from wherefrom.own_loop.weights import Weights
from wherefrom.posterior import Posterior
from wherefrom.posterior.fold import Fold
from wherefrom.posterior.member import Member, Origin, family_of
from wherefrom.posterior.networks import build_networks, factories
from wherefrom.posterior.point import Algorithm, Training
from wherefrom.training import streams
from wherefrom.training.cohort import Trained
from wherefrom.training.compute import Compute
from wherefrom.training.data import Scaler
from wherefrom.training.network import Network
from wherefrom.training.precision import agree
from wherefrom.training.torch_classes import TorchOptimiser
from wherefrom.training.workers import available
from wherefrom.variables import Design, Dropout, Iterations, Run
from wherefrom.variables.family import Factory

# A name and nothing to train with; it has a learning rate and a batch size because every algorithm has.
ELSEWHERE = Algorithm(TorchOptimiser("elsewhere", None), lr=0.0, batch_size=1)


def from_members(
    members: Sequence[Any],
    *,
    model: Factory | Mapping[str, Factory],
    x: Any = None,
    y: Any = None,
    likelihood: Likelihood | None = None,
    labels: Sequence[Mapping[str, Any]] | None = None,
    finite: Collection[str] = (),
    dropout: Dropout | None = None,
    scaler: Scaler | Mapping[str, Any] | None = None,
    standardise_by: Any = None,
    data: Any = None,
    held_out: Any = None,
    prefix: str | None = None,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    device: str | torch.device = "cpu",
) -> Posterior:
    """See `Posterior.from_members`."""
    if isinstance(members, Mapping | nn.Module | Recorder | str | Path):
        raise TypeError("members is a list, with one entry for each network")
    if not len(members):
        raise ValueError("there are no members")
    if dtype not in (torch.float32, torch.float64):
        raise ValueError(f"dtype must be torch.float32 or torch.float64, not {dtype}")
    families = dict(model) if isinstance(model, Mapping) else None
    if families is not None and not all("F" in label for label in labels or [{}]):
        raise ValueError('several models are families: label every member by its own, as {"F": "wide", "theta0": 0}')
    labelled = Labelled.of(labels, len(members), finite, families)
    given = [_Found.of(members[target_device], target_device) for target_device in labelled.places]
    how = _common_law(given)
    # A recorder's law is of all that it was shown, whenever that was.
    design = Design(labelled.axes, None if how is None else Iterations(how, start=0.0, every=1), dropout)
    if dropout is not None and design.families is None and any("F" in axis.name.split("+") for axis in design.axes):
        raise ValueError("F is a label here, and dropout would have the same name: call the label by another")

    likelihood = Regression() if likelihood is None else likelihood
    shown = Shown.of(x, y, likelihood, data, standardise_by, held_out)
    factory: Any = model if labelled.families is None else next(iter(labelled.families.values()))
    training = Training(factory, ELSEWHERE, 1, likelihood, standardise=scaler is not None or standardise_by is not None)
    example, target_device = shown.example(units_of(scaler, shown, None), dtype), available(device)
    called = factory if shown.joined is None else shown.joined.around(factory)
    targets = shown.targets or targets_of(called, likelihood, example)
    if likelihood.offset(shown.x_names, math.prod(example.shape[1:]), targets) is not None:
        raise ValueError("networks that were trained elsewhere add their exposure themselves: leave exposure out")
    units = units_of(scaler, shown, targets)
    with streams.torch_seeded(seed, "theta0", 0):
        fresh = {
            name: make().to(dtype)
            for name, make in factories(
                training, design, tuple(example.shape[1:]), targets, joined=shown.joined
            ).items()
        }
    members_of: dict[str, list[_Loaded]] = {name: [] for name in fresh}
    loaded = []
    for run, one in zip(labelled.runs, given, strict=True):
        module = fresh[family_of(run)]
        keys = matched(Expected.of(module), one.weights.tensors, prefix, one.who)
        loaded.append(_Loaded(run, one, module, keys))
        members_of[family_of(run)].append(loaded[-1])
    shared = {name: _in_common(each) for name, each in members_of.items()}
    networks = build_networks(
        training, design, design.dropout, example, targets, seed, joined=shown.joined, shared=shared
    )
    networks = {name: network.with_shared(shared[name]) for name, network in networks.items()}

    first: dict[str, str] = {}  # digest of theta -> the member that has it
    mixture = []
    for run, one, module, keys in loaded:
        network = networks[family_of(run)]
        theta = _theta(network, module, keys, one, dtype)
        _check_function(network, one, theta, example)
        if (other := first.setdefault(digest(theta), one.who)) != one.who:
            raise ValueError(
                f"{other} and {one.who} have the same weights. network.state_dict() refers to the weights "
                "themselves, which training goes on to change: keep copy.deepcopy(network.state_dict())"
            )
        law = None if how is None else _law(network, keys, one, theta)
        mixture.append(Member(run, ELSEWHERE, _trained(theta, law, dtype, target_device)))
    _warn_of_outputs(likelihood, networks, mixture, example)
    posterior = Posterior(
        training,
        design,
        {name: network.to(target_device) for name, network in networks.items()},
        Fold(int(seed), shown.schema(targets), units, shown.trained_on, shown.aside),
        Compute(target_device, dtype),
        tuple(mixture),
        Origin(dropout=design.dropout),
    )
    return posterior.fit_noise(shown.aside) if likelihood.fits_noise and shown.aside is not None else posterior


@dataclass(frozen=True, eq=False)
class _Found:
    """A member's weights, and how to speak of it."""

    member: Any
    weights: Weights
    who: str

    @classmethod
    def of(cls, member: Any, number: int) -> _Found:
        who = f"member {number}" + (f" ({member})" if isinstance(member, str | Path) else "")
        try:
            return cls(member, Weights.of(member), who)
        except (ValueError, TypeError) as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(f"{who}: {error}") from None


class _Loaded(NamedTuple):
    """A member with a fresh network of its family, and where the weights of each tensor are."""

    run: Run
    one: _Found
    module: nn.Module
    keys: dict[str, str]  # name in the network -> name in the weights


def _in_common(members: Sequence[_Loaded]) -> dict[str, Tensor]:
    """Return the tensors that no member has trained in the network of model(), and all of them have in common."""
    module, common = members[0].module, {}
    tensors = dict(module.named_parameters()) | dict(module.named_buffers())
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not tensor.requires_grad:
            each = [one.weights.tensors[keys[name]] if name in keys else tensor for _, one, _, keys in members]
            if all(torch.equal(each[0].cpu(), other.cpu()) for other in each[1:]):
                common[name] = each[0].detach().cpu()
    return common


def _common_law(given: Sequence[_Found]) -> TrajectoryLaw | None:
    """Return the law of all members' trajectories; raise if they differ."""
    hows = [None if one.weights.recorder is None else one.weights.recorder.how for one in given]
    for one, how in zip(given, hows, strict=True):
        if how != hows[0]:
            raise ValueError(
                f"{given[0].who} was recorded by {hows[0] or 'no law'}, {one.who} by {how or 'no law'}: t must be "
                "random in the same way in all members, or in none"
            )
    return hows[0]


def _theta(network: Network, module: nn.Module, keys: dict[str, str], one: _Found, dtype: torch.dtype) -> Tensor:
    """A member's theta in the network's layout; what no state dict holds is as in a fresh network.  # (size,)"""
    tensors = dict(module.named_parameters()) | dict(module.named_buffers())
    loaded = {name: one.weights.tensors[key] for name, key in keys.items()}
    for name, tensor in loaded.items():
        if name in network.constants and not name.endswith("num_batches_tracked"):
            if not torch.equal(tensor.cpu(), network.constants[name].cpu()):
                raise ValueError(
                    f"{one.who} holds other numbers in its buffer {name} than the network that model() returns, and "
                    "all members share that: let model() set it"
                )
        elif not bool(torch.isfinite(tensor).all()):
            raise ValueError(f"{one.who} holds numbers in {name} that are not finite: its training has diverged")
    return network.layout.flatten({name: tensor.cpu().to(dtype) for name, tensor in (tensors | loaded).items()})


def _law(network: Network, keys: dict[str, str], one: _Found, theta: Tensor) -> Law:
    """A recorder's law over the network's own layout. What the recorder saw frozen does not vary."""
    recorder, layout = one.weights.recorder, network.layout
    assert recorder is not None
    assert recorder.layout is not None
    seen, law = recorder.layout, recorder.law()
    starts = [0, *torch.tensor(seen.sizes).cumsum(0).tolist()]
    varying = range(seen.trained + seen.moving)
    spans = {seen.names[i]: slice(starts[i], starts[i + 1]) for i in varying}
    trained = set(seen.names[: seen.trained])
    for name in (*layout.names[layout.trained + layout.moving :], *network.shared):
        if keys.get(name) in trained:
            raise ValueError(f"{one.who} was trained in {name}, which is frozen in the network that model() returns")
    still = layout.views(theta)

    def carried(field: str, tensor: Tensor) -> Tensor:
        pieces = []
        for name in layout.names[: layout.trained + layout.moving]:
            if (span := spans.get(keys.get(name, ""))) is not None:
                pieces.append(tensor[..., span])
            else:
                value = still[name].reshape(-1).to(tensor)
                value = value if field in ("mean", "points") else torch.zeros_like(value)
                pieces.append(value.expand(*tensor.shape[:-1], -1))
        return torch.cat(pieces, dim=-1)

    return _with(law, {field: carried(field, tensor) for field, tensor in law.tensors().items()})


def _with(law: Law, tensors: Mapping[str, Tensor]) -> Law:
    """A law of the same kind, of other tensors."""
    kind: Callable[..., Law] = type(law)
    return kind(**tensors)


def _trained(theta: Tensor, law: Law | None, dtype: torch.dtype, device: torch.device) -> Trained:
    """Laws lie in main memory, and deviations that were rounded stay so."""
    moved = None
    if law is not None:
        precisions = {name: torch.bfloat16 if t.dtype == torch.bfloat16 else dtype for name, t in law.tensors().items()}
        moved = _with(law, {name: t.to("cpu", precisions[name]) for name, t in law.tensors().items()})
    return Trained(theta.to(device), moved, [math.nan], None, 0.0, "elsewhere")


def _check_function(network: Network, one: _Found, theta: Tensor, example: Tensor) -> None:
    """A member that is itself a network must answer as the model does with its weights, if it can be asked."""
    if not isinstance(one.member, nn.Module):
        return
    try:
        with torch.no_grad():
            expected = copy.deepcopy(unwrapped(one.member)).to("cpu", theta.dtype).eval()(example)
            answers = network.private("members").call(network.layout.views(theta), example, (), False)
            expected = expected.reshape(answers.shape)
    except Exception:  # it may be called in any other way than the model: then it cannot be asked
        return
    if not agree(answers, expected):
        raise ValueError(
            f"{one.who} gives other answers than the model does with its weights: model() is not what was trained. "
            "Does it have another activation, or other settings?"
        )


def _warn_of_outputs(
    likelihood: Likelihood, networks: Mapping[str, Network], mixture: Sequence[Member], example: Tensor
) -> None:
    """Warn of the first member whose outputs look wrong for this likelihood."""
    for member in mixture:
        network = networks[member.family]
        with torch.no_grad():
            theta = member.trained.last.cpu()
            answers = network.private("members").call(network.layout.views(theta), example, (), False)
        if warning := likelihood.doubt_network(str(member.run), answers, frozenset(), True):
            warnings.warn(warning, stacklevel=4)
            return
