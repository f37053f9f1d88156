"""Our values as JSON and back: one registry of classes, each registered where it is defined.

    @stored("Cosine")
    @dataclass(frozen=True)
    class Cosine: ...

| value | JSON |
|---|---|
| None, true, false, numbers, text | itself |
| infinity, nan, fraction, shape, dtype, device | {"$": "float", "value": "inf"}, {"$": "shape", ...}, ... |
| tuple, list | [...], {"$": "list", "items": [...]} |
| dictionary | itself if its keys are text, else {"$": "map", "items": [[key, value], ...]} |
| object of a registered class | {"$": name, field: value, ...} |
| tensor, array | {"$": "tensor", "name": ..., "shape": ..., "dtype": ...}; the numbers go to a safetensors file |
| distribution of torch | {"$": "distribution", "name": ..., "arguments": {...}}, if that draws the same |
| class or function of the user's own | {"$": "class", ...}, {"$": "code", ...}: its name, where the field allows code |

Everything else is refused. Nothing is imported or called by a name from a file: names are looked up in the registry, in
torch's optimisers, in a list of distributions, and among the classes that the user gives.
"""

from __future__ import annotations

import math
import re
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
import torch
from torch import Tensor, distributions
from torch.distributions import Distribution

from wherefrom.files.stand_in import Code, NotStoredError, StandIn

_Class = TypeVar("_Class", bound=type)
Given = Mapping[str, Sequence[type]]  # the user's own classes, by the argument of `wf.load` that takes them


@dataclass(frozen=True, eq=False)
class Kind:
    """A class in the registry: its name in files, the arguments that make an object again, and fields with code."""

    name: str
    kind: type
    make: Callable[..., Any]
    arguments: Callable[[Any], Mapping[str, Any]]
    code: Mapping[str, Code]
    is_plain: bool = True  # the arguments are the fields, and can be checked by their annotations

    @cached_property
    def hints(self) -> dict[str, Any]:
        return get_type_hints(self.kind) if self.is_plain else {}


REGISTRY: dict[str, Kind] = {}
_BY_CLASS: dict[type, Kind] = {}


def stored(
    name: str,
    *,
    without: Sequence[str] = (),
    code: Mapping[str, Code] | None = None,
    arguments: Callable[[Any], Mapping[str, Any]] | None = None,
    make: Callable[..., Any] | None = None,
) -> Callable[[_Class], _Class]:
    """Register a class for files: a dataclass, a NamedTuple, or any other with `arguments`.

    name: of the class in files; never change it.
    without: fields that are not stored, and have defaults.
    code: fields that may hold code of the user's own; "*" stands for all others.
    arguments: object -> keyword arguments that make it again; the fields, by default.
    make: keyword arguments -> object; the class itself, by default.
    """

    def registered(kind: _Class) -> _Class:
        if name in REGISTRY and REGISTRY[name].kind.__qualname__ != kind.__qualname__:
            raise ValueError(f"{kind.__name__}: there is another class that files call {name!r}")
        default = lambda value: {each: getattr(value, each) for each in _names(kind) if each not in without}  # noqa: E731
        entry = Kind(name, kind, make or kind, arguments or default, code or {}, arguments is None)
        REGISTRY[name] = _BY_CLASS[kind] = entry
        return kind

    return registered


def is_stored(kind: type) -> bool:
    """Return True if a class is registered."""
    return kind in _BY_CLASS


def _names(kind: Any) -> list[str]:
    return list(kind._fields) if hasattr(kind, "_fields") else [each.name for each in fields(kind)]


_DISTRIBUTIONS = {  # over a number, by numbers
    each.__name__: each
    for each in (
        *(distributions.Bernoulli, distributions.Beta, distributions.Binomial, distributions.Cauchy),
        *(distributions.Chi2, distributions.ContinuousBernoulli, distributions.Exponential),
        *(distributions.FisherSnedecor, distributions.Gamma, distributions.Geometric, distributions.Gumbel),
        *(distributions.HalfCauchy, distributions.HalfNormal, distributions.InverseGamma, distributions.Kumaraswamy),
        *(distributions.Laplace, distributions.LogNormal, distributions.NegativeBinomial, distributions.Normal),
        *(distributions.Pareto, distributions.Poisson, distributions.StudentT, distributions.Uniform),
        *(distributions.VonMises, distributions.Weibull),
    )
}
_DTYPES = {str(each)[6:]: each for name in dir(torch) if isinstance(each := getattr(torch, name), torch.dtype)}
_FRACTION = re.compile(r"-?\d{1,40}(/\d{1,40})?")


