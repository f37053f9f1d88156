"""Run folders: `manifest.json` names every file with its size and digest, and its rename switches to a new version.

    manifest.json                             written last, by one rename; the only name that is ever used again
    posterior.1f0c5b7a9d3e4c21.json           every other file has a new name in every version
    member-0.7be2a90d55c1f3e8.safetensors
    .lock                                     while somebody writes

    with writing("run") as run:               # takes the lock, and removes what a killed writer left
        run.put_tensors("member-0.safetensors", tensors)
        run.commit()                          # switches; files that are not in the manifest are deleted after it
        run.put_tensors("member-1.safetensors", more)
        run.commit()                          # cheap: one more file, and a manifest that names both

A reader takes one manifest and the files it names, whose digests are verified: the old version or the new one, never a
mixture. If the version changes while it reads, it begins again (`reading`).
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from torch import Tensor

from wherefrom.files import atomic, signatures
from wherefrom.files import tensors as safetensors
from wherefrom.files.errors import FileError, MissingFileError
from wherefrom.files.locks import locked
from wherefrom.files.reading import (
    DAMAGED,
    MOST_JSON,
    NO_DIGEST,
    SEAL,
    Bytes,
    as_json,
    as_tensors,
    check_format,
    is_sealed,
    opened_file,
    read_all,
    read_bytes,
    seal_in,
    sha256,
)

MANIFEST, SIGNATURE, LOCK = "manifest.json", "signature.json", ".lock"
FORMAT = 1
_NAME = re.compile(r"([a-z0-9][a-z0-9_-]{0,79})\.(json|safetensors)")
_VERSIONED = r"[a-z0-9][a-z0-9_-]{0,79}\.[0-9a-f]{16}\.(json|safetensors)"
_OF_OURS = rf"{_VERSIONED}|\.({re.escape(MANIFEST)}|{re.escape(SIGNATURE)})\.[0-9a-f]{{16}}"
_TOKEN, _DIGEST = re.compile("[0-9a-f]{16}"), re.compile("[0-9a-f]{64}")
_MOST_MANIFEST = 2**26  # bytes: about 300,000 files
_MOST_ATTEMPTS = 20  # to read a run that is being replaced
_T = TypeVar("_T")


class Entry(NamedTuple):
    """One file of a run: the part of its name that is new in every version, its size in bytes, and its SHA-256."""

    token: str
    size: int
    sha256: str

    def file_name(self, name: str) -> str:
        """Return the name in the folder of what the run calls `name`."""
        stem, _, suffix = name.rpartition(".")
        return f"{stem}.{self.token}.{suffix}"


# ---------------------------------------------------------------------- writing


class Writer:
    """The one writer of a run folder, made by `writing`. `put_...` and `commit` may be called from several threads."""

    def __init__(self, folder: Path, files: Mapping[str, Entry]) -> None:
        self.folder = folder
        self.files: dict[str, Entry] = dict(files)  # of the version that the next `commit` switches to
        self._being_put: set[str] = set()  # names in the folder
        self._committing = threading.Lock()

    def put_json(self, name: str, document: Mapping[str, Any]) -> None:
        """Write a JSON file of the next version.

        name: such as "posterior.json"; replaces a file of that name.
        """
        self._put(name, [json.dumps(document, indent=1, allow_nan=False).encode()])

    def put_tensors(self, name: str, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
        """Write a safetensors file of the next version.

        name: such as "member-0.safetensors"; replaces a file of that name.
        """
        self._put(name, safetensors.encoded(tensors, metadata))

    def _put(self, name: str, blocks: Iterable[bytes | memoryview]) -> None:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} cannot be a file of a run: use small letters, digits, - and _")
        token = atomic.token()
        path = self.folder / Entry(token, 0, "").file_name(name)
        self._being_put.add(path.name)
        with _in_words(self.folder):
            written = atomic.write_new(path, blocks)
            atomic.flush(path)
        self.files[name] = Entry(token, *written)
        self._being_put.discard(path.name)

    def drop(self, name: str) -> None:
        """Leave a file out of the next version."""
        del self.files[name]

    def commit(self) -> None:
        """Switch to a version of all files that were put or kept. Readers see the old one until then."""
        with self._committing:
            files = sorted(dict(self.files).items())
            document = {
                "seal": SEAL + NO_DIGEST,
                "format": FORMAT,
                "files": {name: {"token": e.token, "bytes": e.size, "sha256": e.sha256} for name, e in files},
            }
            with _in_words(self.folder):
                atomic.flush_entries(self.folder)
                temporary = self.folder / f".{MANIFEST}.{atomic.token()}"
                atomic.write_new(temporary, [json.dumps(document, indent=1).encode()], is_sealed=True)
                atomic.flush(temporary)
                os.replace(temporary, self.folder / MANIFEST)
            atomic.flush_entries(self.folder)
            with suppress(OSError):
                atomic.remove(self.folder / SIGNATURE)  # which was of the version before
            _clean(self.folder, self._kept)

    @property
    def is_committed(self) -> bool:
        """True if the folder holds all that was put, whatever interrupted the writer."""
        try:
            return bool(self.files) and dict(Run.open(self.folder).files) == self.files
        except FileError:
            return False

    def _kept(self) -> set[str]:
        """Return the names of the files that are put or kept, or are being put by another thread: in this order."""
        being_put = set(self._being_put)
        return being_put | _names(dict(self.files))


@contextmanager
def writing(folder: str | Path, *, is_new: bool = False) -> Iterator[Writer]:
    """Hold a run folder's lock, and yield its writer. What was not committed at the end is deleted.

    folder: made if it does not exist; files of other programs in it stay.
    is_new: True begins without the files of the version that is there; they stay until `commit`.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp()) / "run"
    >>> with writing(folder) as run:
    ...     run.put_json("posterior.json", {"seed": 0})
    ...     run.commit()
    >>> Run.open(folder).json("posterior.json")
    {'seed': 0}
    """
    folder = Path(folder)
    with _locked(folder):
        files: Mapping[str, Entry] = {}
        if is_run(folder):
            try:
                files = Run.open(folder).files
            except FileError:  # nobody can tell what is of the run: it all stays until there is another one
                if not is_new:
                    raise
            else:
                _clean(folder, lambda: _names(files))
        else:
            _clean(folder, set)
        try:
            yield Writer(folder, {} if is_new else files)
        finally:
            with suppress(OSError, FileError):
                now = Run.open(folder).files if is_run(folder) else {}
                _clean(folder, lambda: _names(now))


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Make a folder, and hold its lock; folders that were made are removed at the end, if nothing came of them."""
    made: list[Path] = []
    with ExitStack() as stack:
        stack.callback(_remove_empty, made)
        for attempt in range(_MOST_ATTEMPTS):
            made += [path for path in _make(folder) if path not in made]
            try:
                stack.enter_context(locked(folder / LOCK, folder))
                break
            except FileNotFoundError:  # another writer, of which nothing came, removed the folder in between
                if attempt == _MOST_ATTEMPTS - 1:
                    raise
        yield


