"""Debian's Chromium without a window, driven through a pipe by its DevTools protocol: no driver, no package.

    with Browser() as browser:
        page = browser.open(path, width=360)
        page.evaluate("document.title")
        assert not page.complaints

Messages are JSON, each ended by a zero byte: commands go into descriptor 3 of Chromium, answers come out of its 4.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

NO_CHROMIUM = "NO CHROMIUM HERE, so that no page was opened: apt install chromium, or set WHEREFROM_CHROMIUM to it"
NO_AXE = "AXE-CORE IS NOT HERE, so that access was not checked: make axe, or set WHEREFROM_AXE to axe.min.js"
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_SECONDS = 60.0
# Puts two descriptors at 3 and 4, whatever they were, and becomes the program that is named.
_IN_PLACE = """
import os, sys
into, out, *command = sys.argv[1:]
for source, target in ((int(into), 200), (int(out), 201), (200, 3), (201, 4)):
    os.dup2(source, target)
os.execv(command[0], command)
"""


def chromium() -> str | None:
    """Where it is, if it is here: WHEREFROM_CHROMIUM, or the first of its names on the path."""
    return os.environ.get("WHEREFROM_CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)


class Browser:
    """One Chromium process with a profile of its own."""

    def __init__(self) -> None:
        self._profile = tempfile.mkdtemp(prefix="wherefrom-chromium-")
        self._numbers, self._buffer = itertools.count(1), b""
        self.pages: dict[str, Page] = {}  # by session
        command = [
            str(chromium()),
            "--headless=new",
            "--remote-debugging-pipe",
            f"--user-data-dir={self._profile}",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--hide-scrollbars",
        ]
        (into, self._write), (self._read, out) = os.pipe(), os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-c", _IN_PLACE, str(into), str(out), *command],
            pass_fds=(into, out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(into)
        os.close(out)

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.call("Browser.close")
            self._process.wait(_SECONDS)
        except (OSError, TimeoutError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        os.close(self._write)
        os.close(self._read)
        shutil.rmtree(self._profile, ignore_errors=True)

    def open(self, path: Path, width: int = 1280, height: int = 900, dark: bool = False) -> Page:
        """A file in a new tab of that size, once it is there."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self.pages[session] = Page(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        page.resize(width, height)
        page.prefer_dark(dark)
        page.call("Page.navigate", url=path.resolve().as_uri())
        page.wait_for("document.readyState === 'complete' && location.protocol === 'file:'")
        return page

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != number:
            if answer.get("sessionId") in self.pages:
                self.pages[answer["sessionId"]].heard(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer.get("result", {})

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            if not select.select([self._read], [], [], _SECONDS)[0]:
                raise TimeoutError("Chromium does not answer")
            if not (read := os.read(self._read, 1 << 20)):
                raise OSError("Chromium has gone")
            self._buffer += read
        message, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(message)


class Page:
    """One tab: what is in it, what it complained about, and a mouse and keys for it."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session
        self.complaints: list[str] = []  # of the console, and exceptions that nobody caught
        self.requests: list[str] = []

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **parameters)

    def heard(self, event: dict[str, Any]) -> None:
        method, about = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = about["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled" and about["type"] in ("error", "warning", "assert"):
            self.complaints.append(" ".join(str(part.get("value", part)) for part in about["args"]))
        elif method == "Log.entryAdded" and about["entry"]["level"] in ("error", "warning"):
            self.complaints.append(about["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(about["request"]["url"])

    def evaluate(self, expression: str) -> Any:
        """The value of some JavaScript, awaited if it is a promise."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(found["exceptionDetails"].get("exception", {}).get("description", expression))
        return found["result"].get("value")

    def wait_for(self, condition: str) -> None:
        until = time.monotonic() + _SECONDS
        while not self.evaluate(condition):
            if time.monotonic() > until:
                raise TimeoutError(f"never true: {condition}")
            time.sleep(0.05)

    def resize(self, width: int, height: int) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **metrics)

    def prefer_dark(self, dark: bool) -> None:
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=features)

    def hover(self, element: str, x: float = 0.5, y: float = 0.5) -> None:
        """The mouse onto an element, given as JavaScript, at these parts of its width and height."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", **self._place(element, x, y))

    def click(self, element: str) -> None:
        place = self._place(element, 0.5, 0.5)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **place)

    def press(self, key: str) -> None:
        """One key for whatever has the focus."""
        codes = {"Enter": 13, " ": 32, "Tab": 9, "ArrowRight": 39, "ArrowLeft": 37, "Escape": 27}
        about = {"key": key, "code": "Space" if key == " " else key, "windowsVirtualKeyCode": codes[key]}
        text = {"Enter": "\r", " ": " "}.get(key)
        self.call("Input.dispatchKeyEvent", type="keyDown", **about, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **about)

    def screenshot(self, path: Path, whole: bool = True) -> None:
        taken = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(taken["data"]))

    def _place(self, element: str, x: float, y: float) -> dict[str, float]:
        return self.evaluate(
            f"(async () => {{ const e = {element}; e.scrollIntoView({{block: 'center', behavior: 'instant'}});"
            " for (const _ of [1, 2, 3]) await new Promise(requestAnimationFrame);"  # the page has seen it scroll
            f" const b = e.getBoundingClientRect();"
            f" return {{x: b.x + b.width * {x}, y: b.y + b.height * {y}}}; }})()"
        )
