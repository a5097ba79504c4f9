"""Output that cannot be written: effects, messages, exit codes."""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer

from sievemq import ConnectionFactory, ObjectMessage, register_type
from sievemq.cli.manage import actions
from sievemq.cli.manage.access import Api
from sievemq_broker import EmbeddedBroker

from .conftest import Sievemq

ROOT = Path(__file__).parents[3]
COMMAND = f"exec {sys.executable} -c 'from sievemq.cli import main; main()' "
#: How a shell makes standard output useless, and the message about it.
USELESS = {">/dev/full": "No space left on device", ">&-": "it is closed", "| true": "Broken pipe"}

pytestmark = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch, sievemq: Sievemq) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(http=True) as broker:
        monkeypatch.setenv("SIEVEMQ_URL", broker.url)
        monkeypatch.setenv("SIEVEMQ_HTTP_URL", str(broker.http_url))
        yield broker


def run(line: str, how: str, stdin: bytes = b"") -> tuple[int, str]:
    """The exit code and the standard error of a command line whose standard output is useless."""
    if how == "| true":
        read, write = os.pipe()
        os.close(read)
        done = subprocess.run(
            ["bash", "-c", COMMAND + line], input=stdin, stdout=write, stderr=subprocess.PIPE, check=False
        )
        os.close(write)
    else:
        done = subprocess.run(
            ["bash", "-c", f"{COMMAND} {line} {how}"], input=stdin, stderr=subprocess.PIPE, check=False
        )
    return done.returncode, done.stderr.decode()


def depth(broker: EmbeddedBroker, name: str) -> int:
    return broker.call(lambda domain: domain.namespace("default").queue(name).depth)


@pytest.mark.parametrize("how", USELESS)
def test_receive_takes_no_message_that_it_cannot_write(port: EmbeddedBroker, sievemq: Sievemq, how: str) -> None:
    sievemq("send", "orders", "x", "--count", "3")
    code, said = run("receive orders -n 0 -w 0", how)
    assert (code, depth(port, "orders")) == (1, 3)
    assert said == (
        f"sievemq: the output cannot be written: {USELESS[how]}. "
        "Before, 0 messages received; the rest stays in queue:orders\n"
    )


@pytest.mark.parametrize("how", USELESS)
def test_send_that_cannot_print_its_id_has_sent(port: EmbeddedBroker, how: str) -> None:
    code, said = run("send orders x", how)
    assert (code, depth(port, "orders")) == (0, 1)
    assert said.startswith(
        f"sievemq: the output cannot be written: {USELESS[how]}. 1 message sent to queue:orders: ID:"
    )


def test_send_goes_on_without_output(port: EmbeddedBroker) -> None:
    code, said = run("send orders x --count 2500 --ids", ">/dev/full")
    assert (code, depth(port, "orders")) == (0, 2500)
    assert said.endswith("No space left on device. 2,500 messages sent to queue:orders\n")


def test_the_exit_code_needs_no_standard_error(port: EmbeddedBroker) -> None:
    assert run("send orders x", ">/dev/full 2>&1") == (0, "")
    assert run("receive orders -w 0", ">/dev/full 2>&1") == (1, "")
    assert run("receive orders -w 0", ">&- 2>&-") == (1, "")
    assert depth(port, "orders") == 1


@pytest.mark.parametrize(
    ("line", "done"),
    [
        ("move orders checked --yes", "1 message moved"),
        ("copy orders checked --yes --json", '"touched": 1'),
        ("queue purge orders --yes", "1 message removed"),
        ("queue delete orders --yes", "queue:orders deleted with 1 message"),
        ("queue pause orders", "queue:orders is paused"),
        ("tap create orders audit", "audit exists on queue:orders"),
    ],
)
def test_a_command_that_has_changed_something_says_so(
    port: EmbeddedBroker, sievemq: Sievemq, line: str, done: str
) -> None:
    sievemq("send", "orders", "x")
    code, said = run(line, ">/dev/full")
    assert code == 0
    assert said.startswith("sievemq: the output cannot be written: No space left on device; this was done: ")
    assert done in said


@pytest.mark.parametrize("line", ["queue ls", "browse orders", "queue info orders --json", "version"])
def test_a_command_that_only_reads_fails_without_output(port: EmbeddedBroker, sievemq: Sievemq, line: str) -> None:
    sievemq("send", "orders", "x")
    assert run(line, ">/dev/full") == (1, "sievemq: the output cannot be written: No space left on device\n")


def test_a_reader_that_wants_no_more_of_a_list_is_no_failure(port: EmbeddedBroker, sievemq: Sievemq) -> None:
    sievemq("send", "orders", "x")
    assert run("queue ls", "| true") == (0, "")


def test_commands_of_the_broker_keep_the_rule(tmp_path: Path) -> None:
    users = tmp_path / "users.toml"
    code, said = run(f"user add anna --all --scram --users-file {users}", ">/dev/full", b"rosebud\n")
    assert (code, "this was done: anna: everything" in said, "anna" in users.read_text()) == (0, True, True)
    assert run(f"user list --users-file {users}", ">/dev/full")[0] == 1
    data = tmp_path / "data"
    with EmbeddedBroker(data_dir=data) as broker, ConnectionFactory(broker.url).create_context() as context:
        context.create_producer().send(context.create_queue("orders"), "x")
    assert run(f"store export {data}", ">/dev/full") == (
        1, "sievemq: the output cannot be written: No space left on device\n",
    )  # fmt: skip
    code, said = run(f"store export {data} --out /dev/full", "")
    assert (code, said) == (1, "sievemq: [Errno 28] No space left on device\n")
    assert run(f"store check {data}", ">/dev/full")[0] == 0  # its code is its result


