"""A real Chromium, driven over the DevTools protocol through a pair of pipes.

No package is needed for it: a command is one line of JSON that ends with a zero byte.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
from collections import deque
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
ANSWER_S = 60.0
"""The longest wait for anything, in seconds; a machine may be busy."""
FLAGS = (
    "--headless=new",
    "--no-sandbox",  # the tests may run as root, and look at nothing but their own server
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--remote-debugging-pipe",
)


def find() -> str | None:
    """Where Chromium is, or None."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Refused(Exception):
    """The browser did not do what it was told; a page may have been left meanwhile."""


class Chromium:
    """One browser process; ``with`` ends it."""

    def __init__(self, program: str) -> None:
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        # The browser reads file descriptor 3 and writes 4; a shell puts them there.
        given = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'
        command = [program, *FLAGS, f"--user-data-dir={self._folder.name}", "about:blank"]
        self._process = subprocess.Popen(
            ["bash", "-c", given, "bash", *command],
            pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._buffer = b""
        self._number = 0
        self.events: deque[dict[str, Any]] = deque()

    def __enter__(self) -> Chromium:
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            self.call("Browser.close")
        except (OSError, AssertionError, Refused):
            self._process.kill()
        try:
            self._process.wait(ANSWER_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._out)
        os.close(self._in)
        self._folder.cleanup()

    def call(self, method: str, session: str = "", **params: Any) -> dict[str, Any]:
        """One command and its answer; events that come meanwhile are kept in ``events``."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.next()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise Refused(f"{method}: {answer['error']}")
                found: dict[str, Any] = answer["result"]
                return found
            self.events.append(answer)

    def next(self) -> dict[str, Any]:
        """The next message of the browser."""
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], ANSWER_S)
            assert ready, f"Chromium said nothing for {ANSWER_S:g} seconds"
            chunk = os.read(self._in, 1 << 20)
            assert chunk, "Chromium has ended"
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message

    def tab(self) -> Tab:
        """A tab with cookies and storage of its own."""
        return Tab(self)


class Tab:
    """One tab.  ``complaints`` gathers what its console and its network say is wrong."""

    def __init__(self, browser: Chromium) -> None:
        self._browser = browser
        self._context = browser.call("Target.createBrowserContext")["browserContextId"]
        target = browser.call(
            "Target.createTarget", url="about:blank", browserContextId=self._context
        )["targetId"]
        self._session = browser.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        self.complaints: list[str] = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.look(1280, 900)

    def close(self) -> None:
        """Close it, and forget its cookies."""
        self._browser.call("Target.disposeBrowserContext", browserContextId=self._context)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """A command to this tab."""
        found = self._browser.call(method, self._session, **params)
        self._listen()
        return found

    def _listen(self) -> list[dict[str, Any]]:
        """Take note of the events so far."""
        taken = list(self._browser.events)
        self._browser.events.clear()
        for event in taken:
            told = _complaint(event.get("method", ""), event.get("params", {}))
            if told:
                self.complaints.append(told)
        return taken

    def look(self, width: int, height: int, *, dark: bool = False, phone: bool = False) -> None:
        """How the tab is looked at from now on."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=phone,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        still = {"name": "prefers-reduced-motion", "value": "reduce"}
        self.call("Emulation.setEmulatedMedia", features=[scheme, still])

    def open(self, url: str) -> None:
        """Go to an address and wait until it has loaded."""
        self._listen()
        self.call("Page.navigate", url=url)
        self.loaded()

    def loaded(self) -> None:
        """Wait until the page has loaded and its scripts have run."""
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    def run(self, script: str) -> Any:
        """The value of an expression in the page; a promise is waited for."""
        found = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def until(self, condition: str, what: str = "") -> None:
        """Wait until an expression is true; a page that is just being left does not count."""
        script = f"new Promise(go => setTimeout(() => go(!!({condition})), 40))"
        for _ in range(int(ANSWER_S / 0.04)):
            try:
                found = self.run(script)
            except Refused:
                continue
            if found:
                return
        raise AssertionError(f"{what or condition} did not come true")

    def press(self, key: str, code: int = 0, text: str = "") -> None:
        """Press a key and let it go."""
        facts = {"key": key, "windowsVirtualKeyCode": code, "code": key}
        more = {"text": text} if text else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", **facts, **more)
        self.call("Input.dispatchKeyEvent", type="keyUp", **facts)

    def type(self, text: str) -> None:
        """Put text where the cursor is."""
        self.call("Input.insertText", text=text)

    def click(self, selector: str) -> None:
        """Click in the middle of the first element (of its first line) that a selector names."""
        quoted = json.dumps(selector)
        place = self.run(
            f"(() => {{ const e = document.querySelector({quoted});"
            " e.scrollIntoView({block: 'center'}); const r = e.getClientRects()[0];"
            " return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        where = {"x": place[0], "y": place[1], "button": "left", "clickCount": 1}
        self.call("Input.dispatchMouseEvent", type="mousePressed", **where)
        self.call("Input.dispatchMouseEvent", type="mouseReleased", **where)

    def screenshot(self, path: Path) -> None:
        """The whole page as a PNG."""
        whole = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": whole["width"], "height": whole["height"], "scale": 1}
        shot = self.call(
            "Page.captureScreenshot", captureBeyondViewport=True, clip=clip, optimizeForSpeed=True
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(shot["data"]))


def _complaint(method: str, facts: dict[str, Any]) -> str:
    """What an event says is wrong; empty where nothing is."""
    if method == "Runtime.exceptionThrown":
        details = facts["exceptionDetails"]
        return f"exception: {details.get('exception', {}).get('description', details['text'])}"
    if method == "Runtime.consoleAPICalled" and facts["type"] in ("error", "warning", "assert"):
        if [each.get("value") for each in facts["args"]] == ["htmx:sendAbort"]:
            return ""  # the page was left while it asked for a part of itself
        return f"console.{facts['type']}: {facts['args']}"
    if method == "Log.entryAdded" and facts["entry"]["level"] in ("error", "warning"):
        return f"log: {facts['entry']['text']} {facts['entry'].get('url', '')}"
    if method == "Page.javascriptDialogOpening":
        return f"dialog: {facts['message']}"
    return ""
