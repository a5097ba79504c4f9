"""The ``sievemq`` command.

Subcommands come from the entry-point group ``sievemq.commands``, so that broker, test kit and pipeline add theirs
without being imported here. An entry point names a function, which becomes one command, or a ``typer.Typer``, which
becomes a group. Only the one that is called for is loaded.

Exit codes: 0 done, 1 failed, 2 usage (a missing extra included), 3 not found, 4 refused by a check.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence

from sievemq.cli.exits import FAILED, USAGE

__all__ = ["main", "run"]


def main() -> None:
    """Entry point of the console script."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command line.

    Args:
        arguments: without the program's name.

    Returns:
        the exit code, see :mod:`sievemq.cli.exits`.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # JMS allows any text in a message, half a surrogate pair too: one that is printed must not be lost by it.
            stream.reconfigure(errors="backslashreplace")
    if arguments and arguments[0] in ("--version", "-V"):
        arguments = ["version"]
    try:
        from sievemq.cli.loading import MissingExtraError, build  # typer is in an extra
    except ModuleNotFoundError as error:
        if error.name != "typer":
            raise
        print("sievemq: the command line needs an extra: pip install 'sievemq[cli]'", file=sys.stderr)  # noqa: T201
        return USAGE
    try:
        command = build(arguments)
    except MissingExtraError as error:
        print(f"sievemq: {error}", file=sys.stderr)  # noqa: T201
        return USAGE
    try:
        code = command(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has closed our output (`| head`): no traceback. Python flushes again at exit, to nowhere then.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except KeyboardInterrupt:
        return FAILED
    return code
