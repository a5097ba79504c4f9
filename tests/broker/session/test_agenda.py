"""Commands that are not done: what waits for what, what it holds, and what is dropped with the connection."""

from __future__ import annotations

from typing import Any

import pytest

from sievemq_broker.domain.work import Budget, Job, Scheduler, Task
from sievemq_broker.session.agenda import Act, Agenda
from sievemq_broker.session.life import Life
from sievemq_core.wire.codec import CommandTuple
from sievemq_core.wire.commands import Command

NOW = 1_000
PING = (Command.PING, 1)


class Client:
    """Concludes commands as a client's Peer does: what is left of one is carried out while it is there."""

    def __init__(self) -> None:
        self.scheduler, self.life = Scheduler(), Life()
        self.agenda = Agenda(self.scheduler, self.life, self.conclude)
        self.errors: list[Exception] = []
        self.done: list[str] = []
        self.over: set[str] = set()

    def conclude(self, error: Exception | None, command: CommandTuple, act: Act, now: int) -> None:
        assert not any(begun.job.over for begun in self.agenda.begun), "it is off the agenda by now"
        if error is not None:
            self.errors.append(error)
        else:
            act(now)

    def task(self, name: str, now: int, budget: Budget) -> Task[int]:
        while name not in self.over:
            now = yield
        if name == "broken":
            raise ZeroDivisionError
        return now

    def job(self, name: str) -> Job[int]:
        return self.scheduler.start(name, lambda now, budget: self.task(name, now, budget), NOW)

    def act(self, name: str) -> Act:
        return lambda now: self.done.append(name)

    def end(self, name: str) -> None:
        self.over.add(name)
        self.scheduler.run(NOW)


@pytest.fixture
def client() -> Client:
    return Client()


def test_late_commands_are_taken_up_in_order_with_their_bytes(client: Client) -> None:
    agenda = client.agenda
    agenda.put_off([PING], 10)
    agenda.put_off([(Command.PING, 2), (Command.PING, 3)], 20)
    assert (agenda.behind, agenda.bytes) == (True, 30)
    assert agenda.take_up() == ([PING, (Command.PING, 2), (Command.PING, 3)], 30)
    assert (agenda.behind, agenda.bytes) == (False, 0)
    assert agenda.take_up() == ([], 0)


def test_it_is_behind_until_every_command_that_has_begun_is_over(client: Client) -> None:
    agenda = client.agenda
    for name in ("a", "b"):
        agenda.go_on_after(client.job(name), PING, client.act(name), NOW, 7)
    client.end("b")
    assert (client.done, agenda.behind, agenda.bytes) == (["b"], True, 7)
    client.end("a")
    assert (client.done, agenda.behind, agenda.bytes) == (["b", "a"], False, 0)


def test_a_task_that_is_over_at_once_holds_up_nothing(client: Client) -> None:
    client.over |= {"a", "broken"}
    client.agenda.go_on_after(client.job("a"), PING, client.act("a"), NOW)
    with pytest.raises(ZeroDivisionError):
        client.agenda.go_on_after(client.job("broken"), PING, client.act("broken"), NOW)
    assert (client.done, client.agenda.behind) == (["a"], False)


def test_only_what_has_no_effect_yet_ends_with_the_connection(client: Client) -> None:
    agenda = client.agenda
    agenda.examine(lambda now, budget: client.task("examined", now, budget), PING, client.act("examined"), NOW)
    returning = client.job("returning")
    agenda.go_on_after(returning, PING, client.act("returning"), NOW)
    agenda.put_off([PING], 10)
    agenda.clear()
    assert (agenda.behind, agenda.bytes) == (False, 0)
    assert not client.scheduler.is_busy(agenda)
    client.over.add("examined")
    client.end("returning")
    assert returning.over
    assert "examined" not in client.done


def test_the_fault_of_another_connection_is_not_this_command_s(client: Client) -> None:
    client.job("broken")
    assert client.agenda.wait_for_return("broken", PING, client.act("again"))
    assert not client.agenda.wait_for_return("nobody", PING, client.act("never"))
    assert not client.agenda.wait_for_return(None, PING, client.act("never"))
    client.end("broken")
    assert (client.done, client.errors, client.agenda.behind) == (["again"], [], False)


def test_what_begins_after_the_end_is_not_concluded(client: Client) -> None:
    agenda = client.agenda
    before, behind = client.job("before"), client.job("behind")
    agenda.go_on_after(before, PING, client.act("before"), NOW)
    agenda.clear()
    agenda.go_on_after(behind, PING, client.act("behind"), NOW)
    client.end("behind")
    client.end("before")
    assert (client.done, agenda.behind) == (["before"], False)


class Batch:
    """A namespace with a large batch that is being published, until it ends."""

    def __init__(self) -> None:
        self.publishing: Batch | None = self
        self.listeners: list[Act] = []

    def then(self, listener: Act) -> None:
        self.listeners.append(listener)

    def end(self) -> None:
        self.publishing, listeners, self.listeners = None, self.listeners, []
        for listener in listeners:
            listener(NOW)


def test_what_waits_for_a_batch_is_carried_out_in_order_behind_what_takes_several_turns(client: Client) -> None:
    agenda, batch = client.agenda, Batch()
    space: Any = batch

    def begin(now: int) -> None:
        client.done.append("a")
        agenda.go_on_after(client.job("job"), PING, client.act("end of a"), now)

    assert agenda.wait_for_publishing(space, begin)
    assert agenda.wait_for_publishing(space, client.act("b"))
    batch.end()
    assert agenda.wait_for_publishing(space, client.act("c")), "the others are not carried out yet"
    client.scheduler.run(NOW, 1_000)
    assert client.done == ["a"]
    client.end("job")
    client.scheduler.run(NOW)
    assert client.done == ["a", "end of a", "b", "c"]
    assert not agenda.wait_for_publishing(space, client.act("never"))


def test_what_must_wait_for_another_batch_keeps_its_place(client: Client) -> None:
    agenda, batch = client.agenda, Batch()
    space: Any = batch

    def again(now: int) -> None:
        if not agenda.wait_for_publishing(space, again, "session"):
            client.done.append("a")

    assert agenda.wait_for_publishing(space, again, "session")
    assert agenda.wait_for_publishing(space, client.act("b"))
    assert agenda.waits_in("session")
    batch.end()
    batch.publishing = batch
    client.scheduler.run(NOW)
    assert (client.done, agenda.waits_in("session")) == ([], True)
    batch.end()
    client.scheduler.run(NOW)
    assert (client.done, agenda.waits_in("session")) == (["a", "b"], False)


def test_nothing_that_waits_for_a_batch_is_carried_out_after_the_end(client: Client) -> None:
    agenda, batch = client.agenda, Batch()
    space: Any = batch
    assert agenda.wait_for_publishing(space, lambda now: agenda.clear())
    assert agenda.wait_for_publishing(space, client.act("never"))
    batch.end()
    client.scheduler.run(NOW)
    assert not client.done
    assert not client.scheduler.ring
