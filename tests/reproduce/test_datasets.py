"""The benchmark's sets: where they are looked for, how official files are read, and what every failure leaves behind.

No test uses the internet: a server on this machine stands in for UCI and OpenML, with small files in the official
layouts, and the expected numbers are replaced by theirs.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import math
import socket
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from conftest import data_root
from wherefrom.reproduce import datasets

ROWS = 12
EXCEL = ("concrete", "energy", "power")
ROOT = data_root()  # now: the tests themselves forget WHEREFROM_DATA
Table = tuple[np.ndarray, np.ndarray]


def require(*packages: str) -> None:
    for package in packages:
        pytest.importorskip(package, reason=f"{package} is not installed: pip install 'wherefrom[dev]'")


def require_writers(name: str) -> None:
    """Skip where Excel files can be neither written nor read."""
    if name in EXCEL:
        require("python_calamine", "xlwt" if name == "concrete" else "openpyxl")


# ---------------------------------------------------------------------- small sets in the official layouts


@pytest.fixture(autouse=True)
def _nothing_of_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty cache, no named data folder, no mlxtend, and addresses where nobody listens."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        nowhere = f"http://127.0.0.1:{unused.getsockname()[1]}"
    monkeypatch.setattr(datasets, "UCI", f"{nowhere}/static/public")
    monkeypatch.setattr(datasets, "OPENML", f"{nowhere}/api/v1/json/data")
    monkeypatch.setenv("WHEREFROM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("WHEREFROM_DATA", raising=False)
    monkeypatch.setitem(sys.modules, "mlxtend.data", None)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "uci"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Table]:
    """A small table with two decimals for a set, whose numbers are then the expected ones."""

    def make(name: str) -> Table:
        chosen = datasets.SETS[name]
        random = np.random.default_rng(chosen.features)
        x = random.integers(0, 900, (ROWS, chosen.features)) / 10
        if name == "boston":
            x[:, 3] = random.integers(0, 2, ROWS)
        if name == "concrete":
            x[:, 7] = random.integers(1, 365, ROWS)
        y = random.integers(0, 9000, ROWS) / 100
        expect(monkeypatch, name, x, y)
        return x, y

    return make


def expect(monkeypatch: pytest.MonkeyPatch, name: str, x: np.ndarray, y: np.ndarray) -> None:
    drift = float(np.mean(y * np.linspace(-1, 1, len(y))))
    numbers = [round(float(number), 4) for number in (y.mean(), y.std(), drift)]
    chosen = replace(datasets.SETS[name], rows=len(y), y_mean=numbers[0], y_std=numbers[1], y_drift=numbers[2])
    monkeypatch.setitem(datasets.SETS, name, chosen)


def zipped(**members: bytes | str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def lines(table: np.ndarray, separator: str, form: str = "{:.17g}") -> str:
    return "".join(separator.join(form.format(value) for value in row) + "\n" for row in table)


def xls(table: np.ndarray) -> bytes:
    import xlwt

    book = xlwt.Workbook()
    sheet = book.add_sheet("Sheet1")
    for j in range(table.shape[1]):
        sheet.write(0, j, f"Component {j} (kg in a m^3 mixture)")
        for i, value in enumerate(table[:, j]):
            sheet.write(i + 1, j, float(value))
    file = io.BytesIO()
    book.save(file)
    return file.getvalue()


def xlsx(*tables: np.ndarray, blank: bool = False) -> bytes:
    """One sheet for each table; with blank cells below and beside, as where something was once deleted."""
    import openpyxl

    book = openpyxl.Workbook(write_only=not blank)
    for name in book.sheetnames:
        del book[name]
    for number, table in enumerate(tables, 1):
        sheet = book.create_sheet(f"Sheet{number}")
        sheet.append([f"X{j}" for j in range(table.shape[1])])
        for row in table:
            sheet.append(row.tolist())
        if blank:
            sheet.cell(len(table) + 5, table.shape[1] + 3).number_format = "0.00"
            sheet.cell(2, table.shape[1] + 2).value = ""
    file = io.BytesIO()
    book.save(file)
    return file.getvalue()


def arff(name: str, table: np.ndarray) -> str:
    kinds = ["NUMERIC"] * table.shape[1]
    if name == "boston":
        kinds[3] = "{0,1}"
    attributes = "".join(f"@attribute 'of {j}'\t{kind}\n" for j, kind in enumerate(kinds))
    return f"% Of {name}:\n%\n@RELATION {name}\n\n{attributes}\n@DATA\n% the rows\n{lines(table, ',')}\n"


def official(name: str, x: np.ndarray, y: np.ndarray) -> bytes:
    """The table as UCI or OpenML publishes it, with what else there is beside it."""
    table = np.column_stack([x, y])
    if name == "concrete":
        return zipped(**{"Concrete_Data.xls": xls(table), "Concrete_Readme.txt": "Concrete"})
    if name == "energy":
        return zipped(**{"ENB2012_data.xlsx": xlsx(np.column_stack([table, y + 1]), blank=True)})
    if name == "power":
        shuffled = [np.random.default_rng(seed).permutation(table) for seed in range(4)]
        return zipped(**{"CCPP/Folds5x2_pp.xlsx": xlsx(*shuffled, table), "CCPP/Readme.txt": "Power"})
    if name == "naval":
        text = "".join(f"   {line}\n" for line in lines(np.column_stack([table, y]), "   ", "{:.7e}").splitlines())
        other = {"__MACOSX/UCI CBM Dataset/data.txt": "not this one", "UCI CBM Dataset/README.txt": "Naval"}
        return zipped(**other, **{"UCI CBM Dataset/data.txt": text})
    if name == "protein":
        heading = "RMSD,F1,F2,F3,F4,F5,F6,F7,F8,F9\n"
        return zipped(**{"CASP.csv": heading + lines(np.column_stack([y, x]), ",")})
    if name == "wine":
        heading = ";".join(f'"column {j}"' for j in range(12)) + "\n"
        white = heading + lines(table + 1, ";")
        return zipped(**{"winequality-white.csv": white, "winequality-red.csv": heading + lines(table, ";")})
    if name == "yacht":
        return zipped(**{"Yacht_Hydrodynamics.DATA": lines(table, " ").replace(" ", "  ", 5) + " \n\n"})
    return arff(name, table).encode()


# ---------------------------------------------------------------------- the stand-in for UCI and OpenML


class Server:
    """Answers by path; `claims` is the length it announces, if not the true one."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.answers: dict[str, tuple[int, bytes]] = {}
        self.claims: dict[str, int] = {}
        self.requests: list[str] = []

    def publish(self, name: str, content: bytes, checksum: str | None = None) -> str:
        """Put an official file where it is published, and tell its address."""
        source = datasets.SETS[name].source
        if source.member:
            path = f"/static/public/{source.number}/{source.file}"
        else:
            path = f"/data/v1/download/7/{source.file}"
            checksum = checksum or hashlib.md5(content).hexdigest()
            description = {"url": self.address + path, "md5_checksum": checksum, "id": str(source.number)}
            answer = json.dumps({"data_set_description": description}).encode()
            self.answers[f"/api/v1/json/data/{source.number}"] = (200, answer)
        self.answers[path] = (200, content)
        return self.address + path


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    require("pooch")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known.requests.append(self.path)
            status, content = known.answers.get(self.path, (404, b"<html>no such page</html>"))
            self.send_response(status)
            self.send_header("Content-Length", str(known.claims.get(self.path, len(content))))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        known = Server(f"http://127.0.0.1:{http.server_address[1]}")
        monkeypatch.setattr(datasets, "UCI", f"{known.address}/static/public")
        monkeypatch.setattr(datasets, "OPENML", f"{known.address}/api/v1/json/data")
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield known
        http.shutdown()
        thread.join()


