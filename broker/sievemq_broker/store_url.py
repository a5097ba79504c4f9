"""The URL of a store that brokers share: how it is recognised, and what of it may be shown."""

from __future__ import annotations

import re
from typing import Final

_SCHEMES: Final = ("postgresql://", "postgres://")
_PASSWORDS: Final = re.compile(r"(?i)([?&](?:ssl)?password=)[^&]*")


def is_store_url(text: str) -> bool:
    """True for the URL of a database; anything else names a directory."""
    return text.startswith(_SCHEMES)


def without_password(url: str) -> str:
    """The URL with ``***`` for each password, for logs, errors and lists.

    A password with characters that should have been percent-encoded is hidden whole: it ends at the last ``@``.
    """
    scheme, mark, rest = url.partition("://")
    user_info, at, host = rest.rpartition("@")
    if at and ":" in user_info:
        rest = f"{user_info.partition(':')[0]}:***@{host}"
    return _PASSWORDS.sub(r"\1***", f"{scheme}{mark}{rest}")
