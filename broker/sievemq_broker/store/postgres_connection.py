"""Connections to PostgreSQL on which no call waits for ever, and its errors as those of a store.

PgBouncer in transaction mode may stand between: nothing is prepared, nothing is set for a session, nothing is listened
to, and no advisory lock is taken.
"""

from __future__ import annotations

import re
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from sievemq_broker.domain.store import (
    AwayError,
    DamagedError,
    FencedError,
    LostWritesError,
    StoreError,
    StoreFullError,
)
from sievemq_broker.store.postgres_tables import FENCED, FORMAT, LOST
from sievemq_broker.store_url import without_password

#: Seconds; libpq takes no less.
_CONNECT_SECONDS: Final = 2

#: Time-outs of TCP, in seconds: a machine that has vanished is noticed by them, whatever the caller waits for.
_IDLE_SECONDS: Final = 5
_PROBE_SECONDS: Final = 1
_PROBES: Final = 3

#: How a transaction of several statements is begun, whatever the role's defaults are. Its lock would outlive a client
#: that does not go on with it. A taker that meets the lock ends it sooner (:func:`end_writer`), where it can.
_BEGIN: Final = (
    "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL lock_timeout = '300ms'; "
    "SET LOCAL idle_in_transaction_session_timeout = '5s'"
)

#: For servers from this version on: a bound for all of it.
_BOUNDS_TRANSACTIONS: Final = 170_000
_BEGIN_BOUND: Final = f"{_BEGIN}; SET LOCAL transaction_timeout = '300s'"

_R = TypeVar("_R")

_CLUSTER_TABLES: Final = (
    "SELECT to_regclass('sievemq.namespace') IS NOT NULL AND to_regclass('sievemq.placement') IS NOT NULL"
)
_CLUSTER_SHARDS: Final = "SELECT DISTINCT shard FROM sievemq.namespace ORDER BY shard"

#: Classes of SQLSTATE, or single ones, after which the same call may succeed: the connection is gone, the server starts
#: or stops, it is a replica, has no connection free, or has ended a transaction that stood in another's way.
_AWAY: Final = ("08", "57", "25", "40", "53300", "55P03")
_FULL: Final = ("53100", "53200", "58030")
_DAMAGED: Final = ("XX001", "XX002")
_NO_TABLES: Final = ("42P01", "3F000", "42883", "42703")


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """A connection of which each call ends.

    Attributes:
        timeout: seconds for which a call waits for its answer. The connection cannot be used afterwards.
        warnings: notices of class 01 since they were cleared.
    """

    timeout: float = _CONNECT_SECONDS
    warnings: list[str]

    def begin(self, timeout: float) -> None:
        """Bound each call from now on, and note warnings."""
        self.timeout = timeout
        self.warnings = []
        self.add_notice_handler(self._note)

    def _note(self, notice: psycopg.errors.Diagnostic) -> None:
        if (notice.sqlstate or "01")[:2] == "01":
            self.warnings.append(str(notice.message_primary))

    def wait(self, gen: Any, *arguments: Any, **more: Any) -> Any:
        return super().wait(_bounded(gen, self.timeout), *arguments, **more)


def _bounded(gen: Generator[Any, Any, _R], seconds: float) -> Generator[Any, Any, _R]:
    """The same generator, which fails once it has waited for so long."""
    end = time.monotonic() + seconds
    try:
        wants = next(gen)
        while True:
            ready = yield wants
            if not ready and time.monotonic() >= end:
                raise psycopg.OperationalError(f"no answer within {seconds:g} s")
            wants = gen.send(ready)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]


def connect(url: str, *, timeout: float, application: str = "sievemq") -> Connection:
    """Connect, within some seconds for each host that the URL names. Each statement is a transaction of its own unless
    the caller begins one.

    Args:
        url: as libpq knows it.
        timeout: seconds for which each call waits for its answer.

    Raises:
        AwayError: it is not there now.
        StoreError: it refuses, or the URL is wrong.
    """
    try:
        given = conninfo_to_dict(url)
        usual: dict[str, Any] = {
            "connect_timeout": _CONNECT_SECONDS,
            "application_name": application,
            "target_session_attrs": "read-write",
            "client_encoding": "UTF8",
            "tcp_user_timeout": int(timeout * 1000),
            "keepalives_idle": _IDLE_SECONDS,
            "keepalives_interval": _PROBE_SECONDS,
            "keepalives_count": _PROBES,
        }
        connection = Connection.connect(
            make_conninfo("", **{**usual, **given}), autocommit=True, prepare_threshold=None
        )
    except Exception as error:
        raise translated(error, url, "be reached") from error
    connection.begin(timeout)
    return connection


def check(connection: Connection, where: str) -> str:
    """Check that the database can hold a store.

    Args:
        where: for errors: its URL without password.

    Returns:
        The random id of the database.

    Raises:
        StoreError: it cannot; the text says why, and what to do.
    """
    (found, commits) = connection.execute(
        "SELECT to_regclass('sievemq.format') IS NOT NULL, current_setting('synchronous_commit')"
    ).fetchone() or (False, "")
    if not found:
        raise StoreError(f"{where} has no tables of SieveMQ; make them with `sievemq store init`")
    if commits == "off":
        raise StoreError(
            f"{where} confirms what it has not stored, since synchronous_commit is off: set it to on for this role"
        )
    row = connection.execute("SELECT version, oldest, id FROM sievemq.format").fetchone() or (0, 0, "")
    version, oldest, database = row
    if oldest > FORMAT:  # a newer one alone is no reason: brokers of two versions share the database during an upgrade
        raise StoreError(f"{where} has format {oldest}; this version of SieveMQ reads {FORMAT} and older")
    if version < FORMAT:
        raise StoreError(f"{where} has format {version}, not {FORMAT}; migrate it with `sievemq store migrate`")
    return str(database)


