"""``sievemq selector check | explain``: selectors without a broker."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from sievemq import Message, Selector
from sievemq.cli.broker_access import failures
from sievemq.cli.exits import REFUSED, USAGE
from sievemq.cli.options import JsonOption
from sievemq.cli.show import json_line
from sievemq.cli.values import parse_property, typed_value
from sievemq.exceptions import JMSException
from sievemq.messages.properties import to_property
from sievemq_core.message.values import PropertyValue
from sievemq_core.output import complain, report, show
from sievemq_core.selector import CompiledSelector, SelectorError, compile_selector
from sievemq_core.selector.describe import describe_facts, describe_plan
from sievemq_core.selector.dialect import DIALECTS
from sievemq_core.selector.explain import Explanation

selector = typer.Typer(help="Check and explain selectors; no broker is needed.", no_args_is_help=True)

Dialect = StrEnum("Dialect", [(name.upper().replace("-", "_"), name) for name in DIALECTS])  # type: ignore[misc]
_DialectOption = Annotated[Dialect, typer.Option("--dialect", help="Selector dialect.")]
_PortabilityOption = Annotated[
    bool, typer.Option("--portability", help="Report where other providers refuse it or differ.")
]
_JAKARTA = Dialect("jakarta")


@selector.command()
def check(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE...", help="Files with a selector per line, # for comments; - reads the standard input."
        ),
    ] = None,
    texts: Annotated[
        list[str] | None, typer.Option("--expression", "-e", metavar="TEXT", help="A selector; repeatable.")
    ] = None,
    portability: _PortabilityOption = False,
    dialect: _DialectOption = _JAKARTA,
    as_json: JsonOption = False,
) -> None:
    """Check selectors; a mistake is shown with a caret under it.

    Warnings and portability notes do not count as mistakes, so this works as a pre-commit hook.

    Exit codes: 0 all are valid, 2 usage, 4 at least one is not.
    """
    bad = total = 0
    for place, text in _selectors(texts or [], files or []):
        total += 1
        try:
            compiled = compile_selector(text, dialect.value)
        except SelectorError as error:
            bad += 1
            if as_json:
                details = {name: error.details.get(name) for name in ("position", "length", "hint")}
                _print({"place": place, "selector": text, "valid": False, "error": error.text, **details})
            else:
                complain(f"{place}: {error}")
            continue
        warnings = [warning.message for warning in compiled.warnings] if compiled is not None else []
        notes = compiled.portability() if compiled is not None and portability else ()
        if as_json:
            record = {"place": place, "selector": text, "valid": True, "warnings": warnings}
            if portability:
                record["portability"] = [note.as_dict() for note in notes]
            _print(record)
        else:
            for warning in warnings:
                complain(f"{place}: warning: {warning}")
            for note in notes:
                show(f"{place}: {text[slice(*note.span)]}: {note}")
    if not total:
        complain("sievemq: nothing to check; name a FILE or give a selector with -e")
        raise typer.Exit(USAGE)
    if not as_json:
        report(f"{total - bad} of {total} valid")
    if bad:
        raise typer.Exit(REFUSED)


@selector.command()
def explain(
    text: Annotated[str, typer.Argument(metavar="SELECTOR")],
    properties: Annotated[
        list[str] | None,
        typer.Option(
            "--property", "-p", metavar="NAME=VALUE[:TYPE]", help="A property of a message to test with; repeatable."
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--message", "-m", metavar="FILE", help="A message as `sievemq browse --json` prints it; - reads stdin."
        ),
    ] = None,
    jms_type: Annotated[str | None, typer.Option("--type", help="JMSType of that message.")] = None,
    correlation_id: Annotated[
        str | None, typer.Option("--correlation-id", help="JMSCorrelationID of that message.")
    ] = None,
    priority: Annotated[
        int | None, typer.Option("--priority", min=0, max=9, help="JMSPriority of that message.")
    ] = None,
    python: Annotated[bool, typer.Option("--python", help="Show the generated Python too.")] = False,
    portability: _PortabilityOption = False,
    dialect: _DialectOption = _JAKARTA,
    as_json: JsonOption = False,
) -> None:
    """Show how a selector is parsed and, with -p, -m and the like, why it does or does not match a message.

    Exit codes: 0 explained, 2 usage, 4 the selector is not valid.
    """
    with failures():
        parsed = Selector(text, dialect.value)
        message = Message()
        values: dict[str, PropertyValue] = {}  # a message from elsewhere may have names that Message refuses
        if file is not None:
            _read(file, message, values)
        values.update(map(parse_property, properties or ()))
        if jms_type is not None:
            message.set_jms_type(jms_type)
        if correlation_id is not None:
            message.set_jms_correlation_id(correlation_id)
        if priority is not None:
            message.set_jms_priority(priority)
        compiled = compile_selector(text, dialect.value)
        tried = file or properties or any(given is not None for given in (jms_type, correlation_id, priority))
        explanation = None
        if tried:
            explanation = Explanation.of_nothing() if compiled is None else compiled.explain(values, message._fields)
    index = [] if compiled is None else describe_facts(compiled.facts, compiled.alternatives)
    truth = None if explanation is None else explanation.as_dict()
    verdict = None if truth is None else truth["truth"]
    if as_json:
        record: dict[str, Any] = {
            "selector": text,
            "dialect": dialect.value,
            "canonical": parsed.canonical,
            "plan": [] if compiled is None else describe_plan(compiled.plan),
            "index": index,
            "warnings": [warning.message for warning in parsed.warnings],
            "verdict": verdict,
            "matches": None if verdict is None else verdict == "TRUE",
            "explanation": truth,
        }
        if python:
            record["python"] = "" if compiled is None else compiled.source
        if portability:
            record["portability"] = [note.as_dict() for note in parsed.portability()]
        _print(record)
        return
    _show("understood as", [parsed.canonical or "(no condition: every message)"])
    if compiled is not None:
        _show_inside(compiled, index, python)
    _show("warning", [warning.message for warning in parsed.warnings])
    if portability:
        _show("portability", [f"{text[slice(*note.span)]}: {note}" for note in parsed.portability()] or ["no notes"])
    if explanation is not None:
        _show("explanation", str(explanation).splitlines())
        _show("this message", [f"{verdict}: {'matches' if verdict == 'TRUE' else 'does not match'}"])


def _show_inside(compiled: CompiledSelector, index: list[str], python: bool) -> None:
    _show("plan", describe_plan(compiled.plan))
    _show("found by index", index or ["no: evaluated for every message"])
    if python:
        _show("python", compiled.source.splitlines())


def _show(title: str, lines: list[str]) -> None:
    for number, line in enumerate(lines):
        show(f"{title if not number else '':<15}{line}".rstrip())


def _print(record: dict[str, Any]) -> None:
    show(json_line(record))


def _read(file: Path, message: Message, values: dict[str, PropertyValue]) -> None:
    """Fill a message and its properties from a file in the form of `sievemq browse --json`; missing fields stay
    unchanged."""
    try:
        record = json.loads(_content(file))
        if not isinstance(record, dict):
            raise TypeError("it is not a JSON object")
        types = record.get("property_types") or {}
        for name, value in (record.get("properties") or {}).items():
            kind = types.get(name)
            values[name] = to_property(name, value if kind is None or value is None else typed_value(value, kind))
        for header, setter in (
            ("message_id", message.set_jms_message_id),
            ("timestamp", message.set_jms_timestamp),
            ("priority", message.set_jms_priority),
            ("correlation_id", message.set_jms_correlation_id),
            ("type", message.set_jms_type),
        ):
            if record.get(header) is not None:
                setter(record[header])
        if record.get("delivery_mode") is not None:
            message.set_jms_delivery_mode({"NON_PERSISTENT": 1, "PERSISTENT": 2}[record["delivery_mode"]])
    except (ValueError, TypeError, AttributeError, KeyError, JMSException) as error:
        complain(f"sievemq: {file} is not a message in the form of `sievemq browse --json`: {error}")
        raise typer.Exit(USAGE) from None


def _selectors(texts: list[str], files: list[Path]) -> Iterator[tuple[str, str]]:
    for number, text in enumerate(texts, 1):
        yield (f"expression {number}" if len(texts) > 1 else "expression"), text
    for file in files:
        for number, line in enumerate(_content(file).splitlines(), 1):
            if line.strip() and not line.lstrip().startswith("#"):
                yield f"{file}:{number}", line


def _content(file: Path) -> str:
    try:
        return sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except FileNotFoundError:
        complain(f"sievemq: there is no file {str(file)!r}; pass a selector with -e")
        raise typer.Exit(USAGE) from None
    except (OSError, UnicodeDecodeError) as error:
        complain(f"sievemq: {file} cannot be read: {error}")
        raise typer.Exit(USAGE) from None
