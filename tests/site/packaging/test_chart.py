"""docker/helm/sievemq: what helm renders is of Kubernetes' schemas, and fits the broker.

Needs helm and the schemas of Kubernetes; `make chart` gets both.
"""

from __future__ import annotations

import copy
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.postgres import Server

from sievemq.cli import run
from sievemq_broker.config import Settings, load
from sievemq_broker.server.http.access import HEALTH
from sievemq_broker.server.http.hosts import Hosts
from sievemq_broker.server.shard import RELEASE_SECONDS
from sievemq_core.version import VERSION

ROOT = Path(__file__).parents[3]
CHART = ROOT / "docker/helm/sievemq"
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
HELM = shutil.which("helm") or shutil.which(ROOT / "build/chart/helm")
SCHEMAS = ROOT / "build/chart/schemas"
needs_helm = pytest.mark.skipif(HELM is None, reason="needs helm: `make chart`")
#: The oldest one that Chart.yaml allows, and a later one.
KUBERNETES = ("1.27", "1.36")

#: All that has to be given.
LEAST: dict[str, Any] = {"database": {"url": "postgresql://sievemq@db/sievemq"}, "users": {"secretName": "mq-users"}}
CONFIG = "max_connections = 50\n"
DEFINITIONS = '[namespaces.default]\nqueues = ["orders"]\n'
#: Another value for each of values.yaml, by its path.
OTHERS: dict[str, Any] = {
    "shards": ["a", "b", "c"],
    "spares": 2,
    "image.repository": "example.com/mq",
    "image.tag": "9",
    "image.pullPolicy": "Always",
    "image.pullSecrets": [{"name": "pull"}],
    "database.url": "postgresql://sievemq@db-1,db-2/sievemq?target_session_attrs=read-write",
    "database.passwordSecret.name": "db",
    "database.passwordSecret.key": "pass",
    "database.password": "secret",
    "database.tables.enabled": False,
    "database.tables.url": "postgresql://admin@db/sievemq",
    "database.tables.role": "sievemq",
    "database.tables.passwordSecret.name": "admin",
    "database.tables.passwordSecret.key": "pass",
    "users.secretName": "others",
    "users.key": "users.toml",
    "insecure": True,
    "tls.secretName": "mq-tls",
    "config": CONFIG,
    "definitions": DEFINITIONS,
    "advertise": "sievemq://$(POD_NAME).mq.example.com:7672",
    "httpHosts": ["mq.example.com"],
    "drainSeconds": 8,
    "roleLabels": False,
    "service.type": "LoadBalancer",
    "service.annotations": {"a": "b"},
    "service.port": 5672,
    "service.httpPort": 80,
    "service.perShard": False,
    "serviceAccount.name": "mq",
    "serviceAccount.annotations": {"c": "d"},
    "resources": {"limits": {"memory": "2Gi"}},
    "podDisruptionBudget.maxUnavailable": 2,
    "antiAffinity": "required",
    "topologySpreadConstraints": [],
    "minReadySeconds": 30,
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "mq", "operator": "Exists"}],
    "priorityClassName": "high",
    "podAnnotations": {"e": "f"},
    "podLabels": {"g": "h"},
    "extraEnv": [{"name": "SIEVEMQ_LOG_LEVEL", "value": "debug"}],
    "extraVolumes": [{"name": "ca", "secret": {"secretName": "ca"}}],
    "extraVolumeMounts": [{"name": "ca", "mountPath": "/run/secrets/database", "readOnly": True}],
    "metrics.podMonitor.enabled": True,
    "metrics.podMonitor.labels": {"i": "j"},
    "metrics.podMonitor.interval": "30s",
    "metrics.podMonitor.basicAuthSecret": "watch",
    "metrics.rules.enabled": True,
    "metrics.rules.labels": {"k": "l"},
    "fullnameOverride": "broker",
}
#: Values that are read only together with another one.
BESIDE: dict[str, dict[str, Any]] = {
    "database.passwordSecret.key": {"database.passwordSecret.name": "db"},
    "database.tables.passwordSecret.key": {"database.tables.passwordSecret.name": "admin"},
    "insecure": {"users.secretName": ""},
    "service.perShard": {"shards": ["a", "b"]},
    "podDisruptionBudget.maxUnavailable": {"spares": 2},
    "metrics.podMonitor.labels": {"metrics.podMonitor.enabled": True},
    "metrics.podMonitor.interval": {"metrics.podMonitor.enabled": True},
    "metrics.podMonitor.basicAuthSecret": {"metrics.podMonitor.enabled": True},
    "metrics.rules.labels": {"metrics.rules.enabled": True},
}
#: Everything at once that goes together.
APART = {
    *("database.passwordSecret.name", "database.tables.enabled", "insecure", "advertise", "roleLabels"),
    *("service.perShard", "serviceAccount.name", "topologySpreadConstraints"),
}
MOST = {path: other for path, other in OTHERS.items() if path not in APART}


