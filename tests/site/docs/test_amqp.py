"""docs/amqp.md: its limits are those of the code."""

from __future__ import annotations

import pytest

from sievemq_broker.protocols.amqp.connection import CREDIT, FRAME_BYTES
from sievemq_broker.protocols.amqp.types import MESSAGE_VALUES, VALUES

from .programs import ROOT

PAGE = (ROOT / "docs" / "amqp.md").read_text("utf-8")


@pytest.mark.parametrize(
    "text",
    [
        f"a frame of {FRAME_BYTES >> 20} MiB",
        f"{VALUES:,} values in a performative, {MESSAGE_VALUES:,} in a message",
        f"{CREDIT:,} deliveries under way on a link",
    ],
)
def test_a_limit_is_that_of_the_code(text: str) -> None:
    assert text in PAGE
