"""ActiveMQ Classic's own selector parser as somebody to ask: one JVM, a line per question (SelectorAnswers.java)."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from sievemq_core.message.values import PropertyValue, letter_of
from sievemq_core.selector.names import HEADERS

PROGRAM = Path(__file__).with_name("SelectorAnswers.java")
#: Where Debian's package libactivemq-java puts its libraries; ACTIVEMQ_HOME names an unpacked release instead.
DEBIAN = Path("/usr/share/java")
#: What the selector parser needs: its own classes, the API, logging, buffers.
NEEDED = ("activemq-client", "geronimo-j", "slf4j-api", "hawtbuf")


class Answer(NamedTuple):
    """What ActiveMQ says to a selector.

    Attributes:
        refused: why it is no selector; None if it is one.
        selected: per message ``T``, ``F``, or ``E`` for an evaluation that fails, which selects nothing.
    """

    refused: str | None
    selected: str


def find_jars() -> list[Path]:
    """The libraries; empty if ActiveMQ or a Java compiler is not here."""
    if shutil.which("javac") is None:
        return []
    home = os.environ.get("ACTIVEMQ_HOME")
    folder = Path(home) / "lib" if home else DEBIAN
    jars = [jar for name in NEEDED for jar in sorted(folder.glob(f"{name}*.jar"))]
    return jars if any(jar.name.startswith("activemq-client") for jar in jars) else []


class ActiveMQ:
    """A JVM with the parser, until :meth:`close`."""

    def __init__(self, jars: Sequence[Path]) -> None:
        command = ["java", "-XX:TieredStopAtLevel=1", "-cp", os.pathsep.join(map(str, jars)), str(PROGRAM)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, text: str, messages: Sequence[tuple[Mapping[str, PropertyValue], Sequence[Any]]] = ()) -> Answer:
        """What it makes of a selector.

        Args:
            text: the selector.
            messages: properties and headers (by position) of each message.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join([_encoded(text), *(_described(*message) for message in messages)]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the JVM has ended; what it said is above"
        kind, _, reason = line.strip().partition(" ")
        return Answer(_decoded(reason), "") if kind == "R" else Answer(None, kind)

    def close(self) -> None:
        """End the JVM."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _described(properties: Mapping[str, PropertyValue], headers: Sequence[Any]) -> str:
    parts = [
        f"{_encoded(name)}=n:" if value is None else f"{_encoded(name)}={letter_of(value)}:{_encoded(_spelled(value))}"
        for name, value in properties.items()
    ]
    parts += [
        f"{_encoded(name)}=s:{_encoded(str(headers[position]))}"
        for name, (position, _) in HEADERS.items()
        if headers[position] is not None
    ]
    return ",".join(parts)


def _spelled(value: PropertyValue) -> str:
    """As Java reads it."""
    match value:
        case bool():
            return "true" if value else "false"
        case float():
            return repr(float(value)).replace("inf", "Infinity").replace("nan", "NaN")
        case _:
            return str(value)


def _encoded(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode("utf-8", "surrogatepass")).decode("ascii").rstrip("=")


def _decoded(text: str) -> str:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode("utf-8")
