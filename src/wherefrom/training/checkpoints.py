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

import torch
from torch import Tensor

from wherefrom.files import atomic, codec
from wherefrom.files.digests import digest
from wherefrom.files.documents import parsed
from wherefrom.files.errors import FileError, MissingFileError
from wherefrom.files.reading import TensorFile, blaming
from wherefrom.training import identity
from wherefrom.training.augmentation import augmented
from wherefrom.training.cohort import Cohort, Engine, Trained, Trainee
from wherefrom.training.continuing import Continuing
from wherefrom.training.interruption import is_requested, stop_if_requested
from wherefrom.training.precision import agree
from wherefrom.training.resumable import Resumable, State

FORMAT = 4
_MARK = "wherefrom checkpoint"  # in the metadata of a safetensors file, with the number of its format
_OLDER = tuple(map(str, range(1, FORMAT)))
_ADVICE = "delete it, and its members are trained anew"
_NAME = r"[0-9a-f]{32}\.safetensors"  # of a checkpoint
_PROBE_ROWS = 4


@dataclass(frozen=True)
class Checkpoints:
    """A folder to which training is saved at the end of an epoch, if `seconds` have passed since the last time.

    They are also written when a training is finished, and when it is interrupted by Ctrl-C or SIGTERM: training goes on
    to the end of the epoch, unless the last finished one is in its file already. The files stay: the same training,
    started again, finds its members there, and more draws of a variable train only the new ones. Delete the folder when
    you no longer need it.

    folder: where the files are.
    seconds: time between two writes, at least (default 60).

    >>> Checkpoints("run/checkpoints", seconds=300)
    Checkpoints(folder='run/checkpoints', seconds=300)
    """

    folder: str | Path
    seconds: float = 60.0

    def __post_init__(self) -> None:
        if not self.seconds >= 0:
            raise ValueError(f"seconds must not be negative; they are {self.seconds}")

    @classmethod
    def of(cls, given: str | Path | Checkpoints | Continuing | None) -> Checkpoints | Continuing | None:
        if given is None or isinstance(given, Checkpoints | Continuing):
            return given
        if not isinstance(given, str | Path):
            raise TypeError(f"checkpoints must be a folder, or wf.Checkpoints(folder, seconds=...), not {given!r}")
        return cls(given)


