"""``sievemq request``"""

from __future__ import annotations

from time import monotonic
from typing import Annotated

import typer

from sievemq import Session
from sievemq.cli.broker_access import connect, failures
from sievemq.cli.exits import NOT_FOUND
from sievemq.cli.grouping import grouped
from sievemq.cli.options import DEFAULT_URL, DestinationArgument, JsonOption, UrlOption, UserOption, destination_of
from sievemq.cli.outgoing import Outgoing
from sievemq.cli.send import Reporter
from sievemq.cli.show import print_message
from sievemq.cli.values import parse_duration
from sievemq_core.counted import counted
from sievemq_core.output import complain


@grouped
def request(
    destination: DestinationArgument,
    outgoing: Outgoing,
    *,
    wait: Annotated[
        str, typer.Option("--wait", "-w", help="Time to wait for the replies, such as 5s; 0: no limit.")
    ] = "5s",
    number: Annotated[int, typer.Option("--number", "-n", min=1, help="Replies to wait for, as of a topic.")] = 1,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print headers and properties too.")] = False,
    as_json: JsonOption = False,
    url: UrlOption = DEFAULT_URL,
    user: UserOption = None,
) -> None:
    """Send a request, wait for its reply and print it.

    The reply is sent to JMSReplyTo, a temporary queue of this command, which ends with it.

    Exit codes: 0 replied, 1 failed, 2 usage, 3 no reply within the wait or no such destination, 4 credentials refused.
    """
    outgoing.check()
    milliseconds = parse_duration(wait)
    target = destination_of(destination)
    received = 0
    with failures():
        message = outgoing.message()
        with connect(url, user) as connection, connection.create_session(Session.AUTO_ACKNOWLEDGE) as session:
            connection.set_exception_listener(Reporter())
            replies = session.create_temporary_queue()
            consumer = session.create_consumer(replies)
            connection.start()
            message.set_jms_reply_to(replies)
            producer = session.create_producer(target)
            outgoing.prepare(producer)
            producer.send(message)
            ends = monotonic() + milliseconds / 1000
            while received < number:
                left = max(1, round((ends - monotonic()) * 1000)) if milliseconds else 0
                reply = consumer.receive(left)
                if reply is None:
                    break
                received += 1
                print_message(reply, json_line=as_json, verbose=verbose)
    if received < number:
        came = "no reply" if not received else f"{counted(received, 'reply', many='replies')} of {number:,}"
        complain(f"sievemq: {came} from {target} within {wait}")
        raise typer.Exit(NOT_FOUND)
