"""The version of SieveMQ: of the client, the broker and everything else in the distribution.

It stands here alone. The build reads it into the distribution's metadata (pyproject.toml), so it is right in a tree
that was never installed, too.
"""

from __future__ import annotations

VERSION = "0.1.0"
