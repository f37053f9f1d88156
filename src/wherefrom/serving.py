"""`wherefrom serve`: a run answers over HTTP, rows as JSON in and predictions as JSON out.

    GET  /health     whether it is there
    GET  /docs       a page for people: the columns, an example, the limits (it loads nothing from elsewhere)
    GET  /openapi.json
    POST /predict    {"rows": [{"age": 61, "ward": "A"}, ...]}
    POST /sources    the same

Rows are checked against the columns of the run before anything is computed. Predictions are computed one request at a
time, in one thread: others wait, and beyond a number of them are sent away (503). Nothing of a request is logged:
neither its body nor an error message, which may quote a cell.
"""

import html
import ipaddress
import json
import logging
import os
import secrets
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from wherefrom.tables.columns import Categories, Exposure, Quantity, written_date
from wherefrom.tables.dates import Date
from wherefrom.tables.frames import table_of
from wherefrom.tables.looking import FEWEST_SAMPLES, How, Looked
from wherefrom.tables.model import Model
from wherefrom.tables.writing import as_json, finite

try:
    import fastapi
    import pydantic
    from fastapi.exceptions import RequestValidationError
    from fastapi.responses import HTMLResponse, JSONResponse
    from starlette.concurrency import run_in_threadpool
    from starlette.middleware.trustedhost import TrustedHostMiddleware
except ImportError:
    raise ImportError("`wherefrom serve` needs FastAPI and uvicorn: pip install 'wherefrom[serve]'") from None

TOKEN = "WHEREFROM_TOKEN"  # the environment variable
_SHORTEST_TOKEN = 16
_LONGEST_CELL = 1000
_MOST_SAMPLES = 1000
_LIMIT = r"^\s*(<=?|>=?|≤|≥)\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$"
_LOCAL_NAMES = ["localhost", "127.0.0.1", "::1", "[::1]"]

_log = logging.getLogger("wherefrom.serving")


@dataclass(frozen=True)
class Limits:
    """Limits of one request, and of all that wait.

    rows: of a request.
    size: bytes of a request's body.
    waiting: requests that wait while another is computed.
    """

    rows: int = 10_000
    size: int = 20_000_000
    waiting: int = 256

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value < 1:
                raise ValueError(f"--most-{name} is at least 1, not {value}")


def serve(
    folder: Path, host: str = "127.0.0.1", port: int = 8000, token: str | None = None, limits: Limits | None = None
) -> None:
    """Load a run, and answer until the process is stopped.

    folder: what `wherefrom fit` wrote.
    host: address to listen at (default: this machine alone). Any other needs a token.
    token: what clients send as `Authorization: Bearer ...` (default: none is needed).
    limits: of requests (default: `Limits()`).
    """
    import uvicorn

    check_token(host, token)
    app = application(Model.load(folder), token, limits or Limits(), is_local=is_loopback(host))
    uvicorn.run(app, host=host, port=port, access_log=False, log_level="warning", server_header=False)


def check_token(host: str, token: str | None) -> None:
    """Raise unless the token is long enough, and there is one if others can reach this address."""
    if token is not None and len(token) < _SHORTEST_TOKEN:
        raise ValueError(f"the token has {len(token)} characters: take at least {_SHORTEST_TOKEN}, at random")
    if token is None and not is_loopback(host):
        raise ValueError(
            f"--host {host} lets other machines in: put a token into the environment variable {TOKEN}, or use "
            "--token-file"
        )


