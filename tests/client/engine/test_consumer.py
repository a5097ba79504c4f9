"""EngineConsumer: credit, buffer, acknowledgements, recalls."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any

import pytest

from sievemq import InvalidSelectorException, Queue, TemporaryQueue, TextMessage, Topic
from sievemq._engine import EngineConsumer, EngineOptions, EngineProducer
from sievemq._engine.credit import FIRST_WINDOW, MAX_WINDOW, WINDOW_BYTES, Credit
from sievemq.destinations import Destination
from sievemq_core.errors import ErrorCode
from sievemq_core.wire.commands import Command

from .harness import NOW, FakeBroker, World, envelope


def with_prefetch(prefetch: int | None, start: bool = True) -> FakeBroker:
    broker = FakeBroker(EngineOptions(heartbeat=0, prefetch=prefetch))
    broker.welcome()
    if start:
        broker.engine.start()
    return broker


def take(consumer: EngineConsumer) -> str | None:
    """As receive does it, without waiting; the text."""
    message = consumer.take()
    if message is None:
        return None
    if consumer.acknowledges_itself:
        consumer.settle()
    if consumer.taken >= consumer.credit.mark:
        consumer.top_up()
    assert isinstance(message, TextMessage)
    return message.get_text()


# -- opening ----------------------------------------------------------------------------------------------------------


def test_open_consumer_says_everything(broker: FakeBroker) -> None:
    session = broker.session()
    session.open_consumer(Topic("t"), "topic:t", "a = 1", no_local=True, subscription="s", durable=True, shared=True)
    assert broker.grant()[2:] == (
        session.id, 1, "topic:t", "a = 1", None, True, "s", True, True, FIRST_WINDOW, 0, WINDOW_BYTES,
    )  # fmt: skip


def test_sel_01_a_selector_is_checked_before_anything_is_sent(broker: FakeBroker) -> None:
    session = broker.session()
    with pytest.raises(InvalidSelectorException) as caught:
        session.open_consumer(Queue("q"), "queue:q", "a >")
    assert caught.value.selector == "a >"
    assert broker.heard() == []


def test_sel_03_a_blank_selector_means_no_selector(broker: FakeBroker) -> None:
    for blank in (None, "", " \t"):
        assert broker.consumer(broker.session(), selector=blank).selection.selector is None


def test_sel_02_a_refused_consumer_leaves_nothing_behind(broker: FakeBroker) -> None:
    session = broker.session()
    consumer = session.open_consumer(Queue("q"), "queue:q")
    broker.refuse(ErrorCode.INVALID_SELECTOR, "no", position=1)
    assert isinstance(consumer.opened.error, InvalidSelectorException)
    assert session.consumers == {}
    broker.deliver(consumer, 1)
    assert not consumer.buffer


def test_clo_24_con_15_credit_comes_with_start() -> None:
    broker = with_prefetch(10, start=False)
    consumer = broker.consumer(broker.session())
    assert consumer.credit.granted == 0
    assert not consumer.flowing
    broker.engine.start()
    assert broker.heard() == [(Command.CREDIT, consumer.id, 10, False)]
    assert consumer.flowing
    broker.engine.start()
    assert broker.heard() == []


def test_con_17_stop_shuts_the_gate_and_grants_nothing() -> None:
    broker = with_prefetch(4)
    consumer = broker.consumer(broker.session())
    broker.deliver(consumer, 1, 2, 3)
    assert [take(consumer), take(consumer)] == ["1", "2"]
    broker.heard()
    broker.engine.stop()
    assert not consumer.flowing
    assert consumer.want(answered=True) is None
    consumer.top_up()
    assert broker.heard() == []
    woken: list[int] = []
    consumer.waker = lambda: woken.append(1)
    broker.engine.start()
    assert woken == [1]
    assert take(consumer) == "3"


# -- credit -----------------------------------------------------------------------------------------------------------


def test_d_23_credit_is_granted_in_halves() -> None:
    broker = with_prefetch(10)
    consumer = broker.consumer(broker.session())
    broker.deliver(consumer, *range(1, 11))
    for _ in range(4):
        take(consumer)
    assert broker.heard() == [(Command.ACKNOWLEDGE, consumer.id, 4, 0)]
    take(consumer)
    assert broker.heard() == [(Command.ACKNOWLEDGE, consumer.id, 5, 5)]
    for _ in range(5):
        take(consumer)
    assert broker.heard() == [(Command.ACKNOWLEDGE, consumer.id, 10, 5)]
    assert take(consumer) is None


def test_credit_without_acknowledgement_in_client_mode() -> None:
    broker = with_prefetch(4)
    consumer = broker.consumer(broker.session(2))
    broker.deliver(consumer, 1, 2, 3)
    for _ in range(3):
        take(consumer)
    assert broker.heard() == [(Command.CREDIT, consumer.id, 2, False)]


@pytest.mark.parametrize("prefetch", [1, 2, 3, 7, 10])
def test_never_more_than_the_window_is_out(prefetch: int) -> None:
    broker = with_prefetch(prefetch)
    consumer = broker.consumer(broker.session())
    credit, tag = consumer.credit.granted, 0
    for _ in range(50):
        assert credit + len(consumer.buffer) <= prefetch
        while credit:
            tag += 1
            credit -= 1
            broker.deliver(consumer, tag)
        assert take(consumer) == str(consumer.handed)
        credit += sum(command[-1] for command in broker.heard())
    assert consumer.handed == 50


def test_prefetch_0_fetches_on_request() -> None:
    broker = with_prefetch(0)
    consumer = broker.consumer(broker.session())
    for tag in range(1, 4):
        consumer.want()
        broker.deliver(consumer, tag)
        assert take(consumer) == str(tag)
    assert [command[0] for command in broker.heard() if command[0] != Command.ACKNOWLEDGE] == [Command.WANT] * 3
    assert consumer.credit.granted == 3


@pytest.mark.parametrize(
    ("destination", "more", "asks"),
    [
        (Queue("q"), {}, True),
        (Topic("t"), {}, False),
        (Topic("t"), {"subscription": "s", "shared": True}, True),
        (Topic("t"), {"subscription": "s", "durable": True, "shared": True}, True),
    ],
)
def test_d_23_a_single_consumer_recalls_nothing(destination: Destination, more: dict[str, Any], asks: bool) -> None:
    broker = with_prefetch(10)
    consumer = broker.consumer(broker.session(), destination, **more)
    assert consumer.lone is not asks
    consumer.want()
    assert [command[0] for command in broker.heard()] == [Command.WANT] * asks
    assert consumer.want(answered=True) is not None  # MCO-05: that one is answered when everything is there
    assert [command[0] for command in broker.heard()] == [Command.WANT]


def test_d_23_only_several_consumers_of_a_temporary_queue_recall_from_each_other() -> None:
    broker, replies, woken = with_prefetch(10), TemporaryQueue("c1.1"), []
    session = broker.session()
    first = broker.consumer(session, replies)
    first.waits(lambda: woken.append(first))
    broker.consumer(session, TemporaryQueue("c1.2"))
    first.want()
    assert (first.lone, woken, broker.heard()) == (True, [], [])
    second = broker.consumer(broker.session(), replies)
    assert woken == [first]  # to send WANT
    for consumer in (first, second):
        consumer.want()
        assert [command[0] for command in broker.heard()] == [Command.WANT]
    third = broker.consumer(session, replies)
    for closed, lone in ((first, False), (second, True)):
        broker.engine.sessions[closed.session].close_consumer(closed)
        assert third.lone is lone


def test_prefetch_0_fetches_from_a_topic_too() -> None:
    broker = with_prefetch(0)
    consumer = broker.consumer(broker.session(), Topic("t"))
    for tag in range(1, 4):
        consumer.want()
        assert (Command.WANT, 0, consumer.id) in broker.heard()
        broker.deliver(consumer, tag)
        assert take(consumer) == str(tag)


def test_an_adaptive_window_widens_while_the_application_waits() -> None:
    broker = with_prefetch(None)
    consumer = broker.consumer(broker.session())
    tag = 0
    for _ in range(20):
        while consumer.credit.granted > tag:
            tag += 1
            broker.deliver(consumer, tag)
        while take(consumer) is not None:
            pass
        consumer.want()
    assert consumer.credit.size == MAX_WINDOW


def test_an_adaptive_window_stays_when_producers_are_slow() -> None:
    broker = with_prefetch(None)
    consumer = broker.consumer(broker.session())
    for tag in range(1, 500):
        broker.deliver(consumer, tag)
        assert take(consumer) == str(tag)
        consumer.want()
    assert consumer.credit.size == FIRST_WINDOW


def test_a_window_of_large_messages_is_bounded_in_bytes() -> None:
    average = WINDOW_BYTES // 100
    credit = Credit(None, lambda: 0, lambda: average)
    for _ in range(20):
        credit.widen()
    assert credit.size == 100
    average = WINDOW_BYTES * 2
    credit.widen()
    assert credit.size == 2
    for _ in range(9):
        credit.narrow()
    assert credit.size == 2
    fixed = Credit(5, lambda: 0, lambda: 1)
    fixed.widen()
    fixed.narrow()
    assert fixed.size == 5


def test_a_subscriber_without_others_asks_for_more_once_its_bytes_are_used_up() -> None:
    """The broker withholds credit then, and no other consumer makes it search."""
    broker = with_prefetch(None)
    session = broker.session()
    consumer = session.open_consumer(Topic("t"), "topic:t", None)
    broker.grant()
    assert consumer.lone
    broker.deliver(consumer, 1)
    assert take(consumer) == "1"
    broker.heard()
    consumer.want()
    assert broker.heard() == []  # it has all there is
    large = envelope("x" * (WINDOW_BYTES // 2))
    for tag in (2, 3):
        broker.say(Command.DELIVER, consumer.id, tag, 1, large)
        assert consumer.take() is not None
    consumer.want()
    assert (Command.WANT, 0, consumer.id) in broker.heard()
    consumer.want()
    assert broker.heard() == []


def test_a_fixed_prefetch_is_not_bounded_in_bytes() -> None:
    broker = with_prefetch(7)
    broker.session().open_consumer(Queue("q"), "queue:q", None)
    assert broker.grant()[-3:] == (7, 0, 0)
    subscriber = broker.session().open_consumer(Topic("t"), "topic:t", None)
    broker.grant()
    subscriber.want()
    assert broker.heard() == []


# -- acknowledgements -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("several", [True, False])
def test_d_25_acknowledgements_of_several_consumers_leave_as_one_if_the_broker_takes_that(several: bool) -> None:
    broker = FakeBroker()
    broker.welcome(**({"acknowledge_several": True} if several else {}))
    broker.engine.start()
    session = broker.session()
    consumers = [broker.consumer(session, Queue(f"q{number}")) for number in range(3)]
    for consumer in consumers:
        broker.deliver(consumer, 1, 2)
        assert take(consumer) == "1"
    one, two, three = (consumer.id for consumer in consumers)
    assert take(consumers[1]) == "2"
    each = [(Command.ACKNOWLEDGE, one, 1, 0), (Command.ACKNOWLEDGE, two, 2, 0), (Command.ACKNOWLEDGE, three, 1, 0)]
    assert broker.heard() == ([(Command.ACKNOWLEDGE_SEVERAL, (one, 1, two, 2, three, 1))] if several else each)
    assert take(consumers[0]) == "2"
    assert broker.heard() == [(Command.ACKNOWLEDGE, one, 2, 0)]


def test_acknowledgements_of_thousands_of_consumers_stay_below_the_limit_of_an_array() -> None:
    broker = FakeBroker()
    broker.welcome(acknowledge_several=True)
    broker.engine.start()
    session = broker.session()
    consumers = [broker.consumer(session) for _ in range(2_500)]
    for consumer in consumers:
        broker.deliver(consumer, 1)
        take(consumer)
    said = broker.heard()
    assert [command[0] for command in said] == [Command.ACKNOWLEDGE_SEVERAL] * 3
    assert [number for command in said for number in command[1][::2]] == [consumer.id for consumer in consumers]


def test_ack_01_d_25_acknowledgements_are_cumulative_and_leave_with_the_next_write(broker: FakeBroker) -> None:
    session = broker.session()
    first, second = broker.consumer(session), broker.consumer(session)
    broker.deliver(first, 1, 2, 3)
    broker.deliver(second, 1)
    take(first)
    take(first)
    take(second)
    assert broker.engine.has_output
    assert broker.heard() == [(Command.ACKNOWLEDGE, first.id, 2, 0), (Command.ACKNOWLEDGE, second.id, 1, 0)]
    assert broker.heard() == []
    assert not broker.engine.has_output


def test_lis_03_a_message_is_acknowledged_only_once_it_is_settled(broker: FakeBroker) -> None:
    consumer = broker.consumer(broker.session())
    broker.deliver(consumer, 1, 2)
    consumer.take()
    consumer.settle()
    consumer.take()
    assert broker.heard() == [(Command.ACKNOWLEDGE, consumer.id, 1, 0)]
    consumer.settle()
    assert broker.heard() == [(Command.ACKNOWLEDGE, consumer.id, 2, 0)]


def test_a_request_is_sent_behind_the_acknowledgements(broker: FakeBroker) -> None:
    """SUB-26: an unsubscribe must not find a message unacknowledged that the application is done with."""
    session = broker.session()
    consumer = broker.consumer(session)
    broker.deliver(consumer, 1)
    take(consumer)
    session.unsubscribe("s")
    assert [command[0] for command in broker.heard()] == [Command.ACKNOWLEDGE, Command.UNSUBSCRIBE]


# -- wakers and wants -------------------------------------------------------------------------------------------------


def test_a_waker_is_called_once(broker: FakeBroker) -> None:
    consumer = broker.consumer(broker.session())
    woken: list[int] = []
    consumer.waker = lambda: woken.append(1)
    broker.deliver(consumer, 1, 2)
    assert woken == [1]
    consumer.waker = lambda: woken.append(2)
    broker.engine.lost(None)
    assert woken == [1, 2]
    assert not consumer.flowing


def test_clo_06_closing_wakes(broker: FakeBroker) -> None:
    session = broker.session()
    woken: list[str] = []
    for name, shut in (("gate", lambda c: c.shut_gate()), ("close", lambda c: session.close_consumer(c)),
                       ("session gate", lambda c: session.shut_gate())):  # fmt: skip
        consumer = broker.consumer(session)
        consumer.waker = lambda name=name: woken.append(name)  # type: ignore[misc]
        shut(consumer)
        assert consumer.shut
        assert not consumer.flowing
    assert woken == ["gate", "close", "session gate"]


def test_mco_05_a_want_with_an_answer(broker: FakeBroker) -> None:
    consumer = broker.consumer(broker.session())
    answer = consumer.want(answered=True)
    assert answer is not None
    ((number, request, which),) = broker.heard()
    assert (number, which) == (Command.WANT, consumer.id)
    assert request
    broker.deliver(consumer, 1)
    broker.say(Command.OK, request, None)
    answer.result()
    consumer.want()
    assert broker.heard() == [(Command.WANT, 0, consumer.id)]


# -- recalls ----------------------------------------------------------------------------------------------------------


def test_d_23_a_recall_returns_unseen_messages(broker: FakeBroker) -> None:
    consumer = broker.consumer(broker.session())
    broker.deliver(consumer, 1, 2, 3, 4, 5)
    assert take(consumer) == "1"
    broker.heard()
    broker.say(Command.RECALL, consumer.id, (1, 2, 4))
    assert broker.heard() == [(Command.RELEASE, consumer.id, (2, 4), False)]
    assert [take(consumer), take(consumer), take(consumer)] == ["3", "5", None]
    broker.heard()
    broker.say(Command.RECALL, consumer.id, (3,))
    assert broker.heard() == [(Command.RELEASE, consumer.id, (), False)]
    assert consumer.credit.size == FIRST_WINDOW // 2


def test_returned_memory_is_granted_again_on_request() -> None:
    broker = with_prefetch(4)
    consumer = broker.consumer(broker.session())
    broker.deliver(consumer, 1, 2, 3, 4)
    broker.say(Command.RECALL, consumer.id, (1, 2, 3, 4))
    assert broker.heard() == [(Command.RELEASE, consumer.id, (1, 2, 3, 4), False)]  # an idle consumer asks for nothing
    consumer.want()
    assert broker.heard() == [(Command.CREDIT, consumer.id, 4, False), (Command.WANT, 0, consumer.id)]


def test_exp_03_messages_that_expire_in_the_buffer_are_returned(broker: FakeBroker) -> None:
    consumer = broker.consumer(broker.session())
    broker.deliver(consumer, 1, expiration=NOW + 10)
    broker.deliver(consumer, 2)
    broker.deliver(consumer, 3, 4, expiration=NOW + 10)
    broker.clock.now += 9
    peeked = consumer.peek()
    assert isinstance(peeked, TextMessage)
    assert peeked.get_text() == "1"
    broker.clock.now += 1
    assert take(consumer) == "2"
    assert consumer.peek() is None
    assert take(consumer) is None
    said = broker.heard()
    assert [command for command in said if command[0] == Command.RELEASE] == [
        (Command.RELEASE, consumer.id, (1,), True),
        (Command.RELEASE, consumer.id, (3,), True),
        (Command.RELEASE, consumer.id, (4,), True),
    ]
    # A cumulative acknowledgement of 2 must find 1 given back already.
    assert [command[0] for command in said].index(Command.RELEASE) == 0
    assert consumer.taken == 4


def test_the_clocks_offset_counts_for_expiry(broker: FakeBroker) -> None:
    consumer = broker.consumer(broker.session())
    broker.deliver(consumer, 1, expiration=NOW + 10)
    broker.say(Command.CLOCK, 10)
    assert take(consumer) is None


# -- the end of a consumer --------------------------------------------------------------------------------------------


def test_mco_10_close_reports_handed_messages(broker: FakeBroker) -> None:
    session = broker.session(2)
    consumer = broker.consumer(session)
    broker.deliver(consumer, 1, 2, 3)
    take(consumer)
    closing = session.close_consumer(consumer)
    number, _, *fields = broker.grant()
    assert (number, fields) == (Command.CLOSE_CONSUMER, [consumer.id, 1])
    closing.result()
    assert not consumer.buffer
    broker.deliver(consumer, 4)  # was on its way
    assert not consumer.buffer
    assert session.handed() == (consumer.id, 1)  # MCO-09


def test_the_broker_closes_a_consumer(broker: FakeBroker) -> None:
    session = broker.session()
    consumer = broker.consumer(session)
    broker.deliver(consumer, 1)
    broker.say(Command.CONSUMER_CLOSED, consumer.id, ErrorCode.INVALID_DESTINATION, "deleted")
    assert consumer.closed
    assert str(consumer.gone) == "deleted"
    assert not consumer.buffer
    assert [str(error) for error in broker.reported] == ["deleted"]
    assert session.consumers == {}
    assert session.close_consumer(consumer).done
    assert broker.heard() == []


def test_the_reader_may_recall_while_the_application_takes(world: World) -> None:
    """At the real broker: two consumers, one idle; nothing is lost or seen twice whatever the order."""
    memory = world.connect()
    session = world.session(memory)
    idle, busy = world.consumer(session), world.consumer(session)
    producer = EngineProducer(session, Queue("q"))
    for number in range(100):
        producer.send(TextMessage(str(number)), Queue("q"))
    world.settle()
    seen = []
    for turn in range(150):
        message = world.receive(idle if turn % 7 == 0 else busy)
        if message is not None:
            seen.append(int(message.get_text()))
    assert sorted(seen) == list(range(100))


def test_d_23_a_wait_begins_without_a_want_unless_there_is_no_credit() -> None:
    broker = with_prefetch(2)
    consumer = broker.consumer(broker.session())
    assert consumer.expect() is False
    assert broker.heard() == []
    broker.deliver(consumer, 1, 2)
    broker.say(Command.RECALL, consumer.id, (1, 2))
    broker.heard()
    assert consumer.expect() is False  # granted anew
    assert broker.heard() == [(Command.CREDIT, consumer.id, 2, False)]
    nothing = with_prefetch(0)
    assert nothing.consumer(nothing.session()).expect() is True


# -- one message of a queue, and closed again -------------------------------------------------------------------------


def test_a_selective_consumer_is_opened_for_one_message(broker: FakeBroker) -> None:
    session = broker.session()
    consumer = broker.consumer(session, selector="JMSCorrelationID = 'c1'")
    assert consumer.credit.granted == 1
    assert not consumer.expect()  # it is on its way, perhaps: no further request
    assert broker.heard() == []
    broker.deliver(consumer, 1)
    assert take(consumer) == "1"
    assert consumer.expect() is False  # a caller that waits for a second one is here for more
    assert broker.heard() == [(Command.ACKNOWLEDGE, consumer.id, 1, FIRST_WINDOW)]
    assert broker.consumer(session).credit.granted == FIRST_WINDOW


def test_mco_10_closing_waits_for_the_broker_only_with_messages_to_return(broker: FakeBroker) -> None:
    session = broker.session()
    idle = broker.consumer(session, selector="a = 1")
    assert not session.close_consumer(idle).done  # one message may be on its way
    done = broker.consumer(session, selector="a = 1")
    broker.deliver(done, 1)
    assert take(done) == "1"
    assert session.close_consumer(done).done
    acknowledged, closed = broker.heard()[-2:]
    assert acknowledged == (Command.ACKNOWLEDGE, done.id, 1, 0)
    assert closed == (Command.CLOSE_CONSUMER, 0, done.id, 1)  # no answer is requested
    kept = broker.consumer(session, selector="a = 1")
    broker.deliver(kept, 1)
    assert not session.close_consumer(kept).done  # in the buffer: it goes back


def test_a_listener_that_took_the_only_message_of_its_credit_asks_for_more() -> None:
    broker = with_prefetch(None)
    consumer = broker.session().open_consumer(Queue("q"), "queue:q", "a = 1")
    broker.grant()
    broker.deliver(consumer, 1)
    assert take(consumer) == "1"
    broker.heard()
    assert consumer.rests()
    assert consumer.credit.granted == 1 + FIRST_WINDOW


@pytest.mark.parametrize("begin", [*permutations(("stop", "pause", "lose"))])
@pytest.mark.parametrize("end", [*permutations(("start", "go_on"))])
def test_reasons_why_nothing_is_handed_over_are_independent(
    broker: FakeBroker, begin: tuple[str, ...], end: tuple[str, ...]
) -> None:
    consumer = broker.consumer(broker.session())
    verbs: dict[str, Callable[[], object]] = {
        "stop": lambda: consumer.set_flowing(False),
        "start": lambda: consumer.set_flowing(True),
        "pause": consumer.pause,
        "go_on": consumer.go_on,
        "lose": consumer.freeze,
    }
    assert consumer.flowing
    for verb in begin:
        verbs[verb]()
        assert not consumer.flowing
    verbs[end[0]]()
    assert not consumer.flowing
    verbs[end[1]]()
    assert consumer.flowing
    consumer.shut_gate()
    for verb in (*begin, *end):
        verbs[verb]()
        assert (consumer.flowing, consumer.shut, consumer.closed) == (False, True, False)
    consumer.mark_closed()
    consumer.set_flowing(True)
    assert (consumer.flowing, consumer.shut, consumer.closed) == (False, True, True)