def check_cluster(connection: Connection, where: str, shard: str, in_cluster: bool) -> None:
    """Check that a broker and the database agree on whether namespaces are spread over several shards.

    Args:
        where: as of :func:`check`.
        shard: of the broker.
        in_cluster: the broker asks the table which namespaces the shard has.

    Raises:
        StoreError: they do not; the text says what to do.
    """
    has_tables = (connection.execute(_CLUSTER_TABLES).fetchone() or (False,))[0]
    if in_cluster and not has_tables:
        raise StoreError(
            f"{where} has no tables for several shards (setting shards); make them with `sievemq store migrate`"
        )
    if has_tables and not in_cluster:
        others = [name for (name,) in connection.execute(_CLUSTER_SHARDS)]
        if shard in others and len(others) > 1:
            raise StoreError(
                f"in {where} namespaces are spread over the shards {', '.join(others)}; a broker without the setting "
                f"shards would serve all of them from {shard}: give it the list that the other brokers have"
            )


@contextmanager
def transaction(connection: Connection) -> Iterator[None]:
    """A transaction, ended by COMMIT, or by ROLLBACK after an error."""
    connection.warnings.clear()
    connection.execute(_BEGIN_BOUND if connection.info.server_version >= _BOUNDS_TRANSACTIONS else _BEGIN)
    try:
        yield
    except BaseException:
        if not connection.closed:
            try:
                connection.execute("ROLLBACK")
            except psycopg.Error:  # the first error is reported
                connection.close()
        raise
    connection.execute("COMMIT")
    confirm(connection)


def confirm(connection: Connection) -> None:
    """Check that what was committed is as safe as it was to be. A COMMIT whose wait for a standby was ended reports
    success, and a warning beside it.

    Raises:
        psycopg.OperationalError: it is not; the connection is closed.
    """
    if connection.warnings:
        connection.close()
        raise psycopg.OperationalError(f"it was committed, but: {connection.warnings[0]}")


def end_writer(connection: Connection, shard: str) -> bool:
    """End the write that holds the shard's head, if it is the owner's. Its transaction is rolled back, unless it is
    committed already and waits for a standby.

    The owner has written the number of its backend into the lease. A number that it has given up may belong to another
    backend by now: only one that holds a lock of the table is ended. Behind PgBouncer the number is unknown.
    """
    row = connection.execute(
        "SELECT pg_terminate_backend(l.backend) FROM sievemq.lease l WHERE l.shard = %s AND EXISTS (SELECT 1 FROM "
        "pg_locks k WHERE k.pid = l.backend AND k.relation = 'sievemq.head'::regclass AND k.granted)",
        (shard,),
    ).fetchone()
    return row is not None


def translated(error: Exception, url: str, doing: str) -> Exception:
    """An error of PostgreSQL as one of a store. One of this package is returned unchanged.

    Args:
        url: of the database; it is shown without password.
        doing: what it cannot.
    """
    if not isinstance(error, psycopg.Error):
        return error
    where, code = without_password(url), error.sqlstate or error.diag.sqlstate  # the latter, if it is one of ours
    text = _without_secrets(str(error).strip() or type(error).__name__, url)
    if code == FENCED:
        return FencedError(f"{where}: another broker has taken the shard over; this one stops and stores nothing more")
    if code == LOST:
        lost = int(error.diag.message_primary or 0)
        return LostWritesError(f"{where} has lost its last {lost} writes: a replica without them was promoted", lost)
    if code is None and isinstance(error, psycopg.OperationalError):
        return _of_connecting(f"{where} cannot {doing}: {text}", str(error))
    if code is None:  # a URL that is none, or a value
        return StoreError(f"{where} cannot {doing}: {text}")
    if code.startswith(_AWAY):
        return AwayError(f"{where} cannot {doing} now: {text} ({code})")
    if code in _FULL:
        return StoreFullError(f"{where} cannot {doing}: there is no room: {text} ({code})")
    if code in _DAMAGED:
        return DamagedError(f"{where} is damaged: {text} ({code})")
    if code in _NO_TABLES:
        return StoreError(f"{where} lacks tables of SieveMQ: {text}; make them with `sievemq store init`, or `migrate`")
    return StoreError(f"{where} cannot {doing}: {text} ({code})")


#: What libpq says of a connection that was refused for good; it passes on no SQLSTATE.
_REFUSED: Final = re.compile(
    r"authentication failed|no password supplied|does not exist|no pg_hba.conf entry|permission denied"
)


def _of_connecting(text: str, said: str) -> StoreError:
    return StoreError(text) if "FATAL" in said and _REFUSED.search(said) else AwayError(text)


def _without_secrets(text: str, url: str) -> str:
    """libpq takes a password that should have been percent-encoded for parts of the address, and names them."""
    user_info, _, _ = url.partition("://")[2].rpartition("@")
    for part in re.split(r"[@/?:#]", user_info.partition(":")[2]):
        if part:
            text = text.replace(part, "***")
    return text
