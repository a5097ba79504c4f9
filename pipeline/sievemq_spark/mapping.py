"""What is changed on the way from an archive back to a broker: destinations and properties."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sievemq_core.message.values import PropertyValue
from sievemq_spark.errors import PipelineError
from sievemq_spark.schema import PROPERTY_TYPE, typed
from sievemq_spark.selector_values import quote_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Changes"]


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes to messages that are sent again.

    Attributes:
        destinations: from -> to, ``queue:orders`` or a bare queue name; others stay.
        properties: set on every message, in place of what it has; plain values or the wrappers of ``sievemq``.
        without: properties that are taken away. Those of dead letters (``JMS_SieveMQ_DeadLetter…``) always are.
    """

    destinations: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, PropertyValue] = field(default_factory=dict)
    without: Sequence[str] = ()

    def check(self) -> None:
        """Raise if something is wrong with them, before Spark starts.

        Raises:
            PipelineError: a destination or a property is not possible; says which.
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
        """The messages as they are to be sent.

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
        keep = "NOT startswith(_name, 'JMS_SieveMQ_DeadLetter')" + (f" AND _name NOT IN ({listed})" if gone else "")
        kept = f"map_filter(properties, (_name, _value) -> {keep})"
        if values:
            added = ", ".join(f"{quote_text(name)}, {value}" for name, value in values.items())
            kept = f"map_concat({kept}, map({added}))"
        return frame.withColumn("properties", f.expr(kept))
