"""The scheduler: whose turn it is, what a turn may cost, and who learns of the end."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sievemq_broker.domain.journal import Journal, Share
from sievemq_broker.domain.work import TURN, Budget, Job, Make, Scheduler, Task, finish

NOW = 1_000


class Tasks:
    """Tasks of so many units that note each slice; one unit is done at a time."""

    def __init__(self) -> None:
        self.scheduler = Scheduler()
        self.slices: list[str] = []

    def make(self, name: str, units: int = 0, *, last: Callable[[], object] = lambda: None) -> Make[str]:
        def task(now: int, budget: Budget) -> Task[str]:
            left = units
            while left:
                if budget.spent:
                    self.slices.append(name)
                    now = yield
                else:
                    budget.spend(1)
                    left -= 1
            self.slices.append(name)
            last()
            return f"{name} at {now}"

        return task

    def start(self, key: str, units: int = 0, **more: object) -> Job[str]:
        """A task that is called as its key, unless it has a name."""
        name, last = str(more.pop("name", key)), more.pop("last", lambda: None)
        return self.scheduler.start(key, self.make(name, units, last=last), NOW, **more)  # type: ignore[arg-type]

    def wait(self, key: str, for_: Job[str], **more: bool) -> Job[None]:
        """A task that waits for another one."""

        def task(now: int, budget: Budget) -> Task[None]:
            self.slices.append(key)
            while not for_.over:
                yield for_
                self.slices.append(key)

        return self.scheduler.start(key, task, NOW, **more)

    def run(self) -> list[str]:
        """The slices until nothing is left."""
        for _ in range(1_000):
            if not self.scheduler.run(NOW):
                return self.slices
        raise AssertionError("it does not come to an end")


@pytest.fixture
def tasks() -> Tasks:
    return Tasks()


def failing() -> None:
    raise ZeroDivisionError


def test_a_small_task_is_over_when_it_has_started(tasks: Tasks) -> None:
    job = tasks.start("a", TURN)
    assert (job.over, job.result) == (True, f"a at {NOW}")
    assert not tasks.scheduler.is_busy("a")
    assert not tasks.scheduler.run(NOW)


def test_the_first_slice_of_a_later_task_is_done_in_the_next_turn(tasks: Tasks) -> None:
    job = tasks.start("a", later=True)
    assert not job.over
    assert not tasks.slices
    assert not tasks.scheduler.run(NOW + 1)
    assert job.result == f"a at {NOW + 1}"


def test_tasks_with_one_key_run_one_after_the_other(tasks: Tasks) -> None:
    tasks.start("a", 2 * TURN, name="first")
    second = tasks.start("a", name="second")
    assert not second.over
    assert tasks.run()[-2:] == ["first", "second"]
    assert "second" not in tasks.slices[:-1]


def test_tasks_with_different_keys_take_turns(tasks: Tasks) -> None:
    for key in "abc":
        tasks.start(key, 2 * TURN)
    tasks.slices.clear()
    assert tasks.run() == ["a", "b", "c"]


@pytest.mark.parametrize("later", [False, True])
def test_a_waiting_task_goes_on_once_the_other_is_over(tasks: Tasks, later: bool) -> None:
    worker = tasks.start("a", 3 * TURN)
    waiting = tasks.wait("w", worker, later=later)
    behind = tasks.start("w", name="behind")
    tasks.run()
    assert (waiting.over, behind.over) == (True, True)
    assert tasks.slices.count("w") == 2, "it is not asked meanwhile"
    assert tasks.slices[-3:] == ["a", "w", "behind"]


def test_there_is_nothing_to_do_while_all_tasks_wait(tasks: Tasks) -> None:
    elsewhere = Tasks()
    other = elsewhere.start("o", 2 * TURN)
    waiting = tasks.wait("w", other)
    assert not tasks.scheduler.run(NOW)
    assert tasks.scheduler.is_busy("w")
    tasks.scheduler.finish(NOW)
    tasks.scheduler.finish(NOW, "w")
    assert not waiting.over
    elsewhere.run()
    tasks.run()
    assert waiting.over


def test_finish_carries_out_what_a_task_waits_for(tasks: Tasks) -> None:
    worker = tasks.start("a", 3 * TURN)
    waiting, outer = tasks.wait("w", worker), tasks.start("b", 3 * TURN)
    chain = tasks.wait("x", waiting)  # type: ignore[arg-type]
    tasks.scheduler.finish(NOW, "x")
    assert (worker.over, waiting.over, chain.over) == (True, True, True)
    tasks.run()
    assert outer.over


@pytest.mark.parametrize("followed", [False, True])
def test_a_cancelled_task_waits_no_more(tasks: Tasks, followed: bool) -> None:
    worker = tasks.start("a", 3 * TURN)
    waiting = tasks.wait("w", worker)
    behind = tasks.start("w", name="behind") if followed else None
    tasks.scheduler.cancel("w", waiting)
    tasks.slices.clear()
    tasks.run()
    assert tasks.slices.count("w") == 0
    assert behind is None or behind.over
    assert not tasks.scheduler.ring


def test_a_task_goes_on_though_the_one_it_waits_for_has_failed(tasks: Tasks) -> None:
    worker = tasks.start("a", 2 * TURN, last=failing)
    waiting = tasks.wait("w", worker)
    tasks.run()
    assert waiting.over
    assert type(worker.error) is ZeroDivisionError


def test_a_task_that_is_started_during_a_turn_shares_its_budget(tasks: Tasks) -> None:
    inner: list[Job[str]] = []
    tasks.start("outer", TURN - 10, later=True, last=lambda: inner.append(tasks.start("inner", 100)))
    tasks.scheduler.run(NOW)
    assert not inner[0].over
    assert tasks.scheduler.budget.spent
    assert tasks.scheduler.overrun == 0
    tasks.run()
    assert inner[0].over


def test_a_task_that_is_started_by_the_first_slice_of_another_shares_its_budget(tasks: Tasks) -> None:
    """It once renewed the budget of both."""
    inner: list[Job[str]] = []
    tasks.start("outer", TURN - 10, last=lambda: inner.append(tasks.start("inner", 100)))
    assert not inner[0].over
    tasks.run()
    assert inner[0].over


def test_tasks_that_are_started_together_share_one_budget(tasks: Tasks) -> None:
    jobs: list[Job[str]] = []
    tasks.scheduler.share_turn(lambda: jobs.extend(tasks.start(key, TURN - 10) for key in "abc"))
    assert [(job.over, job.began) for job in jobs] == [(True, True), (False, True), (False, False)]
    tasks.run()
    assert all(job.over for job in jobs)


def test_a_nested_start_with_a_share_restores_the_share_of_the_outer_task(tasks: Tasks) -> None:
    journal = Journal()
    tasks.scheduler.store_in(journal)
    outer, inner = Share(), Share()

    def define(name: str) -> None:
        journal.define("tap", (name,), ())

    def last() -> None:
        define("before")
        tasks.start("inner", share=inner, last=lambda: define("inside"))
        define("behind")

    job = tasks.start("outer", share=outer, last=last)
    assert job.over
    assert journal.batch.definitions == {}
    parts = journal.cut().parts
    assert [[name for _, (name,) in part.definitions] for part in parts] == [["before"], ["inside"], ["behind"]]
    journal.written()
    assert outer.stored
    assert inner.stored


@pytest.mark.parametrize("key", ["b", None])
def test_a_task_may_carry_out_others_to_their_end(tasks: Tasks, key: str | None) -> None:
    others = [tasks.start("b", 3 * TURN), tasks.start("b", 3 * TURN), tasks.start("c", 3 * TURN)]
    seen: list[bool] = []

    def last() -> None:
        tasks.scheduler.finish(NOW, key)
        seen.extend(other.over for other in others)

    tasks.start("a", later=True, last=last)
    tasks.run()
    assert seen == [True, True, key is None]


def test_a_cancelled_task_goes_on_no_more_and_tells_nobody(tasks: Tasks) -> None:
    first, second = tasks.start("a", 2 * TURN), tasks.start("a", name="second")
    told: list[int] = []
    first.then(told.append)
    tasks.scheduler.cancel("a", first)
    tasks.run()
    assert (told, second.over) == ([], True)
    last = tasks.start("a", later=True)
    tasks.scheduler.cancel("a", last)
    assert not tasks.scheduler.is_busy("a")
    assert not tasks.scheduler.run(NOW)


def test_listeners_are_called_in_order_and_the_next_task_of_the_key_begins_after_them(tasks: Tasks) -> None:
    job = tasks.start("a", 2 * TURN)
    tasks.start("a", name="next")
    for name in ("one", "two"):
        job.then(lambda now, name=name: tasks.slices.append(name))
    assert tasks.run()[-3:] == ["one", "two", "next"]


@pytest.mark.parametrize("how", ["run", "finish", "finish all"])
def test_an_error_that_nobody_waits_for_is_reported_and_others_go_on(tasks: Tasks, how: str) -> None:
    reported: list[Exception] = []
    tasks.scheduler.report_to(reported.append)
    jobs = [tasks.start("a", later=True, last=failing) for _ in range(2)]
    behind = tasks.start("a", name="behind")
    tasks.scheduler.run(NOW) if how == "run" else tasks.scheduler.finish(NOW, "a" if how == "finish" else None)
    assert reported == [job.error for job in jobs]
    with pytest.raises(ZeroDivisionError):
        _ = jobs[0].result
    assert behind.over


def test_an_error_is_raised_where_nobody_takes_reports(tasks: Tasks) -> None:
    tasks.start("a", later=True, last=failing)
    behind = tasks.start("a", name="behind")
    with pytest.raises(ZeroDivisionError):
        tasks.scheduler.run(NOW)
    tasks.run()
    assert behind.over


def test_an_error_is_told_to_those_who_wait(tasks: Tasks) -> None:
    job = tasks.start("a", later=True, last=failing)
    told: list[Exception | None] = []
    job.then(lambda now: told.append(job.error))
    tasks.run()
    assert [type(error) for error in told] == [ZeroDivisionError]


def test_what_exceeds_a_slice_is_known(tasks: Tasks) -> None:
    def greedy(now: int, budget: Budget) -> Task[None]:
        budget.spend(TURN + 77)
        yield

    tasks.scheduler.start("a", greedy, NOW)
    assert tasks.scheduler.overrun == 77
    tasks.run()
    assert tasks.scheduler.overrun == 77


def test_very_many_waiting_tasks_do_not_delay_the_one_they_wait_for(tasks: Tasks) -> None:
    worker = tasks.start("a", 9 * TURN)
    waiting = [tasks.wait(f"w{number}", worker, later=True) for number in range(4 * TURN)]
    while not all(each.began for each in waiting):  # to begin to wait takes time as well
        tasks.scheduler.run(NOW)
    before = len(tasks.slices)
    for _ in range(4):
        assert tasks.scheduler.run(NOW)
    assert tasks.slices[before:] == ["a"] * 4
    tasks.run()
    assert all(each.over for each in waiting)
    assert len(tasks.slices) < 2 * len(waiting) + 20


def test_a_slice_that_does_nothing_costs_a_unit(tasks: Tasks) -> None:
    """Else a turn would not come to its end."""
    slices = []

    def idle(now: int, budget: Budget) -> Task[None]:
        while len(slices) < 3 * TURN:
            slices.append(now)
            yield

    tasks.scheduler.start("a", idle, NOW)
    tasks.start("b", 2 * TURN)
    tasks.run()
    assert len(slices) == 3 * TURN


def test_few_things_are_carried_out_without_a_scheduler(tasks: Tasks) -> None:
    assert finish(tasks.make("a", 5 * TURN), NOW) == f"a at {NOW}"
    with pytest.raises(ZeroDivisionError):
        finish(tasks.make("b", last=failing), NOW)
