"""The fixture `api`, for tests that run over both APIs."""

from __future__ import annotations

from .both import api, both_broker

__all__ = ["api", "both_broker"]
