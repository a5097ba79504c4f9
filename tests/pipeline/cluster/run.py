"""A Spark cluster whose parts die: every message is relayed once and archived once.

    python -m tests.pipeline.cluster.run --seed 7

A standalone master, two workers on machines of their own (machines.py), an object store with the protocol of S3, a
broker, a producer and a driver (driver.py). The workers have Spark and Python, but not SieveMQ: its environment is
packed and sent to them by `spark.archives`. Checkpoints and the archive are in the object store. A fault is one of
- driver      the driver is killed, with its Java, and started again;
- worker      one machine loses its power and its network, and is started again;
- broker      the broker is killed, and started again with its data directory.

A driver that ends by itself is started again, as a scheduler would; that is counted. In the end the archive is
compacted by the command, which is killed in the middle of it once. Then every message of the queue is in the other
queue and in the archive, once (accounts.py).
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from tests.broker.store.kill import COMMAND, exit_at_sigterm, folder_for

from sievemq import ConnectionFactory, JMSException, JMSRuntimeException, Queue

from .accounts import Row, body_of, check, check_places
from .machines import HERE, NET, Machine, enclose

ROOT = Path(__file__).parents[3]
#: Made by .ci/cluster.
BUILD = ROOT / "build" / "cluster"
FAULTS = ("driver", "worker", "broker", "driver")
MASTER = f"spark://{HERE}:7077"
LAKE = "s3a://lake"
#: The folder of a worker that environments are sent to.
JOBS = "/tmp/jobs"
PORT, HTTP_PORT, LAKE_PORT = 7672, 7680, 9000
KEY = "of-the-lake"
#: Seconds within which something has to happen, on a busy machine.
DEADLINE = 900.0
PAUSE = 0.25
#: Messages that are relayed between two faults, and drivers that may end by themselves.
STEPS, ENDS = 100, 5

#: For Java machines that live for minutes, as in conftest.py.
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
DAEMON = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": JAVA}
SETTINGS = {
    "spark.archives": f"{BUILD}/env.tar.gz#env",
    "spark.jars": ",".join(map(str, sorted(BUILD.glob("jars/*.jar")))),
    "spark.driver.host": HERE,
    "spark.driver.bindAddress": HERE,
    "spark.driver.memory": "1g",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.cores.max": "2",
    "spark.scheduler.mode": "FAIR",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": JAVA,
    "spark.executor.extraJavaOptions": JAVA,
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # A machine that answers no more is given up after these, by the driver.
    "spark.network.timeout": "30s",
    "spark.network.timeoutInterval": "10s",
    "spark.executor.heartbeatInterval": "5s",
    "spark.hadoop.fs.s3a.endpoint": f"http://{HERE}:{LAKE_PORT}",
    "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
    "spark.hadoop.fs.s3a.path.style.access": "true",
    "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
    "spark.hadoop.fs.s3a.access.key": KEY,
    "spark.hadoop.fs.s3a.secret.key": KEY,
}


class Process:
    """A program on this machine, in a process group of its own.

    Args:
        log: a file for what it prints.
    """

    def __init__(self, log: Path, *command: str | Path, folder: Path = ROOT, **environment: str | Path) -> None:
        self.log = log
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("SIEVEMQ_", "SPARK_", "PYTHON"))
        }
        with log.open("ab") as stream:
            self._process = subprocess.Popen(
                list(map(str, command)), stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT, cwd=folder,
                env={**kept, **{name: str(value) for name, value in environment.items()}}, start_new_session=True,
            )  # fmt: skip

    def code(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._process.poll()

    def kill(self) -> None:
        """End the whole group at once."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(60)


class Producer(threading.Thread):
    """Sends numbered messages until it is ended."""

    def __init__(self, url: str, rate: float) -> None:
        super().__init__()
        self._url, self._rate = url, rate
        self.over = threading.Event()
        self.confirmed: set[int] = set()

    def run(self) -> None:
        numbers = itertools.count()
        while not self.over.is_set():
            with suppress(JMSException, JMSRuntimeException), ConnectionFactory(self._url).create_context() as context:
                producer = context.create_producer()
                while not self.over.wait(1 / self._rate):
                    number = next(numbers)
                    producer.set_property("n", number).send(Queue("in"), body_of(number))
                    self.confirmed.add(number)


