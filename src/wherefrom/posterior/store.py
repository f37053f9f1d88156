"""A posterior on disk, in a run folder (`files/folders.py`).

    posterior.json, posterior.safetensors     all but the members: words, and the numbers in them
    member-0.safetensors, ...                 a member each, so that a damaged one does not take others along

Nothing is pickled: loading a run executes no code but the model factory that the user gives.
"""

from __future__ import annotations

import json
import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from wherefrom.files import codec, folders
from wherefrom.files.documents import parsed
from wherefrom.files.errors import FileError, MissingFileError, NoCodeError
from wherefrom.files.folders import Run, Writer
from wherefrom.files.reading import DAMAGED, blaming, check_format
from wherefrom.files.stand_in import NotStoredError, StandIn
from wherefrom.laws.law import Gaussian, Law, Points
from wherefrom.laws.rotated import Rotated
from wherefrom.posterior import weighing
from wherefrom.posterior.fitting import Fitted
from wherefrom.posterior.fold import Fold
from wherefrom.posterior.member import Member, Origin
from wherefrom.posterior.networks import build_networks
from wherefrom.posterior.point import Training
from wherefrom.posterior.posterior import Posterior
from wherefrom.predictive.calibration import Calibration
from wherefrom.training import gaussian_process, rank_one, sparse, trees  # noqa: F401  kinds of model that files name
from wherefrom.training.cohort import Augmentation, Sized
from wherefrom.training.compute import Compute
from wherefrom.training.data import Scaler, Schema, as_rows
from wherefrom.training.network import Layout, Network
from wherefrom.training.precision import agree
from wherefrom.training.workers import available
from wherefrom.variables import Design
from wherefrom.variables import given as _given  # noqa: F401  what members from elsewhere differ in, in files
from wherefrom.variables.family import Factory

FORMAT = 8
JSON, TENSORS = "posterior.json", "posterior.safetensors"
_OWN = re.compile(r"posterior\.(json|safetensors)|member-\d+\.safetensors|settings\.json|kept-\d+-\w+\.safetensors")
_PROBE_ROWS = 4
_MOST_PROBED = 2**27  # numbers in a row of x

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
    "origin": Origin,
    "noise": Tensor | None,
    "calibration": tuple[Calibration, ...],
    "networks": dict[str, _Shape],
    "shared": dict[str, dict[str, Tensor]],
}
_OF_MEMBER: dict[str, Any] = {"member": Member, "probe": Tensor}


def save(posterior: Posterior, folder: Path) -> None:
    """Write a posterior into a folder: whole, or not at all."""
    with folders.writing(folder, is_new=True) as run:
        if folders.is_run(folder):
            with suppress(FileError):  # one that is damaged may be replaced
                if other := next((name for name in Run.open(folder).files if not _OWN.fullmatch(name)), None):
                    raise FileExistsError(
                        f"{folder} holds a run with {other}, which would be lost: name another folder"
                    )
        put(run, posterior)
        run.commit()


def put(run: Writer, posterior: Posterior) -> None:
    """Write the files of a posterior into the next version of a run."""
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
        "origin": posterior.origin,
        "noise": fitted.noise,
        "calibration": fitted.calibration,
        "networks": {name: (each.layout, tuple(each.rates)) for name, each in posterior.networks.items()},
        "shared": {name: dict(each.shared) for name, each in posterior.networks.items()},  # once for all members
    }
    tensors: dict[str, Tensor] = {}
    document = {"format": FORMAT, "members": len(posterior.mixture), "posterior": codec.pack(values, tensors)}
    for number, member in enumerate(posterior.mixture):
        put_member(run, member_file(number), member, probe(posterior.networks[member.family], fold, member))
    run.put_tensors(TENSORS, tensors)
    run.put_json(JSON, document)


def member_file(number: int) -> str:
    """Return the name of the file of a member, by its number in the mixture."""
    return f"member-{number}.safetensors"


def put_member(run: Writer, name: str, member: Member, answers: Tensor) -> None:
    """Write the file of one member.

    answers: as `probe` returns them, by which the member's model is recognised.
    """
    tensors: dict[str, Tensor] = {}
    about = codec.pack({"member": member, "probe": answers}, tensors)
    run.put_tensors(name, tensors, {"format": str(FORMAT), "about": json.dumps(about)})


