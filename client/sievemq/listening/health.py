"""Answers the probes of an orchestrator about an application of listeners: a thread with a small HTTP server."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_log = logging.getLogger("sievemq.listeners")


@contextmanager
def answering(address: str | None, healthy: Callable[[], bool]) -> Iterator[int | None]:
    """Answer while the block runs: 200 at ``/livez``; at ``/readyz`` 200 or 503. The value is the port.

    Args:
        address: ``host:port``, or a port of the loopback; port 0 for a free one. None to answer nothing.
        healthy: whether the application listens.

    Raises:
        ValueError: no such address.
        OSError: it cannot be listened at.
    """
    if address is None:
        yield None
        return
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

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

    server = ThreadingHTTPServer((host.strip("[]") or "127.0.0.1", int(port)), Answers)
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), name="sievemq-health", daemon=True)
    thread.start()
    _log.info("probes are answered at http://%s:%d/readyz", *server.server_address[:2])
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
