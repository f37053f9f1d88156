"""Checkpoints: trainings that were interrupted go on where they were, and end in the same bits.

Members that train together are one file, written under a temporary name and renamed: their state while they train
(`resumable`), and the trained members afterwards. A member is known by a digest of all that its training depends on, so
a folder may hold any trainings, and each finds its members, whatever group they were in. Nothing is pickled.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from wherefrom.files import atomic, codec
from wherefrom.files.digests import digest
from wherefrom.files.reading import blaming, opened
from wherefrom.training.augmentation import augmented
from wherefrom.training.cohort import Cohort, Engine, Examples, Trained, Trainee
from wherefrom.training.resumable import Resumable, State
from wherefrom.training.torch_classes import TorchOptimiser

FORMAT = 3
_MARK = "wherefrom checkpoint"  # in the metadata of a safetensors file, with the number of its format
_ROWS_AT_ONCE = 4096  # that are read for a digest
_PROBE_ROWS = 4
_MOMENTS = 1000  # at which a schedule is asked


@dataclass(frozen=True)
class Checkpoints:
    """A folder in which trainings are written down at the end of an epoch, if so many seconds have passed since.

    They are also written when a training is interrupted between two epochs, and when it is finished. The files stay:
    the same training, started again, finds its members there, and more draws of a variable train only the new ones.
    Delete the folder when you no longer need it.

    >>> Checkpoints("run/checkpoints", seconds=300)
    Checkpoints(folder='run/checkpoints', seconds=300)
    """

    folder: str | Path
    seconds: float = 60.0

    def __post_init__(self) -> None:
        if not self.seconds >= 0:
            raise ValueError(f"seconds must not be negative; they are {self.seconds}")

    @classmethod
    def of(cls, given: str | Path | Checkpoints | None) -> Checkpoints | None:
        if given is None or isinstance(given, Checkpoints):
            return given
        if not isinstance(given, str | Path):
            raise TypeError(f"checkpoints must be a folder, or wf.Checkpoints(folder, seconds=...), not {given!r}")
        return cls(given)


class Keeper:
    """The checkpoints of one cohort, trained by one engine."""

    def __init__(self, where: Checkpoints, cohort: Cohort, engine: Engine, device: torch.device) -> None:
        self.where, self.cohort, self.engine, self.device = where, cohort, engine, device
        self.folder = Path(where.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        shared = _shared_digest(cohort, engine)
        tables = [_table_digest(table) for table in cohort.tables]
        self.digests = {id(m): digest(shared, tables[m.table], _described(cohort, m), m.theta0) for m in cohort.members}
        self.files = [file for path in sorted(self.folder.glob("*.safetensors")) if (file := _File.of(path))]

    def train(self, members: Sequence[Trainee], report: Callable[[int], None]) -> list[Trained]:
        """Train those members of a group that are not finished in a file.

        Members of one file go on together; those that are in no file begin together.
        """
        digests = [self.digests[id(member)] for member in members]
        trained: dict[int, Trained] = {}
        parts: dict[_File | None, list[int]] = {}
        whole = self._best([file for file in self.files if set(digests) <= set(file.members)], digests)
        for number, one in enumerate(digests):
            file = whole or self._best([file for file in self.files if one in file.members], [one])
            parts.setdefault(file, []).append(number)
        for file, numbers in parts.items():
            part = self._part(file, [members[k] for k in numbers], [digests[k] for k in numbers], report)
            trained |= dict(zip(numbers, part, strict=True))
        return [trained[number] for number in range(len(members))]

    @staticmethod
    def _best(files: Sequence[_File], digests: Sequence[str]) -> _File | None:
        """Return the file in which these members are furthest, finished ones before all others."""
        return max(files, key=lambda file: (file.is_finished, min(file.epochs[each] for each in digests)), default=None)

    def _part(
        self, file: _File | None, members: list[Trainee], digests: list[str], report: Callable[[int], None]
    ) -> list[Trained]:
        if file is not None:
            self._check(file, members[0])
        if file is not None and file.is_finished:
            report(self.cohort.epochs * len(members))
            trained = [file.value("trained", each, Trained) for each in digests]
            return [replace(one, last=one.last.to(self.device)) for one in trained]
        keeping = Keeping(self, file, members, digests)

        def report_or_keep(done: int) -> None:
            try:
                report(done)
            except BaseException:  # between two epochs: nothing is lost
                keeping.write()
                raise

        return keeping.finished(self.engine.train(members, report_or_keep, keeping))

    def _check(self, file: _File, member: Trainee) -> None:
        """Raise if the model has changed: the digest knows its name and its tensors, not what it computes."""
        stored, now = file.value("probes", self.digests[id(member)], Tensor), self._probe(member)
        if stored.shape != now.shape or not torch.allclose(now, stored, rtol=1e-3, atol=1e-5, equal_nan=True):
            raise ValueError(
                f"{file.path} holds a training of another model: with the same weights it gives other answers. If you "
                "have changed the model or the augmentation, give another folder for the checkpoints"
            )

    def _probe(self, member: Trainee) -> Tensor:
        """Return a member's answers to its first rows, as it sees them in training, before its first step."""
        cohort, network = self.cohort, self.cohort.network.private("checkpoints")
        rows: Any = cohort.tables[member.table].x[:_PROBE_ROWS]
        rows = rows.read() if hasattr(rows, "read") else rows.clone()
        rows = rows if cohort.augment is None else augmented(cohort.augment, rows, 0, 0)
        theta = member.theta0.to(self.device)
        with torch.no_grad():
            return network.call(network.layout.views(theta), rows.to(self.device), (), False).float().cpu()

    def save(self, members: Sequence[Trainee], digests: Sequence[str], values: dict[str, Any]) -> None:
        """Write one file for these members, which replaces the one before."""
        tensors: dict[str, Tensor] = {}
        probes = tuple(self._probe(member) for member in members)
        about = codec.pack({"members": tuple(digests), "probes": probes, **values}, tensors)
        path = self.folder / f"{digest(*sorted(digests))}.safetensors"
        atomic.write_tensors(path, tensors, {_MARK: str(FORMAT), "about": json.dumps(about)})


