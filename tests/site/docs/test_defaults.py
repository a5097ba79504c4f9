"""Every default that the documents name, with its unit, is that of the code.

docs/client.md and docs/reconnection.md have their tables of options in tests of their own.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from typing import Any

import pytest

from sievemq.cli.management_url import DEFAULT_HTTP
from sievemq.cli.options import DEFAULT_URL
from sievemq.url import options_as_rows
from sievemq_broker.config import Settings
from sievemq_broker.domain.policy import DestinationPolicy, NamespacePolicy
from sievemq_core.limits import MAX_BUSY_POLL_US
from sievemq_testing import QueueView, TestBroker, TestNamespace, TopicView

from .programs import ROOT

OPERATING = (ROOT / "docs/operating.md").read_text("utf-8")
SETTINGS = {field.name: field.default for field in fields(Settings)}
UNITS = {"KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}
#: How a default of None reads where it is not "none".
AUTOMATIC = {"http_host": "that of `host`", "json_logs": "auto", "max_memory_bytes": "auto"}


def written(default: str) -> object:
    """The value that a cell of a table of defaults stands for."""
    text = default.strip("`")
    if number := re.fullmatch(r"(\d+(?:\.\d+)?)(KiB|MiB|GiB)?", text):
        return float(number[1]) * UNITS.get(number[2], 1)
    return {"true": True, "false": False, "none": None}.get(text, text)


def test_the_settings_of_a_broker_are_all_listed_with_their_defaults() -> None:
    table = OPERATING.split("\n## Settings\n")[1].split("\n```toml")[0]
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| ([^|]+) \|", table, re.MULTILINE)
    listed = {name: default.strip() for names, default in rows for name in re.findall(r"`(\w+)`", names)}
    assert listed.keys() == SETTINGS.keys()
    for name, default in listed.items():
        known = SETTINGS[name]
        if name in AUTOMATIC:
            assert known is None
            assert default in (AUTOMATIC[name], f"`{AUTOMATIC[name]}`")
        elif isinstance(known, tuple) and known:
            assert written(default) == ",".join(known), name
        elif isinstance(known, (bool, int, float, str)):
            assert written(default) == known, name
        else:
            assert default == "none", name


@pytest.mark.parametrize("document", ["operating.md", "client.md"])
def test_busy_poll_is_in_microseconds(document: str) -> None:
    (row,) = re.findall(r"^\| `busy_poll` \|.*$", (ROOT / "docs" / document).read_text("utf-8"), re.MULTILINE)
    assert "microseconds" in row
    assert int(re.findall(r"\d+", row)[0]) == SETTINGS["busy_poll"] == 0
    (option,) = (row for row in options_as_rows() if row["name"] == "busy_poll")
    assert option["default"] == "0"
    assert f"microseconds from 1 to {MAX_BUSY_POLL_US}" in option["wanted"]


def test_the_rules_of_destinations_and_namespaces_are_all_named_with_their_defaults() -> None:
    block = OPERATING.split("\n```toml\n[destinations")[1].split("```")[0]
    first, second = block.split("[namespaces", 1)
    policy: dict[str, Any] = {field.name: field.default for field in fields(DestinationPolicy) if field.init}
    assert [name for name in policy if not re.search(rf"\b{name}\b", first)] == []
    assert [
        field.name for field in fields(NamespacePolicy) if field.init and not re.search(rf"\b{field.name}\b", second)
    ] == []
    lines = {line.split(" = ")[0]: line for line in first.splitlines() if " = " in line}
    for name, line in lines.items():
        for default in re.findall(r"default:? ([\w.-]+)", line):
            assert written(default) == policy[name], name
    assert f"slow_consumer_seconds ({policy['slow_consumer_seconds']}; 0: never)" in lines["slow_consumer"]
    for name in ("at_limit", "slow_consumer"):
        assert lines[name].split(" = ")[1].startswith(f'"{policy[name]}"')
    assert "default 0" in lines["redelivery_delay"]
    assert "ms" in lines["redelivery_delay"].split("#")[1]


def test_the_command_line_names_its_defaults() -> None:
    text = (ROOT / "docs/cli.md").read_text("utf-8")
    assert re.search(rf"\| `SIEVEMQ_URL` \| `{DEFAULT_URL}` \|", text)
    assert re.search(rf"\| `SIEVEMQ_HTTP_URL` \| `{DEFAULT_HTTP}` \|", text)


def test_the_test_kit_names_its_defaults() -> None:
    text = (ROOT / "docs/testing.md").read_text("utf-8")
    shown = re.findall(r"^\| `(?:namespace)?\.(\w+)\(([^)]*=[^)]*)\)`", text, re.MULTILINE)
    assert len(shown) >= 6
    for name, arguments in shown:
        if "…" in arguments:
            continue
        kind = next(kind for kind in (QueueView, TopicView, TestNamespace) if hasattr(kind, name))
        parameters = inspect.signature(getattr(kind, name)).parameters
        for parameter, default in re.findall(r"(\w+)=([^,]+)", arguments):
            assert parameters[parameter].default == written(default.lower()), (name, parameter)
    events = inspect.signature(TestBroker).parameters["journal_events"].default
    assert f"A journal keeps the last {events:,} events" in text