def read_member(run: Run, name: str, given: codec.Given = MappingProxyType({})) -> tuple[Member, Tensor]:
    """Return the member in a file, and its answers to the rows of `probe`.

    given: the user's own classes, as in `load`.
    """
    metadata, tensors = run.tensors(name)
    with blaming(run.path(name)):
        check_format(_as_number(metadata.get("format")), FORMAT, run.path(name))
        values = codec.unpack(parsed(metadata["about"]), tensors.__getitem__, given)
        codec.check(values, _OF_MEMBER)
        return values["member"], values["probe"]


def _as_number(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"\d{1,9}", text) else None


def load(
    folder: str | Path,
    model: Factory | Mapping[str, Factory] | None = None,
    data: Any = None,
    device: str | torch.device = "cpu",
    *,
    partial: bool = False,
    key: str | Path | None = None,
    optimisers: Sequence[type[torch.optim.Optimizer]] = (),
    laws: Sequence[type] = (),
    variables: Sequence[type] = (),
    likelihoods: Sequence[type] = (),
    augment: Augmentation | None = None,
) -> Posterior:
    """Read a posterior that `save` wrote.

    folder: the folder that was written.
    model: the factory that it was trained with, or a dictionary of factories if there are families. It is needed
        because files hold no code; only a `wf.MLP` does without.
    data: the training data. It is not in the files, and needed only to `extend`, to fit the noise of a part, or to
        sample the weights of a network with batch normalisation.
    device: where to predict (default "cpu").
    partial: leave damaged members out, with a warning (default False: they are an error).
    key: the file of the key that must have signed the run (default: no signature is asked for).
    optimisers, laws, variables: your own classes, needed only to `extend`. A law that is neither points nor a Gaussian
        is also needed to predict.
    likelihoods: your own classes of likelihoods, unless they are decorated with `@stored("Name")`.
    augment: your own augmentation, needed only to `extend`.
    """
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
    target_device = available(device)
    return folders.reading(
        folder, lambda run: read(run, model, data, target_device, given, augment, is_partial=partial), key
    )


def read(
    run: Run,
    model: Factory | Mapping[str, Factory] | None = None,
    data: Any = None,
    device: torch.device = torch.device("cpu"),  # noqa: B008
    given: codec.Given = MappingProxyType({}),
    augment: Augmentation | None = None,
    *,
    is_partial: bool = False,
) -> Posterior:
    """Return the posterior in a version of a run; the arguments are those of `load`."""
    if JSON not in run:
        raise MissingFileError(f"{run.folder} holds no saved posterior: its manifest lists no {JSON}")
    document, path = run.json(JSON), run.path(JSON)
    check_format(document.get("format"), FORMAT, run.folder)
    _, tensors = run.tensors(TENSORS)
    with blaming(path):
        values = codec.unpack(document["posterior"], tensors.__getitem__, given)
        codec.check(values, _KINDS)
        keep = getattr(getattr(values["design"].iterations, "law", None), "kept", None)
        members, damaged = _members(run, document["members"], given, is_partial, keep)
        training, design, schema, origin = (values[name] for name in ("training", "design", "schema", "origin"))
        weights = (1.0,) if origin.weights is None else origin.weights
        if origin.weights is not None and len(weights) != len(members) + len(damaged):
            raise ValueError(f"there are {len(weights)} weights of {document['members']} members")
        if min(weights) < 0 or not math.isclose(math.fsum(weights), 1.0, abs_tol=1e-6):
            raise ValueError("the weights of the members do not add up to one")
        if damaged:
            origin = _without(origin, damaged)
        families = design.families
        stored_models = {"": training.model} if families is None else dict(families.factories)
        _check_sizes(values, stored_models, [member for member, _ in members])
    models = _models(model, stored_models, run.folder)
    if families is not None:
        families.factories.update(models)  # it was made here, and nobody else has it yet
    training = replace(training, model=next(iter(models.values())), augment=augment or training.augment)
    networks = _built(run.folder, training, values, data)
    for name, network in networks.items():
        _check_same(run.folder, name, network, values["networks"].get(name))
        networks[name] = _sharing(run.folder, name, network, values["shared"].get(name, {}))
    for member, _ in members:
        if isinstance(law := member.trained.law, StandIn):
            raise NotStoredError(f"{run.folder} cannot be read whole: {law.why}")
    with blaming(path):
        posterior = Posterior(
            training,
            design,
            {name: network.to(device) for name, network in networks.items()},
            Fold(values["seed"], schema, values["scaler"], aside=values["aside"], parts=values["parts"]),
            Compute(device, values["dtype"], autocast=values["autocast"]),
            tuple(member.on(device) for member, _ in members),
            origin,
            Fitted(values["noise"], values["calibration"]),
        )
        _check_design(posterior)
        for name, (member, expected) in {each[0].family: each for each in reversed(members)}.items():
            answers = probe(networks[name], posterior.fold, member)
            if not agree(answers, expected.to(answers.dtype)):
                raise _another(run.folder, name, "the same weights give other answers")
    if damaged:
        warnings.warn(
            f"{run.folder}: {len(damaged)} of {len(damaged) + len(members)} members are damaged and left out; noise "
            f"and calibration were fitted with all of them ({next(iter(damaged.values()))})",
            stacklevel=5,
        )
    return posterior if data is None else posterior.with_data(data)


