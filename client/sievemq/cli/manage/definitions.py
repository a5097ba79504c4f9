"""``sievemq definitions …``: queues, topics, subscriptions, rules and users of a broker as one TOML file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn

import tomli_w
import typer

from sievemq.cli.exits import FAILED, REFUSED, USAGE
from sievemq.cli.grouping import grouped
from sievemq.cli.manage.access import Api, Port
from sievemq.cli.manage.actions import JsonOption, YesOption, confirm
from sievemq.cli.options import JsonOption as LinesOption
from sievemq.cli.show import harmless, json_line
from sievemq_core.counted import counted
from sievemq_core.output import complain, report, show, write
from sievemq_core.toml import parse_toml

definitions = typer.Typer(
    help="Queues, topics, subscriptions, rules and users as one file: export, diff, apply.", no_args_is_help=True
)

_HEAD: Final = "# Definitions of a SieveMQ broker. `sievemq definitions apply` makes a broker have them.\n\n"
_MAX_ORIGIN: Final = 1_000
_SIGNS: Final = {"create": "+", "change": "~", "delete": "-"}

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="TOML file with definitions.")]
PruneOption = Annotated[
    bool, typer.Option("--prune", help="Delete what is not in the file, in namespaces that are.")
]  # fmt: skip
ForceOption = Annotated[
    list[str] | None,
    typer.Option("--force", metavar="NAME", help="Make this change although messages are deleted; repeatable."),
]


@definitions.command()
@grouped
def export(
    *,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Write this file, not standard output. A new one is for its owner alone."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of TOML.")] = False,
    port: Port,
) -> None:
    """Print what exists on a broker or in a cluster as definitions. Passwords are included as hashes, or not at all."""
    answers = [api.get("/definitions") for api in port.api().owners()]
    tables, differing = _merged([answer["definitions"] for answer in answers])
    clear = sorted({name for answer in answers for name in answer["clear_passwords"]})
    text = json.dumps(tables, ensure_ascii=False) + "\n" if as_json else _HEAD + tomli_w.dumps(tables)
    if out is None:
        write(text)
    else:
        _write(out, text)
        report(f"{out} written")
    if differing:
        complain(
            f"sievemq: the shards of the cluster have different {', '.join(differing)}; those of the first are written"
        )
    if clear:
        names = harmless(", ".join(clear))
        complain(f"sievemq: left out, because their passwords are not stored as hashes: {names}")


@definitions.command()
@grouped
def diff(
    file: FileArgument,
    *,
    prune: PruneOption = False,
    force: ForceOption = None,
    check: Annotated[bool, typer.Option("--check", help="Exit with 4 if there is a difference.")] = False,
    as_json: LinesOption = False,
    port: Port,
) -> None:
    """Show what `apply` would change. Exit codes: as everywhere; 4 also for a difference, with --check."""
    answer = _ask(port.api().owners(), _request(file, prune, force), dry_run=True)
    for change in answer["changes"]:
        show(json_line(change) if as_json else _line(change))
    if not answer["changes"] and not as_json:
        report(f"no difference: the broker has what {file} defines")
    if answer["changes"] and check:
        raise typer.Exit(REFUSED)


@definitions.command()
@grouped
def apply(
    file: FileArgument,
    *,
    prune: PruneOption = False,
    force: ForceOption = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
    port: Port,
) -> None:
    """Make what the file defines and the broker lacks; show the changes first, and ask.

    What is not in the file stays, unless --prune is given. A change that would delete messages is refused, unless
    --force names it. If one is refused, nothing is changed. The first users of a broker are made when it starts with
    the file: sievemq broker --definitions FILE. In a cluster each owner makes the namespaces of its shard; rules,
    limits and users are those of all. If one fails, the error names the shards that have the changes.

    Exit codes: as everywhere; 4 if a change is refused.
    """
    owners, request = port.api().owners(), _request(file, prune, force)
    planned = _ask(owners, request, dry_run=True)
    changes = planned["changes"]
    now = len(changes) - planned["at_start"]
    for change in changes if not as_json else ():
        show(_line(change))
    if planned["refused"]:
        complain(f"sievemq: {counted(planned['refused'], 'change')} refused; nothing was changed")
        raise typer.Exit(REFUSED)
    if now:
        confirm(f"Make {counted(now, 'change', form=',')}?", yes)
        planned = _ask(owners, request, dry_run=False)
    if as_json:
        report(json_line(planned))
    else:
        report(f"{counted(planned['applied'], 'change', form=',')} made" if now else "nothing to change")
    if planned["at_start"]:
        what = counted(planned["at_start"], "change", form=",")
        complain(f"sievemq: {what} made when the broker starts with --definitions {file}")


def _request(file: Path, prune: bool, force: list[str] | None) -> dict[str, Any]:
    try:
        tables = parse_toml(file.read_text(encoding="utf-8"))
    except OSError as error:
        _end(f"{file} cannot be read: {error.strerror or error}", USAGE)
    except ValueError as error:
        _end(f"{file} is not TOML: {error}", USAGE)
    try:
        json.dumps(tables, allow_nan=False)
    except TypeError:
        _end(f"{file}: there are dates or times in it; definitions have none", USAGE)
    except ValueError:
        _end(f"{file}: there is nan or inf in it; definitions have neither", USAGE)
    return {"definitions": tables, "origin": str(file)[:_MAX_ORIGIN], "prune": prune, "force": force or []}


def _ask(owners: list[Api], request: dict[str, Any], *, dry_run: bool) -> dict[str, Any]:
    """Ask the owners in turn and merge the changes: one that concerns all, as of a rule, counts once."""
    answers: list[dict[str, Any]] = []
    for api in owners:
        try:
            answers.append(api.post("/definitions", {**request, "dry_run": dry_run}))
        except typer.Exit:
            if not dry_run and owners[1:]:
                _report_partial(owners, len(answers))
            raise
    changes = list({json_line(change): change for answer in answers for change in answer["changes"]}.values())
    return {
        "changes": changes,
        "applied": sum(change["made"] for change in changes),
        "refused": sum(bool(change["refused"]) for change in changes),
        "at_start": sum(change["at_start"] for change in changes),
        "elsewhere": sorted(set[str].intersection(*(set(answer["elsewhere"]) for answer in answers))),
        "dry_run": dry_run,
    }


def _report_partial(owners: list[Api], applied: int) -> None:
    """Print which shards have the changes: the owner behind so many others has failed, and why is printed already."""
    names = [owner.shard for owner in owners]
    done, left = ", ".join(names[:applied]) or "none", names[applied + 1 :]
    text = f"sievemq: applied in these shards: {done}; failed, perhaps in part: {names[applied]}"
    text += f"; not tried: {', '.join(left)}" if left else ""
    complain(harmless(f"{text}. Apply the file again once the cause is mended; what exists is not changed"))


def _merged(found: list[dict[str, Any]]) -> tuple[dict[str, Any], list[str]]:
    """The definitions of all shards as one table, and the names of the tables in which they differ."""
    tables = dict(found[0])
    tables["namespaces"] = {name: each for table in found for name, each in table.get("namespaces", {}).items()}
    differing = [
        name for name in ("rules", "limits", "users") if any(table.get(name) != tables.get(name) for table in found)
    ]
    return tables, differing


def _line(change: dict[str, Any]) -> str:
    text = f"{_SIGNS[change['action']]} {change['name']}"
    if change["text"]:
        text += f": {change['text']}"
    if change["at_start"]:
        text += " (when the broker starts with the file)"
    if change["refused"]:
        text += f" (refused: {change['refused']}"
        text += f"; --force '{change['name']}' deletes it)" if change["can_be_forced"] else ")"
    return harmless(text)


def _write(path: Path, text: str) -> None:
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        _end(f"{path} cannot be written: {error.strerror or error}", FAILED)


def _end(text: str, code: int) -> NoReturn:
    complain(f"sievemq: {harmless(text)}")
    raise typer.Exit(code)
