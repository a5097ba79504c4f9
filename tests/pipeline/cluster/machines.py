"""Machines for a cluster: each has a network, processes and files of its own. Needs root, `ip` and `unshare`.

All of it is in namespaces of one process, :func:`enclose`. When that ends, however it ends, the kernel ends every
process in them and removes the networks.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

NET = "10.231.9"
#: The address of everything that is no worker.
HERE = f"{NET}.254"
BRIDGE = "sievemq0"
_INSIDE = "SIEVEMQ_TEST_ENCLOSED"
_ENCLOSED = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
#: A worker's own disk takes the place of /tmp; Spark is installed on it; the sources are not on this machine.
_BOOT = """set -eu
mount --make-rprivate /
mkdir -p "$1/spark"
mount --bind "$2" "$1/spark"
mount --rbind "$1" /tmp
mount -t tmpfs -o size=1m tmpfs "$3"
cd /tmp
shift 3
exec "$@"
"""


def do(*command: str) -> None:
    """Run a command.

    Raises:
        OSError: it failed; its last words.
    """
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")


def enclose() -> str:
    """Go on in namespaces of one's own: this program starts again in them. Inside, make the network.

    Returns:
        Why that is not possible; empty if it was done.
    """
    if _INSIDE not in os.environ:
        for program in ("unshare", "ip"):
            if shutil.which(program) is None:
                return f"there is no {program}"
        try:
            do(*_ENCLOSED, "ip", "link", "add", BRIDGE, "type", "bridge")
        except OSError as error:
            return f"this system makes no network namespaces: {error}"
        sys.stdout.flush()
        os.execvpe("unshare", [*_ENCLOSED, sys.executable, *sys.orig_argv[1:]], {**os.environ, _INSIDE: "1"})
    do("mount", "-t", "tmpfs", "tmpfs", "/run")  # for the names of namespaces
    do("ip", "link", "set", "lo", "up")
    do("ip", "link", "add", BRIDGE, "type", "bridge")
    do("ip", "address", "add", f"{HERE}/24", "dev", BRIDGE)
    do("ip", "link", "set", BRIDGE, "up")
    return ""


class Machine:
    """A machine on the network, without power yet.

    Args:
        number: the last part of its address.
        disk: a folder: all of /tmp that the machine has.
        spark: the folder of the installed Spark, which is /tmp/spark there.
        hidden: a folder that does not exist there.
    """

    def __init__(self, number: int, disk: Path, spark: Path, hidden: Path) -> None:
        self.name, self.address = f"worker{number}", f"{NET}.{number}"
        self._boot = ("sh", "-c", _BOOT, "boot", str(disk), str(spark), str(hidden))
        self._log = disk.with_suffix(".log")
        self._process: subprocess.Popen[bytes] | None = None
        disk.mkdir()
        do("ip", "netns", "add", self.name)
        do("ip", "link", "add", f"{self.name}v", "type", "veth", "peer", "name", "eth0", "netns", self.name)
        do("ip", "link", "set", f"{self.name}v", "master", BRIDGE)
        do("ip", "-n", self.name, "address", "add", f"{self.address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            do("ip", "-n", self.name, "link", "set", device, "up")

    def start(self, *command: str, **environment: str) -> None:
        """Plug the machine in, and start a program on it."""
        do("ip", "link", "set", f"{self.name}v", "up")
        alone = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                ["ip", "netns", "exec", self.name, *alone, *self._boot, *command],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                env={**os.environ, **environment},
            )  # fmt: skip

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def power_off(self) -> None:
        """Unplug it, and end everything that runs on it: no packet tells anybody."""
        with suppress(OSError):
            do("ip", "link", "set", f"{self.name}v", "down")
        if self._process is not None:
            self._process.kill()
            self._process.wait()
