"""Reading: whatever is wrong with a file ends in a ValueError that names the file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

_WRONG = (SafetensorError, ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


@contextmanager
def blaming(path: str | Path) -> Iterator[None]:
    """Turn what the content of a file can raise into a ValueError that names the file."""
    try:
        yield
    except _WRONG as error:
        what = f"it lacks {error}" if isinstance(error, KeyError) else error
        raise ValueError(f"{path} cannot be read: {what}") from error


def read_json(path: str | Path, again: str = "write it again") -> dict[str, Any]:
    """Return the object in a JSON file; `again` is what to do if the file is damaged."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError, NotADirectoryError) as error:
        raise ValueError(f"{path} is damaged ({error}): {again}") from None
    return document if isinstance(document, dict) else {}


def check_format(number: int, this: int, what: str | Path) -> None:
    """Raise unless a file has the format that this version reads."""
    if number > this:
        raise ValueError(
            f"{what} was written by a newer version (format {number}; this one reads up to {this}): update wherefrom"
        )
    if number < this:
        raise ValueError(f"{what} was written before the first release, in a format that is no longer read")


@contextmanager
def opened(path: str | Path, device: str = "cpu") -> Iterator[Any]:
    """Open a safetensors file, to read some of its tensors."""
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no file {path}")
    with blaming(path), safe_open(path, framework="pt", device=device) as file:
        yield file


def read_tensors(path: str | Path, device: str = "cpu") -> tuple[dict[str, str], dict[str, Tensor]]:
    """Return the metadata and all tensors of a safetensors file."""
    with opened(path, device) as file:
        return file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
