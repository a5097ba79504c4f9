"""The client without its I/O: every decision of the SDK, no socket, no loop, no thread, no clock.

The blocking and the asyncio front drive one :class:`ClientConnection` each. How:

**Opening.** ``engine = ClientConnection(options, clock)``. On each transport that may lead to a broker a
:class:`Handshake`, ``engine.hello(peer)``, sends HELLO and takes the answer; a :class:`Race` says which host is tried
when. The first that is welcomed is given to ``engine.welcomed(handshake)``; the others are left.

**Bytes.** Feed what the broker sends to
``engine.receive_data(data)``, its end to ``engine.receive_eof()``, a failed transport to ``engine.lost(error)``; none
of them raises. After every call that may have queued output, write ``engine.data_to_send()``; the bytes of two calls
are written in the order of the calls. ``engine.has_output`` is True while there is some; a front may let it wait
for a few milliseconds when more is likely to follow, never longer, and not when it is about to wait for the broker.
Call ``engine.tick(monotonic_ms)`` at the time that the last call returned, for heartbeats.

**Requests** return a :class:`Completion`. Verbs that cannot be carried out raise at once; what the broker refuses
fails the completion, with the classic exception (``exceptions.runtime_twin`` gives the simplified API's). A lost
connection fails every completion, sends first, in order. ``add_callback(cb)`` calls back inside the engine call that
settles it: set a future or release a lock there, nothing more.

**Sessions.** ``session = engine.open_session(mode)``, wait for ``session.opened``, give
``session.call_to_acknowledge()`` what ``message.acknowledge()`` shall do (normally: wait for
``session.acknowledge()``). ``commit``, ``rollback``,
``recover``, ``acknowledge``, ``close`` return completions.

Before a request about what a session has sent and received (``commit``, ``rollback``, ``recover``, ``acknowledge``,
``stage``), and before a receive: if ``session.outcomes.doubts`` has some, wait for ``session.resolve()``, then call
``session.outcomes.tell()``. ``session.begin()`` comes first in a commit or rollback. A front that gives up waiting for
a completion calls ``outbox.abandon()``; a local time-out settles no completion.

**Receiving.** ``consumer = session.open_consumer(…)``, wait for ``consumer.opened``. To receive:

1. unless ``consumer.stops``: ``message = consumer.take()``; not None: go to 3.
2. else ``consumer.waits(callback)`` (called once, then dropped) and call ``consumer.expect()``; if that is True, or
   when ``PATIENCE`` has passed without a message, ``consumer.want()``; write, wait; then again from 1. No
   ``receive_data`` may be called between the last check of the buffer and setting the callback.
   ``receive_no_wait``: wait for ``consumer.want(answered=True)``, then 1 a last time.
   ``consumer.shut`` ends the wait with None, ``engine.failure`` with the exception of ``engine.check_open()``.
3. in AUTO and DUPS_OK sessions (``session.acknowledges_itself``) call ``consumer.settle()`` when the message counts as
   acknowledged: before ``receive`` returns, or after the listener has returned (LIS-03). A listener that raised there:
   ``session.recover()`` instead (LIS-04).
4. if ``consumer.taken >= consumer.credit.mark``: ``consumer.top_up()`` and write.

``receive_body`` calls ``peek()`` first, so that a body that does not fit stays where it is (JCO-09).

**Sending.** ``producer = EngineProducer(session, destination)``. While ``producer.sends.window_is_full`` wait for
``producer.sends.window_opens()``; then ``producer.send(message, producer.target(destination), …)``: None means it need
not wait, otherwise wait for the completion it returns. An asynchronous send is given callbacks: when its fate is known
it is among ``session.sends.calls``, for which :func:`call` is to be called soon, one after the other, and
``session.sends.notify`` is called. ``session.sends.settled()`` is what close, commit and rollback wait for.

A send, a window and a commit that may take only so long: ``engine.expect(sends, completion, monotonic_ms, timeout,
sequence)``, where an asynchronous send has no completion, and ``tick`` when that is over. What waits for room is then
taken back.

**Closing.** First ``session.shut_gate()`` or ``consumer.shut_gate()``: nothing more is handed over, and waiting callers
wake and return None (CLO-06); a running listener keeps the full service (CLO-08). Once no caller is between
``take`` and ``settle`` any more and ``session.sends.settled()``, wait for ``close()``, of a consumer
``session.close_consumer()``. ``engine.close()`` closes the lot.

**A lost connection** is repaired if the options say for how long (D-32): ``engine.repairing`` is True, nothing flows,
requests wait. The front opens another transport, at times that a :class:`Repair` gives, as it opened the first, and
calls ``engine.welcomed(handshake)``: the engine repeats everything by itself. ``engine.attempt_failed(error)`` if no
host has welcomed the client this time, ``engine.give_up()`` when the time is over. ``engine.down`` is True once the
present transport has failed. A front that begins to close calls ``engine.leave()``.

**Threads.** ``EngineConsumer.take`` and ``settle`` and ``EngineProducer.send`` may be called without a lock, by one
thread per session; everything else needs the front's one lock around it. An asyncio front needs none.

**What else the broker sends** goes to the callables given to ``engine.listen()`` (for the ExceptionListener: a lost
connection, a failed send that nothing waits for, a consumer that the broker closed) and ``engine.flow.listen()``.

**An exception from outside**, such as KeyboardInterrupt, that breaks into a call of the engine leaves it undefined what
was queued. The front then calls ``engine.interrupted()``, which loses the connection; where it broke into a send
(``sends.torn``), ``sends.mend()`` before. Nothing that was confirmed is lost with that, and nothing is sent twice. For
that the engine changes its state in an order: a waiter is notified first and forgotten then, a count is changed before
what it counts is dropped. So ``interrupted()`` finds what is left to do, and does it.

Where things are:

- a connection, its loss and repair: connection, recovery
- a session: session, outcomes, browser, taps, producer
- consumers: deliveries, consumer, credit
- sends, their fate, what they wait for: sends
- commands and answers, and when they are written: outbox, answers
- what holds with the broker: terms, selector, options
- reaching a broker: race, handshake, repair
- values: heartbeat
"""

