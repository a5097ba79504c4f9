"""Rights: patterns, verbs, and rights on everything."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sievemq_broker.session.rights import ALL_RIGHTS, Grant, Identity, Rights, Verb
from sievemq_core.errors import ErrorCode, RequestError

V = Verb


def grant(*may: Verb, on: str = "*", in_: str = "default") -> Grant:
    return Grant(frozenset(may), on, in_)


@pytest.mark.parametrize(
    ("pattern", "address", "fits"),
    [
        ("queue:orders", "queue:orders", True),
        ("orders", "queue:orders", True),
        ("orders", "orders", True),
        ("orders", "topic:orders", False),
        ("orders", "queue:Orders", False),
        ("orders", "queue:orders2", False),
        ("orders.*", "queue:orders.eu", True),
        ("orders.*", "queue:orders.", True),
        ("orders.*", "queue:orders", False),
        ("orders.*", "queue:xorders.eu", False),
        ("*.eu", "queue:a.eu", True),
        ("*.eu", "queue:a.eu.x", False),
        ("queue:*", "queue:anything", True),
        ("queue:*", "topic:anything", False),
        ("queue:*", "temporary-queue:c-1.1", False),
        ("a*b*c", "queue:abc", True),
        ("a*b*c", "queue:axxbyyc", True),
        ("a*b*c", "queue:acb", False),
        ("*", "topic:anything at all", True),
        ("**", "topic:x", True),
        ("a?c", "queue:abc", False),
        ("a[bc]", "queue:ab", False),
        ("a[bc]", "queue:a[bc]", True),
        ("a.c", "queue:abc", False),
        ("topic:p", "topic:p", True),
        ("*", "", False),
        ("*", "queue:\0", False),
    ],
)
def test_patterns(pattern: str, address: str, fits: bool) -> None:
    assert Rights([grant(V.CONSUME, on=pattern)]).may(V.CONSUME, "default", address) is fits


def test_namespaces() -> None:
    rights = Rights([grant(V.SEND), grant(V.BROWSE, in_="team-*")])
    assert rights.may(V.SEND, "default", "queue:q")
    assert rights.may(V.SEND, "", "queue:q")  # of a HELLO: the default one
    assert not rights.may(V.SEND, "team-a", "queue:q")
    assert rights.may(V.BROWSE, "team-a", "queue:q")
    assert not rights.may(V.BROWSE, "xteam-a", "queue:q")
    assert [rights.enters(name) for name in ("", "default", "team-", "team", "other")] == [
        True,
        True,
        True,
        False,
        False,
    ]


def test_every_right_lets_view_and_nothing_else_includes_another() -> None:
    for verb in Verb:
        rights = Rights([grant(verb, on="q")])
        assert [other for other in Verb if rights.may(other, "default", "queue:q")] == list(
            dict.fromkeys([verb, V.VIEW])
        )


def test_everything_is_granted_by_what_fits_everything_only() -> None:
    assert Rights([grant(V.MANAGE)]).may(V.MANAGE, "default", "*")
    assert not Rights([grant(V.MANAGE, on="queue:*")]).may(V.MANAGE, "default", "*")
    assert not Rights([grant(V.MANAGE)]).may(V.MANAGE, "*", "*")
    assert Rights([grant(V.MANAGE, in_="*")]).may(V.MANAGE, "*", "*")
    halves = Rights([grant(V.VIEW, in_="a*"), grant(V.VIEW, in_="b*")])
    assert not halves.may(V.VIEW, "*", "*")


def test_reply_may_be_sent_to_any_temporary_destination_of_the_namespace() -> None:
    rights = Rights([grant(V.CONSUME, on="orders")])
    for kind in ("temporary-queue", "temporary-topic"):
        assert rights.may(V.SEND, "default", f"{kind}:c-1.1")
        assert not rights.may(V.SEND, "other", f"{kind}:c-1.1")
        assert not rights.may(V.CONSUME, "default", f"{kind}:c-1.1")
        assert not rights.may(V.BROWSE, "default", f"{kind}:c-1.1")
        assert not rights.may(V.MANAGE, "default", f"{kind}:c-1.1")


def test_unlimited() -> None:
    assert ALL_RIGHTS.unlimited
    assert Identity().rights is ALL_RIGHTS
    assert not Rights([]).unlimited
    assert not Rights([grant(*Verb)]).unlimited
    assert not Rights([grant(V.SEND, in_="*")]).unlimited
    assert Rights([grant(V.SEND), grant(*Verb, in_="*")]).unlimited


def test_without_grants_nothing_is_allowed() -> None:
    assert not any(Rights([]).may(verb, "default", "queue:q") for verb in Verb)
    assert not Rights([]).enters("default")


def test_refusal_names_user_right_and_destination() -> None:
    identity = Identity("anna", Rights([]))
    with pytest.raises(RequestError) as refused:
        identity.require("consume", "team-a", "queue:q")
    assert refused.value.code is ErrorCode.SECURITY
    assert str(refused.value).startswith("user 'anna' must not consume from queue:q in namespace 'team-a'")
    assert refused.value.details == {
        "user": "anna", "verb": "consume", "destination": "queue:q", "namespace": "team-a",
    }  # fmt: skip
    Identity("ben").require("consume", "team-a", "queue:q")


@pytest.mark.parametrize(("on", "in_"), [("", "default"), ("q", ""), ("a\nb", "default"), ("q", "a\0")])
def test_patterns_that_are_none(on: str, in_: str) -> None:
    with pytest.raises(ValueError, match="is a pattern of printable characters"):
        grant(V.SEND, on=on, in_=in_)


def test_a_misspelt_kind_would_grant_nothing() -> None:
    with pytest.raises(ValueError, match=r"did you mean queue:orders\*\? A queue of that name is queue:qeue:orders"):
        grant(V.SEND, on="qeue:orders*")
    assert grant(V.SEND, on="queue:qeue:*").covers("default", "queue:qeue:orders")


def test_grant_without_a_verb_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="names at least one of send, consume"):
        Grant(frozenset())


def test_the_order_of_rights_does_not_matter() -> None:
    one, two = grant(V.SEND, on="a"), grant(V.BROWSE, on="b")
    assert Rights([one, two]) == Rights([two, one])
    assert Rights([one]) != Rights([two])
    assert hash(Rights([one, two])) == hash(Rights([two, one]))


@given(st.text("ab*.", min_size=1, max_size=12), st.text("ab.", min_size=1, max_size=12))
@settings(max_examples=300, deadline=None)
def test_pattern_fits_as_the_slow_way_says(pattern: str, name: str) -> None:
    def fits(pattern: str, text: str) -> bool:
        if not pattern:
            return not text
        if pattern[0] == "*":
            return any(fits(pattern[1:], text[n:]) for n in range(len(text) + 1))
        return bool(text) and text[0] == pattern[0] and fits(pattern[1:], text[1:])

    wanted = fits(pattern, f"queue:{name}") if not pattern.strip("*") else fits(pattern, name)
    assert Rights([grant(V.SEND, on=pattern)]).may(V.SEND, "default", f"queue:{name}") is wanted


def test_name_chosen_by_an_attacker_costs_nothing_much() -> None:
    rights = Rights([grant(V.SEND, on="*a" * 20 + "b")])
    begin = time.process_time()
    assert not rights.may(V.SEND, "default", "queue:" + "a" * 250)
    assert time.process_time() - begin < 5  # with backtracking: longer than anybody would wait
