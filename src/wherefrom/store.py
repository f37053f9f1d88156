"""A run on disk: a safetensors file for the numbers, `posterior.json` for everything else.

Nothing is pickled: loading a run executes no code but the model factory that the user gives. Both files are written
under temporary names and renamed, the JSON last, so a folder either holds a whole run or none.
"""

from __future__ import annotations

import json
import math
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from wherefrom import documents
from wherefrom.laws import Law
from wherefrom.point import Training
from wherefrom.posterior import Posterior
from wherefrom.predictive.calibration import Conformal
from wherefrom.runs import Component, build_networks, family_of
from wherefrom.training import augmentation
from wherefrom.training.cohort import Augmentation, Trained
from wherefrom.training.data import Scaler, Schema
from wherefrom.training.mlp import MLP
from wherefrom.training.network import Network
from wherefrom.training.workers import available
from wherefrom.variables import (
    Dropout,
    Run,
)
from wherefrom.variables.family import Factory

FORMAT, _OLDEST = 3, 2  # that is written, and the first that is read

_JSON = "posterior.json"


def save(posterior: Posterior, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    tensors: dict[str, Tensor] = {f"scaler.{name}": value for name, value in posterior.scaler._asdict().items()}
    if posterior.fitted_noise is not None:
        tensors["fitted_noise"] = posterior.fitted_noise
    for i, calibration in enumerate(posterior.calibration):
        if isinstance(calibration, Conformal):
            tensors[f"calibration.{i}.scores"] = calibration.scores
    tensors |= {f"probe.{family}": answers for family, answers in _probes(posterior).items()}
    members = []
    for i, component in enumerate(posterior.mixture):
        trained = component.trained
        tensors[f"{i}.last"] = trained.last
        if trained.law is not None:
            tensors |= {f"{i}.law.{name}": value for name, value in trained.law.tensors().items()}
        members.append(
            {
                "labels": component.run.labels,
                "slots": component.run.slots,
                "choices": {
                    name: documents.value_to_json(value)
                    for name, value in component.run.choices.items()
                    if name not in ("init", "algorithm")
                },
                "algorithm": documents.algorithm_to_json(component.algorithm),
                "law": None if trained.law is None else documents.law_kind(trained.law),
                "losses": [loss if math.isfinite(loss) else None for loss in trained.losses],
                "seconds": trained.seconds,
                "engine": trained.engine,
            }
        )
    training, dropping = posterior.training, posterior.dropping or posterior.design.dropout
    document = {
        "format": FORMAT,
        "seed": posterior.seed,
        "dtype": str(posterior.dtype).removeprefix("torch."),
        "autocast": posterior.autocast and str(posterior.autocast).removeprefix("torch."),
        "training": {
            "algorithm": documents.algorithm_to_json(training.algorithm),
            "epochs": training.epochs,
            "likelihood": documents.likelihood_to_json(training.likelihood),
            "standardise": training.standardise,
            "augment": augmentation.described(training.augment),
        },
        "schema": asdict(posterior.schema),
        "design": documents.design_to_json(posterior.design),
        "families": {
            name: {
                "model": _model_to_json(posterior, name),
                "dropout_rates": list(network.rates),
                "layout": _layout(network),
            }
            for name, network in posterior.networks.items()
        },
        "members": members,
        "diverged": list(posterior.diverged),
        "is_part": posterior.is_part,
        "weights": posterior.own_weights,
        "dropping": dropping and asdict(dropping),
        "calibration": [documents.calibration_to_json(each) for each in posterior.calibration],
    }
    # A new name for the numbers: until the JSON that speaks of them is in place, the old run is whole.
    numbers = f"posterior-{secrets.token_hex(4)}.safetensors"
    document["tensors"] = numbers
    text = json.dumps(document, indent=1, allow_nan=False)
    own = {name: tensor.contiguous().cpu() for name, tensor in tensors.items()}
    _write(folder / numbers, lambda path: save_file(own, path))
    _write(folder / _JSON, lambda path: path.write_text(text, encoding="utf-8"))
    for old in folder.glob("posterior-*.safetensors"):
        if old.name != numbers:
            old.unlink()


def load(
    folder: str | Path,
    model: Factory | Mapping[str, Factory] | None = None,
    data: Any = None,
    device: str | torch.device = "cpu",
    *,
    optimisers: Sequence[documents.OptimiserClass] = (),
    laws: Sequence[type] = (),
    variables: Sequence[type] = (),
    augment: Augmentation | None = None,
) -> Posterior:
    """Read a posterior that `save` wrote.

    `model` is the factory that it was trained with, or a dictionary of them where families were marginalised; no code
    is stored, so that only an `MLP` needs none. `data`, the training data, is not stored either, and needed only to
    `extend`, to fit the noise of a part, or to sample the weights of a network with batch norm. Classes of your own are
    needed only to `extend`: `optimisers` that are not torch's, `laws` that summarise trajectories, `variables`, and
    `augment`, if that was code. (Laws of a kind of your own, neither points nor Gaussian, are needed to predict.)
    """
    folder, place = Path(folder), available(device)
    code = documents.Code(tuple(optimisers), tuple(laws), tuple(variables))
    try:
        document = json.loads((folder / _JSON).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(f"{folder} holds no saved posterior: there is no {_JSON} in it") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{folder / _JSON} is damaged ({error}): write it again") from None
    if "format" not in document:
        raise ValueError(f"{folder / _JSON} is not a posterior that was saved by wherefrom")
    if document["format"] > FORMAT:
        raise ValueError(
            f"{folder} was written by a newer version (format {document['format']}; this one reads up to {FORMAT}): "
            "update wherefrom"
        )
    if document["format"] < _OLDEST:
        raise ValueError(f"{folder} was written before the first release, in a format that is no longer read")
    with safe_open(folder / document["tensors"], framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dictionary

    dtype = getattr(torch, document["dtype"])
    about = document["training"]
    models = _models(model, document["families"])
    training = Training(
        next(iter(models.values())),
        documents.algorithm_from_json(about["algorithm"], code),
        about["epochs"],
        documents.likelihood_from_json(about["likelihood"]),
        about["standardise"],
        augment or augmentation.from_description(about["augment"]),
    )
    design = documents.design_from_json(document["design"], models, code)
    lists = {name: tuple(value) for name, value in document["schema"].items() if isinstance(value, list)}
    schema = Schema(**document["schema"] | lists)
    example = _rows_like(schema, dtype)
    dropping = document["dropping"] and Dropout(**document["dropping"])
    built = build_networks(training, design, dropping, example, schema.targets, document["seed"])
    networks = {name: network.to(place) for name, network in built.items()}
    for name, stored in document["families"].items():
        the_model = f"the model {name!r}" if name else "the model"
        layout, rates = _layout(networks[name]), list(networks[name].rates)
        if layout != stored["layout"]:
            difference = _first_difference(stored["layout"], layout)
            raise ValueError(f"{the_model} is not the one that was saved: {difference}")
        if rates != stored["dropout_rates"]:
            raise ValueError(
                f"{the_model} is not the one that was saved: its dropout rates were {stored['dropout_rates']}"
            )
    scaler = Scaler(**{name: tensors[f"scaler.{name}"] for name in Scaler._fields})
    noise = tensors.get("fitted_noise")
    posterior = Posterior(
        training,
        design,
        document["seed"],
        networks,
        scaler,
        schema,
        dtype,
        place,
        tuple(_component(i, member, tensors, code, place) for i, member in enumerate(document["members"])),
        fitted_noise=noise,
        diverged=tuple(document["diverged"]),
        is_part=document["is_part"],
        autocast=document["autocast"] and getattr(torch, document["autocast"]),
        own_weights=document["weights"] and tuple(document["weights"]),
        dropping=dropping,
        calibration=tuple(
            documents.calibration_from_json(about, tensors.get(f"calibration.{i}.scores"))
            for i, about in enumerate(document.get("calibration", []))
        ),
    )
    for name, answers in _probes(posterior).items():
        if not torch.allclose(answers, tensors[f"probe.{name}"], rtol=1e-3, atol=1e-5, equal_nan=True):
            the_model = f"the model {name!r}" if name else "the model"
            raise ValueError(f"{the_model} is not the one that was saved: the same weights give other answers")
    return posterior if data is None else posterior.with_data(data)


def _probes(posterior: Posterior) -> dict[str, Tensor]:
    """Of each family, the first member's answers to some fixed rows, by which a model is known again."""
    first = {family_of(component.run): component.trained.last for component in reversed(posterior.mixture)}
    return {name: _probe(posterior.networks[name], posterior.schema, theta) for name, theta in first.items()}


def _probe(network: Network, schema: Schema, theta: Tensor) -> Tensor:
    x = _rows_like(schema, theta.dtype).to(theta.device)
    with torch.no_grad():
        return network.private("store").call(network.layout.views(theta), x, (), False).cpu()


def _rows_like(schema: Schema, dtype: torch.dtype) -> Tensor:
    """Some rows of such a shape, all different: on equal ones, batch normalisation shows nothing but rounding."""
    if not schema.x_is_float:
        return torch.zeros(4, *schema.x_shape, dtype=torch.int64)
    generator = torch.Generator().manual_seed(0)
    return torch.randn(4, *schema.x_shape, generator=generator, dtype=torch.float64).to(dtype)


def _layout(network: Network) -> dict[str, list[int]]:
    return dict(zip(network.layout.names, map(list, network.layout.shapes), strict=True))


def _model_to_json(posterior: Posterior, name: str) -> dict[str, Any] | None:
    """An MLP is a few numbers; any other model is code."""
    families = posterior.design.families
    factory = posterior.training.model if families is None else families.factories[name]
    return asdict(factory) if isinstance(factory, MLP) else None


def _models(given: Factory | Mapping[str, Factory] | None, stored: dict[str, Any]) -> dict[str, Factory]:
    """The model factory of each family: as given, or an MLP that was stored."""
    named = dict(given) if isinstance(given, Mapping) else {} if given is None else dict.fromkeys(stored, given)
    if not isinstance(given, Mapping) and given is not None and len(stored) > 1:
        raise ValueError(f"there are several families: give a dictionary of factories for {', '.join(stored)}")
    known = {name: MLP(**about["model"]) for name, about in stored.items() if about["model"] is not None}
    found = known | named
    if missing := [name for name in stored if name not in found]:
        what = "the model factory" if missing == [""] else f"model factories for {', '.join(map(repr, missing))}"
        raise TypeError(f"a file holds no code: give {what}, as load(folder, model=...)")
    return {name: found[name] for name in stored}


def _component(
    i: int,
    member: dict[str, Any],
    tensors: dict[str, Tensor],
    code: documents.Code,
    place: torch.device,
) -> Component:
    """A member as it was: its theta on the device, its law in main memory."""
    law: Law | None = None
    if member["law"] is not None:
        start = f"{i}.law."
        own = {k.removeprefix(start): v for k, v in tensors.items() if k.startswith(start)}
        law = documents.law_of_kind(member["law"], code)(**own)
    losses = [math.nan if loss is None else loss for loss in member["losses"]]
    return Component(
        Run(member["labels"], member["slots"], {k: documents.value_from_json(v) for k, v in member["choices"].items()}),
        documents.algorithm_from_json(member["algorithm"], code),
        Trained(tensors[f"{i}.last"].to(place), law, losses, None, member["seconds"], member.get("engine", "torch")),
    )


def _write(path: Path, write: Callable[[Path], Any]) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write(temporary)
        as_others(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def as_others(path: Path) -> None:
    """Let a file be read by those who may read others that are written here: safetensors lets its owner alone."""
    umask = os.umask(0)
    os.umask(umask)
    path.chmod(0o666 & ~umask)


def _first_difference(stored: dict[str, Any], given: dict[str, Any]) -> str:
    for name in {**stored, **given}:
        if stored.get(name) != given.get(name):
            return f"{name} was {stored.get(name, 'not there')} and is {given.get(name, 'not there')}"
    return "its tensors stand in another order"
