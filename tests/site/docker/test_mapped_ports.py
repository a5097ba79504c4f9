"""The image on a bridge, through testcontainers: its ports are mapped to the host, and definitions are mounted.

Needs an engine with a bridge network; see `test_image.py` for the image.
"""

from __future__ import annotations

import json
import subprocess
import urllib.request
from pathlib import Path

import pytest

pytest.importorskip("testcontainers", reason="needs the extra `container`")

from testcontainers.core import container as testcontainers

from sievemq import ConnectionFactory, Queue
from sievemq_testing.container import SieveMQContainer

from .test_image import DEADLINE, docker, image

__all__ = ["image"]

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(900)]


def test_clients_use_mapped_ports_and_find_what_definitions_say(
    image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = ["docker", "network", "ls", "--filter", "driver=bridge", "--quiet"]
    if not subprocess.run(listed, capture_output=True, timeout=DEADLINE, check=False).stdout.strip():
        pytest.skip("the engine has no bridge network")
    monkeypatch.setattr(testcontainers.c, "ryuk_disabled", True)
    file = tmp_path / "definitions.toml"
    file.write_text('[namespaces.default]\nqueues = ["orders"]\n[rules."queue:orders"]\nmax_messages = 2\n')
    tmp_path.chmod(0o755)
    file.chmod(0o644)
    with SieveMQContainer(
        image, options={"definitions": "/definitions.toml", "auto_create": False}
    ).with_volume_mapping(str(file), "/definitions.toml", "ro") as container:
        url = container.get_connection_url()
        assert not url.endswith(":7672")
        with ConnectionFactory(url).create_context() as context:
            context.create_producer().send(Queue("orders"), "a chair")
            message = context.create_consumer(Queue("orders")).receive(int(DEADLINE * 1_000))
            assert message is not None
        with urllib.request.urlopen(f"{container.get_http_url()}/api/v1/rules", timeout=DEADLINE) as answer:
            (rule,) = json.load(answer)["rules"]
        assert (rule["pattern"], rule["rules"]) == ("queue:orders", {"max_messages": 2})
        assert docker("exec", container.get_wrapped_container().id, "sievemq", "healthcheck") == "ready"
