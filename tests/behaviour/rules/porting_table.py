"""The table of docs/porting-from-java.md, made from the code: this file, run as a program, writes it.

Names follow one rule (PY-01): Java's camelCase becomes snake_case, and JMS, JMSX, ID, UTF are words.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sievemq
import sievemq.aio

DOCUMENT = Path(__file__).parents[3] / "docs" / "porting-from-java.md"
BEGIN, END = "<!-- table: made from the code -->\n", "<!-- end of table -->\n"

#: Interfaces in the order of the specification; exceptions follow.
CLASSES = (
    "ConnectionFactory", "Connection", "Session", "JMSContext", "MessageProducer", "JMSProducer", "MessageConsumer",
    "JMSConsumer", "QueueBrowser", "Message", "TextMessage", "BytesMessage", "MapMessage", "StreamMessage",
    "ObjectMessage", "Queue", "Topic", "TemporaryQueue", "TemporaryTopic", "ConnectionMetaData", "MessageListener",
    "ExceptionListener", "CompletionListener", "QueueRequestor", "TopicRequestor", "QueueConnectionFactory",
    "QueueConnection", "QueueSession", "QueueSender", "QueueReceiver", "TopicConnectionFactory", "TopicConnection",
    "TopicSession", "TopicPublisher", "TopicSubscriber", "JMSException",
)  # fmt: skip

#: What Java does not have, or has under an overloaded name: Python name -> what stands in the Java column.
OVERLOADED = {
    ("JMSProducer", f"set_{kind}_property"): "setProperty" for kind in
    ("boolean", "byte", "short", "int", "long", "float", "double", "string", "object")
}  # fmt: skip
#: Python only.
ADDED = {
    ("MapMessage", "to_xml"),
    ("MapMessage", "from_xml"),
    ("StreamMessage", "to_xml"),
    ("StreamMessage", "from_xml"),
    ("MessageProducer", "set_send_timeout"),
    ("MessageProducer", "get_send_timeout"),
    ("JMSProducer", "set_send_timeout"),
    ("JMSProducer", "get_send_timeout"),
    ("JMSConsumer", "messages"),
    ("JMSContext", "request"),
    ("Message", "get_json"),
    ("MessageConsumer", "messages"),
}

#: Plain methods in both APIs; what is done with the result in asyncio.
RETURNS_AN_AWAITABLE = {
    ("Message", "acknowledge"): "may be awaited",
    ("QueueBrowser", "get_enumeration"): "async for",
    ("TemporaryQueue", "delete"): "await",
    ("TemporaryTopic", "delete"): "await",
}

_ACRONYMS = {"jms": "JMS", "jmsx": "JMSX", "id": "ID", "utf": "UTF"}


def java_name(name: str) -> str:
    """What a Python method is called in Java.

    >>> java_name("get_jms_correlation_id_as_bytes"), java_name("read_utf"), java_name("close")
    ('getJMSCorrelationIDAsBytes', 'readUTF', 'close')
    """
    first, *others = name.split("_")
    return first + "".join(_ACRONYMS.get(word, word.capitalize()) for word in others)


def methods(name: str) -> list[str]:
    """The methods that a class adds to those of its bases that are in the table themselves, in the code's order."""
    kind: type[Any] = getattr(sievemq, name)
    listed = {getattr(sievemq, other) for other in CLASSES} - {kind}
    inherited = {method for base in kind.__mro__ if base in listed for part in base.__mro__ for method in vars(part)}
    found: dict[str, None] = {}
    for base in kind.__mro__:
        if base.__module__.startswith("sievemq") and base not in listed:
            found |= {
                method: None
                for method, value in vars(base).items()
                if not method.startswith("_")
                and (inspect.isfunction(value) or isinstance(value, (classmethod, staticmethod)))
            }
    return [method for method in found if method not in inherited and (name, method) not in ADDED]


def signature(name: str, method: str) -> str:
    """A method with its parameters, as one would call it."""
    parameters = list(inspect.signature(getattr(getattr(sievemq, name), method)).parameters.values())[1:]
    shown = []
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            shown.append("…")
        elif parameter.kind is not parameter.VAR_KEYWORD:
            shown.append(parameter.name + ("=" if parameter.default is not parameter.empty else ""))
    return f"{method}({', '.join(shown)})"


def awaited(name: str, method: str) -> str:
    """What a call of it needs in ``sievemq.aio``."""
    if (name, method) in RETURNS_AN_AWAITABLE:
        return RETURNS_AN_AWAITABLE[name, method]
    kind = getattr(sievemq.aio, name, None) or getattr(sievemq, name)
    return "await" if inspect.iscoroutinefunction(inspect.unwrap(getattr(kind, method))) else ""


def rows() -> Iterator[tuple[str, str, str]]:
    """Java name, Python name, what asyncio adds: each class, then its methods."""
    for name in CLASSES:
        yield f"**{name}**", f"**{name}**", ""
        for method in methods(name):
            java = OVERLOADED.get((name, method)) or java_name(method)
            yield f"`{java}`", f"`{signature(name, method)}`", awaited(name, method)


def table() -> str:
    """The table, in Markdown."""
    lines = ["| Java | Python | asyncio |", "| --- | --- | --- |"]
    lines += [f"| {java} | {python} | {asyncio} |".replace("|  |", "| |") for java, python, asyncio in rows()]
    exceptions = sorted(
        name
        for name in sievemq.__all__
        if re.search("Exception$", name) and name not in (*CLASSES, "InvalidURLException")
    )
    lines += [f"| `{name}` | `{name}` | |" for name in exceptions]
    return "\n" + "\n".join(lines) + "\n\n"


def main() -> None:
    """Write the table into the document."""
    text = DOCUMENT.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    DOCUMENT.write_text(before + BEGIN + table() + END + rest.split(END)[1], encoding="utf-8")


if __name__ == "__main__":
    main()
