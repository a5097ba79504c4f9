"""By this module Spark finds ``format("sievemq")`` by itself: it imports every top-level module ``pyspark_*``."""

from sievemq_spark.source import SieveMQDataSource


class DefaultSource(SieveMQDataSource):
    """The data source."""
