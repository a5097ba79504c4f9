"""/livez and /readyz: is the loop turning, and may clients be sent here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sievemq_broker.server.server import Phase

if TYPE_CHECKING:
    from sievemq_broker.server.server import Server

__all__ = ["liveness", "readiness"]


def liveness(server: Server) -> dict[str, object]:
    """That this is computed at all says that the loop turns; how late it was lately is a hint."""
    return {"status": "ok", "loop_lag_seconds": round(server.timers.lag.last, 6)}


def readiness(server: Server) -> tuple[bool, dict[str, object]]:
    """True if clients may be sent here; and the answer, with the reasons if not."""
    reasons: list[str] = []
    if server.phase is not Phase.READY:
        reasons.append(server.phase.value)
    if len(server.services.connections) >= server.links.limit:  # those before WELCOME make room
        reasons.append(f"all {server.links.limit} connections are taken")
    ready = not reasons
    return ready, {"status": "ready" if ready else "not ready", "reasons": reasons}
