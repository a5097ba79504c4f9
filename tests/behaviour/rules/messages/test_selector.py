"""Section 31 as far as the public Selector goes (SEL)."""

from __future__ import annotations

import copy
import pickle

import pytest

from sievemq import InvalidSelectorException, Message, MessageFormatException, Selector, TextMessage


def test_sel_01_sel_02_a_mistake_is_refused_when_the_selector_is_made():
    with pytest.raises(InvalidSelectorException, match="\\^"):
        Selector("a = ")


@pytest.mark.parametrize("text", [None, "", "  ", "\t\n"])
def test_sel_03_no_selector_matches_every_message(text):
    selector = Selector(text)
    assert selector.matches(Message())
    assert selector.evaluate(Message()) is True
    assert (selector.canonical, selector.warnings) == ("", ())


@pytest.mark.parametrize("text", ["a > 'x'", "a BETWEEN 'a' AND 'b'", "a IN (1)", "a LIKE 1", "NULL = 1", "ESCAPE = 1"])
def test_sel_04_visible_type_mistakes_are_refused(text):
    with pytest.raises(InvalidSelectorException):
        Selector(text)


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("JMSDeliveryMode = 'NON_PERSISTENT'", True), ("JMSPriority = 7", True), ("JMSMessageID = 'ID:c:1'", True),
        ("JMSTimestamp = 1700000000000", True), ("JMSCorrelationID = 'c'", True), ("JMSType = 't'", True),
        ("JMSType = 'u'", False), ("JMSDeliveryMode = 'PERSISTENT'", False), ("JMSXGroupID = 'g'", True),
    ],
)  # fmt: skip
def test_sel_05_headers_of_a_received_message(text, matches, deliver):
    message = Message(properties={"JMSXGroupID": "g"})
    message.set_jms_type("t")
    message.set_jms_correlation_id("c")
    assert Selector(text).matches(deliver(message)) is matches


def test_sel_05_headers_of_an_unsent_message():
    assert Selector("JMSPriority = 4 AND JMSDeliveryMode = 'PERSISTENT' AND JMSMessageID IS NULL").matches(Message())
    with pytest.raises(InvalidSelectorException):
        Selector("JMSExpiration > 0")


def test_sel_07_the_body_cannot_be_selected_on():
    assert Selector("text IS NULL").matches(TextMessage("x"))


def test_sel_08_only_true_matches():
    message = Message(properties={"a": 1})
    for text, truth in (("a = 1", True), ("a = 2", False), ("b = 1", None), ("NOT b = 1", None)):
        selector = Selector(text)
        assert selector.evaluate(message) is truth
        assert selector.matches(message) is (truth is True)


def test_sel_09_java_literals():
    assert Selector("a = 0xFF AND a = 255L AND b = .5e2").matches(Message(properties={"a": 255, "b": 50.0}))


def test_sel_10_the_stored_type_counts():
    message = Message(properties={"a": "7"})
    assert not Selector("a = 7").matches(message)
    assert Selector("a = '7'").matches(message)


def test_a_property_changed_later_is_seen():
    message, selector = Message(properties={"a": 1}), Selector("a = 2")
    assert not selector.matches(message)
    message.set_int_property("a", 2)
    assert selector.matches(message)


def test_dif_06_the_small_language_is_a_dialect_and_the_full_one_the_default():
    message = Message(properties={"a": 2})
    assert Selector("a > 1 OR a < 0").matches(message)
    for text in ("a > 1", "a = 1 OR b = 1", "NOT a = 1"):
        with pytest.raises(InvalidSelectorException):
            Selector(text, dialect="mqe")


def test_dif_07_null_and_unlike_types_in_the_dialect_of_ibm_mq():
    message = Message(properties={"s": "x"})
    between, unlike = "a NOT BETWEEN 1 AND 2", "NOT s = 1"
    assert Selector(between).evaluate(message) is None
    assert Selector(between, dialect="ibm-mq").evaluate(message) is True
    assert Selector(unlike).evaluate(message) is True
    assert Selector(unlike, dialect="ibm-mq").evaluate(message) is False


def test_dialects():
    assert Selector("a = 1", dialect="ibm-mq").dialect == "ibm-mq"
    assert repr(Selector("a = 1", "mqe")) == "Selector('a = 1', dialect='mqe')"
    for text in ("a = 1", ""):
        with pytest.raises(ValueError, match="no selector dialect 'sql'; there are"):
            Selector(text, dialect="sql")


def test_a_selector_is_a_value():
    selector = Selector("a  = 1")
    assert selector == Selector("a  = 1")
    assert hash(selector) == hash(Selector("a  = 1"))
    assert selector != Selector("a = 1")
    assert selector.canonical == Selector("a = 1").canonical
    assert selector != "a  = 1"
    assert (str(selector), selector.text, repr(selector)) == ("a  = 1", "a  = 1", "Selector('a  = 1')")
    for again in (copy.deepcopy(selector), pickle.loads(pickle.dumps(selector))):
        assert again == selector
        assert again.matches(Message(properties={"a": 1}))
    with pytest.raises(AttributeError):
        selector.text = "b = 1"


@pytest.mark.parametrize("value", [None, "a", {"a": 1}])
def test_other_types_than_messages_cannot_be_matched(value):
    for selector in (Selector("a = 1"), Selector("")):
        with pytest.raises(MessageFormatException):
            selector.matches(value)


def test_a_selector_is_text():
    with pytest.raises(TypeError):
        Selector(7)
