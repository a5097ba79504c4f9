"""Names of destinations."""

from __future__ import annotations

import re

import pytest

from sievemq_core.errors import AddressError
from sievemq_core.message.destination import foreign_notation, parse_address


@pytest.mark.parametrize(
    "char",
    ["\x00", "\x1b", "\x7f", "\x9b", "\u202e", "\u2066", "\u200f", "\u200b", "\ufeff", "\u2028", "\u2029", "\ud83d"],
)
def test_control_and_format_characters_are_refused(char: str) -> None:
    with pytest.raises(AddressError, match="control or format character") as refused:
        parse_address(f"queue:mal.{char}gpj.exe")
    assert refused.value.text.isprintable()


@pytest.mark.parametrize(
    "name", ["Börse", "الطلبات", "注文", "می\u200cخواهم", "👩\u200d🚀", "a\u00a0b", "\ue000", "a b:c/d"]
)
def test_names_of_every_script_are_allowed(name: str) -> None:
    assert parse_address(f"queue:{name}").name == name


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("topic:prices.>", "no pattern: consumers have no wildcards"),
        ("prices.*", "no pattern"),
        ("#", "no pattern"),
        ("orders?consumer.prefetchSize=1", "write queue:orders, and"),
        ("topic:prices?consumer.retroactive=true&a=b,c", "write topic:prices, and"),
        ("?timeout=1", "leave them out"),
        ("a,b", "is one name"),
        ("queue://A,topic://B", "write queue:A,topic://B"),
        ("queue://orders", "write queue:orders$"),
        ("/queue/orders", "write queue:orders$"),
        ("/topic/prices", "write topic:prices$"),
        ("/amq/queue/orders", "write queue:orders$"),
        ("/queues/orders", "write queue:orders$"),
        ("/exchange/amq.topic/prices.#", "there are no exchanges"),
        ("/dsub/mine", "durable subscription 'mine'"),
    ],
)
def test_names_as_other_brokers_write_them_have_advice(text: str, advice: str) -> None:
    found = foreign_notation(parse_address(text))
    assert found is not None
    assert re.search(advice, found[0])
    assert found[1] == ("no pattern" in advice)


@pytest.mark.parametrize(
    "text",
    [
        "orders", "topic:prices/eu", "what?", "a?b", "Smith, John", ",a", "urn:x", "/orders", "/queue/", "//", "c#",
        "topic:/queue/x", "temporary-queue:a,b", "temporary-topic:c.*", "queue:queue:orders", "DLQ.orders",
    ],
)  # fmt: skip
def test_other_names_have_none(text: str) -> None:
    assert foreign_notation(parse_address(text)) is None
