"""Saved contexts: a name for the URLs of a broker, a namespace and a user, in the user's folder for configuration.

What a command is given goes before the environment, the environment before the context, and that before the defaults.
A context's user and password go to that context's URLs alone.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, Literal, NoReturn

import typer

from sievemq.cli.exits import FAILED, NOT_FOUND, USAGE
from sievemq_core.harmless import harmless
from sievemq_core.output import complain
from sievemq_core.toml import parse_toml

_FILE: Final = "contexts.toml"
_HEAD: Final = "# Brokers that `sievemq context` has saved.\n\n"


@dataclass(frozen=True, slots=True)
class SavedContext:
    """A saved context; None for what it does not have.

    Attributes:
        url: of the wire port.
        http: of the management port.
        namespace: of commands on the management port.
        password: only if its storage was asked for.
    """

    url: str | None = None
    http: str | None = None
    namespace: str | None = None
    user: str | None = None
    password: str | None = None

    @property
    def variables(self) -> dict[str, str]:
        """What it has, by the variables of the environment that name the same."""
        named = {"SIEVEMQ_URL": self.url, "SIEVEMQ_HTTP_URL": self.http, "SIEVEMQ_NAMESPACE": self.namespace}
        return {name: value for name, value in named.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Contexts:
    """All that are saved.

    Attributes:
        current: name of the one that is used; None for none.
    """

    saved: Mapping[str, SavedContext]
    current: str | None = None


#: The one that the command line names; None for none.
_chosen: str | None = None

#: The user for whom no password was found. A broker without users needs none.
_without: str | None = None


def choose(name: str | None) -> None:
    """Use this context for the command that follows; None for the current one."""
    global _chosen
    _chosen = name


def path_of_contexts() -> Path:
    """The file of the contexts."""
    return Path(typer.get_app_dir("sievemq")) / _FILE


def read_contexts() -> Contexts:
    """The saved contexts; ends the command if the file cannot be used."""
    path = path_of_contexts()
    try:
        content = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Contexts({})
    except (OSError, UnicodeDecodeError) as error:
        end(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}", USAGE)

    try:
        return _parsed(parse_toml(content))
    except (ValueError, TypeError, AttributeError) as error:
        end(f"{path} is not as `sievemq context` writes it: {error}", USAGE)


def write_contexts(contexts: Contexts) -> None:
    """Write the file in one step, for its owner alone; ends the command if that is impossible."""
    import tomli_w

    tables = {name: {k: v for k, v in asdict(each).items() if v is not None} for name, each in contexts.saved.items()}
    content: dict[str, Any] = {"contexts": tables}
    if contexts.current is not None:
        content = {"current": contexts.current, **content}
    path = path_of_contexts().resolve()
    beside = path.with_name(f".{_FILE}.{secrets.token_hex(6)}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
                file.write(_HEAD + tomli_w.dumps(content))
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        end(f"{path} cannot be written: {error.strerror or error}", FAILED)


def name_in_effect(contexts: Contexts) -> str | None:
    """The name of the context that commands use; None for none."""
    if _chosen is not None:
        return _chosen
    named = os.environ.get("SIEVEMQ_CONTEXT")
    return contexts.current if named is None else named or None


def context_in_effect() -> SavedContext | None:
    """The context that commands use, None for none; ends the command if there is none of its name."""
    contexts = read_contexts()
    name = name_in_effect(contexts)
    return None if name is None else find(contexts, name)


def find(contexts: Contexts, name: str) -> SavedContext:
    """The context of this name; ends the command if there is none."""
    found = contexts.saved.get(name)
    if found is None:
        near = get_close_matches(name, contexts.saved, 1)
        hint = f"did you mean {near[0]!r}?" if near else "`sievemq context ls` lists them"
        end(f"there is no context {name!r}; {hint}", NOT_FOUND)
    return found


def credentials(
    user: str | None, kind: Literal["url", "http"], url: str, *, may_ask: bool = True
) -> tuple[str | None, str | None]:
    """User and password for a broker.

    Args:
        user: that the command names; None for that of the context.
        kind: of `url`.
        url: of the broker. Another one than the context's gets nothing of the context.
        may_ask: for a password at a terminal.
    """
    saved = context_in_effect()
    if saved is not None and getattr(saved, kind) != url:
        saved = None
    if user is None and saved is not None:
        user = saved.user
    if user is None:
        return None, None
    stored = saved.password if saved is not None and saved.user == user else None
    # What is named on the command line goes before the environment.
    password = stored if _chosen is not None and stored is not None else os.environ.get("SIEVEMQ_PASSWORD", stored)
    if password is None and may_ask and sys.stdin.isatty() and sys.stderr.isatty():
        password = typer.prompt(f"Password of {harmless(user)}", hide_input=True, err=True)
    global _without
    _without = user if password is None else None
    return user, password


def missing_password() -> str:
    """What a sign-in that was refused lacks, as the end of its error; empty if a password was given."""
    return "" if _without is None else f"; there is no password of {harmless(_without)}: set SIEVEMQ_PASSWORD"


def end(text: str, code: int) -> NoReturn:
    """End the command with an error."""
    complain(f"sievemq: {harmless(text)}")
    raise typer.Exit(code)


def _parsed(content: Mapping[str, Any]) -> Contexts:
    known = {field.name for field in fields(SavedContext)}
    saved = {}
    for name, table in content.get("contexts", {}).items():
        for key, value in table.items():
            if key not in known or not isinstance(value, str):
                raise ValueError(f"{key} of context {name!r}")
        saved[str(name)] = SavedContext(**table)
    current = content.get("current")
    if not isinstance(current, str | None):
        raise ValueError("current")  # noqa: TRY004  an error about the file
    return Contexts(saved, current)
