"""A run over HTTP: the answers of `model.predict`, rows checked, limits kept, and nothing said of data in the log."""

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection

import numpy as np
import pytest

import wherefrom as wf

pytest.importorskip("fastapi")
uvicorn = pytest.importorskip("uvicorn")

from wherefrom import serving  # noqa: E402
from wherefrom.serving import Limits, application, check_token, read_token  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::UserWarning")]
TOKEN = "a-token-of-forty-characters-at-random-00"


def made(rows, seed=0):
    random = np.random.default_rng(seed)
    age, dose = random.uniform(20, 90, rows).round(2), random.exponential(size=rows).round(3)
    ward = random.choice(["A", "B", "C"], rows)
    day = [f"2024-{month:02d}-{day:02d}" for month, day in random.integers(1, 28, (rows, 2)) % 12 + 1]
    y = age / 20 + dose + (ward == "B") + random.normal(size=rows)
    smokes = random.random(rows) < 0.4
    number = [f"p{k}" for k in range(rows)]
    table = {"patient": number, "age": age, "dose": dose, "ward": ward, "day": day, "smokes": smokes, "stay": y}
    table["age"] = np.where(random.random(rows) < 0.1, np.nan, age)
    return table


@pytest.fixture(scope="module")
def model():
    return wf.fit(made(300), "stay", draws=2, epochs=6, samples=8, held_out=0.3)


def rows_of(table, count):
    """Rows as a client sends them."""
    columns = {name: values[:count] for name, values in table.items() if name != "stay"}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    plain = lambda cell: cell.item() if isinstance(cell, np.generic) else cell  # noqa: E731
    return [{name: None if cell != cell else plain(cell) for name, cell in row.items()} for row in rows]


class Served:
    """A real server on a free port, in a thread."""

    def __init__(self, app):
        self.server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", access_log=False))
        self.thread = threading.Thread(target=self.server.run, daemon=True)

    def __enter__(self):
        self.thread.start()
        while not self.server.started:
            time.sleep(0.01)
        self.port = self.server.servers[0].sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_):
        self.server.should_exit = True
        self.thread.join(20)

    def ask(self, path, body=None, **headers):
        """Send a request, and return the status and the answer."""
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"} | {
            name.replace("_", "-"): each for name, each in headers.items()
        }
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def json(self, path, body=None, **headers):
        status, answer = self.ask(path, body, **headers)
        return status, json.loads(answer)


@pytest.fixture(scope="module")
def served(model):
    with Served(application(model, limits=Limits(rows=100, size=50_000))) as server:
        yield server


def test_answers_are_those_of_the_model(model, served):
    rows = rows_of(made(40, 1), 40)
    status, answer = served.json("/predict", {"rows": rows, "level": 0.8})
    assert status == 200
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    expected = model.predict(columns, level=0.8)
    assert len(answer["predictions"]) == 40
    assert list(answer["predictions"][0]) == list(expected)
    for name, values in expected.items():
        assert [row[name] for row in answer["predictions"]] == [
            each.item() if hasattr(each, "item") else each for each in values
        ]
    assert answer["level"] == 0.8
    status, answer = served.json("/sources", {"rows": rows})
    sources = model.sources(columns)
    assert status == 200
    assert answer["overall"].keys() == sources.overall.keys()
    assert answer["overall"]["noise"]["share"] == sources.overall["noise"].share
    assert answer["rows"][3]["share_unexplained"] == sources.rows["share_unexplained"][3]
    assert answer["gaps"]["age"]["rows"] == sum(row["age"] is None for row in rows)


