"""``sievemq listen``: finds the application, runs it, restarts it; says what is wrong otherwise."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from sievemq import JMSContext, Queue
from sievemq.cli import listen, run
from sievemq.listening.health import answering

MODULE = """
from sievemq import Listeners
app = Listeners("{url}")
other = 3
print("{word}", flush=True)
@app.listener("orders")
def take(body: str) -> None:
    print("{word}", body, flush=True)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    yield tmp_path
    sys.path[:] = before
    for name in ("shop_app", "shop_broken", "shop_lacking"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["shop_app"], 2, "an application is named MODULE:APP, such as shop.orders:app, not 'shop_app'"),
        (["shop-app:app"], 2, "an application is named MODULE:APP"),
        (["shop_nowhere:app"], 3, "there is no module shop_nowhere; the working directory is "),
        (["shop_nowhere.orders:app"], 3, "there is no module shop_nowhere;"),
        (["shop_app:nothing"], 3, "module shop_app has no nothing; it has app"),
        (["shop_app:other"], 2, "shop_app:other is a int and no Listeners; it has app"),
        (["shop_broken:app"], 1, "module shop_broken raised"),
        (["shop_lacking:app"], 1, "module shop_lacking raised"),
        (["shop_app:app", "--log-level", "loud"], 2, "--log-level is debug, info, warning or error, not 'loud'"),
        (["shop_app:app", "--health", "nowhere"], 1, "probes are answered at host:port"),
        (["shop_app:app"], 1, "127.0.0.1"),
    ],
)
def test_what_is_wrong_is_said(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, text: str
) -> None:
    (folder / "shop_app.py").write_text(MODULE.format(url="sievemq://127.0.0.1:1?reconnect=0", word=""))
    (folder / "shop_broken.py").write_text("1 / 0")
    (folder / "shop_lacking.py").write_text("import shop_nowhere")
    assert run(["listen", *arguments]) == code
    assert text in capsys.readouterr().err


@pytest.mark.skipif(os.name != "posix", reason="there is no SIGTERM")
def test_it_restarts_when_a_file_changes(folder: Path, sievemq_url: str, sievemq_context: JMSContext) -> None:
    module = folder / "shop_app.py"
    module.write_text(MODULE.format(url=sievemq_url, word="first"))
    command = [sys.executable, "-c", "from sievemq.cli import main; main()", "listen", "shop_app:app", "--reload"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env={**os.environ, "NO_COLOR": "1"}
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "first\n"
        module.write_text(MODULE.format(url=sievemq_url, word="second, of another size"))
        assert process.stdout.readline() == "second, of another size\n"
        sievemq_context.create_producer().send(Queue("orders"), "a chair")
        assert process.stdout.readline() == "second, of another size a chair\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_hidden_folders_and_environments_are_not_watched(folder: Path) -> None:
    for name in ("a.py", "pkg/b.py", ".git/c.py", "venv/d.py", "__pycache__/e.py", "readme.md"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).touch()
    (folder / "venv" / "pyvenv.cfg").touch()
    assert sorted(name for name, _ in listen._files(folder)) == ["a.py", os.path.join("pkg", "b.py")]  # noqa: PTH118


def test_an_address_of_probes_that_is_taken_is_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "shop_app.py").write_text(MODULE.format(url="sievemq://127.0.0.1:1?reconnect=0", word=""))
    with answering("127.0.0.1:0", lambda: True) as port:
        assert run(["listen", "shop_app:app", "--health", f"127.0.0.1:{port}"]) == 1
    assert f"probes cannot be answered at 127.0.0.1:{port}: " in capsys.readouterr().err


def test_probes_are_answered_in_ipv6() -> None:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            pass
    except OSError:
        pytest.skip("the machine has no IPv6")
    with (
        answering("[::1]:0", lambda: True) as port,
        urllib.request.urlopen(f"http://[::1]:{port}/readyz", timeout=60) as answer,
    ):
        assert answer.status == 200


def test_probes_are_answered(caplog: pytest.LogCaptureFixture) -> None:
    healthy = [True]

    def ask(path: str) -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            error.close()
            return error.code

    with caplog.at_level("INFO", "sievemq.listeners"), answering("127.0.0.1:0", lambda: healthy[0]) as port:
        assert [ask("/livez"), ask("/readyz?x=1"), ask("/")] == [200, 200, 404]
        healthy[0] = False
        assert [ask("/livez"), ask("/readyz")] == [200, 503]
    assert re.search(rf"answered at http://127.0.0.1:{port}/readyz", caplog.text)