def assert_refused(error: BaseException, cache: Path, name: str, *words: str) -> None:
    """One paragraph that says what is wrong and what can be put where by hand; and nothing left in the cache."""
    message = str(error)
    table = str(Path("uci", name, "data.csv.gz"))
    for word in (*words, datasets.SETS[name].source.file, str(cache), table, "WHEREFROM_DATA"):
        assert word in message
    assert "\n" not in message
    assert list(cache.iterdir()) == []


# ---------------------------------------------------------------------- the table of sets, and the splits


def test_the_table_names_all_nine() -> None:
    assert datasets.NAMES == ("boston", "concrete", "energy", "kin8nm", "naval", "power", "protein", "wine", "yacht")
    assert {name: chosen.folds for name, chosen in datasets.SETS.items() if chosen.folds != 20} == {"protein": 5}
    for chosen in datasets.SETS.values():
        assert len(chosen.source.decimals) in (0, chosen.features + 1 + chosen.source.unused)


def test_splits_are_of_nine_tenths_and_one() -> None:
    found = datasets.splits(308, 4)
    assert len(found) == 4
    for train, test in found:
        assert len(train) == 277
        np.testing.assert_array_equal(np.sort(np.concatenate([train, test])), np.arange(308))
    assert not np.array_equal(found[0][0], found[1][0])


