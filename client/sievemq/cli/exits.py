"""Exit codes of every ``sievemq`` command."""

from __future__ import annotations

from typing import Final

OK: Final = 0
FAILED: Final = 1
"""It was tried and did not work: no connection, a broker that is not ready, an error on the way."""
USAGE: Final = 2
"""It was not tried: unknown options, bad values or settings, a missing extra."""
NOT_FOUND: Final = 3
"""Not found: no such destination, or no message within the wait."""
REFUSED: Final = 4
"""A check failed: a selector that is not valid, credentials that are not accepted."""
INTERRUPTED: Final = 130
"""SIGINT ended it, as Ctrl-C does."""