from __future__ import annotations

from sievemq._engine.browser import EngineBrowser, Scan
from sievemq._engine.connection import ClientConnection
from sievemq._engine.consumer import CLOSED, PATIENCE, SHUT, EngineConsumer
from sievemq._engine.handshake import Handshake
from sievemq._engine.options import EngineOptions, SendConfirm
from sievemq._engine.outbox import ACKNOWLEDGE_DELAY, SEND_DELAY, Completion, Pace
from sievemq._engine.producer import ABSENT, Absent, EngineProducer
from sievemq._engine.race import LEAVE_SECONDS, Host, Race
from sievemq._engine.repair import Repair, for_how_long
from sievemq._engine.sends import Blocked, Callbacks, Sends, call
from sievemq._engine.session import (
    AUTO_ACKNOWLEDGE,
    CLIENT_ACKNOWLEDGE,
    DUPS_OK_ACKNOWLEDGE,
    SESSION_TRANSACTED,
    EngineSession,
)
from sievemq._engine.terms import Terms, TimeLimit

__all__ = [
    "ABSENT",
    "ACKNOWLEDGE_DELAY",
    "AUTO_ACKNOWLEDGE",
    "CLIENT_ACKNOWLEDGE",
    "CLOSED",
    "DUPS_OK_ACKNOWLEDGE",
    "LEAVE_SECONDS",
    "PATIENCE",
    "SEND_DELAY",
    "SESSION_TRANSACTED",
    "SHUT",
    "Absent",
    "Blocked",
    "Callbacks",
    "ClientConnection",
    "Completion",
    "EngineBrowser",
    "EngineConsumer",
    "EngineOptions",
    "EngineProducer",
    "EngineSession",
    "Handshake",
    "Host",
    "Pace",
    "Race",
    "Repair",
    "Scan",
    "SendConfirm",
    "Sends",
    "Terms",
    "TimeLimit",
    "call",
    "for_how_long",
]
