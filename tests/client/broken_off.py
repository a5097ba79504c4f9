"""A model of a session whose calls are broken off: seeded programs over both APIs and the four acknowledgement modes.

    python -m tests.client.broken_off --seeds 500

A program sends, receives, acknowledges, ends transactions, recovers, closes and opens consumers, through a relay that
holds back requests or answers, and cuts. Any call may be cancelled (asyncio), interrupted by a signal handler or at any
point of the client's code (blocking), time out, or lose its connection. Nothing waits for a clock: a call is broken off
when its request, or the answer to that, is held.

The account of an application is kept: what it may rely on after each call. In the end it is compared with what another
client finds in the queues: nothing lost, nothing twice unmarked, order kept, no part of a transaction, and no consumer
that no caller has.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import sievemq
import sievemq.aio
from sievemq import ConnectionFactory, JMSException, Queue, TextMessage, TransactionRolledBackException
from sievemq_broker import EmbeddedBroker

from .interrupts import Interrupts
from .relay import Relay, options

APIS = ("aio", "blocking")
TRANSACTED, AUTO, CLIENT, DUPS = range(4)
#: Milliseconds for a receive of what must come.
SOON = 60_000
#: Messages that wait in the beginning; more than a program receives.
FILLED = 60
STEPS = 14

_numbers = itertools.count()


class Interrupted(BaseException):
    """Raised by the signal handler."""


class Fault(NamedTuple):
    """What happens to a call.

    Attributes:
        how: ``cut`` the connection; ``break`` the call off, by a cancellation or a signal; let it ``time out``; break
            it off at a ``point`` of its code.
        direction: what is held meanwhile: requests (0) or answers (1).
        point: which one.
        then: with what was held: ``release`` it, ``keep`` it for the next call, or ``cut``.
    """

    how: str
    direction: int = 0
    point: int = 0
    then: str = "release"


class Call(NamedTuple):
    """A call of the API: name, the call, what happens to it."""

    name: str
    work: Callable[[], Any]
    fault: Fault | None


class Outcome(NamedTuple):
    """Of a call: what it returned, or raised; or that it was broken off."""

    value: Any = None
    error: JMSException | None = None
    broken: bool = False


@contextmanager
def impatient(transport: Any) -> Iterator[None]:
    """Requests have hardly any time, as with a short option request_timeout."""
    before = transport._patience
    if isinstance(before, int) and transport._limiting is not None:  # the timer of asyncio is set for the usual time
        transport._limiting.cancel()
        transport._limiting = None
        transport._limits.clear()
    transport._patience = 5 if isinstance(before, int) else 0.005
    try:
        yield
    finally:
        transport._patience = before


# -- the account ------------------------------------------------------------------------------------------------------


@dataclass
class Work:
    """Of a transaction: what it sent, for certain and perhaps, and what it received."""

    sent: list[int] = field(default_factory=list)
    perhaps: list[int] = field(default_factory=list)
    received: list[int] = field(default_factory=list)


class Account:
    """What the application knows.

    Attributes:
        open: the work of the present transaction, or what is not acknowledged.
        doubtful: that of commits or acknowledgements that were broken off, in order.
    """

    def __init__(self, mode: int) -> None:
        self.mode = mode
        self.open = Work()
        self.doubtful: list[Work] = []
        self.sent: set[int] = set()
        self.perhaps: set[int] = set()
        self.done: set[int] = set()
        self.maybe: set[int] = set()
        self.vanished = 0  # interrupted receives, whose messages may be gone with them
        self.unmarked: Counter[int] = Counter()
        self._first = -1
        self._last = False, -1

    def see(self, number: int, marked: bool) -> None:
        """A message was received."""
        if not marked:
            self.unmarked[number] += 1
            assert self.unmarked[number] == 1, f"{number} came twice unmarked"
            assert number > self._first, f"{number} came behind {self._first}, both unmarked"
            self._first = number
        place = not marked, number  # ORD-07
        assert place > self._last, f"{number} came behind {self._last[1]}"
        assert number not in self.done, f"{number} was acknowledged and came again"
        self._last = place
        if self.mode in (AUTO, DUPS):
            self.done.add(number)
        else:
            self.open.received.append(number)

    def back(self) -> None:
        """What was received may come again: order begins anew."""
        self._last = False, -1

    def send(self, number: int, certain: bool) -> None:
        if self.mode == TRANSACTED:
            (self.open.sent if certain else self.open.perhaps).append(number)
        else:
            (self.sent if certain else self.perhaps).add(number)

    def failed(self) -> None:
        """Of the acknowledgements in doubt some may have failed: their messages come again, or the next covers them."""
        self.maybe.update(number for work in (*self.doubtful, self.open) for number in work.received)
        self.doubtful, self.open = [], Work()
        self.back()

    def settle(self, works: list[Work]) -> None:
        for work in works:
            self.sent.update(work.sent)
            self.perhaps.update(work.perhaps)
            self.done.update(work.received)

    def doubt(self) -> None:
        self.doubtful.append(self.open)
        self.open = Work()

    def ended(self) -> None:
        """A call that knows the outcome of all before it has returned: all took effect."""
        self.settle(self.doubtful)
        self.doubtful = []

    def rolled_back(self, error: TransactionRolledBackException) -> None:
        assert error.committed <= len(self.doubtful), f"{error.committed} of {len(self.doubtful)} commits took effect"
        self.settle(self.doubtful[: error.committed])
        self.doubtful = []
        self.open = Work()
        self.back()

    def check(self, out: list[int], left: list[tuple[int, bool]], dead: set[int]) -> None:
        """Compare with what another client finds in the end.

        Args:
            out: what was sent and is there.
            left: what is left to be received, and whether it is marked.
            dead: what became a dead letter.
        """
        assert out == sorted(set(out)), f"sent twice, or out of order: {out}"
        missing, unknown = self.sent - set(out), set(out) - self.sent - self.perhaps
        assert not missing, f"sent and lost: {missing}"
        assert not unknown, f"rolled back and sent: {unknown}"
        numbers = [number for number, _ in left]
        assert len(numbers) == len(set(numbers)), f"twice there: {numbers}"
        assert left == sorted(left, key=lambda one: (not one[1], one[0])), f"out of order: {numbers}"
        again = self.done & set(numbers)
        assert not again, f"acknowledged and there: {again}"
        for number, marked in left:
            assert marked or not self.unmarked[number], f"{number} came twice unmarked"
        lost = set(range(FILLED)) - self.done - set(numbers) - dead
        lost -= self.maybe.union(*(work.received for work in self.doubtful if self.mode == CLIENT))
        assert len(lost) <= self.vanished, f"lost: {lost}"


# -- the program ------------------------------------------------------------------------------------------------------


class Program:
    """One application, as a generator of its calls.

    Args:
        random: of the seed.
        api: one of :data:`APIS`.
        mode: of the session.
    """

    def __init__(self, chance: random.Random, api: str, mode: int) -> None:
        self.chance = chance
        self.api = api
        self.mode = mode
        self.account = Account(mode)
        self.log: list[str] = []
        self._lost = False
        self._outages = 0
        self._sequence = itertools.count()

    def fault(self, times_out: bool = True, waits: bool = True) -> Fault | None:
        """Something that may happen to a call.

        Args:
            times_out: it has a time limit.
            waits: it may wait for the broker.
        """
        chance = self.chance
        if chance.random() < 0.45:
            return None
        if not waits or chance.random() < 0.3:
            return Fault("point", point=chance.randint(1, 12 if self.api == "aio" else 160))
        hows = ["cut", "break", "break", *(["time out"] if times_out else [])]
        return Fault(
            chance.choice(hows), chance.randrange(2), then=chance.choice(["release", "keep", "keep", "cut", "cut"])
        )

    def steps(self, connection: Any) -> Generator[Call, Outcome, None]:
        """The calls; each gets its outcome."""
        session = (yield self._call("create_session", lambda: connection.create_session(self.mode))).value
        producer = (yield self._call("create_producer", lambda: session.create_producer(Queue("out")))).value
        gone = (yield self._call("create_temporary_queue", session.create_temporary_queue)).value
        yield self._call("delete", gone.delete)
        anywhere = (yield self._call("create_producer", session.create_producer)).value
        consumer = None
        verbs = ["send", "send", "receive", "receive", "receive", "receive_no_wait", "reopen", "session"]
        verbs += {
            TRANSACTED: ["commit", "commit", "commit", "rollback", "doom"],
            CLIENT: ["acknowledge", "acknowledge", "acknowledge", "recover", "recover"],
        }.get(self.mode, ["recover"])
        for _ in range(STEPS):
            if consumer is None:
                made = yield self._call("create_consumer", lambda: session.create_consumer(Queue("in")), self.fault())
                consumer = made.value
                continue
            verb = self.chance.choice(verbs)
            if verb == "send":
                yield from self._send(producer)
            elif verb in ("receive", "receive_no_wait"):
                yield from self._receive(verb, consumer)
            elif verb == "doom":  # the broker refuses the send, and rolls back at the commit
                yield self._call(verb, lambda: anywhere.send(gone, TextMessage("?")), self.fault(False, waits=False))
            elif verb == "reopen":
                yield from self._close(consumer)
                consumer = None
            elif verb == "session":
                other = yield self._call("create_session", lambda: connection.create_session(1), self.fault())
                if other.value is not None:
                    yield self._call("close session", lambda: other.value.close())  # noqa: B023
            else:
                yield from self._end(verb, session)
        if consumer is not None:
            yield self._call("close", consumer.close)
        while self.mode == TRANSACTED:
            if (yield from self._end("commit", session, certain=True)):
                break
        if self.mode == CLIENT and self.chance.random() < 0.5:
            yield from self._end("acknowledge", session, certain=True)
        yield self._call("close session", lambda: session.close())

    def notice(self, outages: int) -> None:
        """The client may notice a loss in a later call than the one that was cut."""
        if outages != self._outages:
            self._outages = outages
            self.lose()

    def lose(self) -> None:
        """The connection is lost, perhaps: before the outcome of the call, or behind it."""
        self.account.back()
        self._lost = True

    def _call(self, name: str, work: Callable[[], Any], fault: Fault | None = None) -> Call:
        if self._lost:
            self._lost = False
            self.account.back()
        self.log.append(f"{name} {fault or ''}")
        return Call(name, work, fault)

    def _close(self, consumer: Any) -> Generator[Call, Outcome, None]:
        if (yield self._call("close", consumer.close, self.fault())).broken:
            yield self._call("close", consumer.close)
        assert consumer._engine.closed
        self.account.back()

    def _send(self, producer: Any) -> Generator[Call, Outcome, None]:
        number = next(self._sequence)
        waits = self.mode != TRANSACTED
        outcome = yield self._call(
            f"send {number}", lambda: producer.send(TextMessage(str(number))), self.fault(False, waits)
        )
        if outcome.error is not None:
            raise outcome.error
        self.account.send(number, not outcome.broken)

    def _receive(self, verb: str, consumer: Any) -> Generator[Call, Outcome, None]:
        if verb == "receive":
            call = self._call(verb, lambda: consumer.receive(SOON), self.fault(False))
        else:
            call = self._call(verb, lambda: consumer.receive_no_wait(), self.fault())
        outcome = yield call
        if isinstance(outcome.error, TransactionRolledBackException):
            self.account.rolled_back(outcome.error)
        elif outcome.error is not None:
            assert self.mode == CLIENT, outcome.error
            self.account.failed()
        elif outcome.broken:
            if self.api == "blocking":  # the signal may have come behind the call, which had acknowledged its message
                fault = call.fault
                self.account.vanished += self.mode in (AUTO, DUPS) or (fault is not None and fault.how == "break")
        elif outcome.value is not None:
            self.log.append(f"  {outcome.value.get_body(str)} {outcome.value.get_jms_redelivered()}")
            self.account.see(int(outcome.value.get_body(str)), outcome.value.get_jms_redelivered())
        else:
            assert verb == "receive_no_wait", "nothing came"

    def _end(self, verb: str, session: Any, certain: bool = False) -> Generator[Call, Outcome, bool]:
        """Commit, roll back, recover or acknowledge; True if it returned."""
        account = self.account
        work = session._acknowledge if verb == "acknowledge" else getattr(session, verb)
        fault = None if certain else self.fault(verb != "commit")
        begun = session._engine.outcomes.begun
        outcome = yield self._call(verb, work, fault)
        if outcome.broken and verb == "commit" and session._engine.outcomes.begun == begun:
            return False  # interrupted before it began
        if verb in ("rollback", "recover"):
            account.back()
        if isinstance(outcome.error, TransactionRolledBackException):
            self.log.append(f"  rolled back, {outcome.error.committed} in doubt took effect")
            account.rolled_back(outcome.error)
        elif outcome.error is not None:
            assert self.mode == CLIENT, outcome.error
            self.log.append(f"  {outcome.error}")
            account.failed()
        elif outcome.broken and verb in ("commit", "acknowledge"):
            account.doubt()
        elif verb == "recover":
            if not outcome.broken:  # else what comes next may acknowledge its messages
                account.open = Work()
            account.failed()
        elif outcome.broken:
            account.open = Work()
        else:
            account.ended()
            if verb != "rollback":
                account.settle([account.open])
            account.open = Work()
        return outcome.error is None and not outcome.broken


# -- the two APIs -----------------------------------------------------------------------------------------------------


def play_aio(program: Program, url: str, relay: Relay) -> None:
    async def run() -> None:
        async with sievemq.aio.ConnectionFactory(url, **options(close_timeout=100)).create_connection() as connection:
            await connection.start()
            steps = program.steps(connection)
            outcome: Outcome | None = None
            while True:
                try:
                    call = steps.send(outcome)  # type: ignore[arg-type]
                except StopIteration:
                    break
                outcome = await carry_out(connection, call)
                program.notice(connection._engine.outages)
            await connection._transport.ask(connection._engine.ping)
            check_nothing_is_left(connection)

    async def carry_out(connection: Any, call: Call) -> Outcome:
        loop, fault = asyncio.get_running_loop(), call.fault

        async def work() -> Any:
            return await call.work()

        how = fault.how if fault is not None else ""
        if fault is not None and how != "point":
            relay.keep(fault.direction)
        task = loop.create_task(work())
        if how == "point" and fault is not None:
            for _ in range(fault.point):
                await asyncio.sleep(0)
            relay.release()
            task.cancel()
        elif fault is None:
            await asyncio.sleep(0)
            relay.release()
        else:
            over = threading.Event()
            task.add_done_callback(lambda _: relay.ring(over))
            if how == "time out":
                with impatient(connection._transport):
                    await asyncio.wait((task,))
            else:
                await loop.run_in_executor(None, relay.until_kept_or, fault.direction, over)
            if how == "break":
                task.cancel()
            if how == "cut" or fault.then == "cut":
                program.lose()
                await asyncio.wait((task,), timeout=0)
                relay.cut()
                relay.release()
            elif fault.then == "release":
                relay.release()
        await asyncio.wait((task,), timeout=100)
        assert task.done(), f"{call.name} hangs"
        if task.cancelled():
            return Outcome(broken=True)
        error = task.exception()
        if error is not None:
            return failed(error, how)
        return Outcome(task.result())

    asyncio.run(run())


def failed(error: BaseException, how: str) -> Outcome:
    if not isinstance(error, JMSException):
        raise error
    if error.get_error_code() == "TIMEOUT":
        assert how == "time out", error
        return Outcome(broken=True)
    return Outcome(error=error)


def play_blocking(program: Program, url: str, relay: Relay) -> None:
    armed = inside = False
    me = threading.get_ident()

    def interrupt(*_: object) -> None:
        nonlocal armed
        if armed and inside:
            armed = False
            raise Interrupted

    def carry_out(connection: Any, call: Call) -> Outcome:
        nonlocal armed, inside
        fault = call.fault
        how = fault.how if fault is not None else ""
        over = threading.Event()

        def direct() -> None:
            nonlocal armed
            if fault is None or how == "point":
                relay.release()
                return
            relay.until_kept_or(fault.direction, over)
            if how == "break":
                lead = connection._transport.lead
                while not over.is_set():
                    if lead.thread == me or lead._followers:
                        armed = True
                        signal.pthread_kill(me, signal.SIGUSR1)
                    over.wait(0.02)  # it may have come before the call waited, or into a finalizer, which drops it
            elif how == "time out":
                over.wait(100)
            if how == "cut" or fault.then == "cut":
                if how == "break":
                    over.wait(100)
                relay.cut()
                relay.release()
            elif fault.then == "release":
                relay.release()

        if fault is not None and how != "point":
            relay.keep(fault.direction)
        director = threading.Thread(target=direct)
        interrupts = Interrupts(fault.point if fault is not None and how == "point" else 0)
        try:
            inside = True
            director.start()
            if how == "time out":
                with impatient(connection._transport):
                    return Outcome(call.work())
            if how == "point":
                with interrupts.armed():
                    return Outcome(call.work())
            return Outcome(call.work())
        except (Interrupted, KeyboardInterrupt):
            program.log.append(f"  interrupted {interrupts.place}")
            program.lose()
            return Outcome(broken=True)
        except JMSException as error:
            return failed(error, how)
        finally:
            inside = False
            relay.ring(over)
            director.join(120)
            assert not director.is_alive()
            if fault is not None and (how == "cut" or fault.then == "cut"):
                program.lose()

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with ConnectionFactory(url, **options(close_timeout=100)).create_connection() as connection:
            connection.start()
            steps = program.steps(connection)
            outcome: Outcome | None = None
            while True:
                try:
                    call = steps.send(outcome)  # type: ignore[arg-type]
                except StopIteration:
                    break
                outcome = carry_out(connection, call)
                program.notice(connection._engine.outages)
            connection._transport.ask(connection._engine.ping)
            check_nothing_is_left(connection)
    finally:
        signal.signal(signal.SIGUSR1, before)


def check_nothing_is_left(connection: Any) -> None:
    """The application has closed what it has; nothing else is there."""
    engine = connection._engine
    assert not engine.outbox.requests.abandoned, "abandoned"
    known = {session._engine for session in connection._sessions}  # one whose opening was interrupted at its very end
    sessions = set(engine.sessions.values()) - known
    assert not sessions, f"sessions {[session.id for session in sessions]} are open"
    consumers = list(engine.deliveries.consumers)
    assert not consumers, f"consumers {consumers} are open"


def play(broker: EmbeddedBroker, seed: int, api: str | None = None, mode: int | None = None) -> Program:
    """Play the program of a seed, and check its account.

    Args:
        broker: where; in a namespace of its own.
        seed: of the program.
        api, mode: chosen by the seed if not given.
    """
    chance = random.Random(seed)
    choice = chance.choice(APIS), chance.randrange(4)
    program = Program(chance, api or choice[0], choice[1] if mode is None else mode)
    url = broker.namespace(f"seed-{seed}-{next(_numbers)}").url
    try:
        with ConnectionFactory(url).create_context() as context:
            producer = context.create_producer()
            for number in range(FILLED):
                producer.send(Queue("in"), str(number))
        with Relay(broker.port) as relay:
            (play_aio if program.api == "aio" else play_blocking)(program, relay.url(url), relay)
        with ConnectionFactory(url).create_context() as context:
            found = {name: drain(context, name) for name in ("out", "in", "DLQ.in")}
        dead = {number for number, _ in found["DLQ.in"]}
        program.account.check([number for number, _ in found["out"]], found["in"], dead)
    except BaseException as error:
        error.add_note(f"seed {seed}, {program.api}, mode {program.mode}:\n" + "\n".join(program.log))
        raise
    return program


def drain(context: Any, name: str) -> list[tuple[int, bool]]:
    consumer = context.create_consumer(Queue(name))
    found = []
    while (message := consumer.receive_no_wait()) is not None:
        found.append((int(message.get_body(str)), message.get_jms_redelivered()))
    consumer.close()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=500, help="how many programs")
    parser.add_argument("--first", type=int, default=0, help="seed of the first one")
    parser.add_argument("--api", choices=APIS, help="one API only")
    parser.add_argument("--mode", type=int, choices=range(4), help="one acknowledgement mode only")
    chosen = parser.parse_args()
    failures, begun, kinds = 0, time.monotonic(), Counter[str]()
    with EmbeddedBroker() as broker:
        for seed in range(chosen.first, chosen.first + chosen.seeds):
            started = time.monotonic()
            try:
                program = play(broker, seed, chosen.api, chosen.mode)
                kinds[f"{program.api} {program.mode}"] += 1
            except Exception as error:
                failures += 1
                print(f"seed {seed}: {type(error).__name__}: {error}", *getattr(error, "__notes__", ()), sep="\n")
            if (took := time.monotonic() - started) > 5:
                print(f"seed {seed} took {took:.1f} s")
    print(f"{chosen.seeds} programs in {time.monotonic() - begun:.0f} s, {failures} failed")
    print(dict(sorted(kinds.items())))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
