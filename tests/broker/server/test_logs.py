"""Log records: of one form, whoever writes them; nothing is configured unless the process asks for it."""

from __future__ import annotations

import errno
import io
import json
import logging
from collections.abc import Iterator

import pytest

from sievemq_broker import logs


@pytest.fixture
def restored() -> Iterator[None]:
    root = logging.getLogger()
    before = (root.handlers[:], root.level)
    yield
    root.handlers[:], level = before[0], before[1]
    root.setLevel(level)
    for name in ("uvicorn.error", "asyncio"):
        logging.getLogger(name).setLevel(logging.NOTSET)


def test_without_configuration_records_are_ordinary(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        logs.get("server").info("thing.happened", port=7672, peer="a b 100%")
    record = caplog.records[-1]
    assert record.name == "sievemq_broker.server"
    assert record.getMessage() == "thing.happened port=7672 peer='a b 100%'"


def test_disabled_log_levels_format_no_text() -> None:
    class Costly:
        def __repr__(self) -> str:
            raise AssertionError("asked for its text")

    assert not logging.getLogger("sievemq_broker.server").isEnabledFor(logging.DEBUG)
    logs.get("server").debug("thing.happened", value=Costly())


def test_json_lines_are_alike_for_us_and_for_others(restored: None) -> None:
    stream = io.StringIO()
    logs.configure("info", as_json=True, stream=stream)
    logs.get("server").info("thing.happened", port=7672)
    logging.getLogger("some.library").warning("it said %s", "this")
    ours, theirs = map(json.loads, stream.getvalue().splitlines())
    assert (ours["event"], ours["port"], ours["level"], ours["logger"]) == (
        "thing.happened",
        7672,
        "info",
        "sievemq_broker.server",
    )
    assert (theirs["event"], theirs["level"], theirs["logger"]) == ("it said this", "warning", "some.library")
    assert set(theirs) == {"event", "level", "logger", "timestamp"}
    assert ours["timestamp"].endswith("Z")


def test_exceptions_are_in_the_line(restored: None) -> None:
    stream = io.StringIO()
    logs.configure("info", as_json=True, stream=stream)
    try:
        raise ZeroDivisionError("a bug")
    except ZeroDivisionError as error:
        logs.get("server").fault("thing.failed", error)
    line = json.loads(stream.getvalue())
    assert "ZeroDivisionError: a bug" in line["exception"]
    assert stream.getvalue().count("\n") == 1


def test_level_and_form_are_chosen(restored: None) -> None:
    stream = io.StringIO()
    logs.configure("warning", as_json=False, stream=stream)
    logs.get("server").info("quiet")
    logs.get("server").warning("loud", why="because")
    assert "quiet" not in stream.getvalue()
    assert "loud" in stream.getvalue()
    assert "why=because" in stream.getvalue()


class FullDisk(io.StringIO):
    """Takes nothing until there is room."""

    has_room = False

    def write(self, text: str) -> int:
        if not self.has_room:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(text)


def test_a_log_that_cannot_be_written_is_reported_once(restored: None, capsys: pytest.CaptureFixture[str]) -> None:
    stream = FullDisk()
    logs.configure("info", stream=stream)
    for _ in range(3):
        logs.get("server").info("thing.happened")
    assert capsys.readouterr().err == (
        "sievemq: the log cannot be written: No space left on device; events are dropped until it can be\n"
    )
    stream.has_room = True
    logs.get("server").info("other.thing")
    assert json.loads(stream.getvalue())["event"] == "other.thing"
    logging.getLogger("app").info("a mistake: %d", "x")
    assert "TypeError" in capsys.readouterr().err  # is a defect, and shown as one


def test_line_breaks_in_values_cannot_forge_lines(restored: None) -> None:
    for json_lines in (True, False):
        stream = io.StringIO()
        logs.configure("info", as_json=json_lines, stream=stream)
        logs.get("server").info("thing.happened", peer='x\n{"event": "forged"}')
        assert stream.getvalue().count("\n") == 1
