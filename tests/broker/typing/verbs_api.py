"""What a type checker must infer from the broker's commands, and what it must refuse. Never run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, assert_type

from sievemq_broker.protocols.foreign import ForeignConnection
from sievemq_broker.session import verbs
from sievemq_broker.session.handlers.consumers import on_open_consumer
from sievemq_broker.session.ports import ClientPort
from sievemq_broker.session.table import _row


def fields_have_types(command: verbs.OpenConsumer, settle: verbs.Settle, welcome: verbs.Welcome) -> None:
    assert_type(command.request, int)
    assert_type(command.selector, str | None)
    assert_type(command.no_local, bool)
    assert_type(command.tag, int)
    assert_type(settle.tags, Sequence[int])
    assert_type(welcome.real, int)
    assert_type(verbs.Ping(request=1).request, int)
    command.credit = 1  # type: ignore[misc]
    command.prefetch  # type: ignore[attr-defined]  # noqa: B018
    _row(verbs.OpenConsumer, on_open_consumer)
    _row(verbs.CloseConsumer, on_open_consumer)  # type: ignore[arg-type]


def swapped_fields(selector: str | None, durable: str | None, no_local: bool, address: str) -> None:
    verbs.OpenConsumer(
        request=1,
        session=1,
        consumer=2,
        destination=address,
        selector=selector,
        dialect=None,
        no_local=durable,  # type: ignore[arg-type]
        subscription=no_local,  # type: ignore[arg-type]
        durable=durable is not None,
        shared=False,
        credit=10,
    )
    verbs.CreateTemporary(request=1, topic=address, destination=no_local)  # type: ignore[arg-type]
    verbs.Hello(namespace=selector, user=address, password=None, client_id=None, agent="")  # type: ignore[arg-type]
    verbs.send(session=1, sequence=1, destination=(), envelope=address)  # type: ignore[arg-type]


def fields_by_position(selector: str | None) -> None:
    """Of the same type, they could change places unseen."""
    verbs.Browse(1, "queue:q", None, selector, None, 1)  # type: ignore[call-arg]
    verbs.Settle(1, (2,), 1, 0)  # type: ignore[call-arg]
    verbs.acknowledge(1, 2, 3)  # type: ignore[call-arg]
    verbs.credit(1, 2)  # type: ignore[call-arg]


def missing_and_unknown_fields() -> None:
    verbs.CloseConsumer(request=1, consumer=2)  # type: ignore[call-arg]
    verbs.Want(request=1, consumer=2, credit=3)  # type: ignore[call-arg]


def tuples_without_names(door: ForeignConnection[Any, Any], out: ClientPort) -> None:
    door._do(0, (28, 1, 2))  # type: ignore[arg-type]
    door._ask(0, lambda _: None, (28, 1, 2))  # type: ignore[arg-type]
    door._ask(0, lambda _: None, verbs.Release(consumer=1, tags=()))  # type: ignore[arg-type]
    out.welcome({"clock_offset": 0})  # type: ignore[arg-type]
