"""Walks through docs/tutorial.md: `python -m tests.site.docs.tutorial` runs its commands and makes its pictures.

Blocks: ``sh`` is run line by line on a terminal, and the ``text`` block behind it is what they print; ``python NAME``
is a program that is saved; ``sh broker`` is carried out by a broker on the same ports, in a container where the
variable SIEVEMQ_TEST_IMAGE names an image. Ids, times and ``###`` stand for whatever stands there.
"""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.site.console.chromium import Chromium, Page
from tests.site.console.opening import SHOWN

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "tutorial.md"
#: Milliseconds, times, ids, figures that nobody can foretell.
ANY = (
    (re.compile(r"= \d{13}$", re.MULTILINE), "= 0000000000000"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d(?: to \d\d:\d\d)?"), "0000-00-00 00:00"),
    (re.compile(r"ID:\w{10}-\d+:"), "ID:…:"),
    (re.compile(r"127\.0\.0\.1:\d{4,5}"), "127.0.0.1:00000"),
    (re.compile(r"'\w{10}-\d+\.\d+'"), "'0000000000-0.0'"),
)
STYLE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
DEADLINE = 60.0

Picture = Callable[[str, str], None]


def steps() -> Iterator[tuple[str, str, str]]:
    """Kind, argument and text of each block, and of each picture, in order."""
    text = PAGE.read_text(encoding="utf-8")
    for found in re.finditer(r"^```(\w+) ?(\S*)\n(.*?)^```$|^!\[.*?\]\((.+?)\)$", text, re.MULTILINE | re.DOTALL):
        kind, argument, block, image = found.groups()
        if image:
            yield "picture", image, ""
        else:
            yield kind, argument, block


@contextmanager
def broker() -> Iterator[None]:
    """A broker on the ports of the page."""
    image = os.environ.get("SIEVEMQ_TEST_IMAGE")
    command = [str(Path(sys.executable).with_name("sievemq")), "broker"]
    if image:
        own = ["-e", "SIEVEMQ_HOST=127.0.0.1"]
        command = ["docker", "run", "--rm", "--network", "host", "--name", "sievemq-tutorial", *own, image]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            until_ready(process)
            yield
        finally:
            if image:
                subprocess.run(["docker", "stop", "sievemq-tutorial"], capture_output=True, check=False)
            process.terminate()


def until_ready(process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError("the broker has ended; are the ports 7672 and 7680 free?")
        try:
            urllib.request.urlopen("http://127.0.0.1:7680/readyz", timeout=60).close()
        except (OSError, urllib.error.HTTPError):
            process.poll()
        else:
            return
    raise TimeoutError("the broker is not ready")


def walk(folder: Path, picture: Picture) -> list[tuple[str, str]]:
    """Carry out the page with a broker that runs.

    Args:
        folder: where programs are saved and commands run.
        picture: called with the image's path and the view that it shows.

    Returns:
        what the page says is printed and what was printed, block by block.
    """
    printed = ""
    pairs = []
    for kind, argument, text in steps():
        if kind == "python":
            (folder / argument).write_text(text, encoding="utf-8")
        elif kind == "sh" and argument != "broker":
            printed = "".join(on_a_terminal(line, folder) for line in text.splitlines())
        elif kind == "text":
            pairs.append((text, printed))
        elif kind == "picture":
            picture(argument, VIEWS[Path(argument).name])
    return pairs


VIEWS = {
    "tutorial-queue.png": "#/default/destination/queue%3Aorders",
    "tutorial-dead-letters.png": "#/default/dead-letters",
}


def on_a_terminal(command: str, folder: Path) -> str:
    """Run one line as a person would, and return what they would see."""
    bin_folder = str(Path(sys.executable).parent)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SIEVEMQ_")}
    environment |= {"PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}", "TERM": "xterm", "COLUMNS": "110"}
    main, terminal = pty.openpty()
    seen = b""
    with subprocess.Popen(
        ["bash", "-c", command], cwd=folder, env=environment, stdin=terminal, stdout=terminal, stderr=terminal
    ):
        os.close(terminal)
        try:
            while piece := os.read(main, 65_536):
                seen += piece
        except OSError:  # nobody holds the terminal any more
            pass
    os.close(main)
    return STYLE.sub("", seen.decode().replace("\r\n", "\n"))


def same(told: str, printed: str) -> bool:
    """True if what was printed is what the page tells."""
    for pattern, mask in ANY:
        told, printed = pattern.sub(mask, told), pattern.sub(mask, printed)
    told_lines, lines = told.rstrip().splitlines(), printed.rstrip().splitlines()
    return len(told_lines) == len(lines) and all(map(_alike, told_lines, lines))


def _alike(told: str, line: str) -> bool:
    words, seen = told.split(), line.split()
    return len(words) == len(seen) and all(word in ("###", other) for word, other in zip(words, seen, strict=True))


def main() -> None:
    """Run the page, make its pictures, print what differs."""
    with broker(), Chromium() as chromium, chromium.page(width=1100, height=560) as page:

        def picture(image: str, view: str) -> None:
            show(page, view)
            page.screenshot(PAGE.parent / image)

        folder = Path(tempfile.mkdtemp())
        try:
            pairs = walk(folder, picture)
        finally:
            shutil.rmtree(folder)
    wrong = [pair for pair in pairs if not same(*pair)]
    for told, printed in wrong:
        sys.stdout.write(f"--- the page says\n{told}--- and this is printed\n{printed}\n")
    sys.exit(bool(wrong))


def show(page: Page, view: str) -> None:
    """Open a view of the console with its data."""
    page.leave()
    page.open(f"http://127.0.0.1:7680/{view}")
    page.until(SHOWN)
    page.until("document.querySelector('.foot').innerText.includes('SieveMQ')")
    page.value("document.fonts.ready.then(() => true)")


if __name__ == "__main__":
    main()
