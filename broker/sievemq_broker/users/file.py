"""The users in text: the table `users` of a configuration; and the users file, which holds that table alone.

    [users]
    admin = "$argon2id$…"                     # a name and a secret: may do everything

    [users.orders]                            # or a table: may do what its rights say
    password = "$argon2id$…"
    rights = [
      { may = ["send", "consume"], destination = "queue:orders.*" },
      { may = ["view"], destination = "*", namespace = "*" },
    ]

A users file that ``sievemq user`` has written also begins with a random ``sign_in_key``: see `account.py`.

A users file may also hold a line ``name:secret`` per user, as an environment variable does: the usual form of a secret
that is mounted into a container. ``sievemq user`` writes tables.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path

from sievemq_broker.session.rights import ALL_RIGHTS, Grant, Rights, Verb
from sievemq_broker.users.account import User
from sievemq_broker.users.passwords import check_hash, is_hash
from sievemq_core.toml import parse_toml

MAX_NAME_CHARS = 100

_BETWEEN = re.compile(r"\n|,(?![tp]=\d)")  # the commas inside of a hash are none between users

#: Begins a users file: a secret that stays when users change.
_KEY = "sign_in_key"
_KEY_CHARS = 32

_HEAD = """\
# Users of a SieveMQ broker. `sievemq user` writes this file; a running broker reads it again when it changes.
# A user without `rights` may do everything. Docs: docs/operating.md, "Security".
"""


def parse_users(value: object) -> dict[str, User]:
    """Users from a setting.

    Args:
        value: a table of names, or text with ``name:secret`` separated by commas or line breaks.

    Raises:
        ValueError: what is wrong with which user. The text never shows a secret.
    """
    if isinstance(value, Mapping):
        return {str(name): _user(str(name), entry) for name, entry in value.items()}
    entries = [entry.strip() for entry in _BETWEEN.split(str(value or "")) if entry.strip()]
    return _of_pairs(entry.partition(":")[::2] for entry in entries)


def read_users(path: Path) -> dict[str, User]:
    """Users from a users file.

    Raises:
        ValueError: it cannot be read, or what is wrong with which user.
    """
    return read_file(path)[0]


def read_file(path: Path) -> tuple[dict[str, User], bytes | None]:
    """Users from a users file, and its sign-in key if it has one.

    Raises:
        ValueError: it cannot be read, or what is wrong with which user.
    """
    key = None
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ValueError(
            f"there is no users file {path}; `sievemq user add NAME --users-file {path}` creates it"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"the users file {path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    lines = [line for line in map(str.strip, text.splitlines()) if line and not line.startswith("#")]
    if not lines or lines[0].startswith(("[", f"{_KEY} ", f"{_KEY}=")):
        try:
            content = parse_toml(text)
        except ValueError as error:
            raise ValueError(f"the users file {path} is not TOML: {error}") from None
        if unknown := set(content) - {"users", _KEY}:
            raise ValueError(f"the users file {path} holds {_KEY}, [users] and nothing else, not {min(unknown)!r}")
        if _KEY in content:
            key = str(content[_KEY]).encode("utf-8", "surrogatepass")
            if len(key) < _KEY_CHARS:
                raise ValueError(f"{_KEY} in the users file {path} has less than {_KEY_CHARS} characters")
        found = content.get("users", {})
        if not isinstance(found, Mapping):
            raise ValueError(f"`users` in the users file {path} must be a table")
        users = parse_users(found)
    else:
        users = _of_pairs(line.partition(":")[::2] for line in lines)
    for name, user in users.items():
        if is_hash(user.secret):
            check_hash(name, user.secret)
    return users, key


def write_users(path: Path, users: Mapping[str, User]) -> None:
    """Write a users file in one step: a reader sees the old one or the new one. Only its owner may read it. The sign-in
    key stays.

    Args:
        path: the file; if it is a symbolic link, what that leads to is replaced.

    Raises:
        OSError: it cannot be written; the old one is unchanged.
    """
    path = path.resolve()
    try:
        key = read_file(path)[1]
    except ValueError:  # there is none yet
        key = None
    text = secrets.token_urlsafe(32) if key is None else key.decode("utf-8", "surrogatepass")
    parts = [_HEAD, f"{_KEY} = {_quote(text)}\n"]
    for name in sorted(users):
        user = users[name]
        parts.append(f"\n[users.{_quote(name)}]\npassword = {_quote(user.secret)}\n")
        if user.rights != ALL_RIGHTS:
            parts.append("rights = [\n" + "".join(f"  {_grant_text(grant)},\n" for grant in user.rights.grants) + "]\n")
    beside = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write("".join(parts))
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def check_name(name: object) -> str:
    """A user's name.

    Raises:
        ValueError: empty, long, with a colon (HTTP Basic and name:password could not tell where it ends), a comma,
            white space at an end, or characters that cannot be printed.
    """
    if (
        not isinstance(name, str)
        or not 1 <= len(name) <= MAX_NAME_CHARS
        or not name.isprintable()
        or name != name.strip()
        or set(name) & set(":,")
    ):
        raise ValueError(
            f"a user name has 1 to {MAX_NAME_CHARS} printable characters, without colon, comma and white space around "
            f"it, unlike {str(name)[:40]!r}"
        )
    return name


def _of_pairs(pairs: Iterable[tuple[str, str]]) -> dict[str, User]:
    users: dict[str, User] = {}
    for position, (name, secret) in enumerate(pairs, 1):
        if not name or not secret:
            raise ValueError(f"needs name:password for each user; entry {position} has no name or no password")
        if name in users:
            raise ValueError(f"names user {name!r} twice")
        users[check_name(name)] = User(name, secret)
    return users


def _user(name: str, entry: object) -> User:
    check_name(name)
    if isinstance(entry, User):
        return entry
    if isinstance(entry, str):
        entry = {"password": entry}
    if not isinstance(entry, Mapping) or not isinstance(secret := entry.get("password"), str) or not secret:
        raise ValueError(f"needs name:password for each user; user {name!r} has no password")
    if unknown := set(entry) - {"password", "rights"}:
        raise ValueError(f"knows password and rights of user {name!r}, not {str(min(unknown))[:40]!r}")
    rights = ALL_RIGHTS
    if "rights" in entry:
        found = entry["rights"]
        if isinstance(found, (str, Mapping)) or not isinstance(found, Iterable):
            raise ValueError(f"needs a list of tables as rights of user {name!r}")
        rights = Rights([_grant(name, grant) for grant in found])
    return User(name, secret, rights)


def _grant(name: str, table: object) -> Grant:
    if isinstance(table, Grant):
        return table
    if not isinstance(table, Mapping):
        raise ValueError(f"needs a list of tables as rights of user {name!r}")  # noqa: TRY004
    if unknown := set(table) - {"may", "destination", "namespace"}:
        raise ValueError(f"knows may, destination and namespace in rights of user {name!r}, not {min(unknown)!r}")
    said = table.get("may", ())
    try:
        may = frozenset(Verb(verb) for verb in ([said] if isinstance(said, str) else said))
        return Grant(may, str(table.get("destination", "*")), str(table.get("namespace", "default")))
    except (ValueError, TypeError) as error:
        raise ValueError(f"cannot use a right of user {name!r}: {error}; verbs are {', '.join(Verb)}") from None


def _grant_text(grant: Grant) -> str:
    may = ", ".join(_quote(verb.value) for verb in Verb if verb in grant.may)
    return f"{{ may = [{may}], destination = {_quote(grant.destination)}, namespace = {_quote(grant.namespace)} }}"


def _quote(text: str) -> str:
    """A TOML string. JSON's escapes are TOML's, but for DEL, which must be escaped there."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