class Cluster:
    """Everything that runs, from the first message to the last.

    Args:
        folder: for data, disks and logs.
        rate: messages that are sent each second.
    """

    def __init__(self, seed: int, folder: Path, rate: float, stack: ExitStack) -> None:
        self.random = random.Random(seed)
        self.ends = 0
        self._folder, self._stack = folder, stack
        self._begin = time.monotonic()
        self._started = itertools.count(1)
        (folder / "conf").mkdir()
        lines = [f"{name} {value}\n" for name, value in (SETTINGS | {"spark.sql.warehouse.dir": str(folder)}).items()]
        (folder / "conf" / "spark-defaults.conf").write_text("".join(lines))
        [self._spark] = (BUILD / "env").glob("lib/python*/site-packages/pyspark")
        self.workers = [Machine(number, folder / f"worker{number}", self._spark, ROOT) for number in (1, 2)]
        self.url = f"sievemq://{HERE}:{PORT}?reconnect=60000"
        self._driver: Process | None = None
        self.producer = Producer(self.url, rate)

    # -- parts ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start everything but the driver."""
        lake = self._run("lake", BUILD / "lake" / "bin" / "moto_server", "-H", HERE, "-p", str(LAKE_PORT))
        self._start_broker()
        master = ("org.apache.spark.deploy.master.Master", "--host", HERE, "--port", "7077", "--webui-port", "8080")
        hub = self._run(
            "master", self._spark / "bin" / "spark-class", *master,
            SPARK_LOCAL_IP=HERE, SPARK_MASTER_OPTS="-Dspark.worker.timeout=20", **DAEMON,
        )  # fmt: skip
        self.until(lambda: self._put(f"http://{HERE}:{LAKE_PORT}/lake"), "the object store did not start", lake)
        self.until(lambda: self._answers(f"http://{HERE}:8080/json/"), "the master did not start", hub)
        for worker in self.workers:
            self._start_worker(worker)
        self.producer.start()
        self.until(lambda: self.depth("in") > 0, "nothing was sent")
        self._start_driver()

    def _run(self, name: str, *command: str | Path, **more: Any) -> Process:
        process = Process(self._folder / f"{name}.log", *command, **more)
        self._stack.callback(process.kill)
        return process

    def _start_broker(self) -> None:
        where = (f"--host={HERE}", f"--port={PORT}", f"--http-port={HTTP_PORT}", f"--data-dir={self._folder}/data")
        self._broker = self._run("broker", *COMMAND, "broker", "--insecure", *where)
        self.until(lambda: self._answers(f"http://{HERE}:{HTTP_PORT}/readyz"), "the broker did not start", self._broker)

    def _start_worker(self, machine: Machine) -> None:
        program = ("/tmp/spark/bin/spark-class", "org.apache.spark.deploy.worker.Worker")
        options = ("--host", machine.address, "--cores", "1", "--memory", "1g", "--work-dir", JOBS, MASTER)
        machine.start(*program, *options, SPARK_LOCAL_IP=machine.address, **DAEMON)
        self._stack.callback(machine.power_off)

    def _spark_program(self, name: str, *command: str | Path) -> Process:
        # ./env/bin/python is this environment for the driver, and the one that is sent for the workers.
        return self._run(
            name, *command, folder=BUILD, PYSPARK_PYTHON="./env/bin/python", SPARK_LOCAL_IP=HERE,
            SPARK_CONF_DIR=self._folder / "conf",
            # A driver that is killed leaves the environment that it has unpacked.
            SPARK_LOCAL_DIRS=self._folder, SPARK_SUBMIT_OPTS=f"-Djava.io.tmpdir={self._folder}", TMPDIR=self._folder,
        )  # fmt: skip

    def _start_driver(self) -> None:
        program = (Path("env", "bin", "python"), Path(__file__).with_name("driver.py"), "stream", MASTER, self.url)
        number = next(self._started)
        self._driver = self._spark_program(f"driver{number}", *program, LAKE, self._folder / "finish")
        self.say(f"driver {number} started")

    # -- what happens -----------------------------------------------------------------------------------------------

    def fail(self, kind: str) -> None:
        """One fault, amid the work, and what an operator does afterwards."""
        self.await_progress()
        self.producer.over.wait(self.random.random() * 4)
        self.say(f"fault: {kind}")
        {"driver": self._fail_driver, "worker": self._fail_worker, "broker": self._fail_broker}[kind]()

    def _fail_driver(self) -> None:
        assert self._driver is not None
        self._driver.kill()
        self._start_driver()

    def _fail_worker(self) -> None:
        machine = self.random.choice(self.workers)
        machine.power_off()
        self.await_progress()  # with the other one
        self._start_worker(machine)

    def _fail_broker(self) -> None:
        self._broker.kill()
        self._start_broker()

    def await_progress(self) -> None:
        """Wait until messages were relayed and archived."""
        relayed, archived = self.depth("out") + STEPS, self.archived() + STEPS
        self.until(lambda: self.depth("out") >= relayed and self.archived() >= archived, "nothing gets on")

    def finish(self) -> None:
        """Send no more, and have the driver do the rest."""
        self.producer.over.set()
        self.producer.join(DEADLINE)
        (self._folder / "finish").touch()
        self.until(lambda: self._driver is not None and self._driver.code() == 0, "the driver does not end")
        self._driver = None
        self.say("all is done")

    def compact(self) -> None:
        """Compact the archive; the first attempt is killed when it has written something."""
        command = (Path("env", "bin", "sievemq"), "pipeline", "compact", f"{LAKE}/archive", "--master", MASTER)
        before = self._keys("archive/namespace")
        first = self._spark_program("compact1", *command)
        self.until(
            lambda: first.code() is not None or self._keys("archive/namespace") != before, "nothing was compacted"
        )
        self.say(f"compact killed: {first.code() is None}")
        first.kill()
        second = self._spark_program("compact2", *command)
        self.until(lambda: second.code() is not None, "compact does not end")
        if second.code():
            raise AssertionError(f"compact ended with {second.code()}: {tail(second.log)}")

    def archive(self, name: str) -> list[Row]:
        """The messages in the archive, as another driver reads them."""
        rows = self._folder / f"{name}.json"
        program = self._spark_program(
            name, Path("env", "bin", "python"), Path(__file__).with_name("driver.py"), "audit", MASTER, LAKE, rows
        )
        self.until(lambda: program.code() is not None, "the audit does not end")
        if program.code():
            raise AssertionError(f"the audit ended with {program.code()}: {tail(program.log)}")
        return [Row(number, body, each) for number, body, each in json.loads(rows.read_text())]

    def queue(self, name: str) -> tuple[list[Row], list[tuple[str, str]]]:
        """The messages of a queue; of those that were relayed also the machine and the code."""
        with ConnectionFactory(self.url).create_context() as context, context.create_browser(Queue(name)) as browser:
            found = list(browser)
        rows = [Row(each.get_int_property("n"), each.get_text(), each.get_jms_message_id()) for each in found]
        stamps = [
            (each.get_string_property("machine"), each.get_string_property("code"))
            for each in found
            if each.property_exists("machine")
        ]
        return rows, stamps

    # -- looks ------------------------------------------------------------------------------------------------------

    def until(self, done: Callable[[], bool], otherwise: str, process: Process | None = None) -> None:
        """Wait for something; a driver that has ended by itself is started again meanwhile."""
        end, pause = time.monotonic() + DEADLINE, threading.Event()
        while not done():
            if self._driver is not None and self._driver.code() not in (None, 0):
                self.ends += 1
                self.say(f"the driver ended by itself: {tail(self._driver.log, 1)}")
                if self.ends > ENDS or not self.archived():
                    raise AssertionError(f"the driver ends again and again: {tail(self._driver.log)}")
                self._start_driver()
            if time.monotonic() > end:
                raise AssertionError(otherwise)
            if process is not None and process.code() is not None:
                raise AssertionError(f"{otherwise}: {tail(process.log)}")
            pause.wait(PAUSE)

    def depth(self, queue: str) -> int:
        """How many messages a queue has; 0 if there is none."""
        try:
            path = f"/api/v1/namespaces/default/destinations/queue:{queue}"
            with urllib.request.urlopen(f"http://{HERE}:{HTTP_PORT}{path}", timeout=10) as answer:
                return int(json.load(answer)["depth"])
        except OSError:
            return 0

    def archived(self) -> int:
        """How many messages all drivers have archived, by what they print."""
        lines = (line for log in self._folder.glob("driver*.log") for line in log.read_text().splitlines())
        return sum(json.loads(line)["archived"] for line in lines if line.startswith('{"archived"'))

    def _keys(self, prefix: str) -> list[str]:
        """What the object store holds, as it lists it."""
        with urllib.request.urlopen(f"http://{HERE}:{LAKE_PORT}/lake?prefix={prefix}", timeout=30) as answer:
            return [part.split("</Key>")[0] for part in answer.read().decode().split("<Key>")[1:]]

    def _put(self, url: str) -> bool:
        try:
            with urllib.request.urlopen(urllib.request.Request(url, method="PUT"), timeout=10):
                return True
        except OSError:
            return False

    def _answers(self, url: str) -> bool:
        try:
            with urllib.request.urlopen(url, timeout=10):
                return True
        except OSError:
            return False

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self._begin:5.0f} s  {text}", flush=True)


