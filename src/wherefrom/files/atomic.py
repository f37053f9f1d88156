"""The one write of a single file: under a temporary name beside the target, flushed to disk, then renamed.

A reader sees the old content or the new, never a part of it. A write that fails leaves nothing behind; what a killed
writer left is removed by the next one of the same target, which no other can be writing at the same time (`locks`).
"""

from __future__ import annotations

import csv
import errno
import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from wherefrom.files import tensors as safetensors
from wherefrom.files.errors import BusyError
from wherefrom.files.locks import locked
from wherefrom.files.reading import NO_DIGEST, SEAL, seal_in

PATIENCE = 5.0  # seconds to wait for another writer of the same file
_HEX = "[0-9a-f]{16}"
_FATAL = (errno.EIO, errno.ENOSPC, getattr(errno, "EDQUOT", errno.EIO))


@contextmanager
def writing(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; the file or folder that is written there is renamed to `path` at the end.

    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "answer.txt"
    >>> with writing(target) as temporary:
    ...     _ = temporary.write_text("42")
    >>> target.read_text(), [each.name for each in target.parent.iterdir()]
    ('42', ['answer.txt'])
    """
    path = Path(path)
    with _temporary(path) as temporary:
        yield temporary
        flush(temporary)
        os.replace(temporary, path)
        flush_entries(path.parent)


@contextmanager
def writing_beside(path: str | Path) -> Iterator[Path]:
    """Yield a temporary folder; its files are moved beside `path` at the end, the one of that name after all others."""
    path = Path(path)
    with _temporary(path) as temporary:
        temporary.mkdir()
        yield temporary
        flush(temporary)
        for each in sorted(temporary.iterdir(), key=lambda each: (each.name == path.name, each.name)):
            os.replace(each, path.with_name(each.name))
        flush_entries(path.parent)


@contextmanager
def _temporary(path: Path, patience: float | None = None) -> Iterator[Path]:
    """Lock a target, remove what killed writers of it left, and yield a temporary path that is gone at the end."""
    with locked(path.with_name(f".{path.name}.lock"), path, PATIENCE if patience is None else patience):
        for left in remains(path.parent, re.escape(f".{path.name}.") + _HEX):
            remove(left)
        temporary = path.with_name(f".{path.name}.{token()}")
        try:
            yield temporary
        finally:
            remove(temporary)


def clean(folder: Path, name: str) -> None:
    """Remove what killed writers of single files left in a folder.

    name: pattern of the files' names.
    """
    left = re.compile(rf"\.({name})\.(lock|{_HEX})")
    names = {match[1] for path in folder.iterdir() if (match := left.fullmatch(path.name))}
    for each in sorted(names):
        with suppress(BusyError), _temporary(folder / each, 0.0):
            pass


def token() -> str:
    """Return 16 hexadecimal digits that no other file has."""
    return secrets.token_hex(8)


def remains(folder: Path, pattern: str) -> list[Path]:
    """Return the files in a folder whose whole names match a pattern."""
    return sorted(path for path in folder.iterdir() if re.fullmatch(pattern, path.name))


def write_text(path: str | Path, text: str) -> None:
    """Write a text file."""
    with writing(path) as temporary:
        write_new(temporary, [text.encode()])


def write_csv(path: str | Path, header: Iterable[Any], rows: Iterable[Iterable[Any]]) -> None:
    """Write a CSV file: the names of the columns, then a line for each row."""
    with writing(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(header)
        table.writerows(rows)


def write_tensors(path: str | Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Write tensors as one safetensors file, with a seal: the digest of the whole file, which readers check."""
    sealed = {**(metadata or {}), "seal": SEAL + NO_DIGEST}
    with writing(path) as temporary:
        write_new(temporary, safetensors.encoded(tensors, sealed), is_sealed=True)


class Written(NamedTuple):
    """The size of a file in bytes, and its SHA-256."""

    size: int
    sha256: str


def write_new(path: Path, blocks: Iterable[bytes | memoryview], *, is_sealed: bool = False) -> Written:
    """Write a file that does not exist yet, and return its size and digest. It is not flushed yet.

    is_sealed: the first block has a blank seal, which is filled in.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags, 0o666)
    try:
        digest, size, seal = hashlib.sha256(), 0, None
        for block in blocks:
            view = memoryview(block)
            seal = seal_in(bytes(view)) if is_sealed and not size else seal
            digest.update(view)
            _write_all(descriptor, view)
            size += len(view)
        if is_sealed:
            if seal is None:
                raise ValueError(f"{path.name} holds text that looks like a seal of wherefrom: call it something else")
            os.lseek(descriptor, seal.start(1), os.SEEK_SET)
            _write_all(descriptor, memoryview(digest.hexdigest().encode()))
    finally:
        os.close(descriptor)
    return Written(size, digest.hexdigest())


def _write_all(descriptor: int, view: memoryview) -> None:
    while view:
        view = view[os.write(descriptor, view) :]


def flush(path: Path) -> None:
    """Wait until a file, or a folder with all its files, is on disk."""
    if path.is_dir():
        for inner in path.iterdir():
            flush(inner)
        flush_entries(path)
        return
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def flush_entries(folder: Path) -> None:
    """Wait until the names in a folder are on disk, where the system can do that."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno in _FATAL:  # others: folders cannot be flushed there
            raise


def remove(path: Path) -> None:
    """Delete a file or a folder, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
