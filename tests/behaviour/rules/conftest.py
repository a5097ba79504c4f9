"""Rule tests run over both APIs; the harness is tests/client/both.py, which also says how to write one."""

from __future__ import annotations

from tests.client.both import api, both_broker

__all__ = ["api", "both_broker"]
