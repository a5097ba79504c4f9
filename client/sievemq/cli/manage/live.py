"""``sievemq rule …``, ``limit …``, ``account …`` and the ``config`` commands that ask a running broker."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Annotated, Any, Final, NoReturn
from urllib.parse import quote

import typer

from sievemq.cli.exits import REFUSED, USAGE
from sievemq.cli.grouping import grouped
from sievemq.cli.manage.access import Api, Port, address_of
from sievemq.cli.manage.actions import JsonOption
from sievemq.cli.manage.output import Columns, moment, print_one, print_rows
from sievemq.cli.options import JsonOption as LinesOption
from sievemq.cli.show import harmless, json_line
from sievemq_core.output import complain, report, show

rule = typer.Typer(
    help="Rules of destinations on a running broker: ls, show, set, unset, move, delete, reset.", no_args_is_help=True
)
limit = typer.Typer(
    help="Limits of namespaces on a running broker: ls, show, set, unset, move, delete, reset.", no_args_is_help=True
)
account = typer.Typer(
    help="Users of a running broker: ls, add, password, grant, revoke, delete, reset.", no_args_is_help=True
)

_NOT_KEPT: Final = "until the broker ends: it has no data directory or store"

Pattern = Annotated[
    str,
    typer.Argument(
        metavar="PATTERN", help="Of destinations, such as 'queue:orders.*'; for limits of namespaces, such as 'team-*'."
    ),
]
Before = Annotated[str | None, typer.Option("--before", metavar="PATTERN", help="Which one; the end if not given.")]
Assigned = Annotated[list[str], typer.Argument(metavar="RULE=VALUE…", help="Such as max_messages=1000.")]
Named = Annotated[list[str], typer.Argument(metavar="RULE…", help="Such as max_messages.")]
Settings = Annotated[list[str], typer.Argument(metavar="NAME=VALUE…", help="Such as max_connections=5000.")]
Setting = Annotated[str, typer.Argument(metavar="NAME", help="max_connections or max_memory_bytes.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The user's name.")]
May = Annotated[
    str | None, typer.Option("--may", help="send, consume, browse, manage, view; separate several by commas.")
]
On = Annotated[str, typer.Option("--on", help="Pattern of destinations, such as queue:orders.* or *.")]
In = Annotated[str, typer.Option("--in", help="Pattern of namespaces, such as default or team-*.")]
All = Annotated[bool, typer.Option("--all", help="All rights on all destinations.")]
Scram = Annotated[bool, typer.Option("--scram", help="Store SCRAM-SHA-256 keys instead of an argon2id hash.")]


# -- rules and limits -------------------------------------------------------------------------------------------------

_RULES: Columns = {
    "pattern": lambda row: row["pattern"],
    "rules": lambda row: "(removed)" if row["removed"] else _rules(row["rules"]),
    "changed": lambda row: moment(row["changed_at"]),
    "by": lambda row: row["changed_by"] or "",
    "settings": lambda row: "" if row["origin"] == "settings" or row["settings"] is None else _rules(row["settings"]),
}


def _rules(table: dict[str, Any]) -> str:
    return " ".join(f"{name}={_value(value)}" for name, value in table.items()) or "(defaults)"


def _value(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _add_verbs(group: typer.Typer, noun: str, first_rules: Callable[[Api, str], dict[str, Any]]) -> None:
    """The commands for rules, or for limits: the same verbs.

    Args:
        first_rules: the rules that a pattern begins with.
    """

    def where(pattern: str) -> str:
        return f"/{noun}s/{quote(pattern, safe='')}"

    def whole(pattern: str) -> str:
        return pattern if noun == "limit" or pattern == "*" or ":" in pattern else f"queue:{pattern}"

    @group.command("ls", help=f"List the {noun}s by pattern, in order: the first that fits applies.")
    @grouped
    def ls(port: Port, *, as_json: LinesOption = False) -> None:
        print_rows(port.api().get(f"/{noun}s")["rules"], _RULES, as_json, f"no {noun}s")

    @group.command("show", help=f"Show the {noun}s of one pattern.")
    @grouped
    def show_one(pattern: Pattern, port: Port, *, as_json: JsonOption = False) -> None:
        print_one(port.api().get(where(pattern)), _RULES, as_json)

    @group.command("set", help=f"Change {noun}s of a pattern, or add it; those not named stay. No message is deleted.")
    @grouped
    def change(pattern: Pattern, assigned: Assigned, port: Port) -> None:
        api = port.api()
        found = api.get(f"/{noun}s")["rules"]
        before = next((row for row in found if row["pattern"] == whole(pattern) and not row["removed"]), None)
        rules = first_rules(api, pattern) if before is None else before["rules"]
        _save(api, where(pattern), {**rules, **dict(map(_assigned, assigned))}, before)

    @group.command("unset", help=f"Give {noun}s of a pattern their defaults.")
    @grouped
    def unset(pattern: Pattern, named: Named, port: Port) -> None:
        api = port.api()
        before = api.get(where(pattern))
        unknown = next((name for name in named if name not in before["rules"]), None)
        if unknown is not None:
            _end(f"{before['pattern']} does not set {unknown}", USAGE)
        rules = {name: value for name, value in before["rules"].items() if name not in named}
        _save(api, where(pattern), rules, before)

    @group.command("move", help="Move a pattern before another one, or to the end: the first that fits applies.")
    @grouped
    def move(pattern: Pattern, port: Port, *, before: Before = None) -> None:
        api = port.api()
        patterns = [row["pattern"] for row in api.get(f"/{noun}s")["rules"] if not row["removed"]]
        for given in (pattern, before or pattern):
            if whole(given) not in patterns:
                _end(f"there is no {noun} {given!r}", REFUSED)
        others = [each for each in patterns if each != whole(pattern)]
        place = len(others) if before in (None, pattern) else others.index(whole(before))
        others.insert(place, whole(pattern))
        api.post(f"/{noun}s/actions/order", {"patterns": others})
        report(", ".join(others))

    @group.command("delete", help="Remove a pattern.")
    @grouped
    def delete(pattern: Pattern, port: Port) -> None:
        port.api().delete(where(pattern))
        report(f"{pattern} deleted")

    @group.command("reset", help="Take the change of a pattern back: what the settings say applies again.")
    @grouped
    def reset(pattern: Pattern, port: Port) -> None:
        rows = port.api().post(f"{where(pattern)}/actions/reset", {})["rules"]
        report(f"{pattern}: {_rules(rows[0]['rules'])}, as in the settings" if rows else f"{pattern} is gone")


def _save(api: Api, path: str, rules: dict[str, Any], before: dict[str, Any] | None) -> None:
    answer = api.put(path, {"rules": rules}, match="" if before is None else before["etag"])
    report(f"{answer['pattern']}: {_rules(answer['rules'])}{_kept(answer)}")


def _kept(answer: dict[str, Any]) -> str:
    return "" if answer["kept"] else f" ({_NOT_KEPT})"


def _assigned(text: str, form: str = "RULE=VALUE, such as max_messages=1000") -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        _end(f"{text!r} is not {form}", USAGE)
    try:
        found = json.loads(value)
    except ValueError:
        return name, value
    return name, found if isinstance(found, bool | int | float) else value


def _present_rules(api: Api, pattern: str) -> dict[str, Any]:
    """A pattern of one destination begins with the rules that this has; one of several without any."""
    if "*" in pattern:
        return {}
    address = address_of(pattern)
    rows = (row for row in api.get("/rules")["rules"] if not row["removed"] and fnmatchcase(address, row["pattern"]))
    return dict(next(rows, {"rules": {}})["rules"])


_add_verbs(rule, "rule", _present_rules)
_add_verbs(limit, "limit", lambda api, pattern: {})


# -- users ------------------------------------------------------------------------------------------------------------

_ACCOUNTS: Columns = {
    "user": lambda row: row["name"],
    "rights": lambda row: "(removed)" if row["removed"] else _rights(row),
    "changed": lambda row: moment(row["changed_at"]),
    "by": lambda row: row["changed_by"] or "",
}


def _rights(row: dict[str, Any]) -> str:
    if row["everything"]:
        return "everything"
    grants = (f"{', '.join(each['may'])} on {each['destination']} in {each['namespace']}" for each in row["rights"])
    return "; ".join(grants) or "nothing"


def _user(name: str) -> str:
    return f"/users/{quote(name, safe='')}"


@account.command("ls")
@grouped
def list_accounts(port: Port, *, as_json: LinesOption = False) -> None:
    """List the users of a running broker, and their rights."""
    print_rows(port.api().get("/users")["users"], _ACCOUNTS, as_json, "no users")


@account.command()
@grouped
def add(
    name: Name,
    port: Port,
    *,
    may: May = None,
    on: On = "*",
    in_: In = "default",
    everything: All = False,
    scram: Scram = False,
) -> None:
    """Add a user; the password is read from a prompt, or as one line from standard input."""
    if everything == (may is not None):
        _end("name the rights: --all, or --may with --on and --in", USAGE)
    rights = None if may is None else [_grant(may, on, in_)]
    body = {"password": _password(), "scram": scram, "rights": rights, "everything": everything}
    _saved(port.api().put(_user(name), body, match=""))


@account.command()
@grouped
def password(name: Name, port: Port, *, scram: Scram = False) -> None:
    """Change a password, read from a prompt or as one line from standard input. The user's connections are closed."""
    api = port.api()
    before = api.get(_user(name))
    _saved(api.put(_user(name), {"password": _password(), "scram": scram}, match=before["etag"]))


