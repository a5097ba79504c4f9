"""Builds the messages of a shard that another process owns, in a thread, until this one may take it over.

    the owner is seen ─► start ─► step, each 100 ms ─► end: the follower with what it has built ─► restore

Nothing depends on it: without what is built, a takeover reads everything.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Final

from sievemq_broker import logs
from sievemq_broker.domain.store import AwayError
from sievemq_broker.store.follower import Follower

#: Seconds between two steps, for each shard that the process follows; after an error; and between two while there is
#: more to do: others have their turn.
STEP_SECONDS: Final = 0.1
AWAY_SECONDS: Final = 1.0
REST_SECONDS: Final = 0.001

#: Seconds that a takeover waits for the present step.
END_SECONDS: Final = 1.0

log = logs.get("store")


class Following:
    """The thread.

    Args:
        follower: that it drives.
        shard: its name, for the log.
        shards: that the process follows: together they make as many steps as one.
        clock: seconds.
    """

    def __init__(
        self,
        follower: Follower,
        shard: str = "main",
        shards: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.follower = follower
        self._log = log.of(shard=shard)
        self._shards = shards
        self._clock = clock
        self._ending = threading.Event()
        self._ended = self._is_dropped = False
        self._thread = threading.Thread(target=self._follow, name="sievemq-follower", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Follow no further than the present step."""
        self._ending.set()

    def drop(self) -> None:
        """Follow no further: nobody takes what is built. The thread frees it, which takes long."""
        self._is_dropped = True
        self.stop()

    async def end(self) -> Follower | None:
        """Stop, and wait for that.

        Returns:
            The follower; None if it cannot be used: its database hangs, or something was wrong.
        """
        self.stop()
        await asyncio.get_running_loop().run_in_executor(None, self._thread.join, END_SECONDS)
        return self.follower if self._ended else None

    def _follow(self) -> None:
        was_caught_up = False
        while not self._ending.is_set():
            pause = STEP_SECONDS * self._shards
            try:
                if self.follower.step(self._clock()):
                    pause = REST_SECONDS
            except AwayError as error:  # the lease reports it
                self._log.debug("store.follower_away", reason=str(error))
                pause = AWAY_SECONDS
            except Exception as error:
                note = "a takeover reads all messages, and --handover does not ask for one"
                self._log.warning("store.not_followed", reason=str(error), note=note)
                self.follower.give_up()
                return
            if self.follower.caught_up and not was_caught_up:
                was_caught_up = True
                self._log.info("store.followed", messages=self.follower.messages, bytes=self.follower.bytes)
            self._ending.wait(pause)
        if self._is_dropped:
            self.follower.give_up()
        else:
            self.follower.close()
            self._ended = True
