"""``sievemq move``, ``copy``, ``delete``: messages chosen by selector or id."""

from __future__ import annotations

from typing import Annotated

import typer

from sievemq.cli.broker_access import SelectorOption, UserOption
from sievemq.cli.exits import USAGE
from sievemq.cli.manage.access import DEFAULT_HTTP, Api, HttpOption, NamespaceOption, address_of
from sievemq.cli.manage.actions import (
    ClientIdOption,
    DryRunOption,
    IdOption,
    JsonOption,
    LimitOption,
    SubscriptionOption,
    YesOption,
    act,
)

__all__ = ["copy", "delete", "move"]

SourceArgument = Annotated[
    str, typer.Argument(metavar="FROM", help="queue:NAME, or NAME; or a topic with --subscription.")
]
TargetArgument = Annotated[str, typer.Argument(metavar="TO", help="queue:NAME, topic:NAME, or NAME of a queue.")]


def move(
    source: SourceArgument,
    target: TargetArgument,
    selector: SelectorOption = None,
    ids: IdOption = None,
    most: LimitOption = 0,
    subscription: SubscriptionOption = None,
    client_id: ClientIdOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    namespace: NamespaceOption = "default",
    as_json: JsonOption = False,
    http: HttpOption = DEFAULT_HTTP,
    user: UserOption = None,
) -> None:
    """Move waiting messages to another destination, in order. What is in flight stays."""
    origin, to = address_of(source), address_of(target)
    act(
        Api(http, user, namespace),
        origin,
        "move",
        {"to": to, "selector": selector, "ids": ids, "subscription": subscription, "client_id": client_id},
        most=most,
        dry_run=dry_run,
        yes=yes,
        as_json=as_json,
        past="moved",
        question=f"Move {{}} messages from {origin} to {to}?",
    )


def copy(
    source: SourceArgument,
    target: TargetArgument,
    selector: SelectorOption = None,
    ids: IdOption = None,
    most: LimitOption = 0,
    subscription: SubscriptionOption = None,
    client_id: ClientIdOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    namespace: NamespaceOption = "default",
    as_json: JsonOption = False,
    http: HttpOption = DEFAULT_HTTP,
    user: UserOption = None,
) -> None:
    """Copy waiting messages to another destination, in order; they stay where they are as well."""
    origin, to = address_of(source), address_of(target)
    act(
        Api(http, user, namespace),
        origin,
        "copy",
        {"to": to, "selector": selector, "ids": ids, "subscription": subscription, "client_id": client_id},
        most=most,
        dry_run=dry_run,
        yes=yes,
        as_json=as_json,
        past="copied",
        question=f"Copy {{}} messages from {origin} to {to}?",
        whole=True,
    )


def delete(
    source: SourceArgument,
    selector: SelectorOption = None,
    ids: IdOption = None,
    most: LimitOption = 0,
    subscription: SubscriptionOption = None,
    client_id: ClientIdOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    namespace: NamespaceOption = "default",
    as_json: JsonOption = False,
    http: HttpOption = DEFAULT_HTTP,
    user: UserOption = None,
) -> None:
    """Delete waiting messages, chosen by selector or id. (`queue purge` empties a queue, `queue delete` removes it.)"""
    origin = address_of(source)
    if selector is None and not ids:
        typer.echo(f"sievemq: say which messages, with --selector or --id; or: sievemq queue purge {source}", err=True)
        raise typer.Exit(USAGE)
    act(
        Api(http, user, namespace),
        origin,
        "delete",
        {"selector": selector, "ids": ids, "subscription": subscription, "client_id": client_id},
        most=most,
        dry_run=dry_run,
        yes=yes,
        as_json=as_json,
        past="deleted",
        question=f"Delete {{}} messages from {origin}?",
    )
