"""The nine UCI regression sets of the benchmark: found on disk, or downloaded as published, and always verified.

A set comes from the first of these that has it:

1. `<root>/uci/<name>/data.csv.gz` (header, features, target last), where the root is given or named by WHEREFROM_DATA;
2. for Boston, the package mlxtend, if it is installed;
3. the official file in the user's cache, downloaded there the first time, or put there by hand.

Whatever the source, the numbers are those of the benchmark, in its order: the published splits are lists of rows. A
download is kept only once it has been read and verified.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wherefrom.cache import user_cache
from wherefrom.reproduce.fetching import beside, fetch, named_root

Array = NDArray[np.float64]

UCI = "https://archive.ics.uci.edu/static/public"
OPENML = "https://www.openml.org/api/v1/json/data"


@dataclass(frozen=True)
class Source:
    """An official file: its number at UCI (a zip) or OpenML (an arff), and how the table lies in it."""

    number: int
    file: str
    member: str = ""  # of the zip
    sheet: str = ""  # of the workbook; the first one otherwise
    delimiter: str | None = None  # None: white space
    target_first: bool = False
    unused: int = 0  # columns after the target
    decimals: tuple[int, ...] = ()  # of each column, where the benchmark rounded


@dataclass(frozen=True)
class DataSet:
    """One set, with what its table must be like, to the fourth decimal."""

    name: str
    rows: int
    features: int
    y_mean: float
    y_std: float  # of the population
    y_drift: float  # mean of y times the row's place from -1 to 1, which tells the order
    source: Source
    folds: int = 20


CONCRETE = Source(165, "concrete+compressive+strength.zip", "Concrete_Data.xls", decimals=(1, 1, 1, 1, 1, 1, 1, 0, 2))
ENERGY = Source(242, "energy+efficiency.zip", "ENB2012_data.xlsx", unused=1, decimals=(2,) * 10)  # 6.366 is 6.37
NAVAL = Source(316, "condition+based+maintenance+of+naval+propulsion+plants.zip", "data.txt", unused=1)
POWER = Source(294, "combined+cycle+power+plant.zip", "Folds5x2_pp.xlsx", sheet="Sheet5", decimals=(2,) * 5)
PROTEIN = Source(
    265, "physicochemical+properties+of+protein+tertiary+structure.zip", "CASP.csv", delimiter=",", target_first=True
)
WINE = Source(186, "wine+quality.zip", "winequality-red.csv", delimiter=";")
YACHT = Source(243, "yacht+hydrodynamics.zip", "yacht_hydrodynamics.data")

SETS = {
    one.name: one
    for one in (
        DataSet("boston", 506, 13, 22.5328, 9.1880, -1.2044, Source(531, "boston.arff")),
        DataSet("concrete", 1030, 8, 35.8180, 16.6976, -3.0019, CONCRETE),
        DataSet("energy", 768, 8, 22.3072, 10.0836, 1.2290, ENERGY),
        DataSet("kin8nm", 8192, 8, 0.7143, 0.2636, -0.0022, Source(189, "kin8nm.arff")),
        DataSet("naval", 11934, 16, 0.9750, 0.0147, 0.0085, NAVAL),
        DataSet("power", 9568, 4, 454.3650, 17.0661, 0.0799, POWER),
        DataSet("protein", 45730, 9, 7.7485, 6.1182, 0.0372, PROTEIN, folds=5),
        DataSet("wine", 1599, 11, 5.6360, 0.8073, 0.0310, WINE),
        DataSet("yacht", 308, 6, 10.4954, 15.1359, 0.4588, YACHT),
    )
}
NAMES = tuple(SETS)


def load(name: str, root: str | os.PathLike[str] | None = None, progress: bool | None = None) -> tuple[Array, Array]:
    """Features and target of one set, verified; `progress=None` shows a download's bar on a terminal."""
    if name not in SETS:
        raise ValueError(f"there is no data set {name!r}; the sets are {', '.join(NAMES)}")
    chosen = SETS[name]
    root = named_root(root)
    table = (root or Path("<folder>")) / "uci" / name / "data.csv.gz"
    if root and not table.exists() and (inside := root / name / "data.csv.gz").exists():
        table = inside  # the folder uci itself was named
    if root and table.exists():
        with _blaming(str(table), "Put the benchmark's table there, or remove it to have the official file downloaded"):
            return verify(chosen, *_split(np.loadtxt(table, delimiter=",", skiprows=1, ndmin=2), chosen.features))
    if name == "boston" and (found := _boston_of_mlxtend()):
        with _blaming("mlxtend's Boston set", "Install mlxtend>=0.23, or remove it to have the set downloaded"):
            return verify(chosen, *found)
    kept = user_cache() / "uci" / chosen.source.file
    official = (
        kept.name if chosen.source.member else f"{kept.name} (from https://www.openml.org/d/{chosen.source.number})"
    )
    by_hand = (
        f"By hand: put {official} into {kept.parent}, or the benchmark's table at {table}"
        f"{'' if root else ' and give the folder as --data or WHEREFROM_DATA'}"
        f"{', or pip install mlxtend' if name == 'boston' else ''}"
    )
    if kept.exists():
        with _blaming(str(kept), f"Remove it to have it downloaded again. {by_hand}"):
            return verify(chosen, *read_official(chosen, kept))
    return _download(chosen, kept, by_hand, progress)


