"""The options of ``format("sievemq")``, checked before anything else happens. Spark hands them over in lower case."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any, Final, Self

from sievemq.destinations import Destination, Queue, parse_destination
from sievemq.exceptions import InvalidDestinationException
from sievemq.url import BrokerURL, parse_url
from sievemq_core.selector.dialect import DIALECTS
from sievemq_spark.columns import parse_columns
from sievemq_spark.errors import PipelineError
from sievemq_spark.schema import COLUMN_NAMES
from sievemq_spark.selector_column import checked

__all__ = ["ReadOptions", "WriteOptions"]

#: How users write the options; Spark does not tell letter case.
_SPELLED: Final = {"dryrun": "dryRun", "transactionsize": "transactionSize", "batchsize": "batchSize"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    url: str = "sievemq://127.0.0.1:7672"
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    @property
    def broker_url(self) -> BrokerURL:
        """The URL, read."""
        return parse_url(self.url)

    @property
    def broker(self) -> str:
        """The broker as rows show it: hosts and ports, nothing secret."""
        return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.broker_url.hosts)

    @classmethod
    def _read(cls, options: Mapping[str, str], parse: Mapping[str, Callable[[str], Any]]) -> Self:
        known = {each.name.replace("_", "") for each in fields(cls)}
        values: dict[str, Any] = {}
        for name, text in options.items():
            plain = name.lower()
            if plain == "path":
                raise PipelineError("give the destination as .option('destination', 'queue:orders'), not as a path")
            if plain not in known:
                close = get_close_matches(plain, known, n=1)
                hint = f"did you mean {_SPELLED.get(close[0], close[0])!r}? " if close else ""
                names = ", ".join(sorted(_SPELLED.get(each, each) for each in known))
                raise PipelineError(f"there is no option {name!r}; {hint}there are {names}")
            attribute = next(each.name for each in fields(cls) if each.name.replace("_", "") == plain)
            try:
                values[attribute] = parse[plain](text) if plain in parse else text
            except ValueError as error:
                raise PipelineError(f"the option {_SPELLED.get(plain, plain)!r} cannot be {text!r}: {error}") from error
        return cls(**values)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions(_Options):
    """Options of a read.

    Attributes:
        url, user, password: the broker; credentials apart from the URL go before those in it.
        destination: ``queue:orders``, or several with commas between them.
        mode: ``browse``: what waits in the queues, which stays there.
        selector: only messages for which it is true; the broker judges.
        dialect: of the selector.
        columns: properties that get a column of their own: ``region STRING, price DOUBLE``.
        limit: messages of each destination; 0 for all.
        batch_size: rows of an Arrow batch.
    """

    destination: str = ""
    mode: str = "browse"
    selector: str | None = None
    dialect: str = "jakarta"
    columns: str = ""
    limit: int = 0
    batch_size: int = 1_000

    @classmethod
    def read(cls, options: Mapping[str, str]) -> Self:
        """Check options.

        Raises:
            PipelineError: an option that there is not, or a value that it cannot have.
            InvalidURLException: the URL.
            InvalidSelectorException: the selector, with a caret under the mistake.
        """
        result = cls._read(options, {"limit": _count, "batchsize": _positive})
        if result.mode != "browse":
            if result.mode == "drain":
                raise PipelineError(
                    "there is no mode 'drain': a reader does not learn when Spark has written what it read, "
                    "so messages that it took from the queue could be lost. Read with mode 'browse'"
                )
            raise PipelineError(f"there is no mode {result.mode!r}; there is 'browse'")
        if result.dialect not in DIALECTS:
            raise PipelineError(f"there is no selector dialect {result.dialect!r}; there are {', '.join(DIALECTS)}")
        _ = result.broker_url, result.queues, result.promoted
        checked(result.selector, result.dialect)
        return result

    @property
    def queues(self) -> tuple[Queue, ...]:
        """The queues to read."""
        names = [name.strip() for name in self.destination.split(",") if name.strip()]
        if not names:
            raise PipelineError("the option 'destination' is missing, such as 'queue:orders'")
        found = []
        for name in dict.fromkeys(names):
            destination = _destination(name)
            if not isinstance(destination, Queue):
                raise PipelineError(f"{destination} cannot be browsed: a topic keeps nothing. Only queues can be read")
            found.append(destination)
        return tuple(found)

    @property
    def promoted(self) -> dict[str, str]:
        """Promoted columns, name -> Spark type."""
        return parse_columns(self.columns, COLUMN_NAMES)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions(_Options):
    """Options of a write.

    Attributes:
        url, user, password: the broker.
        destination: where every row goes; without it a row's column ``destination`` says.
        rate: messages per second and task; 0 for as fast as it goes.
        dry_run: look at every row, send nothing.
        transaction_size: messages of a transaction; 0: one transaction per partition.
    """

    destination: str = ""
    rate: float = 0.0
    dry_run: bool = False
    transaction_size: int = 0

    @classmethod
    def read(cls, options: Mapping[str, str]) -> Self:
        """Check options; errors as for :meth:`ReadOptions.read`."""
        result = cls._read(options, {"rate": _rate, "dryrun": _boolean, "transactionsize": _count})
        _ = result.broker_url
        if result.destination:
            _destination(result.destination)
        return result


def _destination(text: str) -> Destination:
    try:
        return parse_destination(text)
    except InvalidDestinationException as error:
        raise PipelineError(str(error)) from error


def _count(text: str) -> int:
    if not text.isdigit() or len(text) > 12:
        raise ValueError("a number from 0 on is needed")
    return int(text)


def _positive(text: str) -> int:
    number = _count(text)
    if not 0 < number <= 100_000:
        raise ValueError("a number from 1 to 100000 is needed")
    return number


def _rate(text: str) -> float:
    number = float(text)
    if not 0 <= number < float("inf"):
        raise ValueError("messages per second are a number from 0 on")
    return number


def _boolean(text: str) -> bool:
    try:
        return {"true": True, "false": False}[text.lower()]
    except KeyError:
        raise ValueError("true or false is needed") from None
