"""``sievemq send``"""

from __future__ import annotations

import json
from typing import Annotated

import typer

from sievemq import JMSException, Session
from sievemq.blocking import Session as OpenSession
from sievemq.cli.broker_access import connect, failures
from sievemq.cli.grouping import grouped
from sievemq.cli.options import DEFAULT_URL, DestinationArgument, JsonOption, UrlOption, UserOption, destination_of
from sievemq.cli.outgoing import Outgoing
from sievemq.cli.show import harmless
from sievemq.cli.values import parse_duration
from sievemq.destinations import Destination
from sievemq_core.counted import counted
from sievemq_core.output import OutputError, complain, report, show

#: Messages per transaction: large enough that its round trip does not matter, small enough to show progress.
_BATCH = 1_000


@grouped
def send(
    destination: DestinationArgument,
    outgoing: Outgoing,
    *,
    count: Annotated[int, typer.Option("--count", min=1, help="Number of copies to send.")] = 1,
    delay: Annotated[str, typer.Option("--delay", help="Delivery delay, such as 30s (a bare number: seconds).")] = "0",
    reply_to: Annotated[str | None, typer.Option("--reply-to", metavar="DEST", help="JMSReplyTo.")] = None,
    ids: Annotated[
        bool, typer.Option("--ids", help="With --count: print the id of each message instead of their number.")
    ] = False,
    as_json: JsonOption = False,
    url: UrlOption = DEFAULT_URL,
    user: UserOption = None,
) -> None:
    """Send a message and print its id; or send several copies, and print how many.

    If a limit blocks the send, the command reports that on standard error and waits, without a limit or for the
    milliseconds in the URL: ?send_timeout=5000.

    Exit codes: 0 sent, even if the ids cannot be printed; 1 not sent (a failing batch of a thousand is rolled back),
    2 usage, 3 the destination does not exist, 4 credentials refused.
    """
    outgoing.check()
    delivery_delay = parse_duration(delay)
    target = destination_of(destination)
    answer_to = destination_of(reply_to) if reply_to is not None else None
    with failures():
        message = outgoing.message()
        message.set_jms_reply_to(answer_to)
        with connect(url, user) as connection, connection.create_session(Session.SESSION_TRANSACTED) as session:
            connection.set_exception_listener(Reporter())
            producer = session.create_producer(target)
            outgoing.prepare(producer)
            producer.set_delivery_delay(delivery_delay)
            done = 0
            listed = count == 1 or ids
            unprinted: OutputError | None = None
            try:
                while done < count:
                    sent = []
                    for _ in range(min(count - done, _BATCH)):
                        producer.send(message)
                        sent.append(message.get_jms_message_id())
                    commit(session, len(sent))
                    done += len(sent)
                    if listed and unprinted is None:
                        try:
                            show("\n".join(_line(message_id, target, as_json) for message_id in sent))
                        except OutputError as error:
                            unprinted = error  # the sending goes on
            finally:
                summary = f"{counted(done, 'message', form=',')} sent to {target}"
                if unprinted is not None:
                    which = f": {harmless(str(sent[0]))}" if count == 1 else ""
                    complain(f"sievemq: {unprinted}. {summary}{which}")
                elif done and not listed:
                    report(json.dumps({"messages": done, "destination": str(target)}) if as_json else summary)


def commit(session: OpenSession, messages: int) -> None:
    """Commit so many sent messages; an interruption leaves open whether it has."""
    try:
        session.commit()
    except KeyboardInterrupt:
        last = counted(messages, "message", form=",")
        complain(f"sievemq: interrupted: the last {last} may be sent or not")
        raise


def _line(message_id: str | None, target: Destination, as_json: bool) -> str:
    line = {"message_id": message_id, "destination": str(target)}
    return json.dumps(line) if as_json else harmless(str(message_id))


class Reporter:
    """Prints a line while a command waits."""

    def on_exception(self, exception: JMSException) -> None:
        complain(f"sievemq: {exception}")

    def on_blocked(self, destination: str | None, reason: str) -> None:
        complain(f"sievemq: waiting for room: {reason}")
