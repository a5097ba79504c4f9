"""A broker in a process of its own that can be killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

#: How long a broker may take to end in order, in seconds; one that does not hangs.
DEADLINE = 60.0


class Host:
    """One data directory and the broker that serves it now.

    Args:
        directory: for the data; made if need be. None: in memory.
        destinations: policies by pattern, as in the configuration.

    Attributes:
        url, port, pid: of the broker that serves now; every life of it has others.
        crashes: how often it was killed.
    """

    def __init__(self, directory: Path | None, destinations: dict[str, dict[str, Any]]) -> None:
        self._options = [] if directory is None else ["--data-dir", str(directory)]
        self._environ = {name: value for name, value in os.environ.items() if not name.startswith("SIEVEMQ_")}
        self._environ["SIEVEMQ_DESTINATIONS"] = json.dumps(destinations)
        self.crashes = 0
        self.url = ""
        self.port = self.pid = 0
        self.start()

    def start(self) -> None:
        """Start a broker on the directory, and return when it is ready."""
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from sievemq.cli import main; main()", "broker", "--port", "0", "--no-http",
             *self._options],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=self._environ,
        )  # fmt: skip
        self.pid = self._process.pid
        said = []
        for line in self._lines():
            said.append(line)
            if line.startswith("{") and (record := json.loads(line))["event"] == "broker.ready":
                self.url = record["url"]
                self.port = urlsplit(self.url).port or 0
                return
        raise AssertionError(f"the broker did not start: {''.join(said)}")

    def crash(self) -> None:
        """Kill -9."""
        self._process.kill()
        self._process.wait()
        self._lines().close()
        self.crashes += 1

    def stop(self) -> list[str]:
        """End it in order; what is wrong with how it ended."""
        self._process.send_signal(signal.SIGTERM)
        rest = self._lines().read()
        self._lines().close()
        code = self._process.wait(DEADLINE)
        return [f"the broker ended with {code}: {rest}"] if code or "Traceback" in rest else []

    def _lines(self) -> IO[str]:
        assert self._process.stdout is not None
        return self._process.stdout
