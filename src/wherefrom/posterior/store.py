"""A run on disk: a safetensors file for the numbers, `posterior.json` for everything else.

Nothing is pickled: loading a run executes no code but the model factory that the user gives. The JSON names the file of
the numbers, which has a new name in every write, and comes last: a folder holds a whole run, the old or the new one.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from wherefrom.files import atomic, codec
from wherefrom.files.reading import blaming, check_format, read_json, read_tensors
from wherefrom.files.stand_in import NotStoredError, StandIn
from wherefrom.posterior.fitting import Fitted
from wherefrom.posterior.fold import Fold
from wherefrom.posterior.member import Member, Origin
from wherefrom.posterior.networks import build_networks
from wherefrom.posterior.point import Training
from wherefrom.posterior.posterior import Posterior
from wherefrom.predictive.calibration import Calibration
from wherefrom.training.cohort import Augmentation
from wherefrom.training.compute import Compute
from wherefrom.training.data import Scaler, Schema, as_rows
from wherefrom.training.network import Layout, Network
from wherefrom.training.workers import available
from wherefrom.variables import Design
from wherefrom.variables.family import Factory

FORMAT = 6
_PROBE_ROWS = 4

_JSON = "posterior.json"
_Shape = tuple[Layout, tuple[float, ...]]  # of a network: its tensors, and its dropout rates
_KINDS: dict[str, Any] = {  # of what a file holds
    "training": Training,
    "design": Design,
    "seed": int,
    "schema": Schema,
    "scaler": Scaler,
    "dtype": torch.dtype,
    "autocast": torch.dtype | None,
    "aside": Tensor | None,
    "parts": Tensor | None,
    "mixture": tuple[Member, ...],
    "origin": Origin,
    "noise": Tensor | None,
    "calibration": tuple[Calibration, ...],
    "networks": dict[str, _Shape],
    "probes": dict[str, Tensor],
}


def save(posterior: Posterior, folder: Path) -> None:
    """Write a posterior into a folder: whole, or not at all."""
    fold, fitted, compute = posterior.fold, posterior.fitted, posterior.compute
    values = {
        "training": posterior.training,
        "design": posterior.design,
        "seed": fold.seed,
        "schema": fold.schema,
        "scaler": fold.scaler,
        "aside": fold.aside,
        "parts": fold.parts,
        "dtype": compute.dtype,
        "autocast": compute.autocast,
        "mixture": posterior.mixture,
        "origin": posterior.origin,
        "noise": fitted.noise,
        "calibration": fitted.calibration,
        "networks": {name: (each.layout, tuple(each.rates)) for name, each in posterior.networks.items()},
        "probes": _probes(posterior),
    }
    tensors: dict[str, Tensor] = {}
    numbers = f"posterior-{secrets.token_hex(4)}.safetensors"
    document = {"format": FORMAT, "tensors": numbers, "posterior": codec.pack(values, tensors)}
    text = json.dumps(document, indent=1, allow_nan=False)
    with atomic.writing_folder(folder, last=_JSON, owned=["posterior-*.safetensors"]) as temporary:
        atomic.write_tensors(temporary / numbers, tensors)
        atomic.write_text(temporary / _JSON, text)


def load(
    folder: str | Path,
    model: Factory | Mapping[str, Factory] | None = None,
    data: Any = None,
    device: str | torch.device = "cpu",
    *,
    optimisers: Sequence[type[torch.optim.Optimizer]] = (),
    laws: Sequence[type] = (),
    variables: Sequence[type] = (),
    likelihoods: Sequence[type] = (),
    augment: Augmentation | None = None,
) -> Posterior:
    """Read a posterior that `save` wrote.

    `model` is the factory that it was trained with, or a dictionary of them where families were marginalised; no code
    is stored, so that only an `MLP` needs none. `data`, the training data, is not stored either, and needed only to
    `extend`, to fit the noise of a part, or to sample the weights of a network with batch norm.

    `likelihoods` are classes of your own, unless they are decorated with `@stored("Name")`. Other classes of your own
    are needed only to `extend`: `optimisers` that are not torch's, `laws` that summarise trajectories, `variables`, and
    `augment`, if that was code. (Laws of a kind of your own, neither points nor Gaussian, are needed to predict.)
    """
    folder, target_device = Path(folder), available(device)
    path = folder / _JSON
    given: dict[str, Sequence[type]] = {
        "optimisers": optimisers,
        "laws": laws,
        "variables": variables,
        "likelihoods": likelihoods,
    }
    for argument, classes in given.items():
        for each in classes:
            if not isinstance(each, type):
                raise TypeError(f"load(..., {argument}=[...]) takes classes, not {each!r}")
    document = _document(folder)
    with blaming(path):
        numbers = folder / Path(document["tensors"]).name
    _, tensors = read_tensors(numbers)
    with blaming(path):
        values = codec.unpack(document["posterior"], tensors.__getitem__, given)
        codec.check(values, _KINDS)
        training, design, schema, origin = (values[name] for name in ("training", "design", "schema", "origin"))
    families = design.families
    models = _models(model, {"": training.model} if families is None else families.factories)
    if families is not None:
        families.factories.update(models)  # it was made here, and nobody else has it yet
    training = replace(training, model=next(iter(models.values())), augment=augment or training.augment)
    networks = _built(folder, training, values, data)
    for name, network in networks.items():
        _check_same(name, network, values["networks"].get(name))
    for member in values["mixture"]:
        with blaming(path):
            _check_size(member, networks[member.family])
        if isinstance(law := member.trained.law, StandIn):
            raise NotStoredError(f"{folder} cannot be read whole: {law.why}")
    posterior = Posterior(
        training,
        design,
        {name: network.to(target_device) for name, network in networks.items()},
        Fold(values["seed"], schema, values["scaler"], aside=values["aside"], parts=values["parts"]),
        Compute(target_device, values["dtype"], autocast=values["autocast"]),
        tuple(_on_device(member, target_device) for member in values["mixture"]),
        origin,
        Fitted(values["noise"], values["calibration"]),
    )
    for name, answers in _probes(posterior).items():
        expected = values["probes"].get(name, answers.new_empty(0)).to(answers.dtype)
        is_shaped = expected.shape == answers.shape
        if not is_shaped or not torch.allclose(answers, expected, rtol=1e-3, atol=1e-5, equal_nan=True):
            raise _another(name, "the same weights give other answers")
    return posterior if data is None else posterior.with_data(data)


def _document(folder: Path) -> dict[str, Any]:
    """Return the JSON of a run, if it is of the format that this version reads."""
    path = folder / _JSON
    if not path.exists():
        raise FileNotFoundError(f"{folder} holds no saved posterior: there is no {_JSON} in it")
    document = read_json(path)
    number = document.get("format")
    if not isinstance(number, int):
        raise ValueError(f"{path} is not a posterior that was saved by wherefrom")
    check_format(number, FORMAT, folder)
    return document


def _built(folder: Path, training: Training, values: Mapping[str, Any], data: Any) -> dict[str, Network]:
    """Return the networks, built on the first rows that all of them take."""
    schema, errors = values["schema"], []
    rows = _rows_like(schema, values["scaler"], values["dtype"])
    if data is not None:
        given = as_rows(data, training.likelihood, schema.classes).x
        rows.append(values["scaler"].x(given[:_PROBE_ROWS], values["dtype"]))
    for x in rows:
        try:
            return build_networks(
                training, values["design"], values["origin"].dropout, x, schema.targets, values["seed"]
            )
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            errors.append(error)
    hint = "; if it takes no rows but its own, give them: load(..., data=(x, y))" if data is None else ""
    raise ValueError(f"{folder} cannot be read with this model: {errors[0]}{hint}") from errors[0]


def _probes(posterior: Posterior) -> dict[str, Tensor]:
    """Return the answers of each family's first member to some fixed rows, by which a model is recognised."""
    first = {member.family: member.trained.last for member in reversed(posterior.mixture)}
    return {name: _probe(posterior.networks[name], posterior.fold, theta) for name, theta in first.items()}


