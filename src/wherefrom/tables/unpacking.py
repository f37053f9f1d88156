"""The bytes of a file, unpacked if it is compressed, within a limit: small files can unpack to more than a machine has.

A file may unpack to 64 MB, or to 100 times its size (CSV files are 3 to 50 times as large as when compressed), and to
16 GB at most. `Format.most_unpacked` sets another limit in place of all three.
"""

from __future__ import annotations

import gzip
import io
import re
import shutil
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from wherefrom.tables.wording import language, option

_FREE, _RATIO, _MOST = 64 * 10**6, 100, 16 * 10**9
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_BLOCK = 1 << 20


@contextmanager
def opened(path: Path, source: str, most: int | None) -> Iterator[BinaryIO]:
    """Yield the bytes of a file, or of standard input if its name is "-"; they can be read more than once.

    Standard input is copied into a temporary file first. What the content shows to be gzip is unpacked as it is read.
    """
    with tempfile.TemporaryFile() if str(path) == "-" else path.open("rb") as file:
        if str(path) == "-":
            shutil.copyfileobj(sys.stdin.buffer, file)
            file.seek(0)
        magic = file.read(2)
        size = file.seek(0, io.SEEK_END)
        file.seek(0)
        if magic != b"\x1f\x8b":
            yield file
            return
        limit = limit_of(size, most)
        with gzip.GzipFile(fileobj=file) as unpacked:
            yield io.BufferedReader(_Limited(unpacked, limit, size, source), _BLOCK)  # type: ignore[type-var]


class _Limited(io.RawIOBase):
    """A compressed file that is not unpacked beyond a limit, and whose faults have words."""

    def __init__(self, unpacked: gzip.GzipFile, limit: int, size: int, source: str) -> None:
        self.unpacked, self.limit, self.size, self.source = unpacked, limit, size, source

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        return self.unpacked.seek(offset, whence)

    def tell(self) -> int:
        return self.unpacked.tell()

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        try:
            content = self.unpacked.read(len(buffer))
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ValueError(f"{self.source} cannot be unpacked ({error}): copy it again") from None
        if self.unpacked.tell() > self.limit:
            refuse(self.source, self.limit, self.size)
        buffer[: len(content)] = content
        return len(content)


def limit_of(size: int, most: int | None) -> int:
    """Return the most bytes that a compressed file of this size may unpack to.

    >>> limit_of(1000, None), limit_of(10**6, None), limit_of(10**9, None), limit_of(1000, 5000)
    (64000000, 100000000, 16000000000, 5000)
    """
    return min(max(_FREE, _RATIO * size), _MOST) if most is None else most


def refuse(source: str, limit: int, size: int) -> None:
    """Raise the error about a file that unpacks to more than it may."""
    allow = f", or allow it, as {option('most_unpacked', '50GB')}" if language() == "command" else ""
    raise ValueError(
        f"{source} unpacks to more than {as_size(limit)}, from {as_size(size)}: if you trust it, unpack it first{allow}"
    )


def as_bytes(written: str | None) -> int | None:
    """Return a size as a number of bytes.

    >>> as_bytes("20GB"), as_bytes("1.5 mb"), as_bytes(None)
    (20000000000, 1500000, None)
    """
    if written is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?B|)", written.strip(), re.IGNORECASE)
    if match is None:
        raise ValueError(f"a size is a number of bytes, or as 20GB, not {written!r}")
    return round(float(match[1]) * _UNITS[match[2].upper()])


def as_size(count: int) -> str:
    """Return a number of bytes for people.

    >>> as_size(64_000_000), as_size(999), as_size(16_000_000_000)
    ('64 MB', '999 B', '16 GB')
    """
    unit = next((unit for unit in ("TB", "GB", "MB", "KB") if count >= _UNITS[unit]), "B")
    return f"{count / _UNITS[unit]:.3g} {unit}"
