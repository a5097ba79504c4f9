"""The compose files: what a broker keeps is on a volume that outlives the container; two brokers share a database."""

from __future__ import annotations

import re
from pathlib import Path

from sievemq_broker.config import load

DOCKER = Path(__file__).parents[3] / "docker"
TEXT = (DOCKER / "compose.yaml").read_text(encoding="utf-8")
PAIR = (DOCKER / "compose.ha.yaml").read_text(encoding="utf-8")


def test_the_data_directory_is_a_named_volume() -> None:
    environment = dict(re.findall(r'(?m)^      (SIEVEMQ_\w+): "?([^"\n]+)', TEXT))
    environment.pop("SIEVEMQ_USERS_FILE")  # a secret of the container
    directory = load(environ=environment).settings.data_dir
    mounted = re.search(rf"(?m)^      - (\w+):{directory}$", TEXT)
    assert mounted is not None
    _, _, volumes = TEXT.partition("\nvolumes:\n")
    assert re.match(rf"  {mounted[1]}:\n", volumes)


def test_two_brokers_differ_in_nothing_but_their_address() -> None:
    both = dict(re.findall(r'(?m)^  (SIEVEMQ_\w+): "?([^"\n]+)', PAIR.partition("\nservices:\n")[0]))
    brokers = re.findall(r"(?ms)^  (broker-\d):\n(.*?)(?=^\S|^  \S)", PAIR)
    ports = set[str]()
    for name, text in brokers:
        assert "<<: *broker" in text
        assert "<<: *settings" in text
        own = dict(re.findall(r'(?m)^      (SIEVEMQ_\w+): "?([^"\n]+)', text))
        assert own.keys() == {"SIEVEMQ_ADVERTISE"}
        settings = load(environ={**both, **own}).settings
        assert settings.store is not None
        assert "/" + settings.store.rpartition("/")[2] in PAIR.partition("command:")[2].splitlines()[0]
        assert settings.advertise == f"sievemq://{name}:7672", "as the other container reaches it"
        ports.update(re.findall(r'- "(127\.0\.0\.1:\d+):7672"', text))
    assert ports == set(settings.peers), "as clients on the host reach them"
    assert len(ports) == len(brokers) == 2
