"""docker/compose.yaml: what the broker keeps is on a volume that outlives the container."""

from __future__ import annotations

import re
from pathlib import Path

from sievemq_broker.config import load

TEXT = (Path(__file__).parents[3] / "docker/compose.yaml").read_text(encoding="utf-8")


def test_the_data_directory_is_a_named_volume() -> None:
    environment = dict(re.findall(r'(?m)^      (SIEVEMQ_\w+): "?([^"\n]+)', TEXT))
    environment.pop("SIEVEMQ_USERS_FILE")  # a secret of the container
    directory = load(environ=environment).settings.data_dir
    mounted = re.search(rf"(?m)^      - (\w+):{directory}$", TEXT)
    assert mounted is not None
    _, _, volumes = TEXT.partition("\nvolumes:\n")
    assert re.match(rf"  {mounted[1]}:\n", volumes)
