"""What went wrong with TLS, and what to write instead."""

from __future__ import annotations

from typing import Final

__all__ = ["of_tls"]

#: Reasons of OpenSSL for bytes that are no TLS, or for a peer that leaves at the sight of TLS.
_NOT_SPOKEN: Final = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNEXPECTED_EOF_WHILE_READING")


def of_tls(error: OSError) -> str:
    """The text for a handshake that failed.

    Args:
        error: an ssl.SSLError, or what the socket said meanwhile.
    """
    reason = getattr(error, "reason", None)
    if reason in _NOT_SPOKEN:
        return f"no TLS is spoken there (write sievemq:// for a connection without): {error}"
    if reason == "CERTIFICATE_VERIFY_FAILED":
        return f"TLS: {error} (the option tls_ca names the certificates to trust, tls_server_name another name)"
    return f"TLS: {error}"
