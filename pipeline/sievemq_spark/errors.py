"""What the pipeline raises where neither the SDK nor Spark has an exception that says it."""

from __future__ import annotations

__all__ = ["MissingSparkError", "NoArchiveError", "PipelineError"]


class PipelineError(ValueError):
    """Something the caller gave cannot be used; the text says what, and what to do."""


class NoArchiveError(PipelineError):
    """There is no archive at the path that was given."""


class MissingSparkError(RuntimeError):
    """PySpark or Java is not there; the text says what to install."""