def real_root() -> Path:
    if ROOT is None:
        pytest.skip("the UCI data is not here: set WHEREFROM_DATA to a folder that holds uci/<set>/data.csv.gz")
    return ROOT


@pytest.mark.real_data
@pytest.mark.parametrize("name", datasets.NAMES)
def test_splits_are_the_published_ones(name: str) -> None:
    path = real_root() / "uci" / name / "splits.npz"
    if not path.exists():
        pytest.skip(f"the published splits are not here: {path}")
    chosen = datasets.SETS[name]
    with np.load(path) as published:
        assert len(published.files) == 2 * chosen.folds
        for i, (train, test) in enumerate(datasets.splits(chosen.rows, chosen.folds)):
            np.testing.assert_array_equal(train, published[f"train_{i}"])
            np.testing.assert_array_equal(test, published[f"test_{i}"])


@pytest.mark.real_data
@pytest.mark.parametrize("name", datasets.NAMES)
def test_the_real_table_is_verified(name: str) -> None:
    x, y = datasets.load(name, real_root())
    assert x.shape == (datasets.SETS[name].rows, datasets.SETS[name].features)
    assert x.dtype == y.dtype == np.float64
    assert y.shape == (len(x),)


@pytest.mark.real_data
@pytest.mark.parametrize("name", datasets.NAMES)
def test_the_real_table_in_its_official_layout_is_verified(name: str, cache: Path) -> None:
    require_writers(name)
    x, y = datasets.load(name, real_root())
    cache.mkdir(parents=True)
    (cache / datasets.SETS[name].source.file).write_bytes(official(name, x, y))
    again = datasets.load(name)
    np.testing.assert_array_equal(again[0], x)
    np.testing.assert_array_equal(again[1], y)


@pytest.mark.real_data
def test_boston_of_mlxtend_is_the_benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = datasets.load("boston", real_root())
    monkeypatch.delitem(sys.modules, "mlxtend.data")
    require("mlxtend.data")
    other = datasets.load("boston")
    np.testing.assert_array_equal(other[0], x)
    np.testing.assert_array_equal(other[1], y)


def test_boston_of_mlxtend_needs_no_download(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "mlxtend.data")
    require("mlxtend.data")
    x, _ = datasets.load("boston")
    assert x.shape == (506, 13)


# ---------------------------------------------------------------------- verification


def test_verification_says_what_differs(small: Callable[[str], Table]) -> None:
    x, y = small("yacht")
    chosen = datasets.SETS["yacht"]
    np.testing.assert_array_equal(datasets.verify(chosen, x, y)[0], x)
    wrong = {
        "11 rows of 6 features, not 12 of 6": (x[:-1], y[:-1]),
        "12 rows of 5 features, not 12 of 6": (x[:, 1:], y),
        "missing or infinite": (np.where(x == x[0, 0], np.nan, x), y),
        "mean of the target is": (x, y + 0.001),
        "standard deviation of the target is": (x, (y - y.mean()) * 1.001 + y.mean()),
        "the rows' order": (x, y[::-1]),
    }
    for words, table in wrong.items():
        with pytest.raises(ValueError, match=words):
            datasets.verify(chosen, *table)


