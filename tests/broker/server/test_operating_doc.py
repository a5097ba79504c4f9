"""docs/operating.md names every setting, rule, path and metric, and none that is not there."""

from __future__ import annotations

import re
import tomllib
import urllib.request
from dataclasses import fields
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.broker.store.sharing import LONG, SharingBroker, World

from sievemq_broker import EmbeddedBroker
from sievemq_broker.config import Settings
from sievemq_broker.domain.policy import DestinationPolicy
from sievemq_broker.domain.topic import MOST_LIMITED
from sievemq_broker.server.http.api.management import Management
from sievemq_broker.server.http.app import make_app
from sievemq_broker.server.http.router import Router
from sievemq_broker.server.watch.findings import RANKED
from sievemq_broker.thresholds import Thresholds, parse_thresholds

TEXT = (Path(__file__).parents[3] / "docs/operating.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return TEXT.split(f"\n## {title}\n")[1].split("\n## ")[0]


def first_cells(text: str) -> set[str]:
    """What stands in backquotes in the first column of the section's tables."""
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def test_settings() -> None:
    assert first_cells(section("Settings")) == {field.name for field in fields(Settings)}


def test_rules_of_destinations() -> None:
    text = section("Settings")
    for field in fields(DestinationPolicy):
        if field.init:
            assert re.search(rf"\b{field.name}\b", text), field.name


def test_rules_and_thresholds_of_attention() -> None:
    text = section("Needs attention")
    rows = [line.split("|")[1:4] for line in text.splitlines() if line.startswith("| `")]
    listed = [(name, severity.strip()) for names, severity, _ in rows for name in re.findall(r"`(\w+)`", names)]
    assert listed == [(rule.name, rule.severity) for rule in RANKED]
    assert parse_thresholds(tomllib.loads(text.split("```toml")[1].split("```")[0])["attention"]) == Thresholds()
    assert all(text.count(f"`{name}`") for name in Thresholds.__slots__)


def test_subscriptions_of_a_topic_with_limits() -> None:
    assert f"subscriptions of one topic whose rules have `max_messages` or `max_bytes` | {MOST_LIMITED:,}:" in TEXT


def scrape(broker: EmbeddedBroker, path: str) -> str:
    with urllib.request.urlopen(f"{broker.http_url}{path}") as answer:
        text: str = answer.read().decode()
        return text


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Names of all metrics, as a scrape shows them, and of those that only single destinations have."""
    with EmbeddedBroker(http=True, data_dir=tmp_path_factory.mktemp("data")) as broker:
        broker.call(lambda b: b.namespace("default").create("queue:q"))
        texts = [scrape(broker, "/metrics"), scrape(broker, "/metrics/detailed")]
    world = World()
    with SharingBroker(world, LONG, http=True) as broker, SharingBroker(world, LONG, http=True) as follower:
        texts += [scrape(broker, "/metrics"), scrape(follower, "/metrics")]
    detailed = {family.name for family in text_string_to_metric_families(texts[1])}
    assert {name for name in detailed if not name.startswith("sievemq_detailed_")} == {"sievemq_destination_info"}
    families: dict[str, str] = {}
    for text in texts:
        lines = "\n".join(line for line in text.splitlines() if "sievemq_detailed_" not in line)
        families |= {family.name: family.type for family in text_string_to_metric_families(lines)}
    return {f"{name}_total" if kind == "counter" else f"{name}_info" if kind == "info" else name
            for name, kind in families.items()}  # fmt: skip


def test_metrics(names: set[str]) -> None:
    documented = {
        f"sievemq_messages{name}" if name.startswith("_") else name
        for name in first_cells(section("HTTP"))
        if not name.startswith("/")
    }
    assert documented == {name.replace("_info_info", "_info") for name in names}


def test_paths() -> None:
    with EmbeddedBroker() as broker:
        app = make_app(broker.server, Management(broker.server))
    assert isinstance(app.app, Router)
    paths = {"/api/v1" if route.path.startswith("/api/v1/") else route.path for route in app.app.routes}
    documented = {name for name in first_cells(section("HTTP")) if name.startswith("/")}
    assert documented == {path for path in paths if not path.startswith("/console/")}