def _looked_up(names: Mapping[str, Any], name: Any, what: str) -> Any:
    """Return what has that name, and raise if nothing has."""
    if not isinstance(name, str) or name not in names:
        raise ValueError(f"{str(name)[:80]!r} is not the name of a {what} that files may hold")
    return names[name]


def _fraction(text: Any) -> Fraction:
    if not isinstance(text, str) or not _FRACTION.fullmatch(text):  # others, such as 1e999999999, take for ever
        raise ValueError(f"{str(text)[:80]!r} is not a fraction")
    return Fraction(text)


def _shape(sizes: Any) -> torch.Size:
    if not isinstance(sizes, list) or not all(type(size) is int and 0 <= size < 2**62 for size in sizes):
        raise ValueError(f"{str(sizes)[:80]} is not a shape")
    return torch.Size(sizes)


_INFINITE = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}  # one nan, as tuples compare it
_PLAIN: dict[str, tuple[type, Callable[[Any], Any], Callable[[Any], Any]]] = {  # how to write and read them
    "float": (float, str, lambda text: _looked_up(_INFINITE, text, "number")),
    "fraction": (Fraction, str, _fraction),
    "shape": (torch.Size, list, _shape),
    "device": (torch.device, str, torch.device),
    "dtype": (torch.dtype, lambda value: str(value)[6:], lambda name: _looked_up(_DTYPES, name, "dtype")),
}


# ---------------------------------------------------------------------- to JSON


def pack(value: Any, tensors: dict[str, Tensor], where: str = "", code: Code | None = None) -> Any:
    """Return a value as JSON, and put its tensors into `tensors`, named by the fields that hold them.

    where: the field that holds the value, for names of tensors and errors.
    code: what to say of code of the user's own; None refuses it.

    >>> pack({"rates": (0.1, math.inf)}, {})
    {'rates': [0.1, {'$': 'float', 'value': 'inf'}]}
    """

    def inner(name: object, value: Any, code: Code | None = code) -> Any:
        return pack(value, tensors, f"{where}.{name}" if where else str(name), code)

    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    for tag, (plain, write, _) in _PLAIN.items():
        if isinstance(value, plain):
            return {"$": tag, "value": write(value)}
    if (kind := _BY_CLASS.get(type(value))) is not None:
        allowed = kind.code
        values = kind.arguments(value).items()
        return {"$": kind.name} | {k: inner(k, v, allowed.get(k, allowed.get("*"))) for k, v in values}
    if isinstance(value, tuple | list):
        items = [inner(index, each) for index, each in enumerate(value)]
        return {"$": "list", "items": items} if isinstance(value, list) else items
    if isinstance(value, Mapping):
        if all(isinstance(key, str) for key in value) and "$" not in value:
            return {key: inner(key, each) for key, each in value.items()}
        return {"$": "map", "items": [[inner("key", key), inner(key, each)] for key, each in value.items()]}
    if isinstance(value, Tensor | np.ndarray) and getattr(value, "dtype", None) != np.dtype(object):
        name = where
        while name in tensors:
            name += "'"
        numbers = value if isinstance(value, Tensor) else torch.from_numpy(np.ascontiguousarray(value))
        tensors[name] = numbers
        tag = "tensor" if isinstance(value, Tensor) else "array"
        return {"$": tag, "name": name, "shape": list(numbers.shape), "dtype": str(numbers.dtype)[6:]}
    if isinstance(value, Distribution) and (document := _distribution(value)) is not None:
        return document
    if code is not None:
        document = _pack_code(value, tensors, where, code)
        if not code.is_needed or "settings" in document:
            return document
    advice = ""
    if not isinstance(value, type | types.FunctionType) and type(value).__module__ != "builtins":
        advice = ': make its class a dataclass of plain values, decorated with @stored("Name") of wherefrom.files.codec'
    raise ValueError(f"{where or 'the value'} is {value!r}, which a file cannot hold{advice}")


