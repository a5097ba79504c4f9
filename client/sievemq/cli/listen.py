"""``sievemq listen``"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, Final, NoReturn

import typer

from sievemq.cli.broker_access import failures
from sievemq.cli.exits import FAILED, INTERRUPTED, NOT_FOUND, USAGE
from sievemq.listening.registry import Registry
from sievemq_core.output import complain

#: Seconds between two looks at the files, and that a child has to end.
_LOOK: Final = 0.3
_PATIENCE: Final = 60.0

_SKIPPED: Final = frozenset({"__pycache__", "node_modules"})


def listen(
    target: Annotated[str, typer.Argument(metavar="MODULE:APP", help="A Listeners object, such as shop.orders:app.")],
    reload: Annotated[
        bool, typer.Option("--reload", help="Restart when a Python file below the working directory changes.")
    ] = False,
    health: Annotated[
        str | None, typer.Option("--health", metavar="HOST:PORT", help="Answer probes there: /livez and /readyz.")
    ] = None,
    log_level: Annotated[str, typer.Option("--log-level", help="debug, info, warning or error.")] = "info",
) -> None:
    """Run an application of listeners until SIGTERM or Ctrl-C, and stop it in order.

    The module is looked for in the working directory first. The broker is that of the application, or SIEVEMQ_URL.

    Exit codes: 0 stopped, 1 failed (the broker ended a consumer, the module raised), 2 usage, 3 there is no such module
    or object, 4 selector or credentials refused.
    """
    level = logging.getLevelNamesMapping().get(log_level.upper())
    if level is None:
        _end(USAGE, f"--log-level is debug, info, warning or error, not {log_level!r:.40}")
    if reload:
        options = ["--log-level", log_level, *(() if health is None else ("--health", health))]
        raise typer.Exit(_restarting([target, *options]))
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    application = load(target)
    try:
        with failures():
            application.run(health=health)
    except OSError as error:
        _end(FAILED, str(error))


def load(target: str) -> Any:
    """The application that ``module:name`` names. Ends the command if there is none."""
    name, _, attribute = target.partition(":")
    if not attribute or not all(part.isidentifier() for part in name.split(".")):
        _end(USAGE, f"an application is named MODULE:APP, such as shop.orders:app, not {target!r:.80}")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        module = import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            _raised(name)
        _end(NOT_FOUND, f"there is no module {error.name}; the working directory is {Path.cwd()}")
    except Exception:
        _raised(name)
    application: Any = module
    for part in attribute.split("."):
        application = getattr(application, part, None)
    if application is None:
        _end(NOT_FOUND, f"module {name} has no {attribute}{_others(module)}")
    if not isinstance(application, Registry):
        _end(USAGE, f"{target} is a {type(application).__name__} and no Listeners{_others(module)}")
    return application


def _others(module: object) -> str:
    names = [name for name, value in vars(module).items() if isinstance(value, Registry)]
    return f"; it has {', '.join(names)}" if names else ""


def _raised(name: str) -> NoReturn:
    traceback.print_exc()
    _end(FAILED, f"module {name} raised")


def _end(code: int, text: str) -> NoReturn:
    complain(f"sievemq: {text}")
    raise typer.Exit(code)


# -- restarting -------------------------------------------------------------------------------------------------------


def _restarting(arguments: list[str]) -> int:
    """Run the command in a child, which is replaced whenever a file changes. Returns the exit code."""
    command = [sys.executable, "-c", "from sievemq.cli import main; main()", "listen", *arguments]
    child: subprocess.Popen[bytes] | None = None

    def told(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, told)
    try:
        while True:
            seen = dict(_files(Path.cwd()))
            child = subprocess.Popen(command)  # noqa: S603 - this command itself
            changed = _until_changed(seen, child)
            complain(f"sievemq: {changed} has changed, restarting")
            _stop(child)
    except KeyboardInterrupt:
        if child is None:
            return INTERRUPTED
        return _stop(child)


def _until_changed(seen: dict[str, int], child: subprocess.Popen[bytes]) -> str:
    """Wait until a file changes, comes or goes; also when the child has ended. Returns its path."""
    while True:
        time.sleep(_LOOK)
        now = dict(_files(Path.cwd()))
        if now != seen:
            return min(name for name in {*now, *seen} if now.get(name) != seen.get(name))
        child.poll()


def _files(root: Path) -> Iterator[tuple[str, int]]:
    """The Python files below a directory with the time of their last change; not those of hidden directories, nor of
    virtual environments."""
    for folder, folders, names in os.walk(root):
        folders[:] = [
            each
            for each in folders
            if not each.startswith(".") and each not in _SKIPPED and not (Path(folder) / each / "pyvenv.cfg").exists()
        ]
        for name in names:
            if name.endswith(".py"):
                path = Path(folder) / name
                try:
                    yield str(path.relative_to(root)), path.stat().st_mtime_ns
                except OSError:
                    continue  # it has just gone


def _stop(child: subprocess.Popen[bytes]) -> int:
    child.terminate()
    try:
        return child.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        child.kill()
        return child.wait()
