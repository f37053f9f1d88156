"""What the user hears while a table is learnt: lines about what is done, and notes, which are kept."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Tell = Callable[[str], None]


class Notes(list[str]):
    """Notes for the user, shown at once and kept."""

    def __init__(self, tell: Tell | None) -> None:
        super().__init__()
        self.tell = tell

    def append(self, line: str) -> None:
        super().append(line)
        if self.tell is not None:
            self.tell(line)


@contextmanager
def warnings_as(notes: list[str]) -> Iterator[None]:
    """Take the library's warnings for notes."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for line in dict.fromkeys(str(one.message) for one in caught if issubclass(one.category, UserWarning)):
        notes.append(line)
