"""A real Chromium, driven over the DevTools protocol through two pipes: no driver, no library, no port.

    with Chromium() as chromium, chromium.page() as page:
        page.open(url)
        page.click("button.primary")
        page.until("document.title == 'Queues · SieveMQ'")
        assert page.problems == []

Nothing here sleeps: every wait ends with an event of the browser, or fails after DEADLINE.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

DEADLINE = 60.0

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_FLAGS = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-renderer-backgrounding",
    "--disable-background-timer-throttling",
    "--disable-backgrounding-occluded-windows",
    "--hide-scrollbars",
    "--mute-audio",
    "--force-color-profile=srgb",
    "--font-render-hinting=none",
)

#: Keys by the name that the browser gives them: text, code on the keyboard.
_KEYS = {"Enter": ("\r", 13), "Tab": ("", 9), "Escape": ("", 27), "ArrowLeft": ("", 37), "ArrowRight": ("", 39),
         " ": (" ", 32)}  # fmt: skip


#: Notices go away after some seconds: what they say is kept until the next click.
_NOTICES = """window.noticed = []; new MutationObserver((changes) => {
    for (const { addedNodes } of changes) for (const node of addedNodes)
        if (node.classList?.contains("notice")) noticed.push(node.textContent);
}).observe(document, { subtree: true, childList: true });"""

#: Where to press to hit an element, %s. From then on a press or a click that hits another does not reach the page;
#: `aimed.done()` ends that, and says what was hit in its place.
_AIM = """(() => {
    const item = %s;
    if (!item) return null;
    item.scrollIntoView({ block: "center" });
    const box = item.getBoundingClientRect();
    window.noticed = [];
    let hit = "nothing";
    const kinds = ["pointerdown", "mousedown", "pointerup", "mouseup", "click"];
    const watch = (event) => {
        if (event.composedPath().includes(item)) { if (event.type === "click") hit = null; return; }
        hit = event.target.outerHTML.slice(0, 200);
        event.preventDefault();
        event.stopImmediatePropagation();
    };
    for (const kind of kinds) addEventListener(kind, watch, { capture: true });
    window.aimed = { done() {
        for (const kind of kinds) removeEventListener(kind, watch, { capture: true });
        delete window.aimed;
        return hit;
    } };
    return [box.x + box.width / 2, box.y + box.height / 2];
})()"""


def find_chromium() -> str | None:
    """The path of a Chromium: that of the variable CHROMIUM, or the first on the PATH."""
    names = (os.environ["CHROMIUM"],) if "CHROMIUM" in os.environ else _NAMES
    return next((path for name in names if (path := shutil.which(name))), None)


class Chromium:
    """A running browser. Close it, or use it in a with statement."""

    def __init__(self) -> None:
        path = find_chromium()
        if path is None:
            raise FileNotFoundError("there is no Chromium on the PATH, and CHROMIUM names none")
        self._folder = tempfile.mkdtemp(prefix="sievemq-chromium-")
        theirs_in, self._out = _pipe()
        self._in, theirs_out = _pipe()
        flags = [*_FLAGS, f"--user-data-dir={self._folder}"]
        if os.geteuid() == 0:
            flags.append("--no-sandbox")  # Chromium's own sandbox does not work for root
        quiet = os.open(os.devnull, os.O_RDWR)
        actions = [(os.POSIX_SPAWN_DUP2, quiet, 1), (os.POSIX_SPAWN_DUP2, quiet, 2),
                   (os.POSIX_SPAWN_DUP2, theirs_in, 3), (os.POSIX_SPAWN_DUP2, theirs_out, 4)]  # fmt: skip
        command = [path, *flags, "about:blank"]
        self._process = os.posix_spawn(path, command, os.environ, file_actions=actions, setpgroup=0)
        for number in (quiet, theirs_in, theirs_out):
            os.close(number)
        self.changed = threading.Condition()
        self._answers: dict[int, dict[str, Any]] = {}
        self._listeners: dict[str, Callable[[str, dict[str, Any]], None]] = {}
        self._count = 0
        self._gone = False
        self._reader = threading.Thread(target=self._read, name="chromium", daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the browser and remove what it wrote."""
        with contextlib.suppress(OSError, TimeoutError, RuntimeError):
            self.send("Browser.close")
        self._reader.join(DEADLINE)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process, signal.SIGKILL)  # its helpers, if any is left
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._process, 0)
        for number in (self._in, self._out):
            os.close(number)
        shutil.rmtree(self._folder, ignore_errors=True)

    def send(self, method: str, session: str | None = None, seconds: float = DEADLINE, **parameters: Any) -> Any:
        """Give a command and wait for its result.

        Raises:
            RuntimeError: the browser refused it, or is gone.
            TimeoutError: it did not answer.
        """
        with self.changed:
            self._count += 1
            number = self._count
        command = {"id": number, "method": method, "params": parameters} | ({"sessionId": session} if session else {})
        _write(self._out, json.dumps(command).encode() + b"\0")
        with self.changed:
            if not self.changed.wait_for(lambda: number in self._answers or self._gone, seconds):
                raise TimeoutError(f"{method} was not answered")
            answer = self._answers.pop(number, {"error": {"message": "the browser is gone"}})
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    @contextlib.contextmanager
    def page(self, width: int = 1280, height: int = 800, dark: bool = False, still: bool = True) -> Iterator[Page]:
        """A new page with cookies and storage of its own.

        Args:
            width, height: of its window, in CSS pixels.
            dark: the user prefers dark colours.
            still: the user prefers reduced motion.
        """
        context = self.send("Target.createBrowserContext")["browserContextId"]
        target = self.send("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        self._listeners[session] = page.hear
        page.prepare(width, height, dark, still)
        try:
            yield page
        finally:
            del self._listeners[session]
            self.send("Target.disposeBrowserContext", browserContextId=context)

    def _read(self) -> None:
        rest = b""
        while data := os.read(self._in, 1 << 16):
            *whole, rest = (rest + data).split(b"\0")
            for text in whole:
                self._heard(json.loads(text))
        with self.changed:
            self._gone = True
            self.changed.notify_all()

    def _heard(self, message: dict[str, Any]) -> None:
        if "id" in message:
            with self.changed:
                self._answers[message["id"]] = message
                self.changed.notify_all()
        elif (listener := self._listeners.get(message.get("sessionId", ""))) is not None:
            with self.changed:
                listener(message["method"], message["params"])
                self.changed.notify_all()


class Page:
    """One page.

    Args:
        chromium: whose.
        session: as the protocol names it.

    Attributes:
        width: of the window.
        problems: errors and warnings of its console, exceptions, breaches of its Content-Security-Policy.
    """

    def __init__(self, chromium: Chromium, session: str) -> None:
        self._chromium = chromium
        self._session = session
        self.problems: list[str] = []
        self.width = 0

    def send(self, method: str, **parameters: Any) -> Any:
        """Give a command to this page."""
        return self._chromium.send(method, self._session, DEADLINE + 5, **parameters)

    def prepare(self, width: int, height: int, dark: bool, still: bool) -> None:
        """Listen to what goes wrong; set the window and what the user prefers."""
        for domain in ("Page", "Runtime", "Log"):
            self.send(f"{domain}.enable")
        self.send("Page.addScriptToEvaluateOnNewDocument", source=_NOTICES)
        self.resize(width, height)
        self.prefer(dark, still)

    def resize(self, width: int, height: int = 800) -> None:
        """Give the window another size, in CSS pixels."""
        self.width = width
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                  mobile=width < 600)  # fmt: skip

    def prefer(self, dark: bool, still: bool = True) -> None:
        """Set the user's preferences."""
        features = [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce" if still else "no-preference"},
        ]
        self.send("Emulation.setEmulatedMedia", features=features)

    def hear(self, method: str, about: dict[str, Any]) -> None:
        """Note what went wrong."""
        if method == "Runtime.exceptionThrown":
            details = about["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled" and about["type"] in ("error", "warning", "assert"):
            self.problems.append(" ".join(str(item.get("value", item.get("description"))) for item in about["args"]))
        elif method == "Log.entryAdded" and about["entry"]["level"] in ("error", "warning"):
            self.problems.append(f"{about['entry']['text']} {about['entry'].get('url', '')}")

    @property
    def complaints(self) -> list[str]:
        """The problems without the browser's own notes on answers that are errors, which the page may have expected."""
        return [problem for problem in self.problems if not problem.startswith("Failed to load resource")]

    def heard(self, words: str) -> None:
        """Wait until the browser has complained about something.

        Raises:
            AssertionError: it did not.
        """
        with self._chromium.changed:
            found = self._chromium.changed.wait_for(lambda: any(words in text for text in self.problems), DEADLINE)
        assert found, f"nothing about {words}: {self.problems}"

    # -- what is there ------------------------------------------------------------------------------------------------

    def open(self, url: str) -> None:
        """Go to a URL; the same page with another hash is not loaded anew."""
        self.send("Page.navigate", url=url)

    def leave(self) -> None:
        """Go nowhere, and forget what went wrong."""
        self.open("about:blank")
        self.until("location.href === 'about:blank'")
        self.problems.clear()

    def value(self, expression: str) -> Any:
        """The value of an expression in the page; promises are waited for."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise AssertionError(details.get("exception", {}).get("description") or details["text"])
        return answer["result"].get("value")

    def until(self, condition: str) -> Any:
        """Wait until an expression is true in the page, and return it. A page that is left meanwhile is queried again.

        Raises:
            AssertionError: it never was; says what the page shows.
        """
        watch = f"""new Promise((resolve, reject) => {{
            const look = () => {{ let found = null; try {{ found = {condition}; }} catch {{}} return found; }};
            const first = look();
            if (first) return resolve(first);
            const check = () => {{ const found = look(); if (found) {{ stop(); resolve(found); }} }};
            const observer = new MutationObserver(check);
            const stop = () => {{ observer.disconnect(); clearInterval(beat); clearTimeout(end); }};
            observer.observe(document, {{ subtree: true, childList: true, characterData: true, attributes: true }});
            const beat = setInterval(check, 50);
            const end = setTimeout(() => {{ stop(); reject(new Error("still not true")); }}, {DEADLINE * 1000});
        }})"""
        for _ in range(5):
            try:
                return self.value(watch)
            except RuntimeError as error:
                if not _left(error):
                    raise
            except AssertionError:
                shown = self.value("location.href + '\\n' + document.body.innerText")
                raise AssertionError(f"never true: {condition}\n{shown[:3000]}\nproblems: {self.problems}") from None
        raise AssertionError(f"the page was left again and again: {condition}")

    def text(self, selector: str = "main") -> str:
        """What an element shows; waits for it."""
        element = f"document.querySelector({json.dumps(selector)})"
        found: str = self.until(f"{element} && {{ text: {element}.innerText }}")["text"]
        return found

    def shows(self, text: str, selector: str = "main") -> None:
        """Wait until an element shows a text."""
        self.until(f"document.querySelector({json.dumps(selector)}).innerText.includes({json.dumps(text)})")

    def says(self, text: str) -> None:
        """Wait until the page has said something after the last click, in one of the notices that soon go away."""
        self.until(f"noticed.some((said) => said.includes({json.dumps(text)}))")

    def rows(self, label: str) -> list[list[str]]:
        """The cells of a table by its accessible name, without those with which a row is chosen."""
        table = f'table[aria-label="{label}"]'
        found: list[list[str]] = self.value(
            f"Array.from(document.querySelectorAll({json.dumps(table + ' tbody tr')}), "
            "(row) => Array.from(row.querySelectorAll('td:not(.check)'), (cell) => cell.innerText.trim()))"
        )
        return found

    # -- what a user does ---------------------------------------------------------------------------------------------

    def click(self, selector: str, text: str | None = None) -> None:
        """Click the first element that is shown and, where given, says a text; waits for it.

        What moves away while the pointer comes down is aimed at again: a click that would hit something else is kept
        from the page.

        Raises:
            AssertionError: something else lies there all the time; says what.
        """
        find = f"""Array.from(document.querySelectorAll({json.dumps(selector)})).find((item) =>
            item.checkVisibility({{ visibilityProperty: true }}) && !item.disabled &&
            ({json.dumps(text)} === null || item.innerText.trim() === {json.dumps(text)}))"""
        for _ in range(10):
            self.until(f"!!{find}")
            spot = self.value(_AIM % find)
            if spot is None:
                continue  # it was there and is not any more
            for kind in ("mousePressed", "mouseReleased"):
                self.send("Input.dispatchMouseEvent", type=kind, x=spot[0], y=spot[1], button="left", clickCount=1)
            missed = self._asked("window.aimed?.done()")
            if missed is None:
                return
        raise AssertionError(f"a click on {selector} {text or ''} hits {missed}")

    def fill(self, selector: str, text: str) -> None:
        """Replace what a field holds, as typing does.

        Raises:
            AssertionError: it does not keep what is typed.
        """
        element = f"document.querySelector({json.dumps(selector)})"
        for _ in range(10):
            self.until(f"{element} !== null")
            self.value(f"{element}?.focus(), {element}?.select()")
            if text:
                self.send("Input.insertText", text=text)
            else:
                self.press("Delete")
            if self.value(f"{element}?.value") in (text, None):  # else the page took the focus away meanwhile
                return
        raise AssertionError(f"{selector} does not take {text!r}")

    def _asked(self, expression: str) -> Any:
        """The value of an expression, or None where the page is left meanwhile."""
        try:
            return self.value(expression)
        except RuntimeError as error:
            if not _left(error):
                raise
            return None

    def choose(self, selector: str, value: str) -> None:
        """Choose an option of a select."""
        self.value(f"""(() => {{ const field = document.querySelector({json.dumps(selector)});
            field.value = {json.dumps(value)}; field.dispatchEvent(new Event("change", {{ bubbles: true }})); }})()""")

    def press(self, key: str, shift: bool = False) -> None:
        """Press and release a key."""
        text, code = _KEYS.get(key, (key if len(key) == 1 else "", 46 if key == "Delete" else 0))
        more: dict[str, Any] = {"key": key, "modifiers": 8 if shift else 0}
        if code:
            more["windowsVirtualKeyCode"] = code
        self.send("Input.dispatchKeyEvent", type="keyDown", **more, **({"text": text} if text else {}))
        self.send("Input.dispatchKeyEvent", type="keyUp", **more)

    def screenshot(self, path: Path, height: int | None = None, element: str | None = None) -> None:
        """Write what the window shows to a PNG file; or its upper part; or one element, twice as large."""
        clip = {} if height is None else {"clip": {"x": 0, "y": 0, "width": self.value("innerWidth"), "height": height,
                                                   "scale": 1}}  # fmt: skip
        if element is not None:
            box = self.value(f"document.querySelector({json.dumps(element)}).getBoundingClientRect().toJSON()")
            clip = {"clip": {name: box[name] for name in ("x", "y", "width", "height")} | {"scale": 2}}
        path.write_bytes(base64.b64decode(self.send("Page.captureScreenshot", format="png", **clip)["data"]))


def _left(error: RuntimeError) -> bool:
    """Whether the browser could not answer because the page was left for another."""
    return "context" in str(error) or "navigated" in str(error)


def _pipe() -> tuple[int, int]:
    """A pipe with numbers above those that the browser is given."""
    ends = []
    for number in os.pipe():
        ends.append(fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 10))
        os.close(number)
    return ends[0], ends[1]


def _write(number: int, data: bytes) -> None:
    while data:
        data = data[os.write(number, data) :]
