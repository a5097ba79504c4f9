"""The dialect amqp: names of sections and fields, beside everything of Jakarta Messaging."""

from __future__ import annotations

import pytest

from sievemq_core.selector import SelectorError, compile_selector

HEADERS = {"JMSType": "order", "JMSPriority": 4, "JMSTimestamp": 1_000, "JMSCorrelationID": "c"}


@pytest.mark.parametrize(
    ("text", "jakarta"),
    [
        ("p.subject = 'x'", "JMSType = 'x'"),
        ("PROPERTIES.subject LIKE 'x%'", "JMSType LIKE 'x%'"),
        ("properties.correlation-id IN ('a', 'b')", "JMSCorrelationID IN ('a', 'b')"),
        ("p.creation_time - 1 > 0", "JMSTimestamp - 1 > 0"),
        ("p.group_sequence BETWEEN 1 AND 2", "JMSXGroupSeq BETWEEN 1 AND 2"),
        ("header.priority != 4", "JMSPriority <> 4"),
        ("h.priority-1 = 3", "JMSPriority-1 = 3"),
        ("a.p = 1 OR a.a = 2", "p = 1 OR a = 2"),
        ("application_properties.Größe IS NOT NULL", "Größe IS NOT NULL"),
        ("p = 1 AND a != 2 AND JMSType = 'x'", "p = 1 AND a <> 2 AND JMSType = 'x'"),
    ],
)
def test_a_field_is_what_it_stands_for(text: str, jakarta: str) -> None:
    found, same = compile_selector(text, "amqp"), compile_selector(jakarta)
    assert found is not None
    assert same is not None
    assert found.facts.names == same.facts.names
    assert found.canonical.removeprefix("amqp: ") == same.canonical
    again = compile_selector(found.canonical.removeprefix("amqp: "), "amqp")
    assert again is not None
    assert again.canonical == found.canonical


@pytest.mark.parametrize(
    ("text", "said", "place"),
    [
        ("p.to = 'x'", "cannot read 'to' of the section 'p'", "p.to"),
        ("h.durable = TRUE", "cannot read 'durable' of the section 'h'", "h.durable"),
        ("p.subject_x = 'x'", "cannot read 'subject_x'", "p.subject_x"),
        ("f.x = 1", "there is no section 'f'", "f"),
        ("UTC() > 1", "", "UTC"),
        ("a % 2 = 1", "remainder", "%"),
        ("a !== 1", "'!=='", "!=="),
        ("a. = 1", "", "."),
        ('"a b" = 1', "double quotes", '"a b"'),
    ],
)
def test_what_it_has_not_is_refused_with_the_place(text: str, said: str, place: str) -> None:
    with pytest.raises(SelectorError) as caught:
        compile_selector(text, "amqp")
    error = caught.value
    assert said in error.message
    assert text[error.position : error.position + len(place)] == place


@pytest.mark.parametrize("text", ["p.subject = 'x'", "a.x = 1", "x != 1"])
def test_other_dialects_have_none_of_it(text: str) -> None:
    with pytest.raises(SelectorError):
        compile_selector(text)
