"""When sends are written that no call waits for: by what writes cost on the connection, on a clock that tests move."""

from __future__ import annotations

import math

import pytest

from sievemq._engine import SEND_DELAY, Pace

#: Seconds that a write takes here, unless a test says otherwise.
WRITE = 10e-6


class Client:
    """Sends on a connection, and writes when that is due."""

    def __init__(self) -> None:
        self.now, self.pace, self.queued = 1000.0, Pace(), 0
        #: How many sends each write had.
        self.writes: list[int] = []

    def send(self, after: float = 0.0) -> None:
        self.now += after
        self.queued += 1
        if self.now >= self.pace.due:
            self.write()

    def write(self, took: float = WRITE) -> None:
        self.pace.begin(self.now, self.queued)
        self.writes.append(self.queued)
        self.queued = 0
        self.now += took
        self.pace.end(self.now)


@pytest.fixture
def client() -> Client:
    return Client()


def test_the_first_send_is_written_at_once(client: Client) -> None:
    client.send()
    assert client.writes == [1]


@pytest.mark.parametrize("gap", [50e-6, 1e-3, 1.0])
def test_each_send_is_written_by_itself_while_writes_take_a_small_part_of_the_time(client: Client, gap: float) -> None:
    for _ in range(1000):
        client.send(gap)
    assert client.writes == [1] * 1000


def test_sends_that_follow_each_other_closely_are_gathered(client: Client) -> None:
    for _ in range(20_000):
        client.send(5e-6)
    assert sum(client.writes) + client.queued == 20_000
    late = client.writes[100:]
    assert min(late) > 50
    assert (max(late) - 1) * 5e-6 <= SEND_DELAY


@pytest.mark.parametrize("gap", [20e-6, 30e-6])
def test_sends_are_gathered_for_a_few_writes_time_only_unless_they_flood(client: Client, gap: float) -> None:
    for _ in range(20_000):
        client.send(gap)
    assert set(client.writes[100:]) <= {1, 2, 3}


def test_bursts_of_a_sender_that_rests_between_them_are_no_flood(client: Client) -> None:
    """A sender with a timetable of 40,000 messages a second that the system wakes a little late."""
    for _ in range(2_000):
        client.now += 200e-6
        for _ in range(8):
            client.send(2e-6)
    assert max(client.writes) < 16


def test_a_flood_goes_on_when_its_sender_was_without_a_processor(client: Client) -> None:
    for _ in range(40_000):
        client.send(5e-6)
    client.send(0.005)
    client.writes.clear()
    for _ in range(2_000):
        client.send(5e-6)
    assert min(client.writes[5:]) > 50  # a few are written by themselves, as after every rest


def test_a_sender_whose_writes_are_slow_gathers_no_longer_than_in_a_flood(client: Client) -> None:
    for _ in range(200):
        client.queued += 1
        client.now += 20e-6
        if client.now >= client.pace.due:
            client.write(took=0.01)
        assert client.pace.due <= client.now + SEND_DELAY


def test_a_short_burst_after_a_rest_is_written_message_by_message(client: Client) -> None:
    for _ in range(50):
        client.now += 0.1
        for _ in range(4):
            client.send(1e-6)
    assert client.writes == [1] * 200


def test_sends_are_written_at_once_again_when_they_have_become_sparse(client: Client) -> None:
    for _ in range(20_000):
        client.send(5e-6)
    while client.writes[-1] > 1:
        client.send(100e-6)
    assert client.now < 1000.0 + 20_000 * 5e-6 + 0.005
    client.writes.clear()
    for _ in range(100):
        client.send(100e-6)
    assert client.writes == [1] * 100


def test_waiting_for_room_at_the_broker_is_no_rest(client: Client) -> None:
    """A sender that sends as fast as the broker takes it gathers, however often it waits."""
    for _ in range(20_000):
        client.send(5e-6)
    client.writes.clear()
    for _ in range(50):
        client.write()
        client.now += 0.01
        client.pace.waited(client.now)
        for _ in range(100):
            client.send(5e-6)
    assert len(client.writes) <= 50 * 2


def test_one_write_without_the_processor_does_not_change_the_pace(client: Client) -> None:
    for _ in range(100):
        client.send(60e-6)
    client.queued = 1
    client.write(took=0.05)
    client.writes.clear()
    for _ in range(100):
        client.send(60e-6)
    assert client.writes == [1] * 100


def test_writes_that_often_lose_the_processor_are_still_cheap(client: Client) -> None:
    """A broker that the write wakes may take the processor of its sender."""
    for number in range(2_000):
        client.now += 60e-6
        client.queued += 1
        if client.now >= client.pace.due:
            client.write(took=WRITE if number % 2 else 10 * WRITE)
    assert client.writes[-500:] == [1] * 500


def test_nothing_is_due_while_a_write_is_under_way(client: Client) -> None:
    client.pace.begin(client.now, 1)
    assert client.pace.due == math.inf
    client.pace.begin(client.now, 1)  # the socket takes no more
    client.pace.end(client.now + 1.0)
    assert client.pace.due <= client.now + 1.0
    assert client.pace.written == client.now + 1.0
