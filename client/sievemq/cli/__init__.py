"""The ``sievemq`` command.

Subcommands come from the entry-point group ``sievemq.commands``, so that broker, test kit and pipeline add theirs
without being imported here. An entry point names a function, which becomes one command, or a ``typer.Typer``, which
becomes a group. Only the one that is called for is loaded.

Exit codes: 0 done, 1 failed, 2 usage (a missing extra included), 3 not found, 4 refused by a check, 130 interrupted.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from sievemq.cli.exits import FAILED, INTERRUPTED, OK, USAGE
from sievemq_core.output import OutputError, complain, discard, open_closed

__all__ = ["main", "run"]


#: Options of the commands that are often written before the command.
_OF_COMMANDS: Final = ("--url", "-u", "--http", "--user", "--namespace", "-N")


def main() -> None:
    """Entry point of the console script."""
    open_closed()
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
    option = arguments[0].partition("=")[0] if arguments else ""
    if option in _OF_COMMANDS:
        complain(f"sievemq: {option} is an option of the commands, and follows the command: sievemq send {option} …")
        return USAGE
    try:
        from sievemq.cli.loading import MissingExtraError, build  # typer is in an extra
    except ModuleNotFoundError as error:
        if error.name != "typer":
            raise
        complain("sievemq: the command line needs an extra: pip install 'sievemq[cli]'")
        return USAGE
    try:
        command = build(arguments)
    except MissingExtraError as error:
        complain(f"sievemq: {error}")
        return USAGE
    try:
        code = command(arguments)
        if code != INTERRUPTED:
            with suppress(OSError):  # the command has reported what it could not write
                sys.stdout.flush()
                return code
    except OutputError as error:
        code = OK if error.is_unread else FAILED  # a reader that wants no more, such as `| head`, is no failure
        if code:
            complain(f"sievemq: {error}")
    except KeyboardInterrupt:
        code = INTERRUPTED
    discard()  # writing the rest at Python's end could fail again, or wait for a reader that does not read
    return code
