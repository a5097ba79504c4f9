"""Exceptions of the pipeline, for errors without an exception in the SDK or Spark."""

from __future__ import annotations

__all__ = ["DataLossError", "MissingSparkError", "NoArchiveError", "NoDestinationError", "PipelineError"]


class PipelineError(ValueError):
    """Something the caller gave cannot be used; the text says what, and what to do."""


class DataLossError(RuntimeError):
    """Messages that should have been read are not there any more; the text says which, why, and how to continue."""


class NoArchiveError(PipelineError):
    """There is no archive at the path that was given."""


class NoDestinationError(PipelineError):
    """A broker or an archive has no destination of that name."""


class MissingSparkError(RuntimeError):
    """PySpark or Java is not there; the text says what to install."""
