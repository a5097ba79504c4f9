"""The options of ``format("sievemq")``, checked before anything else happens. Spark hands them over in lower case."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any, Final, Self

from sievemq.destinations import Destination, Queue, parse_destination
from sievemq.exceptions import InvalidDestinationException
from sievemq.url import BrokerURL, parse_url
from sievemq_core.selector.dialect import DIALECTS
from sievemq_spark.columns import parse_columns
from sievemq_spark.errors import PipelineError
from sievemq_spark.schema import COLUMN_NAMES, COLUMNS, OUTCOME_COLUMNS
from sievemq_spark.selector_column import checked

#: Messages that are worth a task of their own. With fewer, starting tasks costs more than they gain; and where a queue
#: is browsed, the broker passes over the messages of other tasks.
WORTH: Final = 25_000

#: The options in the spelling of the documentation; Spark ignores letter case.
_SPELLED: Final = {
    name.lower(): name
    for name in (
        "batchSize",
        "destinationPattern",
        "dryRun",
        "failOnDataLoss",
        "failOnMissing",
        "maxBytesPerTrigger",
        "maxMessagesPerTrigger",
        "retainAge",
        "retainBytes",
        "retainMessages",
        "stageLease",
        "startingOffsets",
        "startingTimestamp",
        "tapRanges",
        "timeColumn",
        "transactionSize",
        "writeId",
    )
}

#: What the same is called elsewhere, such as in spark-sql-kafka.
_ELSEWHERE: Final = {
    "maxoffsetspertrigger": "maxMessagesPerTrigger",
    "maxrecordspertrigger": "maxMessagesPerTrigger",
    "minpartitions": "partitions",
    "subscribe": "destination",
    "subscribepattern": "destinationPattern",
    "topic": "destination",
    "queue": "destination",
    "kafka.bootstrap.servers": "url",
}

_STARTS: Final = ("earliest", "latest")

#: What ends a broker's URL in a list of several: commas may also stand between the hosts of one broker.
_NEXT_URL: Final = re.compile(r"[\s,]+(?=sievemqs?://)")


#: Made by this package only.
_INTERNAL: Final = {"tapranges"}

#: Options of a stream that Spark shows to its sink as well.
_SPARKS: Final = frozenset({"checkpointlocation", "queryname", "outputmode"})


def broker_name(url: BrokerURL) -> str:
    """Where a broker is: hosts and ports, nothing secret."""
    return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in url.hosts)


def place_name(text: str) -> str:
    """Where a URL leads: :func:`broker_name`, and the namespace, since a broker redirects to the owners of others."""
    url = parse_url(text)
    return f"{broker_name(url)}/{url.namespace}" if url.namespace else broker_name(url)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    url: str = "sievemq://127.0.0.1:7672"
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    @property
    def urls(self) -> tuple[str, ...]:
        return urls_of(self.url)

    @classmethod
    def _read(cls, options: Mapping[str, str], parse: Mapping[str, Callable[[str], Any]]) -> Self:
        known = {each.name.replace("_", "") for each in fields(cls)}
        values: dict[str, Any] = {}
        if "provider" in map(str.lower, options):
            raise PipelineError(
                "a table of the catalog cannot be read: Spark does not hand its options to a source in Python. "
                "CREATE TEMPORARY VIEW … USING sievemq OPTIONS (…) works"
            )
        for name, text in options.items():
            plain = name.lower()
            if plain in _SPARKS:
                continue
            if plain == "path":
                raise PipelineError("give the destination as .option('destination', 'queue:orders'), not as a path")
            if plain not in known:
                close = [_ELSEWHERE[plain]] if plain in _ELSEWHERE else get_close_matches(plain, known, n=1)
                hint = f"did you mean {_SPELLED.get(close[0], close[0])!r}? " if close else ""
                names = ", ".join(sorted(_SPELLED.get(each, each) for each in known - _INTERNAL))
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
        url, user, password: the broker, or one URL for each of several shards, with blanks or commas between;
            credentials apart from the URL go before those in it.
        destination: ``queue:orders``, or several with commas between them.
        destination_pattern: ``queue:orders.*``, or several with commas between them: all destinations that fit, also
            those that are made while a stream runs.
        mode: ``browse``: what waits in the queues, which stays there; only for a batch. ``tap``: what goes through the
            destinations, copied by taps; the default if `tap` is given. ``outcomes``: what becomes of
            messages there, told by taps. ``drain``: what waits, taken by taps.
        selector: only messages for which it is true; the broker judges.
        dialect: of the selector.
        columns: properties that get a column of their own: ``region STRING, price DOUBLE``.
        limit: browse: messages of each destination; 0 for all.
        batch_size: rows of an Arrow batch.
        tap: name of the taps, one on each destination; no other program may read them.
        starting_offsets: of a tap that is made: ``earliest`` begins with what waits in the queue, ``latest`` with what
            comes next. Or a JSON object, by destination one of these or the sequence of the first message to read of a
            tap that is there; those it does not name begin ``earliest``.
        starting_timestamp: instead, ms since 1970-01-01 UTC, or a date and time with its zone: begin with the first
            message that has this JMSTimestamp or a later one; an outcome that happened then.
        time_column: name of a column of the type TIMESTAMP with JMSTimestamp, or the time of an outcome.
        max_messages_per_trigger: of a stream's batch, over all destinations; 0 for all there are.
        max_bytes_per_trigger: the same in bytes, of each destination; 0 for all.
        partitions: that the messages of a destination are read in at most; a browse with a limit is read in one.
        fail_on_data_loss: fail where messages were lost that should have been read; false continues behind them.
        unavailable: ``fail``: a stream ends where a shard cannot be reached. ``wait``: it reads the others on, and that
            shard when it is back; a batch that was planned waits for it. A batch read fails.
        fail_on_missing: fail where a destination is not there; false reads nothing of it, and makes the tap of one.
        retain_messages, retain_bytes, retain_age, lease: what a tap may hold, and how long (ms); None leaves it to
            the broker.
        tap_ranges: what exactly is read; made by :func:`sievemq_spark.drain`.
    """

    destination: str = ""
    destination_pattern: str = ""
    mode: str = ""
    selector: str | None = None
    dialect: str = "jakarta"
    columns: str = ""
    limit: int = 0
    batch_size: int = 1_000
    tap: str = ""
    starting_offsets: str = "earliest"
    starting_timestamp: int | None = None
    time_column: str = ""
    max_messages_per_trigger: int = 0
    max_bytes_per_trigger: int = 0
    partitions: int = 8
    fail_on_data_loss: bool = True
    unavailable: str = "fail"
    fail_on_missing: bool = True
    retain_messages: int | None = None
    retain_bytes: int | None = None
    retain_age: int | None = None
    lease: int | None = None
    tap_ranges: dict[str, Any] | None = None

    @classmethod
    def read(cls, options: Mapping[str, str]) -> Self:
        """Check options.

        Raises:
            PipelineError: an option that there is not, or a value that it cannot have.
            InvalidURLException: the URL.
            InvalidSelectorException: the selector, with a caret under the mistake.
        """
        result = cls._read(options, _READERS)
        if result.mode not in ("", "browse", "tap", "outcomes", "drain"):
            raise PipelineError(f"there is no mode {result.mode!r}; there are 'browse', 'tap', 'outcomes' and 'drain'")
        if result.dialect not in DIALECTS:
            raise PipelineError(f"there is no selector dialect {result.dialect!r}; there are {', '.join(DIALECTS)}")
        if not result.mode:
            result = replace(result, mode="tap" if result.tap else "browse")
        result.check_patterns()
        _ = result.urls, result.destinations, result.promoted, result.starts
        if result.mode == "browse":
            _ = result.queues
            result.no_waiting()
        else:
            _ = result.tap_name
        if result.mode == "outcomes" and result.promoted:
            raise PipelineError("outcomes have no properties: leave the option 'columns' out")
        result.check_time()
        if result.mode == "drain":
            result.no_topics("it holds no messages to drain; read it with mode 'tap'")
        checked(result.selector, result.dialect)
        return result

    @property
    def destinations(self) -> tuple[Destination, ...]:
        names = _listed(self.destination)
        if not names and not self.patterns:
            raise PipelineError("the option 'destination' is missing, such as 'queue:orders', or 'destinationPattern'")
        return tuple(dict.fromkeys(destination_of(name) for name in names))

    @property
    def patterns(self) -> tuple[str, ...]:
        """With the kind of destination in front."""
        return tuple(dict.fromkeys(str(destination_of(name)) for name in _listed(self.destination_pattern)))

    def check_patterns(self) -> None:
        """Raise PipelineError if the option destinationPattern has no pattern, or one that cannot be read."""
        if self.destination_pattern and not self.patterns:
            raise PipelineError("the option 'destinationPattern' has no pattern, such as 'queue:orders.*'")
        topics = [pattern for pattern in self.patterns if not isinstance(destination_of(pattern), Queue)]
        if topics and self.mode in ("browse", "drain"):
            raise PipelineError(
                f"the option 'destinationPattern' names topics, {topics[0]!r}; mode {self.mode!r} reads queues alone"
            )

    @property
    def queues(self) -> tuple[Queue, ...]:
        self.no_topics("it cannot be browsed, it keeps nothing. Read what goes through it as a stream, with mode 'tap'")
        return tuple(each for each in self.destinations if isinstance(each, Queue))

    def no_topics(self, why: str) -> None:
        """Raise PipelineError if there is a topic among the destinations."""
        for each in self.destinations:
            if not isinstance(each, Queue):
                raise PipelineError(f"{each} is a topic: {why}")

    def check_time(self) -> None:
        """Raise PipelineError if the options that concern times do not fit the others."""
        if self.starting_timestamp is not None:
            if self.mode not in ("tap", "outcomes"):
                fix = "a selector does: JMSTimestamp >= …" if self.mode == "browse" else "it takes all that waits"
                raise PipelineError(f"the option 'startingTimestamp' is not for mode {self.mode!r}: {fix}")
            if self.starting_offsets != "earliest":
                raise PipelineError("give one of the options 'startingTimestamp' and 'startingOffsets', not both")
        name = self.time_column.lower()
        known = OUTCOME_COLUMNS if self.mode == "outcomes" else {**COLUMNS, **self.promoted}
        if name in map(str.lower, known):
            raise PipelineError(
                f"the option 'timeColumn' names {self.time_column!r}, which is a column already: choose another name"
            )

    def no_waiting(self) -> None:
        """Raise PipelineError if a shard that is away is to be waited for: a batch read would be incomplete."""
        if self.unavailable == "wait":
            raise PipelineError(
                "the option 'unavailable' can be 'wait' for a stream through taps only: a batch read needs each shard"
            )

    def start_of(self, destination: str) -> str | int:
        """The place to begin: ``earliest``, ``latest`` or the sequence of the first message."""
        every = self.starting_offsets if self.starting_offsets in _STARTS else "earliest"
        return self.starts.get(destination, every)

    @property
    def starts(self) -> dict[str, str | int]:
        """What startingOffsets names by destination."""
        given: Any = self.starting_offsets
        if given in _STARTS:
            return {}
        wrong = (
            "the option 'startingOffsets' is 'earliest', 'latest', or JSON by destination, such as "
            f'{{"queue:orders": "latest", "topic:prices": 8123}}; not {given!r}'
        )
        try:
            given = json.loads(given)
        except ValueError:
            raise PipelineError(wrong) from None
        if not isinstance(given, dict):
            raise PipelineError(wrong)
        found: dict[str, str | int] = {}
        read = set(map(str, self.destinations))
        for name, start in given.items():
            destination = str(destination_of(name))
            if destination not in read and not any(fnmatchcase(destination, each) for each in self.patterns):
                raise PipelineError(f"the option 'startingOffsets' names {destination}, which is not read")
            if start not in _STARTS and (type(start) is not int or start < 1):
                raise PipelineError(wrong)
            found[destination] = start
        return found

    @property
    def tap_name(self) -> str:
        if not self.tap:
            raise PipelineError("the option 'tap' is missing: a name for the cursors that only this query reads")
        return self.tap

    @property
    def schema(self) -> dict[str, str]:
        """The columns of a row, name -> Spark type."""
        columns = OUTCOME_COLUMNS if self.mode == "outcomes" else {**COLUMNS, **self.promoted}
        return {**columns, self.time_column: "timestamp"} if self.time_column else columns

    @property
    def promoted(self) -> dict[str, str]:
        return parse_columns(self.columns, COLUMN_NAMES)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions(_Options):
    """Options of a write.

    Attributes:
        url, user, password: the broker, or one URL for each of several shards, with blanks or commas between.
        destination: the destination of every row; without it, that in the row's column ``destination``.
        rate: messages per second and task; 0 for no limit.
        dry_run: check every row, send nothing.
        transaction_size: messages that become visible together; 0: all.
        write_id: names this write; written once more under the same name, what was written before is not sent again.
        stage_lease: ms that messages wait at the broker for the write to be complete; None for ten minutes.
    """

    destination: str = ""
    rate: float = 0.0
    dry_run: bool = False
    transaction_size: int = 0
    write_id: str = ""
    stage_lease: int | None = None

    @classmethod
    def read(cls, options: Mapping[str, str]) -> Self:
        """Check options; errors as for :meth:`ReadOptions.read`."""
        parse = {"rate": _rate, "dryrun": _boolean, "transactionsize": _count, "stagelease": _count}
        result = cls._read(options, parse)
        if len(result.write_id) > 200 or not result.write_id.isprintable():
            raise PipelineError("the option 'writeId' has at most 200 printable characters")
        _ = result.urls
        if result.destination:
            destination_of(result.destination)
        return result