def is_loopback(host: str) -> bool:
    """True for an address that only this machine can reach.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def read_token(path: Path | None) -> str | None:
    """Return the token in a file, or else in the environment; None if there is neither."""
    if path is not None:
        return path.read_text(encoding="utf-8").strip()
    return os.environ.get(TOKEN) or None


# ------------------------------------------------------------------ rows


Number = Annotated[float, pydantic.Field(strict=True, allow_inf_nan=False)]
Limit = Annotated[str, pydantic.Field(pattern=_LIMIT, max_length=50)]
Text = Annotated[str, pydantic.Field(strict=True, max_length=_LONGEST_CELL)]
Whole = Annotated[int, pydantic.Field(strict=True)]
Truth = Annotated[bool, pydantic.Field(strict=True)]


def row_model(model: Model) -> type[pydantic.BaseModel]:
    """Return the schema of a row: the columns of the run, each there but perhaps null, and no others.

    Columns that training dropped, the group and the identifier may be there.
    """
    fields: dict[str, Any] = {}
    names: dict[str, str] = {}
    for rule in model.encoder.rules:
        kind, text = _kind(rule)
        default = None if rule in model.encoder.dropped else ...
        names[rule.name] = text
        fields[f"column_{len(fields)}"] = (kind, pydantic.Field(default, alias=rule.name, description=text))
    for other in (model.about.get("group"), model.about.get("weight"), *model.target.columns):
        if other is not None and other not in names:
            names[other] = "not needed"
            kind = Number | Text | Truth | None
            fields[f"column_{len(fields)}"] = (kind, pydantic.Field(None, alias=other, description="not needed"))
    return pydantic.create_model("Row", __config__=pydantic.ConfigDict(extra="forbid"), **fields)


def _kind(rule: Any) -> tuple[Any, str]:
    """Return the type of a column's cells, and what they are in words."""
    if isinstance(rule, Quantity) and rule.kind == "number":
        seen = "" if rule.low is None else f"; training saw {rule.low:g} to {rule.high:g}"
        return Number | Limit | None, f'a number, or a limit such as "<0.6"{seen}'
    if isinstance(rule, Quantity):
        return Truth | Whole | Text | None, "true or false"
    if isinstance(rule, Exposure):
        return Number, "a number above zero: how long, or how many, the row is observed"
    if isinstance(rule, Date):
        seen = f"; training saw {written_date(rule.low)} to {written_date(rule.high)}"
        return Text | None, f"a date, as 2026-01-31{seen}"
    if isinstance(rule, Categories):
        few = ", ".join(map(repr, rule.levels[:10])) + ", ..." * (len(rule.levels) > 10)
        return Text | Whole | None, f"text: {few or 'any'}"
    return Number | Text | Truth | None, f"not used by the run: {rule.why}"


def as_columns(model: Model, rows: list[Any]) -> dict[str, list[Any]]:
    """Return checked rows as columns; those that no row has are left out, unless the run needs them."""
    written = [row.model_dump(by_alias=True) for row in rows]
    needed = set(model.encoder.names)
    columns = {name: [row[name] for row in written] for name in written[0]}
    return {name: cells for name, cells in columns.items() if name in needed or any(cell is not None for cell in cells)}


# ------------------------------------------------------------------ the application


def application(
    model: Model, token: str | None = None, limits: Limits | None = None, is_local: bool = True
) -> fastapi.FastAPI:
    """Return the ASGI application that answers for a model.

    model: a table's, as `wf.load` reads it.
    token: what clients send as `Authorization: Bearer ...` (default: none is needed).
    limits: of requests (default: `Limits()`).
    is_local: it listens at an address of this machine alone; then it only answers to names of this machine, so that no
        web page can reach it by a name of its own (default True).
    """
    limits = limits or Limits()
    row = row_model(model)

    class Question(pydantic.BaseModel):
        """Rows to predict, and how."""

        model_config = pydantic.ConfigDict(extra="forbid")
        rows: Annotated[list[row], pydantic.Field(min_length=1, max_length=limits.rows)]  # type: ignore[valid-type]
        level: Annotated[float | None, pydantic.Field(gt=0, lt=1, description="of the intervals")] = None
        samples: Annotated[
            int | None, pydantic.Field(ge=FEWEST_SAMPLES, le=_MOST_SAMPLES, description="of each network")
        ] = None
        method: Literal["monte_carlo", "one_shot", "auto"] = "monte_carlo"

    app = fastapi.FastAPI(
        title=f"Wherefrom: {model.target.name}",
        description=f"Predictions of {model.target.name!r} ({model.target.task}), and where their doubt comes from.",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )
    queue = _Queue(limits.waiting)
    _refuse_in_words(app)
    locked = [fastapi.Depends(_needs(token))]

    def asked(question: Any) -> Looked:
        table = table_of(as_columns(model, question.rows), model.reading(), "the request")
        return model.look(table, How(question.level, question.samples, question.method))

    @app.get("/health")
    async def health() -> dict[str, str]:
        """Return {"status": "ok"} if the server runs."""
        return {"status": "ok"}

    @app.get("/openapi.json", dependencies=locked, include_in_schema=False)
    async def schema() -> dict[str, Any]:
        return app.openapi()

    @app.get("/docs", dependencies=locked, include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(page(model, limits, bool(token)), headers={"Content-Security-Policy": _POLICY})

    @app.post("/predict", dependencies=locked, response_model=None)
    async def predict(question: Question) -> JSONResponse:
        """Predict rows: mean and interval, or classes; causes of the doubt; and which rows are unusual."""
        return await queue.answer(lambda: predictions(asked(question)))

    @app.post("/sources", dependencies=locked, response_model=None)
    async def sources(question: Question) -> JSONResponse:
        """Return the causes of the doubt, over all rows and for each row."""
        return await queue.answer(lambda: shares(asked(question)))

    app.add_middleware(_SizeLimit, most=limits.size)
    if is_local and token is None:
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=_LOCAL_NAMES)
    return app