def leaves(values: dict[str, Any], before: str = "") -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, dict) and value and name not in ("resources",):
            yield from leaves(value, f"{before}{name}.")
        else:
            yield before + name


def given(others: dict[str, Any]) -> dict[str, Any]:
    """The least values, and these, by their paths."""
    values = copy.deepcopy(LEAST)
    for path, value in others.items():
        *folders, name = path.split(".")
        inner = values
        for folder in folders:
            inner = inner.setdefault(folder, {})
        inner[name] = value
    return values


def helm(*arguments: str, values: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(HELM), *arguments, "--values", "-"], input=values,
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@cache
def _render(values: str) -> str:
    done = helm("template", "mq", str(CHART), "--namespace", "prod", "--kube-version", KUBERNETES[-1], values=values)
    assert done.returncode == 0, done.stderr
    return done.stdout


def render(values: dict[str, Any]) -> str:
    return _render(json.dumps(values))


class Rendered:
    """The objects of a release ``mq`` in the namespace ``prod``."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.text = render(values)
        self.all: list[dict[str, Any]] = [each for each in yaml.safe_load_all(self.text) if each]
        self.brokers = self.of("StatefulSet")["spec"]
        self.pod = self.brokers["template"]["spec"]
        self.broker = self.pod["containers"][0]

    def of(self, kind: str, name: str = "") -> dict[str, Any]:
        found = [each for each in self.all if each["kind"] == kind and each["metadata"]["name"] == (name or self.name)]
        assert len(found) == 1, f"{kind} {name}"
        return found[0]

    @property
    def name(self) -> str:
        return next(str(each["metadata"]["name"]) for each in self.all if each["kind"] == "StatefulSet")

    @property
    def services(self) -> dict[str, dict[str, Any]]:
        return {each["metadata"]["name"]: each["spec"] for each in self.all if each["kind"] == "Service"}

    def environment(self, number: int, files: Path) -> dict[str, str]:
        """Of the broker of a pod, as its container has it. Files of mounted secrets are written into a folder."""
        image = (ROOT / "docker/Dockerfile").read_text(encoding="utf-8")
        found = dict(re.findall(r"(?m)^ +(SIEVEMQ_\w+)=(\S+)", image))
        pod = f"{self.name}-{number}"
        for variable in self.broker["env"]:
            found[variable["name"]] = str(variable.get("value", pod)).replace("$(POD_NAME)", pod)
        for volume in self.pod.get("volumes", ()):
            mounts = [each for each in self.broker.get("volumeMounts", ()) if each["name"] == volume["name"]]
            for mount in mounts:
                folder = files / mount["mountPath"].removeprefix("/")
                folder.mkdir(parents=True, exist_ok=True)
                secret = volume["secret"]["secretName"]
                for each in self.all:
                    if each["kind"] == "Secret" and each["metadata"]["name"] == secret:
                        for name, text in each["stringData"].items():
                            (folder / name).write_text(text)
                found = {
                    name: str(files) + value if value.startswith(mount["mountPath"] + "/") else value
                    for name, value in found.items()
                }
        return {name: value for name, value in found.items() if name not in ("POD_NAME", "PGPASSWORD")}

    def settings(self, number: int, files: Path) -> Settings:
        environment = self.environment(number, files)
        users = environment.get("SIEVEMQ_USERS_FILE")
        if users is not None and not Path(users).exists():  # of a Secret that the release does not have
            Path(users).write_text("app:secret\n")
        return load(environ=environment).settings


@cache
def rendered(what: str) -> Rendered:
    return Rendered(given({"least": {}, "most": MOST}[what]))


def test_the_schema_knows_each_value_and_no_other() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))

    def known(part: dict[str, Any], before: str = "") -> Iterator[str]:
        for name, inner in part["properties"].items():
            assert inner.get("additionalProperties", {}) is not True
            if "properties" in inner:
                assert inner["additionalProperties"] is False
                yield from known(inner, f"{before}{name}.")
            else:
                yield before + name

    assert schema["additionalProperties"] is False
    assert set(known(schema)) - {"global"} == set(leaves(VALUES)) == set(OTHERS)


def test_the_chart_is_of_this_version() -> None:
    assert yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))["appVersion"] == VERSION


@needs_helm
@pytest.mark.parametrize("what", ["nothing", "least", "most"])
def test_lint_finds_nothing(what: str) -> None:
    values = {} if what == "nothing" else given({"least": {}, "most": MOST}[what])
    done = helm("lint", "--strict", str(CHART), values=json.dumps(values))
    assert done.returncode == 0, done.stdout
    assert re.findall(r"\[(?!INFO)\w+\].*", done.stdout) == []
    assert re.findall(r"\[INFO\].*", done.stdout) == ["[INFO] Chart.yaml: icon is recommended"]


@needs_helm
@pytest.mark.skipif(not SCHEMAS.exists(), reason="needs the schemas of Kubernetes: `make chart`")
def test_everything_is_of_the_schemas_of_kubernetes(tmp_path: Path) -> None:
    files = []
    for what in ("least", "most"):
        for number, each in enumerate(rendered(what).all):
            if not each["apiVersion"].startswith("monitoring."):  # of the operator of Prometheus
                files.append(tmp_path / f"{what}-{number}.yaml")
                files[-1].write_text(yaml.safe_dump(each))
    versions = [f"--kubernetes-version={version}" for version in KUBERNETES]
    done = subprocess.run(
        [sys.executable, "-m", "kubernetes_validate", *versions, "--strict", "--quiet", *map(str, files)],
        env={"PYTHONPATH": str(SCHEMAS)}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(files) > 20


@needs_helm
def test_each_value_changes_what_is_rendered() -> None:
    for path, other in OTHERS.items():
        beside = BESIDE.get(path, {})
        before = {} if path == "insecure" else beside  # one of both has to be given
        assert render(given({**beside, path: other})) != render(given(before)), path


@needs_helm
@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"database.url": ""}, "database.url is required"),
        ({"users.secretName": ""}, "users.secretName is required"),
        ({"insecure": True}, "users.secretName and insecure are both set"),
        ({"database.password": "x", "database.passwordSecret.name": "y"}, "are both set"),
        ({"podDisruptionBudget.maxUnavailable": 2}, "larger than spares"),
        ({"spare": 1}, "spare"),
        ({"database.url": "mysql://db/x"}, "/database/url"),
        ({"shards": ["A.b"]}, "/shards/0"),
        ({"shards": ["a", "a"]}, "/shards"),
        ({"shards": ["a", "brokers"]}, "/shards/1"),
    ],
)
def test_wrong_values_are_refused(values: dict[str, Any], text: str) -> None:
    done = helm("template", "mq", str(CHART), "--kube-version", KUBERNETES[-1], values=json.dumps(given(values)))
    assert done.returncode != 0
    assert text in done.stderr


@needs_helm
def test_the_environment_is_one_of_settings(tmp_path: Path) -> None:
    release = rendered("most")
    settings = release.settings(0, tmp_path)
    assert settings.shards == ("a", "b", "c")
    assert settings.store == OTHERS["database.url"]
    assert settings.advertise == "sievemqs://broker-0.broker-brokers.prod.svc:7672"
    assert (settings.host, settings.port, settings.http_port) == ("0.0.0.0", 7672, 7680)
    assert settings.users_file == f"{tmp_path}/run/secrets/users/users.toml"
    assert settings.tls_cert == f"{tmp_path}/run/secrets/tls/tls.crt"
    assert settings.tls_key == f"{tmp_path}/run/secrets/tls/tls.key"
    assert settings.drain_seconds == 8
    assert settings.log_level == "debug"
    assert settings.max_connections == 50
    assert settings.definitions is not None
    assert not settings.insecure
    assert release.broker["args"] == ["broker"]
    names = [variable["name"] for variable in release.broker["env"]]
    assert len(names) == len(set(names))


@needs_helm
def test_pods_differ_in_nothing_but_their_address(tmp_path: Path) -> None:
    first, second = (rendered("least").environment(number, tmp_path) for number in (0, 1))
    differing = {name for name in first if first[name] != second[name]}
    assert differing == {"SIEVEMQ_ADVERTISE", "SIEVEMQ_HTTP_HOSTS"}
    assert rendered("least").settings(0, tmp_path).shards == ("main",)


@needs_helm
@pytest.mark.parametrize("what", ["least", "most"])
def test_probes_ask_for_routes_that_exist(what: str) -> None:
    release = rendered(what)
    ports = {port["name"]: port["containerPort"] for port in release.broker["ports"]}
    assert ports == {"wire": Settings().port, "http": Settings().http_port}
    paths = []
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        asked = release.broker[probe]["httpGet"]
        paths.append(asked["path"])
        assert asked["port"] == "http"
        assert asked["scheme"] == ("HTTPS" if what == "most" else "HTTP")
    assert paths == ["/livez", "/livez", "/readyz"]
    assert set(paths) <= HEALTH, "without a user"


@needs_helm
@pytest.mark.parametrize("what", ["least", "most"])
def test_counts_fit(what: str, tmp_path: Path) -> None:
    release = rendered(what)
    values = {"least": VALUES, "most": OTHERS}[what]
    spares, shards = values["spares"], values["shards"]
    assert release.brokers["replicas"] == len(shards) + spares
    budget = release.of("PodDisruptionBudget")["spec"]
    assert 1 <= budget["maxUnavailable"] <= max(1, spares)
    labels = release.brokers["template"]["metadata"]["labels"]
    assert budget["selector"]["matchLabels"].items() <= labels.items()
    assert release.brokers["selector"]["matchLabels"].items() <= labels.items()
    grace = release.pod["terminationGracePeriodSeconds"]
    assert grace >= release.settings(0, tmp_path).drain_seconds + RELEASE_SECONDS + 10
    named = release.of("Role")["rules"][0]["resourceNames"]
    assert named == [f"{release.name}-{number}" for number in range(release.brokers["replicas"])]
    affinity = json.dumps(release.pod["affinity"])
    assert ("required" in affinity) == (what == "most")
    assert "kubernetes.io/hostname" in affinity


@needs_helm
@pytest.mark.parametrize("what", ["least", "most"])
def test_services_lead_to_brokers_that_answer_by_their_names(what: str, tmp_path: Path) -> None:
    release = rendered(what)
    labels = release.brokers["template"]["metadata"]["labels"]
    shards = {"least": [], "most": OTHERS["shards"]}[what]
    roles = {}
    for name, service in release.services.items():
        own = {label: value for label, value in service["selector"].items() if label.startswith("sievemq/")}
        roles[name] = own
        assert service["selector"].items() - own.items() <= labels.items()
        assert [port["targetPort"] for port in service["ports"]] == ["wire", "http"]
    assert roles == {
        release.name: {"sievemq/role": "owner"},
        f"{release.name}-brokers": {},
        **{f"{release.name}-{shard}": {"sievemq/role": "owner", "sievemq/shard": shard} for shard in shards},
    }
    assert release.brokers["serviceName"] == f"{release.name}-brokers"
    settings = release.settings(1, tmp_path)
    hosts = Hosts(settings.http_hosts)
    assert settings.advertise is not None
    assert hosts.allow(settings.advertise.partition("://")[2])
    for name in [release.name, *[f"{release.name}-{shard}" for shard in shards]]:
        assert all(hosts.allow(f"{name}.prod{end}:7680") for end in ("", ".svc", ".svc.cluster.local"))
    assert not hosts.allow("example.com")


@needs_helm
def test_nothing_but_the_labels_gets_a_token_and_nothing_runs_as_root() -> None:
    release = rendered("most")
    job = release.of("Job", f"{release.name}-tables")["spec"]["template"]["spec"]
    for pod in (release.pod, job):
        assert pod["automountServiceAccountToken"] is False
        assert pod["enableServiceLinks"] is False
        assert pod["securityContext"]["runAsNonRoot"]
        for container in (*pod["containers"], *pod.get("initContainers", ())):
            assert container["securityContext"]["readOnlyRootFilesystem"]
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            mounted = [mount["name"] for mount in container["volumeMounts"]]
            assert ("token" in mounted) == (container["name"] == "labels")


@needs_helm
@pytest.mark.parametrize("what", ["least", "most"])
def test_each_volume_is_mounted_and_each_mount_has_a_volume(what: str) -> None:
    release = rendered(what)
    job = release.of("Job", f"{release.name}-tables")["spec"]["template"]["spec"]
    made = {(each["kind"], each["metadata"]["name"]) for each in release.all}
    for pod in (release.pod, job):
        containers = (*pod["containers"], *pod.get("initContainers", ()))
        mounted = {mount["name"] for container in containers for mount in container.get("volumeMounts", ())}
        assert mounted == {volume["name"] for volume in pod.get("volumes", ())}
    for volume in release.pod["volumes"]:
        if volume["name"] == "config":
            assert ("Secret", volume["secret"]["secretName"]) in made
        elif volume["name"] == "labels":
            assert ("ConfigMap", volume["configMap"]["name"]) in made


@needs_helm
def test_no_value_changes_what_an_upgrade_may_not_change() -> None:
    before, after = rendered("least"), Rendered(given({**MOST, "fullnameOverride": ""}))
    for name in ("serviceName", "podManagementPolicy", "selector", "volumeClaimTemplates"):
        assert before.brokers.get(name) == after.brokers.get(name), name
    assert before.of("RoleBinding")["roleRef"] == after.of("RoleBinding")["roleRef"]


@needs_helm
def test_a_password_is_in_secrets_alone() -> None:
    release = rendered("most")
    secrets = [each["metadata"]["name"] for each in release.all if each["kind"] == "Secret"]
    assert secrets == [f"{release.name}-config", f"{release.name}-database"], "the Job has an administrator's"
    assert release.text.count("secret\n") + release.text.count('"secret"') == 1
    plain = Rendered(given({"database.password": "secret"}))
    used = re.findall(r"name: PGPASSWORD\s+valueFrom:\s+secretKeyRef:\s+name: (\S+)\s+key: password", plain.text)
    made = {each["metadata"]["name"]: each for each in plain.all if each["kind"] == "Secret"}
    assert set(used) == set(made) == {"mq-sievemq-database", "mq-sievemq-tables"}
    assert made["mq-sievemq-tables"]["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"


@needs_helm
def test_the_job_makes_tables_and_finds_them_again(postgres: Server, capsys: pytest.CaptureFixture[str]) -> None:
    database = postgres.new_database()
    release = Rendered(given({"database.url": database}))
    job = release.of("Job", "mq-sievemq-tables")["spec"]["template"]["spec"]
    for _ in range(2):
        for container in (*job["initContainers"], *job["containers"]):
            assert run(container["args"]) == 0, container["name"]
    said = capsys.readouterr().out
    assert "The tables are made" in said
    assert "The tables are there already" in said


@needs_helm
def test_alerts_and_scrapes_are_those_of_docker_prometheus() -> None:
    release = rendered("most")
    rules = yaml.safe_load((ROOT / "docker/prometheus/sievemq.rules.yml").read_text(encoding="utf-8"))
    assert release.of("PrometheusRule")["spec"] == rules
    endpoint = release.of("PodMonitor")["spec"]["podMetricsEndpoints"][0]
    assert (endpoint["path"], endpoint["port"], endpoint["scheme"]) == ("/metrics", "http", "https")
    job = next(each for each in endpoint["relabelings"] if each["targetLabel"] == "job")["replacement"]
    asked = re.findall(r'job=~"([^"]*)", job!~"([^"]*)"', json.dumps(rules).replace('\\"', '"'))
    assert asked
    for fits, unfit in asked:
        assert re.fullmatch(fits, job)
        assert not re.fullmatch(unfit, job)