def test_limits_of_numbers_and_unseen_levels_are_taken_as_in_files(model, served):
    row = rows_of(made(1, 2), 1)[0]
    status, answer = served.json("/predict", {"rows": [row | {"dose": "<0.6"}, row | {"ward": "Z"}]})
    assert status == 200
    assert "column 'dose' has limits, such as '<0.6', in 1 row" in " ".join(answer["notes"])
    assert answer["predictions"][1]["why"] == "ward=Z was never seen"
    del row["patient"]  # names rows, and need not be there
    assert served.ask("/predict", {"rows": [row]})[0] == 200


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"age": "old"}, "row 0, column 'age': is not what the column holds, see /docs"),
        ({"age": True}, "row 0, column 'age'"),
        ({"age": "61"}, "row 0, column 'age'"),
        ({"ward": 1.5}, "row 0, column 'ward'"),
        ({"ward": ["A"]}, "row 0, column 'ward'"),
        ({"ward": "x" * 2000}, "row 0, column 'ward'"),
        ({"Age": 3}, "row 0, column 'Age': is no column of the run"),
        ({"age": ...}, "row 0, column 'age': is missing; it may be null"),
        ({"day": "yesterday"}, "the request, column 'day', row 0: 'yesterday' is no date"),
        ({"smokes": 7}, "7 is neither 0 nor 1"),
    ],
)
def test_rows_are_checked(served, change, words):
    row = {name: cell for name, cell in (rows_of(made(1), 1)[0] | change).items() if cell is not ...}
    status, answer = served.json("/predict", {"rows": [row]})
    assert status == 422
    assert words in str(answer["detail"])
    assert "\\n" not in str(answer["detail"])


@pytest.mark.parametrize(
    "body",
    [
        *(b"{", b"[]", b"null", b"\xff", b"[" * 20_000, b'{"rows": []}', b'{"rows": 3}', b'{"rows": [[1]]}'),
        *(b'{"rows": [{}], "what": 1}', b'{"rows": [{}], "level": 2}', b'{"rows": [{}], "samples": 1000000}'),
    ],
)
def test_bad_bodies_are_refused(served, body):
    status, answer = served.json("/predict", body)
    assert status in (400, 422)
    assert answer["detail"]


def test_infinite_numbers_are_refused(served):
    row = json.dumps(rows_of(made(1), 1)[0])
    for value in ("NaN", "Infinity", "1e999"):
        body = '{"rows": [' + row.replace('"dose": ', f'"dose": {value}, "x": ') + "]}"
        assert served.json("/predict", body.encode())[0] == 422


def test_rows_and_sizes_have_limits(served):
    rows = rows_of(made(101), 101)
    status, answer = served.json("/predict", {"rows": rows})
    assert status == 422
    assert "has more than 100 rows: send them in parts" in str(answer)
    status, answer = served.json("/predict", b" " * 50_001)
    assert (status, answer["detail"]) == (413, "the body is larger than 50,000 bytes: send the rows in parts")
    connection = HTTPConnection("127.0.0.1", served.port, timeout=20)
    parts = (b" " * 10_000 for _ in range(8))  # a body that does not say its size
    connection.request("POST", "/predict", parts, {"Content-Type": "application/json"}, encode_chunked=True)
    assert connection.getresponse().status == 413
    connection.close()


def test_health_and_the_page(served):
    assert served.json("/health") == (200, {"status": "ok"})
    status, page = served.ask("/docs")
    assert status == 200
    assert b"training saw" in page
    assert b"<script" not in page
    assert b"http" not in page.replace(b"<!doctype html>", b"")  # nothing is loaded from elsewhere
    status, schema = served.json("/openapi.json")
    row = schema["components"]["schemas"]["Row"]
    assert set(row["required"]) == {"age", "dose", "ward", "day", "smokes"}
    assert row["additionalProperties"] is False
    assert set(schema["paths"]) == {"/health", "/predict", "/sources"}


def test_other_names_are_not_answered(served):
    assert served.ask("/health", Host="evil.example")[0] == 400


def test_64_clients_at_once(model, served):
    table = made(64 * 5, 3)
    rows = rows_of(table, 64 * 5)
    alone = [served.json("/predict", {"rows": rows[5 * k : 5 * k + 5]})[1]["predictions"] for k in range(64)]
    start = threading.Barrier(64)

    def client(k):
        start.wait()
        answers = [served.json("/predict", {"rows": rows[5 * k : 5 * k + 5]}) for _ in range(2)]
        return [(status, answer["predictions"]) for status, answer in answers]

    with ThreadPoolExecutor(64) as clients:
        together = list(clients.map(client, range(64)))
    assert together == [[(200, each)] * 2 for each in alone]


