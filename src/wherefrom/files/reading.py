"""Reading: regular files only, whole, verified, and checked before anything is made of them.

Whatever is wrong ends in a FileError that names the file and says what to do.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from wherefrom.files import tensors as safetensors
from wherefrom.files.documents import parsed
from wherefrom.files.errors import FileError, MissingFileError

DAMAGED = "copy it again from where it is whole, or make it again"
SEAL = "wherefrom-sha256:"  # before the digest of a whole file, in which the digest itself counts as zeros
NO_DIGEST = "0" * 64
_SEALED = re.compile(SEAL.encode() + rb"([0-9a-f]{64})")
MOST_JSON = 2**28  # bytes
_BLOCK = 2**22
Bytes = np.ndarray[Any, np.dtype[np.uint8]]


@contextmanager
def blaming(path: str | Path, advice: str = DAMAGED) -> Iterator[None]:
    """Turn what the content of a file can raise into a FileError that names the file.

    advice: what to do.
    """
    try:
        yield
    except FileError:
        raise
    except Exception as error:  # whatever code makes of values that nobody vouches for
        what = f"it lacks {error}" if isinstance(error, KeyError) else _short(str(error)) or type(error).__name__
        raise FileError(f"{path} cannot be read: {what}; {advice}") from error


def _short(text: str, most: int = 500) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[:most]}..."


@contextmanager
def opened_file(path: str | Path, *, follows_links: bool = False) -> Iterator[tuple[int, int]]:
    """Open a regular file, and yield its descriptor and its size.

    follows_links: True allows a symbolic link, in a path that the user gave; never in a run's folder.
    """
    flags = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    flags |= 0 if follows_links else getattr(os, "O_NOFOLLOW", 0)
    try:
        descriptor = os.open(path, flags)
    except (FileNotFoundError, NotADirectoryError):
        raise MissingFileError(f"there is no file {path}") from None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise FileError(f"{path} is a symbolic link, which is not followed: put the file itself there") from None
        raise FileError(f"{path} cannot be opened: {error.strerror}") from error
    except ValueError as error:  # a null character in the name
        raise FileError(f"{path!r} is not the name of a file") from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise FileError(f"{path} is a folder, a pipe or a device, not a regular file: {DAMAGED}")
        yield descriptor, status.st_size
    finally:
        os.close(descriptor)


def _read_into(descriptor: int, target: Bytes, path: str | Path) -> None:
    """Fill a buffer with the next bytes of a file."""
    view = memoryview(target)  # type: ignore[arg-type]
    while view:
        try:
            count = os.readv(descriptor, [view[:_BLOCK]]) if hasattr(os, "readv") else _read(descriptor, view)
        except OSError as error:
            raise FileError(f"{path} cannot be read: {error.strerror}; {DAMAGED}") from error
        if not count:
            raise FileError(f"{path} became shorter while it was read: read it again when nobody writes it")
        view = view[count:]


def _read(descriptor: int, view: memoryview) -> int:
    block = os.read(descriptor, min(_BLOCK, len(view)))
    view[: len(block)] = block
    return len(block)


def _room(size: int, path: str | Path) -> Bytes:
    try:
        return np.empty(size, dtype=np.uint8)
    except (MemoryError, ValueError):
        raise FileError(f"{path} has {size} bytes, which do not fit into memory") from None


def read_all(descriptor: int, size: int, path: str | Path) -> Bytes:
    """Return the content of an open file of that size."""
    content = _room(size, path)
    _read_into(descriptor, content, path)
    return content


def read_bytes(path: str | Path, *, most: int | None = None, follows_links: bool = False) -> Bytes:
    """Return the content of a regular file.

    most: bytes that it may have.
    """
    with opened_file(path, follows_links=follows_links) as (descriptor, size):
        if most is not None and size > most:
            raise FileError(f"{path} has {size} bytes; at most {most} are read")
        return read_all(descriptor, size, path)


def sha256(*blocks: Any) -> str:
    """Return the SHA-256 of bytes, as 64 hexadecimal digits."""
    result = hashlib.sha256()
    for block in blocks:
        result.update(block)
    return result.hexdigest()


def seal_in(head: bytes) -> re.Match[bytes] | None:
    """Return the one seal in the head of a file; None if there is none, or more than one."""
    seals = list(_SEALED.finditer(head))
    return seals[0] if len(seals) == 1 else None


def is_sealed(head: Bytes | bytes, *rest: Any) -> bool:
    """Return True if the seal in the head of a file is the digest of head and rest, in which it counts as zeros."""
    start = bytes(head)
    seal = seal_in(start)
    if seal is None:
        return False
    blank = start[: seal.start(1)] + NO_DIGEST.encode() + start[seal.end(1) :]
    return sha256(blank, *rest) == seal[1].decode()


# ---------------------------------------------------------------------- JSON


def as_json(content: Bytes | bytes, path: str | Path, again: str = DAMAGED) -> dict[str, Any]:
    """Return the object in the content of a JSON file; `again` is what to do if it is damaged."""
    try:
        return parsed(bytes(content))
    except ValueError as error:
        raise FileError(f"{path} is damaged ({_short(str(error))}): {again}") from None


def read_json(path: str | Path, again: str = DAMAGED, *, follows_links: bool = False) -> dict[str, Any]:
    """Return the object in a JSON file; `again` is what to do if the file is damaged."""
    return as_json(read_bytes(path, most=MOST_JSON, follows_links=follows_links), path, again)


def check_format(number: Any, this: int, what: str | Path) -> None:
    """Raise unless a file has the format that this version reads."""
    if type(number) is not int:
        raise FileError(f"{what} was not written by wherefrom")
    if number > this:
        raise FileError(
            f"{what} was written by a newer version (format {number}; this one reads up to {this}): update wherefrom"
        )
    if number < this:
        raise FileError(
            f"{what} was written before the first release, in a format ({number}) that is no longer read: make it again"
        )


# ---------------------------------------------------------------------- tensors


def as_tensors(content: Bytes, path: str | Path, device: str = "cpu") -> tuple[dict[str, str], dict[str, Tensor]]:
    """Return the metadata and all tensors in the content of a safetensors file, which they share where they can."""
    with blaming(path):
        length = safetensors.header_length(bytes(content[:8]), len(content))
        header = safetensors.decoded_header(bytes(content[:length]), len(content))
        result = {
            name: safetensors.decoded(spot, content[length + spot.start : length + spot.end])
            for name, spot in header.spots.items()
        }
    return header.metadata, {name: tensor.to(device) for name, tensor in result.items()}


def read_tensors(
    path: str | Path, device: str = "cpu", *, follows_links: bool = False
) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Return the metadata and all tensors of a safetensors file. If it has a seal, the seal must be right."""
    content = read_bytes(path, follows_links=follows_links)
    metadata, result = as_tensors(content, path, device)
    if "seal" in metadata or any(value.startswith(SEAL) for value in metadata.values()):
        length = safetensors.header_length(bytes(content[:8]), len(content))
        if not is_sealed(content[:length], content[length:]):
            raise FileError(f"{path} is damaged (its content has changed since it was written): {DAMAGED}")
    return metadata, result