def _remove_empty(made: list[Path]) -> None:
    for path in reversed(made):
        with suppress(OSError):
            path.rmdir()


def _make(folder: Path) -> list[Path]:
    """Make a folder and those above it, and return the ones that were made."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()][::-1]
    for path in missing:
        with suppress(FileExistsError):
            path.mkdir()
        atomic.flush_entries(path.parent)
    if not folder.is_dir():
        raise FileExistsError(f"{folder} is a file: name a folder")
    return missing


@contextmanager
def _in_words(folder: Path) -> Iterator[None]:
    """Say of a write that fails that the folder is as it was."""
    try:
        yield
    except OSError as error:
        what = f"{folder} could not be written, and holds what it held before: {error.strerror or error}"
        raise type(error)(error.errno, what) from error


def _names(files: Mapping[str, Entry]) -> set[str]:
    return {entry.file_name(name) for name, entry in files.items()}


def _clean(folder: Path, kept: Callable[[], set[str]]) -> None:
    """Delete the files of ours that are not kept; what cannot be deleted now is left to the next writer.

    kept: is called after the folder was listed, so that a file that is made meanwhile is not deleted.
    """
    paths: list[Path] = []
    with suppress(OSError):
        paths = atomic.remains(folder, _OF_OURS)
    names = kept()
    for path in paths:
        if path.name not in names:
            with suppress(OSError):
                atomic.remove(path)


# ---------------------------------------------------------------------- reading


def is_run(folder: str | Path) -> bool:
    """Return True if a folder holds a run, be it damaged."""
    return os.path.lexists(Path(folder) / MANIFEST)


def is_free(folder: str | Path) -> bool:
    """Return True if a folder does not exist, is empty, or holds only what a killed writer left."""
    folder = Path(folder)
    if not folder.exists():
        return True
    pattern = rf"{_OF_OURS}|{re.escape(LOCK)}"
    return folder.is_dir() and all(re.fullmatch(pattern, path.name) for path in folder.iterdir())


@dataclass(frozen=True)
class Run:
    """One version of a run folder, as its manifest lists it. Files are verified when they are read."""

    folder: Path
    files: Mapping[str, Entry]
    manifest: bytes = field(repr=False)  # its content

    @classmethod
    def open(cls, folder: str | Path, key: str | Path | None = None) -> Run:
        """Read the manifest.

        key: file with the key; the run must have been signed with it (default None: not checked).
        """
        folder = Path(folder)
        path = folder / MANIFEST
        try:
            content = bytes(read_bytes(path, most=_MOST_MANIFEST))
        except MissingFileError:
            if not folder.is_dir():
                raise MissingFileError(f"{folder} does not exist") from None
            old = any((folder / name).exists() for name in ("posterior.json", "table.json"))
            if old:
                raise FileError(f"{folder} was written in a format that is no longer read: make it again") from None
            raise MissingFileError(f"{folder} holds no run: there is no {MANIFEST} in it") from None
        if not is_sealed(content):
            if seal_in(content) is None:
                raise FileError(f"{path} is damaged, or was not written by wherefrom: {DAMAGED}")
            raise FileError(f"{path} is damaged (its content has changed since it was written): {DAMAGED}")
        document = as_json(content, path)
        check_format(document.get("format"), FORMAT, path)
        files = document.get("files")
        if set(document) != {"seal", "format", "files"} or not isinstance(files, dict):
            raise FileError(f"{path} is not a manifest of wherefrom: {DAMAGED}")
        run = cls(folder, {name: _entry(name, each, path) for name, each in files.items()}, content)
        if key is not None:
            signatures.check(folder / SIGNATURE, content, key)
        return run

    def __contains__(self, name: str) -> bool:
        return name in self.files

    def path(self, name: str) -> Path:
        """Return where a file is; it has another name in every version."""
        if name not in self.files:
            raise FileError(f"{self.folder / MANIFEST} lists no {name}: {DAMAGED}")
        return self.folder / self.files[name].file_name(name)

    def read(self, name: str) -> Bytes:
        """Return the content of a file, if it has the size and the digest of the manifest."""
        path, entry = self.path(name), self.files[name]
        with opened_file(path) as (descriptor, size):
            if size != entry.size:
                raise FileError(f"{path} is damaged (it has {size} bytes instead of {entry.size}): {DAMAGED}")
            content = read_all(descriptor, size, path)
        if sha256(content) != entry.sha256:
            raise FileError(f"{path} is damaged (its content has changed since it was written): {DAMAGED}")
        return content

    def json(self, name: str) -> dict[str, Any]:
        """Return the object in a JSON file."""
        if name in self.files and self.files[name].size > MOST_JSON:
            raise FileError(f"{self.path(name)} has {self.files[name].size} bytes; at most {MOST_JSON} are read")
        return as_json(self.read(name), self.path(name))

    def tensors(self, name: str, device: str = "cpu") -> tuple[dict[str, str], dict[str, Tensor]]:
        """Return the metadata and the tensors of a safetensors file."""
        return as_tensors(self.read(name), self.path(name), device)


def _entry(name: str, document: Any, path: Path) -> Entry:
    match document:
        case {"token": str(token), "bytes": int(size), "sha256": str(digest)} if (
            len(document) == 3
            and type(size) is int
            and 0 <= size < 2**62
            and _NAME.fullmatch(name)
            and _TOKEN.fullmatch(token)
            and _DIGEST.fullmatch(digest)
        ):
            return Entry(token, size, digest)
    raise FileError(f"{path} lists {name[:80]!r}, which is not the description of a file: {DAMAGED}")


def reading(folder: str | Path, load: Callable[[Run], _T], key: str | Path | None = None) -> _T:
    """Return what `load` makes of a run; it begins again if another version replaces the run meanwhile.

    key: as in `Run.open`.
    """
    for _ in range(_MOST_ATTEMPTS):
        run = Run.open(folder, key)
        try:
            return load(run)
        except FileError:
            with suppress(FileError):
                if Run.open(folder).manifest != run.manifest:
                    continue
            raise
    raise FileError(f"{folder} is being written again and again: read it when nobody writes there")


# ---------------------------------------------------------------------- checking


@dataclass(frozen=True)
class Checked:
    """Result of checking a run: what is whole, and what is not.

    whole: names of the files that are.
    damaged: name -> what is wrong with it.
    others: names in the folder that are no part of the run.
    """

    folder: Path
    whole: tuple[str, ...]
    damaged: Mapping[str, str]
    others: tuple[str, ...]

    @property
    def is_whole(self) -> bool:
        return not self.damaged


def sign(folder: str | Path, key: str | Path) -> str:
    """Sign a run that is whole, and return the method.

    key: file of the key; see `signatures`.
    """
    folder = Path(folder)
    Run.open(folder)  # raises if there is none, before a lock is made there
    with locked(folder / LOCK, folder):
        run = Run.open(folder)
        if damaged := _check(run).damaged:
            raise FileError(f"{folder} is not whole, and was not signed: {next(iter(damaged.values()))}")
        return signatures.sign(folder / SIGNATURE, run.manifest, key)


def verify(folder: str | Path, key: str | Path) -> None:
    """Raise unless a run is whole, and signed with that key."""
    if damaged := reading(folder, _check, key).damaged:
        raise FileError(f"{folder} is not what was signed: {next(iter(damaged.values()))}")


def check(folder: str | Path) -> Checked:
    """Verify every file of a run.

    >>> import tempfile
    >>> with writing(tempfile.mkdtemp()) as run:
    ...     run.put_json("posterior.json", {"seed": 0})
    ...     run.commit()
    ...     check(run.folder).whole
    ('posterior.json',)
    """
    return reading(folder, _check)


def _check(run: Run) -> Checked:
    damaged: dict[str, str] = {}
    for name in run.files:
        try:
            run.read(name)
        except FileError as error:
            damaged[name] = str(error)
    if damaged and Run.open(run.folder).manifest != run.manifest:
        raise FileError(f"{run.folder} changed while it was read")  # `reading` begins again
    ours = {MANIFEST, SIGNATURE, LOCK} | _names(run.files)
    others = tuple(sorted(path.name for path in run.folder.iterdir() if path.name not in ours))
    return Checked(run.folder, tuple(name for name in run.files if name not in damaged), damaged, others)
