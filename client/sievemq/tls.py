"""TLS contexts from certificates and keys, for the wire port and the management port."""

from __future__ import annotations

import ssl
from typing import Final

from sievemq.exceptions import JMSException
from sievemq.url import BrokerURL

__all__ = ["of_tls", "tls_context", "tls_of"]

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
        JMSException: a file does not exist, or is not a certificate or key.
    """
    try:
        context = ssl.create_default_context(cafile=ca)
        if not verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if cert is not None:
            context.load_cert_chain(cert, key)
    except OSError as error:
        files = ", ".join(name for name in (ca, cert, key) if name)
        raise JMSException(f"TLS cannot be set up with {files or 'the system certificates'}: {error}") from error
    return context


def of_tls(error: OSError) -> str:
    """The text for a handshake that failed.

    Args:
        error: an ssl.SSLError, or the error of the socket.
    """
    reason = getattr(error, "reason", None)
    if reason in _NOT_SPOKEN:
        return f"no TLS is spoken there (write sievemq:// for a connection without): {error}"
    if reason == "CERTIFICATE_VERIFY_FAILED":
        return f"TLS: {error} (the option tls_ca names the certificates to trust, tls_server_name another name)"
    return f"TLS: {error}"
