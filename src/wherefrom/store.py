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
from dataclasses import asdict, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, distributions, nn
from torch.distributions import Distribution

from wherefrom.calibration import CALIBRATIONS, Calibration, Conformal, Fit
from wherefrom.laws import LAWS, SWAG, TRADI, Law, Snapshots, TrajectoryLaw
from wherefrom.likelihood import Classification, Likelihood, Regression
from wherefrom.posterior import Posterior
from wherefrom.runs import Component, build_networks, family_of
from wherefrom.training import augmentation, schedules, streams
from wherefrom.training.cohort import Augmentation, Trained
from wherefrom.training.data import Scaler, Schema
from wherefrom.training.mlp import MLP
from wherefrom.training.network import Network
from wherefrom.training.point import Algorithm, Training
from wherefrom.training.workers import available
from wherefrom.variables import (
    Algorithms,
    Axis,
    BatchOrder,
    Design,
    Dropout,
    Families,
    Finite,
    Hyperparameters,
    InitialCondition,
    Iterations,
    LogUniform,
    Resample,
    Run,
)
from wherefrom.variables.algorithm import drawn, space
from wherefrom.variables.family import Factory
from wherefrom.variables.given import Given

FORMAT = 2
OptimiserClass = type[torch.optim.Optimizer]

_JSON = "posterior.json"
_TRAJECTORY_LAWS: dict[str, Any] = {"SWAG": SWAG, "Snapshots": Snapshots, "TRADI": TRADI}
_VARIABLES = (Families, InitialCondition, Algorithms, Hyperparameters, BatchOrder, Resample)


