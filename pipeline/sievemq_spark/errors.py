"""Exceptions of the pipeline, for errors without an exception in the SDK or Spark."""

from __future__ import annotations


class PipelineError(ValueError):
    """An argument cannot be used; the text names it, the reason, and what to do."""


class DataLossError(RuntimeError):
    """Messages were removed before they were read; the text names them, the reason, and how to continue."""


class NoArchiveError(PipelineError):
    """The path contains no archive."""


class NoDestinationError(PipelineError):
    """A broker or an archive has no destination of that name."""


class MissingSparkError(RuntimeError):
    """PySpark or Java is missing; the text names what to install."""


class UnusualError(Exception):
    """Rows or messages have something that is converted one by one, not by column. It never leaves the pipeline."""
