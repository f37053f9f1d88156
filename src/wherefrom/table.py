"""A small table that prints in aligned columns and turns into a frame of whichever library is there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from wherefrom.showing import Library, frame_of, html_table


@dataclass(frozen=True)
class Table:
    """Columns and rows, for people.

    >>> print(Table(("member", "loss"), [("a", 0.25), ("b", None)]))
    member    loss
    a       0.2500
    b            -
    """

    columns: tuple[str, ...]
    rows: Sequence[tuple[Any, ...]]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (dict(zip(self.columns, row, strict=True)) for row in self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, column: str) -> list[Any]:
        place = self.columns.index(column)
        return [row[place] for row in self.rows]

    def to_pandas(self) -> Any:
        """Return the table as a pandas frame."""
        return self.to_frame("pandas")

    def to_frame(self, library: Library | None = None) -> Any:
        """Return the table as a frame.

        library: "pandas" or "polars" (default: pandas if it is installed, else polars).
        """
        values = list(zip(*self.rows, strict=True)) or [()] * len(self.columns)
        named: dict[str, list[Any]] = {}
        for name, each in zip(self.columns, values, strict=True):
            while name in named:  # the columns of a frame have different names
                name += "_"
            named[name] = list(each)
        return frame_of(named, library)

    def markdown(self) -> str:
        """Return the table in Markdown; floats have four decimals.

        >>> print(Table(("", "loss"), [("a", 0.25)]).markdown())
        | | loss |
        |---|---|
        | a | 0.2500 |
        """
        rows = [[f"{cell:.4f}" if isinstance(cell, float) else str(cell) for cell in row] for row in self.rows]
        lines = ["".join(f"| {cell} " if cell else "| " for cell in row) + "|" for row in (self.columns, *rows)]
        return "\n".join([lines[0], "|---" * len(self.columns) + "|", *lines[1:]])

    def __str__(self) -> str:
        cells, is_number = [self.columns, *self._cells], self._is_number
        widths = [max(len(row[i]) for row in cells) for i in range(len(self.columns))]
        lines = [
            "  ".join(
                cell.rjust(width) if number else cell.ljust(width)
                for cell, width, number in zip(row, widths, is_number, strict=True)
            )
            for row in cells
        ]
        return "\n".join(line.rstrip() for line in lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.html()

    def html(self, shares: Sequence[float] = ()) -> str:
        """Return the table in HTML, for a notebook.

        shares: of each row, between 0 and 1, to be drawn as a bar beside it (default: none).
        """
        return html_table(self.columns, self._cells, self._is_number, shares)

    @property
    def _cells(self) -> list[tuple[str, ...]]:
        return [tuple(_text(value) for value in row) for row in self.rows]

    @property
    def _is_number(self) -> list[bool]:
        return [all(isinstance(row[i], int | float | None) for row in self.rows) for i in range(len(self.columns))]


def _text(value: Any) -> str:
    if value is None or (isinstance(value, float) and value != value):
        return "-"
    if isinstance(value, float):
        return f"{value:.4f}" if 1e-3 <= abs(value) < 1e6 or value == 0 else f"{value:.3g}"
    return str(value)
