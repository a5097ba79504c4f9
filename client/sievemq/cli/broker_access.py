"""Connections of the commands, and errors of the SDK as exit codes."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

from sievemq.advice import SieveMQWarning
from sievemq.blocking import Connection, ConnectionFactory, QueueBrowser
from sievemq.cli.contexts import credentials, missing_password
from sievemq.cli.exits import FAILED, NOT_FOUND, REFUSED, USAGE
from sievemq.cli.show import harmless
from sievemq.exceptions import (
    InvalidDestinationException,
    InvalidSelectorException,
    InvalidURLException,
    JMSException,
    JMSSecurityException,
)
from sievemq_core.output import complain


def connect(url: str, user: str | None) -> Connection:
    """A connection, stopped. Credentials given apart from the URL go before those in it."""
    user, password = credentials(user, "url", url)
    # A person waits at a terminal: report an unreachable broker immediately, unless the URL has `reconnect`.
    patience: dict[str, Any] = {} if "reconnect=" in url else {"reconnect": 0}
    connection = ConnectionFactory(url, application="sievemq-cli", **patience).create_connection(user, password)
    connection.set_exception_listener(lambda error: None)  # the calls raise it
    return connection


def missing(browser: QueueBrowser) -> str | None:
    """The error that a browser's queue does not exist, with similar names; None if it exists."""
    if not browser._engine.missing:
        return None
    similar = browser._engine.similar
    hint = f"did you mean {' or '.join(similar)}?" if similar else "the first send creates it"
    return f"there is no {browser._engine.queue}; {hint}"


def _hint(code: str | None, text: str) -> str:
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return ". If it is a private certificate, name its authority: --url 'sievemqs://HOST:PORT?tls_ca=FILE'"
    if "TLS" in text:  # its error has been printed
        return ""
    return ". --url or SIEVEMQ_URL says where; `sievemq broker` starts one" if code == "CONNECTION_FAILED" else ""


@contextmanager
def warned() -> Iterator[None]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SieveMQWarning)
        yield
    for warning in caught:
        complain(f"sievemq: {harmless(str(warning.message))}")


@contextmanager
def failures() -> Iterator[None]:
    """Errors of the SDK as one message and an exit code."""
    try:
        yield
    except InvalidURLException as error:
        code, text = USAGE, str(error)
    except (InvalidSelectorException, JMSSecurityException) as error:
        code, text = REFUSED, str(error)
        if error.get_error_code() == "AUTHENTICATION":
            text += missing_password()
    except InvalidDestinationException as error:
        code, text = NOT_FOUND, str(error)
    except (JMSException, ValueError) as error:
        code, text = FAILED, str(error)
        if isinstance(error, JMSException):
            text += _hint(error.get_error_code(), text)
    else:
        return
    complain(f"sievemq: {text}")
    raise typer.Exit(code)
