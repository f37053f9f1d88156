"""From model factories to networks: functions of theta, checked against the data, the likelihood and the design."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

from torch import Tensor

from wherefrom.posterior.point import Training
from wherefrom.training import streams
from wherefrom.training.cohort import FitsItself, Sized
from wherefrom.training.network import Network
from wherefrom.training.objective import Objective
from wherefrom.training.streamed import in_memory
from wherefrom.variables import Design, Dropout, Hyperparameters
from wherefrom.variables.family import Factory

PROBE_ROWS = 4  # by which networks are built


def build_networks(
    training: Training, design: Design, dropout: Dropout | None, x: Tensor, targets: int, seed: int
) -> dict[str, Network]:
    """Each family's model as a function, checked against the data, the likelihood, the design and what is dropped."""
    draws_rates = any(isinstance(v, Hyperparameters) and "dropout" in v.names for a in design.axes for v in a.variables)
    if draws_rates and dropout is not None and (dropout.rate is not None or dropout.on == "weights"):
        raise ValueError("the dropout rate is drawn by Hyperparameters(dropout=...): leave it out of Dropout")
    models = factories(training, design, tuple(x.shape[1:]), targets)
    networks = {name: _build_network(f, name, training.likelihood, x, targets, seed) for name, f in models.items()}
    fixed = {name for name, f in factories_as_given(training, design).items() if isinstance(f, FitsItself)}
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


def factories(training: Training, design: Design, inputs: tuple[int, ...], targets: int) -> dict[str, Factory]:
    """Return the model factory of each family; without families, the training's, under no name.

    inputs: shape of a row as networks see it.
    """
    models, outputs = factories_as_given(training, design), training.likelihood.outputs(targets)
    return {name: f.sized(_columns(inputs), outputs) if isinstance(f, Sized) else f for name, f in models.items()}


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
) -> Network:
    the_model = _called(family)
    with streams.torch_seeded(seed, "theta0", 0):
        module = factory().to("cpu", x.dtype if x.is_floating_point() else None)
    try:
        network = Network(module, in_memory(x[:PROBE_ROWS]))
    except (RuntimeError, IndexError) as error:
        hint = "" if x.is_floating_point() else " (whole numbers are taken as indices; for measurements use floats)"
        raise ValueError(f"{the_model} cannot be run on rows of shape {tuple(x.shape[1:])}{hint}: {error}") from error
    likelihood.check_network(the_model, network.outputs, targets)
    if warning := likelihood.doubt_network(the_model, network.probe_answers, network.last_functions, False):
        warnings.warn(warning, stacklevel=5)
    return network
