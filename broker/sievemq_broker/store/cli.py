"""``sievemq store``: makes, examines, copies and restores stores: data directories, and shards of a database."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from sievemq_broker.domain.store import LockedError, StoreError
from sievemq_broker.store.rows import NewStore, Rows
from sievemq_broker.store.salvage import Report
from sievemq_broker.store.salvage import check as check_store
from sievemq_broker.store.salvage import copy as copy_store
from sievemq_broker.store.salvage import export as export_store
from sievemq_broker.store.salvage import repair as repair_store
from sievemq_broker.store.salvage import restore as restore_store
from sievemq_broker.store.sqlite import SqliteStore
from sievemq_broker.store.sqlite_rows import DatabaseRows, DirectoryRows, NewDirectory, NewFile, RunningRows
from sievemq_broker.store_url import is_store_url, without_password
from sievemq_core import output
from sievemq_core.counted import counted

FAILED, USAGE, REFUSED = 1, 2, 4

_T = TypeVar("_T")

store = typer.Typer(
    help="Make, check, copy, export, back up, restore or repair a store: a data directory, or a shard of a database.",
    no_args_is_help=True,
)

_Store = Annotated[str, typer.Argument(help="A data directory, or postgresql://user@host/name.", metavar="STORE")]
_Source = Annotated[
    str, typer.Argument(help="A data directory, a backup, or postgresql://user@host/name.", metavar="STORE")
]
_Shard = Annotated[str, typer.Option("--shard", help="Its name in a database.", metavar="NAME")]
_FromShard = Annotated[
    str | None, typer.Option("--from-shard", help="Name in the first database, if it is another one.")
]
_Print = Annotated[bool, typer.Option("--print", help="Print the SQL for an administrator; nothing is done.")]


def _run(act: Callable[[], _T]) -> _T:
    try:
        return act()
    except LockedError as error:
        used = str(error).partition(";")[0]
        output.complain(
            f"sievemq: {used}; stop it first, or make a backup of it with `sievemq store backup`, and read that"
        )
        raise typer.Exit(FAILED) from None
    except (StoreError, OSError) as error:
        output.complain(f"sievemq: {error}")
        raise typer.Exit(FAILED) from None


def _expect_extra() -> None:
    if find_spec("psycopg") is None:
        output.complain("sievemq: a database needs an extra: pip install 'sievemq[postgres]'")
        raise typer.Exit(USAGE)


def _rows_of(where: str, shard: str, *, unused: bool = False) -> Rows:
    """Open a store or a backup to read it.

    Args:
        unused: refuse a shard that a broker uses; a directory always is.
    """
    if not is_store_url(where):
        return DatabaseRows(Path(where)) if Path(where).is_file() else DirectoryRows(Path(where))
    _expect_extra()
    from sievemq_broker.store.postgres_tool import ShardRows

    return ShardRows(where, shard, unused=unused)


def _new_store(where: str, shard: str) -> NewStore:
    if not is_store_url(where):
        return NewDirectory(Path(where))
    _expect_extra()
    from sievemq_broker.store.postgres_tool import NewShard

    return NewShard(where, shard)


def _print_findings(report: Report) -> None:
    for finding in report.findings:
        output.complain(f"damaged: {finding}")


def _content(report: Report) -> str:
    return (
        f"{counted(report.messages, 'message')} in {counted(report.batches, 'batch', many='batches')}, "
        f"{counted(report.definitions, 'definition')}"
    )


@store.command()
def init(
    where: _Store,
    as_text: _Print = False,
    role: Annotated[
        str | None, typer.Option("--role", help="Database role of the brokers, if it shall not own the tables.")
    ] = None,
) -> None:
    """Make the tables of a database, or an empty data directory. Brokers make no tables. What is there stays."""
    if not is_store_url(where):
        _run(lambda: SqliteStore(Path(where), _new_name()).close())
        output.report(f"{where} is a data directory.")
        return
    _expect_extra()
    from sievemq_broker.store.postgres_tool import make_tables, statements

    if as_text:
        output.write("".join(f"{statement.strip()};\n" for statement in statements(role)))
    elif (lacking := _run(lambda: make_tables(where, role))) is None:
        output.report(f"The tables are made in {without_password(where)}.")
    elif lacking:
        output.report(f"The tables are there already, without {', '.join(lacking)}: `sievemq store migrate` adds that.")
    else:
        output.report("The tables are there already.")


@store.command()
def migrate(where: _Store) -> None:
    """Bring the tables of a database up to the format of this version, before its brokers are upgraded."""
    if not is_store_url(where):
        output.report("A data directory is brought up to date by its broker.")
        return
    _expect_extra()
    from sievemq_broker.store.postgres_tables import FORMAT
    from sievemq_broker.store.postgres_tool import migrate as add_tables

    added = _run(lambda: add_tables(where))
    done = f"added {', '.join(added)}" if added else "nothing was done"
    output.report(f"The tables have format {FORMAT}, the latest one: {done}.")


@store.command()
def finalize(where: _Store) -> None:
    """End an upgrade: no broker of an older version may use the database any more, nor is there a way back."""
    if not is_store_url(where):
        output.report("A data directory is brought up to date by its broker.")
        return
    _expect_extra()
    from sievemq_broker.store.postgres_tool import finalize as end_upgrade

    output.report(f"The tables have format {_run(lambda: end_upgrade(where))}; brokers of older versions are refused.")


@store.command()
def check(where: _Source, shard: _Shard = "main") -> None:
    """Read everything. Exit codes: 0 all is well, 1 it cannot be looked at, 4 something is damaged.

    No broker may use a data directory meanwhile: check a backup of it. A shard of a database is read as it is at one
    moment.
    """
    report = _run(lambda: check_store(_rows_of(where, shard)))
    _print_findings(report)
    output.report(_content(report))
    if report.findings:
        raise typer.Exit(REFUSED)
    output.report("The store is fine.")


@store.command()
def export(
    where: _Source,
    out: Annotated[Path | None, typer.Option("--out", help="File to write (default: standard output).")] = None,
    shard: _Shard = "main",
) -> None:
    """Write every message that can be read as one line of JSON. Exit codes as of check."""
    if out is None:
        report = _run(lambda: export_store(_rows_of(where, shard), output.write))
    else:
        report = _run(lambda: _export_to(_rows_of(where, shard), out))
    _print_findings(report)
    output.complain(counted(report.messages, "message"))
    if report.findings:
        raise typer.Exit(REFUSED)


def _export_to(rows: Rows, out: Path) -> Report:
    # Message bodies: readable by the owner alone, unless there is such a file already.
    descriptor = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        return export_store(rows, file.write)


@store.command()
def copy(
    source: Annotated[str, typer.Argument(help="What to copy, which no broker uses.", metavar="FROM")],
    target: Annotated[str, typer.Argument(help="An empty directory, or a database.", metavar="TO")],
    shard: _Shard = "main",
    from_shard: _FromShard = None,
) -> None:
    """Copy a store with everything in it, to move a broker. Exit codes as of check; a damaged store is not copied."""
    report = _run(lambda: _copy(_rows_of(source, from_shard or shard, unused=True), lambda: _new_store(target, shard)))
    _print_findings(report)
    if report.findings:
        output.complain("sievemq: nothing was copied; save what can be read with `sievemq store export`")
        raise typer.Exit(REFUSED)
    output.report(f"Copied {_content(report)}. Start no broker with the old store any more: both have the same name.")


def _copy(rows: Rows, open_new: Callable[[], NewStore], act: Callable[[Rows, NewStore], Report] = copy_store) -> Report:
    try:
        new = open_new()
    except BaseException:
        rows.close()
        raise
    return act(rows, new)


@store.command()
def backup(
    where: _Store,
    file: Annotated[Path, typer.Argument(help="The backup: a new file.", metavar="FILE")],
    shard: _Shard = "main",
) -> None:
    """Write a backup, while the broker may go on: every message of one moment that was confirmed by then.

    Exit codes as of check; a damaged store is not backed up. `check`, `export` and `restore` read the file.
    """

    def rows() -> Rows:
        return _rows_of(where, shard) if is_store_url(where) else RunningRows(Path(where))

    report = _run(lambda: _copy(rows(), lambda: NewFile(file)))
    _print_findings(report)
    if report.findings:
        output.complain("sievemq: nothing was written; save what can be read with `sievemq store export`")
        raise typer.Exit(REFUSED)
    output.report(f"{file} has {_content(report)}.")


@store.command()
def restore(
    source: Annotated[str, typer.Argument(help="A backup, or a store that no broker uses.", metavar="FROM")],
    target: Annotated[str, typer.Argument(help="An empty directory, or a database.", metavar="TO")],
    shard: _Shard = "main",
    from_shard: _FromShard = None,
) -> None:
    """Make a new store of a backup. Exit codes as of check; a damaged backup is not restored.

    The store has a name of its own, and every message is marked as redelivered: a consumer may have had it since. Taps
    have other ids, so a Spark query that was further reports a loss of data.
    """
    report = _run(
        lambda: _copy(
            _rows_of(source, from_shard or shard, unused=True),
            lambda: _new_store(target, shard),
            lambda rows, new: restore_store(rows, new, _new_name()),
        )
    )
    _print_findings(report)
    if report.findings:
        output.complain("sievemq: nothing was restored; save what can be read with `sievemq store export`")
        raise typer.Exit(REFUSED)
    output.report(f"Restored {_content(report)}.")


def _new_name() -> str:
    return secrets.token_hex(5)


@store.command()
def repair(
    directory: Annotated[Path, typer.Argument(help="The data directory.", metavar="DIRECTORY", file_okay=False)],
) -> None:
    """Make a new store of everything that can be read in a data directory; damaged parts are set aside and listed."""
    if is_store_url(str(directory)) or str(directory).startswith(("postgres:/", "postgresql:/")):
        output.complain("sievemq: only data directories can be repaired; restore a backup of the database, or export")
        raise typer.Exit(USAGE)
    report = _run(lambda: repair_store(directory, _new_name))
    _print_findings(report)
    if report.set_aside is None:
        output.report("The store is fine; nothing was done.")
        return
    output.report(f"The repaired store has {counted(report.messages, 'message')}; the old one is in {report.set_aside}")