class TensorFile:
    """A safetensors file of ours, some of whose tensors are read, once its seal was checked."""

    def __init__(self, path: str | Path, advice: str = DAMAGED) -> None:
        self.path, self.advice = Path(path), advice
        with opened_file(path) as (descriptor, size), blaming(path, advice):
            self._head = self._read_head(descriptor, size)
            header = safetensors.decoded_header(self._head, size)
        self.metadata: Mapping[str, str] = header.metadata
        self._spots, self._size, self._is_checked = header.spots, size, False

    def _read_head(self, descriptor: int, size: int) -> bytes:
        first = bytes(read_all(descriptor, min(8, size), self.path))
        return first + bytes(read_all(descriptor, safetensors.header_length(first, size) - 8, self.path))

    def check(self) -> None:
        """Raise unless the seal is right; the file is read once for that."""
        if self._is_checked:
            return
        with opened_file(self.path) as (descriptor, size), blaming(self.path, self.advice):
            head = self._read_head(descriptor, size)
            if head != self._head or not is_sealed(head, *_blocks(descriptor)):
                raise ValueError("its content has changed since it was written")
        self._is_checked = True

    def tensor(self, name: str) -> Tensor:
        """Return one tensor, and read no other."""
        self.check()
        with opened_file(self.path) as (descriptor, size), blaming(self.path, self.advice):
            if size != self._size or self._read_head(descriptor, size) != self._head:
                raise ValueError("it has changed while it was read")
            spot = self._spots[name]
            os.lseek(descriptor, len(self._head) + spot.start, os.SEEK_SET)
            return safetensors.decoded(spot, read_all(descriptor, spot.end - spot.start, self.path))


def _blocks(descriptor: int) -> Iterator[bytes]:
    while block := os.read(descriptor, _BLOCK):
        yield block