def _members(
    run: Run, count: Any, given: codec.Given, is_partial: bool, keep: Callable[[Law], Law] | None
) -> tuple[list[tuple[Member, Tensor]], dict[int, FileError]]:
    """Return the members that are whole, with their answers to the probe, and what is wrong with the others.

    keep: says where a law is to stay, such as on disk (default None: in memory).
    """
    if type(count) is not int or not 0 < count <= len(run.files):
        raise ValueError(f"it cannot have {count!r} members")
    members, damaged = [], {}
    for number in range(count):
        try:
            member, answers = read_member(run, member_file(number), given)
            trained = member.trained
            if keep is not None and trained.law is not None:
                member = replace(member, trained=replace(trained, law=keep(trained.law), last=trained.last.clone()))
            members.append((member, answers))
        except FileError as error:
            if not is_partial:
                raise FileError(f"{error}; wf.load(..., partial=True) leaves damaged members out") from error
            damaged[number] = error
    if not members:
        raise FileError(f"{run.folder} has no member that is whole: {DAMAGED}")
    return members, damaged


def _without(origin: Origin, damaged: Mapping[int, FileError]) -> Origin:
    """Return the history of a mixture without its damaged members."""
    weights = origin.weights
    if weights is not None:
        kept = [weight for number, weight in enumerate(weights) if number not in damaged]
        weights = tuple(weight / math.fsum(kept) for weight in kept)
    names = tuple(f"member {number}" for number in damaged)
    return replace(origin, damaged=(*origin.damaged, *names), weights=weights)


def _check_sizes(values: Mapping[str, Any], models: Mapping[str, Any], members: Sequence[Member]) -> None:
    """Raise, before networks are built, if sizes that a file states are not those of the numbers in it."""
    shapes, schema, axes = values["networks"], values["schema"], [axis.name for axis in values["design"].axes]
    for member in members:
        _check_member(member, shapes[member.family][0], axes)
    if len({tuple(member.run.labels.values()) for member in members}) < len(members):
        raise ValueError("two members are the same draw")
    for name, factory in models.items():
        if isinstance(factory, Sized):
            inputs = values["scaler"].input_shape(schema.x_shape)
            outputs = values["training"].likelihood.outputs(schema.targets)
            size = factory.size(math.prod(inputs), outputs)
            if name not in shapes or shapes[name][0].size != size:
                raise ValueError(f"{factory!r} has {size} weights, which the file does not hold")


def _check_member(member: Member, layout: Layout, axes: Sequence[str]) -> None:
    """Raise if a member's numbers are not those of its network, or its labels not those of the design."""
    last, law, size = member.trained.last, member.trained.law, layout.varying_size
    if last.shape != (layout.size,) or not last.is_floating_point():
        raise ValueError(f"{member.run} has weights of shape {tuple(last.shape)}, not of ({layout.size},)")
    if not bool(torch.isfinite(last[: layout.trained_size]).all()) or not member.trained.losses:
        raise ValueError(f"{member.run} has weights that are not finite, or no losses")
    is_sound = True
    if isinstance(law, Points):
        is_sound = law.points.ndim == 2 and law.points.shape[0] > 0 and law.points.shape[1] == size
    elif isinstance(law, Gaussian):
        is_shaped = law.mean.shape == law.diagonal.shape == (size,) and law.factor.ndim == 2
        is_sound = is_shaped and law.factor.shape[1] == size and bool((law.diagonal >= 0).all())
    elif isinstance(law, Rotated):
        is_sound = law.is_over(size)
    if not is_sound:
        raise ValueError(f"{member.run} has a law that is not over its {size} weights")
    if list(member.run.labels) != list(axes) or min(member.run.labels.values(), default=0) < 0:
        raise ValueError(f"{member.run} is not a draw of {', '.join(axes) or 'nothing'}")


