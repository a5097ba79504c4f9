"""The message that `send`, `request` and `bench` send: its options, and making it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from sievemq import BytesMessage, DeliveryMode, Message, TextMessage
from sievemq.blocking import MessageProducer
from sievemq.cli.exits import USAGE
from sievemq.cli.values import parse_duration, parse_property
from sievemq_core.output import complain

BodyArgument = Annotated[str | None, typer.Argument(metavar="BODY", help="Text; - reads the standard input.")]
FileOption = Annotated[
    Path | None, typer.Option("--file", "-f", help="Take the body from a file; - reads the standard input.")
]
BytesOption = Annotated[bool, typer.Option("--bytes", help="Send a BytesMessage instead of a TextMessage.")]
PropertiesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--property",
        "-p",
        metavar="NAME=VALUE[:TYPE]",
        help="A property; repeatable. TYPE is boolean, byte, short, int, long, float, double or string; "
        "without it, numbers, true and false get the type they look like.",
    ),
]
PriorityOption = Annotated[int, typer.Option("--priority", min=0, max=9, help="JMSPriority.")]
LifeOption = Annotated[
    str, typer.Option("--ttl", help="Time to live, such as 30s or 5m (a bare number: seconds); 0 for no limit.")
]
NonPersistentOption = Annotated[bool, typer.Option("--non-persistent", help="JMSDeliveryMode NON_PERSISTENT.")]
TypeOption = Annotated[str | None, typer.Option("--type", help="JMSType.")]
CorrelationOption = Annotated[str | None, typer.Option("--correlation-id", help="JMSCorrelationID.")]


class Outgoing(NamedTuple):
    """Options: a message."""

    body: BodyArgument = None
    file: FileOption = None
    as_bytes: BytesOption = False
    properties: PropertiesOption = None
    priority: PriorityOption = 4
    ttl: LifeOption = "0"
    non_persistent: NonPersistentOption = False
    jms_type: TypeOption = None
    correlation_id: CorrelationOption = None

    def check(self) -> None:
        """End the command if an option is wrong, before a connection is made."""
        parse_duration(self.ttl)
        for text in self.properties or ():
            parse_property(text)

    def message(self) -> Message:
        """The message; ends the command if its body cannot be read."""
        message = _message(_content(self.body, self.file), self.as_bytes)
        for text in self.properties or ():
            message.set_object_property(*parse_property(text))
        message.set_jms_type(self.jms_type)
        message.set_jms_correlation_id(self.correlation_id)
        return message

    def prepare(self, producer: MessageProducer) -> None:
        """Set what a producer decides."""
        producer.set_priority(self.priority)
        producer.set_time_to_live(parse_duration(self.ttl))
        producer.set_delivery_mode(DeliveryMode.NON_PERSISTENT if self.non_persistent else DeliveryMode.PERSISTENT)


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
