"""Which host of a URL is tried when, and which error counts if none welcomes the client (D-44)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from sievemq._engine.repair import is_passing
from sievemq.exceptions import InvalidURLException, JMSException
from sievemq.url import address_of
from sievemq_core.errors import ErrorCode
from sievemq_core.harmless import harmless

Host: TypeAlias = tuple[int, tuple[str, int]]
"""Its number in the URL; host name and port."""

#: Milliseconds that a host is ahead of the next one at most.
_LONGEST_LEAD: Final = 2_000
#: Redirects in a row that are followed.
_MOST_REDIRECTS: Final = 4
#: Seconds for the last word to a host that has lost the race.
LEAVE_SECONDS: Final = 1.0


class Race:
    """One round over the hosts. They are tried in their order, each with a lead over the next one: a fraction of the
    time that is left. A host that fails is followed by the next at once. One that is overtaken may still welcome the
    client first. One that redirects the client is replaced by the host that it names, which is tried at once. If that
    is silent, the machine of an owner may be lost: a while later the one that has named it is asked again.

    Times are milliseconds of any clock that never goes back.

    Args:
        hosts: in the order in which they are tried.
        now: the present time.
        until: when the round ends.
        patience: how much time there is in all: leads are fractions of that, if it is less.
        secure: the client uses TLS. It is not redirected to a host without, nor the other way round.

    Attributes:
        until: when the round ends.
    """

    __slots__ = (
        "_ask_again", "_begun", "_errors", "_hosts", "_next_at", "_origins", "_patience_ends", "_redirected",
        "_redirects", "_secure", "until",
    )  # fmt: skip

    def __init__(
        self, hosts: Sequence[Host], now: int, until: int, patience: int | None = None, *, secure: bool = False
    ) -> None:
        self._hosts = list(hosts)
        self._secure = secure
        self._begun = 0
        #: Hosts that were named by a redirect, and are not begun; by number, how many redirects led there.
        self._redirected: list[Host] = []
        self._redirects: dict[int, int] = {}
        #: By number, the host that has redirected the client first; and when that is asked again.
        self._origins: dict[int, tuple[str, int]] = {}
        self._ask_again: dict[int, int] = {}
        self._errors: dict[int, JMSException] = {}
        self._next_at = now
        self.until = until
        self._patience_ends = until if patience is None else min(until, now + patience)

    def next(self, now: int) -> Host | None:
        """The host to begin with now; None if none is due."""
        if now >= self.until:
            return None
        if self._redirected:
            host = self._redirected.pop(0)
            self._ask_again[host[0]] = now + _LONGEST_LEAD
            return host
        for number, due in self._ask_again.items():
            if now >= due:
                return self._begin_again(number)
        if self._begun == len(self._hosts):
            return None
        if now < self._next_at and len(self._errors) < self._begun:
            return None
        left = max(0, self._patience_ends - now)
        self._next_at = now + min(_LONGEST_LEAD, left // (2 * (len(self._hosts) - self._begun)))
        self._begun += 1
        return self._hosts[self._begun - 1]

    def _begin_again(self, number: int) -> Host:
        """The host to which the client was redirected is silent: ask the one where that began once more."""
        del self._ask_again[number]
        host = len(self._hosts), self._origins[number]
        self._hosts.insert(self._begun, host)
        self._begun += 1
        return host

    def wait(self, now: int) -> int:
        """Milliseconds after which :meth:`next` or :attr:`until` is due."""
        if self._redirected:
            return 0
        due = self._next_at if self._begun < len(self._hosts) else self.until
        return max(0, min(due, self.until, *self._ask_again.values()) - now)

    def failed(self, number: int, error: JMSException) -> None:
        """A host has not welcomed the client."""
        self._ask_again.pop(number, None)
        if error.get_error_code() == ErrorCode.REDIRECT.name:
            found = self._follow(number, error)
            if found is None:
                return
            error = found
        self._errors[number] = error

    def _follow(self, number: int, error: JMSException) -> JMSException | None:
        """Go on with the host that a redirect names. Returns the reason if that is not possible."""
        url = error.details.get("url")
        text = harmless(str(url)[:200])
        try:
            secure, address = address_of(url)
        except InvalidURLException as wrong:
            return JMSException(f"the broker redirects to {text}: {wrong}", "REDIRECT", error)
        if secure is not self._secure:
            instead = "sievemq" + "s" * secure
            reason = f"write {instead}:// in the URL" if secure else "which has no TLS; the client does not follow"
            return JMSException(f"the broker redirects to {text}, {reason}", "REDIRECT", error)
        redirects = self._redirects[number] = self._redirects.get(number, 0) + 1
        if redirects > _MOST_REDIRECTS:
            reason = f"{redirects} redirects in a row, the last one to {text}; the brokers do not agree at present"
            return JMSException(reason, "CONNECTION_FAILED", error)
        at = next(at for at, (each, _) in enumerate(self._hosts) if each == number)
        self._origins.setdefault(number, self._hosts[at][1])
        host = self._hosts[at] = number, address
        self._redirected.append(host)
        return None

    def is_over(self, now: int) -> bool:
        return now >= self.until or len(self._errors) == len(self._hosts)

    @property
    def is_hopeless(self) -> bool:
        """Each host has failed in a way that a further attempt will not change."""
        return len(self._errors) == len(self._hosts) and not any(map(is_passing, self._errors.values()))

    @property
    def refusal(self) -> JMSException | None:
        """What a broker has answered to credentials, client id or version, if each host has failed for good; the most
        preferred host's."""
        return self._answer() if self.is_hopeless else None

    def _answer(self) -> JMSException | None:
        for number, _ in self._hosts:
            error = self._errors.get(number)
            if error is not None and not is_passing(error) and not _is_unreachable(error):
                return error
        return None

    def error(self) -> JMSException:
        """Why no host has welcomed the client."""
        answer = self._answer()
        if answer is not None:
            return answer
        errors = [(host, self._errors.get(number)) for number, host in self._hosts]
        if len(errors) == 1 and errors[0][1] is not None and not _is_unreachable(errors[0][1]):
            return errors[0][1]
        reasons = [f"{host}:{port}: {error or 'no answer in time'}" for (host, port), error in errors]
        found = [error for _, error in errors if error is not None]
        text = f"no broker could be reached: {'; '.join(reasons)}"
        cause = found[-1].get_linked_exception() if found else None
        if not self.is_hopeless:
            codes = {None if error is None else error.get_error_code() for _, error in errors}
            return JMSException(text, codes.pop() if codes == {"TIMEOUT"} else "CONNECTION_FAILED", cause)
        if all(isinstance(error, InvalidURLException) for error in found):
            return InvalidURLException(text)
        return JMSException(text, "TLS", cause)


#: Codes of errors without an answer of a broker.
_UNREACHABLE: Final = frozenset({"CONNECTION_FAILED", "TIMEOUT", "TLS"})


def _is_unreachable(error: JMSException) -> bool:
    return isinstance(error, InvalidURLException) or error.get_error_code() in _UNREACHABLE