@account.command()
@grouped
def grant(name: Name, port: Port, *, may: May = None, on: On = "*", in_: In = "default") -> None:
    """Grant a user more rights, with --may, --on and --in."""
    if may is None:
        _end("name the rights with --may", USAGE)
    api = port.api()
    before = api.get(_user(name))
    if before["everything"]:
        _end(f"{name} may do everything already; `sievemq account revoke {name} --all` first", REFUSED)
    wanted = _grant(may, on, in_)
    same = [each for each in before["rights"] if _place(each) == _place(wanted)]
    wanted["may"] = sorted({*wanted["may"], *(verb for each in same for verb in each["may"])})
    others = [each for each in before["rights"] if each not in same]
    _saved(api.put(_user(name), {"rights": [*others, wanted]}, match=before["etag"]))


@account.command()
@grouped
def revoke(
    name: Name, port: Port, *, may: May = None, on: On = "*", in_: In = "default", everything: All = False
) -> None:
    """Revoke rights granted with exactly this --on and --in, or all rights. Consumers without a right are closed."""
    api = port.api()
    before = api.get(_user(name))
    left: list[dict[str, Any]] = []
    if not everything:
        wanted = _grant(may or "send,consume,browse,manage,view", on, in_)
        for each in before["rights"]:
            verbs = [v for v in each["may"] if _place(each) != _place(wanted) or v not in wanted["may"]]
            left += [{**each, "may": verbs}] if verbs else []
        if left == before["rights"]:
            _end(f"{name} has no such right; `sievemq account ls` shows them", REFUSED)
    _saved(api.put(_user(name), {"rights": left}, match=before["etag"]))


