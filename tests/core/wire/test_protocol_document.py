"""docs/protocol.md and the code say the same. Run this file to write the tables of the document anew."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from sievemq_core import limits
from sievemq_core.errors import ErrorCode
from sievemq_core.message.envelope import ENVELOPE_FIELDS, BodyKind
from sievemq_core.wire.commands import COMMANDS, CommandSpec
from sievemq_core.wire.connection import _LEGAL, State

DOCUMENT = Path(__file__).parents[3] / "docs" / "protocol.md"
CORE = Path(limits.__file__).parent

ERRORS = {
    ErrorCode.INTERNAL: "a fault of the broker; it has been logged there",
    ErrorCode.ILLEGAL_STATE: "not possible now, or not for this kind of object",
    ErrorCode.INVALID_CLIENT_ID: "empty, too long, or held by a live connection",
    ErrorCode.INVALID_DESTINATION: "no such destination, no address, or not for this purpose",
    ErrorCode.INVALID_SELECTOR: "the selector or its dialect is wrong",
    ErrorCode.SECURITY: "this user may not do that",
    ErrorCode.RESOURCE_ALLOCATION: "a limit would be passed",
    ErrorCode.TRANSACTION_ROLLED_BACK: "COMMIT has ended as a rollback",
    ErrorCode.MESSAGE_FORMAT: "a header, property or body that cannot be",
    ErrorCode.NOT_FOUND: "no session with this id is open; no such tap; nothing was staged under this name",
    ErrorCode.SUBSCRIPTION_IN_USE: "the subscription has a consumer, or messages that are not acknowledged",
    ErrorCode.MESSAGE_TOO_LARGE: "the body or the properties of one message",
    ErrorCode.MALFORMED_FRAME: "bytes that are no command, or a field of a wrong kind",
    ErrorCode.FRAME_TOO_LARGE: "a frame beyond the limit",
    ErrorCode.UNSUPPORTED_VERSION: "a protocol version that is not spoken here",
    ErrorCode.UNKNOWN_COMMAND: "a number that this version does not have",
    ErrorCode.UNEXPECTED_COMMAND: "not in this state; an id never opened; a gap in the sequence; a tag never delivered",
    ErrorCode.HEARTBEAT_MISSED: "nothing was heard for two intervals; no HELLO in time; resumed elsewhere",
    ErrorCode.SHUTTING_DOWN: "the broker ends",
    ErrorCode.TOO_MANY_CONNECTIONS: "the broker has as many as it may",
    ErrorCode.CLOSED_BY_ADMINISTRATOR: "somebody closed this connection",
    ErrorCode.AUTHENTICATION: "user or password are not accepted",
    ErrorCode.REDIRECT: "another broker has the namespace; details have its `url`, and the `shard`",
    ErrorCode.UNAVAILABLE: "no broker has the namespace now, or it cannot be found out; try again",
}


def describe(spec: CommandSpec) -> str:
    """The form of a command in one line, as the protocol's document shows it."""
    names = [
        f"{field.name}={'nil' if field.default is None else field.default}" if field.optional else field.name
        for field in spec.fields
    ]
    return f"[{', '.join([str(spec.number), *names])}]"


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def commands() -> str:
    parts = ["| number | command | said by | answered |", "| --- | --- | --- | --- |"]
    for spec in COMMANDS.values():
        answered = "yes" if spec.sender == "client" and spec.fields and spec.fields[0].name == "request" else ""
        parts.append(f"| {spec.number} | [{spec.name}](#{spec.name.lower()}) | {spec.sender} | {answered} |")
    for spec in COMMANDS.values():
        parts += ["", f"### {spec.name}", "", f"`{describe(spec)}` — {spec.sender}: {spec.meaning}."]
        if spec.fields:
            parts += ["", "| field | kind | |", "| --- | --- | --- |"]
            parts += [f"| {field.name} | `{field.kind}` | {cell(field.meaning)} |" for field in spec.fields]
    return "\n".join(parts)


