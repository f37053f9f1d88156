"""Members that are kept as they are trained, in the run folder that the posterior is saved in at the end.

    settings.json                         what the trainings depend on, by name; another call is refused by it
    kept-0-<digest>.safetensors           a finished member of fold 0, until the posterior is saved
    member-0.safetensors, posterior.json  the saved posterior (`store.py`)
    checkpoints/                          members on their way, until all are finished

A member is known by its fold and its draws, so the same call trains only what is not there, and more draws only the new
ones. The folder's lock keeps a second writer out.
"""

from __future__ import annotations

import re
import shutil
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch

from wherefrom.files import folders
from wherefrom.files.digests import digest
from wherefrom.files.errors import FileError
from wherefrom.files.folders import Writer
from wherefrom.files.stand_in import NotStoredError, StandIn
from wherefrom.posterior import store
from wherefrom.posterior.caller import users_stacklevel
from wherefrom.posterior.fold import Fold
from wherefrom.posterior.member import Member, family_of
from wherefrom.posterior.point import Training
from wherefrom.posterior.posterior import Posterior
from wherefrom.training.compute import Compute
from wherefrom.training.interruption import Interrupted
from wherefrom.training.network import Network
from wherefrom.variables import Design, Run

SETTINGS, CHECKPOINTS = "settings.json", "checkpoints"
FORMAT = 1
_KEPT = re.compile(r"kept-(\d+)-[0-9a-f]{32}\.safetensors")
_MEMBER = re.compile(r"member-\d+\.safetensors")


@contextmanager
def keeping(
    folder: str | Path,
    training: Training,
    design: Design,
    networks: dict[str, Network],
    parts: Sequence[Fold],
    compute: Compute,
) -> Iterator[Kept]:
    """Hold a run folder, and yield what keeps members in it; other settings than those it was begun with are refused.

    An interruption is raised with words on how to go on.
    """
    folder = Path(folder)
    settings = _settings(training, design, networks, parts, compute)
    if folders.is_run(folder):  # said before a lock is taken
        _check_settings(folder, folders.Run.open(folder), settings)
    with folders.writing(folder) as run:
        if folders.is_run(folder):
            _check_settings(folder, folders.Run.open(folder), settings)
        kept = Kept(run, networks, parts, compute.torch_device)
        run.put_json(SETTINGS, {"format": FORMAT, "settings": settings})
        run.commit()
        try:
            yield kept
        except KeyboardInterrupt as stop:
            raise Interrupted(
                f"training was interrupted: {kept.count} finished members are in {folder}, with unfinished ones if "
                "they had finished an epoch; make the same call again to continue"
            ) from stop


class Kept:
    """The finished members in a run folder, by fold and run."""

    def __init__(self, run: Writer, networks: dict[str, Network], parts: Sequence[Fold], device: torch.device) -> None:
        self.run, self.networks, self.parts, self.device = run, networks, parts, device
        self.files: dict[str, str] = {}  # key -> file, read when it is asked for
        self.members: dict[str, Member] = {}
        for name in list(run.files):
            if match := _KEPT.fullmatch(name):
                self.files[name[len(f"kept-{match[1]}-") : -len(".safetensors")]] = name
            elif _MEMBER.fullmatch(name) and (member := self._read(name, 0)) is not None:
                key = _key(0, member.run)
                self.files[key], self.members[key] = name, member

    @property
    def count(self) -> int:
        """The number of finished members."""
        return len(self.files)

    @property
    def checkpoints(self) -> Path:
        """The folder for members on their way."""
        return self.run.folder / CHECKPOINTS

    def get(self, fold: int, run: Run) -> Member | None:
        """Return a member that is finished, and None for others."""
        key = _key(fold, run)
        if key in self.files and key not in self.members:
            member = self._read(self.files[key], fold)
            if member is None:
                del self.files[key]
                return None
            self.members[key] = member
        # Choices may be code, which no file holds: those of this call are taken.
        return replace(self.members[key], run=run) if key in self.members else None

    def keep(self, fold: int, member: Member) -> None:
        """Write a finished member; it is there when this returns."""
        key = _key(fold, member.run)
        name = f"kept-{fold}-{key}.safetensors"
        answers = store.probe(self.networks[member.family], self.parts[fold], member)
        store.put_member(self.run, name, member, answers)
        self.files[key], self.members[key] = name, member
        self.run.commit()

    def finish(self, posteriors: Sequence[Posterior], *, is_one: bool) -> None:
        """Save the posterior in place of its members, if there is one; folds keep their members alone."""
        if is_one:
            before = [name for name in self.run.files if _MEMBER.fullmatch(name)]
            beyond = [(fold, m) for fold, m in self._members_of(before) if not _is_in(posteriors[0], m)]
            for fold, member in beyond:  # of more draws than this call has
                self.keep(fold, member)
            store.put(self.run, posteriors[0])
            written = {store.member_file(number) for number in range(len(posteriors[0].mixture))}
            replaced = {f"kept-0-{_key(0, member.run)}.safetensors" for member in posteriors[0].mixture}
            for name in {*before} - written | replaced & set(self.run.files):
                self.run.drop(name)
            self.run.commit()
        shutil.rmtree(self.checkpoints, ignore_errors=True)

    def _members_of(self, names: Sequence[str]) -> list[tuple[int, Member]]:
        keys = {name: key for key, name in self.files.items()}
        return [(0, self.members[keys[name]]) for name in names if name in keys]

    def _read(self, name: str, fold: int) -> Member | None:
        """Return the member in a file; None, with a warning, if the file is damaged: it is trained again."""
        run = folders.Run.open(self.run.folder)
        try:
            member, answers = store.read_member(run, name)
        except FileError as error:
            warnings.warn(f"a member is trained again: {error}", stacklevel=users_stacklevel())
            self.run.drop(name)
            return None
        if isinstance(law := member.trained.law, StandIn):
            raise NotStoredError(f"{run.path(name)} cannot be read: {law.why}")
        now = store.probe(self.networks[family_of(member.run)], self.parts[fold], member)
        is_same = now.shape == answers.shape and torch.allclose(now, answers, rtol=1e-3, atol=1e-5, equal_nan=True)
        if not is_same:
            raise ValueError(
                f"{self.run.folder} was begun with another model: with the same weights it gives other answers. Name "
                "another folder as store"
            )
        return replace(member, trained=replace(member.trained, last=member.trained.last.to(self.device)))


