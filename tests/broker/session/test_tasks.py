"""Each verb that may meet many things is a task of the scheduler; FEW has the reason why another one meets few."""

from __future__ import annotations

import pytest

from sievemq_broker.session.handlers.messages import on_send
from sievemq_broker.session.table import HANDLERS
from sievemq_core.wire.commands import COMMANDS, Command

#: By verb, what of the peer makes it a task.
TASKS = {
    Command.SEND: "Send",
    Command.COMMIT: "examine",
    Command.ROLLBACK: "give_back",
    Command.RECOVER: "give_back",
    Command.RELEASE: "give_back",
    Command.SETTLE: "give_back",
    Command.CLOSE_CONSUMER: "close_consumer",
    Command.CLOSE_SESSION: "close_session",
    Command.GOODBYE: "leave",
    Command.PUBLISH: "examine",
    Command.DELETE_TAP: "scheduler",
    Command.DELETE_TEMPORARY: "answer_when_empty",
    Command.UNSUBSCRIBE: "answer_when_empty",
    Command.FIND_DESTINATIONS: "scheduler",
}

ONE, PAGE, CREDIT = "it concerns one thing", "a page is limited", "what was delivered, within the credit, is dropped"
LATER = "what is left to do is pending work of the queue or the tap"
LEAVING = "it waits for the tasks of connections that leave"

FEW = {
    Command.HEARTBEAT: ONE,
    Command.HELLO: LEAVING,
    Command.SET_CLIENT_ID: LEAVING,
    Command.PING: ONE,
    Command.OPEN_SESSION: ONE,
    Command.OPEN_CONSUMER: LATER,
    Command.DECLARE: ONE,
    Command.CREATE_TEMPORARY: ONE,
    Command.BROWSE: PAGE,
    Command.ACKNOWLEDGE: CREDIT,
    Command.ACKNOWLEDGE_ALL: CREDIT,
    Command.ACKNOWLEDGE_SEVERAL: CREDIT,
    Command.CREDIT: LATER,
    Command.WANT: LATER,
    Command.CLOCK_SEEN: ONE,
    Command.WITHDRAW: ONE,
    Command.OPEN_TAP: LATER,
    Command.LOOK_TAP: PAGE,
    Command.FETCH_TAP: PAGE,
    Command.ACKNOWLEDGE_TAP: LATER,
    Command.STAGE: "a transaction changes its place",
    Command.DISCARD: "what is staged is dropped together",
}


def test_each_verb_is_a_task_or_meets_few_things() -> None:
    known = TASKS.keys() | FEW.keys()
    missing = [COMMANDS[number].name for number in {Command.SEND, *HANDLERS} if number not in known]
    assert not missing, f"{missing}: make it a task and test its slices, or state why it meets few things"
    assert not TASKS.keys() & FEW.keys()


@pytest.mark.needs_python("reads the code of functions")
@pytest.mark.parametrize("verb", TASKS)
def test_what_may_meet_many_things_is_a_task(verb: Command) -> None:
    handler = on_send if verb is Command.SEND else HANDLERS[verb]
    assert TASKS[verb] in handler.__code__.co_names, f"{verb.name} carries all of it out in one turn"