@dataclass(frozen=True)
class _Code:
    """The user's own classes, which a file can only name. Nothing is ever imported by a name from a file."""

    optimisers: tuple[OptimiserClass, ...] = ()
    laws: tuple[type, ...] = ()
    variables: tuple[type, ...] = ()

    def __post_init__(self) -> None:
        for kind, classes in vars(self).items():
            for each in classes:
                if not isinstance(each, type):
                    raise TypeError(f"load(..., {kind}=[...]) takes classes, not {each!r}")


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
                    name: _value_to_json(value)
                    for name, value in component.run.choices.items()
                    if name not in ("init", "algorithm")
                },
                "algorithm": _algorithm_to_json(component.algorithm),
                "law": None if trained.law is None else _law_kind(trained.law),
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
            "algorithm": _algorithm_to_json(training.algorithm),
            "epochs": training.epochs,
            "likelihood": _likelihood_to_json(training.likelihood),
            "standardise": training.standardise,
            "augment": augmentation.described(training.augment),
        },
        "schema": asdict(posterior.schema),
        "design": _design_to_json(posterior.design),
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
        "calibration": [_calibration_to_json(each) for each in posterior.calibration],
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
    optimisers: Sequence[OptimiserClass] = (),
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
    code = _Code(tuple(optimisers), tuple(laws), tuple(variables))
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
    if document["format"] < FORMAT:
        raise ValueError(f"{folder} was written before the first release, in a format that is no longer read")
    with safe_open(folder / document["tensors"], framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dictionary

    dtype = getattr(torch, document["dtype"])
    about = document["training"]
    models = _models(model, document["families"])
    training = Training(
        next(iter(models.values())),
        _algorithm_from_json(about["algorithm"], code),
        about["epochs"],
        _likelihood_from_json(about["likelihood"]),
        about["standardise"],
        augment or augmentation.from_description(about["augment"]),
    )
    design = _design_from_json(document["design"], models, code)
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
            _calibration_from_json(about, tensors.get(f"calibration.{i}.scores"))
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
    code: _Code,
    place: torch.device,
) -> Component:
    """A member as it was: its theta on the device, its law in main memory."""
    law: Law | None = None
    if member["law"] is not None:
        start = f"{i}.law."
        own = {k.removeprefix(start): v for k, v in tensors.items() if k.startswith(start)}
        law = _law_of_kind(member["law"], code)(**own)
    losses = [math.nan if loss is None else loss for loss in member["losses"]]
    return Component(
        Run(member["labels"], member["slots"], {k: _value_from_json(v) for k, v in member["choices"].items()}),
        _algorithm_from_json(member["algorithm"], code),
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


# ---------------------------------------------------------------------- calibration as JSON


def _calibration_to_json(calibration: Calibration) -> dict[str, Any]:
    """All of it but the rows that it was fitted on, and the scores, which are among the tensors."""
    fit = {name: value for name, value in vars(calibration.fit).items() if name != "data"}
    own = {name: value for name, value in vars(calibration).items() if name not in ("fit", "scores")}
    numbers = {
        name: list(map(_value_to_json, v)) if isinstance(v, tuple) else _value_to_json(v) for name, v in own.items()
    }
    return {"by": calibration.by, **numbers, "fit": {name: _value_to_json(value) for name, value in fit.items()}}


def _calibration_from_json(about: dict[str, Any], scores: Tensor | None) -> Calibration:
    own = {name: value for name, value in about.items() if name not in ("by", "fit")}
    numbers = {
        name: tuple(map(_value_from_json, v)) if isinstance(v, list) else _value_from_json(v) for name, v in own.items()
    }
    given: dict[str, Any] = numbers if scores is None else numbers | {"scores": scores}
    fit = Fit(**{name: _value_from_json(value) for name, value in about["fit"].items()})
    return CALIBRATIONS[about["by"]](**given, fit=fit)


# ---------------------------------------------------------------------- variables as JSON


def _algorithm_to_json(algorithm: Algorithm) -> dict[str, Any]:
    spaces = {name: space(name, values) for name, values in algorithm.random.items()}
    if not spaces:
        return algorithm.described()
    some = algorithm.but(**drawn(spaces, 0, 0))  # stand-ins, which the spaces take the place of again
    return some.described() | {"random": {name: _values_to_json(values) for name, values in spaces.items()}}


def _likelihood_to_json(likelihood: Likelihood) -> dict[str, Any]:
    about = {"kind": type(likelihood).__name__, **asdict(likelihood)}
    if isinstance(likelihood, Regression) and likelihood.least is None:
        del about["least"]  # which earlier versions do not know
    if isinstance(likelihood, Classification) and isinstance(likelihood.class_weights, Mapping):
        about["class_weights"] = {"of": list(likelihood.class_weights), "are": list(likelihood.class_weights.values())}
    return about


def _likelihood_from_json(about: dict[str, Any]) -> Likelihood:
    own = {name: value for name, value in about.items() if name != "kind"}
    if about["kind"] == "Regression":
        return Regression(**own)
    if isinstance(weights := own["class_weights"], dict):
        own["class_weights"] = dict(zip(weights["of"], weights["are"], strict=True))
    return Classification(**own)


def _algorithm_from_json(about: dict[str, Any], code: _Code) -> Algorithm:
    fixed = Algorithm.from_description({k: v for k, v in about.items() if k != "random"}, code.optimisers)
    spaces = {name: _values_from_json(values) for name, values in about.get("random", {}).items()}
    plain = {name: values.written() if isinstance(values, Finite) else values for name, values in spaces.items()}
    return fixed.but(**plain) if plain else fixed


def _design_to_json(design: Design) -> dict[str, Any]:
    t = design.iterations
    return {
        "axes": [
            {"name": a.name, "draws": a.draws, "variables": [_variable_to_json(v) for v in a.variables]}
            for a in design.axes
        ],
        "t": t and {**_trajectory_law_to_json(t.law), "start": t.start, "every": t.every},
        "F": design.dropout and asdict(design.dropout),
    }


def _design_from_json(about: dict[str, Any], models: dict[str, Factory], code: _Code) -> Design:
    axes = tuple(
        Axis(a["name"], tuple(_variable_from_json(v, models, code) for v in a["variables"]), a["draws"])
        for a in about["axes"]
    )
    t = about["t"]
    iterations = t and Iterations(_trajectory_law_from_json(t, code), t["start"], t["every"])
    return Design(axes, iterations, about["F"] and Dropout(**about["F"]))


def _variable_to_json(variable: Any) -> dict[str, Any]:
    if isinstance(variable, Given):
        return {"given": asdict(variable)}
    if isinstance(variable, _ForgottenVariable):
        return variable.about
    if type(variable) not in _VARIABLES:
        own = {"slot": variable.slot, "is_finite": variable.is_finite, "weights": variable.weights}
        return {"own": type(variable).__name__, **own, **_settings_to_json(variable)}
    if isinstance(variable, InitialCondition):
        return {"slot": "theta0", "draws": variable.draws, "init": variable.init is not None}
    if isinstance(variable, BatchOrder):
        return {"slot": "order", "draws": variable.draws}
    if isinstance(variable, Resample):
        return {"slot": "D", "draws": variable.draws, "share": variable.share}
    if isinstance(variable, Families):
        return {"slot": "F", "weights": variable.weights, "is_drawn": variable.is_drawn}
    if isinstance(variable, Algorithms):
        each = [_algorithm_to_json(algorithm) for algorithm in variable.algorithms]
        own = {"draws": variable.draws, "is_drawn": variable.is_drawn}
        return {"slot": "gamma", "algorithms": each, "weights": variable.weights, **own}
    if variable.points is not None:
        points = [{name: _value_to_json(value) for name, value in point.items()} for point in variable.points]
        return {"slot": "h", "points": points, "weights": variable.weights}
    settings = {name: _values_to_json(values) for name, values in variable.settings.items()}
    return {"slot": "h", "draws": variable.draws, "settings": settings}


def _variable_from_json(about: dict[str, Any], models: dict[str, Factory], code: _Code) -> Any:
    if "given" in about:
        return Given(**about["given"])
    if "own" in about:
        again, why = _again(about["own"], about, code.variables, "variables")
        return _ForgottenVariable(about, why) if again is None else again
    if about["slot"] == "theta0":
        return InitialCondition(about["draws"], _forgotten_init if about["init"] else None)
    if about["slot"] == "order":
        return BatchOrder(about["draws"])
    if about["slot"] == "D":
        return Resample(about["draws"], about["share"])
    if about["slot"] == "F":
        families = Families(models, about["weights"])
        return families.drawn_jointly() if about["is_drawn"] else families
    if about["slot"] == "gamma":
        each = [_algorithm_from_json(one, code) for one in about["algorithms"]]
        algorithms = Algorithms(each, about["weights"], (about["draws"] or 2) if about["is_drawn"] else None)
        return algorithms if about["draws"] else algorithms.drawn_jointly()
    if "points" in about:
        points = [{name: _value_from_json(value) for name, value in point.items()} for point in about["points"]]
        return Hyperparameters(points=points, weights=about["weights"])
    settings = {name: _values_from_json(values) for name, values in about["settings"].items()}
    found = Hyperparameters(about["draws"], **settings)
    return found if about["draws"] else found.drawn_jointly()


def _forgotten_init(network: nn.Module) -> None:
    raise ValueError(
        "InitialCondition(init=...) is code, which is not stored: do the initialisation in the model factory"
    )


def _values_to_json(values: Any) -> Any:
    if isinstance(values, Finite):
        return {"values": list(map(_value_to_json, values.values)), "weights": values.weights}
    if not isinstance(values, Distribution):
        return {"as_written": getattr(values, "__name__", repr(values))}
    if isinstance(values, LogUniform):
        return {"log_uniform": [values.low, values.high]}
    about = {
        "distribution": type(values).__name__,
        "dtype": str(getattr(values.sample(), "dtype", torch.float32)).removeprefix("torch."),
        "arguments": {
            name: float(value) for name in values.arg_constraints if (value := _own(values, name)) is not None
        },
        "as_written": repr(values),
    }
    return about if _draws_the_same(values, about) else {"as_written": repr(values)}


def _value_to_json(value: Any) -> Any:
    """A number, for which JSON has no word if it is infinite, one of several schedules, or several values."""
    if callable(value):
        return {"schedule": schedules.described(value)}
    if isinstance(value, tuple):
        return {"tuple": list(map(_value_to_json, value))}
    return {"number": str(value)} if isinstance(value, float) and not math.isfinite(value) else value


def _value_from_json(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if "tuple" in value:
        return tuple(map(_value_from_json, value["tuple"]))
    return float(value["number"]) if "number" in value else schedules.from_description(value["schedule"])


def _own(distribution: Distribution, name: str) -> Any:
    """A parameter as it was given, not one that follows from another."""
    return vars(distribution).get(name, getattr(getattr(distribution, "base_dist", None), name, None))


def _draws_the_same(values: Distribution, about: dict[str, Any]) -> bool:
    try:
        again = _values_from_json(about)
        drawn = []
        for distribution in (values, again):
            with streams.torch_seeded(0, "store"):
                drawn.append(float(distribution.sample()))
    except (AttributeError, TypeError, ValueError):
        return False
    return drawn[0] == drawn[1]


def _values_from_json(values: Any) -> Any:
    if "values" in values:
        own = tuple(map(_value_from_json, values["values"]))
        return Finite(own, values["weights"] and tuple(values["weights"]))
    if "log_uniform" in values:
        return LogUniform(*values["log_uniform"])
    if "distribution" not in values:
        return _Forgotten(values["as_written"])
    dtype = getattr(torch, values["dtype"])
    arguments = {name: torch.tensor(value, dtype=dtype) for name, value in values["arguments"].items()}
    return getattr(distributions, values["distribution"])(**arguments)


# ---------------------------------------------------------------------- the user's own classes, by their names


def _law_kind(law: Law) -> str:
    if LAWS.get(law.kind, type(law)) is not type(law):
        raise ValueError(
            f"{type(law).__name__} has the kind {law.kind!r}, which is the library's: give it one of its own"
        )
    return law.kind


def _law_of_kind(kind: str, code: _Code) -> Callable[..., Law]:
    """The class of a law over theta, by what it is called."""
    known: dict[str, Any] = {own.kind: own for own in code.laws if hasattr(own, "kind")} | LAWS
    if kind not in known:
        raise ValueError(
            f"the members have laws of the kind {kind!r}, which is not the library's, and a file holds no code: give "
            "the class that has this kind, as wf.load(folder, ..., laws=[...])"
        )
    found: Callable[..., Law] = known[kind]
    return found


def _trajectory_law_to_json(law: TrajectoryLaw) -> dict[str, Any]:
    if isinstance(law, _ForgottenLaw):
        return law.about
    return {"law": type(law).__name__, "is_own": type(law) not in _TRAJECTORY_LAWS.values(), **_settings_to_json(law)}


def _trajectory_law_from_json(about: dict[str, Any], code: _Code) -> TrajectoryLaw:
    name = about["law"]
    if not about.get("is_own", name not in _TRAJECTORY_LAWS):
        found: TrajectoryLaw = _TRAJECTORY_LAWS[name](**about["settings"])
        return found
    kept = {key: value for key, value in about.items() if key not in ("start", "every")}
    again, why = _again(name, about, code.laws, "laws")
    return _ForgottenLaw(kept, why) if again is None else again


def _settings_to_json(own: Any) -> dict[str, Any]:
    """The fields of a dataclass, if JSON has words for all of them; in any case, how it was written."""
    about: dict[str, Any] = {"as_written": repr(own)}
    if not is_dataclass(own):
        return about
    settings = {each.name: getattr(own, each.name) for each in fields(own) if each.init}
    try:
        words = {name: _value_to_json(value) for name, value in settings.items()}
        again = json.loads(json.dumps(words, allow_nan=False))
        is_same = {name: _value_from_json(value) for name, value in again.items()} == settings
    except (KeyError, TypeError, ValueError):
        return about
    return about | {"settings": words} if is_same else about


def _again(name: str, about: dict[str, Any], classes: Sequence[type], argument: str) -> tuple[Any, str]:
    """An object of the user's own class, if it was given and the settings are known; else nothing, and why."""
    own = next((each for each in classes if each.__name__ == name), None)
    if "settings" not in about:
        return None, (
            f"{about['as_written']} cannot be made again from a file, which holds the fields of dataclasses, and of "
            "those numbers, words, schedules and tuples"
        )
    if own is None:
        return None, (
            f"{name} is a class of your own, and code is not stored: give it again, as "
            f"wf.load(folder, ..., {argument}=[{name}])"
        )
    try:
        return own(**{key: _value_from_json(value) for key, value in about["settings"].items()}), ""
    except TypeError as error:
        raise ValueError(f"{name} is not the class that was saved: {error}") from error


@dataclass(frozen=True, eq=False, repr=False)
class _ForgottenLaw:
    """A law of trajectories whose code is not here: what it left is there, but nothing more can be trained."""

    about: dict[str, Any]
    why: str

    @property
    def every(self) -> NoReturn:
        raise ValueError(self.why)

    @property
    def fewest(self) -> NoReturn:
        raise ValueError(self.why)

    def collector(self, theta: Tensor, iterations: int) -> NoReturn:
        raise ValueError(self.why)

    def __repr__(self) -> str:
        return str(self.about["as_written"])


@dataclass(frozen=True, eq=False, repr=False)
class _ForgottenVariable:
    """A variable whose code is not here: its draws are there, with their choices, but no more can be drawn."""

    about: dict[str, Any]
    why: str

    @property
    def slot(self) -> str:
        return str(self.about["slot"])

    @property
    def is_finite(self) -> bool:
        return bool(self.about["is_finite"])

    @property
    def weights(self) -> tuple[float, ...] | None:
        return self.about["weights"] and tuple(self.about["weights"])

    def choices(self, seed: int, draw: int) -> NoReturn:
        raise ValueError(self.why)

    def __repr__(self) -> str:
        return str(self.about["as_written"])


class _Forgotten(Distribution):
    """A distribution that a file cannot hold: its draws are there, but no more can be drawn."""

    def __init__(self, as_written: str) -> None:
        super().__init__(validate_args=False)
        self.as_written = as_written

    def sample(self, sample_shape: Any = ()) -> Tensor:
        raise ValueError(f"{self.as_written} cannot be stored in a file, so a loaded posterior cannot draw from it")

    def __repr__(self) -> str:
        return self.as_written