def _listed(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def urls_of(text: str) -> tuple[str, ...]:
    """The URLs that the option `url` names.

    Raises:
        InvalidURLException: one is none.
    """
    found = tuple(dict.fromkeys(_NEXT_URL.split(text.strip())))
    for each in found:
        parse_url(each)
    return found


def destination_of(text: str) -> Destination:
    """The destination that an option names.

    Raises:
        PipelineError: it is none.
    """
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


def _moment(text: str) -> int:
    """Ms since 1970-01-01 UTC."""
    if text.isdigit() and len(text) <= 15:
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise ValueError("ms since 1970, or a date and time with its zone, such as 2026-11-21T05:00:00Z, are needed")
    return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def _unavailable(text: str) -> str:
    if text not in ("fail", "wait"):
        raise ValueError("there are 'fail' and 'wait'")
    return text


def _ranges(text: str) -> dict[str, Any]:
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError("it is made by sievemq_spark.drain")  # noqa: TRY004  # text that cannot be read
    return found


_READERS: Final[dict[str, Callable[[str], Any]]] = {
    "limit": _count,
    "batchsize": _positive,
    "maxmessagespertrigger": _count,
    "maxbytespertrigger": _count,
    "partitions": _positive,
    "failondataloss": _boolean,
    "failonmissing": _boolean,
    "startingtimestamp": _moment,
    "unavailable": _unavailable,
    "retainmessages": _count,
    "retainbytes": _count,
    "retainage": _count,
    "lease": _count,
    "tapranges": _ranges,
}
