"""The suites: a row for each, of clients that others wrote.

A suite is the client's own, or a program of ours in `programs/` that prints a line of the Test Anything Protocol for
each step. To add one, write a function that runs it against a broker of a :class:`Stage`, and name it in SUITES.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tests.interop import fetch
from tests.interop.attempts import Worker, attempts
from tests.interop.results import Result, from_go, from_junit, from_tap
from tests.interop.takeovers import redirects, takeovers

from sievemq_broker import EmbeddedBroker

PROGRAMS = Path(__file__).with_name("programs")

#: Seconds that a suite may take.
LONGEST = 400


@dataclass(frozen=True)
class Run:
    """What a suite has found, and the version of the client."""

    version: str
    results: list[Result]


class Stage:
    """What a suite needs to run.

    Args:
        folder: for files of this run.
        excluded: parts of the names of tests that are not to run.
    """

    def __init__(self, folder: Path, excluded: Mapping[str, str]) -> None:
        self.folder = folder
        self.excluded = excluded

    @contextmanager
    def broker(self, **options: Any) -> Iterator[EmbeddedBroker]:
        """A broker for this suite; the keywords are those of :class:`EmbeddedBroker`."""
        with EmbeddedBroker(**options) as broker:
            yield broker

    def tls_broker(self, users: Mapping[str, object]) -> AbstractContextManager[EmbeddedBroker]:
        """A broker with a certificate of its own making."""
        fetch.installed("openssl")
        certificate, key = self.folder / "server.pem", self.folder / "server.key"
        new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=localhost")
        self.run("openssl", "req", "-x509", *new, "-keyout", key, "-out", certificate)
        return self.broker(users=users, settings={"tls_cert": str(certificate), "tls_key": str(key)})

    def run(
        self, *command: str | Path, folder: Path | None = None, longest: float = LONGEST, **environment: str | int
    ) -> str:
        """The output of a command, which is ended if it takes too long. It is kept in a file.

        Args:
            command: program and arguments.
            folder: that it runs in.
            longest: seconds that it may take.
            environment: variables it gets besides ours.
        """
        variables = {**os.environ, **{name: str(value) for name, value in environment.items()}}
        path = self.folder / f"output-{len(list(self.folder.glob('output-*')))}"
        with path.open("wb") as output, suppress(subprocess.TimeoutExpired):
            subprocess.run(
                [str(word) for word in command], cwd=folder or self.folder, env=variables, timeout=longest,
                stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, check=False,
            )  # fmt: skip
        return path.read_text(encoding="utf-8", errors="replace")

    def pytest(self, program: Path, tests: str | Path, folder: Path, **environment: str | int) -> list[Result]:
        """The results of tests that pytest runs; those that are excluded are deselected.

        Args:
            program: the Python that has pytest.
            tests: files or folders.
            folder: that it runs in.
            environment: variables it gets besides ours.
        """
        report, settings = self.folder / "report.xml", self.folder / "pytest.ini"
        settings.write_text("[pytest]\npython_files = *.py\n")  # not those of this repository
        without = " or ".join(self.excluded)
        self.run(
            program, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", settings, f"--rootdir={folder}",
            "--timeout=60", f"--junit-xml={report}",
            "-k", f"not ({without})" if without else "", tests, folder=folder, **environment,
        )  # fmt: skip
        return from_junit(report)

    def compiled(self, libraries: str, *sources: Path, sourcepath: str = "") -> Path:
        """The folder with the classes of Java sources.

        Args:
            libraries: class path.
            sources: files.
            sourcepath: where further classes are found that these need.
        """
        classes, files = self.folder / "classes", self.folder / "sources"
        files.write_text("\n".join(str(path) for path in sources))
        also = ("-sourcepath", sourcepath) if sourcepath else ()
        output = self.run("javac", "-nowarn", "-d", classes, "-cp", libraries, *also, f"@{files}")
        if not classes.exists():
            raise fetch.MissingError(f"javac: {output[:200]}")
        return classes

    def junit(self, libraries: str, *selection: str, url: str, **properties: str) -> list[Result]:
        """The results of tests that JUnit runs.

        Args:
            libraries: class path.
            selection: options of JUnit's console: which tests.
            url: of the broker, for the tests the system property broker.url.
            properties: further ones.
        """
        reports = self.folder / f"reports-{len(list(self.folder.glob('reports-*')))}"
        settings = [f"-D{name}={value}" for name, value in {"broker.url": url, **properties}.items()]
        console = "org.junit.platform.console.ConsoleLauncher"
        self.run(
            "java", *settings, "-cp", libraries, console, "execute", "--disable-banner", "--details=none",
            f"--reports-dir={reports}", *selection, longest=4 * LONGEST,
        )  # fmt: skip
        return [result for path in sorted(reports.glob("*.xml")) for result in from_junit(path)]

    def kept(self, results: Iterable[Result]) -> list[Result]:
        """The results but those of excluded tests, for a suite that cannot be told to leave them out."""
        return [each for each in results if not any(part in each.name for part in self.excluded)]

    def program(self, *command: str | Path, **environment: str | int) -> list[Result]:
        """The results of a program of ours. One that ends without a result has failed."""
        return from_tap(self.run(*command, **environment)) or [Result("it runs", passed=False)]


@dataclass(frozen=True)
class Suite:
    """One row of the table.

    Attributes:
        name: as the page shows it.
        protocol: that the client speaks.
        origin: where it is fetched from.
        run: runs it; raises :class:`fetch.MissingError` where it cannot be had.
        excluded: part of a test's name -> why it is not run.
    """

    name: str
    protocol: str
    origin: str
    run: Callable[[Stage], Run]
    excluded: Mapping[str, str] = field(default_factory=dict)


# -- STOMP ------------------------------------------------------------------------------------------------------------

_STOMPPY = "stomp.py==4.1.24"
_STOMPMAN = "stompman==0.8.0"


def _stomppy(stage: Stage) -> Run:
    root = fetch.source(_STOMPPY)
    program = fetch.python(_STOMPPY, "pytest==8.4.2", "pytest-timeout==2.4.0")
    users = {"admin": "password", "guest": "guest", "testuser": "password"}
    with stage.broker(users=users) as main, stage.broker() as open_to_all, stage.tls_broker(users) as encrypted:
        ports = {
            "STD_PORT": main.port, "RABBITMQ_PORT": main.port, "STOMPSERVER_PORT": open_to_all.port,
            "STD_SSL_PORT": encrypted.port, "SNI_SSL_PORT": encrypted.port,
        }  # fmt: skip
        hosts = {f"{name}_HOST": "127.0.0.1" for name in ("STD", "RABBITMQ", "STOMPSERVER", "SNI")}
        results = stage.pytest(program, "stomp/test", root, **hosts, **ports)
    return Run(_STOMPPY.partition("==")[2], results)


def _stompman(stage: Stage) -> Run:
    root = fetch.source(_STOMPMAN)
    program = fetch.python(
        _STOMPMAN, "anyio==4.4.0", "hypothesis==6.103.5", "pytest==8.2.2", "pytest-timeout==2.4.0", "uvloop==0.21.0"
    )
    original = root / "tests" / "integration.py"
    with stage.broker(users={"admin": ":=123"}) as broker:
        # The suite is taken as it is, but for constants: its port, and time limits that only an idle machine holds.
        text = original.read_text(encoding="utf-8")
        for constant, ours in (
            ("port=61616", f"port={broker.port}"),
            ("timeout(5)", "timeout(50)"),
            ("timeout=10,", "timeout=60,"),
        ):
            text = text.replace(constant, ours)
        (stage.folder / "integration.py").write_text(text, encoding="utf-8")
        (stage.folder / "conftest.py").write_text((root / "tests" / "conftest.py").read_text(encoding="utf-8"))
        results = stage.pytest(program, "integration.py", stage.folder, ARTEMIS_HOST="127.0.0.1")
    return Run(_STOMPMAN.partition("==")[2], results)


def _node_program(name: str, *packages: str) -> Callable[[Stage], Run]:
    def run(stage: Stage) -> Run:
        folder = fetch.node(*packages)
        script = folder / name
        script.write_text((PROGRAMS / name).read_text(encoding="utf-8"), encoding="utf-8")
        with stage.broker(http=True) as broker:
            url = f"{broker.http_url}/stomp".replace("http:", "ws:")
            results = stage.program("node", script, AMQP_URL=broker.amqp_url, STOMP_PORT=broker.port, STOMP_URL=url)
        return Run(packages[0].rpartition("@")[2], results)

    return run


def _ruby(stage: Stage) -> Run:
    fetch.installed("ruby")
    root, version = fetch.debian("ruby-stomp")
    with stage.broker() as broker:
        path = root / "usr" / "lib" / "ruby" / "vendor_ruby"
        results = stage.program("ruby", "-I", path, PROGRAMS / "client.rb", STOMP_PORT=broker.port)
    return Run(version, results)


def _php(stage: Stage) -> Run:
    fetch.installed("php")
    php = stage.run("php", "-r", 'echo PHP_MAJOR_VERSION, ".", PHP_MINOR_VERSION;').split()[-1]
    root, version = fetch.debian(f"php{php}-stomp")
    [extension] = root.glob("usr/lib/php/*/stomp.so")
    with stage.broker() as broker:
        results = stage.program("php", "-d", f"extension={extension}", PROGRAMS / "client.php", STOMP_PORT=broker.port)
    return Run(version, results)


def _perl(stage: Stage) -> Run:
    fetch.installed("perl")
    root, version = fetch.debian("libnet-stomp-perl", "libclass-accessor-perl", "liblog-any-perl")
    with stage.broker() as broker:
        path = root / "usr" / "share" / "perl5"
        results = stage.program("perl", "-I", path, PROGRAMS / "client.pl", STOMP_PORT=broker.port)
    return Run(version, results)


# -- AMQP -------------------------------------------------------------------------------------------------------------

_RHEA = "rhea@3.0.5"
_QPID_JMS = "2.10.0"
_QPID = (f"org.apache.qpid:qpid-jms-client:{_QPID_JMS}", "org.slf4j:slf4j-nop:2.0.17")
_SPRING = "7.0.10"
_SPRING_JMS = tuple(f"org.springframework:spring-{name}:{_SPRING}" for name in ("jms", "context"))
_JUNIT = "org.junit.platform:junit-platform-console-standalone:1.11.4"
_JAKARTA = (
    "jakarta.inject:jakarta.inject-api:2.0.1", "jakarta.ejb:jakarta.ejb-api:4.0.1",
    "jakarta.annotation:jakarta.annotation-api:3.0.0", "jakarta.transaction:jakarta.transaction-api:2.0.1",
    "jakarta.servlet:jakarta.servlet-api:6.1.0", "jakarta.servlet.jsp:jakarta.servlet.jsp-api:4.0.0",
    "org.jboss.shrinkwrap:shrinkwrap-api:1.2.6", "org.jboss.arquillian.test:arquillian-test-api:1.9.1.Final",
    "org.jboss.arquillian.container:arquillian-container-test-api:1.9.1.Final",
)  # fmt: skip


def _java_program(name: str, version: str, *artifacts: str) -> Callable[[Stage], Run]:
    def run(stage: Stage) -> Run:
        libraries = fetch.maven(*artifacts)
        classes = stage.compiled(libraries, PROGRAMS / f"{name}.java")
        with stage.broker() as broker:
            results = stage.program("java", "-cp", f"{classes}:{libraries}", name, AMQP_URL=broker.amqp_url)
        return Run(version, results)

    return run


def _joram(stage: Stage) -> Run:
    sources = fetch.given("JORAM_TESTS", "Apache ActiveMQ's activemq-joram-jms-tests")
    libraries = fetch.maven(_JUNIT, "junit:junit:4.13.2", *_QPID)
    classes = stage.compiled(libraries, PROGRAMS / "JoramAdmin.java", *sources.rglob("*.java"))
    (classes / "provider.properties").write_text("jms.provider.admin.class=JoramAdmin\n")
    with stage.broker() as broker:
        results = stage.junit(
            f"{classes}:{libraries}", "--scan-classpath", str(classes),
            url=broker.amqp_url, **{"joram.jms.test.file": "provider.properties"},
        )  # fmt: skip
    return Run(_QPID_JMS, results)


def _tck(stage: Stage) -> Run:
    root = fetch.given("JAKARTA_TCK", "the sources of Jakarta EE's platform-tck")
    tests = root / "tcks/apis/messaging/messaging-outside-container/src/main/java"
    libraries = fetch.maven(*_JAKARTA, _JUNIT, *_QPID)
    sources = [path for path in tests.rglob("*.java") if "signaturetest" not in path.parts]
    common = f"{tests}:{root / 'tools/common/src/main/java'}"
    classes = stage.compiled(libraries, PROGRAMS / "TckNames.java", *sources, sourcepath=common)
    (classes / "jndi.properties").write_text("java.naming.factory.initial=TckNames\n")
    properties = {
        "user": "j2ee", "password": "j2ee", "authuser": "javajoe", "authpassword": "javajoe", "jms_timeout": "3000",
        "platform.mode": "standalone", "vehicle": "standalone", "webServerHost": "localhost", "webServerPort": "8080",
    }  # fmt: skip

    def results(*selection: str) -> list[Result]:
        with stage.broker(users={"j2ee": "j2ee", "javajoe": "javajoe"}) as broker:
            return stage.junit(f"{classes}:{libraries}", *selection, url=broker.amqp_url, **properties)

    def alone(test: Result) -> list[Result]:
        of_class, _, method = test.name.removesuffix("()").rpartition(".")
        return results(f"--select-method={of_class}#{method}")

    packages = [f"--select-package=com.sun.ts.tests.jms.{name}" for name in ("core", "core20")]
    found = results(*packages, "--include-classname=.*")
    # A test that leaves a durable subscription or messages spoils others of its class: what failed runs again, alone.
    return Run(_QPID_JMS, [again for each in found for again in ([each] if each.passed else alone(each))])


_BROKER_J = "10.1.0"
_BROKER_J_LIBRARIES = (
    *(
        f"org.apache.qpid:qpid-{name}:{_BROKER_J}"
        for name in (
            "broker-plugins-amqp-1-0-protocol", "broker-core", "broker-plugins-websocket",
            "broker-plugins-management-amqp", "broker-plugins-logging-logback", "broker-plugins-memory-store",
        )
    ),
    "org.junit.jupiter:junit-jupiter:6.1.2", "org.junit.platform:junit-platform-console:6.1.2",
    "org.hamcrest:hamcrest:3.0", "io.netty:netty-all:4.2.6.Final",
)  # fmt: skip
#: Sources that these tests do not need, and that need further libraries: servers for Kerberos, LDAP, OAuth2.
_BROKER_J_LEFT_OUT = ("EmbeddedKdcExtension", "CreateLdapServerExtension")


def _broker_j(stage: Stage) -> Run:
    root = fetch.given("BROKER_J", f"the sources of Apache Qpid Broker-J {_BROKER_J}")
    libraries = fetch.maven(*_BROKER_J_LIBRARIES)
    protocol = "systests/protocol-tests-amqp-1-0/src"
    modules = ("qpid-test-utils/src/main", "systests/systests-utils/src/main", "systests/protocol-tests-core/src/main")
    sources = {
        path.relative_to(root / module): path
        for module in (*modules, f"{protocol}/main", f"{protocol}/test")
        for path in (root / module).rglob("*.java")
        if path.stem not in _BROKER_J_LEFT_OUT
    }
    # Its extension goes on with a test that it has just skipped, which JUnit reports as an error.
    [extension] = (path for path in sources if path.stem == "QpidTestExtension")
    repaired = stage.folder / extension.name
    text = sources[extension].read_text(encoding="utf-8")
    skipped = "throw new org.opentest4j.TestAbortedException();"
    repaired.write_text(text.replace("invocation.skip();", f"invocation.skip(); {skipped}"), encoding="utf-8")
    codegen = str(root / "broker-codegen/src/main/java")
    classes = stage.compiled(libraries, *(sources | {extension: repaired}).values(), sourcepath=codegen)
    # Broker-J's annotation processor makes this file; it is not on Maven Central.
    services = classes / "META-INF/services"
    services.mkdir(parents=True)
    admin = "org.apache.qpid.tests.utils.ExternalQpidBrokerAdminImpl"
    (services / "org.apache.qpid.tests.utils.BrokerAdmin").write_text(f"{admin}\n", encoding="utf-8")
    rules = {"auto_create": False}  # "unknown" destinations are among what is tested
    users = {"guest": "guest"}
    with stage.broker(users=users, settings=rules) as signed_in, stage.broker(settings=rules) as anonymous:
        for broker in (signed_in, anonymous):
            broker.call(lambda domain: domain.namespace("").create("queue:testQueue"))
        external = {
            "port.standard": signed_in.port, "port.anonymous": anonymous.port, "username": "guest", "password": "guest",
            "supportedSaslMechanisms": "PLAIN",
            "queueAdmin": "org.apache.qpid.tests.protocol.v1_0.ExistingQueueAdmin",
        }  # fmt: skip
        properties = {f"qpid.tests.protocol.broker.external.{name}": str(value) for name, value in external.items()}
        results = stage.junit(
            f"{classes}:{libraries}", "--scan-classpath", str(classes), url=anonymous.amqp_url,
            **{"qpid.tests.brokerAdminType": "EXTERNAL_BROKER"}, **properties,
        )  # fmt: skip
    return Run(_BROKER_J, stage.kept(results) or [Result("it runs", passed=False)])


_QIT = (
    "python-qpid-proton==0.40.0", "pytest==8.4.2", "pytest-timeout==2.4.0", "pytest-xdist==3.8.0", "click==8.3.0",
    "pydantic==2.12.3", "pydantic-settings==2.11.0", "rich==14.2.0", "hypothesis==6.142.0",
)  # fmt: skip
_QIT_VERSION = "2.0.0"
_QIT_SHIMS = ("python-proton", "javascript-rhea", "java-qpid-jms")


def _qit(stage: Stage) -> Run:
    """Pairs of clients: what one sends through the broker, the other receives with the same types and headers."""
    given = fetch.given("QPID_INTEROP_TEST", "the sources of Apache Qpid's interoperability tests")
    root = Path(shutil.copytree(given, stage.folder / "qit", ignore=shutil.ignore_patterns(".git")))
    # The suite is taken as it is, but for time limits that only an idle machine holds: each step starts a Java machine.
    for path in (*root.glob("tests/*.py"), *root.glob("src/**/*.py")):
        text = path.read_text(encoding="utf-8")
        for limit in ("timeout=30", "timeout: int = 30", "timeout=5,"):
            text = text.replace(limit, limit.replace("30", "300").replace("5,", "50,"))
        path.write_text(text, encoding="utf-8")
    program = fetch.python(*_QIT)
    shims = root / "shims"
    (shims / "javascript-rhea" / "node_modules").symlink_to(fetch.node(_RHEA) / "node_modules")
    fetch.installed("mvn", "java")
    output = stage.run("mvn", "-q", "-B", "package", folder=shims / "java-qpid-jms")
    if not (shims / "java-qpid-jms" / "target").exists():
        raise fetch.MissingError(f"mvn: {output[:200]}")
    for other in shims.iterdir():
        if other.name not in _QIT_SHIMS:
            shutil.rmtree(other)
    report = stage.folder / "report.xml"
    with stage.broker() as broker:
        stage.run(
            program, "-m", "pytest", "-q", "-n", "2", f"--junit-xml={report}", "-o", "addopts=", "-o", "timeout=600",
            *(f"tests/test_{name}.py" for name in ("types", "amqp_headers", "jms_unified")),
            folder=root, longest=6 * LONGEST, QIT_BROKER_URL=broker.amqp_url.removeprefix("amqp://"),
            PATH=f"{program.parent}:{os.environ['PATH']}", PYTHONPATH=root / "src",
        )  # fmt: skip
    if not report.exists():
        return Run(_QIT_VERSION, [Result("it runs", passed=False)])
    return Run(_QIT_VERSION, stage.kept(from_junit(report)))


def _go_amqp(stage: Stage) -> Run:
    folder, version = fetch.go("github.com/Azure/go-amqp", "v1.7.0")
    names = re.findall(r"^func (Test\w+)", (folder / "integration_test.go").read_text(encoding="utf-8"), re.MULTILINE)
    with stage.broker() as broker:
        output = stage.run(
            "go", "test", "-v", "-count=1", "-run", f"^({'|'.join(names)})$", ".",
            folder=folder, AMQP_BROKER_ADDR=broker.amqp_url,
        )  # fmt: skip
    return Run(version, from_go(output) or [Result("it runs", passed=False, detail=output[-200:])])


def _proton(stage: Stage) -> Run:
    root, version = fetch.debian("python3-qpid-proton", "libqpid-proton11")
    [libraries] = root.glob("usr/lib/*-linux-gnu")
    with stage.broker() as broker:
        path = f"{root / 'usr/lib/python3/dist-packages'}"
        results = stage.program(
            "/usr/bin/python3", PROGRAMS / "proton_client.py",
            AMQP_URL=broker.amqp_url, PYTHONPATH=path, LD_LIBRARY_PATH=libraries,
        )  # fmt: skip
    return Run(version, results)


def _proton_examples(stage: Stage) -> Run:
    fetch.installed("g++")
    packages = [f"libqpid-proton{part}" for part in ("-cpp12-dev", "-cpp12", "11", "11-dev", "11-dev-examples")]
    root, version = fetch.debian(*packages)
    [libraries] = root.glob("usr/lib/*-linux-gnu")
    with stage.broker() as broker:
        results = stage.program(
            sys.executable, PROGRAMS / "proton_examples.py", root / "usr/share/proton/examples/cpp",
            f"-I{root / 'usr/include'}", f"-L{libraries}", f"-Wl,-rpath-link,{libraries}",
            AMQP_URL=broker.amqp_url, LD_LIBRARY_PATH=libraries,
        )  # fmt: skip
    return Run(version, results)


# -- deliveries and attempts ------------------------------------------------------------------------------------------

_STOMPPY_NOW = "stomp.py==9.0.0"


def _stomppy_attempts(stage: Stage) -> Run:
    program = fetch.python(_STOMPPY_NOW)
    worker = Worker((program, PROGRAMS / "attempts_stomp.py"), "stomp", ("unsubscribe", "disconnect"))
    return Run(_STOMPPY_NOW.partition("==")[2], attempts(worker))


def _proton_attempts(stage: Stage) -> Run:
    root, version = fetch.debian("python3-qpid-proton", "libqpid-proton11")
    [libraries] = root.glob("usr/lib/*-linux-gnu")
    path = {"PYTHONPATH": f"{root / 'usr/lib/python3/dist-packages'}", "LD_LIBRARY_PATH": f"{libraries}"}
    worker = Worker(("/usr/bin/python3", PROGRAMS / "attempts_proton.py"), "amqp", ("detach", "close"), path)
    return Run(version, attempts(worker))


def _rhea_attempts(stage: Stage) -> Run:
    folder = fetch.node(_RHEA)
    script = folder / "attempts_rhea.mjs"
    script.write_text((PROGRAMS / script.name).read_text(encoding="utf-8"), encoding="utf-8")
    worker = Worker(("node", script), "amqp", ("detach", "end", "close"))
    return Run(_RHEA.rpartition("@")[2], attempts(worker))


def _qpid_jms_attempts(stage: Stage) -> Run:
    libraries = fetch.maven(*_QPID)
    classes = stage.compiled(libraries, PROGRAMS / "AttemptsJms.java")
    command = ("java", "-XX:TieredStopAtLevel=1", "-cp", f"{classes}:{libraries}", "AttemptsJms")
    return Run(_QPID_JMS, attempts(Worker(command, "amqp", ("consumer", "session", "connection"))))


# -- takeovers --------------------------------------------------------------------------------------------------------

_Play = Callable[[Sequence[str | Path]], list[Result]]


def _stomppy_brokers(play: _Play, stage: Stage) -> Run:
    program = fetch.python(_STOMPPY_NOW)
    return Run(_STOMPPY_NOW.partition("==")[2], play((program, PROGRAMS / "takeover_stomp.py")))


def _qpid_jms_brokers(play: _Play, stage: Stage) -> Run:
    libraries = fetch.maven(*_QPID)
    classes = stage.compiled(libraries, PROGRAMS / "TakeoverJms.java")
    return Run(_QPID_JMS, play(("java", "-XX:TieredStopAtLevel=1", "-cp", f"{classes}:{libraries}", "TakeoverJms")))


#: Every suite, in the order of the page.
SUITES = (
    Suite(
        "stomp.py, its own tests", "STOMP", "PyPI, source distribution", _stomppy,
        {
            "TestApolloSend": "is for Apache Apollo, for which the suite's own settings name no address",
            "test_ipv6": "reads the address of a Docker container",
            "test_timeout": "needs a network in which 192.0.2.0 does not answer",
            "TestBackward2": "is for Python 2",
            "test_threads_dont_wedge": "calls Thread.isAlive, which Python 3.9 removed",
            "test_parsing": "speaks to a server of its own, no broker, and counts what that has sent within 10 ms",
            "TestThreadingOverride": "connects one connection from two threads at once, and fails where they meet",
        },
    ),
    Suite("stompman, its integration tests", "STOMP", "PyPI, source distribution", _stompman),
    Suite(
        "@stomp/stompjs over WebSocket", "STOMP", "npm; `stompjs.mjs`",
        _node_program("stompjs.mjs", "@stomp/stompjs@7.3.0", "ws@8.18.3"),
    ),
    Suite("stompit", "STOMP", "npm; `stompit.cjs`", _node_program("stompit.cjs", "stompit@1.0.0")),
    Suite("ruby-stomp", "STOMP", "Debian; `client.rb`", _ruby),
    Suite("php-stomp", "STOMP", "Debian; `client.php`", _php),
    Suite("Net::STOMP", "STOMP", "Debian; `client.pl`", _perl),
    Suite("Qpid JMS", "AMQP", "Maven Central; `QpidJms.java`", _java_program("QpidJms", _QPID_JMS, *_QPID)),
    Suite(
        "Spring JMS, with Qpid JMS", "AMQP", "Maven Central; `SpringJms.java`",
        _java_program("SpringJms", _SPRING, *_SPRING_JMS, *_QPID),
    ),
    Suite("Joram JMS tests", "AMQP", "sources of Apache ActiveMQ; `JoramAdmin.java`", _joram),
    Suite("Jakarta Messaging TCK", "AMQP", "sources of platform-tck; `TckNames.java`", _tck),
    Suite(
        "Qpid Broker-J, protocol tests", "AMQP", "sources of Qpid Broker-J", _broker_j,
        {
            "ExistingQueueAdminTest": "tests a helper of the suite with a Broker-J of its own",
            "SystemPrivilegeEscalationGuardTest": "needs queues and rights of a settings file of Broker-J",
            "authenticationBypassDisallowed": "accepts a closed connection alone; the outcome `sys` comes first here",
            "clientSendsSasl": "the same",
            "emptyFramesDisallowed": "the same",
            "unacceptableProtocolIdSent": "AMQP without SASL is refused by a close with the reason, not by a header",
            "RefuseConnectionPolicyTest.strongDetection": "a container-id is a client id only if the client asks",
            "FromOtherConnectionDisallowed": "expects resource-locked; temporary destinations of others are not-found",
            "DeleteOnCloseTest": "looks for a dynamic node from a second connection, for which it does not exist",
            "modifiedOutcomeWithUndeliverableHere": "expects another delivery; undeliverable-here makes a dead letter",
            "transferWithoutPayload": "expects an error frame; the delivery is rejected with invalid-field",
            "sendTransactionalPostingTransferFailsDueToUnknownTransactionId": "the same, with unknown-id",
            "transferUnsettledInTransactionToUnknownDestinationWhenRejectedOutcomeSupported":
                "expects that the transaction can commit; a refused send dooms it, as in JMS",
            "receiveTransferReceiverIndicatesNonTerminalDeliveryState": "sends a frame above the agreed max-frame-size",
            "DecodeErrorTest.illegalMessage": "may find the connection closed, as it is after an undecodable message",
            "dischargeSettledAfterReceiverDetach": "expects Broker-J's order after messages have returned to the queue",
            "transferMixtureOf": "expects dispositions in the order of the deliveries",
            "flowWithRewound": "expects the end of a session whose next-outgoing-id goes back in a flow",
        },
    ),
    Suite(
        "Qpid interoperability tests", "AMQP", "sources of qpid-interop-test", _qit,
        {
            "first_acquirer=False": "the broker writes this header itself: true until a delivery counts",
            "test_jms_header_replyto": "Qpid JMS writes JMSReplyTo with the prefixes that the broker's open announces",
        },
    ),
    Suite("rhea", "AMQP", "npm; `rhea.mjs`", _node_program("rhea.mjs", _RHEA)),
    Suite("go-amqp, its integration tests", "AMQP", "Go modules", _go_amqp),
    Suite("python-qpid-proton", "AMQP", "Debian; `proton_client.py`", _proton),
    Suite("Qpid Proton, C++ examples", "AMQP", "Debian; `proton_examples.py`", _proton_examples),
    Suite(
        "stomp.py, deliveries and attempts", "STOMP", "PyPI; `attempts.py`, `attempts_stomp.py`", _stomppy_attempts
    ),
    Suite(
        "python-qpid-proton, deliveries and attempts", "AMQP", "Debian; `attempts.py`, `attempts_proton.py`",
        _proton_attempts,
    ),
    Suite("rhea, deliveries and attempts", "AMQP", "npm; `attempts.py`, `attempts_rhea.mjs`", _rhea_attempts),
    Suite(
        "Qpid JMS, deliveries and attempts", "AMQP", "Maven Central; `attempts.py`, `AttemptsJms.java`",
        _qpid_jms_attempts,
    ),
    Suite(
        "stomp.py, takeovers", "STOMP", "PyPI; `takeovers.py`, `takeover_stomp.py`",
        partial(_stomppy_brokers, takeovers),
    ),
    Suite(
        "Qpid JMS, takeovers", "AMQP", "Maven Central; `takeovers.py`, `TakeoverJms.java`",
        partial(_qpid_jms_brokers, takeovers),
    ),
    Suite(
        "stomp.py, redirects", "STOMP", "PyPI; `takeovers.py`, `takeover_stomp.py`",
        partial(_stomppy_brokers, redirects),
    ),
    Suite(
        "Qpid JMS, redirects", "AMQP", "Maven Central; `takeovers.py`, `TakeoverJms.java`",
        partial(_qpid_jms_brokers, redirects),
    ),
)  # fmt: skip
