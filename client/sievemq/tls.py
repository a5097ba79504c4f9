"""TLS contexts from certificates and keys, for the wire port and the management port."""

from __future__ import annotations

import ssl
from typing import Final

from sievemq.exceptions import InvalidURLException, JMSException
from sievemq.url import BrokerURL

#: OpenSSL's reasons for bytes that are not TLS, or for a peer that does not speak TLS and closes.
_NOT_SPOKEN: Final = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNEXPECTED_EOF_WHILE_READING")


def tls_of(url: BrokerURL) -> ssl.SSLContext | None:
    """The TLS context for the options of a URL; None for a URL without TLS.

    Raises:
        JMSException: as :func:`tls_context`.
    """
    if not url.secure:
        return None
    chosen = url.options
    return tls_context(ca=chosen.tls_ca, cert=chosen.tls_cert, key=chosen.tls_key, verify=chosen.tls_verify)


def tls_context(*, ca: str | None, cert: str | None, key: str | None, verify: bool = True) -> ssl.SSLContext:
    """Return the TLS context of a client.

    Args:
        ca: file of the certificates to trust; the system's if None.
        cert, key: files of the client's own certificate, if it has one, and its key, if that is not in the same file.
        verify: check that the certificate of the other end is trusted, and issued for its host name.

    Raises:
        JMSException: a file does not exist, or is not a certificate or key (error code TLS).
    """
    try:
        context = ssl.create_default_context(cafile=ca)
        if not verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if cert is not None:
            context.load_cert_chain(cert, key)
    except (OSError, ValueError) as error:  # a ValueError: a NUL in a name
        files = ", ".join(name for name in (ca, cert, key) if name)
        text = f"TLS cannot be set up with {files or 'the system certificates'}: {error}"
        raise JMSException(text, "TLS") from error
    return context


def of_tls(error: OSError) -> str:
    """The text for a handshake that failed."""
    reason = getattr(error, "reason", None)
    if reason in _NOT_SPOKEN:
        return f"no TLS is spoken there (write sievemq:// for a connection without): {error}"
    if reason == "CERTIFICATE_VERIFY_FAILED":
        return f"TLS: {error} (the option tls_ca names the certificates to trust, tls_server_name another name)"
    if refuses_certificate(error):
        return f"TLS: {error} (the broker wants another certificate of the client, or one at all: option tls_cert)"
    return f"TLS: {error}"


def refuses_certificate(error: BaseException) -> bool:
    """True for the alert of a peer that does not accept the client's certificate, or misses one. With TLS 1.3 it comes
    after the handshake, with the first read."""
    reason = getattr(error, "reason", None) if isinstance(error, ssl.SSLError) else None
    return reason is not None and "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason)


def closed_early(url: BrokerURL) -> JMSException:
    """The error for a peer that closes the connection without an answer to HELLO.

    A broker that misses the client's certificate, or does not accept it, closes right after the TLS handshake. A client
    that waits for its broker for ever goes on all the same: so does a proxy that does not reach the broker.
    """
    if not url.secure:
        text = "it may have ended; or it takes TLS, and its URL begins with sievemqs://"
    elif url.options.tls_cert is None:
        text = "it wants a certificate of the client, which the option tls_cert names; or it has ended"
    else:
        text = "it does not accept the certificate that the option tls_cert names; or it has ended"
    final = url.secure and url.options.reconnect != "forever"
    return JMSException(
        f"the broker closed the connection before it answered: {text}", "TLS" if final else "CONNECTION_LOST"
    )


def failure_of(error: Exception, host: str, secure: bool) -> JMSException:
    """Why a host cannot be reached.

    Args:
        error: an OSError of the socket or of TLS; a ValueError of a name that is none.
    """
    if isinstance(error, JMSException):
        return error
    if isinstance(error, ssl.SSLError):
        # A certificate that is not accepted now will not be accepted a moment later.
        final = isinstance(error, ssl.SSLCertVerificationError) or refuses_certificate(error)
        return JMSException(of_tls(error), "TLS" if final else "CONNECTION_FAILED", error)
    if isinstance(error, TimeoutError):
        return JMSException("no answer in time", "CONNECTION_FAILED", error)
    if isinstance(error, OSError):
        return JMSException(str(error.strerror or error), "CONNECTION_FAILED", error)
    name = "the option tls_server_name is" if secure else f"{host!r} is"
    return InvalidURLException(f"{name} not the name of a host: {error}", None, error)