def tail(log: Path, lines: int = 30) -> str:
    """The last lines of a log."""
    return "\n".join(log.read_text(errors="replace").strip().splitlines()[-lines:])


def run(seed: int, folder: Path, faults: Sequence[str], rate: float) -> tuple[list[str], str]:
    """One life of a cluster. Returns what is wrong, and a line about what was seen."""
    with ExitStack() as stack:
        cluster = Cluster(seed, folder, rate, stack)
        stack.callback(cluster.producer.over.set)
        cluster.start()
        for kind in faults:
            cluster.fail(kind)
        cluster.await_progress()
        cluster.finish()
        queue, _ = cluster.queue("in")
        relayed, stamps = cluster.queue("out")
        copies = {"queue:out": [Row(row.number, row.body) for row in relayed], "the archive": cluster.archive("audit1")}
        cluster.compact()
        copies["the archive after it was compacted"] = cluster.archive("audit2")
        wrong = check(cluster.producer.confirmed, queue, copies)
        machines = Counter(machine for machine, _ in stamps)
        wanted = [f"{NET}.1", f"{NET}.2"]
        wrong += check_places(machines, wanted, {code for _, code in stamps}, JOBS)
        shares = ", ".join(f"{count} on {machine}" for machine, count in sorted(machines.items()))
        return wrong, f"{len(queue)} messages, relayed {shares}; {cluster.ends} drivers ended by themselves"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", default=",".join(FAULTS))
    parser.add_argument("--rate", type=float, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    arguments = parser.parse_args()
    if not (BUILD / "env.tar.gz").exists():
        sys.exit("there is no build/cluster: make spark-cluster makes it")
    if why := enclose():
        print(f"skipped: {why}")
        return 0
    exit_at_sigterm()
    with folder_for("cluster") as folder:
        print(f"seed {arguments.seed}, in {folder}", flush=True)
        wrong, seen = run(arguments.seed, folder, arguments.faults.split(","), arguments.rate)
        print(seen)
        assert not wrong, "\n".join(wrong)
    print("every message was relayed once and archived once")
    return 0


if __name__ == "__main__":
    sys.exit(main())
