"""``sievemq receive``"""

from __future__ import annotations

import warnings
from enum import StrEnum
from typing import Annotated

import typer

from sievemq import JMSException, JMSSecurityException, Message, Queue, Session, TemporaryQueue, Topic
from sievemq.advice import SieveMQWarning
from sievemq.blocking import Session as OpenSession
from sievemq.cli.broker_access import connect, failures, missing, warned
from sievemq.cli.exits import FAILED, NOT_FOUND
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
from sievemq.cli.values import parse_duration
from sievemq.destinations import Destination
from sievemq_core.counted import counted
from sievemq_core.output import OutputError, complain, discard


class Ack(StrEnum):
    """Whether a printed message is acknowledged."""

    AUTO = "auto"
    NONE = "none"


def receive(
    destination: DestinationArgument,
    selector: SelectorOption = None,
    number: Annotated[int, typer.Option("--number", "-n", min=0, help="Messages to receive; 0 for no limit.")] = 1,
    wait: Annotated[str, typer.Option("--wait", "-w", help="Time to wait for each, such as 5s; 0 for no wait.")] = "5s",
    ack: Annotated[
        Ack,
        typer.Option("--ack", help="auto: what is printed is consumed; none: all return, marked as redelivered."),
    ] = Ack.AUTO,
    create: Annotated[bool, typer.Option("--create", help="Create the queue if it does not exist, and wait.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print headers and properties too.")] = False,
    as_json: JsonOption = False,
    url: UrlOption = DEFAULT_URL,
    user: UserOption = None,
) -> None:
    """Receive messages and print their bodies; from a topic, messages published from now on.

    A message is acknowledged after it is written. If the output cannot be written, the message and those behind it
    stay in the queue.

    Exit codes: 0 received as many as requested (with -n 0: at least one), 1 failed, 2 usage, 3 fewer arrived within the
    wait or there is no such queue, 4 selector or credentials refused.
    """
    milliseconds = parse_duration(wait)
    target = destination_of(destination)
    received = 0
    with failures(), connect(url, user) as connection, connection.create_session(Session.CLIENT_ACKNOWLEDGE) as session:
        if not create:
            _check_there(session, target, selector)
        with warned():
            consumer = session.create_consumer(target, selector)
        connection.start()
        while not number or received < number:
            # A timeout of 0 would wait for ever (§8.5).
            message = consumer.receive(milliseconds) if milliseconds else consumer.receive_no_wait()
            if message is None:
                break
            try:
                print_message(message, json_line=as_json, verbose=verbose)
            except OutputError as error:
                rest = "" if isinstance(target, Topic) else f"; the rest stays in {target}"
                complain(f"sievemq: {error}. Before, {counted(received, 'message', form=',')} received{rest}")
                discard()
                raise typer.Exit(FAILED) from None
            received += 1
            if ack is Ack.AUTO:
                _acknowledge(message)
    if received < max(number, 1):
        asked = "" if number <= 1 else f" of {number:,}"
        came = "nothing" if not received else counted(received, "message", form=",") + asked
        within = f" within {wait}" if milliseconds else ""
        complain(f"sievemq: {came} received from {target}{within}")
        raise typer.Exit(NOT_FOUND)


def _acknowledge(message: Message) -> None:
    try:
        message.acknowledge()
    except JMSException as error:
        if error.get_error_code() != "CONNECTION_LOST":
            raise
        # Repaired, if the URL has `reconnect`: otherwise the next receive fails.
        complain(f"sievemq: {message.get_jms_message_id()} is printed, and will be redelivered: {error}")


def _check_there(session: OpenSession, target: Destination, selector: str | None) -> None:
    """End the command if the destination is a queue that does not exist: receiving would make it."""
    if not isinstance(target, Queue) or isinstance(target, TemporaryQueue):
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SieveMQWarning)  # the consumer warns
            with session.create_browser(target, selector) as browser:
                wrong = missing(browser)
    except JMSSecurityException:
        return  # the user may consume and not browse
    if wrong is not None:
        stop = "" if wrong.endswith("?") else "."
        complain(f"sievemq: {harmless(wrong)}{stop} --create creates it and waits for messages")
        raise typer.Exit(NOT_FOUND)
