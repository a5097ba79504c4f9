"""The incidents of docs/console.md: each is in its table, and one is played without a browser."""

from __future__ import annotations

import json
import tomllib
from contextlib import ExitStack
from http.client import HTTPConnection
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

from sievemq_broker import EmbeddedBroker

from .incidents import CONFIG, INCIDENTS, Broker, Stage, flood

TABLE = (Path(__file__).parents[3] / "docs/console.md").read_text("utf-8").partition("## An incident")[2]


def test_each_incident_is_in_the_table_with_its_clicks_and_its_command() -> None:
    for incident in INCIDENTS:
        (row,) = (line for line in TABLE.splitlines() if line.startswith(f"| {incident.title} |"))
        _, _, _, clicks, command, *_ = row.split("|")
        assert int(clicks.partition(":")[0]) == len(incident.clicks) <= 2, incident.title
        assert command.strip() == f"`sievemq {' '.join(incident.command)}`", incident.title


class Small:
    """A stage with an embedded broker."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self._broker = Broker(broker.url, broker.http_url)

    def start(self, ends: ExitStack) -> Broker:
        return self._broker


def test_the_client_of_a_flood_is_named() -> None:
    with EmbeddedBroker(http=True, settings=tomllib.loads(CONFIG)) as broker, ExitStack() as ends:
        flood(cast("Stage", Small(broker)), ends)
        connection = HTTPConnection(urlsplit(broker.http_url).netloc, timeout=60)
        ends.callback(connection.close)
        while True:
            connection.request("GET", "/api/v1/attention")
            found = json.loads(connection.getresponse().read())
            if "flooder" in json.dumps(found):
                break
