"""docker/helm/sievemq/files/label_role.py: the labels of a pod follow what its broker says of itself."""

from __future__ import annotations

import json
import os
import shutil
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from typing import Any

from sievemq_broker import EmbeddedBroker

SCRIPT = Path(__file__).parents[3] / "docker/helm/sievemq/files/label_role.py"
#: Longer than anything takes.
LONG = 60


class Handler(BaseHTTPRequestHandler):
    """Gives the server's `calls` what was asked, and answers what the server's `say` returns."""

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        status, text = self.server.say((self.command, self.path, dict(self.headers), body))  # type: ignore[attr-defined]
        self.send_response(status)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_PATCH = _answer  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextmanager
def served(say: Any, tls: ssl.SSLContext | None = None) -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.say = say  # type: ignore[attr-defined]
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join(LONG)


def test_labels_follow_the_broker(certificates: Path, tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "server.pem", certificates / "server.key")
    shutil.copy(certificates / "ca.pem", tmp_path / "ca.crt")
    (tmp_path / "token").write_text("t0ken\n")
    (tmp_path / "namespace").write_text("prod")
    said: list[tuple[int, bytes]] = [(503, b'{"role":"follower"}')]
    calls: Queue[Any] = Queue()
    refusals = [(403, b"no"), (403, b"no")]

    def api(call: Any) -> tuple[int, bytes]:
        calls.put(call)
        return refusals.pop() if refusals else (200, b"{}")

    def patched() -> dict[str, str | None]:
        method, path, headers, body = calls.get(timeout=LONG)
        assert (method, path) == ("PATCH", "/api/v1/namespaces/prod/pods/mq-0")
        assert headers["Authorization"] == "Bearer t0ken"
        assert headers["Content-Type"] == "application/merge-patch+json"
        labels: dict[str, str | None] = json.loads(body)["metadata"]["labels"]
        return labels

    with served(api, context) as port, served(lambda _: said[0]) as broker:
        environment = {
            **os.environ, "POD_NAME": "mq-0", "BROKER_URL": f"http://127.0.0.1:{broker}", "ACCOUNT": str(tmp_path),
            "KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(port),
        }  # fmt: skip
        process = subprocess.Popen([sys.executable, str(SCRIPT)], env=environment, stderr=subprocess.PIPE, text=True)
        try:
            for _ in range(3):  # two are refused, and logged once
                assert patched() == {"sievemq/role": "follower", "sievemq/shard": None}
            said[0] = (200, b'{"role":"owner","shard":"a"}')
            assert patched() == {"sievemq/role": "owner", "sievemq/shard": "a"}
            said[0] = (503, b'{"role":"silent","shard":"a"}')
            assert patched() == {"sievemq/role": "silent", "sievemq/shard": None}
            said[0] = (200, b"what?")
            assert patched() == {"sievemq/role": None, "sievemq/shard": None}
        finally:
            process.terminate()
            _, errors = process.communicate(timeout=LONG)
    assert process.returncode == 0
    assert errors == "the labels are not set: status 403: no\n"


def test_what_a_broker_says_is_understood() -> None:
    code: dict[str, Any] = {"__name__": "label_role"}
    exec(compile(SCRIPT.read_text(encoding="utf-8"), str(SCRIPT), "exec"), code)
    with EmbeddedBroker(http=True) as broker:
        assert code["labels_of"](broker.http_url)["sievemq/role"] == "owner"
    assert code["labels_of"](broker.http_url) == {"sievemq/role": None, "sievemq/shard": None}
