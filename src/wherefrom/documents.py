"""What a posterior is made of as plain values that JSON can hold, and back: likelihood, algorithm, variables, laws.

Code is not stored. What is a class of the user's own is known by its name and its fields, and made again from the
classes that are given (`Code`); without them it is remembered by what it was called, and refuses to draw or train more.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import Any, NoReturn

import torch
from torch import Tensor, distributions, nn
from torch.distributions import Distribution

from wherefrom.laws import LAWS, SWAG, TRADI, Law, Snapshots, TrajectoryLaw
from wherefrom.likelihoods import LIKELIHOODS, Likelihood
from wherefrom.predictive.calibration import CALIBRATIONS, Calibration, Fit
from wherefrom.training import schedules, streams
from wherefrom.training.algorithm import Algorithm
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
)
from wherefrom.variables.algorithm import drawn, space
from wherefrom.variables.family import Factory
from wherefrom.variables.given import Given

OptimiserClass = type[torch.optim.Optimizer]

_TRAJECTORY_LAWS: dict[str, Any] = {"SWAG": SWAG, "Snapshots": Snapshots, "TRADI": TRADI}
_VARIABLES = (Families, InitialCondition, Algorithms, Hyperparameters, BatchOrder, Resample)


@dataclass(frozen=True)
class Code:
    """The user's own classes, which a file can only name. Nothing is ever imported by a name from a file."""

    optimisers: tuple[OptimiserClass, ...] = ()
    laws: tuple[type, ...] = ()
    variables: tuple[type, ...] = ()

    def __post_init__(self) -> None:
        for kind, classes in vars(self).items():
            for each in classes:
                if not isinstance(each, type):
                    raise TypeError(f"load(..., {kind}=[...]) takes classes, not {each!r}")


# ---------------------------------------------------------------------- calibration as JSON


def calibration_to_json(calibration: Calibration) -> dict[str, Any]:
    """All of it but the rows that it was fitted on, and the scores, which are among the tensors."""
    fit = {name: value for name, value in vars(calibration.fit).items() if name != "data"}
    own = {name: value for name, value in vars(calibration).items() if name not in ("fit", "scores")}
    numbers = {
        name: list(map(value_to_json, v)) if isinstance(v, tuple) else value_to_json(v) for name, v in own.items()
    }
    return {"by": calibration.by, **numbers, "fit": {name: value_to_json(value) for name, value in fit.items()}}


def calibration_from_json(about: dict[str, Any], scores: Tensor | None) -> Calibration:
    own = {name: value for name, value in about.items() if name not in ("by", "fit")}
    numbers = {
        name: tuple(map(value_from_json, v)) if isinstance(v, list) else value_from_json(v) for name, v in own.items()
    }
    given: dict[str, Any] = numbers if scores is None else numbers | {"scores": scores}
    fit = Fit(**{name: value_from_json(value) for name, value in about["fit"].items()})
    return CALIBRATIONS[about["by"]](**given, fit=fit)


# ---------------------------------------------------------------------- variables as JSON


def algorithm_to_json(algorithm: Algorithm) -> dict[str, Any]:
    spaces = {name: space(name, values) for name, values in algorithm.random.items()}
    if not spaces:
        return algorithm.described()
    some = algorithm.but(**drawn(spaces, 0, 0))  # stand-ins, which the spaces take the place of again
    return some.described() | {"random": {name: _values_to_json(values) for name, values in spaces.items()}}


def likelihood_to_json(likelihood: Likelihood) -> dict[str, Any]:
    about = {"kind": type(likelihood).__name__, **asdict(likelihood)}  # type: ignore[call-overload]
    return {
        name: {"of": list(value), "are": list(value.values())} if isinstance(value, Mapping) else value
        for name, value in about.items()
    }


def likelihood_from_json(about: dict[str, Any]) -> Likelihood:
    kinds: dict[str, Any] = {kind.__name__: kind for kind in LIKELIHOODS.values()}
    fields = {
        name: dict(zip(value["of"], value["are"], strict=True)) if isinstance(value, dict) else value
        for name, value in about.items()
        if name != "kind"
    }
    likelihood: Likelihood = kinds[about["kind"]](**fields)
    return likelihood


