"""KeyboardInterrupt at a chosen point of the SDK's code, as a signal handler raises it there.

CPython runs signal handlers at the beginning of a function and behind a call of a C function (and where a loop turns,
which is near one of these). A profile function sees both, so an exception raised there hits what a signal could hit.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

_ROOT = Path(__file__).parents[2]
#: Python drops what is raised where these are finalized.
_DROPPED = ("__del__", "<genexpr>")
#: What asyncio has taken out of its queue or read from the socket is lost if an exception comes before these begin.
_OF_THE_LOOP = ("data_received", "_flush", "_look", "_acknowledge", "keep_alive")
_CODE = (f"{_ROOT}/client/", f"{_ROOT}/core/")


class Interrupts:
    """Raises KeyboardInterrupt once, in the thread that enters :meth:`armed`.

    Args:
        point: at which of the points where it could; 0 for none.
        code: files in which it does, by how their paths begin.

    Attributes:
        points: how many were passed.
        place: where it was raised; empty if it was not.
    """

    def __init__(self, point: int, code: tuple[str, ...] = _CODE) -> None:
        self._point = point
        self._code = code
        self.points = 0
        self.place = ""

    @contextmanager
    def armed(self) -> Iterator[None]:
        """What runs in this block can be interrupted. The garbage of other tests is not collected in it: Python drops
        what is raised in a finalizer."""
        if self.place:
            yield
            return
        collects = gc.isenabled()
        gc.disable()
        sys.setprofile(self._pass)
        try:
            yield
        finally:
            sys.setprofile(None)
            if collects:
                gc.enable()

    def _pass(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event not in ("call", "c_return") or not code.co_filename.startswith(self._code) or code.co_name in _DROPPED:
            return
        if event == "call" and code.co_name in _OF_THE_LOOP:
            return
        self.points += 1
        if self.points == self._point:
            sys.setprofile(None)
            self.place = f"{Path(code.co_filename).name}:{frame.f_lineno} {code.co_name} ({event} {argument})"
            raise KeyboardInterrupt
