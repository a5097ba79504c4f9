"""``sievemq context …``: one name for the URLs of a broker, a namespace and a user."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Annotated, Any
from urllib.parse import urlencode

import typer

from sievemq._management import DEFAULT_HTTP_PORT
from sievemq.cli.contexts import (
    Contexts,
    SavedContext,
    end,
    find,
    name_in_effect,
    path_of_contexts,
    read_contexts,
    write_contexts,
)
from sievemq.cli.exits import FAILED, USAGE
from sievemq.cli.manage.output import Columns, print_rows
from sievemq.cli.management_url import split_http
from sievemq.cli.options import JsonOption
from sievemq.exceptions import InvalidURLException
from sievemq.url import BrokerURL, parse_url
from sievemq_core.harmless import harmless
from sievemq_core.output import report

context = typer.Typer(help="Saved names for brokers: add, use, ls, rm.", no_args_is_help=True)

_COLUMNS: Columns = {
    "": lambda row: "*" if row["in_use"] else "",
    "context": lambda row: row["name"],
    "url": lambda row: row["url"] or "",
    "http": lambda row: row["http"] or "",
    "namespace": lambda row: row["namespace"] or "",
    "user": lambda row: row["user"] or "",
    "password": lambda row: "stored" if row["password_stored"] else "",
}


def _names(incomplete: str) -> list[str]:
    return [name for name in read_contexts().saved if name.startswith(incomplete)]


NewArgument = Annotated[str, typer.Argument(metavar="NAME", help="Its name.")]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Its name.", autocompletion=_names)]


@context.command()
def add(
    name: NewArgument,
    url: Annotated[str | None, typer.Option("--url", "-u", help="The broker: sievemq://HOST:PORT/NAMESPACE.")] = None,
    http: Annotated[
        str | None, typer.Option("--http", help="Its management port; by default port 7680 of the host in --url.")
    ] = None,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-N", help="Its namespace; by default that of --url.")
    ] = None,
    user: Annotated[str | None, typer.Option("--user", help="User name.")] = None,
    store_password: Annotated[
        bool,
        typer.Option(
            "--store-password",
            help="Store the user's password in plain in the file, which only you can read. It is read from a prompt, "
            "or as one line from standard input.",
        ),
    ] = False,
    replace_it: Annotated[bool, typer.Option("--replace", help="Replace the context of that name.")] = False,
) -> None:
    """Save a context. The first one is used at once; `context use` changes to another one.

    No password is stored without --store-password: commands take it from SIEVEMQ_PASSWORD, or ask for it at a terminal.
    """
    if not name or not name.isprintable() or name.startswith("-"):
        end(f"{name!r:.80} cannot name a context", USAGE)
    contexts = read_contexts()
    if name in contexts.saved and not replace_it:
        end(f"there is a context {name!r} already; --replace replaces it", FAILED)
    made = _made(url, http, namespace, user)
    if store_password:
        if made.user is None:
            end("--store-password needs --user", USAGE)
        made = replace(made, password=_ask_password(made.user))
    current = contexts.current if contexts.saved else name
    write_contexts(Contexts({**contexts.saved, name: made}, current))
    report(f"{harmless(name)} is saved in {path_of_contexts()}{' and used' if current == name else ''}")


@context.command()
def use(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Its name.", autocompletion=_names, show_default=False)
    ] = None,
    none: Annotated[bool, typer.Option("--none", help="Use no context.")] = False,
) -> None:
    """Use a context from now on. SIEVEMQ_CONTEXT and `sievemq --context NAME …` name another one for one command."""
    if (name is None) != none:
        end("name a context, or --none", USAGE)
    contexts = read_contexts()
    if name is not None:
        find(contexts, name)
    write_contexts(Contexts(contexts.saved, name))
    report("no context is used" if name is None else f"{harmless(name)} is used")


@context.command("ls")
def list_contexts(as_json: JsonOption = False) -> None:
    """List the saved contexts, without passwords; * marks the one that is used."""
    contexts = read_contexts()
    used = name_in_effect(contexts)
    rows = [_row(name, each, name == used) for name, each in sorted(contexts.saved.items())]
    print_rows(
        rows, _COLUMNS, as_json, "no contexts; `sievemq context add` saves one", seldom=("namespace", "password")
    )


@context.command()
def rm(name: NameArgument) -> None:
    """Remove a context."""
    contexts = read_contexts()
    find(contexts, name)
    left = {other: each for other, each in contexts.saved.items() if other != name}
    write_contexts(Contexts(left, None if contexts.current == name else contexts.current))
    report(f"{harmless(name)} is removed")


def _made(url: str | None, http: str | None, namespace: str | None, user: str | None) -> SavedContext:
    if url is None and http is None:
        end("name the broker with --url, --http or both", USAGE)
    if url is not None:
        try:
            parsed = parse_url(url)
        except InvalidURLException as error:
            end(f"--url: {error}", USAGE)
        if parsed.password is not None:
            end("the URL holds a password; name --user, and --store-password if it is to be stored", USAGE)
        http, namespace, user = http or _http_of(parsed), namespace or parsed.namespace or None, user or parsed.user
    assert http is not None
    split_http(http)
    return SavedContext(url, http, namespace, user)


def _http_of(url: BrokerURL) -> str:
    """The management port at the first host of a broker's URL, with the same certificates."""
    host = url.hosts[0][0]
    place = f"{'https' if url.secure else 'http'}://{f'[{host}]' if ':' in host else host}:{DEFAULT_HTTP_PORT}"
    files = {name: value for name in ("tls_ca", "tls_cert", "tls_key") if (value := getattr(url.options, name))}
    options = {**files, **({} if url.options.tls_verify else {"tls_verify": "false"})} if url.secure else {}
    return f"{place}?{urlencode(options)}" if options else place


def _ask_password(user: str) -> str:
    if sys.stdin.isatty():
        given: str = typer.prompt(f"Password of {harmless(user)}", hide_input=True, err=True)
    else:
        given = sys.stdin.readline().rstrip("\r\n")
    if not given:
        end("no password was given", USAGE)
    return given


def _row(name: str, saved: SavedContext, used: bool) -> dict[str, Any]:
    return {
        "name": name,
        "in_use": used,
        "url": saved.url,
        "http": saved.http,
        "namespace": saved.namespace,
        "user": saved.user,
        "password_stored": saved.password is not None,
    }