def splits(rows: int, count: int = 20) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """The published splits into nine tenths to train on and one to test on, which follow from the number of rows.

    >>> train, test = splits(506)[0]
    >>> len(train), len(test), test[:3].tolist()
    (455, 51, [431, 115, 470])
    """
    random = np.random.RandomState(1)  # they were drawn by it
    edge = round(rows * 9 / 10)
    orders = [random.choice(rows, rows, replace=False) for _ in range(count)]
    return [(order[:edge], order[edge:]) for order in orders]


def verify(chosen: DataSet, x: Array, y: Array) -> tuple[Array, Array]:
    """Return the table, if it is the benchmark's; raise a ValueError that says what differs otherwise."""
    expected, found = (chosen.rows, chosen.features), x.shape
    if found != expected or y.shape != (chosen.rows,):
        raise ValueError(f"the table has {found[0]} rows of {found[1]} features, not {expected[0]} of {expected[1]}")
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise ValueError("the table has numbers that are missing or infinite")
    place = np.linspace(-1, 1, len(y))
    for what, must, value in (
        ("mean of the target", chosen.y_mean, y.mean()),
        ("standard deviation of the target", chosen.y_std, y.std()),
        ("mean of the target times the row's place (the rows' order)", chosen.y_drift, (y * place).mean()),
    ):
        if not abs(value - must) <= 0.5e-4 + 1e-9:
            raise ValueError(f"the {what} is {value:.6g}, not {must:.6g}")
    return np.ascontiguousarray(x, np.float64), np.ascontiguousarray(y, np.float64)


# ---------------------------------------------------------------------- official files


def read_official(chosen: DataSet, path: Path) -> tuple[Array, Array]:
    """Features and target of an official file, rounded as the benchmark's; not yet verified."""
    source = chosen.source
    content = _member(path, source.member) if source.member else path.read_bytes()
    kind = PurePosixPath(source.member or source.file).suffix
    if kind in (".xls", ".xlsx"):
        table = read_workbook(content, source.sheet)
    elif kind == ".arff":
        table = read_arff(content.decode("latin-1"))
    else:
        table = read_text(content.decode("latin-1"), source.delimiter, header=kind == ".csv")
    columns = chosen.features + 1 + source.unused
    if table.shape[1] != columns:
        raise ValueError(f"the table has {table.shape[1]} columns, not {columns}")
    if source.decimals:
        table = np.column_stack([round_as_shown(*column) for column in zip(table.T, source.decimals, strict=True)])
    return _split(table[:, : chosen.features + 1], 0 if source.target_first else chosen.features)


def _split(table: Array, target: int) -> tuple[Array, Array]:
    if target >= table.shape[1]:
        raise ValueError(f"the table has {table.shape[1]} columns, too few")
    return np.delete(table, target, axis=1), table[:, target]


def _member(path: Path, name: str) -> bytes:
    """A file of a zip, in whichever folder and case."""
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            *folders, file = info.filename.replace("\\", "/").split("/")
            if file.lower() == name.lower() and "__MACOSX" not in folders:
                return archive.read(info)
        raise ValueError(f"there is no {name} in the zip, only {', '.join(archive.namelist()) or 'nothing'}")


def read_text(text: str, delimiter: str | None, header: bool) -> Array:
    """Numbers in lines, some of which may be blank."""
    lines = [line for line in text.splitlines() if line.strip()][header:]
    return np.loadtxt(lines, delimiter=delimiter, comments=None, ndmin=2) if lines else np.empty((0, 0))


def read_arff(text: str) -> Array:
    """The numbers of an ARFF file: numeric attributes, and nominal ones whose labels are numbers."""
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith("%")]
    start = next((i for i, line in enumerate(lines) if line.lower() == "@data"), None)
    if start is None:
        raise ValueError("there is no @data line, so this is no ARFF file")
    labels = [_labels(line) for line in lines[:start] if line.lower().startswith("@attribute")]
    table = np.empty((len(lines) - start - 1, len(labels)))
    for row, line in zip(table, lines[start + 1 :], strict=True):
        values = [value.strip().strip("'\"") for value in line.split(",")]
        if len(values) != len(labels):
            raise ValueError(f"there are {len(values)} values instead of {len(labels)} in the line {line[:60]!r}")
        for column, (value, allowed) in enumerate(zip(values, labels, strict=True)):
            if allowed is not None and value not in allowed:
                raise ValueError(f"{value!r} is not one of the labels {', '.join(allowed)}")
            row[column] = float(value)
    return table