def _check_design(posterior: Posterior) -> None:
    """Raise unless the members are all that the design crosses, or it is known why some are missing."""
    weighing.crossed_axes(posterior)  # raises if the weights of an axis are not those of its draws
    counts = {axis.name: len(posterior.draws(axis.name)) for axis in posterior.design.axes}
    is_whole = posterior.origin.missing is None and posterior.origin.weights is None
    if is_whole and len(posterior) != math.prod(counts.values()):
        words = ", ".join(f"{count} of {name}" for name, count in counts.items())
        raise ValueError(f"its {len(posterior)} members do not cross their draws: {words}")


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
                training,
                values["design"],
                values["origin"].dropout,
                x,
                schema.targets,
                values["seed"],
                schema.x_names,
                schema.joined,
                values["shared"],
            )
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            errors.append(error)
    hint = "; if it takes no rows but its own, give them: load(..., data=(x, y))" if data is None else ""
    what = errors[0] if errors else "its rows have too many numbers to be made up"
    raise FileError(f"{folder} cannot be read with this model: {what}{hint}") from (errors[0] if errors else None)


def probe(network: Network, fold: Fold, member: Member) -> Tensor:
    """Return a member's answers to some fixed rows, on the CPU, by which its model is recognised.

    The rows are the first that the network takes; if it takes none of them, there are no answers.
    """
    network, theta = network.private("store").to(torch.device("cpu")), member.trained.last.cpu()
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
    if math.prod(shape) > _MOST_PROBED:
        return []
    if not schema.x_is_float:
        return [torch.zeros(shape, dtype=torch.int64)]
    generator = torch.Generator().manual_seed(0)
    normal = torch.randn(shape, generator=generator, dtype=torch.float64)
    normal = normal if schema.joined is None else schema.joined.made_up(normal)
    return [normal.to(dtype), (normal > 0).to(dtype)]


def _another(folder: Path, name: str, difference: str) -> FileError:
    the_model = f"the model {name!r}" if name else "the model"
    return FileError(f"{the_model} is not the one that was saved in {folder}: {difference}")


def _check_same(folder: Path, name: str, network: Network, stored: _Shape | None) -> None:
    """Raise if a model has other tensors or dropout rates than the one that was saved."""
    layout, rates = stored or (Layout((), (), 0, 0), ())
    was, now = (dict(zip(each.names, map(list, each.shapes), strict=False)) for each in (layout, network.layout))
    for each in {**was, **now}:
        if was.get(each) != now.get(each):
            raise _another(folder, name, f"{each} was {was.get(each, 'not there')} and is {now.get(each, 'not there')}")
    if list(was) != list(now):
        raise _another(folder, name, "its tensors stand in another order")
    if tuple(network.rates) != rates:
        raise _another(folder, name, f"its dropout rates were {list(rates)}")


def _sharing(folder: Path, name: str, network: Network, stored: dict[str, Tensor]) -> Network:
    """Return the network with the stored numbers that all members share; raise if it shares tensors of other shapes."""
    was, now = ({each: list(t.shape) for each, t in tensors.items()} for tensors in (stored, network.shared))
    for each in {**was, **now}:
        if was.get(each) != now.get(each):
            shapes = f"{was.get(each, 'not there')} and is {now.get(each, 'not there')}"
            raise _another(folder, name, f"{each}, which members share, was {shapes}")
    return network.with_shared(stored)


def _models(
    given: Factory | Mapping[str, Factory] | None, stored: Mapping[str, Factory], folder: Path
) -> dict[str, Factory]:
    """Return the model factory of each family: as given, or an MLP that was stored."""
    if given is not None and not isinstance(given, Mapping) and len(stored) > 1:
        raise ValueError(f"there are several families: give a dictionary of factories for {', '.join(stored)}")
    named = given if isinstance(given, Mapping) else {} if given is None else dict.fromkeys(stored, given)
    models = {name: named.get(name, factory) for name, factory in stored.items()}
    if missing := [name for name, factory in models.items() if isinstance(factory, StandIn)]:
        what = "the model factory" if missing == [""] else f"model factories for {', '.join(map(repr, missing))}"
        raise NoCodeError(f"{folder}: a file holds no code: give {what}, as load(folder, model=...)")
    return models