def test_verification_allows_half_of_the_last_digit(small: Callable[[str], Table]) -> None:
    x, y = small("yacht")
    chosen, mean = datasets.SETS["yacht"], float(y.mean())
    for allowed in (-4.9e-5, 4.9e-5):
        datasets.verify(replace(chosen, y_mean=mean + allowed), x, y)
    for excessive in (-5.1e-5, 5.1e-5):
        with pytest.raises(ValueError, match="mean of the target"):
            datasets.verify(replace(chosen, y_mean=mean + excessive), x, y)


# ---------------------------------------------------------------------- on disk


def write_table(root: Path, name: str, x: np.ndarray, y: np.ndarray) -> Path:
    path = root / "uci" / name / "data.csv.gz"
    path.parent.mkdir(parents=True)
    heading = ",".join(f"x{j}" for j in range(x.shape[1] + 1)) + "\n"
    path.write_bytes(gzip.compress((heading + lines(np.column_stack([x, y]), ",")).encode()))
    return path


def test_a_root_is_looked_into_first(
    tmp_path: Path, small: Callable[[str], Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = small("wine")
    write_table(tmp_path / "data", "wine", x, y)
    for root in (tmp_path / "data", str(tmp_path / "data")):
        found = datasets.load("wine", root)
        np.testing.assert_array_equal(found[0], x)
        np.testing.assert_array_equal(found[1], y)
    monkeypatch.setenv("WHEREFROM_DATA", str(tmp_path / "data"))
    np.testing.assert_array_equal(datasets.load("wine")[1], y)
    (tmp_path / "empty").mkdir()
    require("pooch")
    with pytest.raises(OSError, match=r"empty.uci.wine"):
        datasets.load("wine", tmp_path / "empty")  # the argument comes before the environment


def test_a_root_that_does_not_exist_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere does not exist; --data or WHEREFROM_DATA"):
        datasets.load("wine", tmp_path / "nowhere")
    monkeypatch.setenv("WHEREFROM_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(FileNotFoundError, match="nowhere does not exist"):
        datasets.load("wine")


def test_a_root_without_the_set_leads_to_the_download(
    tmp_path: Path, small: Callable[[str], Table], server: Server
) -> None:
    x, y = small("wine")
    server.publish("wine", official("wine", x, y))
    np.testing.assert_array_equal(datasets.load("wine", tmp_path)[0], x)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda whole: gzip.compress(gzip.decompress(whole).replace(b",", b",1", 200)), "mean of the target"),
        (lambda whole: gzip.compress(gzip.decompress(whole) + b"1,2\n"), "columns"),
        (lambda whole: gzip.compress(b"x,y\n"), "0 rows|columns"),
        (lambda whole: gzip.compress(b""), "0 rows|columns"),
        (lambda whole: whole[:-20], "end-of-stream|ended"),
        (lambda whole: b"x,y\n1,2\n", "gzip"),
    ],
    ids=["other numbers", "ragged", "no rows", "empty", "cut short", "not compressed"],
)
def test_a_table_that_is_not_the_benchmarks_is_refused(
    spoil: Callable[[bytes], bytes], words: str, tmp_path: Path, small: Callable[[str], Table]
) -> None:
    path = write_table(tmp_path, "yacht", *small("yacht"))
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(ValueError, match=words) as refused:
        datasets.load("yacht", tmp_path)
    assert str(path) in str(refused.value)
    assert "remove it to have the official file downloaded" in str(refused.value)
    assert path.exists()


def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(ValueError, match="no data set 'iris'; the sets are boston, concrete"):
        datasets.load("iris")


# ---------------------------------------------------------------------- reading official files


@pytest.mark.parametrize("name", datasets.NAMES)
def test_official_layouts_are_read(name: str, tmp_path: Path, small: Callable[[str], Table]) -> None:
    require_writers(name)
    x, y = small(name)
    path = tmp_path / datasets.SETS[name].source.file
    path.write_bytes(official(name, x, y))
    found = datasets.read_official(datasets.SETS[name], path)
    np.testing.assert_array_equal(found[0], x)
    np.testing.assert_array_equal(found[1], y)


