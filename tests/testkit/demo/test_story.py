"""`sievemq demo flights`, end to end: a broker, a publisher and seven consumer processes, and the referee's verdict."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from sievemq_testing.demo import command, story
from sievemq_testing.demo.flights import SELECTORS, read_flights
from sievemq_testing.demo.parts import Tally
from sievemq_testing.demo.referee import Referee, Verdict
from sievemq_testing.demo.story import DemoFailedError, Line, Outcome, run_story

LIMIT = 3_000
MONTHS = 110_000


def test_every_selector_agrees_with_sqlite() -> None:
    reports: dict[str, int] = {"published": 0, "received": 0}

    def progress(what: str, count: int) -> None:
        reports[what] += count

    outcome = run_story(LIMIT, progress)
    assert outcome.flights == LIMIT
    assert outcome.agrees
    assert [line.selector for line in outcome.lines] == [*SELECTORS, *SELECTORS, None]
    by_topic = [line.got.messages for line in outcome.lines if line.destination == "topic"]
    by_queue = [line.got.messages for line in outcome.lines if line.destination == "queue"]
    assert all(by_topic)
    assert sum(by_queue) == LIMIT
    assert reports["published"] == LIMIT // 2_000 * 2_000  # every part reports each 2,000


@pytest.mark.slow
def test_the_flights_of_four_months() -> None:
    outcome = run_story(MONTHS)
    assert outcome.flights == MONTHS
    assert outcome.agrees, [line for line in outcome.lines if not line.agrees]


def test_a_process_that_fails_ends_the_demo_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(story, "SELECTORS", ("carrier =",))
    with pytest.raises(DemoFailedError, match="ended with code 1"):
        run_story(10)


def test_a_line_agrees_only_if_count_checksum_and_order_do() -> None:
    expected = Verdict(3, 30)
    assert Line("queue", None, Tally(3, 30, True), expected, 1.0).agrees
    assert not Line("queue", None, Tally(2, 30, True), expected, 1.0).agrees
    assert not Line("queue", None, Tally(3, 31, True), expected, 1.0).agrees
    assert not Line("queue", None, Tally(3, 30, False), expected, 1.0).agrees


def outcome_with(tally: Tally) -> Outcome:
    """The outcome of a demo in which one consumer got `tally` of three messages."""
    line = Line("topic", "carrier = 'UA'", Tally(3, 30, True), Verdict(3, 30), 1.0)
    return Outcome(3, [line, Line("queue", None, tally, Verdict(3, 30), 1.0)], 1.0, 1.0, 1.0)


def test_the_command_ends_with_0_if_all_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(story, "run_story", lambda limit, progress: outcome_with(Tally(3, 30, True)))
    result = CliRunner().invoke(command.demo, ["flights"])
    assert result.exit_code == 0
    assert "All 2 counts and checksums agree" in result.stdout


@pytest.mark.parametrize("tally", [Tally(2, 30, True), Tally(3, 31, True), Tally(3, 30, False)])
def test_the_command_ends_with_1_on_any_mismatch(monkeypatch: pytest.MonkeyPatch, tally: Tally) -> None:
    monkeypatch.setattr(story, "run_story", lambda limit, progress: outcome_with(tally))
    result = CliRunner().invoke(command.demo, ["flights"])
    assert result.exit_code == 1
    assert "1 of 2 lines do not agree" in result.stdout


def test_the_command_names_the_extra_that_brings_the_flights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    result = CliRunner().invoke(command.demo, ["flights"])
    assert result.exit_code == 2
    assert "pip install 'sievemq[demo]'" in result.stderr


def test_the_command_refuses_a_limit_of_zero() -> None:
    assert CliRunner().invoke(command.demo, ["flights", "--limit", "0"]).exit_code == 2


def test_a_message_lost_or_doubled_shows() -> None:
    """The referee is no rubber stamp: taking away or repeating one flight changes its verdict."""
    flights = list(read_flights(100))
    whole, less, more = (Referee(rows) for rows in (flights, flights[:-1], [*flights, flights[0]]))
    assert len({whole.verdict(None), less.verdict(None), more.verdict(None)}) == 3
    for referee in (whole, less, more):
        referee.close()
