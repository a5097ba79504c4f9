"""``sievemq send``"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from sievemq import BytesMessage, DeliveryMode, JMSException, Message, Session, TextMessage
from sievemq.cli.broker_access import (
    DEFAULT_URL,
    DestinationArgument,
    JsonOption,
    UrlOption,
    UserOption,
    connect,
    destination_of,
    failures,
)
from sievemq.cli.exits import USAGE
from sievemq.cli.show import harmless
from sievemq.cli.values import parse_duration, parse_property
from sievemq.destinations import Destination
from sievemq_core.counted import counted
from sievemq_core.output import OutputError, complain, report, show

#: Messages per transaction: large enough that its round trip does not matter, small enough to show progress.
_BATCH = 1_000


def send(
    destination: DestinationArgument,
    body: Annotated[str | None, typer.Argument(metavar="BODY", help="Text; - reads the standard input.")] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Take the body from a file; - reads the standard input.")
    ] = None,
    as_bytes: Annotated[bool, typer.Option("--bytes", help="Send a BytesMessage instead of a TextMessage.")] = False,
    properties: Annotated[
        list[str] | None,
        typer.Option(
            "--property",
            "-p",
            metavar="NAME=VALUE[:TYPE]",
            help="A property; repeatable. TYPE is boolean, byte, short, int, long, float, double or string; "
            "without it, numbers, true and false get the type they look like.",
        ),
    ] = None,
    count: Annotated[int, typer.Option("--count", min=1, help="Number of copies to send.")] = 1,
    priority: Annotated[int, typer.Option("--priority", min=0, max=9, help="JMSPriority.")] = 4,
    ttl: Annotated[
        str, typer.Option("--ttl", help="Time to live, such as 30s or 5m (a bare number: seconds); 0 for no limit.")
    ] = "0",
    delay: Annotated[str, typer.Option("--delay", help="Delivery delay, such as 30s (a bare number: seconds).")] = "0",
    non_persistent: Annotated[bool, typer.Option("--non-persistent", help="JMSDeliveryMode NON_PERSISTENT.")] = False,
    jms_type: Annotated[str | None, typer.Option("--type", help="JMSType.")] = None,
    correlation_id: Annotated[str | None, typer.Option("--correlation-id", help="JMSCorrelationID.")] = None,
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
    content = _content(body, file)
    values = [parse_property(text) for text in properties or ()]
    time_to_live, delivery_delay = parse_duration(ttl), parse_duration(delay)
    target = destination_of(destination)
    answer_to = destination_of(reply_to) if reply_to is not None else None
    with failures():
        message = _message(content, as_bytes)
        for name, value in values:
            message.set_object_property(name, value)
        message.set_jms_type(jms_type)
        message.set_jms_correlation_id(correlation_id)
        message.set_jms_reply_to(answer_to)
        with connect(url, user) as connection, connection.create_session(Session.SESSION_TRANSACTED) as session:
            connection.set_exception_listener(_Reporter())
            producer = session.create_producer(target)
            producer.set_priority(priority)
            producer.set_time_to_live(time_to_live)
            producer.set_delivery_delay(delivery_delay)
            producer.set_delivery_mode(DeliveryMode.NON_PERSISTENT if non_persistent else DeliveryMode.PERSISTENT)
            done = 0
            listed = count == 1 or ids
            unprinted: OutputError | None = None
            try:
                while done < count:
                    sent = []
                    for _ in range(min(count - done, _BATCH)):
                        producer.send(message)
                        sent.append(message.get_jms_message_id())
                    try:
                        session.commit()
                    except KeyboardInterrupt:
                        last = counted(len(sent), "message", form=",")
                        complain(f"sievemq: interrupted: the last {last} may be sent or not")
                        raise
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


def _line(message_id: str | None, target: Destination, as_json: bool) -> str:
    line = {"message_id": message_id, "destination": str(target)}
    return json.dumps(line) if as_json else harmless(str(message_id))


class _Reporter:
    """Prints a line while the command waits."""

    def on_exception(self, exception: JMSException) -> None:
        complain(f"sievemq: {exception}")

    def on_blocked(self, destination: str | None, reason: str) -> None:
        complain(f"sievemq: waiting for room: {reason}")


def _content(body: str | None, file: Path | None) -> bytes | None:
    if body is not None and file is not None:
        complain("sievemq: the body is given twice; remove the argument or --file")
        raise typer.Exit(USAGE)
    is_input = body == "-" or (file is not None and str(file) == "-")
    if file is not None or is_input:
        try:
            return sys.stdin.buffer.read() if is_input or file is None else file.read_bytes()
        except OSError as error:
            name = "the standard input" if is_input else file
            complain(f"sievemq: {name} cannot be read: {error.strerror or error}")
            raise typer.Exit(USAGE) from None
    return None if body is None else body.encode("utf-8", "surrogateescape")


def _message(content: bytes | None, as_bytes: bool) -> Message:
    if as_bytes:
        return BytesMessage(content or b"")
    if content is None:
        return Message()
    try:
        return TextMessage(content.decode("utf-8"))
    except UnicodeDecodeError as error:
        complain(f"sievemq: the body is not UTF-8 text (byte {error.start}); --bytes sends it unchanged")
        raise typer.Exit(USAGE) from None
