"""Clients in several processes, killed at any moment: every message is accounted for. ``soak.py`` plays longer."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"chaos_{name}", Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [1, 2])
def test_every_message_is_accounted_for(tmp_path: Path, seed: int) -> None:
    wrong, figures = load("soak").play(seed, 8, tmp_path)
    assert wrong == [], f"seed {seed}, {figures}"
    assert figures["killed"] > 1
    assert figures["deliveries"] > 20


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [1, 2])
def test_exl_04_every_message_is_accounted_for_over_a_failing_network(tmp_path: Path, seed: int) -> None:
    wrong, figures = load("soak").play(seed, 8, tmp_path, cut=True)
    assert wrong == [], f"seed {seed}, {figures}"
    assert figures["cut"] > 5
    assert figures["deliveries"] > 20


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [1, 2])
def test_exl_04_every_message_is_accounted_for_over_a_broker_that_crashes(tmp_path: Path, seed: int) -> None:
    wrong, figures = load("soak").crash(seed, 8, tmp_path)
    assert wrong == [], f"seed {seed}, {figures}"
    assert figures["crashes"] >= 1
    assert figures["deliveries"] > 20


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("how", ["cut", "crash"])
def test_every_message_is_accounted_for_where_senders_wait_for_room(tmp_path: Path, how: str) -> None:
    soak = load("soak")
    play = soak.crash if how == "crash" else lambda *given, **more: soak.play(*given, cut=True, **more)
    wrong, figures = play(3, 8, tmp_path, limit=30)
    assert wrong == [], figures
    assert figures["deliveries"] > 20


KEY = "solo/p1.1/{}/4/-/-"
FIRST, SECOND = KEY.format(1), KEY.format(2)
IN_TX = "solo/p1.1/{}/4/t1/-"


@pytest.mark.parametrize(
    ("lines", "left", "wrong"),
    [
        ([f"1 S {FIRST}", f"2 C {FIRST}", f"3 D solo c1 {FIRST} 1", f"4 A solo {FIRST}"], [], None),
        ([f"1 S {FIRST}"], [], None),
        ([f"1 S {FIRST}", f"2 C {FIRST}"], [(FIRST, 1)], None),
        ([f"1 S {FIRST}", f"2 C {FIRST}"], [], "lost"),
        ([], [(FIRST, 1)], "never sent"),
        ([f"1 S {FIRST}", f"2 D solo c1 {FIRST} 1"], [(FIRST, 1)], "unmarked more than once"),
        ([f"1 S {FIRST}", f"2 D solo c1 {FIRST} 2"], [(FIRST, 2)], "twice with one count"),
        ([f"1 S {FIRST}", f"2 D solo c1 {FIRST} 1", f"3 A solo {FIRST}"], [(FIRST, 2)], "after it was acknowledged"),
        ([f"1 S {FIRST} {SECOND}", f"2 D solo c1 {SECOND} 1", f"3 D solo c1 {FIRST} 1"], [], "out of order"),
        ([f"1 S {FIRST}", f"2 C {FIRST}", "3 W solo c1"], [], None),  # killed when it had it and had not noted it
        ([f"1 S {FIRST}", f"2 C {FIRST}", "3 W solo c1", "4 END"], [], "lost"),
        ([f"1 S {FIRST}", f"2 C {FIRST}", "3 W crew c1"], [], "lost"),
        ([f"1 S {FIRST} {SECOND}", f"2 C {FIRST}", f"3 C {SECOND}", "4 W solo c1"], [], "lost"),
        (
            [f"1 T t1 {IN_TX.format(1)} {IN_TX.format(2)}", "2 TC t1", "3 TK t1", "4 W solo c1"],
            [(IN_TX.format(2), 1)],
            None,
        ),
        ([f"1 T t1 {IN_TX.format(1)} {IN_TX.format(2)}", "2 TC t1", "4 W solo c1"], [(IN_TX.format(2), 1)], None),
        ([f"1 T t1 {IN_TX.format(1)} {IN_TX.format(2)}", "2 TC t1", "3 TK t1", "4 W solo c1"], [], "lost"),
        ([f"1 T t1 {IN_TX.format(1)}"], [(IN_TX.format(1), 1)], "not committed"),
        ([f"1 T t1 {IN_TX.format(1)} {IN_TX.format(2)}", "2 TC t1", "3 TK t1"], [(IN_TX.format(1), 1)], "lost"),
        ([f"1 T t1 {IN_TX.format(1)} {IN_TX.format(2)}", "2 TC t1"], [(IN_TX.format(1), 1)], "neither all nor nothing"),
        ([f"1 T t1 {IN_TX.format(1)}", "2 TC t1"], [], None),
        ([f"1 T t1 {IN_TX.format(1)}", "2 TC t1", "3 TR t1"], [(IN_TX.format(1), 1)], "not committed"),
        ([f"1 S {FIRST}", f"2 F {FIRST} CONNECTION_LOST"], [], None),
        ([f"1 S {FIRST}", f"2 D solo c1 {FIRST} 2", f"3 A solo {FIRST}", f"4 D solo c2 {FIRST} 1"], [], None),
        ([f"1 S {FIRST}", f"2 D solo c1 {FIRST} 2", f"3 A solo {FIRST}", f"4 D solo c2 {FIRST} 3"], [], "came again"),
        ([f"1 S {FIRST}", f"2 D solo c1 {FIRST} 2", f"3 A solo {FIRST}"], [(FIRST, 1)], "after it was acknowledged"),
        ([f"1 S {FIRST}", f"2 F {FIRST} RESOURCE_ALLOCATION"], [], "RESOURCE_ALLOCATION"),
        ([f"1 S {FIRST}", f"2 F {FIRST} SEND_TIMEOUT"], [], None),
        ([f"1 S {FIRST}", f"2 F {FIRST} SEND_TIMEOUT"], [(FIRST, 1)], "was withdrawn"),
    ],
)
def test_the_checker_sees_it(tmp_path: Path, lines: list[str], left: list[tuple[str, int]], wrong: str | None) -> None:
    journal = tmp_path / "player.journal"
    journal.write_text("\n".join(lines))
    found, _ = load("checker").check([journal], {"solo": left})
    assert [line for line in found if wrong is None or wrong not in line] == []
    assert bool(found) == (wrong is not None)


SAMPLE = (50e6, 30, 1.0, 5.0, 0.1, 0.5)


@pytest.mark.parametrize(
    ("place", "times", "wrong"),
    [
        (0, 1.2, None),
        (0, 2.0, "memory"),
        (1, 1.3, None),
        (1, 3.0, "open files"),
        (2, 4.0, None),  # by a few milliseconds
        (2, 9.0, "latency (ms)"),
        (3, 10.0, None),
        (3, 20.0, "p99 of latency"),
    ],
)
def test_a_broker_that_does_not_stay_as_it_is_is_noticed(place: int, times: float, wrong: str | None) -> None:
    steady = load("steady")
    grown = list(SAMPLE)
    grown[place] *= times
    samples = [steady.Sample(*(SAMPLE if number < 30 else grown)) for number in range(60)]
    samples[0] = steady.Sample(*(value * 100 for value in SAMPLE))  # the start is left out
    found, line = steady.judge(samples)
    assert [text for text in found if wrong is None or not text.startswith(wrong)] == []
    assert bool(found) == (wrong is not None)
    assert line.startswith("steady: 54 samples")


def test_a_machine_that_becomes_slower_is_not_the_brokers_fault() -> None:
    steady = load("steady")
    samples = [steady.Sample(50e6, 30, *(value * (1 + number) for value in SAMPLE[2:])) for number in range(60)]
    assert steady.judge(samples)[0] == []


@pytest.mark.parametrize(
    ("place", "times", "wrong"),
    [(0, 1.2, None), (0, 2.0, "memory"), (1, 1.3, None), (1, 3.0, "open"), (2, 1.3, None), (2, 3.0, "stored")],
)
def test_a_broker_that_grows_from_life_to_life_is_noticed(place: int, times: float, wrong: str | None) -> None:
    steady = load("steady")
    before = [50_000_000, 30, 100_000_000]
    grown = list(before)
    grown[place] = int(grown[place] * times)
    found, line = steady.judge_lives([steady.Life(*(before if number < 20 else grown)) for number in range(40)])
    assert [text.split()[0] for text in found] == ([] if wrong is None else [wrong])
    assert line.startswith("steady: 36 lives")
    assert steady.judge_lives([steady.Life(*grown)] * 20) == ([], "steady: 18 lives are too few to tell")


def test_few_samples_are_not_judged() -> None:
    steady = load("steady")
    found, line = steady.judge([steady.Sample(*(value * (1 + number) for value in SAMPLE)) for number in range(20)])
    assert found == []
    assert "too few" in line
