"""Answers the probes of an orchestrator about an application of listeners: a thread with a small HTTP server."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_log = logging.getLogger("sievemq.listeners")


@contextmanager
def answering(address: str | None, healthy: Callable[[], bool]) -> Iterator[int | None]:
    """Answer while the block runs: 200 at ``/livez``; at ``/readyz`` 200 or 503. The value is the port.

    Args:
        address: ``host:port``, such as ``[::1]:8080``, or a port of the loopback; port 0 for a free one. None to answer
            nothing.
        healthy: whether the application listens.

    Raises:
        ValueError: no such address.
        OSError: it cannot be listened at.
    """
    if address is None:
        yield None
        return
    from http.server import BaseHTTPRequestHandler
    from socketserver import ThreadingTCPServer

    host, _, port = address.rpartition(":")
    if not port.isdecimal() or int(port) > 65_535:
        raise ValueError(f"probes are answered at host:port, such as 127.0.0.1:8080, not {address!r:.80}")

    class Answers(BaseHTTPRequestHandler):
        timeout = 5

        def do_GET(self) -> None:
            codes = {"/livez": 200, "/readyz": 200 if healthy() else 503}
            code = codes.get(self.path.partition("?")[0], 404)
            text = b"ok\n" if code == 200 else b"not listening\n" if code == 503 else b"/livez or /readyz\n"
            self.send_response(code)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
            _log.debug(format, *args)

    host = host.strip("[]") or "127.0.0.1"

    class Server(ThreadingTCPServer):  # that of http.server asks for the name of the host, which may take seconds
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        allow_reuse_address = os.name == "posix"
        daemon_threads = True

    try:
        server = Server((host, int(port)), Answers)
    except OSError as error:
        raise OSError(f"probes cannot be answered at {address}: {error}") from error
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), name="sievemq-health", daemon=True)
    thread.start()
    _log.info(
        "probes are answered at http://%s:%d/readyz", f"[{host}]" if ":" in host else host, server.server_address[1]
    )
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
