"""From model factories to networks: functions of theta, checked against the data, the likelihood and the design."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence

from torch import Tensor, nn

from wherefrom.posterior.point import Training
from wherefrom.training import streams
from wherefrom.training.cohort import FitsItself, Sized
from wherefrom.training.joined import JoinedInputs
from wherefrom.training.network import Network
from wherefrom.training.objective import Objective
from wherefrom.training.probing import untrained_in_common
from wherefrom.training.streamed import in_memory
from wherefrom.variables import Design, Dropout, Hyperparameters
from wherefrom.variables.family import Factory

PROBE_ROWS = 4  # by which networks are built


def build_networks(
    training: Training,
    design: Design,
    dropout: Dropout | None,
    x: Tensor,
    targets: int,
    seed: int,
    names: Sequence[str] = (),
    joined: JoinedInputs | None = None,
    shared: Mapping[str, Collection[str]] | None = None,
) -> dict[str, Network]:
    """Each family's model as a function, checked against the data, the likelihood, the design and what is dropped.

    names: of x's columns. joined: the inputs that stand side by side in x, where there are several.
    shared: names of each family's tensors that all members have in common (default None: of those that are not
        trained, all that two draws of the factory have in common).
    """
    draws_rates = any(isinstance(v, Hyperparameters) and "dropout" in v.names for a in design.axes for v in a.variables)
    if draws_rates and dropout is not None and (dropout.rate is not None or dropout.on == "weights"):
        raise ValueError("the dropout rate is drawn by Hyperparameters(dropout=...): leave it out of Dropout")
    models = factories(training, design, tuple(x.shape[1:]), targets, names, joined)
    fixed = {name for name, f in factories_as_given(training, design).items() if isinstance(f, FitsItself)}
    by_name = {name: () if name in fixed else None for name in models} if shared is None else shared
    networks = {
        name: _build_network(f, name, training.likelihood, x, targets, seed, joined, by_name.get(name, ()))
        for name, f in models.items()
    }
    if draws_rates:
        for name, network in networks.items():
            if not network.sites and name not in fixed:
                raise ValueError(
                    f"Hyperparameters(dropout=...) needs units to drop, and {_called(name)} has no nn.Dropout"
                )
    elif dropout is not None:
        networks = {  # those that fit themselves were fitted whole, and have no other sub-network
            name: network if name in fixed else _dropping(network, dropout) for name, network in networks.items()
        }
        if not any(network.sites for network in networks.values()):
            raise ValueError(
                "Dropout() marginalises the sub-networks of a model with dropout; the model has no nn.Dropout. "
                'Dropout(rate=0.05, on="weights") drops weights of any model'
            )
        if not any(rate > 0 for network in networks.values() for rate in network.rates):
            raise ValueError("every dropout rate in the model is zero; give one, as Dropout(rate=0.05)")
    return networks


def _dropping(network: Network, dropout: Dropout) -> Network:
    """Return the network as it is trained and sampled; one without dropout has no other sub-network than itself."""
    if dropout.rate is None:
        return network
    return (network.with_weight_dropout if dropout.on == "weights" else network.with_dropout_rate)(dropout.rate)


def _called(family: str) -> str:
    return f"the model {family!r}" if family else "the model"


def factories(
    training: Training,
    design: Design,
    inputs: tuple[int, ...],
    targets: int,
    names: Sequence[str] = (),
    joined: JoinedInputs | None = None,
) -> dict[str, Factory]:
    """Return the model factory of each family; without families, the training's, under no name.

    inputs: shape of a row as networks see it. names, joined: as in `build_networks`.
    """
    models, outputs = factories_as_given(training, design), training.likelihood.outputs(targets)
    if joined is not None:
        if of_tables := [name for name, f in models.items() if isinstance(f, Sized)]:
            raise ValueError(
                f"{_called(of_tables[0])} takes a single table, but x holds several inputs: join them, or give "
                "a network whose forward takes them"
            )
        return {name: joined.around(f) for name, f in models.items()}
    offset = training.likelihood.offset(tuple(names), inputs[0] if len(inputs) == 1 else 0, targets)
    sized = {name: f.sized(_columns(inputs), outputs) if isinstance(f, Sized) else f for name, f in models.items()}
    if offset is None:
        return sized
    if others := [name for name, f in models.items() if isinstance(f, FitsItself)]:
        raise ValueError(f"{_called(others[0])} fits itself, and cannot take an exposure: use networks")
    return {name: offset.around(f, outputs) for name, f in sized.items()}


def factories_as_given(training: Training, design: Design) -> Mapping[str, Factory]:
    """Return the model factory of each family, which may not know x's and y's sizes yet."""
    return {"": training.model} if design.families is None else design.families.factories


def _columns(inputs: tuple[int, ...]) -> int:
    if len(inputs) != 1:
        raise ValueError(f"this model takes a table, but x has rows of shape {inputs}")
    return inputs[0]


def _build_network(
    factory: Factory,
    family: str,
    likelihood: Objective,
    x: Tensor,
    targets: int,
    seed: int,
    joined: JoinedInputs | None,
    shared: Collection[str] | None,
) -> Network:
    """Build the network of one family; `shared` is None where two draws of the factory show it."""
    the_model = _called(family)
    module = _drawn(factory, x, seed, 0)
    if shared is None:
        shared = untrained_in_common(module, _drawn(factory, x, seed, 1)) if _has_frozen(module) else ()
    try:
        network = Network(module, in_memory(x[:PROBE_ROWS]), shared)
    except (RuntimeError, IndexError, TypeError) as error:
        hint = "" if x.is_floating_point() else " (whole numbers are taken as indices; for measurements use floats)"
        shapes = tuple(x.shape[1:]) if joined is None else ", ".join(map(str, joined.shapes))
        raise ValueError(f"{the_model} cannot be run on rows of shape {shapes}{hint}: {error}") from error
    likelihood.check_network(the_model, network.outputs, targets)
    if network.runs_frozen_part_in_every_step:
        warnings.warn(
            f"the frozen part of {the_model} runs in every step, which is slower: torch.fx cannot follow the forward "
            f"({network.not_followed}), so its features cannot be computed once. Use nn.Sequential(backbone, head), or "
            "a forward without branches on numbers",
            stacklevel=5,
        )
    if warning := likelihood.doubt_network(the_model, network.probe_answers, network.last_functions, False):
        warnings.warn(warning, stacklevel=5)
    return network


def _drawn(factory: Factory, x: Tensor, seed: int, draw: int) -> nn.Module:
    """Return a draw of theta0, in the precision of x."""
    with streams.torch_seeded(seed, "theta0", draw):
        return factory().to("cpu", x.dtype if x.is_floating_point() else None)


def _has_frozen(module: nn.Module) -> bool:
    """Return True if a module has numbers that are not trained: frozen parameters, or buffers."""
    tensors = (*module.parameters(), *module.buffers())
    return any(tensor.is_floating_point() and not tensor.requires_grad for tensor in tensors)
