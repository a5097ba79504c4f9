"""The dialect amqp: names of sections and fields, beside everything of Jakarta Messaging."""

from __future__ import annotations

import pytest

from sievemq_core.message.values import PropertyValue
from sievemq_core.selector import SelectorError, compile_selector

#: The headers of a message by position, from its id to its type.
ENVELOPE = ("ID:1", 1_000, 4, 2, 0, 0, "c", None, "order")


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
        ("\"region\" = 'EU' AND a.\"n\" IN ('x')", "region = 'EU' AND n IN ('x')"),
        ('"JMSPriority" > 4', "JMSPriority > 4"),
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
        ('"a b = 1', "never ends", '"'),
        ('"a""b = 1', "never ends", '"'),
        ("\"\" = 'x'", "at least one character", '""'),
        ('"a"."b" = 1', "no '.' follows", '."b"'),
        ("p.\"subject\" = 'x'", "cannot read ''", 'p."'),
        ('"upper"(a) = 1', "functions", '"upper"('),
        ('a LIKE "x"', "cannot be the pattern", '"x"'),
        ("a LIKE 'x' \"escape\" '!'", "cannot follow", '"escape"'),
        ('"JMSExpiration" > 0', "cannot be used", '"JMSExpiration"'),
        ("“a b” = 1", "double quotes", "“a b”"),
    ],
)
def test_what_it_has_not_is_refused_with_the_place(text: str, said: str, place: str) -> None:
    with pytest.raises(SelectorError) as caught:
        compile_selector(text, "amqp")
    error = caught.value
    assert said in error.message
    assert text[error.position : error.position + len(place)] == place


QUOTED = ["trace-id", "a.b", "order id", "1st", "it's", 'say "x"', "NULL", "and", "Escape", "línea-1", "\n", "%", "--"]


@pytest.mark.parametrize("name", QUOTED)
@pytest.mark.parametrize(
    ("form", "value"),
    [
        ("{} = 'x'", "x"), ("a.{} IS NOT NULL", "x"), ("application_properties.{} LIKE 'x%'", "xy"), ("NOT {}", False),
        ("{} IN ('a', 'b')", "b"), ("{} BETWEEN 1 AND 3", 2), ("{} - 1 = 1", 2), ("JMSPriority < {}", 5),
        ("{} = 1 OR b = 2 AND {} = 'y'", 1),
    ],
)  # fmt: skip
def test_a_name_in_double_quotes_may_have_any_characters(name: str, form: str, value: PropertyValue) -> None:
    written = '"' + name.replace('"', '""') + '"'
    selector = compile_selector(form.replace("{}", written), "amqp")
    assert selector is not None
    assert name in selector.facts.names
    for properties in ({name: value}, {}, {name.strip("-"): 9}):
        expected = selector.evaluate(properties, ENVELOPE)
        assert selector.function(properties, ENVELOPE) is (expected is True)
        assert selector.explain(properties, ENVELOPE).truth is expected
    assert selector.function({name: value}, ENVELOPE)
    again = compile_selector(selector.canonical.removeprefix("amqp: "), "amqp")
    assert again is not None
    assert again.canonical == selector.canonical


def test_chains_and_lists_of_quoted_names_are_indexed() -> None:
    texts = ", ".join(f"'{number}'" for number in range(500))
    selector = compile_selector(f'"trace-id" IN ({texts}) AND "a.b" = 1', "amqp")
    assert selector is not None
    assert {name for name, _ in selector.facts.equalities} == {"trace-id", "a.b"}
    chain = compile_selector(" OR ".join(f'"trace-id" = {number}' for number in range(40)), "amqp")
    assert chain is not None
    assert chain.function({"trace-id": 39}, ENVELOPE)
    assert not chain.function({"trace-id": 40}, ENVELOPE)


@pytest.mark.parametrize(
    ("text", "dialect", "advice"),
    [
        ("trace-id = 'x'", "jakarta", 'only the dialect amqp has such names, in double quotes: "trace-id"'),
        ("a = 1 AND x-trace-id = 'x'", "ibm-mq", '"x-trace-id"'),
        ("trace-id = 'x'", "amqp", 'such a name stands in double quotes: "trace-id"'),
        ("order.region = 'EU'", "mqe", 'only the dialect amqp has such names, in double quotes: "order.region"'),
        ("order.region = 'EU'", "amqp", 'such a name stands in double quotes: "order.region"'),
        ("\"trace-id\" = 'x'", "jakarta", "names have none, except in the dialect amqp"),
    ],
)
def test_a_name_with_other_characters_is_refused_with_what_to_write(text: str, dialect: str, advice: str) -> None:
    with pytest.raises(SelectorError) as caught:
        compile_selector(text, dialect)
    assert advice in (caught.value.hint or "")


def test_a_quoted_name_is_noted_where_providers_have_none() -> None:
    selector = compile_selector('"trace-id" = \'x\' AND "trace-id" <> 5', "amqp")
    assert selector is not None
    notes = [note for note in selector.portability() if note.code == "D-11"]
    assert [(note.providers, note.rewrite) for note in notes] == [(("ActiveMQ Classic", "RabbitMQ", "IBM MQ"), None)]
    rewritten = [note.rewrite for note in selector.portability() if note.code == "D-04"]
    assert rewritten == ['("trace-id" < 5 OR "trace-id" > 5)']


@pytest.mark.parametrize("text", ["p.subject = 'x'", "a.x = 1", "x != 1", '"a b" = 1'])
def test_other_dialects_have_none_of_it(text: str) -> None:
    with pytest.raises(SelectorError):
        compile_selector(text)
