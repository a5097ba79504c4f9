"""Results of the jobs for people: tables on a terminal, and the same with charts as one HTML file.

>>> from sievemq_spark.report import Table
>>> Table("messages", ("selector", "TRUE"), [("a = 1", "5")]).title
'messages'
"""

from sievemq_spark.report.html import write_html
from sievemq_spark.report.parts import Chart, Table, parts_of

__all__ = ["Chart", "Table", "parts_of", "write_html"]
