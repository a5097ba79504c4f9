"""What a ConnectionFactory of either front knows (§5.3): where the broker is, and who asks."""

from __future__ import annotations

from typing import Any, Final

from sievemq.exceptions import JMSException
from sievemq.url import BrokerURL, parse_url

__all__ = ["FactorySettings"]

_MODES: Final = ("SESSION_TRANSACTED", "AUTO_ACKNOWLEDGE", "CLIENT_ACKNOWLEDGE", "DUPS_OK_ACKNOWLEDGE")


class FactorySettings:
    """Base of both fronts' ConnectionFactory, where the arguments are described."""

    __slots__ = ("_password", "_url", "_user")

    def __init__(
        self,
        url: str | BrokerURL = "sievemq://localhost",
        *,
        user_name: str | None = None,
        password: str | None = None,
        **options: Any,
    ) -> None:
        self._url = _replace(url, options) if isinstance(url, BrokerURL) else parse_url(url, **options)
        self._user = user_name
        self._password = password

    def __repr__(self) -> str:
        return f"ConnectionFactory({str(self._url)!r})"

    def _credentials(self, user_name: str | None, password: str | None) -> tuple[str | None, str | None]:
        """Those of a call; the factory's own where it brings none.

        Raises:
            JMSException: they are no texts; or the name is that of a session mode, which would be taken for a user.
        """
        if user_name is None and password is None:
            return self._user, self._password
        if user_name in _MODES and password is None:
            raise JMSException(f"{user_name!r} is no user; the session mode is JMSContext.{user_name}")
        for what, given in (("user name", user_name), ("password", password)):
            if given is not None and not isinstance(given, str):
                raise JMSException(f"a {what} is text, not {given!r:.60}")
        return user_name, password


def _replace(url: BrokerURL, options: dict[str, Any]) -> BrokerURL:
    if not options:
        return url
    return BrokerURL(url.hosts, url.secure, url.user, url.password, url.namespace, url.options.replace(**options))
