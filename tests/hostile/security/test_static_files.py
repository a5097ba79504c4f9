"""Paths that lead out of the console's files."""

from __future__ import annotations

import pytest

from sievemq_broker import EmbeddedBroker

from .support import basic, raw

UP = [
    "..", "../", "../__init__.py", "../../access.py", "../../../../users.py", "%2e%2e/__init__.py", "..%2f__init__.py",
    "%2e%2e%2f%2e%2e%2faccess.py", "..%252f__init__.py", "..%5c..%5caccess.py", "....//access.py", "./__init__.py",
    "__init__.py", "__pycache__/x", "/etc/passwd", "//etc/passwd", "%2fetc%2fpasswd", "views/../../access.py",
    "main.js%00.html", "main.js/../../access.py", "C:%5cwindows%5cwin.ini", "..;/access.py", "%c0%ae%c0%ae/access.py",
    "main.js%20", "MAIN.JS", "file:///etc/passwd",
]  # fmt: skip


@pytest.mark.parametrize("path", UP)
@pytest.mark.parametrize("base", ["/console/", "/", "/api/v1/", "/sign-in.css/"])
def test_only_files_of_the_console_are_served(broker: EmbeddedBroker, base: str, path: str) -> None:
    header = f"Authorization: {basic('admin')['Authorization']}\r\n"
    said = raw(broker, f"GET {base}{path} HTTP/1.1\r\nHost: localhost\r\n{header}\r\n".encode())
    status = said.split(b" ", 2)[1]
    assert status in (b"400", b"404", b"405", b"307"), said[:200]
    assert b"import" not in said
    assert b"root:" not in said


def test_its_own_files_are_there(broker: EmbeddedBroker) -> None:
    header = f"Authorization: {basic('admin')['Authorization']}\r\n"
    said = raw(broker, f"GET /console/main.js HTTP/1.1\r\nHost: localhost\r\n{header}\r\n".encode())
    assert said.startswith(b"HTTP/1.1 200")