def test_concrete_is_rounded_as_the_benchmarks(tmp_path: Path) -> None:
    """Rows of the official workbook that lie halfway, and what the benchmark's table has for them."""
    require_writers("concrete")
    workbook = """
        213.72 98.05 24.51 181.71 6.86 1065.8 785.38 14 30.38520732
        213.76 98.06 24.52 181.74 6.65 1066.0 785.52 3 13.18278112
        167.95 42.08 163.83 121.75 5.72 1058.7 780.11 3 7.74971024
        212.57 0.0 100.39 159.35 10.37 1003.8 903.79 3 13.33446584
        165.0 0.02 143.57 163.81 0.0 1005.6 900.9 3 14.39625888
        540.0 0.0 0.0 162.0 2.5 1055.0 676.0 28 61.887365759999994
    """
    benchmark = """
        213.7 98.1 24.5 181.7 6.9 1065.8 785.4 14 30.39
        213.8 98.1 24.5 181.7 6.7 1066 785.5 3 13.18
        168 42.1 163.8 121.8 5.7 1058.7 780.1 3 7.75
        212.6 0 100.4 159.4 10.4 1003.8 903.8 3 13.33
        165 0 143.6 163.8 0 1005.6 900.9 3 14.4
        540 0 0 162 2.5 1055 676 28 61.89
    """
    path = tmp_path / "concrete.zip"
    path.write_bytes(zipped(**{"Concrete_Data.xls": xls(datasets.read_text(workbook, None, header=False))}))
    x, y = datasets.read_official(datasets.SETS["concrete"], path)
    np.testing.assert_array_equal(np.column_stack([x, y]), datasets.read_text(benchmark, None, header=False))


def test_energy_is_rounded_as_the_benchmarks(tmp_path: Path, small: Callable[[str], Table]) -> None:
    require_writers("energy")
    x, y = small("energy")
    y[3] = 6.366
    path = tmp_path / "energy.zip"
    path.write_bytes(official("energy", x, y))
    assert datasets.read_official(datasets.SETS["energy"], path)[1][3] == 6.37


def test_arff_takes_numbers_in_every_spelling() -> None:
    text = """% of OpenML
        @relation 'two words'
        @attribute plain numeric
        @ATTRIBUTE "two words" REAL
        @attribute 'CHAS' {0, '1'}
        @attribute tight{1,24}
        @attribute last integer
        @data
        1, -2.5e-3 ,'1',24,7
        % in between

        2,0,0,1,"8"
    """
    expected = [[1, -2.5e-3, 1, 24, 7], [2, 0, 0, 1, 8]]
    np.testing.assert_array_equal(datasets.read_arff(text), expected)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("<html>sorry</html>", "no @data line"),
        ("@attribute a numeric\n@data\n1,2", "2 values instead of 1"),
        ("@attribute a numeric\n@data\n?", "could not convert"),
        ("@attribute a string\n@data\n1", "not numeric"),
        ("@attribute a date 'yyyy'\n@data\n1", "not numeric"),
        ("@attribute a\n@data\n1", "not numeric"),
        ("@attribute a {0,1}\n@data\n2", "'2' is not one of the labels 0, 1"),
        ("@attribute a {yes,no}\n@data\nyes", "could not convert"),
        ("@attribute a numeric\n@data\n{0 1}", "could not convert"),
    ],
)
def test_arff_of_anything_else_is_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        datasets.read_arff(text)


def test_workbooks_with_words_for_numbers_are_refused() -> None:
    require("python_calamine", "openpyxl")
    import openpyxl

    book = openpyxl.Workbook()
    for row in (["a", "b"], [1, 2], [3, "four"]):
        book.active.append(row)
    file = io.BytesIO()
    book.save(file)
    with pytest.raises(ValueError, match="'four' where a number should be"):
        datasets.read_workbook(file.getvalue())
    with pytest.raises(ValueError, match="workbook cannot be read"):
        datasets.read_workbook(file.getvalue(), "Sheet5")
    for content in (b"", b"<html>", file.getvalue()[:500], b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600)):
        with pytest.raises(ValueError, match="workbook cannot be read"):
            datasets.read_workbook(content)


def test_empty_workbooks_have_no_rows() -> None:
    require("python_calamine", "openpyxl")
    assert datasets.read_workbook(xlsx(np.empty((0, 3)))).shape == (0, 3)
    assert datasets.read_workbook(xlsx(np.empty((0, 0)))).size == 0