class Keeping:
    """The checkpoint of some members while an engine trains them."""

    def __init__(self, keeper: Keeper, file: _File | None, members: list[Trainee], digests: list[str]) -> None:
        self.keeper, self.file, self.members, self.digests = keeper, file, members, digests
        self.began, self.written = time.thread_time(), time.monotonic()
        self.before = [0.0] * len(digests)  # seconds that each took until it was interrupted
        self.training: Resumable | None = None

    def begin(self, training: Resumable) -> list[int]:
        """Bring it to where its members were, and return how many epochs each has done."""
        training.check()
        self.training, file = training, self.file
        for number, member in enumerate(self.digests if file is not None else []):
            assert file is not None
            state: State = file.value("states", member, dict[str, Any])
            with blaming(file.path):
                training.restore(number, state, file.epochs[member])
                self.before[number] = float(state["seconds"])
        return training.epochs

    def reached(self) -> None:
        """Write the state after an epoch, if it is time."""
        if time.monotonic() - self.written >= self.keeper.where.seconds:
            self.write()

    def write(self) -> None:
        if self.training is None or not any(self.training.epochs):
            return
        epochs = tuple(self.training.epochs)
        try:
            states = tuple({**self.training.state(k), "seconds": each} for k, each in enumerate(self._seconds()))
            self.keeper.save(self.members, self.digests, {"epochs": epochs, "states": states})
        except ValueError as error:
            raise ValueError(
                f"{error}: this training cannot be written while it is on its way; leave checkpoints out"
            ) from error
        self.written = time.monotonic()

    def finished(self, trained: Sequence[Trained]) -> list[Trained]:
        """Write the trained members over their state; their seconds include those before an interruption."""
        trained = [replace(one, seconds=one.seconds + s) for one, s in zip(trained, self.before, strict=True)]
        if any(one.law is not None and not codec.is_stored(type(one.law)) for one in trained):
            return trained  # a file cannot hold the user's law: the last state stays, to be trained on from
        self.keeper.save(self.members, self.digests, {"trained": tuple(trained)})
        return trained

    def _seconds(self) -> list[float]:
        return [before + (time.thread_time() - self.began) / len(self.before) for before in self.before]


