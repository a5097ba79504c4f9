"""Selector -> ``pyspark.sql.Column``; the work is in selector_sql.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sievemq.exceptions import from_core
from sievemq_core.selector import CompiledSelector, SelectorError, compile_selector
from sievemq_spark.columns import parse_columns
from sievemq_spark.selector_sql import selector_sql

if TYPE_CHECKING:
    from pyspark.sql import Column


def selector_column(selector: CompiledSelector, columns: Mapping[str, str] | None = None) -> Column:
    """A checked selector as a boolean Column; arguments as for :func:`selector_sql`. Needs a running SparkSession."""
    from pyspark.sql import functions

    return functions.expr(selector_sql(selector, columns))


def checked(selector: str | None, dialect: str = "jakarta") -> CompiledSelector | None:
    """A selector checked as a broker checks it; None if there is no condition (D-12).

    Raises:
        InvalidSelectorException: with a caret under the mistake.
        ValueError: there is no such dialect.
    """
    try:
        return compile_selector(selector, dialect)
    except SelectorError as error:
        raise from_core(error) from error


def where_sql(selector: str | None, dialect: str = "jakarta", columns: str | Mapping[str, str] | None = None) -> str:
    """The selector as text of Spark SQL; works without Spark.

    Args: as for :func:`where`.

    >>> where_sql("JMSType = 'order' AND paid")
    "(type = 'order' AND properties['paid'].b)"
    """
    compiled = checked(selector, dialect)
    return "TRUE" if compiled is None else f"({selector_sql(compiled, parse_columns(columns))})"


def where(selector: str | None, dialect: str = "jakarta", columns: str | Mapping[str, str] | None = None) -> Column:
    """A condition on a DataFrame of messages that is true for exactly the messages that a broker would select.

    Args:
        selector: the condition; None or blank is true for every message.
        dialect: ``jakarta``, ``ibm-mq``, ``mqe`` or ``amqp``.
        columns: ``region STRING, price DOUBLE``: properties to read from columns of their own instead of the map
            ``properties``, for tables that have no such map. A column has one type, so a message whose property had
            another one is judged by the column's.

    Returns:
        A boolean Column; NULL where the answer is UNKNOWN, as in SQL.

    Raises:
        InvalidSelectorException: with a caret under the mistake.
        PipelineError: the columns cannot be read.
    """
    from pyspark.sql import functions

    compiled = checked(selector, dialect)
    return functions.lit(True) if compiled is None else selector_column(compiled, parse_columns(columns))