def _probe(network: Network, fold: Fold, theta: Tensor) -> Tensor:
    """Return the answers to the first rows that the network takes, on the CPU; nothing if it takes none of them."""
    network, theta = network.private("store").to(torch.device("cpu")), theta.cpu()
    for x in _rows_like(fold.schema, fold.scaler, theta.dtype):
        try:
            with torch.no_grad():
                return network.call(network.layout.views(theta), x, (), False)
        except (RuntimeError, TypeError, ValueError, IndexError):
            continue
    return theta.new_empty(0)


def _rows_like(schema: Schema, scaler: Scaler, dtype: torch.dtype) -> list[Tensor]:
    """Return rows as networks see the training data: normal numbers, and 0 or 1 for networks that embed codes.

    No training row is stored. Rows differ: batch normalisation turns equal ones into rounding errors.
    """
    shape = (_PROBE_ROWS, *scaler.input_shape(schema.x_shape))
    if not schema.x_is_float:
        return [torch.zeros(shape, dtype=torch.int64)]
    generator = torch.Generator().manual_seed(0)
    normal = torch.randn(shape, generator=generator, dtype=torch.float64)
    return [normal.to(dtype), (normal > 0).to(dtype)]


def _another(name: str, difference: str) -> ValueError:
    the_model = f"the model {name!r}" if name else "the model"
    return ValueError(f"{the_model} is not the one that was saved: {difference}")


def _check_same(name: str, network: Network, stored: _Shape | None) -> None:
    """Raise if a model has other tensors or dropout rates than the one that was saved."""
    layout, rates = stored or (Layout((), (), 0, 0), ())
    was, now = (dict(zip(each.names, map(list, each.shapes), strict=False)) for each in (layout, network.layout))
    for each in {**was, **now}:
        if was.get(each) != now.get(each):
            raise _another(name, f"{each} was {was.get(each, 'not there')} and is {now.get(each, 'not there')}")
    if list(was) != list(now):
        raise _another(name, "its tensors stand in another order")
    if tuple(network.rates) != rates:
        raise _another(name, f"its dropout rates were {list(rates)}")


def _check_size(member: Member, network: Network) -> None:
    """Raise if a member's weights are not those of its network."""
    if member.trained.last.shape != (network.layout.size,):
        size = tuple(member.trained.last.shape)
        raise ValueError(f"{member.run} has weights of shape {size}, not of ({network.layout.size},)")


def _on_device(member: Member, device: torch.device) -> Member:
    """Return a member as it was: its theta on the device, its law in main memory."""
    return replace(member, trained=replace(member.trained, last=member.trained.last.to(device)))


def _models(given: Factory | Mapping[str, Factory] | None, stored: Mapping[str, Factory]) -> dict[str, Factory]:
    """Return the model factory of each family: as given, or an MLP that was stored."""
    if given is not None and not isinstance(given, Mapping) and len(stored) > 1:
        raise ValueError(f"there are several families: give a dictionary of factories for {', '.join(stored)}")
    named = given if isinstance(given, Mapping) else {} if given is None else dict.fromkeys(stored, given)
    models = {name: named.get(name, factory) for name, factory in stored.items()}
    if missing := [name for name, factory in models.items() if isinstance(factory, StandIn)]:
        what = "the model factory" if missing == [""] else f"model factories for {', '.join(map(repr, missing))}"
        raise TypeError(f"a file holds no code: give {what}, as load(folder, model=...)")
    return models
