"""A broker in a container, as a class for testcontainers: ready when ``start()`` returns, removed with the block.

    with SieveMQContainer() as container:
        factory = ConnectionFactory(container.get_connection_url())

Needs the extra ``container``, a Docker engine and the image.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Self
from urllib.parse import quote

from testcontainers.core.config import ConnectionMode
from testcontainers.core.container import DockerContainer
from testcontainers.core.wait_strategies import HttpWaitStrategy

#: Built by :data:`BUILD` in a clone of the project; it is in no registry.
IMAGE: Final = "sievemq"
BUILD: Final = "docker build -f docker/Dockerfile -t sievemq ."

_WIRE, _HTTP = 7672, 7680


class SieveMQContainer(DockerContainer):
    """A SieveMQ broker in a container.

    Args:
        image: what to run.
        users: name -> password; no other user may connect. None: no user is required.
        options: settings of the broker by name, such as ``max_connections``; what ``sievemq config show`` lists.
        keywords: as of testcontainers' DockerContainer. With ``network_mode="host"`` (an engine without a bridge) the
            broker listens on the host's own ports: those of ``options``, 7672 and 7680 without.
    """

    def __init__(
        self,
        image: str = IMAGE,
        *,
        users: Mapping[str, str] | None = None,
        options: Mapping[str, object] | None = None,
        **keywords: Any,
    ) -> None:
        super().__init__(image, **keywords)
        self.users = dict(users or {})
        self._on_host = keywords.get("network_mode") == "host"
        if not self._on_host:  # there is nothing to publish then
            self.with_exposed_ports(_WIRE, _HTTP)
        for name, value in (options or {}).items():
            self.with_env(f"SIEVEMQ_{name.upper()}", str(value))
        if self.users:
            self.with_env("SIEVEMQ_USERS", "\n".join(f"{name}:{password}" for name, password in self.users.items()))
        # 200 only while it takes connections, so a client with the URL can connect.
        self.waiting_for(HttpWaitStrategy(_HTTP, "/readyz").for_status_code(200))

    def start(self) -> Self:
        """Start the container, and wait until the broker takes connections.

        Raises:
            RuntimeError: there is no such image; the text shows how to build it.
        """
        try:
            super().start()
        except Exception as error:
            if self.get_docker_client().client.images.list(name=self.image):
                raise
            raise RuntimeError(f"there is no image {self.image!r}; in a clone of the project: {BUILD}") from error
        return self

    def get_container_host_ip(self) -> str:
        """The host on which the ports are reached."""
        if self._on_host and self.get_docker_client().get_connection_mode() is not ConnectionMode.docker_host:
            return "localhost"  # such a container has neither a gateway nor an address
        return super().get_container_host_ip()

    def get_exposed_port(self, port: int) -> int:
        """Where the host reaches a port of the container: 7672 for the wire, 7680 for HTTP."""
        if self._on_host:
            name = {_WIRE: "SIEVEMQ_PORT", _HTTP: "SIEVEMQ_HTTP_PORT"}.get(port)
            return int(self.env.get(name, port)) if name else port
        return super().get_exposed_port(port)

    def get_connection_url(self, namespace: str = "", user: str | None = None) -> str:
        """For a ConnectionFactory.

        Args:
            namespace: that it leads to.
            user: whose credentials it carries; the first user if not given, none if there are no users.
        """
        if user is None and self.users:
            user = next(iter(self.users))
        credentials = "" if user is None else f"{quote(user, safe='')}:{quote(self.users[user], safe='')}@"
        path = f"/{quote(namespace, safe='')}" if namespace else ""
        return f"sievemq://{credentials}{self.get_container_host_ip()}:{self.get_exposed_port(_WIRE)}{path}"

    def get_http_url(self) -> str:
        """Base URL of health, metrics, API and console."""
        return f"http://{self.get_container_host_ip()}:{self.get_exposed_port(_HTTP)}"