def predictions(looked: Looked) -> dict[str, Any]:
    """Return what is answered about rows."""
    return {
        "predictions": as_json(looked.columns()),
        "outside": int(looked.outside.sum()),
        "level": looked.how.level or looked.model.level,
        "notes": list(map(str, looked.notes)),
    }


def shares(looked: Looked) -> dict[str, Any]:
    """Return what is answered about the sources of rows' doubt."""
    columns = {name: values for name, values in looked.columns().items() if name.startswith("share_")}
    overall = {
        name: {
            "share": part.share,
            "error": part.share_error,
            "model_share": part.model_share,
            "model_share_error": part.model_share_error,
        }
        for name, part in looked.overall().items()
    }
    gaps = {name: asdict(gap) for name, gap in looked.gaps().items()}
    return finite({"overall": overall, "gaps": gaps, "rows": as_json(columns), "notes": list(map(str, looked.notes))})


class _Queue:
    """One computation at a time, in one thread; a limited number of others wait."""

    def __init__(self, most: int) -> None:
        import anyio

        self.most, self.waiting, self.lock = most, 0, anyio.Lock()

    async def answer(self, compute: Callable[[], dict[str, Any]]) -> JSONResponse:
        if self.waiting > self.most:
            raise fastapi.HTTPException(503, f"{self.most} requests are waiting: ask again later", {"Retry-After": "5"})
        self.waiting += 1
        try:
            async with self.lock:
                return JSONResponse(await run_in_threadpool(compute))
        except (ValueError, TypeError) as error:
            raise fastapi.HTTPException(422, " ".join(str(error).split())) from None
        except fastapi.HTTPException:
            raise
        except Exception as error:
            number = secrets.token_hex(4)
            _log.error("error %s: %s at %s", number, type(error).__name__, _line(error))
            raise fastapi.HTTPException(500, f"an error of ours, number {number} in the log") from None
        finally:
            self.waiting -= 1


