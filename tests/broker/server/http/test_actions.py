"""Move, copy, delete, purge, retry, cancel, pause: nothing lost, nothing doubled, what is in flight untouched."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest

from sievemq import ConnectionFactory, JMSContext
from sievemq_broker import EmbeddedBroker

from .conftest import Api, at, send

Q, R = "queue:q", "queue:r"


def counts(outcome: Any) -> tuple[int, int, bool]:
    return outcome["matched"], outcome["touched"], outcome["more"]


def test_move_keeps_order_and_leaves_nothing_behind(api: Api, context: JMSContext) -> None:
    send(context, Q, *range(10))
    send(context, Q, 10, priority=9)
    send(context, R, 100)
    assert counts(api.act(Q, "move", to=R, selector="n < 3 OR n = 10")) == (4, 4, False)
    assert api.ids(R) == ["10", "100", "0", "1", "2"]
    assert api.ids(Q) == ["3", "4", "5", "6", "7", "8", "9"]


def test_move_up_to_a_limit_again_and_again(api: Api, context: JMSContext) -> None:
    send(context, Q, *range(10))
    steps = [api.act(Q, "move", to=R, limit=4) for _ in range(3)]
    assert list(map(counts, steps)) == [(4, 4, True), (4, 4, True), (2, 2, False)]
    assert api.ids(R) == [str(n) for n in range(10)]


def test_copy_leaves_everything_where_it_is(api: Api, context: JMSContext) -> None:
    send(context, Q, *range(4))
    subscriber = context.create_consumer(context.create_topic("t"))
    assert counts(api.act(Q, "copy", to=R, selector="n > 1")) == (2, 2, False)
    assert counts(api.act(Q, "copy", to="topic:t", limit=1)) == (1, 1, True)
    assert (api.ids(Q), api.ids(R)) == (["0", "1", "2", "3"], ["2", "3"])
    message = subscriber.receive(60_000)
    assert message is not None
    assert message.get_int_property("n") == 0


def test_delete_by_ids_by_selector_and_both(api: Api, context: JMSContext) -> None:
    send(context, Q, *range(8))
    rows = api.get(f"{at(Q)}/messages")["messages"]
    chosen = [rows[1]["id"], rows[2]["message_id"], "999", "ID:nobody-1:1"]
    assert counts(api.act(Q, "delete", ids=chosen, dry_run=True)) == (2, 0, False)
    assert len(api.ids(Q)) == 8
    assert counts(api.act(Q, "delete", ids=chosen)) == (2, 2, False)
    assert counts(api.act(Q, "delete", ids=[rows[5]["id"], rows[6]["id"]], selector="n = 6")) == (1, 1, False)
    assert counts(api.act(Q, "delete", selector="n < 4", limit=1)) == (1, 1, True)
    assert api.ids(Q) == ["3", "4", "5", "7"]
    assert api.get(at(Q))["counters"]["removed"] == 4


@pytest.mark.parametrize("action", ["delete", "move", "copy", "purge", "retry", "cancel"])
def test_a_dry_run_touches_nothing(api: Api, context: JMSContext, action: str) -> None:
    send(context, Q, 1, 2, 3)
    send(context, Q, 4, delivery_delay=100_000)
    matched = {"cancel": 0, "purge": 2}.get(action, 2)
    body: dict[str, Any] = {"to": "queue:new"} if action in ("move", "copy") else {}
    outcome = api.act(Q, action, selector="n > 1 AND n < 4", dry_run=True, **body)
    assert (outcome["matched"], outcome["touched"], outcome["dry_run"]) == (matched, 0, True)
    assert (api.ids(Q), api.get(at(Q))["scheduled"]) == (["1", "2", "3"], 1)
    assert api("GET", at("queue:new")).status == 404


def test_purge_and_cancel(api: Api, context: JMSContext) -> None:
    send(context, Q, 1, 2, 3)
    send(context, Q, 4, 5, 6, 7, delivery_delay=100_000)
    assert counts(api.act(Q, "cancel", selector="n = 4")) == (1, 1, False)
    row = api.get(f"{at(Q)}/scheduled")["messages"][0]
    assert counts(api.act(Q, "cancel", ids=[row["id"]])) == (1, 1, False)
    assert counts(api.act(Q, "purge", limit=4)) == (4, 4, True)
    assert (api.get(at(Q))["depth"], api.get(at(Q))["scheduled"]) == (0, 1)
    assert counts(api.ok("POST", f"{at(Q)}/actions/purge")) == (1, 1, False)
    row = api.get(at(Q))
    assert (row["depth"], row["scheduled"], row["bytes"]) == (0, 0, 0)


def test_messages_in_flight_are_untouched(api: Api, context: JMSContext) -> None:
    send(context, Q, 1, 2, 3)
    with context.create_context(2) as other:
        consumer = other.create_consumer(other.create_queue("q"), "n = 2")
        held = consumer.receive(60_000)
        assert held is not None
        identifier = api.get(f"{at(Q)}/messages", state="in_flight")["messages"][0]["id"]
        assert counts(api.act(Q, "delete", ids=[identifier])) == (0, 0, False)
        assert counts(api.act(Q, "move", to=R)) == (2, 2, False)
        assert counts(api.act(Q, "purge")) == (0, 0, False)
        assert api.get(at(Q))["in_flight"] == 1
        other.recover()
        again = consumer.receive(60_000)
        assert again is not None
        assert again.get_int_property("n") == 2
        other.acknowledge()
    assert (api.ids(Q), api.ids(R)) == ([], ["1", "3"])


def test_dead_letters_are_grouped_and_return_to_their_origin(api: Api, context: JMSContext) -> None:
    namespace = api.namespace
    api.broker.call(lambda b: _limit_attempts(b, namespace))
    for name in ("q", "r"):
        send(context, f"queue:{name}", *range(3))
        with context.create_context(2) as other:
            consumer = other.create_consumer(other.create_queue(name))
            for _ in range(3):
                assert consumer.receive(60_000) is not None
            other.recover()
            assert consumer.receive_no_wait() is None
    send(context, "queue:DLQ.q", 99)
    queues = api.get("dead-letters")["queues"]
    assert [(queue["address"], queue["depth"], queue["examined"]) for queue in queues] == [
        ("queue:DLQ.q", 4, 4),
        ("queue:DLQ.r", 3, 3),
    ]
    assert [(group["origin"], group["reason"], group["messages"]) for group in queues[0]["groups"]] == [
        ("queue:q", "attempts", 3),
        (None, None, 1),
    ]
    failed, sent = queues[0]["groups"]
    assert failed["first_failure"] > 0
    assert (failed["failed_by"]["user"], failed["failed_by"]["address"][:10]) == (None, "127.0.0.1:")
    assert "." in failed["failed_by"]["consumer"]
    assert (sent["failed_by"], sent["error"]) == (None, None)
    assert api.get("dead-letters", examine=2)["queues"][0]["examined"] == 2
    assert counts(api.act("queue:DLQ.q", "retry", selector="n < 1")) == (1, 1, False)
    outcome = api.act("queue:DLQ.q", "retry")
    assert (outcome["matched"], outcome["touched"], outcome["skipped"]) == (3, 2, 1)
    assert (api.ids("queue:q"), api.ids("queue:DLQ.q")) == (["0", "1", "2"], ["99"])
    assert api.get(f"{at(Q)}/messages")["messages"][0]["properties"].keys() == {"n"}


def _limit_attempts(broker: Any, namespace: str) -> None:
    from sievemq_broker.domain.policy import DestinationPolicy

    space = broker.namespace(namespace)
    for name in ("queue:q", "queue:r"):
        space.create(name).policy = DestinationPolicy(max_attempts=1)


def test_a_target_that_takes_no_more_stops_it_and_nothing_is_lost(api: Api, context: JMSContext) -> None:
    from sievemq_broker.domain.policy import DestinationPolicy

    namespace = api.namespace
    api.broker.call(
        lambda b: setattr(b.namespace(namespace).create("queue:small"), "policy", DestinationPolicy(max_messages=2))
    )
    send(context, Q, *range(5))
    outcome = api.act(Q, "move", to="queue:small")
    assert counts(outcome) == (2, 2, True)
    assert outcome["stopped"]["error"] == "RESOURCE_ALLOCATION"
    answer = api("POST", f"{at(Q)}/actions/move", {"to": "queue:small"})
    assert (answer.status, answer.error) == (409, "RESOURCE_ALLOCATION")
    assert (api.ids("queue:small"), api.ids(Q)) == (["0", "1"], ["2", "3", "4"])


@pytest.mark.parametrize("action", ["move", "copy"])
def test_a_kind_that_there_is_not_is_a_mistake_unless_such_a_queue_exists(
    api: Api, context: JMSContext, action: str
) -> None:
    send(context, Q, 1, 2)
    for to in ("tpoic:t", "Queue:r", ":r"):
        answer = api("POST", f"{at(Q)}/actions/{action}", {"to": to})
        assert (answer.status, answer.error) == (422, "INVALID_DESTINATION")
        assert answer.json["text"].endswith(f"A queue of that name is queue:{to}")
        assert api("GET", at(f"queue:{to}")).status == 404, "nothing was made"
    assert counts(api.act(Q, action, to="queue:urn:r", limit=1)) == (1, 1, True)
    assert counts(api.act(Q, action, to="urn:r", limit=1, selector="n = 2")) == (1, 1, False)
    assert len(api.ids("queue:urn:r")) == 2


def test_invalid_requests_are_refused(api: Api) -> None:
    for address in (Q, "topic:t"):
        api.ok("PUT", at(address))
    for action, body, status, error in (
        ("move", {"to": Q}, 422, "INVALID_DESTINATION"),
        ("move", {"to": "topic:t"}, 422, "INVALID_DESTINATION"),
        ("move", {"to": "temporary-queue:gone.1"}, 422, "INVALID_DESTINATION"),
        ("move", {"to": " "}, 422, "INVALID_DESTINATION"),
        ("move", {}, 400, "BAD_REQUEST"),
        ("delete", {}, 400, "BAD_REQUEST"),
        ("delete", {"ids": []}, 400, "BAD_REQUEST"),
        ("delete", {"selector": "n =="}, 422, "INVALID_SELECTOR"),
        ("purge", {"limit": 0}, 400, "BAD_REQUEST"),
        ("retry", {"to": R}, 400, "BAD_REQUEST"),
        ("pause", {"selector": "n = 1"}, 400, "BAD_REQUEST"),
    ):
        answer = api("POST", f"{at(Q)}/actions/{action}", body)
        assert (answer.status, answer.error) == (status, error), (action, body, answer.content)
    assert api("POST", f"{at('topic:t')}/actions/purge").status == 409
    assert api("POST", f"{at(Q)}/actions/explode").status == 404


def test_pause_and_resume(api: Api, context: JMSContext) -> None:
    api.ok("PUT", at(Q))
    assert counts(api.act(Q, "pause", dry_run=True)) == (1, 0, False)
    assert api.get(at(Q))["paused"] is False
    assert counts(api.ok("POST", f"{at(Q)}/actions/pause")) == (1, 1, False)
    assert counts(api.act(Q, "pause")) == (0, 0, False)
    consumer = context.create_consumer(context.create_queue("q"))
    send(context, Q, 1)
    assert (api.get(at(Q))["paused"], api.ids(Q)) == (True, ["1"])
    assert counts(api.act(Q, "resume")) == (1, 1, False)
    assert consumer.receive(60_000) is not None


def test_only_so_many_actions_at_a_time(api: Api) -> None:
    from sievemq_broker.server.http.api.actions import MAX_AT_WORK

    api.ok("PUT", at(Q))
    management = api.broker._http.management  # type: ignore[union-attr]
    api.broker.call(lambda _: setattr(management, "at_work", MAX_AT_WORK))
    try:
        answer = api("POST", f"{at(Q)}/actions/purge")
        assert (answer.status, answer.error, answer.headers["retry-after"]) == (429, "TOO_MANY_REQUESTS", "1")
    finally:
        api.broker.call(lambda _: setattr(management, "at_work", 0))
    assert api("POST", f"{at(Q)}/actions/purge").status == 200


# -- conservation -----------------------------------------------------------------------------------------------------


def test_messages_moved_to_and_fro_under_consumers_are_all_received_once() -> None:
    """Producers, consumers and moves at the same time: every message is received exactly once."""
    total, senders = 600, 2
    with EmbeddedBroker(http=True) as broker:
        api = Api(broker)
        api.ok("PUT", at(Q))
        api.ok("PUT", at(R))
        received: Counter[int] = Counter()
        done = threading.Event()

        def produce(first: int) -> None:
            with ConnectionFactory(broker.url).create_context() as context:
                send(context, Q, *range(first, first + total))

        def consume(name: str, selector: str | None) -> None:
            with ConnectionFactory(broker.url).create_context() as context:
                consumer = context.create_consumer(context.create_queue(name), selector)
                while not done.is_set():
                    message = consumer.receive(timeout=50)
                    if message is not None:
                        received[message.get_int_property("n")] += 1
                        if received.total() >= senders * total:
                            done.set()

        threads = [threading.Thread(target=produce, args=(n * total,)) for n in range(senders)]
        threads += [threading.Thread(target=consume, args=arguments) for arguments in (("q", "n < 300"), ("r", None))]
        for thread in threads:
            thread.start()
        try:
            for _ in range(2_000):
                if done.is_set():
                    break
                api.act(Q, "move", to=R, selector="n >= 200", limit=50)
                api.act(R, "move", to=Q, limit=3)
        finally:
            done.wait(60)
            done.set()
            for thread in threads:
                thread.join()
        assert received == Counter(range(senders * total))
        assert (api.get(at(Q))["depth"], api.get(at(R))["depth"]) == (0, 0)


def test_a_move_into_a_consumer_that_sends_back_ends(api: Api, context: JMSContext) -> None:
    """What comes back while it works is not moved again."""
    send(context, Q, *range(300))
    other = context.create_context(1)
    consumer, producer = other.create_consumer(other.create_queue("r")), other.create_producer()
    back = other.create_queue("q")
    consumer.set_message_listener(lambda message: producer.send(back, message))
    assert counts(api.act(Q, "move", to=R)) == (300, 300, False)
    other.close()
    assert sorted(map(int, api.ids(Q) + api.ids(R))) == list(range(300))


def test_a_deep_queue_delays_no_other_client(api: Api) -> None:
    """The longest verbs work in slices, after each of which the loop may turn."""
    from .deep import fill, longest_turn

    depth = 30_000
    namespace = api.namespace
    api.broker.call(lambda b: fill(b, namespace, Q, depth))
    with longest_turn(api.broker) as turns:
        assert counts(api.act(Q, "delete", selector="n + 0 = 29999")) == (1, 1, False)
        assert counts(api.act(Q, "move", to=R, selector="n < 15000")) == (15_000, 15_000, False)
        assert len(api.get(f"{at(Q)}/messages", selector="n + 0 = 29998")["messages"]) == 1
        assert api.ok("DELETE", at(Q))["touched"] == 14_999
    assert turns.count > 60 + 60 + 150 + 15 + 149
