"""docker/systemd: the template of a unit, and the settings of its brokers."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from dataclasses import fields
from pathlib import Path

import pytest

from sievemq_broker.config import Settings, load
from sievemq_broker.server.process import GONE_CODE
from sievemq_broker.server.shard import RELEASE_SECONDS

SYSTEMD = Path(__file__).parents[3] / "docker/systemd"
UNIT = (SYSTEMD / "sievemq@.service").read_text(encoding="utf-8")


def directive(name: str) -> str:
    found = re.findall(rf"(?m)^{name}=(.*)$", UNIT)
    assert len(found) == 1, name
    return str(found[0])


def settings_of(port: int, users: Path) -> Settings:
    """The settings of an instance on a machine ``mq-1``, as the command line and the environment have them."""
    environment = dict(re.findall(r"(?m)^(\w+)=(.*)$", (SYSTEMD / "sievemq.env").read_text(encoding="utf-8")))
    users.write_text("app:secret\n")
    environment["SIEVEMQ_USERS_FILE"] = str(users)
    scheme = directive("Environment").removeprefix("SCHEME=")
    line = directive("ExecStart").replace("%i", str(port)).replace("%H", "mq-1").replace("${SCHEME}", scheme)
    program, command, *options = shlex.split(line)
    assert (Path(program).name, command) == ("sievemq", "broker")
    known = {f"--{field.name.replace('_', '-')}": field.name for field in fields(Settings)}
    given = {known[option]: value for option, value in zip(options[::2], options[1::2], strict=True)}
    return load(given, environment).settings


def test_instances_differ_in_nothing_but_their_ports(tmp_path: Path) -> None:
    first, second = (settings_of(port, tmp_path / "users") for port in (7672, 7673))
    assert (first.port, first.http_port, first.advertise) == (7672, 17672, "sievemq://mq-1:7672")
    assert (second.port, second.http_port, second.advertise) == (7673, 17673, "sievemq://mq-1:7673")
    differing = {field.name for field in fields(Settings) if getattr(first, field.name) != getattr(second, field.name)}
    assert differing == {"port", "http_port", "advertise"}
    assert first.store is not None
    assert first.shards == ("a", "b")


def test_a_broker_that_lost_its_shard_is_started_again_and_has_time_to_end() -> None:
    assert directive("Restart") == "always"
    assert directive("SuccessExitStatus") == str(GONE_CODE)
    assert float(directive("TimeoutStopSec")) >= Settings().drain_seconds + RELEASE_SECONDS + 10
    assert int(directive("LimitNOFILE")) >= Settings().max_connections + 256


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
@pytest.mark.parametrize("name", ["sievemq@.service", "sievemq@7672.service"])
def test_systemd_finds_nothing_wrong(name: str, tmp_path: Path) -> None:
    installed = re.sub(r"(?m)^(ExecStart=)\S+", r"\1/bin/true", UNIT)
    (tmp_path / "sievemq@.service").write_text(installed)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", f"./{name}"],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
