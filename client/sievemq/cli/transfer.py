"""``sievemq export`` and ``sievemq import``: the messages of queues as lines of JSON."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Annotated, Final, NoReturn

import typer
from rich.console import Console
from rich.progress import Progress

from sievemq import DeliveryMode, Queue, Session
from sievemq.blocking import MessageProducer
from sievemq.cli.broker_access import connect, failures, missing, warned
from sievemq.cli.completing import queues
from sievemq.cli.exits import FAILED, NOT_FOUND, USAGE
from sievemq.cli.options import DEFAULT_URL, SelectorOption, UrlOption, UserOption, destination_of
from sievemq.cli.send import Reporter, commit
from sievemq.cli.show import as_json, harmless
from sievemq.destinations import Destination
from sievemq.messages import received
from sievemq_core.counted import counted
from sievemq_core.errors import FormatError
from sievemq_core.message.envelope import DELIVERY_MODE, DELIVERY_TIME, EXPIRATION, PRIORITY
from sievemq_core.message.record import Recorded, read_record
from sievemq_core.output import OutputError, complain, report, write

#: Messages per transaction.
_BATCH: Final = 1_000
_BYTES_OF_A_BATCH: Final = 16 * 1024 * 1024


def export(
    queues: Annotated[list[str], typer.Argument(metavar="QUEUE…", help="queue:NAME, or NAME.", autocompletion=queues)],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Write this file, not standard output. A new one is for its owner alone."),
    ] = None,
    selector: SelectorOption = None,
    number: Annotated[int, typer.Option("--number", "-n", min=0, help="Messages of each queue; 0 for all.")] = 0,
    url: UrlOption = DEFAULT_URL,
    user: UserOption = None,
) -> None:
    """Write the waiting messages of queues as lines of JSON, as `browse --json` prints them. They stay in the queues.

    `sievemq import` sends them again. Messages in flight and scheduled ones are not exported.

    Exit codes: 0 done, 1 failed, 2 usage, 3 no such queue, 4 selector or credentials refused.
    """
    sources = [destination_of(name) for name in queues]
    for each in sources:
        if not isinstance(each, Queue):
            _end(f"{each} is a topic; only queues can be exported", USAGE)
    done = 0
    with ExitStack() as stack:
        stack.enter_context(failures())
        session = stack.enter_context(stack.enter_context(connect(url, user)).create_session())
        with warned():
            browsers = [session.create_browser(each, selector) for each in sources if isinstance(each, Queue)]
        for browser in browsers:
            if (wrong := missing(browser)) is not None:
                _end(wrong, NOT_FOUND)
        file = None if out is None else stack.enter_context(_created(out))
        progress = stack.enter_context(_progress(shown=file is not None))
        task = progress.add_task("exporting", total=None)
        try:
            for browser in browsers:
                for at, message in enumerate(browser.get_enumeration()):
                    if number and at >= number:
                        break
                    line = as_json(message) + "\n"
                    if file is None:
                        write(line)
                    else:
                        file.write(line)
                    done += 1
                    progress.update(task, advance=1)
        except BaseException:
            complain(f"sievemq: {counted(done, 'message', form=',')} exported before that")
            raise
    summary = f"{counted(done, 'message', form=',')} exported"
    if out is not None:
        report(f"{summary} to {out}")
    else:
        complain(f"sievemq: {summary}")


def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Lines of JSON; - reads the standard input.")],
    to: Annotated[
        str | None, typer.Option("--to", metavar="DEST", help="Send all to this destination, not where each was.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check the lines.")] = False,
    url: UrlOption = DEFAULT_URL,
    user: UserOption = None,
) -> None:
    """Send the messages that `sievemq export` or `browse --json` has written.

    Type, correlation id, reply destination, properties, body, priority, delivery mode, expiration and delivery time are
    those of the line; message id and timestamp are new. Expired messages are skipped. A file is checked as a whole
    before anything is sent; of the standard input, what was sent before a wrong line stays sent.

    Exit codes: 0 done, 1 failed (the last batch of a thousand is rolled back), 2 usage or a wrong line, which is named,
    4 credentials refused.
    """
    target = None if to is None else destination_of(to)
    checked = 0
    if str(file) != "-" or dry_run:
        for _ in _lines(file, to):
            checked += 1
        if dry_run:
            report(f"{counted(checked, 'message', form=',')} would be sent")
            return
    done = skipped = 0
    with ExitStack() as stack:
        stack.enter_context(failures())
        connection = stack.enter_context(connect(url, user))
        session = stack.enter_context(connection.create_session(Session.SESSION_TRANSACTED))
        connection.set_exception_listener(Reporter())
        producer = session.create_producer(None)
        progress = stack.enter_context(_progress(shown=True))
        task = progress.add_task("importing", total=checked or None)
        size = pending = 0
        try:
            for line, length in _lines(file, to):
                progress.update(task, advance=1)
                if not _send(producer, line, target or destination_of(line.destination or "")):
                    skipped += 1
                    continue
                pending, size = pending + 1, size + length
                if pending == _BATCH or size >= _BYTES_OF_A_BATCH:
                    commit(session, pending)
                    done, pending, size = done + pending, 0, 0
            commit(session, pending)
            done += pending
        except BaseException:
            complain(f"sievemq: {counted(done, 'message', form=',')} imported before that")
            raise
    report(f"{counted(done, 'message', form=',')} imported" + (f", {skipped:,} expired" if skipped else ""))


def _send(producer: MessageProducer, line: Recorded, target: Destination) -> bool:
    """Send a message; False if it has expired."""
    now, fields = round(time.time() * 1000), line.fields
    expiration, mode = fields[EXPIRATION], DeliveryMode(fields[DELIVERY_MODE])
    if expiration and expiration <= now:
        return False
    producer.set_delivery_delay(max(0, fields[DELIVERY_TIME] - now))
    lives = expiration - now if expiration else 0
    message = received(fields, target, 0, None)
    producer.send(target, message, delivery_mode=mode, priority=fields[PRIORITY], time_to_live=lives)
    return True


def _lines(file: Path, to: str | None) -> Iterator[tuple[Recorded, int]]:
    """The messages in a file, with the lengths of their lines; a wrong line ends the command."""
    name = "the standard input" if str(file) == "-" else str(file)
    try:
        with ExitStack() as stack:
            source: IO[bytes] = (
                sys.stdin.buffer if str(file) == "-" else stack.enter_context(file.open("rb"))
            )  # fmt: skip
            for number, text in enumerate(source, 1):
                if not text.strip():
                    continue
                try:
                    line = read_record(text.decode("utf-8", "surrogatepass"))
                    if line.destination is None and to is None:
                        raise FormatError("destination: no queue or topic that it was sent to; name one with --to")
                except (FormatError, UnicodeDecodeError) as error:
                    _end(f"{name}, line {number:,}: {error}", USAGE)
                yield line, len(text)
    except OSError as error:
        _end(f"{name} cannot be read: {error.strerror or error}", USAGE)


@contextmanager
def _created(path: Path) -> Iterator[IO[str]]:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        # Half a surrogate pair becomes JSON's escape of it.
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            yield file
    except OutputError:
        raise
    except OSError as error:
        _end(f"{path} cannot be written: {error.strerror or error}", FAILED)


def _progress(*, shown: bool) -> Progress:
    return Progress(console=Console(stderr=True), transient=True, disable=not (shown and sys.stderr.isatty()))


def _end(text: str, code: int) -> NoReturn:
    complain(f"sievemq: {harmless(text)}")
    raise typer.Exit(code)
