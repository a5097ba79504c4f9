"""The command itself: subcommands from entry points, extras that are missing, exit codes."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint, entry_points, version
from importlib.util import find_spec
from pathlib import Path
from urllib.request import urlopen

import pytest
import typer

from sievemq.cli import loading
from sievemq_broker.config import Settings
from sievemq_core.compiled import COMPILED

from .conftest import Sievemq


def test_help_lists_commands_of_client_and_broker(sievemq: Sievemq) -> None:
    outcome = sievemq("--help")
    assert outcome.code == 0
    for name in ("broker", "browse", "config", "healthcheck", "receive", "selector", "send", "version"):
        assert f"\n  {name} " in outcome.out
    assert "4 refused by a check" in outcome.out


def test_without_arguments_it_shows_help_and_that_is_a_usage_error(sievemq: Sievemq) -> None:
    outcome = sievemq()
    assert outcome.code == 2
    assert "Usage: sievemq" in outcome.out + outcome.err


@pytest.mark.parametrize(
    "arguments", [("nonsense",), ("send",), ("send", "q", "--nonsense"), ("receive", "q", "-n", "x")]
)
def test_usage_errors_are_2(sievemq: Sievemq, arguments: tuple[str, ...]) -> None:
    outcome = sievemq(*arguments)
    assert outcome.code == 2
    assert outcome.err


def test_an_option_before_its_command_is_explained(sievemq: Sievemq) -> None:
    outcome = sievemq("--url=sievemq://localhost", "send", "q", "x")
    assert outcome.code == 2
    assert "--url is an option of the commands, and follows the command: sievemq send --url" in outcome.err


@pytest.mark.parametrize(
    ("words", "loaded"),
    [
        (["version"], []),
        (["queue", "ls", "--help"], []),  # it asks the management API
        (["send", "--help"], ["sievemq.blocking"]),
        (["demo", "flights", "--help"], ["sievemq_testing"]),
    ],
)
def test_only_the_command_that_is_called_is_loaded(words: list[str], loaded: list[str]) -> None:
    program = (
        f"import sys; from sievemq.cli import run; code = run({words});"
        "print(code, sorted(set(sys.modules) &"
        " {'sievemq.blocking', 'sievemq_broker', 'sievemq_testing', 'starlette', 'uvicorn', 'prometheus_client'}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == f"0 {loaded}"


#: What only some brokers use: it costs memory and the time of each start.
SELDOM = frozenset({
    "argon2", "opentelemetry", "pygments", "rich", "sievemq.aio", "sievemq.blocking", "sievemq_broker.store.sqlite",
    "sievemq_broker.protocols.amqp.connection", "sievemq_broker.protocols.stomp.connection", "sievemq_testing",
    "sievemq_core.selector.explain", "sievemq_core.selector.portability", "sqlite3", "stringprep", "tomllib", "wsproto",
})  # fmt: skip
#: What a broker uses from its first scrape, call of the management API, sign-in or decoded property on.
LATER = frozenset({
    "html.entities", "http.server", "msgspec", "prometheus_client", "sievemq_broker.domain.management",
    "sievemq_broker.server.http.api.assemble", "sievemq_broker.server.http.metrics",
})  # fmt: skip
#: What only the HTTP port uses.
HTTP = frozenset({"anyio", "h11", "multiprocessing", "sievemq_broker.server.http.serve", "starlette", "uvicorn"})


@pytest.mark.parametrize(
    ("option", "unused"), [("--http-port=0", SELDOM | LATER), ("--no-http", SELDOM | LATER | HTTP)]
)
def test_an_idle_broker_imports_only_what_it_uses(option: str, unused: frozenset[str], tmp_path: Path) -> None:
    if version("typer") < "0.29":  # pyproject.toml allows no newer one
        unused |= {"pydantic"}
    imports = tmp_path / "imports"
    plain = {name: value for name, value in os.environ.items() if not name.startswith("COV")}  # `make coverage` imports
    with imports.open("w") as file, subprocess.Popen(
        [sys.executable, "-Ximporttime", "-c", "from sievemq.cli import main; main()", "broker", "--port=0", option],
        stdout=subprocess.PIPE, stderr=file, text=True, env=plain,
    ) as broker:  # fmt: skip
        assert broker.stdout is not None
        ready = json.loads(broker.stdout.readline())
        assert ready["event"] == "broker.ready"
        if ready["http_url"] is not None:
            urlopen(f"{ready['http_url']}/readyz").close()  # the port takes connections before it answers
        broker.terminate()
        broker.stdout.read()
    imported = {line.rpartition("|")[2].strip() for line in imports.read_text().splitlines()}
    assert {"sievemq_broker.server.process", "sievemq_broker.domain.queue"} <= imported
    assert ("uvicorn" in imported) is (option != "--no-http")
    assert not imported & unused


def test_without_typer_the_base_install_says_which_extra() -> None:
    program = "import sys; sys.modules['typer'] = None; from sievemq.cli import run; sys.exit(run(['version']))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "sievemq: the command line needs an extra: pip install 'sievemq[cli]'\n"


def test_without_the_brokers_packages_its_command_says_which_extra() -> None:
    program = (
        "import sys, importlib.util as util; find = util.find_spec;"
        "util.find_spec = lambda name, *rest: None if name == 'uvicorn' else find(name, *rest);"
        "from sievemq.cli import run; sys.exit(run(['broker', '--port', '0']))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "sievemq: `broker` needs an extra: pip install 'sievemq[broker]'\n"


def test_command_of_a_package_that_lacks_its_extra(monkeypatch: pytest.MonkeyPatch, sievemq: Sievemq) -> None:
    points = [
        EntryPoint("pipeline", "sievemq_spark.cli:pipeline", loading.GROUP),
        EntryPoint("version", "sievemq.cli.version:version", loading.GROUP),
    ]

    def load(point: EntryPoint) -> object:
        if point.name == "pipeline":
            raise ModuleNotFoundError("No module named 'pyspark'", name="pyspark")
        return real(point)

    real = EntryPoint.load
    monkeypatch.setattr(EntryPoint, "load", load)
    monkeypatch.setattr(loading, "entry_points", lambda group: points)
    for arguments in (("pipeline",), ("pipeline", "run", "--fast")):
        outcome = sievemq(*arguments)
        assert (outcome.code, outcome.err) == (
            2,
            "sievemq: `pipeline` needs an extra: pip install 'sievemq[spark]'\n",
        )
    monkeypatch.setattr(loading, "find_spec", lambda name: None if name == "pyspark" else find_spec(name))
    outcome = sievemq("--help")
    assert outcome.code == 0
    assert "pip install 'sievemq[spark]'" in " ".join(outcome.out.split())
    assert sievemq("version").code == 0


def test_the_list_of_commands_has_the_help_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "_NEEDED", {})
    points = list(entry_points(group=loading.GROUP))
    assert len(points) > 30
    for point in points:
        command = point.load()
        said = command.info.help if isinstance(command, typer.Typer) else inspect.getdoc(command)
        assert loading._summary(point) == said
    assert loading._summary(EntryPoint("x", "sievemq.cli:nothing", loading.GROUP)) == ""


@pytest.mark.parametrize(("words", "completed"), [("sievemq defin", ["definitions"]), ("sievemq queue l", ["ls"])])
def test_commands_are_completed(
    sievemq: Sievemq, monkeypatch: pytest.MonkeyPatch, words: str, completed: list[str]
) -> None:
    monkeypatch.setenv("_SIEVEMQ_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(words.count(" ")))
    assert sievemq().lines == completed


def test_an_internal_import_error_is_not_reported_as_a_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("broken", "sievemq_broker.no_such_module:command", loading.GROUP)
    monkeypatch.setattr(loading, "entry_points", lambda group: [point])
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        loading.build(["broken"])


def test_a_reader_that_wants_no_more_is_no_failure() -> None:
    program = "from sievemq.cli import main; main()"
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as nobody:
        done = subprocess.run(
            [sys.executable, "-c", program, "config", "show"], stdout=nobody, stderr=subprocess.PIPE, check=False
        )
    assert (done.returncode, done.stderr) == (0, b"")


def test_version(sievemq: Sievemq) -> None:
    assert sievemq("version").out.startswith("SieveMQ ")
    assert sievemq("--version").out == sievemq("-V").out == sievemq("version").out
    assert ", compiled)" in sievemq("version").out or not COMPILED
    facts = json.loads(sievemq("version", "--json").out)
    assert (facts["protocol"], facts["compiled"]) == (1, COMPILED)


def test_config_show_masks_secrets_and_names_origins(
    sievemq: Sievemq, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "broker.toml"
    file.write_text('log_level = "debug"\n[destinations."queue:a.*"]\nmax_attempts = 3\n')
    monkeypatch.setenv("SIEVEMQ_USERS", "anna:rosebud")
    outcome = sievemq("config", "show", "--origin", "--config", str(file))
    said = tomllib.loads(outcome.out)
    assert said == tomllib.loads(sievemq("config", "show", "--config", str(file)).out)
    assert (said["port"], said["destinations"]) == (Settings().port, {"queue:a.*": {"max_attempts": 3}})
    assert "# data_dir is not set" in outcome.out
    assert outcome.code == 0
    assert "rosebud" not in outcome.out
    assert 'users = { "anna" = "***" }' in outcome.out
    assert "# environment SIEVEMQ_USERS" in outcome.out
    assert re.search(rf'^log_level = "debug" +# file {re.escape(str(file))}$', outcome.out, re.MULTILINE)
    assert '"origin": "default"' in sievemq("config", "show", "--origin", "--json").out


def test_config_check(sievemq: Sievemq, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sievemq("config", "check").code == 0
    monkeypatch.setenv("SIEVEMQ_HOST", "0.0.0.0")
    outcome = sievemq("config", "check")
    assert outcome.code == 2
    assert "--insecure" in outcome.err


def test_a_data_dir_that_is_a_file_is_refused_clearly(sievemq: Sievemq) -> None:
    outcome = sievemq("broker", "--data-dir", __file__)
    assert outcome.code == 2
    assert "is a file" in outcome.err
