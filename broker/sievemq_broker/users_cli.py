"""``sievemq user``: the users file, without opening it in an editor. A running broker reads it again by itself."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Never

import typer

from sievemq_broker.session.rights import ALL_RIGHTS, Grant, Rights, Verb
from sievemq_broker.users.account import User
from sievemq_broker.users.file import check_name, read_users, write_users
from sievemq_broker.users.passwords import hash_password, is_hash, verify
from sievemq_core.output import complain, report, show
from sievemq_core.toml import parse_toml

# Exit codes of every sievemq command; docs and `sievemq --help` list them.
FAILED, USAGE, NOT_FOUND, REFUSED = 1, 2, 3, 4

user = typer.Typer(help="Users of a broker: names, passwords and rights.", no_args_is_help=True)

_Name = Annotated[str, typer.Argument(help="The user's name.", show_default=False)]
_File = Annotated[
    Path | None,
    typer.Option("--users-file", help="The users file (default: SIEVEMQ_USERS_FILE or the configuration)."),
]
_May = Annotated[
    str | None, typer.Option("--may", help=f"What is allowed: {', '.join(Verb)}; separate several by commas.")
]
_On = Annotated[str, typer.Option("--on", help="Pattern of destinations, such as queue:orders.* or *.")]
_In = Annotated[str, typer.Option("--in", help="Pattern of namespaces, such as default or team-*.")]
_Everything = Annotated[bool, typer.Option("--all", help="All rights on all destinations.")]
_Scram = Annotated[
    bool,
    typer.Option("--scram", help="Store SCRAM-SHA-256 keys, for AMQP clients, instead of an argon2id hash."),
]
_Json = Annotated[bool, typer.Option("--json", help="One JSON document.")]


@user.command()
def add(
    name: _Name,
    may: _May = None,
    on: _On = "*",
    in_: _In = "default",
    everything: _Everything = False,
    scram: _Scram = False,
    users_file: _File = None,
) -> None:
    """Add a user; the password is read from a prompt, or as one line from standard input.

    Give the rights with --all, or with --may, --on and --in; `sievemq user grant` adds more.
    """
    path = _path(users_file)
    users = _read(path, may_be_missing=True)
    try:
        check_name(name)
    except ValueError as error:
        _fail(str(error), USAGE)
    if name in users:
        _fail(f"there is a user {name!r} already; `sievemq user password` changes its password", FAILED)
    if everything == (may is not None):
        _fail("name the rights: --all, or --may with --on and --in", USAGE)
    rights = ALL_RIGHTS if may is None else Rights([_grant(may, on, in_)])
    _write(path, {**users, name: User(name, _hashed(_ask_password(), scram), rights)})
    report(f"{name}: {_shown(rights)}")


@user.command("list")
def list_(users_file: _File = None, as_json: _Json = False) -> None:
    """List the users and their rights, without passwords and hashes."""
    users = _read(_path(users_file))
    if as_json:
        show(json.dumps([_row(users[name]) for name in sorted(users)], indent=2, ensure_ascii=False))
        return
    width = max(map(len, users), default=0)
    for name in sorted(users):
        clear = "" if is_hash(users[name].secret) else "  (password in clear; `sievemq user password` hashes it)"
        show(f"{name:<{width}}  {_shown(users[name].rights)}{clear}")


@user.command()
def remove(name: _Name, users_file: _File = None) -> None:
    """Remove a user. Its connections end within a second or two."""
    path, users = _find(users_file, name)
    _write(path, {other: found for other, found in users.items() if other != name})
    report(f"{name} is removed.")


@user.command()
def password(name: _Name, scram: _Scram = False, users_file: _File = None) -> None:
    """Change a password, read from a prompt or as one line from standard input. The user's connections are closed."""
    path, users = _find(users_file, name)
    _write(path, {**users, name: User(name, _hashed(_ask_password(), scram), users[name].rights)})
    report(f"{name} has a new password.")


@user.command()
def check(name: _Name, users_file: _File = None) -> None:
    """Check a password against the file. Exit codes: 0 correct, 3 no such user, 4 wrong."""
    _, users = _find(users_file, name)
    given, secret = _ask_password(confirm=False), users[name].secret
    if not (verify(secret, given) if is_hash(secret) else secret == given):
        _fail("that is not the password", REFUSED)
    report("That is the password.")


@user.command()
def grant(name: _Name, may: _May = None, on: _On = "*", in_: _In = "default", users_file: _File = None) -> None:
    """Grant a user more rights."""
    path, users = _find(users_file, name)
    if may is None:
        _fail("name the rights with --may", USAGE)
    found = users[name]
    if found.rights.unlimited:
        _fail(f"{name} may do everything already; `sievemq user revoke {name} --all` first", FAILED)
    wanted = _grant(may, on, in_)
    same = [g for g in found.rights.grants if (g.destination, g.namespace) == (wanted.destination, wanted.namespace)]
    others = [g for g in found.rights.grants if g not in same]
    merged = frozenset(wanted.may.union(*(g.may for g in same)))
    rights = Rights([*others, Grant(merged, wanted.destination, wanted.namespace)])
    _write(path, {**users, name: User(name, found.secret, rights)})
    report(f"{name}: {_shown(rights)}")


