"""``sievemq browse``"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from itertools import islice
from typing import Annotated

import typer

from sievemq import Message, Queue
from sievemq.cli.broker_access import connect, failures, missing, warned
from sievemq.cli.exits import NOT_FOUND, USAGE
from sievemq.cli.follow import arriving
from sievemq.cli.options import (
    DEFAULT_URL,
    DestinationArgument,
    JsonOption,
    SelectorOption,
    UrlOption,
    UserOption,
    destination_of,
)
from sievemq.cli.show import harmless, print_message
from sievemq_core.output import complain


def browse(
    destination: DestinationArgument,
    selector: SelectorOption = None,
    number: Annotated[int, typer.Option("--number", "-n", min=0, help="Messages to show; 0 for all.")] = 0,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print headers and properties too.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with each message that arrives, until Ctrl-C or --number.")
    ] = False,
    as_json: JsonOption = False,
    url: UrlOption = DEFAULT_URL,
    user: UserOption = None,
) -> None:
    """Print the waiting messages of a queue, in order, without removing them. The whole queue is searched.

    With --follow they are printed in order of arrival, and then each new one, also if a consumer takes it at once. Of a
    topic those are printed that are published from now on.

    Exit codes: 0 done (an empty queue too), 1 failed, 2 usage, 3 no such queue, 4 selector or credentials refused.
    """
    queue = destination_of(destination)
    if not isinstance(queue, Queue):
        if not follow:
            complain(f"sievemq: {queue} is a topic; --follow shows what is published from now on")
            raise typer.Exit(USAGE)
        with failures(), connect(url, user) as connection, closing(arriving(connection, queue, selector)) as messages:
            _print(messages, number, verbose, as_json)
        return
    with failures(), connect(url, user) as connection, connection.create_session() as session:
        with warned():
            browser = session.create_browser(queue, selector)
        if (wrong := missing(browser)) is not None:
            complain(f"sievemq: {harmless(wrong)}")
            raise typer.Exit(NOT_FOUND)
        if follow:
            with closing(arriving(connection, queue, selector)) as messages:
                _print(messages, number, verbose, as_json)
        else:
            _print(browser.get_enumeration(), number, verbose, as_json)


def _print(messages: Iterable[Message], number: int, verbose: bool, as_json: bool) -> None:
    for message in islice(messages, number or None):
        print_message(message, json_line=as_json, verbose=verbose)