def test_too_many_that_wait_are_sent_away(model, monkeypatch):
    go_on = threading.Event()
    actual = serving.predictions
    monkeypatch.setattr(serving, "predictions", lambda looked: go_on.wait(30) and actual(looked))
    body = {"rows": rows_of(made(1), 1)}
    with Served(application(model, limits=Limits(waiting=3))) as server, ThreadPoolExecutor(12) as clients:
        asked = [clients.submit(server.ask, "/predict", body) for _ in range(12)]
        while sum(each.done() for each in asked) < 8:  # one is computed, three wait
            time.sleep(0.01)
        assert server.ask("/health")[0] == 200  # while all others wait
        go_on.set()
        statuses = sorted(each.result()[0] for each in asked)
    assert statuses == [200] * 4 + [503] * 8


def test_a_token_is_asked_for(model):
    body = {"rows": rows_of(made(1), 1)}
    with Served(application(model, TOKEN, is_local=False)) as server:
        assert server.ask("/health")[0] == 200
        for path in ("/docs", "/openapi.json"):
            assert server.ask(path)[0] == 401
            assert server.ask(path, Authorization=f"Bearer {TOKEN}")[0] == 200
        assert server.ask("/predict", body)[0] == 401
        assert server.ask("/predict", body, Authorization="Bearer wrong")[0] == 401
        assert server.ask("/predict", body, Authorization=f"Bearer {TOKEN}")[0] == 200


def test_other_machines_need_a_token(tmp_path, monkeypatch):
    check_token("127.0.0.1", None)
    check_token("0.0.0.0", TOKEN)
    with pytest.raises(ValueError, match=r"--host 0.0.0.0 lets other machines in: put a token"):
        check_token("0.0.0.0", None)
    with pytest.raises(ValueError, match=r"has 5 characters: take at least 16"):
        check_token("127.0.0.1", "short")
    monkeypatch.delenv(serving.TOKEN, raising=False)
    assert read_token(None) is None
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    assert read_token(tmp_path / "token") == TOKEN
    monkeypatch.setenv(serving.TOKEN, TOKEN)
    assert read_token(None) == TOKEN
    with pytest.raises(ValueError, match="at least 1"):
        Limits(rows=0)


def test_an_error_of_ours_says_nothing_of_the_data(model, monkeypatch, caplog):
    def broken(looked):
        raise KeyError("patient 4711")

    monkeypatch.setattr(serving, "predictions", broken)
    with caplog.at_level(logging.DEBUG), Served(application(model)) as server:
        status, answer = server.json("/predict", {"rows": rows_of(made(1), 1)})
    assert status == 500
    assert "4711" not in caplog.text + str(answer)
    assert "KeyError at test_serving.py:" in caplog.text
    assert answer["detail"].split()[-4] in caplog.text  # its number


def test_the_command_serves_a_run_and_stops(model, tmp_path):
    model.save(tmp_path / "run")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {name: value for name, value in os.environ.items() if name != serving.TOKEN}
    command = [sys.executable, "-m", "wherefrom", "serve", str(tmp_path / "run")]
    refused = subprocess.run([*command, "--host", "0.0.0.0"], env=environment, capture_output=True, text=True)
    assert refused.returncode == 2
    assert "needs a token" in refused.stderr or "lets other machines in" in refused.stderr
    process = subprocess.Popen([*command, "--port", str(port)], env=environment, stderr=subprocess.PIPE, text=True)
    try:
        body = json.dumps({"rows": rows_of(made(2), 2)}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{port}/predict", body, {"Content-Type": "application/json"})
        for _ in range(600):
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:
                    assert len(json.loads(answer.read())["predictions"]) == 2
                break
            except urllib.error.URLError:
                assert process.poll() is None
                time.sleep(0.1)
        else:
            pytest.fail("it did not answer")
    finally:
        process.send_signal(signal.SIGINT)
        errors = process.communicate(timeout=30)[1]
    assert f"http://127.0.0.1:{port}, described at /docs" in errors
    assert "p0" not in errors
    assert "Traceback" not in errors
