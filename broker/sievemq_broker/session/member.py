"""Who a connected client is: its user, namespace and ids, and the lost connection that it continues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sievemq_broker.domain.broker import Broker
from sievemq_broker.domain.failure import PLAIN, Failure
from sievemq_broker.domain.namespace import Namespace
from sievemq_broker.session.checks import check_identifier, pairs
from sievemq_broker.session.lost import MAX_REFUSED, Memory, Report, Survived
from sievemq_broker.session.ports import Services
from sievemq_broker.session.rights import Identity
from sievemq_broker.session.session import Session
from sievemq_broker.session.settings import AuthenticationError
from sievemq_broker.session.verbs import Hello
from sievemq_core.errors import ErrorCode, ProtocolError, RequestError
from sievemq_core.harmless import harmless
from sievemq_core.message.destination import parse_address

#: Destinations remembered as allowed, for each client.
_MAX_ALLOWED: Final = 4_096

#: For how long a connection is remembered at least whose client is on another one already.
_RETURNING_MS: Final = 60_000

_MAX_ID_CHARS: Final = 64
_ID_CHARS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")


class Member:
    """A client of a namespace. The handshake finds out which one.

    Args:
        services: of the I/O layer.
        sessions: the client's, by id.

    Attributes:
        id: of the connection; empty before the handshake.
        identity: the user and their rights.
        namespace: set by the handshake.
        agent: what the client calls itself.
        client_id: None until it has claimed one.
        keep: milliseconds for which it is remembered after a loss of the connection; 0 if it is not.
        attempt: the number of the client's attempt to continue a lost connection.
        allowed: destinations that a limited user may send to, as far as it has.
        resumed: it continues a lost connection.
        handed_elsewhere: by consumer, the last tag that the application may have seen, as the client has reported on
            another connection.
    """

    __slots__ = (
        "_broker", "_memory", "_services", "_sessions", "_survived", "agent", "allowed", "attempt",
        "client_id", "handed_elsewhere", "id", "identity", "keep", "namespace", "resumed",
    )  # fmt: skip
    namespace: Namespace

    def __init__(self, broker: Broker, services: Services[Any], sessions: Mapping[int, Session]) -> None:
        self._broker = broker
        self._services = services
        self._sessions = sessions
        self.id = ""
        self.identity = Identity()
        self.agent = ""
        self.client_id: str | None = None
        self.keep = 0
        self.attempt = 0
        self.allowed: set[str] = set()
        self.resumed = False
        #: The memory of the lost connection.
        self._memory: Memory | None = None
        #: Consumer -> a message of it that is not failed yet, if the client does not state so later.
        self._survived: dict[int, Survived] = {}
        self.handed_elsewhere: Mapping[int, int] = {}

    # -- the handshake ------------------------------------------------------------------------------------------------

    @staticmethod
    def asks_for(identity: Identity, hello: Hello) -> tuple[str, str]:
        """The namespace that a client asks for which has signed in as this user, and another one that is meant instead,
        if there is one of that name. Each is empty if there is none, or the user has no right there.

        A client that names none gets the default one, or one with the name of the host.

        Raises:
            AuthenticationError: the user has no right in any.
            SieveError: it is no name of a namespace.
        """
        enters, name, host = identity.rights.enters, hello.wanted, hello.host
        if name:
            check_identifier("a namespace", name)
            instead = ""
        else:
            name, instead = "default", host if host and enters(host) else ""
        if not enters(name):
            if not instead:
                raise no_right(identity, name)
            name = ""
        return name, instead

    def enter(self, identity: Identity, hello: Hello, namespace: str) -> None:
        """The client enters a namespace, in which this user has a right.

        Raises:
            AuthenticationError: the namespace is "": what the client asks for is not there.
            SieveError: there is no such namespace, and none can be made.
        """
        if not namespace:
            raise no_right(identity, "default")
        self.entitle(identity)
        self.namespace = self._broker.namespace(namespace)
        self.agent = harmless(hello.agent[:200])
        self.keep = min(hello.keep, self._services.settings.keep_ms)
        self.attempt = 0 if hello.resume is None else hello.resume.attempt

    def begin(self) -> None:
        self.id = self._services.connection_id()

    def claim_client_id(self, client_id: str) -> None:
        """Take a client id; raises RequestError INVALID_CLIENT_ID."""
        try:
            check_identifier("a client id", client_id)
        except RequestError as error:
            raise RequestError(error.text, ErrorCode.INVALID_CLIENT_ID) from None
        self.namespace.client_ids.claim(client_id, self.id)
        self.client_id = client_id

    # -- rights -------------------------------------------------------------------------------------------------------

    def entitle(self, identity: Identity) -> None:
        self.identity = identity
        self.allowed.clear()

    def allow(self, address: str) -> None:
        """Remember that a limited user may send to this destination."""
        if len(self.allowed) >= _MAX_ALLOWED:
            self.allowed.clear()
        self.allowed.add(address)

    def is_own(self, address: str) -> bool:
        """True for a temporary destination of this client, with which it may do anything."""
        return parse_address(address).owner == self.id

    @property
    def temporaries(self) -> int:
        return self.namespace.temporaries.count(self.id)

    # -- continuing a lost connection ---------------------------------------------------------------------------------

    def is_same(self, other: Member) -> bool:
        """True if the other one is of the same user in the same namespace.

        Raises:
            ProtocolError: it is, and the client has reconnected by a later attempt.
        """
        same = other.identity.user == self.identity.user and other.namespace is self.namespace
        if same:
            self._check_attempt(other.attempt)
        return same

    def _check_attempt(self, latest: int) -> None:
        """Raise if the client has continued the connection by a later attempt: this one was delayed, and no caller
        waits for its answer.
        """
        if 0 < self.attempt <= latest:
            raise ProtocolError("its client has reconnected on another connection since", ErrorCode.HEARTBEAT_MISSED)

    def resume(self, resume: str, report: Report, now: int) -> Memory | None:
        """Continue a lost connection, with its id and with what is remembered of it. Allowed only for the same user in
        the same namespace; otherwise it is a new one.

        Args:
            report: what the client states of messages that were delivered there.
            now: ms since 1970.

        Returns:
            What was remembered; None if nothing was.
        """
        lost = self._services.lost
        user, namespace = self.identity.user, self.namespace.name
        memory = lost.get(resume)
        if memory is not None and memory.user == user and memory.namespace == namespace:
            self._check_attempt(memory.attempt)
        memory = lost.take(resume, user, namespace)
        self.id = resume if memory is not None or self._may_keep(resume) else self._services.connection_id()
        self.resumed = True
        if memory is not None:
            self._survived = memory.settle(report, now)
            self._memory = memory
        return memory

    def _may_keep(self, resume: str) -> bool:
        """True if a connection that this broker does not remember may keep its id. Another start of the broker assigned
        the id, so no other client can have it, and messages and temporary destinations carry it.

        A limited user may not: ids are no secret, since every message carries one. With the id of another user it would
        receive the replies to that user's requests."""
        services = self._services
        return (
            self.identity.rights.unlimited
            and 0 < len(resume) <= _MAX_ID_CHARS
            and _ID_CHARS.issuperset(resume)
            and not resume.startswith(services.settings.incarnation)
            and resume not in services.connections
            and resume not in services.lost
        )

    def sends_of(self, session_id: int) -> tuple[int, int]:
        """What the broker knows of a session of the lost connection, once: the last SEND that arrived, and the last
        COMMIT or ACKNOWLEDGE_ALL that was carried out; 0 for none."""
        return (0, 0) if self._memory is None else self._memory.sessions.pop(session_id, (0, 0))

    def fail_survived(self, handed: Sequence[int], now: int, failure: Failure = PLAIN) -> None:
        """The client states that its application has failed what it was handed, which may include messages of the lost
        connection that it continues.

        Args:
            handed: pairs of consumer and the last tag that the application has seen.
            now: ms since 1970.
            failure: what the client states of it.
        """
        if self._survived:
            for consumer_id, tag in pairs(handed).items():
                survived = self._survived.pop(consumer_id, None)
                if survived is not None and survived.held.tag <= tag <= survived.last:
                    stated = failure.by(survived.party, consumer_id)
                    survived.source.fail_returned([survived.held], now, stated)

    # -- being remembered ---------------------------------------------------------------------------------------------

    def give_way(self, handed: Mapping[int, int]) -> None:
        """The client has come back on another connection, and reports there what was handed to it on this one."""
        self.handed_elsewhere = handed
        self.keep = max(self.keep, _RETURNING_MS)

    def cannot_resume(self) -> None:
        self.keep = 0

    def remembers(self) -> Memory:
        """The state that survives a restart of the broker, as :class:`Memory`."""
        memory = self._memory
        sessions = {} if memory is None else dict(memory.sessions)
        refused = [] if memory is None else list(memory.refused)
        for session in self._sessions.values():
            sessions[session.id] = (session.sent, session.settled)
            refused += [(session.id, *refusal) for refusal in session.refused or ()]
        user, namespace = self.identity.user, self.namespace.name
        return Memory(self.id, user, namespace, sessions, tuple(refused[-MAX_REFUSED:]), attempt=self.attempt)

    def progress(self) -> tuple[object, ...]:
        """A short form of that state: it differs whenever :meth:`remembers` would."""
        before = () if self._memory is None else tuple(self._memory.sessions.items())
        sessions = self._sessions.values()
        return (before, *[(s.id, s.sent, s.settled, s.refused and len(s.refused)) for s in sessions])


def no_right(identity: Identity, namespace: str) -> AuthenticationError:
    """The error for a user without any right in a namespace."""
    return AuthenticationError(
        f"user {identity.user!r} has no right in namespace {namespace!r}; an administrator can grant one"
    )