def test_rounding_is_of_the_decimal_number() -> None:
    values = [2.5, 0.125, -0.125, 1.005, 159.35, 0.1 + 0.2, 61.887365759999994, 1e-9]
    np.testing.assert_array_equal(datasets.round_as_shown(values, 2), [2.5, 0.13, -0.13, 1.01, 159.35, 0.3, 61.89, 0])
    assert math.copysign(1, datasets.round_as_shown([0.4], 0)[0]) == 1


# ---------------------------------------------------------------------- downloads


@pytest.mark.parametrize("name", datasets.NAMES)
def test_official_files_are_downloaded_once(
    name: str, server: Server, cache: Path, small: Callable[[str], Table], capsys: pytest.CaptureFixture[str]
) -> None:
    require_writers(name)
    x, y = small(name)
    content = official(name, x, y)
    server.publish(name, content)
    for _ in range(2):
        found = datasets.load(name, progress=False)
        np.testing.assert_array_equal(found[0], x)
        np.testing.assert_array_equal(found[1], y)
        assert found[0].flags.c_contiguous
    assert len(server.requests) == (1 if datasets.SETS[name].source.member else 2)
    assert [path.name for path in cache.iterdir()] == [datasets.SETS[name].source.file]
    assert (cache / datasets.SETS[name].source.file).read_bytes() == content
    assert capsys.readouterr() == ("", "")


def test_a_progress_bar_is_shown_if_asked_for(
    server: Server, small: Callable[[str], Table], capsys: pytest.CaptureFixture[str]
) -> None:
    server.publish("wine", official("wine", *small("wine")))
    datasets.load("wine", progress=True)
    assert "downloading wine+quality.zip" in capsys.readouterr().err


