"""The management API as the commands use it: where it is, requests, pages, errors as exit codes."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Callable
from typing import Annotated, Any, Final, NamedTuple, NoReturn, Self

import typer

from sievemq._management import Management, ManagementError, place
from sievemq.cli.completing import queues
from sievemq.cli.contexts import credentials, missing_password
from sievemq.cli.exits import FAILED, NOT_FOUND, REFUSED, USAGE
from sievemq.cli.management_url import DEFAULT_HTTP, split_http, tls_of
from sievemq.cli.options import UserOption, destination_of
from sievemq.cli.show import harmless
from sievemq_core.output import complain

#: Messages that one request of a long action may touch: often enough for a bar to move, seldom enough to cost nothing.
PIECE: Final = 5_000
_NO_HTTP: Final = (
    "If that is the port of sievemq:// URLs, name the management port instead: 7680 unless set otherwise; the broker's "
    "log has it as http_url"
)

HttpOption = Annotated[
    str,
    typer.Option("--http", envvar="SIEVEMQ_HTTP_URL", show_envvar=True, help="The broker's management port."),
]
NamespaceOption = Annotated[
    str, typer.Option("--namespace", "-N", envvar="SIEVEMQ_NAMESPACE", show_envvar=True, help="Its namespace.")
]

QueueArgument = Annotated[str, typer.Argument(metavar="QUEUE", help="queue:NAME, or NAME.", autocompletion=queues)]
MostOption = Annotated[int, typer.Option("--number", "-n", min=0, help="Maximum number; 0 for all.")]

_CODES: Final = {
    401: REFUSED,
    403: REFUSED,
    404: NOT_FOUND,
    412: REFUSED,
    422: REFUSED,
    400: USAGE,
    413: USAGE,
    429: REFUSED,
}


class Api(Management):
    """One broker's management API. A request that fails ends the command with an error and its exit code.

    Args:
        url: of the management port; for https with ``?tls_ca=``, ``tls_cert=``, ``tls_key=``, as of the wire port.
        user: name; None for that of the context, or for a broker without users.
        namespace: that :meth:`place` means.
        before_failing: called before a request that fails prints why, to give the screen back.

    Attributes:
        shard: whose owner this is; empty if that is not known.
    """

    def __init__(
        self,
        url: str,
        user: str | None,
        namespace: str = "default",
        before_failing: Callable[[], object] = lambda: None,
    ) -> None:
        parts = split_http(url)
        where = f"{parts.scheme}://{parts.netloc}{parts.path}"
        super().__init__(where, *credentials(user, "http", url), tls_of(parts))
        self._namespace = namespace or "default"
        self._before_failing = before_failing
        self.shard = ""

    def place(self, address: str = "", *rest: str) -> str:
        """A path in the namespace: of a destination, and of what is below it."""
        return place(self._namespace, address, *rest)

    def at(self, url: str) -> Self:
        """The same for another broker of the cluster; one without TLS ends the command if this one has it."""
        try:
            return super().at(url)
        except ManagementError as error:
            _end(str(error), FAILED)

    def owners(self) -> list[Self]:
        """One for the owner of each shard of the cluster; this one without a cluster. A shard without an owner ends the
        command: nothing is asked then."""
        answer = self.get("/shards")
        if not answer["cluster"]:
            return [self]
        unknown = [row["name"] for row in answer["shards"] if row["http_url"] is None]
        if unknown:
            names = ", ".join(unknown)
            _end(f"nothing is done: no owner is known of {names}, or not its management port (advertise_http)", FAILED)
        owners = [self.at(row["http_url"]) for row in answer["shards"]]
        for owner, row in zip(owners, answer["shards"], strict=True):
            owner._own(row["name"])
        return owners

    def _own(self, shard: str) -> None:
        self.shard = shard

    def _ask(self, *request: Any, **more: Any) -> Any:
        try:
            return super()._ask(*request, **more)
        except ManagementError as error:
            self._before_failing()
            if error.status:
                _refused(error)
            cause = error.__cause__
            reason = getattr(cause, "reason", cause)
            if isinstance(cause, http.client.BadStatusLine) and not isinstance(cause, http.client.RemoteDisconnected):
                _end(f"what answers at {self.url} does not speak HTTP. {_NO_HTTP}", FAILED)
            _end(f"{error}. {self._hint(reason)}", FAILED)

    def _hint(self, reason: object) -> str:
        if isinstance(reason, ssl.SSLCertVerificationError):
            return f"If it is a private certificate, name its authority: --http '{self.url}?tls_ca=FILE'"
        if isinstance(reason, http.client.HTTPException | ConnectionResetError) and self._tls is None:
            return "If the broker has a certificate, write https://"
        if isinstance(reason, ssl.SSLError):
            return "If the broker has no certificate, write http://"
        return "--http or SIEVEMQ_HTTP_URL says where"


class Port(NamedTuple):
    """Options: the broker and the user."""

    http: HttpOption = DEFAULT_HTTP
    user: UserOption = None

    def api(self) -> Api:
        """Its management API."""
        return Api(self.http, self.user)


class Place(NamedTuple):
    """Options: the broker, the namespace and the user."""

    namespace: NamespaceOption = "default"
    http: HttpOption = DEFAULT_HTTP
    user: UserOption = None

    def api(self, before_failing: Callable[[], object] = lambda: None) -> Api:
        """Its management API; :meth:`Api.place` means that namespace."""
        return Api(self.http, self.user, self.namespace, before_failing)


def address_of(text: str, *, topic: bool = False) -> str:
    """The canonical address that an argument names; a name that is not allowed ends the command.

    Args:
        text: ``queue:orders``, ``topic:prices``, or a bare name.
        topic: what a bare name is: a topic rather than a queue.
    """
    return str(destination_of(f"topic:{text}" if topic and ":" not in text else text))


def _refused(error: ManagementError) -> NoReturn:
    text, details = str(error), error.details
    if error.status == 401:
        text += missing_password()
    selector, position = details.get("selector"), details.get("position")
    if isinstance(selector, str) and isinstance(position, int) and "^" not in text:
        length = details.get("length")
        mark = " " * position + "^" * max(1, length if isinstance(length, int) else 1)
        text = f"{text}\n  {selector}\n  {mark}" if "\n" not in selector else text
    _end(text, _CODES.get(error.status, FAILED))


def _end(text: str, code: int) -> NoReturn:
    complain(f"sievemq: {harmless(text, chr(10))}")
    raise typer.Exit(code)
