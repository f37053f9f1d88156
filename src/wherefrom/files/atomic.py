"""The one write: under a temporary name beside the target, flushed to disk, then renamed.

A reader sees the old content or the new, never a part of it. A write that fails leaves nothing behind.
"""

from __future__ import annotations

import csv
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor


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
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        yield temporary
        _flush(temporary)
        os.replace(temporary, path)
        _flush_entries(path.parent)
    finally:
        _remove(temporary)


@contextmanager
def writing_folder(folder: str | Path, last: str, owned: Sequence[str]) -> Iterator[Path]:
    """Yield a temporary folder; its files are moved into `folder` at the end, the file named `last` after all others.

    folder: may exist, and may hold files of other programs, which stay.
    last: the file without which the folder is not read. Where one of the other files is overwritten, the old `last` is
        deleted first, so a folder with files of two writes is never taken for a whole one.
    owned: patterns of files from earlier writes, which are deleted if they were not written again.
    """
    folder = Path(folder)
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with writing(folder) as temporary:
            temporary.mkdir()
            yield temporary
        return
    temporary = folder / f".{secrets.token_hex(4)}"
    try:
        temporary.mkdir()
        yield temporary
        _flush(temporary)
        written = sorted(temporary.iterdir(), key=lambda path: path.name == last)
        if any((folder / path.name).exists() for path in written if path.name != last):
            (folder / last).unlink(missing_ok=True)
        for path in written:
            os.replace(path, folder / path.name)
        _flush_entries(folder)
        for old in {old for pattern in owned for old in folder.glob(pattern)}:
            if old.name not in {path.name for path in written}:
                old.unlink()
    finally:
        _remove(temporary)


def write_text(path: str | Path, text: str) -> None:
    with writing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_csv(path: str | Path, header: Iterable[Any], rows: Iterable[Iterable[Any]]) -> None:
    """Write a CSV file: the names of the columns, then a line for each row."""
    with writing(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(header)
        table.writerows(rows)


def write_tensors(path: str | Path, tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Write tensors as one safetensors file, with the permissions of any other new file."""
    with writing(path) as temporary:
        temporary.touch()
        mode = temporary.stat().st_mode
        save_file(_apart(tensors), temporary, metadata)
        temporary.chmod(mode)  # safetensors lets only the owner read


def _apart(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors in main memory, each in its own: safetensors refuses one tensor under two names."""
    seen: set[int] = set()
    result = {}
    for name, tensor in tensors.items():
        tensor = tensor.detach().cpu().contiguous()
        result[name] = tensor.clone() if tensor.data_ptr() in seen else tensor
        seen.add(tensor.data_ptr())
    return result


def _flush(path: Path) -> None:
    """Wait until a file, or a folder with all its files, is on disk."""
    if path.is_dir():
        for inner in path.iterdir():
            _flush(inner)
        _flush_entries(path)
        return
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _flush_entries(folder: Path) -> None:
    """Wait until the names in a folder are on disk, where the system can do that."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