def test_sigint_while_the_reader_does_not_read(port: EmbeddedBroker, sievemq: Sievemq) -> None:
    """What was not written whole stays; the command ends at the first signal, though the pipe stays full."""
    sent = 20
    sievemq("send", "orders", "x" * 10_000, "--count", str(sent))
    # Where the tests run in the background of a shell, SIGINT is ignored, by what they start as well.
    heeding = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    program = f"{heeding}; from sievemq.cli import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", program, "receive", "orders", "-n", "0", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        first = os.read(process.stdout.fileno(), 1)
        while "pipe" not in Path(f"/proc/{process.pid}/wchan").read_text():  # where it waits: the pipe cannot hold all
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        *whole, _ = (first + process.stdout.read()).split(b"\n")
        assert process.stderr.read() == b""
    assert [len(json.loads(line)["body"]) for line in whole] == [10_000] * len(whole)
    assert 0 < sent - len(whole) <= depth(port, "orders") <= sent - len(whole) + 1


@dataclass
class Shy:
    """A type whose objects cannot be shown."""

    def __repr__(self) -> str:
        raise RecursionError


register_type(Shy, name="tests.cli.Shy")


def test_a_body_that_cannot_be_shown_is_given_as_its_bytes(port: EmbeddedBroker, sievemq: Sievemq) -> None:
    """It does not block the messages behind it."""
    with ConnectionFactory(port.url).create_context() as context:
        producer, queue = context.create_producer(), context.create_queue("orders")
        poison = ObjectMessage(1)
        poison._body = b"\xd8\x0a\xb00123456789abcde"  # a UUID of a text of 16 characters
        producer.send(queue, poison)
        producer.send(queue, ObjectMessage(Shy()))
        producer.send(queue, "behind")
    browsed = [json.loads(line) for line in sievemq("browse", "orders", "--json").lines]
    assert [record["kind"] for record in browsed] == ["object", "object", "text"]
    assert b64decode(browsed[0]["body"]) == b"\xd8\x0a\xb00123456789abcde"
    assert "cannot be decoded" in browsed[0]["body_error"]
    assert browsed[1]["body_error"] == "the body cannot be decoded: RecursionError"
    done = sievemq("receive", "orders", "-n", "0", "-w", "0")
    assert (done.code, done.lines) == (0, [browsed[0]["body"], browsed[1]["body"], "behind"])
    assert done.err.count("the body cannot be decoded") == 2
    assert depth(port, "orders") == 0


def test_properties_that_cannot_be_decoded_are_reported(
    broker: EmbeddedBroker, sievemq: Sievemq, monkeypatch: pytest.MonkeyPatch
) -> None:
    sievemq("send", "orders", "x", "-p", "a=1")

    def fail(message: object) -> None:
        raise ValueError("they are none")

    monkeypatch.setattr("sievemq.messages.Message.properties", property(fail))
    record = json.loads(sievemq("browse", "orders", "--json").out)
    assert (record["properties"], record["body"]) == ({}, "x")
    assert record["properties_error"] == "the properties cannot be decoded: they are none"
    assert "the properties cannot be decoded" in sievemq("browse", "orders", "-v").err


def test_what_was_done_before_a_failure_is_said(
    port: EmbeddedBroker, sievemq: Sievemq, monkeypatch: pytest.MonkeyPatch
) -> None:
    sievemq("send", "orders", "x", "--count", "3")
    post, calls = Api.post, []

    def failing(self: Api, path: str, *arguments: object) -> object:
        calls.append(path)
        if len(calls) == 4:
            raise typer.Exit(1)
        return post(self, path, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(actions, "PIECE", 1)
    monkeypatch.setattr(Api, "post", failing)
    done = sievemq("move", "orders", "checked", "--yes")
    assert (done.code, done.out, done.err) == (1, "", "sievemq: 2 messages moved before that\n")
    assert depth(port, "orders") == 1


def test_standard_input_that_is_closed(port: EmbeddedBroker, sievemq: Sievemq) -> None:
    code, said = run("send orders -", "<&-")
    assert (code, said) == (2, "sievemq: the standard input cannot be read: Bad file descriptor\n")
    sievemq("send", "orders", "x")
    assert run("queue purge orders", "<&-") == (1, "Remove 1 message from queue:orders? [y/N] nothing was changed\n")
    assert depth(port, "orders") == 1


def test_commands_print_through_one_module() -> None:
    """`sievemq_core.output` has the rule; Rich's tables are written inside `writing()`."""
    found = []
    for folder in ("client/sievemq/cli", "broker/sievemq_broker", "pipeline/sievemq_spark", "testkit/sievemq_testing"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and ast.unparse(node.func) in ("typer.echo", "typer.secho", "print"):
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert found == []
