"""Whether an installed SieveMQ works: its modules are imported, and messages go round with both APIs.

    python release/smoke.py                                   what the base install promises
    python release/smoke.py --whole sievemq_broker            and that each module of that package can be imported
    python release/smoke.py --whole sievemq --but rich        but for those that need rich, which is not installed
    python release/smoke.py --compiled                        and that it is the compiled build

It imports nothing of this folder and nothing of the tests: any Python with SieveMQ runs it, on any system.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import platform
import sys
import tempfile
import warnings
from collections.abc import Collection, Iterator, Mapping
from datetime import timedelta
from pathlib import Path

PACKAGES = ("sievemq_core", "sievemq", "sievemq_broker", "sievemq_testing", "sievemq_spark")
SOON = timedelta(minutes=1)


def modules(package: str) -> Iterator[str]:
    """The names of a package and of all modules in it."""
    found = importlib.import_module(package).__file__
    assert found is not None
    folder = Path(found).parent
    for path in sorted(folder.rglob("*.py")):
        parts = [package, *path.relative_to(folder).with_suffix("").parts]
        if parts[-1] != "__main__":
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def load(package: str) -> tuple[int, dict[str, str]]:
    """Import every module of a package.

    Returns:
        How many could be imported, and for the others the package of another distribution that is not installed.

    Raises:
        ImportError: a module cannot be imported for another reason.
    """
    loaded, absent = 0, {}
    for name in modules(package):
        try:
            importlib.import_module(name)
        except ImportError as error:
            needed = _absent(error)
            if needed is None:
                raise ImportError(f"{name}: {error!r}") from error
            absent[name] = needed
        else:
            loaded += 1
    return loaded, absent


def _absent(error: BaseException | None) -> str | None:
    """The other distribution's package whose absence caused an error; None if that is not the cause."""
    while error is not None:
        if isinstance(error, ModuleNotFoundError):
            top = (error.name or "").partition(".")[0]
            return top if top and top not in PACKAGES else None
        error = error.__cause__ or error.__context__
    return None


def lacking(absent: Mapping[str, str], whole: Collection[str], but: Collection[str]) -> list[str]:
    """The modules of packages that should be whole and are not, each with what it needs.

    Args:
        absent: from :func:`load`.
        whole: names of packages.
        but: other distributions' packages that may be absent.
    """
    wanted = {name: needed for name, needed in absent.items() if name.partition(".")[0] in whole and needed not in but}
    return [f"{name} needs {needed}" for name, needed in wanted.items()]


def blocking(url: str) -> str:
    """Send three messages and return the body of the one that a selector matches."""
    from sievemq import ConnectionFactory, Queue

    with ConnectionFactory(url).create_context() as context:
        consumer = context.create_consumer(Queue("smoke"), "number BETWEEN 2 AND 3 AND region = 'EU'")
        for number, region in ((1, "EU"), (2, "US"), (3, "EU")):
            producer = context.create_producer().set_property("number", number).set_property("region", region)
            producer.send(Queue("smoke"), f"message {number}")
        return str(consumer.receive_body(str, SOON))


async def asynchronous(url: str) -> str:
    """The same with asyncio, from a topic."""
    from sievemq.aio import ConnectionFactory

    async with ConnectionFactory(url).create_context() as context:
        topic = context.create_topic("smoke")
        consumer = await context.create_consumer(topic, "number > 2")
        for number in range(1, 4):
            await context.create_producer().set_property("number", number).send(topic, f"message {number}")
        return str(await consumer.receive_body(str, SOON))


def round_trips() -> None:
    """Both APIs with a broker in memory, and with one that keeps messages on disk.

    Raises:
        AssertionError: another message came, or none.
    """
    from sievemq_broker import EmbeddedBroker

    with EmbeddedBroker() as broker:
        assert blocking(broker.url) == "message 3"
        assert asyncio.run(asynchronous(broker.url)) == "message 3"
    with tempfile.TemporaryDirectory() as folder, EmbeddedBroker(data_dir=folder) as broker:
        assert blocking(broker.url) == "message 3"


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="release/smoke.py", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--whole", action="append", default=[], metavar="PACKAGE", help="it has all that it needs,")
    parser.add_argument("--but", action="append", default=[], metavar="PACKAGE", help="but this one")
    parser.add_argument("--compiled", action="store_true", help="the hot modules have to be compiled")
    given = parser.parse_args()
    warnings.filterwarnings("error", module=".*sievemq")  # those of other packages are not ours to mend
    from sievemq_core.compiled import COMPILED
    from sievemq_core.version import VERSION

    if given.compiled and not COMPILED:
        parser.exit(1, "the hot modules are not compiled\n")
    number, absent = 0, dict[str, str]()
    for package in PACKAGES:
        loaded, without = load(package)
        number += loaded
        absent |= without
    if missing := lacking(absent, given.whole, given.but):
        parser.exit(1, "\n".join(missing) + "\n")
    round_trips()
    build = (
        f"{VERSION}{' compiled' if COMPILED else ''}, {platform.python_implementation()} {platform.python_version()}"
    )
    needed = f", {len(absent)} need {', '.join(sorted(set(absent.values())))}" if absent else ""
    print(f"SieveMQ {build}, {sys.platform}: {number} modules{needed}; round trips pass")
    return 0


if __name__ == "__main__":
    sys.exit(main())
