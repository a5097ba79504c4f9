"""``sievemq selector check | explain``: selectors without a broker."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from sievemq import Message, Selector
from sievemq.cli.broker_access import JsonOption, failures
from sievemq.cli.exits import REFUSED, USAGE
from sievemq.cli.values import parse_property
from sievemq_core.selector import SelectorError, compile_selector
from sievemq_core.selector.dialect import DIALECTS

__all__ = ["selector"]

selector = typer.Typer(help="Check and explain selectors; no broker is needed.", no_args_is_help=True)

Dialect = StrEnum("Dialect", [(name.upper().replace("-", "_"), name) for name in DIALECTS])  # type: ignore[misc]
_DialectOption = Annotated[Dialect, typer.Option("--dialect", help="Whose rules apply.")]
_JAKARTA = Dialect("jakarta")


@selector.command()
def check(
    texts: Annotated[list[str] | None, typer.Argument(metavar="SELECTOR...", help="Selectors.")] = None,
    files: Annotated[
        list[Path] | None,
        typer.Option(
            "--file", "-f", help="A file with a selector per line, # for comments; - reads the standard input."
        ),
    ] = None,
    dialect: _DialectOption = _JAKARTA,
    as_json: JsonOption = False,
) -> None:
    """Check selectors; a mistake is shown with a caret under it.

    Exit codes: 0 all are valid, 2 usage, 4 at least one is not.
    """
    bad = total = 0
    for place, text in _selectors(texts or [], files or []):
        total += 1
        try:
            compiled = compile_selector(text, dialect.value)
        except SelectorError as error:
            bad += 1
            details = {name: error.details.get(name) for name in ("position", "length", "hint")}
            if as_json:
                typer.echo(
                    json.dumps({"place": place, "selector": text, "valid": False, "error": error.text, **details})
                )
            else:
                typer.echo(f"{place}: {error}", err=True)
            continue
        warnings = [warning.message for warning in compiled.warnings] if compiled is not None else []
        if as_json:
            typer.echo(json.dumps({"place": place, "selector": text, "valid": True, "warnings": warnings}))
        else:
            for warning in warnings:
                typer.echo(f"{place}: warning: {warning}", err=True)
    if not total:
        typer.echo("sievemq: nothing to check; give a selector or --file", err=True)
        raise typer.Exit(USAGE)
    if not as_json:
        typer.echo(f"{total - bad} of {total} valid")
    if bad:
        raise typer.Exit(REFUSED)


@selector.command()
def explain(
    text: Annotated[str, typer.Argument(metavar="SELECTOR")],
    properties: Annotated[
        list[str] | None,
        typer.Option("--property", "-p", metavar="NAME=VALUE[:TYPE]", help="A property of a message to try it on."),
    ] = None,
    jms_type: Annotated[str | None, typer.Option("--type", help="JMSType of that message.")] = None,
    correlation_id: Annotated[str | None, typer.Option("--correlation-id", help="JMSCorrelationID of it.")] = None,
    priority: Annotated[int | None, typer.Option("--priority", min=0, max=9, help="JMSPriority of it.")] = None,
    dialect: _DialectOption = _JAKARTA,
    as_json: JsonOption = False,
) -> None:
    """Say how a selector is understood and, with -p and the like, what it says of a message.

    Exit codes: 0 explained, 2 usage, 4 the selector is not valid.
    """
    values = [parse_property(entry) for entry in properties or ()]
    with failures():
        parsed = Selector(text, dialect.value)
        message = Message()
        for name, value in values:
            message.set_object_property(name, value)
        message.set_jms_type(jms_type)
        message.set_jms_correlation_id(correlation_id)
        if priority is not None:
            message.set_jms_priority(priority)
        tried = bool(values) or any(given is not None for given in (jms_type, correlation_id, priority))
        verdict = {True: "TRUE", False: "FALSE", None: "UNKNOWN"}[parsed.evaluate(message)] if tried else None
    compiled = compile_selector(text, dialect.value)
    keys = {} if compiled is None else {name: sorted(map(str, values)) for name, values in compiled.facts.equalities}
    facts = {
        "selector": text,
        "dialect": dialect.value,
        "canonical": parsed.canonical,
        "index": keys,
        "warnings": [warning.message for warning in parsed.warnings],
        "verdict": verdict,
        "matches": None if verdict is None else verdict == "TRUE",
    }
    if as_json:
        typer.echo(json.dumps(facts, ensure_ascii=False))
        return
    typer.echo(f"understood as  {parsed.canonical or '(no condition: every message)'}")
    for name, wanted in keys.items():
        typer.echo(f"found by index {name} is one of {', '.join(wanted)}")
    if compiled is not None and not keys:
        typer.echo("found by index no: asked for every message")
    for warning in parsed.warnings:
        typer.echo(f"warning        {warning.message}")
    if verdict is not None:
        typer.echo(f"this message   {verdict}: {'matches' if verdict == 'TRUE' else 'does not match'}")


def _selectors(texts: list[str], files: list[Path]) -> Iterator[tuple[str, str]]:
    """Each selector with where it stands."""
    for number, text in enumerate(texts, 1):
        yield (f"argument {number}" if len(texts) > 1 else "selector"), text
    for file in files:
        try:
            content = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            typer.echo(f"sievemq: {file} cannot be read: {error}", err=True)
            raise typer.Exit(USAGE) from None
        for number, line in enumerate(content.splitlines(), 1):
            if line.strip() and not line.lstrip().startswith("#"):
                yield f"{file}:{number}", line