def test_files_put_into_the_cache_by_hand_need_no_network(
    cache: Path, small: Callable[[str], Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pooch", None)
    cache.mkdir(parents=True)
    for name in ("wine", "kin8nm"):
        x, y = small(name)
        (cache / datasets.SETS[name].source.file).write_bytes(official(name, x, y))
        np.testing.assert_array_equal(datasets.load(name)[0], x)


def test_a_wrong_file_put_into_the_cache_by_hand_is_left_to_its_owner(
    cache: Path, small: Callable[[str], Table]
) -> None:
    x, y = small("wine")
    cache.mkdir(parents=True)
    path = cache / "wine+quality.zip"
    path.write_bytes(official("wine", x, y + 1))
    with pytest.raises(ValueError, match="Remove it to have it downloaded again") as refused:
        datasets.load("wine")
    assert str(path) in str(refused.value)
    assert path.exists()


def test_without_a_network_it_says_what_to_put_where(cache: Path) -> None:
    require("pooch")
    for name in ("wine", "boston"):
        with pytest.raises(OSError, match="could not be downloaded: there is no connection") as refused:
            datasets.load(name)
        assert_refused(refused.value, cache, name, datasets.UCI if name == "wine" else datasets.OPENML)


@pytest.mark.parametrize("status", [404, 503])
def test_an_error_of_the_server_is_told(status: int, server: Server, cache: Path) -> None:
    url = server.publish("wine", b"")
    server.answers["/static/public/186/wine+quality.zip"] = (status, b"<html>sorry</html>")
    with pytest.raises(OSError, match=f"the server answered {status}") as refused:
        datasets.load("wine")
    assert_refused(refused.value, cache, "wine", url)


@pytest.mark.parametrize("name", ["wine", "kin8nm"])
def test_a_connection_that_breaks_in_the_middle_leaves_nothing(
    name: str, server: Server, cache: Path, small: Callable[[str], Table]
) -> None:
    content = official(name, *small(name))
    url = server.publish(name, content)
    server.claims[url.removeprefix(server.address)] = len(content) + 100_000
    with pytest.raises(OSError, match="the connection broke in the middle") as refused:
        datasets.load(name)
    assert_refused(refused.value, cache, name, url)


def test_an_interrupted_download_leaves_nothing(
    server: Server, cache: Path, small: Callable[[str], Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    import requests

    def interrupted(*_: object) -> Iterator[bytes]:
        yield b"PK"
        raise KeyboardInterrupt

    server.publish("wine", official("wine", *small("wine")))
    monkeypatch.setattr(requests.Response, "iter_content", interrupted)
    with pytest.raises(KeyboardInterrupt):
        datasets.load("wine")
    assert list(cache.iterdir()) == []


def test_another_checksum_than_openmls_is_refused(server: Server, cache: Path, small: Callable[[str], Table]) -> None:
    url = server.publish("kin8nm", official("kin8nm", *small("kin8nm")), checksum="0" * 32)
    with pytest.raises(OSError, match="does not have the checksum that was published") as refused:
        datasets.load("kin8nm")
    assert_refused(refused.value, cache, "kin8nm", url)


@pytest.mark.parametrize("answer", [b"<html>sorry</html>", b"[]", b"{}", b'{"data_set_description": {"url": "x"}}'])
def test_a_description_that_openml_does_not_give_is_told(answer: bytes, server: Server, cache: Path) -> None:
    server.answers["/api/v1/json/data/189"] = (200, answer)
    with pytest.raises(ValueError, match="the description of the set from") as refused:
        datasets.load("kin8nm")
    assert_refused(refused.value, cache, "kin8nm", datasets.OPENML)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda x, y: b"<!DOCTYPE html><html>sorry</html>", "not a whole zip file"),
        (lambda x, y: official("wine", x, y)[:-30], "not a whole zip file"),
        (lambda x, y: b"", "not a whole zip file"),
        (lambda x, y: zipped(**{"red.csv": "1"}), "there is no winequality-red.csv in the zip, only red.csv"),
        (lambda x, y: zipped(**{"winequality-red.csv": ""}), "0 columns, not 12"),
        (lambda x, y: zipped(**{"winequality-red.csv": "<html>\n<body>"}), "could not convert"),
        (lambda x, y: official("wine", x[:-1], y[:-1]), "11 rows of 11 features, not 12 of 11"),
        (lambda x, y: official("wine", x[:, 1:], y), "11 columns, not 12"),
        (lambda x, y: official("wine", x, y + 0.01), "the mean of the target is"),
        (lambda x, y: official("wine", x, y[::-1]), "order"),
        (lambda x, y: official("wine", np.where(x == x[0, 0], np.inf, x), y), "missing or infinite"),
    ],
    ids=[
        "a page", "cut short", "nothing", "no member", "empty member", "a page as member", "rows", "columns", "numbers",
        "order", "infinite",
    ],
)  # fmt: skip
def test_a_download_that_is_not_the_benchmarks_is_not_kept(
    spoil: Callable[[np.ndarray, np.ndarray], bytes],
    words: str,
    server: Server,
    cache: Path,
    small: Callable[[str], Table],
) -> None:
    x, y = small("wine")
    url = server.publish("wine", spoil(x, y))
    with pytest.raises(ValueError, match=words) as refused:
        datasets.load("wine")
    assert_refused(refused.value, cache, "wine", url, "The download was not kept")
    server.publish("wine", official("wine", x, y))  # and the next attempt succeeds
    np.testing.assert_array_equal(datasets.load("wine")[0], x)


def test_a_zip_with_a_damaged_member_is_not_kept(server: Server, cache: Path, small: Callable[[str], Table]) -> None:
    x, y = small("yacht")
    content = bytearray(official("yacht", x, y))
    content[80:90] = bytes(10)
    server.publish("yacht", bytes(content))
    with pytest.raises(ValueError, match=r"yacht\+hydrodynamics\.zip from") as refused:
        datasets.load("yacht")
    assert_refused(refused.value, cache, "yacht")


def test_a_cache_that_cannot_be_written_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("WHEREFROM_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(OSError, match="Let WHEREFROM_CACHE name a folder that can be written"):
        datasets.load("wine")


def test_without_pooch_it_says_what_to_install(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(ImportError, match=r"pip install 'wherefrom\[uci\]'") as refused:
        datasets.load("wine")
    assert_refused(refused.value, cache, "wine")


def test_without_calamine_it_says_so_before_the_download(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "python_calamine", None)
    with pytest.raises(ImportError, match=r"pip install 'wherefrom\[uci\]'"):
        datasets.load("power")
    assert server.requests == []
