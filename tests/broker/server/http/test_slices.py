"""Long work leaves the loop to others."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import count
from typing import Any, cast

import pytest

from sievemq_broker.domain.steps import Steps
from sievemq_broker.server.http.api import slices


class _Server:
    """As much of one as is needed."""

    class clock:  # noqa: N801
        now = staticmethod(lambda: 0)

    class turn:  # noqa: N801
        worked = staticmethod(lambda: None)


async def test_many_have_one_slice_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever works in slices has the loop for one of them at a time, and all come to an end."""
    instants = count()
    monkeypatch.setattr(slices, "perf_counter", lambda: next(instants) * 2 * slices.SLICE_SECONDS)
    turn, worked = 0, Counter[int]()
    running = True

    def steps() -> Steps[str]:
        yield
        for _ in range(5):
            worked[turn] += 1
            yield
        return "done"

    async def run() -> str:
        return await slices.run(cast("Any", _Server), steps())

    async def look() -> list[int]:
        seen = []
        async for item in slices.in_slices(range(5), every=1):
            worked[turn] += 1
            seen.append(item)
        return seen

    async def others() -> None:
        nonlocal turn
        while running:
            turn += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    ran = asyncio.gather(*(run() for _ in range(20)))
    looked = asyncio.gather(*(look() for _ in range(20)))
    assert await ran == ["done"] * 20
    assert await looked == [[0, 1, 2, 3, 4]] * 20
    running = False
    await task
    begun = worked.pop(1)  # those that look through a list have begun before anybody had to wait
    assert begun <= 22
    assert sum(worked.values()) == 200 - begun
    assert max(worked.values()) <= 2
