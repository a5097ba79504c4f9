"""Many small cases in one test: a test of its own for each would cost more than what it checks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def case(*what: object) -> Iterator[None]:
    """Name the case in whatever is raised within."""
    try:
        yield
    except BaseException as error:  # pytest's own failures are not Exceptions
        error.add_note(f"in the case {', '.join(map(str, what))}")
        raise
