"""The README's compose file: a broker beside the tests of an application.

The services share the host's network, so an engine without a bridge network will do.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.ports import free_port

from .test_image import DEADLINE, ROOT, base_image, image, pip_arguments

__all__ = ["image"]

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(900)]  # the first one builds the image

README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCKERFILE = """\
ARG PYTHON_IMAGE
FROM ${PYTHON_IMAGE}
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
COPY wheels wheels
RUN pip install --quiet wheels/*.whl pytest
WORKDIR /app
COPY test_orders.py .
"""


def compose() -> list[str]:
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]) is not None:
            found = subprocess.run([*command, "version"], capture_output=True, timeout=DEADLINE, check=False)
            if found.returncode == 0:
                return command
    pytest.skip("no Docker Compose here")


def test_the_tests_of_an_application_find_the_broker(image: str, tmp_path: Path) -> None:
    command, (port, http_port) = compose(), (free_port(), free_port())
    (text,) = re.findall(r"^```yaml\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    (tmp_path / "compose.yaml").write_text(text.replace("image: sievemq", f"image: {image}"))
    url, http_url = f"sievemq://broker:{port}", f"http://broker:{http_port}"
    (tmp_path / "host.yaml").write_text(f"""
services:
  broker:
    network_mode: host
    environment:
      SIEVEMQ_HOST: 127.0.0.1
      SIEVEMQ_PORT: "{port}"
      SIEVEMQ_HTTP_PORT: "{http_port}"
  tests:
    build:
      context: .
      network: host
    network_mode: host
    extra_hosts: ["broker:127.0.0.1"]
    command: pytest -p no:cacheprovider --sievemq-url {url} --sievemq-http-url {http_url}
""")
    (tmp_path / "Dockerfile").write_text(DOCKERFILE)
    (tmp_path / "test_orders.py").write_text(README[README.index("# test_orders.py") :].partition("```")[0])
    wheel = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-input", "--no-deps", "--wheel-dir", "wheels"]
    subprocess.run([*wheel, str(ROOT)], cwd=tmp_path, check=True)
    command += ["-p", tmp_path.name.replace("_", ""), "-f", "compose.yaml", "-f", "host.yaml"]
    build = ["build", "--build-arg", f"PYTHON_IMAGE={base_image()}", *pip_arguments(), "tests"]
    subprocess.run([*command, *build], cwd=tmp_path, check=True, timeout=600)
    try:
        done = subprocess.run(
            [*command, "up", "--no-build", "--exit-code-from", "tests"],
            cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-2000:]
        assert "1 passed" in done.stdout
    finally:
        subprocess.run(
            [*command, "down", "--rmi", "local"], cwd=tmp_path, capture_output=True, timeout=120, check=False
        )
