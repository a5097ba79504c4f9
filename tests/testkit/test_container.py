"""SieveMQContainer. Most of it needs no engine: the engine's client is replaced by one whose "container" is a broker in
this process, so that readiness, ports, URL and credentials are those of a real broker."""

from __future__ import annotations

import shutil
import subprocess
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from tests.ports import free_port

from sievemq import ConnectionFactory, JMSSecurityException, Queue
from sievemq_testing import TestBroker

pytest.importorskip("testcontainers", reason="needs the extra `container`")

from testcontainers.core import container as testcontainers

from sievemq_testing.container import BUILD, IMAGE, SieveMQContainer


class Engine:
    """Stands in for testcontainers' DockerClient: "runs" an image by naming the ports of a broker in this process."""

    broker: TestBroker
    started: dict[str, Any]
    built: ClassVar[list[str]] = [IMAGE]

    def __init__(self, **_: Any) -> None:
        images = SimpleNamespace(list=lambda name: [each for each in self.built if each == name])
        self.client = SimpleNamespace(close=lambda: None, images=images)

    def create(self, image: str, **options: Any) -> object:
        Engine.started = {"image": image, **options}
        return SimpleNamespace(
            id="c0ffee",
            short_id="c0ffee",
            status="running",
            reload=lambda: None,
            remove=lambda **_: None,
            stop=lambda: None,
        )

    def port(self, container_id: str, port: int) -> int:
        return {7672: self.broker.port, 7680: int(self.broker.http_url.rpartition(":")[2])}[port]

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: "127.0.0.1"


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> type[Engine]:
    monkeypatch.setattr(testcontainers, "DockerClient", Engine)
    monkeypatch.setattr(SieveMQContainer, "get_container_host_ip", lambda self: "127.0.0.1")
    monkeypatch.setattr(SieveMQContainer, "get_exposed_port", lambda self, port: Engine().port("", port))
    monkeypatch.setattr(testcontainers.c, "ryuk_disabled", True)
    return Engine


def test_ready_with_url_and_credentials(engine: type[Engine]) -> None:
    users = {"me": "s3cret/:@", "you": "other"}
    with TestBroker(users=users, http=True) as engine.broker, SieveMQContainer(users=users) as container:
        url = container.get_connection_url("tests")
        with ConnectionFactory(url).create_context() as context:
            context.create_producer().send(Queue("orders"), "x")
        assert engine.broker.namespace("tests").queue("orders").depth == 1
        ConnectionFactory(container.get_connection_url(user="you")).create_connection().close()
        with pytest.raises(JMSSecurityException):
            ConnectionFactory(url.replace("me:", "somebody:")).create_connection()
        assert container.get_http_url() == engine.broker.http_url
    assert engine.started["image"] == IMAGE
    assert engine.started["environment"]["SIEVEMQ_USERS"] == "me:s3cret/:@\nyou:other"
    assert sorted(str(port).removesuffix("/tcp") for port in engine.started["ports"]) == ["7672", "7680"]


def test_settings_become_environment_variables(engine: type[Engine]) -> None:
    container = SieveMQContainer("mine:1", options={"max_connections": 5})
    assert container.env == {"SIEVEMQ_MAX_CONNECTIONS": "5"}
    assert container.image == "mine:1"


def test_the_containers_users_reach_the_broker(engine: type[Engine]) -> None:
    from sievemq_broker.config import load

    container = SieveMQContainer(users={"me": "secret", "you": "other"}, options={"max_connections": 5})
    settings = load(environ=container.env).settings
    assert set(settings.users) == {"me", "you"}
    assert settings.max_connections == 5


def test_an_image_that_is_not_built_says_how_to_build_it(engine: type[Engine], monkeypatch: pytest.MonkeyPatch) -> None:
    def pull(self: Engine, image: str, **_: Any) -> object:
        raise RuntimeError(f"500 Server Error: pull access denied for {image}")

    monkeypatch.setattr(Engine, "create", pull)
    monkeypatch.setattr(Engine, "built", [])
    with pytest.raises(RuntimeError, match=r"no image 'sievemq'; .* docker build -f docker/Dockerfile -t sievemq \."):
        SieveMQContainer().start()
    monkeypatch.setattr(Engine, "built", [IMAGE])
    with pytest.raises(RuntimeError, match="500 Server Error"):
        SieveMQContainer().start()


def test_the_documents_build_the_image_that_it_starts() -> None:
    root = Path(__file__).parents[2]
    for name in ("docker/Dockerfile", "docs/operating.md", "docs/testing.md", "docs/tutorial.md"):
        assert BUILD in (root / name).read_text(encoding="utf-8"), name
    assert BUILD.split()[-2] == IMAGE


def test_the_documents_name_the_other_container_of_testcontainers() -> None:
    text = (Path(__file__).parents[2] / "docs/testing.md").read_text(encoding="utf-8")
    assert "ryuk" in text
    assert "TESTCONTAINERS_RYUK_DISABLED=true" in text


@pytest.mark.docker
@pytest.mark.slow
@pytest.mark.parametrize("network", ["published ports", "the host's"])
def test_the_real_image(network: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("docker") is None or not ask("info"):
        pytest.skip("no Docker engine answers; DOCKER_HOST says where one is")
    if not ask("image", "inspect", IMAGE):
        pytest.skip(f"the image {IMAGE} is not built here")
    options: dict[str, object] = {}
    keywords: dict[str, Any] = {}
    if network == "the host's":
        options = {"host": "127.0.0.1", "port": free_port(), "http_port": free_port()}
        keywords = {"network_mode": "host"}
    elif not ask("network", "inspect", "bridge"):
        pytest.skip("this engine has no bridge network, so it publishes no ports")
    # The container that clears up after a killed test run; the engine may not have its image, nor a way to get it.
    monkeypatch.setattr(testcontainers.c, "ryuk_disabled", True)
    with (
        SieveMQContainer(users={"me": "secret"}, options=options, **keywords) as container,
        ConnectionFactory(container.get_connection_url("tests")).create_context() as context,
    ):
        context.create_producer().send(Queue("orders"), "x")
        assert context.create_consumer(Queue("orders")).receive_body(str, 60_000) == "x"
        with pytest.raises(JMSSecurityException):
            ConnectionFactory(container.get_connection_url().replace("me:", "somebody:")).create_connection()
        with urllib.request.urlopen(f"{container.get_http_url()}/readyz", timeout=60) as answer:
            assert answer.status == 200


def ask(*arguments: str) -> bool:
    return subprocess.run(["docker", *arguments], capture_output=True, check=False).returncode == 0
