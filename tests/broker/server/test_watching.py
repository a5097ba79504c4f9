"""docker/prometheus and docker/grafana: alerts and panels ask for metrics and labels that a broker has."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from sievemq_broker import EmbeddedBroker

ROOT = Path(__file__).parents[3]
PROMETHEUS = ROOT / "docker/prometheus"
RULES = yaml.safe_load((PROMETHEUS / "sievemq.rules.yml").read_text(encoding="utf-8"))
ALERTS = {rule["alert"]: rule for group in RULES["groups"] for rule in group["rules"]}
BOARD = json.loads((ROOT / "docker/grafana/sievemq.json").read_text(encoding="utf-8"))
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
#: Labels that Prometheus adds.
OF_PROMETHEUS = {"job", "instance"}
#: Only where brokers share a store, somebody signed in or something was refused; docs/operating.md, which names every
#: metric, has them.
ELSEWHERE = {
    "sievemq_refused_total": {"reason"},
    "sievemq_sign_ins_total": {"protocol", "port", "outcome"},
    "sievemq_role": {"role", "shard"},
    "sievemq_redirects_total": {"protocol"},
    "sievemq_lease_seconds": {"shard"},
    "sievemq_lease_silences_total": {"shard"},
    "sievemq_lease_beat_seconds_bucket": {"le", "shard"},
    "sievemq_clock_offset_seconds": set(),
    "sievemq_store_lost_writes_total": {"shard"},
}


def expressions() -> dict[str, str]:
    """All that is asked for, by who asks."""
    found = {name: rule["expr"] for name, rule in ALERTS.items()}
    for panel in PANELS:
        for target in panel["targets"]:
            found[f"{panel['title']} {target['refId']}"] = target["expr"]
    for note in BOARD["annotations"]["list"]:
        found[note["name"]] = note["expr"]
    for variable in BOARD["templating"]["list"]:
        if variable["type"] == "query":
            found[variable["name"]] = variable["query"].removeprefix("label_values(").rpartition(",")[0]
    return found


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Labels of each series, as OpenMetrics' strict parser reads them."""
    found = {name: set(labels) for name, labels in ELSEWHERE.items()}
    with EmbeddedBroker(http=True, data_dir=tmp_path_factory.mktemp("data")) as broker:
        broker.call(lambda b: b.namespace("default").create("queue:q"))
        for path in ("/metrics", "/metrics/detailed"):
            accept = {"Accept": "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"}
            request = urllib.request.Request(broker.http_url + path, headers=accept)
            with urllib.request.urlopen(request) as answer:
                assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
                text = answer.read().decode()
            for family in text_string_to_metric_families(text):
                for sample in family.samples:
                    found.setdefault(sample.name, set()).update(sample.labels)
                if not family.samples:  # nothing of it yet, such as taps
                    found.setdefault(family.name, {"namespace"})
                    found.setdefault(f"{family.name}_total", {"namespace"})
    return found


def test_every_expression_asks_for_what_there_is(series: dict[str, set[str]]) -> None:
    for who, expression in expressions().items():
        named = re.findall(r"\b((?:sievemq|process)_\w+)(?:\{([^}]*)\})?", expression)
        assert named or who == "SieveMQDown", who
        for name, matchers in named:
            assert name in series, f"{who} asks for {name}"
            asked = set(re.findall(r"(\w+)\s*(?:=|!=|=~|!~)\"", matchers))
            assert asked <= series[name] | OF_PROMETHEUS, f"{who} asks for {name} by {asked}"
        kept = {label for by in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression) for label in re.split(r",\s*", by)}
        there = set[str]().union(*(series[name] for name, _ in named), OF_PROMETHEUS)
        assert kept <= there, f"{who} keeps {kept}"


def test_each_alert_is_tested_described_and_explained() -> None:
    tested = re.findall(r'alertname="(\w+)"', (PROMETHEUS / "sievemq.test.yml").read_text(encoding="utf-8"))
    text = (ROOT / "docs/monitoring.md").read_text(encoding="utf-8")
    assert sorted(tested) == sorted(ALERTS)
    assert re.findall(r"(?m)^\| `(SieveMQ\w+)`", text) == list(ALERTS)
    for name, rule in ALERTS.items():
        assert rule["labels"]["severity"] in ("critical", "warning", "info"), name
        assert rule["annotations"].keys() == {"summary", "description"}, name


def test_labels_in_the_text_of_alerts_are_those_of_the_expression(series: dict[str, set[str]]) -> None:
    for name, rule in ALERTS.items():
        named = re.findall(r"\b(?:sievemq_\w+|process_\w+|up)\b", rule["expr"])
        there = set[str]().union(*(series.get(metric, set()) for metric in named), OF_PROMETHEUS)
        if by := re.search(r"\bsum by \(([^)]*)\)", rule["expr"]):
            there = set(re.split(r",\s*", by[1]))
        used = set(re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"])))
        assert used <= there, name


def test_the_dashboard_can_be_imported() -> None:
    assert BOARD["uid"] == "sievemq"
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])
    source = {"type": "prometheus", "uid": "${datasource}"}
    for panel in PANELS:
        assert panel["datasource"] == source
        assert panel["description"], panel["title"]
        assert all(target["datasource"] == source for target in panel["targets"])
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
    taken: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells


#: `make alerts` puts it there.
PROMTOOL = shutil.which("promtool") or shutil.which(ROOT / "build/promtool/usr/bin/promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="needs promtool: `make alerts`")


def promtool(*arguments: Path | str) -> None:
    command = [str(PROMTOOL), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_promtool_accepts_and_tests_the_alerts() -> None:
    promtool("check", "config", PROMETHEUS / "prometheus.yml")
    promtool("test", "rules", PROMETHEUS / "sievemq.test.yml")


@needs_promtool
def test_promtool_accepts_the_expressions_of_the_dashboard(tmp_path: Path) -> None:
    rules: list[dict[str, Any]] = []
    for number, expression in enumerate(expressions().values()):
        expression = expression.replace("$__rate_interval", "5m")
        rules.append({"record": f"expression:{number}", "expr": expression})
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    promtool("check", "rules", file)