def _pack_code(value: Any, tensors: dict[str, Tensor], where: str, code: Code) -> dict[str, Any]:
    """Return the name of code, and what makes it again once its class is given."""
    if isinstance(value, type) or (isinstance(value, StandIn) and value.as_written == value.name):
        return {"$": "class", "name": name_of(value) if isinstance(value, type) else value.name}
    if isinstance(value, StandIn):
        name, as_written, facts, settings = value.name, value.as_written, value.facts, value.settings
    else:
        name, as_written = getattr(value, "__name__", type(value).__name__), repr(value)
        facts = {each: getattr(value, each) for each in code.keeps}
        settings = _settings(value) if code.given_by else None
    document: dict[str, Any] = {"$": "code", "name": name, "as_written": as_written}
    if facts:
        document["facts"] = pack(facts, tensors, f"{where}.facts")
    if settings is not None:
        further: dict[str, Tensor] = {}
        try:
            document["settings"] = pack(settings, further, where)
        except ValueError:
            return document
        tensors |= further
    return document


def _settings(value: Any) -> Mapping[str, Any] | None:
    """Return the arguments that make an object of the user's own class again, if they are known."""
    if is_dataclass(value):
        return {each.name: getattr(value, each.name) for each in fields(value) if each.init}
    tensors: Mapping[str, Any] | None = value.tensors() if hasattr(value, "tensors") else None
    return tensors


def name_of(kind: type) -> str:
    """Return where a class can be found: torch.optim.Adafactor, or the module in which it was written.

    >>> name_of(torch.optim.Adafactor)
    'torch.optim.Adafactor'
    """
    if getattr(torch.optim, kind.__name__, None) is kind:
        return f"torch.optim.{kind.__name__}"
    return f"{kind.__module__}.{kind.__qualname__}"


def _distribution(values: Distribution) -> dict[str, Any] | None:
    """Return a distribution of torch's over a number by its parameters, if these draw the same number again."""

    def given(name: str) -> Any:
        """Return a parameter as it was given, not one that follows from another."""
        return vars(values).get(name, getattr(getattr(values, "base_dist", None), name, None))

    def drawn(distribution: Distribution) -> Tensor:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            return torch.as_tensor(distribution.sample())

    try:
        parameters = {name: float(v) for name in values.arg_constraints if (v := given(name)) is not None}
        dtype = pack(drawn(values).dtype, {})
        document = {"$": "distribution", "name": type(values).__name__, "dtype": dtype, "arguments": parameters}
        again = unpack(document)
        return document if type(again) is type(values) and torch.equal(drawn(again), drawn(values)) else None
    except (AttributeError, NotImplementedError, RuntimeError, TypeError, ValueError):
        return None


# ---------------------------------------------------------------------- from JSON


def unpack(
    document: Any,
    tensor: Callable[[str], Tensor] | None = None,
    given: Given = types.MappingProxyType({}),
    where: str = "",
    code: Code | None = None,
) -> Any:
    """Return the value that `pack` made JSON of.

    tensor: name -> tensor, for those that were put aside.
    given: the user's own classes.
    where: the field that holds the value, for errors.
    code: what a stand-in says of code that is not given; None refuses code.

    >>> unpack({"rates": [0.1, {"$": "float", "value": "inf"}]})
    {'rates': (0.1, inf)}
    """

    def inner(name: object, document: Any, code: Code | None = code) -> Any:
        return unpack(document, tensor, given, f"{where}.{name}" if where else str(name), code)

    def several(documents: Any) -> list[Any]:
        return [inner(index, each) for index, each in enumerate(documents)]

    if isinstance(document, list):
        return tuple(several(document))
    if not isinstance(document, dict):
        return document
    if "$" not in document:
        return {name: inner(name, each) for name, each in document.items()}
    about = {name: each for name, each in document.items() if name != "$"}
    try:
        match document["$"]:
            case str(tag) if tag in _PLAIN:
                return _PLAIN[tag][2](about["value"])
            case "list":
                return several(about["items"])
            case "map":
                return {inner("key", key): inner(key, each) for key, each in about["items"]}
            case "tensor" | "array" if tensor is not None:
                numbers = tensor(about["name"])
                if (list(numbers.shape), str(numbers.dtype)[6:]) != (about["shape"], about["dtype"]):
                    raise ValueError(f"there are other numbers: {numbers.dtype} of shape {list(numbers.shape)}")
                return numbers if document["$"] == "tensor" else numbers.numpy()
            case "distribution":
                kind = _looked_up(_DISTRIBUTIONS, about["name"], "distribution")
                dtype = inner("dtype", about["dtype"])
                return kind(**{name: torch.tensor(float(v), dtype=dtype) for name, v in about["arguments"].items()})
            case "class" | "code" if code is not None:
                return _unpack_code(about, inner, given, code)
            case str(name) if name in REGISTRY:
                allowed = REGISTRY[name].code
                values = {k: inner(k, v, allowed.get(k, allowed.get("*"))) for k, v in about.items()}
                check(values, {k: hint for k, hint in REGISTRY[name].hints.items() if k in values})
                return REGISTRY[name].make(**values)
            case other:
                raise ValueError(f"this version does not know {other!r} there: update wherefrom")
    except (_Located, NotStoredError):
        raise
    except Exception as error:  # whatever a constructor makes of values that nobody vouches for
        what = f"it lacks {error}" if isinstance(error, KeyError) else error
        raise _Located(f"{where}: {what}" if where else str(what)) from error