def algorithm_from_json(about: dict[str, Any], code: Code) -> Algorithm:
    fixed = Algorithm.from_description({k: v for k, v in about.items() if k != "random"}, code.optimisers)
    spaces = {name: _values_from_json(values) for name, values in about.get("random", {}).items()}
    plain = {name: values.written() if isinstance(values, Finite) else values for name, values in spaces.items()}
    return fixed.but(**plain) if plain else fixed


def design_to_json(design: Design) -> dict[str, Any]:
    t = design.iterations
    return {
        "axes": [
            {"name": a.name, "draws": a.draws, "variables": [_variable_to_json(v) for v in a.variables]}
            for a in design.axes
        ],
        "t": t and {**_trajectory_law_to_json(t.law), "start": t.start, "every": t.every},
        "F": design.dropout and asdict(design.dropout),
    }


def design_from_json(about: dict[str, Any], models: dict[str, Factory], code: Code) -> Design:
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
        each = [algorithm_to_json(algorithm) for algorithm in variable.algorithms]
        own = {"draws": variable.draws, "is_drawn": variable.is_drawn}
        return {"slot": "gamma", "algorithms": each, "weights": variable.weights, **own}
    if variable.points is not None:
        points = [{name: value_to_json(value) for name, value in point.items()} for point in variable.points]
        return {"slot": "h", "points": points, "weights": variable.weights}
    settings = {name: _values_to_json(values) for name, values in variable.settings.items()}
    return {"slot": "h", "draws": variable.draws, "settings": settings}


def _variable_from_json(about: dict[str, Any], models: dict[str, Factory], code: Code) -> Any:
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
        each = [algorithm_from_json(one, code) for one in about["algorithms"]]
        algorithms = Algorithms(each, about["weights"], (about["draws"] or 2) if about["is_drawn"] else None)
        return algorithms if about["draws"] else algorithms.drawn_jointly()
    if "points" in about:
        points = [{name: value_from_json(value) for name, value in point.items()} for point in about["points"]]
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
        return {"values": list(map(value_to_json, values.values)), "weights": values.weights}
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


def value_to_json(value: Any) -> Any:
    """A number, for which JSON has no word if it is infinite, one of several schedules, or several values."""
    if callable(value):
        return {"schedule": schedules.described(value)}
    if isinstance(value, tuple):
        return {"tuple": list(map(value_to_json, value))}
    return {"number": str(value)} if isinstance(value, float) and not math.isfinite(value) else value


def value_from_json(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if "tuple" in value:
        return tuple(map(value_from_json, value["tuple"]))
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
        own = tuple(map(value_from_json, values["values"]))
        return Finite(own, values["weights"] and tuple(values["weights"]))
    if "log_uniform" in values:
        return LogUniform(*values["log_uniform"])
    if "distribution" not in values:
        return _Forgotten(values["as_written"])
    dtype = getattr(torch, values["dtype"])
    arguments = {name: torch.tensor(value, dtype=dtype) for name, value in values["arguments"].items()}
    return getattr(distributions, values["distribution"])(**arguments)


# ---------------------------------------------------------------------- the user's own classes, by their names


def law_kind(law: Law) -> str:
    if LAWS.get(law.kind, type(law)) is not type(law):
        raise ValueError(
            f"{type(law).__name__} has the kind {law.kind!r}, which is the library's: give it one of its own"
        )
    return law.kind


def law_of_kind(kind: str, code: Code) -> Callable[..., Law]:
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


def _trajectory_law_from_json(about: dict[str, Any], code: Code) -> TrajectoryLaw:
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
        words = {name: value_to_json(value) for name, value in settings.items()}
        again = json.loads(json.dumps(words, allow_nan=False))
        is_same = {name: value_from_json(value) for name, value in again.items()} == settings
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
        return own(**{key: value_from_json(value) for key, value in about["settings"].items()}), ""
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