def _key(fold: int, run: Run) -> str:
    return digest(fold, sorted(run.labels.items()), sorted(run.slots.items()))


def _is_in(posterior: Posterior, member: Member) -> bool:
    return any(_key(0, member.run) == _key(0, other.run) for other in posterior.mixture)


# ---------------------------------------------------------------------- settings


def _settings(
    training: Training, design: Design, networks: Mapping[str, Network], parts: Sequence[Fold], compute: Compute
) -> dict[str, Any]:
    """Return all that trainings depend on but the number of draws, by name, as text."""
    named: dict[str, Any] = {
        "data": [[part.schema.digest, part.held_out and part.held_out.schema.digest] for part in parts],
        "seed": [part.seed for part in parts],
        "model": {name: digest(_nameless(network.description), network.layout) for name, network in networks.items()},
        "algorithm": training.algorithm,
        "epochs": training.epochs,
        "likelihood": training.likelihood,
        "standardise": training.standardise,
        "augment": training.augment,
        "over": {axis.name: [_without_draws(variable) for variable in axis.variables] for axis in design.axes},
        "iterations": design.iterations,
        "dropout": design.dropout,
        "dtype": compute.dtype,
        "autocast": compute.autocast,
        "engine": compute.engine,
    }
    return {name: _nameless(str(value)) for name, value in named.items()}


def _without_draws(variable: Any) -> str:
    """Return a variable as text, without the number of its draws."""
    values = [f"{f.name}={getattr(variable, f.name)!r}" for f in fields(variable) if f.name != "draws"]
    return f"{type(variable).__name__}({', '.join(values)})"


def _nameless(text: str) -> str:
    """Return text without the addresses of objects, which differ from process to process."""
    return re.sub(r" at 0x[0-9a-fA-F]+", "", text)


def _check_settings(folder: Path, run: folders.Run, settings: Mapping[str, str]) -> None:
    """Raise if a folder holds something else, or trainings with other settings."""
    if SETTINGS not in run:
        raise FileExistsError(f"{folder} holds a run that was not made by store={str(folder)!r}: name another folder")
    document = run.json(SETTINGS)
    before = document.get("settings")
    if document.get("format") != FORMAT or not isinstance(before, dict):
        raise FileError(f"{run.path(SETTINGS)} cannot be read by this version: name another folder as store")
    for name in settings:
        if before.get(name) != settings[name]:
            was, now = (_short(values.get(name)) for values in (before, settings))
            what = "the data is not the same" if name in ("data", "model") else f"{name} was {was} and is {now}"
            what = what.replace("the data", f"the {name}")
            raise ValueError(f"{folder} was begun with other settings: {what}. Name another folder as store")


def _short(text: Any) -> str:
    written = str(text)
    return written if len(written) <= 200 else f"{written[:200]}..."
