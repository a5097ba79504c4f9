"""From an archive back to a broker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sievemq_spark.archive import require_messages
from sievemq_spark.errors import PipelineError
from sievemq_spark.mapping import Changes
from sievemq_spark.selector_column import where
from sievemq_spark.traffic import traffic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Replayed", "replay"]


@dataclass(frozen=True, slots=True)
class Replayed:
    """What :func:`replay` did.

    Attributes:
        selected: messages that were chosen.
        sent: those that were sent now; 0 in a dry run.
        sent_before: those that an earlier run under the same name has sent.
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
        destination: where all go; without it each goes to where it came from.
        selector, dialect: only those for which it is true.
        user, password: credentials.
        rate: messages per second over all partitions; 0 for as fast as it goes.
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
        ordered = spread.sortWithinPartitions("timestamp", "seq", "destination", "namespace", "broker", "message_id")
        sent = MessageWriter(checked, ordered.schema).send(ordered) if count else 0
    finally:
        chosen.unpersist()
    return Replayed(count, sent, 0 if dry_run else count - sent)
