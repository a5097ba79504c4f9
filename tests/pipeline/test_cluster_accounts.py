"""What judges `python -m tests.pipeline.cluster.run` finds what is planted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from .cluster.accounts import Row, body_of, check, check_places

SENT = [Row(number, body_of(number), f"ID:{number}") for number in range(20)]


def test_a_run_without_faults_is_right() -> None:
    out = [replace(row, id=None) for row in reversed(SENT)]
    assert check(range(20), SENT, {"out": out, "archive": SENT}) == []
    assert check(range(19), SENT, {"out": out}) == [], "the last send failed, and was carried out"


@pytest.mark.parametrize(
    ("copy", "found"),
    [
        (SENT[1:], "archive: missing: 1 (0)"),
        ([*SENT, SENT[3]], "archive: more than once: 1 (3)"),
        ([*SENT[:5], replace(SENT[5], body=body_of(6)), *SENT[6:]], "archive: another message: 1 (5)"),
        ([*SENT[:5], replace(SENT[5], id="ID:6"), *SENT[6:]], "archive: another message: 1 (5)"),
        ([*SENT, Row(20, body_of(20))], "archive: never sent: 1 (20)"),
        ([], "archive: missing: 20 (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, …)"),
    ],
)
def test_faults_of_a_copy_are_found(copy: list[Row], found: str) -> None:
    assert check(range(20), SENT, {"out": SENT, "archive": copy}) == [found]


def test_faults_of_the_queue_are_found() -> None:
    for number, queue, found in (
        (20, SENT[:-1], "confirmed, but not in the queue: 1 (19)"),
        (20, [*SENT, SENT[0]], "the queue: more than once: 1 (0)"),
        (19, [*SENT[:-1], Row(19, "x")], "the queue: not what was sent: 1 (19)"),
    ):
        assert check(range(number), queue, {"out": list(set(queue))}) == [found]


def test_where_tasks_ran_is_checked() -> None:
    code = "/jobs/app-1/0/env/lib/sievemq_spark/__init__.py"
    assert check_places({"1": 5, "2": 1}, ["1", "2"], {code}, "/jobs") == []
    assert check_places({"1": 6}, ["1", "2"], {code, "/jobs-2/sievemq_spark/__init__.py"}, "/jobs") == [
        "no task ran on 2",
        "a task used /jobs-2/sievemq_spark/__init__.py",
    ]