@user.command()
def revoke(
    name: _Name,
    may: _May = None,
    on: _On = "*",
    in_: _In = "default",
    everything: _Everything = False,
    users_file: _File = None,
) -> None:
    """Revoke rights granted with exactly this --on and --in, or all rights. Consumers without a right are closed."""
    path, users = _find(users_file, name)
    found = users[name]
    if everything:
        rights = Rights([])
    else:
        wanted = _grant(may or ",".join(Verb), on, in_)
        kept: list[Grant] = []
        for g in found.rights.grants:
            if (g.destination, g.namespace) != (wanted.destination, wanted.namespace):
                kept.append(g)
            elif rest := g.may - wanted.may:
                kept.append(Grant(rest, g.destination, g.namespace))
        rights = Rights(kept)
        if rights == found.rights:
            _fail(f"{name} has no such right; `sievemq user list` shows them", NOT_FOUND)
    _write(path, {**users, name: User(name, found.secret, rights)})
    report(f"{name}: {_shown(rights)}")


@user.command("hash")
def hash_(scram: _Scram = False) -> None:
    """Print the argon2id hash of a password, for the table [users] of a configuration."""
    show(_hashed(_ask_password(), scram))


# -- what they share --------------------------------------------------------------------------------------------------


def _fail(text: str, code: int) -> Never:
    complain(f"sievemq: {text}")
    raise typer.Exit(code)


def _path(given: Path | None) -> Path:
    named = given or os.environ.get("SIEVEMQ_USERS_FILE") or _configured()
    if not named:
        _fail(
            "which users file? Name it with --users-file, SIEVEMQ_USERS_FILE or users_file in the configuration", USAGE
        )
    return Path(named)


def _configured() -> str | None:
    """The users file of the configuration; not checked here, since the file may not exist yet."""
    config = os.environ.get("SIEVEMQ_CONFIG")
    if not config:
        return None
    try:
        named = parse_toml(Path(config).read_text(encoding="utf-8")).get("users_file")
    except (OSError, ValueError) as error:
        _fail(f"the configuration file {config} cannot be used: {error}", USAGE)
    return named if isinstance(named, str) else None


def _read(path: Path, *, may_be_missing: bool = False) -> dict[str, User]:
    if may_be_missing and not path.exists():
        return {}
    try:
        return read_users(path)
    except ValueError as error:
        _fail(str(error), USAGE)


def _find(given: Path | None, name: str) -> tuple[Path, dict[str, User]]:
    path = _path(given)
    users = _read(path)
    if name not in users:
        _fail(f"there is no user {name!r} in {path}", NOT_FOUND)
    return path, users


def _write(path: Path, users: dict[str, User]) -> None:
    try:
        write_users(path, users)
    except OSError as error:
        _fail(f"the users file {path} cannot be written: {error.strerror or error}", FAILED)


def _ask_password(*, confirm: bool = True) -> str:
    if sys.stdin.isatty():
        given: str = typer.prompt("Password", hide_input=True, confirmation_prompt=confirm, err=True)
    else:
        try:
            given = sys.stdin.readline().rstrip("\r\n")
        except OSError:  # closed
            given = ""
    if not given:
        _fail("no password was given", USAGE)
    return given


def _hashed(given: str, scram: bool) -> str:
    try:
        return hash_password(given, scram=scram)
    except ValueError as error:
        _fail(str(error), USAGE)


def _grant(may: str, on: str, in_: str) -> Grant:
    try:
        return Grant(frozenset(Verb(verb.strip()) for verb in may.split(",") if verb.strip()), on, in_)
    except ValueError as error:
        _fail(f"{error}; verbs are {', '.join(Verb)}", USAGE)


def _shown(rights: Rights) -> str:
    if rights.unlimited:
        return "everything"
    each = (
        f"{', '.join(verb.value for verb in Verb if verb in grant.may)} on {grant.destination} in {grant.namespace}"
        for grant in rights.grants
    )
    return "; ".join(each) or "nothing"


def _row(found: User) -> dict[str, object]:
    grants = [
        {"may": [v.value for v in Verb if v in g.may], "destination": g.destination, "namespace": g.namespace}
        for g in found.rights.grants
    ]
    return {
        "name": found.name,
        "hashed": is_hash(found.secret),
        "everything": found.rights.unlimited,
        "rights": grants,
    }