def errors() -> str:
    parts = ["| code | name | the connection | |", "| --- | --- | --- | --- |"]
    for code, meaning in ERRORS.items():
        parts.append(f"| {int(code)} | {code.name} | {'ends' if code.fatal else 'goes on'} | {meaning} |")
    return "\n".join(parts)


def envelope() -> str:
    """The table in the docstring of message/envelope.py."""
    rows = re.findall(
        r"^ {3,4}(\d+) (\w+) +((?:\w+ \| )*\w+)(?: +(.+))?$", _docstring(CORE / "message" / "envelope.py"), re.M
    )
    assert len(rows) == ENVELOPE_FIELDS
    parts = ["| position | field | kind | |", "| --- | --- | --- | --- |"]
    parts += [f"| {n} | {name} | {cell(kind)} | {cell(text)} |" for n, name, kind, text in rows]
    return "\n".join(parts)


def limits_table() -> str:
    """The constants of limits.py with the comments above them."""
    parts = ["| limit | value | why |", "| --- | --- | --- |"]
    source = (CORE / "limits.py").read_text("utf-8")
    for comment, constants in re.findall(r"((?:^#: .*\n)+)((?:^[A-Z_]+ = .*\n)+)", source, re.M):
        why = " ".join(line.removeprefix("#: ") for line in comment.strip().splitlines())
        for name in re.findall(r"^([A-Z_]+) =", constants, re.M):
            parts.append(f"| {name} | {getattr(limits, name)} | {cell(why)} |")
    return "\n".join(parts)


def _docstring(path: Path) -> str:
    return path.read_text("utf-8").split('"""')[1]


TABLES = {"commands": commands, "errors": errors, "envelope": envelope, "limits": limits_table}


def rewritten(document: str) -> str:
    for name, render in TABLES.items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.S)
        text = render().replace("\\", "\\\\")
        document, count = pattern.subn(rf"\g<1>{text}\n\g<2>", document)
        assert count == 1, name
    return document


@pytest.mark.parametrize("name", TABLES)
def test_the_tables_match_the_code(name: str) -> None:
    document = DOCUMENT.read_text("utf-8")
    table = document.split(f"<!-- {name} -->\n")[1].split(f"<!-- /{name} -->")[0].strip()
    assert table == TABLES[name](), f"run python {Path(__file__).name}"


def test_every_error_code_is_explained() -> None:
    assert list(ERRORS) == list(ErrorCode)


def test_every_limit_has_a_reason() -> None:
    named = set(re.findall(r"^\| ([A-Z_]+) \| \d", limits_table(), re.M))
    assert named == {name for name in vars(limits) if name.isupper()}


def test_every_body_kind_is_described() -> None:
    rows = re.findall(r"^\| \w*Message \| (\d) \|", DOCUMENT.read_text("utf-8"), re.M)
    assert rows == [str(int(kind)) for kind in BodyKind]


def test_every_command_is_drawn_once() -> None:
    headings = re.findall(r"^### ([A-Z_]+)$", DOCUMENT.read_text("utf-8"), re.M)
    assert headings == [spec.name for spec in COMMANDS.values()]


def test_the_table_of_states_is_that_of_the_code() -> None:
    everything = {who: {s.name for s in COMMANDS.values() if s.sender in (who, "both")} for who in ("client", "broker")}
    rows = re.findall(r"^\| (\w+)(?: \([^|]*\))? \| ([^|]*) \| ([^|]*) \|$", DOCUMENT.read_text("utf-8"), re.M)
    seen = 0
    for state, client, broker in rows:
        if state not in {s.value for s in State}:
            continue
        seen += 1
        for who, text in (("client", client), ("broker", broker)):
            if text == "nothing":
                expected = set()
            elif text.startswith("everything but "):
                expected = everything[who] - set(text.removeprefix("everything but ").split(", "))
            else:
                expected = {name.removesuffix(" 0") for name in text.split(", ")}
            legal = {COMMANDS[n].name for n in _LEGAL[State(state), who]}  # type: ignore[index]
            assert legal == expected, (state, who)
    assert seen == len(State)


if __name__ == "__main__":
    DOCUMENT.write_text(rewritten(DOCUMENT.read_text("utf-8")), "utf-8")
    sys.exit(0)
