"""`sievemq definitions`: what it prints, what it refuses, its exit codes."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.site.cli.conftest import Sievemq

from sievemq_broker import EmbeddedBroker
from sievemq_core.message.envelope import Envelope

HASH = "$argon2id$v=19$m=19456,t=2,p=1$j2BYUhrG+ZUVZEYez6bS4g$mJfxLKpXOMYvoJNtOYG+/9uyH6q4wr08MAzMjd+7+pA"
FILE = """
[namespaces.default]
queues = ["orders", "new"]

[rules.orders]
max_attempts = 3
"""


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch, sievemq: Sievemq) -> Iterator[EmbeddedBroker]:
    """A broker with a management port, which the commands find."""
    with EmbeddedBroker(http=True, definitions={"namespaces": {"default": {"queues": ["orders", "old"]}}}) as broker:
        monkeypatch.setenv("SIEVEMQ_HTTP_URL", str(broker.http_url))
        yield broker


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "d.toml"
    file.write_text(FILE)
    return file


def test_diff_and_apply(sievemq: Sievemq, broker: EmbeddedBroker, file: Path) -> None:
    first = ["+ default/queue:new", "+ rule/queue:orders"]
    assert sievemq("definitions", "diff", str(file)).lines == first
    assert sievemq("definitions", "diff", str(file), "--check").code == 4
    assert [json.loads(line)["name"] for line in sievemq("definitions", "diff", str(file), "--json").lines] == [
        "default/queue:new",
        "rule/queue:orders",
    ]
    declined = sievemq("definitions", "apply", str(file), stdin=b"n\n")
    assert (declined.code, declined.lines) == (1, first)
    assert "Make 2 changes? [y/N] nothing was changed" in declined.err
    done = sievemq("definitions", "apply", str(file), stdin=b"y\n")
    assert (done.code, done.lines) == (0, [*first, "2 changes made"])
    again = sievemq("definitions", "apply", str(file))
    assert (again.code, again.lines, again.err) == (0, ["nothing to change"], "")
    file.write_text(f"[users]\nanna = '{HASH}'\n")
    waits = sievemq("definitions", "apply", str(file))
    assert waits.lines == ["+ user/anna (when the broker starts with the file)", "nothing to change"]
    assert waits.err == f"sievemq: 1 change made when the broker starts with --definitions {file}\n"
    answer = json.loads(sievemq("definitions", "apply", str(file), "--json").out)
    assert (answer["applied"], answer["at_start"]) == (0, 1)


def test_the_same_is_no_difference(sievemq: Sievemq, broker: EmbeddedBroker, tmp_path: Path) -> None:
    out = tmp_path / "exported.toml"
    assert sievemq("definitions", "export", "--out", str(out)).out == f"{out} written\n"
    assert out.stat().st_mode & 0o777 == 0o600
    shown = sievemq("definitions", "export").out
    assert out.read_text() == shown
    assert tomllib.loads(shown) == json.loads(sievemq("definitions", "export", "--json").out)
    same = sievemq("definitions", "diff", str(out), "--prune", "--check")
    assert (same.code, same.out) == (0, f"no difference: the broker has what {out} defines\n")
    assert sievemq("definitions", "diff", str(out), "--json").out == ""
    assert sievemq("definitions", "export", "--out", str(tmp_path)).code == 1


def test_what_holds_messages_is_deleted_by_name_alone(sievemq: Sievemq, broker: EmbeddedBroker, file: Path) -> None:
    message = Envelope(("ID:1", 1, 4, 2, 0, 0, None, None, None, None, None, 0, None))
    broker.call(lambda b: b.namespace("default").transfer("queue:old", message, 1))
    refused = sievemq("definitions", "apply", str(file), "--prune", "--yes")
    assert refused.code == 4
    assert "- default/queue:old (refused: it holds 1 message; --force 'default/queue:old' deletes it)" in refused.lines
    assert refused.err == "sievemq: 1 change refused; nothing was changed\n"
    forced = sievemq("definitions", "apply", str(file), "--prune", "--yes", "--force", "default/queue:old")
    assert (forced.code, forced.lines[-1]) == (0, "3 changes made")


def test_subscriptions_in_use_are_not_offered_to_be_forced(
    sievemq: Sievemq, broker: EmbeddedBroker, file: Path
) -> None:
    from sievemq import ConnectionFactory, Topic

    with ConnectionFactory(broker.url).create_context() as context:
        context.create_shared_durable_consumer(Topic("t"), "s")
        refused = sievemq("definitions", "diff", str(file), "--prune")
        assert (
            "- default/subscription:s (refused: it is in use: close its consumers and sessions first)" in refused.lines
        )


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (None, "{} cannot be read: No such file or directory"),
        ("a =", "{} is not TOML: "),
        ("a = 2020-01-01", "{}: there are dates or times in it; definitions have none"),
        ("a = nan", "{}: there is nan or inf in it; definitions have neither"),
        (
            "[namespaces.default]\nqueue = []",
            "{}: [namespaces.default]: 'queue' is not known here; did you mean queues?",
        ),
    ],
)
def test_mistakes_are_2(
    sievemq: Sievemq, broker: EmbeddedBroker, tmp_path: Path, content: str | None, error: str
) -> None:
    file = tmp_path / "wrong.toml"
    if content is not None:
        file.write_text(content)
    done = sievemq("definitions", "apply", str(file))
    assert done.code == 2
    assert f"sievemq: {error.format(file)}" in done.err


def test_clear_passwords_are_left_out(sievemq: Sievemq, monkeypatch: pytest.MonkeyPatch) -> None:
    with EmbeddedBroker(http=True, users={"admin": "rosebud", "hashed": HASH}) as broker:
        monkeypatch.setenv("SIEVEMQ_HTTP_URL", str(broker.http_url))
        monkeypatch.setenv("SIEVEMQ_USER", "admin")
        monkeypatch.setenv("SIEVEMQ_PASSWORD", "rosebud")
        done = sievemq("definitions", "export")
    assert tomllib.loads(done.out)["users"] == {"hashed": {"password": HASH}}
    assert done.err == "sievemq: left out, because their passwords are not stored as hashes: admin\n"
    assert "rosebud" not in done.out
