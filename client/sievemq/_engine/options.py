"""The options of a connection, as the engine needs them: no host, no port, no TLS."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Self

from sievemq._engine.repair import FOREVER
from sievemq.url import BrokerURL
from sievemq_core.limits import HEARTBEAT_MS

SendConfirm = Literal["auto", "always", "never"]


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Settings of one connection.

    Args:
        namespace: where its destinations live; empty for the broker's default.
        user: user name; None for anonymous.
        password: password in clear.
        client_id: administered JMS client id (FAC-07); None to set none.
        heartbeat: milliseconds after which this end expects a byte from the peer; 0 for never.
        agent: client library, version and application, for the operator of the broker.
        prefetch: messages a consumer may hold that the application has not seen; None adapts it to the traffic
            (D-23), 0 fetches a message only on demand.
        send_confirm: which sends wait for the broker's confirm (D-24).
        dialect: selector dialect of consumers and browsers; None for the broker's default.
        reconnect: milliseconds for which the client tries to repair a lost connection (D-32); 0 to not try.
        send_timeout: milliseconds that a send or commit may wait for room; 0 for ever.
        request_timeout: milliseconds that the answer to a request may take; 0 for no limit.
        close_timeout: milliseconds that closing may wait for the broker.
        busy_poll: microseconds for which a caller polls for an answer before it blocks, 0 for never (decision 0022).
    """

    namespace: str = ""
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    client_id: str | None = None
    heartbeat: int = HEARTBEAT_MS
    agent: str = ""
    prefetch: int | None = None
    send_confirm: SendConfirm = "auto"
    dialect: str | None = None
    reconnect: int = 0
    send_timeout: int = 0
    request_timeout: int = 60_000
    close_timeout: int = 5_000
    busy_poll: int = 0

    @classmethod
    def from_url(cls, url: BrokerURL, user: str | None, password: str | None, agent: str) -> Self:
        """The options of a URL.

        Args:
            user, password: credentials; the URL's if both are None.
        """
        chosen = url.options
        if user is None and password is None:
            user, password = url.user, url.password
        return cls(
            namespace=url.namespace,
            user=user,
            password=password,
            client_id=chosen.client_id,
            heartbeat=chosen.heartbeat,
            agent=f"{agent} {chosen.application}" if chosen.application else agent,
            prefetch=chosen.prefetch,
            send_confirm=chosen.send_confirm,
            dialect=chosen.selector_dialect,
            reconnect=FOREVER if chosen.reconnect == "forever" else chosen.reconnect,
            send_timeout=chosen.send_timeout,
            request_timeout=chosen.request_timeout,
            close_timeout=chosen.close_timeout,
            busy_poll=chosen.busy_poll,
        )
