"""What the console is made of, as it is served: no build step, nothing from elsewhere, nothing that parses HTML."""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from sievemq_broker import EmbeddedBroker
from sievemq_broker.server.http.console import CONTENT_SECURITY_POLICY

FOLDER = Path(str(files("sievemq_broker.server.http.console")))
MODULES = sorted(FOLDER.rglob("*.js"))


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(http=True) as broker:
        yield broker


def get(broker: EmbeddedBroker, path: str, **headers: str) -> tuple[int, dict[str, str], str]:
    parts = urlsplit(broker.http_url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    try:
        connection.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read().decode()
    finally:
        connection.close()


def test_the_page_names_its_parts_and_each_is_served(broker: EmbeddedBroker) -> None:
    status, headers, text = get(broker, "/")
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    found: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            found.extend(value or "" for name, value in attrs if name in ("src", "href"))
            assert not [name for name, _ in attrs if name.startswith("on") or name == "style"]

        def handle_data(self, data: str) -> None:
            assert self.lasttag != "script" or not data.strip()

    Reader().feed(text)
    assert {"console/main.js", "console/console.css", "console/icon.svg"} <= set(found)
    for name in found:
        assert not re.match(r"[a-z]+:|//", name)
        if name.startswith("console/"):
            assert get(broker, f"/{name}")[0] == 200


def test_every_module_is_served_as_one_and_imports_only_others(broker: EmbeddedBroker) -> None:
    assert len(MODULES) > 20
    for path in MODULES:
        name = path.relative_to(FOLDER).as_posix()
        status, headers, text = get(broker, f"/console/{name}")
        assert (status, headers["content-type"]) == (200, "text/javascript; charset=utf-8")
        assert "import(" not in text
        for imported in re.findall(r'^(?:import|export|\}) .*?from "([^"]+)";$', text, re.MULTILINE):
            target = (path.parent / imported).resolve()
            assert target in MODULES, f"{name} imports {imported}"


def test_imports_are_used() -> None:
    for path in MODULES:
        text = path.read_text("utf-8")
        for names in re.findall(r"^import (?:\{(.*?)\}|\* as (\w+)|(\w+)) from|^import (\w+), ", text, re.M | re.S):
            for name in re.findall(r"\w+", " ".join(names)):
                assert len(re.findall(rf"\b{name}\b", text)) > 1, f"{path.name}: {name}"


def test_no_module_parses_markup_or_runs_text() -> None:
    forbidden = (
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|\beval\(|new Function|srcdoc|\.style\."
    )
    for path in MODULES:
        assert not re.search(forbidden, path.read_text("utf-8")), path.name


def test_modules_are_small() -> None:
    for path in MODULES:
        assert path.read_text("utf-8").count("\n") < 320, path.name
        assert max(map(len, path.read_text("utf-8").splitlines())) <= 200, path.name


def test_the_policy_lets_scripts_come_from_files_only(broker: EmbeddedBroker) -> None:
    for path in ("/", "/console/main.js", "/console/icon.svg"):
        headers = get(broker, path)[1]
        assert headers["content-security-policy"] == CONTENT_SECURITY_POLICY
        assert headers["x-content-type-options"] == "nosniff"
    rules = dict(rule.strip().partition(" ")[::2] for rule in CONTENT_SECURITY_POLICY.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == rules["style-src"] == rules["connect-src"] == "'self'"
    assert rules["require-trusted-types-for"] == "'script'"
    assert "unsafe" not in CONTENT_SECURITY_POLICY


def test_browsers_revalidate_their_copy(broker: EmbeddedBroker) -> None:
    _, headers, _ = get(broker, "/console/main.js")
    assert headers["cache-control"] == "no-cache"
    status, _, text = get(broker, "/console/main.js", If_None_Match=headers["etag"])
    assert (status, text) == (304, "")
    assert get(broker, "/console/main.js", If_None_Match='"older"')[0] == 200


@pytest.mark.parametrize(
    "path",
    ["/console/", "/console/nope.js", "/console/__init__.py", "/console/../access.py", "/console/%2e%2e/access.py",
     "/console/..%2faccess.py", "/console//etc/passwd", "/console/views/../__init__.py"],
)  # fmt: skip
def test_other_files_are_not_served(broker: EmbeddedBroker, path: str) -> None:
    assert get(broker, path)[0] == 404


def test_without_scripts_the_page_says_where_the_api_is(broker: EmbeddedBroker) -> None:
    text = get(broker, "/")[2]
    assert "<noscript>" in text
    assert "api/v1/broker" in text
