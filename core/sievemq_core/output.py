"""Standard output and error of the ``sievemq`` commands, of whichever package.

A line is flushed before anything depends on it. If standard output cannot be written, a command whose result is its
output fails; a command that has changed something, or whose result is its exit code, keeps that code and prints the
line on standard error.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class OutputError(Exception):
    """Standard output cannot be written.

    Attributes:
        is_unread: the reader has closed the pipe, as ``| head`` does.
    """

    def __init__(self, cause: OSError) -> None:
        reason = "it is closed" if cause.errno == errno.EBADF else cause.strerror or str(cause)
        super().__init__(f"the output cannot be written: {reason}")
        self.is_unread = cause.errno == errno.EPIPE


@contextmanager
def writing() -> Iterator[None]:
    """Write to standard output, and flush it.

    Raises:
        OutputError: it cannot be written.
    """
    try:
        yield
        sys.stdout.flush()
    except OSError as error:
        raise OutputError(error) from None


def write(text: str) -> None:
    """Write text, and flush it.

    Raises:
        OutputError: as of :func:`writing`.
    """
    with writing():
        sys.stdout.write(text)


def show(text: str) -> None:
    """Print a line that is the result of a command.

    Raises:
        OutputError: as of :func:`writing`.
    """
    write(f"{text}\n")


def report(text: str) -> None:
    """Print a line that tells what a command did, on standard error if standard output cannot be written."""
    try:
        show(text)
    except OutputError as error:
        complain(f"sievemq: {error}; this was done: {text}")


def complain(text: str, end: str = "\n") -> None:
    """Print a line on standard error. Nothing happens if that cannot be written either."""
    with suppress(OSError):
        sys.stderr.write(text + end)
        sys.stderr.flush()


def discard() -> None:
    """Drop what is buffered for standard output, which Python would write at its end."""
    with suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def open_closed() -> None:
    """Put a stream in the place of each standard one that is closed.

    Otherwise the next file or socket would get its descriptor. The stream fails when it is used, but for standard
    error, which drops what is written to it.
    """
    # The lowest free descriptor is given out first: the order matters.
    for name, mode, flag in (("stdin", "r", os.O_WRONLY), ("stdout", "w", os.O_RDONLY), ("stderr", "w", os.O_WRONLY)):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, flag)
            setattr(sys, name, os.fdopen(nowhere, mode, errors="backslashreplace", closefd=False))