class _File:
    """A checkpoint on disk; each value is read when it is asked for."""

    def __init__(self, path: Path, about: dict[str, Any]) -> None:
        self.path, self.about, self.members = path, about, about["members"]
        self.is_finished = "trained" in about
        epochs = [0] * len(self.members) if self.is_finished else about["epochs"]
        self.epochs = dict(zip(self.members, map(int, epochs), strict=True))  # done, by member

    @classmethod
    def of(cls, path: Path) -> _File | None:
        """Return the checkpoint; None, if another program or version wrote it, or it is damaged."""
        try:
            with opened(path) as file:
                metadata = file.metadata() or {}
            return cls(path, json.loads(metadata["about"])) if metadata.get(_MARK) == str(FORMAT) else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def value(self, part: str, member: str, kind: Any) -> Any:
        """Return one value of one member, and read no other member's tensors."""
        with opened(self.path) as file:
            value = codec.unpack(self.about[part][self.members.index(member)], file.get_tensor, where=part)
            codec.check({part: value}, {part: kind})
        return value


# ---------------------------------------------------------------------- by what a member is known


def _table_digest(table: Examples) -> str:
    """Digest of all rows, a few at a time. Streamed inputs provide their own fingerprint."""
    if hasattr(table.x, "fingerprint"):
        return digest(len(table.y), table.x.fingerprint(), *(part for part in table[1:] if part is not None))
    starts = range(0, len(table.y), _ROWS_AT_ONCE)
    each = (digest(*(part[a : a + _ROWS_AT_ONCE] for part in table if part is not None)) for a in starts)
    return digest(len(table.y), *each)


def _shared_digest(cohort: Cohort, engine: Engine) -> str:
    """Digest of all that the members of a cohort share."""
    network, optimiser, collection = cohort.network, cohort.optimiser, cohort.collection
    fixed = (
        {name: _written(value) for name, value in optimiser.fixed.items()}
        if isinstance(optimiser, TorchOptimiser)
        else {}
    )
    return digest(
        engine.name,
        _nameless(network.description),
        network.layout,
        network.sites,
        network.drops,
        *(part for name, tensor in network.constants.items() for part in (name, tensor)),
        optimiser,
        fixed,
        cohort.batch_size,
        cohort.epochs,
        cohort.steps_per_epoch,
        collection and (collection.law, vars(collection.law), collection.steps),
        _nameless(repr(cohort.augment)),
        cohort.autocast,
    )


def _described(cohort: Cohort, member: Trainee) -> tuple[Any, ...]:
    """A member's settings and streams; a schedule is known by its factors at some moments."""
    moments = np.unique(np.linspace(0, cohort.epochs * cohort.steps_per_epoch - 1, _MOMENTS).astype(np.int64))
    factors = [cohort.factors(member, int(moment), 1)[0] for moment in moments] if member.schedule else []
    return (
        sorted(member.settings.items()),
        *(member.order, member.masks, member.augmentation, member.replacement),
        cohort.rates(member),
        cohort.loss_of(member),
        list(map(float, factors)),
    )


def _written(value: Any) -> str:
    return _nameless(getattr(value, "__qualname__", None) or repr(value))


def _nameless(text: str) -> str:
    """Text without the addresses of objects, which differ from process to process."""
    return re.sub(r" at 0x[0-9a-fA-F]+", "", text)
