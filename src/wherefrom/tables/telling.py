"""Messages to the user while a table is learnt: lines about what is done, and notes, which are kept.

A table that is read in chunks has notes in each of them. Notes that count rows are added up (`together`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
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


class RowNote(str):
    """A note about some rows, which can be added to the same note about others.

    >>> one = RowNote.of("in {rows}: {words}", 2, ["a", "b"], 2)
    >>> one, RowNote.of("in {rows}: {words}", 1500, ["c"], 2).after(one)
    ("in 2 rows: 'a', 'b'", "in 1,502 rows: 'a', 'b', ...")
    """

    pattern: str
    row_count: int
    words: tuple[str, ...]
    most_words: int

    @classmethod
    def of(cls, pattern: str, count: int, words: Iterable[str] = (), most_words: int = 1) -> RowNote:
        """Return the sentence, with the number of rows for {rows}, and the first of the different words for {words}."""
        different = tuple(dict.fromkeys(words))[: most_words + 1]
        shown = ", ".join(map(repr, different[:most_words])) + ", ..." * (len(different) > most_words > 1)
        rows = f"{count:,} row{'s' * (count != 1)}"
        note = cls(pattern.replace("{rows}", rows).replace("{words}", shown))
        note.pattern, note.row_count, note.words, note.most_words = pattern, count, different, most_words
        return note

    def after(self, earlier: RowNote) -> RowNote:
        """Add the note about earlier rows."""
        words = (*earlier.words, *self.words)
        return RowNote.of(self.pattern, earlier.row_count + self.row_count, words, self.most_words)


def together(earlier: Sequence[str], later: Iterable[str]) -> list[str]:
    """Return the notes of both, each once; those that count rows are added up."""
    notes = {getattr(note, "pattern", note): note for note in earlier}
    for note in later:
        pattern = getattr(note, "pattern", note)
        before = notes.get(pattern)
        if isinstance(note, RowNote) and isinstance(before, RowNote):
            note = note.after(before)
        notes[pattern] = note
    return list(notes.values())


@contextmanager
def warnings_as(notes: list[str]) -> Iterator[None]:
    """Take the library's warnings for notes."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for line in dict.fromkeys(str(one.message) for one in caught if issubclass(one.category, UserWarning)):
        notes.append(line)
