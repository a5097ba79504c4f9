"""The fifteen places where implementations of JMS go wrong, and the adversarial tests that hold each of them.

The tests of two places, which no file of rules has to itself, are here; tests/behaviour/model/ mixes most of
them at random.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
from tests.client.both import SOON, Api, outline, text

from sievemq import InvalidSelectorException, TextMessage

TESTS = Path(__file__).parents[2]

PLACES = {
    "prefetch that starves a sibling": [
        "behaviour/rules/consumers/test_message_consumer.py::test_mco_14_d_23_an_idle_buffer_does_not_starve_other_consumers",
        "behaviour/rules/consumers/test_message_consumer.py::test_mco_14_sub_07_a_shared_subscription_likewise",
        "broker/domain/test_recall.py::test_mco_14_a_stuck_one_is_emptied_behind_the_message_it_is_stuck_on",
        "broker/domain/test_recall.py::test_ord_01_older_messages_stay_with_the_consumer_that_works_on_them",
    ],
    "the scope of CLIENT_ACKNOWLEDGE": [
        "behaviour/rules/acknowledgement/test_acknowledge.py::test_ack_05_msg_01_ord_10_acknowledge_covers_the_session_so_far",
        "behaviour/rules/acknowledgement/test_recovery.py::test_ack_19_mco_09_a_closed_consumers_messages_stay_with_the_session",
    ],
    "redelivered and delivery count, whatever brought the message back": [
        "behaviour/rules/test_fifteen_places.py::test_ack_08_txn_04_ack_15_ack_18_jsx_12_marks_are_alike",
    ],
    "null conversions": [
        "behaviour/rules/messages/test_conversions.py::test_cnv_07_nul_01_null_as_boolean_is_false",
        "behaviour/rules/messages/test_conversions.py::test_cnv_08_nul_02_null_as_integer",
        "behaviour/rules/messages/test_conversions.py::test_cnv_09_nul_03_null_as_floating",
        "behaviour/rules/messages/test_conversions.py::test_nul_04_null_as_char",
    ],
    "conversions by type, not by value": [
        "behaviour/rules/messages/test_conversions.py::test_cnv_11_there_is_no_narrowing",
        "behaviour/rules/messages/test_conversions.py::test_cnv_12_integers_and_floats_do_not_cross",
        "behaviour/rules/messages/test_conversions.py::test_prp_03_the_table_of_properties",
    ],
    "a StreamMessage's pointer after a failed read": [
        "behaviour/rules/messages/test_stream.py::test_str_14_a_failed_conversion_leaves_the_pointer",
        "behaviour/rules/messages/test_bytes.py::test_byt_21_a_smaller_read_after_a_failed_one",
    ],
    "the mode machines": [
        "behaviour/rules/messages/test_stream.py::test_str_15_str_16_modes_of_every_method",
        "behaviour/rules/messages/test_message.py::test_mod_01_mod_04_write_only_until_reset",
    ],
    "bodies that are absent": [
        "behaviour/rules/messages/test_text.py::test_txt_02_none_and_empty_differ_and_both_survive",
        "behaviour/rules/messages/test_object.py::test_obj_02_none_by_default_and_a_fresh_copy_each_time",
        "behaviour/rules/consumers/test_jms_consumer.py::test_jco_06_jco_07_jco_08_no_such_body",
    ],
    "a changed durable subscription": [
        "behaviour/rules/subscriptions/test_changes.py::test_sub_13_a_changed_durable_subscription_begins_empty",
        "behaviour/rules/subscriptions/test_changes.py::test_sub_14_sub_15_a_shared_subscription_changes_only_while_unused",
    ],
    "client ids": [
        "behaviour/rules/subscriptions/test_changes.py::test_con_05_con_10_con_11_sub_31_one_live_connection_per_client_id",
        "behaviour/rules/subscriptions/test_changes.py::test_con_08_con_09_too_late_for_a_client_id",
        "behaviour/rules/subscriptions/test_changes.py::test_con_11_a_client_id_is_free_when_its_connection_is_lost",
    ],
    "type mistakes in selectors, at creation": [
        "behaviour/rules/test_fifteen_places.py::test_sel_01_sel_02_sel_04_type_mistakes_are_refused_at_creation",
    ],
    "close and stop with a blocked receive": [
        "behaviour/rules/consumers/test_message_consumer.py::test_mco_07_clo_06_clo_07_closing_ends_a_receive",
        "behaviour/rules/test_fifteen_places.py::test_con_17_a_blocked_receive_sleeps_through_stop",
    ],
    "asynchronous sends: order and threads": [
        "behaviour/rules/sending/test_asynchronous_send.py::test_cpl_05_never_before_the_send_has_returned",
        "behaviour/rules/sending/test_asynchronous_send.py::test_cpl_07_in_the_order_of_the_calls",
        "behaviour/rules/sending/test_asynchronous_send.py::test_cpl_08_ord_09_sync_and_async_sends_keep_their_order",
    ],
    "what counts from the send call": [
        "behaviour/rules/subscriptions/test_time.py::test_exp_02_exp_11_times_count_from_the_send_call",
        "behaviour/rules/subscriptions/test_time.py::test_exp_07_exp_08_exp_09_a_delayed_message_reaches_the_subscriptions_of_its_send",
        "behaviour/rules/subscriptions/test_time.py::test_exp_10_a_message_that_expires_within_its_delay_is_never_delivered",
    ],
    "raising listeners": [
        "behaviour/rules/listeners/test_message_listener.py::test_lis_04_ack_22_d_33_a_raising_listener_gets_the_message_redelivered",
        "behaviour/rules/listeners/test_message_listener.py::test_lis_05_a_raising_listener_in_client_mode",
        "behaviour/rules/listeners/test_message_listener.py::test_lis_06_txn_16_a_raising_listener_in_a_transaction",
    ],
}


def test_fifteen_places_are_listed() -> None:
    assert len(PLACES) == 15


@pytest.mark.parametrize("place", PLACES)
def test_its_tests_exist(place: str) -> None:
    for where in PLACES[place]:
        path, name = where.split("::")
        tree = ast.parse((TESTS / path).read_text(encoding="utf-8"))
        names = {node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}
        assert name in names, f"{place}: {where} is gone"


@pytest.mark.parametrize("way", ["recover", "rollback", "session", "connection", "loss"])
async def test_ack_08_txn_04_ack_15_ack_18_jsx_12_marks_are_alike(api: Api, way: str) -> None:
    """Handed out: redelivered, count + 1, each time. Only buffered: as new; a loss cannot tell, and marks."""
    broker = api.start_broker()
    await api.fill("orders", "one", "two", "three")
    for attempt in (1, 2):
        connection = await api.connect(reconnect=0)
        connection.set_exception_listener(lambda error: None)
        mode = api.SESSION_TRANSACTED if way == "rollback" else api.CLIENT_ACKNOWLEDGE
        session = await connection.create_session(mode)
        consumer = await session.create_consumer(api.queue())
        buffered = attempt if way == "loss" else 1
        assert await api.outlines(consumer, 1) == [("one", attempt > 1, attempt)]
        if attempt == 2:
            assert await api.outlines(consumer, 2) == [
                ("two", buffered > 1, buffered),
                ("three", buffered > 1, buffered),
            ]
        if way in ("recover", "rollback"):
            await getattr(session, way)()
            await connection.close()
        elif way == "loss":
            await (await session.create_browser(api.queue())).close()
            broker.drop_connections()
            broker.call(lambda domain: None)
        else:
            await {"session": session, "connection": connection}[way].close()
    last = await (await api.session()).create_consumer(api.queue())
    two = 3 if way == "loss" else 2
    assert await api.outlines(last, 3) == [("one", True, 3), ("two", True, two), ("three", True, two)]
    assert await last.receive_no_wait() is None


@pytest.mark.parametrize(
    "selector",
    ["n > 'x'", "TRUE = 0", "n BETWEEN 'a' AND 'b'", "n IN (1)", "n LIKE 5", "'a' LIKE 'b'", "7", "NOT = 1", "n = = 1"],
)
async def test_sel_01_sel_02_sel_04_type_mistakes_are_refused_at_creation(api: Api, selector: str) -> None:
    """By everything that takes a selector, and nothing is left behind: not a consumer, not a subscription."""
    session = await (await api.connect(client_id="me")).create_session()
    context = await api.context()
    topic: Any = api.topic()
    for create, arguments in (
        (session.create_consumer, (api.queue(),)),
        (session.create_consumer, (topic,)),
        (session.create_shared_consumer, (topic, "s")),
        (session.create_durable_consumer, (topic, "d")),
        (session.create_durable_subscriber, (topic, "d")),
        (session.create_shared_durable_consumer, (topic, "sd")),
        (session.create_browser, (api.queue(),)),
        (context.create_consumer, (api.queue(),)),
        (context.create_shared_consumer, (topic, "s")),
        (context.create_shared_durable_consumer, (topic, "sd")),
        (context.create_browser, (api.queue(),)),
    ):
        with pytest.raises(InvalidSelectorException) as caught:
            await create(*arguments, selector)
        assert caught.value.selector == selector
        assert 0 <= caught.value.position <= len(selector)
    for name in ("d", "sd"):
        with pytest.raises(Exception, match=name):
            await session.unsubscribe(name)
    consumer = await session.create_consumer(api.queue())
    await api.fill("orders", "one")
    assert text(await consumer.receive(SOON)) == "one"


async def test_con_17_a_blocked_receive_sleeps_through_stop(api: Api) -> None:
    """Nothing is handed out between stop and start, also not to a receive that was blocked before; its time runs on."""
    connection = await api.connect()
    session = await connection.create_session()
    consumer = await session.create_consumer(api.queue())
    receiving = api.task(consumer.receive())
    await api.until_receiving(consumer)
    await connection.stop()
    await api.fill("orders", "one", "two")
    assert await api.left("other") == []  # the broker has had time to deliver what it would
    assert not receiving.done()
    await connection.start()
    assert outline(await receiving) == ("one", False, 1)
    await connection.stop()
    assert await consumer.receive(1) is None
    await connection.close()
    other = await (await api.session()).create_consumer(api.queue())
    assert outline(await other.receive(SOON)) == ("two", False, 1)
    producer = await (await api.session()).create_producer(api.queue())
    await producer.send(TextMessage("three"))
    assert text(await other.receive(SOON)) == "three"