def _labels(line: str) -> tuple[str, ...] | None:
    """The labels of a nominal attribute; none for a numeric one."""
    attribute = re.fullmatch(r"@attribute\s+('[^']*'|\"[^\"]*\"|[^\s'\"{]+)\s*(.+)", line, re.IGNORECASE)
    kind = attribute[2].strip() if attribute else ""
    if kind.lower() in ("numeric", "real", "integer"):
        return None
    if kind.startswith("{") and kind.endswith("}"):
        return tuple(label.strip().strip("'\"") for label in kind[1:-1].split(","))
    raise ValueError(f"the attribute is not numeric: {line[:60]!r}")


def read_workbook(content: bytes, sheet: str = "") -> Array:
    """The numbers below the headings of one sheet, without its empty rows and columns."""
    calamine = _calamine()
    try:
        with calamine.CalamineWorkbook.from_filelike(io.BytesIO(content)) as book:
            cells = (book.get_sheet_by_name(sheet) if sheet else book.get_sheet_by_index(0)).to_python()
    except calamine.CalamineError as error:
        raise ValueError(f"the workbook cannot be read: {str(error) or type(error).__name__}") from error
    cells = [row for row in cells if any(cell != "" for cell in row)]
    filled = [i for i, column in enumerate(zip(*cells, strict=True)) if any(cell != "" for cell in column)]
    table = np.empty((max(len(cells) - 1, 0), len(filled)))
    for row, values in zip(table, cells[1:], strict=True):
        for column, i in enumerate(filled):
            if not isinstance(values[i], int | float):
                raise ValueError(f"the sheet has {values[i]!r} where a number should be")
            row[column] = values[i]
    return table


def round_as_shown(values: Sequence[float] | Array, decimals: int) -> Array:
    """Numbers as a workbook shows them, which the benchmark copied: of 15 digits, halves go away from zero.

    >>> round_as_shown([98.05, 6.65, 0.02], 1), np.round([98.05, 6.65, 0.02], 1)
    (array([98.1,  6.7,  0. ]), array([98. ,  6.6,  0. ]))
    """
    unit = Decimal(1).scaleb(-decimals)
    return np.array([float(Decimal(f"{value:.15g}").quantize(unit, ROUND_HALF_UP)) for value in values])


# ---------------------------------------------------------------------- downloads


def _download(chosen: DataSet, kept: Path, by_hand: str, progress: bool | None) -> tuple[Array, Array]:
    """Fetch the official file beside its place, read and verify it there, and only then keep it."""
    if chosen.source.member.endswith((".xls", ".xlsx")):
        _calamine()  # before the download: without it there is no point
    with beside(kept, by_hand) as place:
        url, checksum = f"{UCI}/{chosen.source.number}/{chosen.source.file}", None
        if not chosen.source.member:
            url, checksum = _openml(chosen.source.number, place, by_hand)
        path = fetch(url, checksum, place / kept.name, by_hand, progress)
        with _blaming(f"{kept.name} from {url}", f"The download was not kept. {by_hand}"):
            return verify(chosen, *read_official(chosen, path))


def _openml(number: int, place: Path, by_hand: str) -> tuple[str, str]:
    """Ask OpenML for the address of a set, and its checksum."""
    url = f"{OPENML}/{number}"
    path = fetch(url, None, place / "description.json", by_hand, progress=False)
    with _blaming(f"the description of the set from {url}", by_hand):
        try:
            description = json.loads(path.read_bytes())["data_set_description"]
            path.unlink()
            return description["url"], f"md5:{description['md5_checksum']}"
        except (KeyError, TypeError) as error:
            raise ValueError("it does not say where the file is and what its checksum is") from error


# ---------------------------------------------------------------------- other packages, and errors


def _boston_of_mlxtend() -> tuple[Array, Array] | None:
    try:
        from mlxtend.data import boston_housing_data
    except ImportError:
        return None
    x, y = boston_housing_data()
    return x, y


def _calamine() -> Any:
    try:
        import python_calamine
    except ImportError as error:
        raise ImportError("reading Excel files needs python-calamine: pip install 'wherefrom[uci]'") from error
    return python_calamine


@contextmanager
def _blaming(what: str, advice: str) -> Iterator[None]:
    """Turn whatever a file that is not the expected one can raise into one paragraph: the file, why, what to do."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # numpy's, of empty files
            yield
    except zipfile.BadZipFile as error:
        raise ValueError(f"{what} cannot be used: it is not a whole zip file ({error}). {advice}") from error
    except (ValueError, ArithmeticError, EOFError, gzip.BadGzipFile, zlib.error, NotImplementedError) as error:
        raise ValueError(f"{what} cannot be used: {error}. {advice}") from error
