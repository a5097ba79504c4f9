"""What the pipeline raises where neither the SDK nor Spark has an exception that says it."""

from __future__ import annotations

__all__ = ["MissingSparkError", "PipelineError"]


class PipelineError(ValueError):
    """Something the caller gave cannot be used; the text says what, and what to do."""


class MissingSparkError(RuntimeError):
    """PySpark or Java is not there; the text says what to install."""
