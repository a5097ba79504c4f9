"""Gives this pod the labels sievemq/role and sievemq/shard, as its broker says, so that Services select owners.

Runs beside the broker, in its image. The API server gets a change at once, and the labels again each minute, in case
that something else has changed them.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import ssl
import sys
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

POLL_SECONDS, REPEAT_SECONDS, TIMEOUT = 0.5, 60, 3
ROLE, SHARD = "sievemq/role", "sievemq/shard"


def connect(url: str, tls: ssl.SSLContext) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port
    if parts.scheme == "http":
        return http.client.HTTPConnection(host, port, timeout=TIMEOUT)
    return http.client.HTTPSConnection(host, port, timeout=TIMEOUT, context=tls)


def labels_of(broker: str) -> dict[str, str | None]:
    """The labels that fit what a broker says. None removes one."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE  # by its address, on the pod's own loopback
    connection = connect(broker, tls)
    try:
        connection.request("GET", "/activez")
        answer = connection.getresponse()
        said = json.loads(answer.read())
        role, shard = said["role"], said.get("shard")
    except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError):
        return {ROLE: None, SHARD: None}
    finally:
        connection.close()
    return {ROLE: role, SHARD: shard if answer.status == 200 else None}


def patch(server: str, account: Path, pod: str, labels: dict[str, str | None]) -> None:
    """Change the labels of a pod.

    Raises:
        OSError, http.client.HTTPException: they are not changed.
    """
    token = (account / "token").read_text().strip()  # it is renewed
    namespace = (account / "namespace").read_text().strip()
    connection = connect(server, ssl.create_default_context(cafile=account / "ca.crt"))
    try:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/merge-patch+json"}
        body = json.dumps({"metadata": {"labels": labels}})
        connection.request("PATCH", f"/api/v1/namespaces/{namespace}/pods/{pod}", body, headers)
        answer = connection.getresponse()
        text = answer.read(1_000).decode(errors="replace")
    finally:
        connection.close()
    if answer.status != 200:
        raise OSError(f"status {answer.status}: {text}")


def main() -> None:
    """Until SIGTERM."""
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    pod, broker, account = os.environ["POD_NAME"], os.environ["BROKER_URL"], Path(os.environ["ACCOUNT"])
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    told: dict[str, str | None] = {}
    due, wrong = 0.0, ""
    while not ended.is_set():
        labels = labels_of(broker)
        if labels != told or time.monotonic() >= due:
            try:
                patch(server, account, pod, labels)
                told, due, wrong = labels, time.monotonic() + REPEAT_SECONDS, ""
            except (OSError, http.client.HTTPException) as error:
                if wrong != str(error):  # it is tried again and again
                    wrong = str(error)
                    sys.stderr.write(f"the labels are not set: {wrong}\n")
        ended.wait(POLL_SECONDS)


if __name__ == "__main__":
    main()
