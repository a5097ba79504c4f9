"""From an archive back to a broker, with changes to destinations and properties on the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sievemq_core.message.dead_letters import NOTES
from sievemq_core.message.values import PropertyValue
from sievemq_spark.archive import require_messages
from sievemq_spark.errors import PipelineError
from sievemq_spark.schema import PROPERTY_TYPE, typed
from sievemq_spark.selector_column import where
from sievemq_spark.selector_values import quote_text
from sievemq_spark.traffic import traffic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of :func:`replay`.

    Attributes:
        selected: messages that were chosen.
        sent: messages sent now; 0 in a dry run.
        sent_before: messages that an earlier run under the same name has sent.
    """

    selected: int
    sent: int
    sent_before: int


def replay(
    messages: DataFrame,
    url: str,
    *,
    destination: str = "",
    selector: str | None = None,
    dialect: str = "jakarta",
    user: str | None = None,
    password: str | None = None,
    rate: float = 0.0,
    dry_run: bool = False,
    partitions: int = 1,
    changes: Changes | None = None,
    name: str = "",
    transaction_size: int = 0,
) -> Replayed:
    """Send messages again: type, correlation id, reply destination, priority, mode, properties and body as they were.

    Each message is sent once, also where its dead letter was archived as well (:func:`sievemq_spark.traffic.traffic`).
    Ids and times are new. Messages go in the order of their timestamps; with several partitions, in which they are
    sent side by side, the order holds within a group (JMSXGroupID). All become visible at once, and a run that fails
    has sent nothing; with a rate or a transaction size they do piece by piece.

    Args:
        messages: rows as in schema.py.
        url: the broker.
        destination: the destination of all; without it each message is sent to its original destination.
        selector, dialect: only those for which it is true.
        user, password: credentials.
        rate: messages per second over all partitions; 0 for no limit.
        dry_run: count and check, send nothing.
        partitions: how many are sent side by side.
        changes: to destinations and properties, made after the selector has chosen.
        name: of this replay. A run under the same name, with the same messages and arguments, sends what is missing and
            nothing twice, wherever the last one was killed; without it each run sends everything.
        transaction_size: messages that become visible together; 0 for all, which the broker must have room for (1 GiB).

    Raises:
        PipelineError, InvalidSelectorException: an argument is wrong.
    """
    from sievemq_spark.options import WriteOptions

    require_messages(messages)
    changes = changes or Changes()
    changes.check()
    if partitions < 1 or rate < 0:
        raise PipelineError("partitions are 1 or more, and a rate is not negative")
    options = {"url": url, "destination": destination, "rate": str(rate / partitions), "dryRun": str(dry_run).lower()}
    options |= {"writeId": name, "transactionSize": str(transaction_size)}
    options |= {key: value for key, value in (("user", user), ("password", password)) if value}
    checked = WriteOptions.read(options)
    from pyspark.sql import functions as f

    from sievemq_spark.writer import MessageWriter

    chosen = changes.apply(traffic(messages).drop("date").filter(where(selector, dialect))).cache()
    try:
        count = chosen.count()
        groups = f.coalesce("group_id", "message_id", f.lit(""))
        spread = chosen.repartition(partitions, groups) if partitions > 1 else chosen.repartition(1)
        # the last ones only so that the order is the same in each run, and with it the pieces
        ordered = spread.sortWithinPartitions("timestamp", "seq", "destination", "namespace", "shard", "message_id")
        # the group is among the properties, which may be changed; a delivery time is over
        ordered = ordered.drop("group_id", "group_seq", "delivery_time")
        sent = MessageWriter(checked, ordered.schema).send(ordered) if count else 0
    finally:
        chosen.unpersist()
    return Replayed(count, sent, 0 if dry_run else count - sent)


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes to messages that are sent again.

    Attributes:
        destinations: from -> to, ``queue:orders`` or a bare queue name; others stay.
        properties: set on every message, replacing its own; plain values or the wrappers of ``sievemq``.
        without: properties that are taken away. Those of dead letters (``JMS_SieveMQ_DeadLetter…``) always are.
    """

    destinations: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, PropertyValue] = field(default_factory=dict)
    without: Sequence[str] = ()

    def check(self) -> None:
        """Raise if something is wrong with them, before Spark starts.

        Raises:
            PipelineError: a destination or a property is not allowed; the text names it.
        """
        self._renamed()
        self._typed()

    def _renamed(self) -> dict[str, str]:
        from sievemq.destinations import parse_destination
        from sievemq.exceptions import JMSException

        try:
            return {str(parse_destination(old)): str(parse_destination(new)) for old, new in self.destinations.items()}
        except (JMSException, ValueError) as error:
            raise PipelineError(f"a destination to rename is wrong: {error}") from error

    def _typed(self) -> dict[str, str]:
        """Each property as a struct in Spark SQL."""
        from sievemq.exceptions import JMSException
        from sievemq.messages import Message

        found = {}
        try:
            for name, value in Message(properties=self.properties).properties.items():
                t, b, integer, d, s = typed(value)
                fields = (
                    quote_text(t),
                    "NULL" if b is None else str(b),
                    "NULL" if integer is None else f"CAST('{integer}' AS BIGINT)",
                    "NULL" if d is None else f"CAST('{d!r}' AS DOUBLE)",
                    "NULL" if s is None else quote_text(s),
                )
                names = ("t", "b", "l", "d", "s")
                pairs = ", ".join(f"{quote_text(key)}, {item}" for key, item in zip(names, fields, strict=True))
                found[name] = f"CAST(named_struct({pairs}) AS {PROPERTY_TYPE})"
        except JMSException as error:
            raise PipelineError(f"a property to set is wrong: {error}") from error
        return found

    def apply(self, messages: DataFrame) -> DataFrame:
        """The messages in the form in which they will be sent.

        Args:
            messages: rows as in schema.py.

        Raises:
            PipelineError: as :meth:`check`.
        """
        from pyspark.sql import functions as f

        renamed, values = self._renamed(), self._typed()
        frame = messages
        if renamed:
            pairs = f.create_map(*(f.lit(text) for pair in renamed.items() for text in pair))
            frame = frame.withColumn("destination", f.coalesce(pairs[f.col("destination")], f.col("destination")))
        gone = [*self.without, *values]
        listed = ", ".join(map(quote_text, gone))
        keep = f"NOT startswith(_name, '{NOTES}')" + (f" AND _name NOT IN ({listed})" if gone else "")
        kept = f"map_filter(properties, (_name, _value) -> {keep})"
        if values:
            added = ", ".join(f"{quote_text(name)}, {value}" for name, value in values.items())
            kept = f"map_concat({kept}, map({added}))"
        return frame.withColumn("properties", f.expr(kept))
