"""The state of a ConnectionFactory of either front (§5.3): the broker's address and the user."""

from __future__ import annotations

from difflib import get_close_matches
from typing import NoReturn, Unpack

from sievemq.exceptions import JMSException
from sievemq.session_mode import SessionMode
from sievemq.url import BrokerURL, Options, parse_url, url_of_environment


class FactorySettings:
    """Base of both fronts' ConnectionFactory, where the arguments are described."""

    __slots__ = ("_password", "_url", "_user")

    def __init__(
        self,
        url: str | BrokerURL | None = None,
        *,
        user_name: str | None = None,
        password: str | None = None,
        **options: Unpack[Options],
    ) -> None:
        if url is None:
            url = url_of_environment()
        self._url = _replace(url, options) if isinstance(url, BrokerURL) else parse_url(url, **options)
        self._user = user_name
        self._password = password

    def __repr__(self) -> str:
        return f"ConnectionFactory({str(self._url)!r})"

    def _credentials(self, user_name: str | None, password: str | None) -> tuple[str | None, str | None]:
        """Return the credentials of a call, or else the factory's own.

        Raises:
            JMSException: they are no texts.
        """
        if user_name is None and password is None:
            return self._user, self._password
        for what, given in (("user name", user_name), ("password", password)):
            if given is not None and not isinstance(given, str):
                raise JMSException(f"a {what} is text, not {given!r:.60}")
        return user_name, password


def _replace(url: BrokerURL, options: Options) -> BrokerURL:
    if not options:
        return url
    return BrokerURL(url.hosts, url.secure, url.user, url.password, url.namespace, url.options.replace(**options))


def refuse_lone_name(name: str) -> NoReturn:
    """Refuse a text where a context's only argument can be its session mode: it would be taken for a user name.

    Raises:
        JMSException: names the modes.
    """
    modes = list(SessionMode.__members__)
    # "transacted" is as near to SESSION_TRANSACTED as "AUTO"
    near = [mode for mode in modes if name.upper() in mode] or get_close_matches(name.upper(), modes, 1)
    meant = f"; the session mode is JMSContext.{near[0]}" if near else ""
    raise JMSException(
        f"create_context({name!r:.60}): a user name needs a password, and a session mode is one of "
        f"JMSContext.{', JMSContext.'.join(modes)}{meant}"
    )
