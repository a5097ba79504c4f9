"""The handlers of the verbs about consumers."""

from __future__ import annotations

from functools import partial

from sievemq_broker.session.checks import (
    check_identifier,
    the_selector,
    too_much_credit,
    undelivered,
    unknown,
)
from sievemq_broker.session.peer import Peer
from sievemq_broker.session.session import Session
from sievemq_broker.session.verbs import CloseConsumer, OpenConsumer, Release, Want
from sievemq_core.errors import ErrorCode, RequestError
from sievemq_core.limits import MAX_CREDIT
from sievemq_core.wire.codec import CommandTuple

_MAX_CONSUMER_ID = 2**32 - 1  # the width of a DELIVER's head
_LAST_FIRST_TAG = 2**62  # leaves more than can ever be delivered
_MAX_WANTS = 100  # a client waits once per consumer and thread; more are an error


def on_open_consumer(peer: Peer, command: OpenConsumer, now: int) -> None:
    """Open a consumer. Everything is verified before anything is created (SES-20, SES-34)."""
    consumer_id, credit, tag = command.consumer, command.credit, command.tag
    subscription, durable, shared = command.subscription, command.durable, command.shared
    if consumer_id > _MAX_CONSUMER_ID:
        raise RequestError(f"a consumer's id has 32 bits; {consumer_id} does not fit", ErrorCode.ILLEGAL_STATE)
    peer.deliveries.claim(consumer_id)
    session = peer.session(command.session)
    if consumer_id in peer.deliveries.consumers:
        raise RequestError(f"consumer {consumer_id} is open already; ids are not reused", ErrorCode.ILLEGAL_STATE)
    limit = peer.settings.max_consumers
    if len(session.consumers) >= limit:
        raise RequestError(
            f"a session may have {limit} consumers; close unused ones",
            ErrorCode.RESOURCE_ALLOCATION,
            {"limit": "max_consumers"},
        )
    if credit > MAX_CREDIT:
        raise RequestError(f"a consumer may have a credit of {MAX_CREDIT}, not {credit}", ErrorCode.RESOURCE_ALLOCATION)
    if tag > _LAST_FIRST_TAG:
        raise RequestError(f"tags cannot begin behind {tag}: they have 64 bits", ErrorCode.ILLEGAL_STATE)
    compiled = the_selector(command.selector, command.dialect, peer.settings.dialect)
    if subscription is not None:
        check_identifier("a subscription's name", subscription)
    elif durable or shared:
        raise RequestError("a durable or shared consumer needs a subscription name", ErrorCode.ILLEGAL_STATE)
    consumer = peer.namespace.open_consumer(
        peer.out,
        consumer_id,
        command.destination,
        compiled,
        connection=peer.member.id,
        client_id=peer.member.client_id,
        no_local=command.no_local,
        subscription=subscription,
        durable=durable,
        shared=shared,
        credit=0,
        now=now,
        request=(peer.member.id, command.request),
    )
    if tag:
        consumer.go_on_behind(tag)
    if command.bytes:
        consumer.limit_bytes(command.bytes)
    peer.deliveries.add(session, consumer)
    peer.out.answer(command.request)
    if compiled is not None:
        peer.services.advise(peer, command.destination, compiled)
    # After the answer, so that no client gets a delivery for a consumer that it does not know.
    if credit:
        consumer.grant(credit, now)


def on_close_consumer(peer: Peer, command: CloseConsumer, now: int) -> None:
    """Close a consumer. Messages that the application has stay with the session (MCO-09), the others go back
    (MCO-10)."""
    consumer_id, handed = command.consumer, command.handed
    consumer = peer.deliveries.consumers.get(consumer_id)
    if consumer is None or consumer_id in peer.deliveries.retired:
        if consumer_id > peer.deliveries.highest:
            raise unknown("consumer", consumer_id)
        if command.request:
            peer.out.answer(command.request)  # the broker closed it first (CLO-01)
        return
    if handed > consumer.tag:
        raise undelivered(consumer_id, handed, consumer.tag)
    peer.close_consumer(consumer, handed, command, now)


def on_credit(peer: Peer, command: CommandTuple, now: int) -> None:
    """Grant credit."""
    _, consumer_id, credit, instead = command
    consumer = peer.deliveries.consumers.get(consumer_id)
    if consumer is None:
        peer.deliveries.check_once_open(consumer_id)
        return
    if credit > MAX_CREDIT:
        raise too_much_credit(consumer_id, credit)
    if instead:
        consumer.halt()
    if credit:
        consumer.grant(credit, now)


def on_want(peer: Peer, command: Want, now: int) -> None:
    """A caller waits at an empty buffer (D-23). The answer is sent now, or when the domain calls `settled`."""
    request, consumer_id = command.request, command.consumer
    consumer = peer.deliveries.consumers.get(consumer_id)
    if consumer is None or consumer_id in peer.deliveries.retired:
        peer.deliveries.check_once_open(consumer_id)
        if request:
            peer.out.answer(request)  # nothing will arrive: the answer of an empty queue
        return
    if peer.deliveries.wants(consumer_id) >= _MAX_WANTS:
        raise RequestError(
            f"consumer {consumer_id} has {_MAX_WANTS} WANTs that are not answered yet", ErrorCode.RESOURCE_ALLOCATION
        )
    # It may be patient if there is no answer to wait for, unless time stands still, since patience is a length of time.
    patient = not request and peer.services.frozen_at is None
    settled = consumer.want(now, patient, brief=request != 0)
    if request:
        if settled:
            peer.out.answer(request)
        else:
            peer.deliveries.await_settled(consumer_id, request)


def on_release(peer: Peer, command: Release, now: int) -> None:
    """Return buffered messages to their old places, unmarked; also the answer to a RECALL."""
    consumer_id = command.consumer
    consumer = peer.deliveries.consumers.get(consumer_id)
    if consumer is None:
        peer.deliveries.check_once_open(consumer_id)
    else:
        released = partial(_released, peer, peer.deliveries.owners[consumer_id])
        release = partial(consumer.release, command.tags, command.unasked)
        peer.give_back(release, command, released, now)


def _released(peer: Peer, session: Session, now: int) -> None:
    """The messages are back. RELEASE is not answered."""
    peer.deliveries.forget_settled(session)