class _Located(ValueError):
    """An error that says already in which field it is."""


def _unpack_code(about: dict[str, Any], inner: Callable[..., Any], given: Given, code: Code) -> Any:
    """Return an object of a class that is given, the class itself, or a stand-in."""
    name, is_class = str(about["name"]), "as_written" not in about
    as_written = str(about.get("as_written", name))
    classes = given.get(code.given_by or "", ())
    if is_class:
        of_torch = getattr(torch.optim, name.removeprefix("torch.optim."), None)
        of_torch = of_torch if isinstance(of_torch, type) and issubclass(of_torch, torch.optim.Optimizer) else None
        kind = next((k for k in (*classes, of_torch) if isinstance(k, type) and name_of(k) == name), None)
        return kind or StandIn(name, as_written, code.explained(name, as_written))
    settings = inner("settings", about["settings"], None) if "settings" in about else None
    kind = next((each for each in classes if each.__name__ == name), None)
    if kind is not None and settings is not None:
        try:
            return kind(**settings)
        except TypeError as error:
            raise ValueError(f"{name} is not the class that was saved: {error}") from error
    why = code.explained(name, as_written)
    if code.given_by and settings is None:
        why = (
            f"{as_written} cannot be made again from a file, which holds the fields of dataclasses, and of those "
            "numbers, text, tensors, tuples and values of this library"
        )
    facts = inner("facts", about.get("facts", {}), None)
    return StandIn(name, as_written, why, {each: facts[each] for each in code.keeps}, settings)


# ---------------------------------------------------------------------- checks


def check(values: Mapping[str, Any], hints: Mapping[str, Any]) -> None:
    """Raise if a value from a file is missing, or is not what its annotation says."""
    for name, hint in hints.items():
        if not fits(values[name], hint):
            raise ValueError(f"{name} is {values[name]!r}, which it cannot be")


def fits(value: Any, hint: Any) -> bool:
    """Return False if a value from a file cannot be what an annotation says; unknown annotations pass.

    >>> fits((1, 2.5), tuple[float, ...]), fits("1", float | None), fits({"a": 0}, dict[str, int])
    (True, False, True)
    """
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(fits(value, each) for each in inner)
    if origin is Literal:
        return value in inner
    if origin is tuple or hint is tuple:
        if not isinstance(value, tuple | list) or not inner:
            return isinstance(value, tuple | list)
        each = inner[:1] * len(value) if inner[-1] is ... else inner
        return len(each) == len(value) and all(map(fits, value, each))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return isinstance(value, Mapping) and all(fits(k, inner[0]) and fits(v, inner[1]) for k, v in value.items())
    if origin is list:
        return isinstance(value, tuple | list) and all(fits(each, inner[0]) for each in value)
    if hint in (int, bool):
        return type(value) is hint
    if hint is float:
        return type(value) in (int, float)
    if isinstance(value, StandIn):
        return True
    if hint in (str, type(None), Tensor, torch.dtype, torch.Size) or (isinstance(hint, type) and is_stored(hint)):
        return isinstance(value, hint)
    hint = origin if isinstance(origin, type) and getattr(origin, "_is_protocol", False) else hint
    if isinstance(hint, type):  # a protocol, or a class to inherit from: what it promises must be there
        methods = vars(hint) if getattr(hint, "_is_protocol", False) else {}
        promised = {**vars(hint).get("__annotations__", {}), **methods}
        there = {*dir(type(value)), *getattr(value, "__dict__", ())}  # none of which is computed
        return all(name in there for name in promised if not name.startswith("_"))
    if origin is np.ndarray:
        (kind,) = get_args(inner[1]) or (Any,)
        is_typed = isinstance(kind, type) and issubclass(kind, np.generic)
        return isinstance(value, np.ndarray) and (not is_typed or np.issubdtype(value.dtype, kind))
    return callable(value) if origin is Callable else True