@account.command("delete")
@grouped
def delete_account(name: Name, port: Port) -> None:
    """Remove a user. Its connections are closed."""
    port.api().delete(_user(name))
    report(f"{name} deleted")


@account.command("reset")
@grouped
def reset_account(name: Name, port: Port) -> None:
    """Take the change of a user back: what the settings or the users file say applies again."""
    rows = port.api().post(f"{_user(name)}/actions/reset", {})["users"]
    report(f"{name}: {_rights(rows[0])}" if rows else f"{name} is gone")


def _saved(row: dict[str, Any]) -> None:
    report(f"{row['name']}: {_rights(row)}{_kept(row)}")


def _grant(may: str, on: str, in_: str) -> dict[str, Any]:
    verbs = sorted({verb.strip() for verb in may.split(",") if verb.strip()})
    return {"may": verbs, "destination": on, "namespace": in_}


def _place(grant: dict[str, Any]) -> tuple[str, str]:
    destination = grant["destination"]
    return destination if destination == "*" or ":" in destination else f"queue:{destination}", grant["namespace"]


def _password() -> str:
    if sys.stdin.isatty():
        return str(typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))
    try:
        given = sys.stdin.readline().rstrip("\r\n")
    except OSError:  # closed
        given = ""
    return given or _end("no password was given", USAGE)


# -- settings ---------------------------------------------------------------------------------------------------------


@grouped
def set_settings(assigned: Settings, port: Port) -> None:
    """Change max_connections or max_memory_bytes of a running broker. Open connections and accepted messages stay."""
    api = port.api()
    for name, value in [_assigned(text, "NAME=VALUE, such as max_connections=5000") for text in assigned]:
        before = api.get(_setting(name))
        answer = api.put(_setting(name), {"value": value}, match=before["etag"])
        report(f"{name}: {answer['value']}{_kept(answer)}")


@grouped
def reset_setting(name: Setting, port: Port) -> None:
    """Undo a change of `config set`: the value of the settings applies again."""
    answer = port.api().post(f"{_setting(name)}/actions/reset", {})
    report(f"{name}: {answer['value']}, as in the settings")


def _setting(name: str) -> str:
    return f"/settings/{quote(name, safe='')}"


@grouped
def diff(
    port: Port,
    *,
    check: Annotated[bool, typer.Option("--check", help="Exit with 4 if something waits to be applied.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show how a running broker differs from its settings as they are now: what a reload applies, what needs a
    restart, and what was changed at run time."""
    answer = port.api().get("/settings")
    _print_differences(answer, as_json)
    if check and (answer["differences"] or answer["error"]):
        raise typer.Exit(REFUSED)


@grouped
def reload(port: Port, *, as_json: JsonOption = False) -> None:
    """Have a running broker read its settings again, as on SIGHUP, and apply what needs no restart."""
    _print_differences(port.api().post("/settings/actions/reload", {}), as_json)


def _print_differences(answer: dict[str, Any], as_json: bool) -> None:
    if as_json:
        show(json_line(answer))
        return
    done = {
        "reload": "applied" if answer["reloaded"] else "`sievemq config reload` applies it",
        "restart": "needs a restart",
    }
    for each in answer["differences"]:
        show(harmless(f"{each['name']}: {each['text']} ({each['origin']}; {done[each['applies']]})"))
    for each in answer["changes"]:
        by = f" by {each['changed_by']}" if each["changed_by"] else ""
        when = f"changed at run time {moment(each['changed_at'])}{by}"
        kept = "" if answer["kept"] else f", {_NOT_KEPT}"
        show(harmless(f"{each['kind']} {each['name']}: {each['text']} ({when}{kept})"))
    if answer["error"]:
        complain(f"sievemq: the settings cannot be read again: {harmless(answer['error'])}")
    elif not answer["differences"] and not answer["changes"]:
        report("no difference: the broker has what its settings say")


def _end(text: str, code: int) -> NoReturn:
    complain(f"sievemq: {harmless(text)}")
    raise typer.Exit(code)