class Keeper:
    """The checkpoints of one cohort, trained by one engine.

    writes: False goes on from what is in the files, and leaves writing and stopping to another process.
    """

    def __init__(
        self, where: Checkpoints, cohort: Cohort, engine: Engine, device: torch.device, *, writes: bool = True
    ) -> None:
        self.where, self.cohort, self.engine, self.device, self.writes = where, cohort, engine, device, writes
        self.folder = Path(where.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        atomic.clean(self.folder, _NAME)
        collection = cohort.collection
        self.shared_digest = digest(
            identity.of_cohort(cohort, engine.name),
            cohort.epochs,
            collection and (collection.law, vars(collection.law), collection.steps),
        )
        self.table_digests: dict[int, str] = {}  # of those whose members were asked for
        self.files = [file for path in sorted(self.folder.glob("*.safetensors")) if (file := _File.of(path))]

    def train(self, members: Sequence[Trainee], report: Callable[[int], None]) -> list[Trained]:
        """Train those members of a group that are not finished in a file.

        Members of one file go on together; those that are in no file begin together.
        """
        digests = [self._digest(member) for member in members]
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

    def _digest(self, member: Trainee) -> str:
        """Digest of all that a member's training depends on."""
        table = member.table
        if table not in self.table_digests:
            self.table_digests[table] = identity.of_table(self.cohort.tables[table])
        described = identity.of_member(self.cohort, member)
        return digest(self.shared_digest, self.table_digests[table], described, member.theta0)

    @staticmethod
    def _best(files: Sequence[_File], digests: Sequence[str]) -> _File | None:
        """Return the file in which these members are furthest, finished ones before all others."""
        return max(files, key=lambda file: (file.is_finished, min(file.epochs[each] for each in digests)), default=None)

    def _part(
        self, file: _File | None, members: list[Trainee], digests: list[str], report: Callable[[int], None]
    ) -> list[Trained]:
        if file is not None:
            self._check(file, members[0], digests[0])
        if file is not None and file.is_finished:
            report(self.cohort.epochs * len(members))
            trained = [file.value("trained", each, Trained) for each in digests]
            shape = (self.cohort.network.layout.size,)
            if any(one.last.shape != shape or not one.losses for one in trained):
                raise FileError(f"{file.path} holds no members of this network: {_ADVICE}")
            return [replace(one, last=one.last.to(self.device)) for one in trained]
        if self.writes:
            stop_if_requested()
        keeping = Keeping(self, file, members, digests)
        if not self.writes:
            return keeping.finished(self.engine.train(members, report, keeping))

        def report_or_keep(done: int) -> None:
            try:
                stop_if_requested()
                report(done)
            except BaseException:  # between two epochs: nothing is lost
                keeping.write()
                raise

        return keeping.finished(self.engine.train(members, report_or_keep, keeping))

    def _check(self, file: _File, member: Trainee, its_digest: str) -> None:
        """Raise if the model has changed: the digest knows its name and its tensors, not what it computes."""
        stored, now = file.value("probes", its_digest, Tensor), self._probe(member)
        if not agree(now, stored):
            raise FileError(
                f"{file.path} holds a training of another model: with the same weights it gives other answers. If you "
                "have changed the model or the augmentation, give another folder for the checkpoints"
            )

    def _probe(self, member: Trainee) -> Tensor:
        """Return a member's answers to its first rows, as it sees them in training, before its first step.

        They are computed on the CPU wherever it trains, so that another device, which rounds otherwise, finds the same.
        """
        cohort, network = self.cohort, self.cohort.network.private("checkpoints").to(torch.device("cpu"))
        rows: Any = cohort.tables[member.table].x[:_PROBE_ROWS]
        rows = rows.read() if hasattr(rows, "read") else rows.clone()
        rows = rows if cohort.augment is None else augmented(cohort.augment, rows, 0, 0)
        with torch.no_grad():
            return network.call(network.layout.views(member.theta0.cpu()), rows.cpu(), (), False).float()

    def save(self, members: Sequence[Trainee], digests: Sequence[str], values: dict[str, Any]) -> None:
        """Write one file for these members, which replaces the one before."""
        if not self.writes:
            return
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
        self.in_file: list[int] = []  # epochs of each member that the file holds

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
        self.in_file = list(training.epochs)
        return training.epochs

    def reached(self) -> None:
        """Write the state after an epoch, if it is time."""
        if time.monotonic() - self.written >= self.keeper.where.seconds:
            self.write()

    def between_steps(self) -> None:
        """Stop within an epoch where that is asked for and the file holds the last finished one."""
        if self.keeper.writes and is_requested() and self.training is not None and self.in_file == self.training.epochs:
            stop_if_requested()

    def write(self) -> None:
        """Write the state after the last finished epoch, unless the file holds it already."""
        if self.training is None or self.in_file == self.training.epochs:
            return
        epochs = tuple(self.training.epochs)
        try:
            states = tuple({**self.training.state(k), "seconds": each} for k, each in enumerate(self._seconds()))
            self.keeper.save(self.members, self.digests, {"epochs": epochs, "states": states})
        except ValueError as error:
            raise ValueError(
                f"{error}: this training cannot be written while it is on its way; leave checkpoints out"
            ) from error
        self.written, self.in_file = time.monotonic(), list(epochs)

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

    def __init__(self, file: TensorFile, about: dict[str, Any]) -> None:
        self.file, self.path, self.about, self.members = file, file.path, about, about["members"]
        self.is_finished = "trained" in about
        epochs = [0] * len(self.members) if self.is_finished else about["epochs"]
        self.epochs = dict(zip(self.members, map(int, epochs), strict=True))  # done, by member

    @classmethod
    def of(cls, path: Path) -> _File | None:
        """Return the checkpoint; None, if another program or version wrote it, or it was deleted meanwhile."""
        try:
            file = TensorFile(path, _ADVICE)
            if (mark := file.metadata.get(_MARK)) != str(FORMAT):
                if mark not in _OLDER and re.fullmatch(_NAME, path.name):
                    file.check()  # of a newer version, unless it is damaged
                return None
            return cls(file, parsed(file.metadata["about"]))
        except MissingFileError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            if re.fullmatch(_NAME, path.name) is None:
                return None
            if isinstance(error, FileError):
                raise
            raise FileError(f"{path} is damaged ({error}): {_ADVICE}") from error

    def value(self, part: str, member: str, kind: Any) -> Any:
        """Return one value of one member, and read no other member's tensors."""
        with blaming(self.path, _ADVICE):
            self.file.check()
            value = codec.unpack(self.about[part][self.members.index(member)], self.file.tensor, where=part)
            codec.check({part: value}, {part: kind})
        return value