def _line(error: Exception) -> str:
    """Return where an error was raised, without its message, which may quote data."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{Path(last.filename).name}:{last.lineno}"


def _needs(token: str | None) -> Callable[..., None]:
    """Return a check of the token that a client sends."""

    def check(authorization: Annotated[str | None, fastapi.Header()] = None) -> None:
        if token is None:
            return
        given = (authorization or "").removeprefix("Bearer ").encode()
        if not secrets.compare_digest(given, token.encode()):
            words = "send the token, as Authorization: Bearer ..."
            raise fastapi.HTTPException(401, words, {"WWW-Authenticate": "Bearer"})

    return check


def _refuse_in_words(app: fastapi.FastAPI) -> None:
    """Answer rows that do not fit the schema by where and what, without the cells themselves."""

    @app.exception_handler(RequestValidationError)
    async def refuse(request: fastapi.Request, error: RequestValidationError) -> JSONResponse:
        each = {_where(fault["loc"]): f"{_where(fault['loc'])}: {_what(fault)}" for fault in error.errors()}
        return JSONResponse({"detail": list(each.values())[:20]}, 422)


def _where(location: tuple[Any, ...]) -> str:
    """Return where a fault is, as a person would write it; the tried types of a cell are left out."""
    parts = location[1:]
    if len(parts) >= 3 and parts[0] == "rows":
        return f"row {parts[1]}, column {parts[2]!r}"
    return ", ".join(f"row {part}" if isinstance(part, int) else str(part) for part in parts) or "the body"


def _what(fault: Mapping[str, Any]) -> str:
    words = {
        "missing": "is missing; it may be null",
        "extra_forbidden": "is no column of the run",
        "json_invalid": "is no JSON",
        "too_long": f"has more than {fault.get('ctx', {}).get('max_length')} rows: send them in parts",
    }
    is_cell = len(fault["loc"]) > 3 and fault["type"] not in words
    return "is not what the column holds, see /docs" if is_cell else words.get(fault["type"], fault["msg"])


class _SizeLimit:
    """Refuse a body that is larger than allowed, whether it says its size or not."""

    def __init__(self, app: Any, most: int) -> None:
        self.app, self.most = app, most

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        size = dict(scope["headers"]).get(b"content-length", b"0")
        if not size.isdigit() or int(size) > self.most:
            await self._refuse(scope, receive, send)
            return
        received, is_answered, has_more = 0, False, True

        async def counted() -> Any:
            nonlocal received, has_more
            message = await receive()
            received += len(message.get("body", b""))
            has_more = message.get("more_body", False)
            if received > self.most:
                raise _TooLarge
            return message

        async def remembered(message: Any) -> None:
            nonlocal is_answered
            is_answered = True
            await send(message)

        try:
            await self.app(scope, counted, remembered)
        except _TooLarge:
            if not is_answered:
                await self._refuse(scope, receive, send, has_more)

    async def _refuse(self, scope: Any, receive: Any, send: Any, has_more: bool = True) -> None:
        """Answer, after as much of the body again as is allowed: a client that still sends may not see the answer."""
        thrown_away = 0
        while has_more and thrown_away <= self.most:
            message = await receive()
            thrown_away += len(message.get("body", b""))
            has_more = message["type"] == "http.request" and message.get("more_body", False)
        words = f"the body is larger than {self.most:,} bytes: send the rows in parts"
        await JSONResponse({"detail": words}, 413, {"Connection": "close"})(scope, receive, send)


class _TooLarge(BaseException):
    """The body is larger than allowed; no handler of errors in between takes it."""


# ------------------------------------------------------------------ the page

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_STYLE = (
    "body{font:16px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}"
    "td,th{text-align:left;padding:.2em 1em .2em 0;vertical-align:top}pre{background:#f4f4f4;padding:1em;overflow:auto}"
)


def page(model: Model, limits: Limits, needs_token: bool) -> str:
    """Return the page for people."""
    kinds = [(rule.name, _kind(rule)[1], rule in model.encoder.dropped) for rule in model.encoder.rules]
    needed = [(name, text) for name, text, is_dropped in kinds if not is_dropped]
    lines = "".join(f"<tr><td>{html.escape(name)}</td><td>{html.escape(text)}</td></tr>" for name, text in needed)
    example = {"rows": [{name: None for name, _ in needed}]}  # a valid request
    token = "<p>Every request needs the header <code>Authorization: Bearer ...</code>.</p>" * needs_token
    optional = ", ".join(name for name, _, is_dropped in kinds if is_dropped)
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>Wherefrom: {html.escape(model.target.name)}</title>"
        f"<style>{_STYLE}</style><h1>Predict {html.escape(model.target.name)}</h1>"
        f"<p>Task: {html.escape(model.target.task)}. <code>POST /predict</code> predicts rows. "
        "<code>POST /sources</code> returns the causes of their doubt. "
        "<code>GET /openapi.json</code> describes both for programs.</p>"
        f"{token}<p>A request:</p><pre>{html.escape(json.dumps(example, indent=1))}</pre>"
        "<p>Every row must have all of these columns. A missing value is <code>null</code>. Beside <code>rows</code>, "
        "a request may have <code>level</code>, <code>samples</code> and <code>method</code>.</p>"
        f"<table><tr><th>column<th>values</tr>{lines}</table>"
        + f"<p>These columns are allowed, but not used: {html.escape(optional)}.</p>" * bool(optional)
        + f"<p>A request may have at most {limits.rows:,} rows and {limits.size:,} bytes.</p></html>"
    )
