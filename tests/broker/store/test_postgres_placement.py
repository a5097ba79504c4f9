"""The table of namespaces in PostgreSQL: one shard has a name, whatever is asked at once or lost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial

import pytest
from tests.postgres import Database

from sievemq_broker.domain.journal import NAMESPACE
from sievemq_broker.domain.store import AwayError, FencedError, StoreError
from sievemq_broker.store.lease import Owner

psycopg = pytest.importorskip("psycopg", reason="needs psycopg: the extra postgres")

from sievemq_broker.store import postgres_leases  # noqa: E402
from sievemq_broker.store.blob import pack_value  # noqa: E402
from sievemq_broker.store.postgres_leases import PostgresLeases  # noqa: E402
from sievemq_broker.store.postgres_placement import PostgresPlaces  # noqa: E402
from sievemq_broker.store.postgres_tables import STATEMENTS  # noqa: E402

OLD = r"no tables for several shards .* `sievemq store migrate`"
OWNER = Owner("host 1", "sievemq://me:7672", "", "", "http://me:7680", '{"amqp": 5672}')


class World(ExitStack):
    """Shards and names of one test, in a database of all."""

    def __init__(self, database: Database) -> None:
        super().__init__()
        self.database = database
        self.a, self.b = sorted((database.shard(), database.shard()))

    def places(self) -> PostgresPlaces:
        return self.enter_context(closing(PostgresPlaces(self.database.url, timeout=20)))

    def own(self, shard: str, token: str) -> None:
        leases = self.enter_context(closing(PostgresLeases(self.database.url, shard, timeout=20)))
        assert leases.take(leases.look(), token, OWNER)

    def name(self, name: str) -> str:
        return f"{self.a} {name}"


@pytest.fixture
def world(database: Database) -> Iterator[World]:
    with World(database) as world:
        yield world


def together(*calls: Callable[[], object]) -> list[object]:
    found: list[object] = [None] * len(calls)

    def call(at: int) -> None:
        found[at] = calls[at]()

    threads = [threading.Thread(target=call, args=(at,)) for at in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_two_brokers_that_claim_names_at_once_agree(world: World) -> None:
    first, second = world.places(), world.places()
    names = [world.name(f"{n}\0\ud800") for n in range(20)]
    one, other = together(
        lambda: first.claim(dict.fromkeys(names, world.a)), lambda: second.claim(dict.fromkeys(names, world.b))
    )
    assert one == other == first.find([*names, world.name("nowhere")])
    assert one == first.claim(dict.fromkeys(names, world.b))
    assert sorted([*first.names(world.a), *first.names(world.b)]) == sorted(names)
    assert first.count() >= len(names)


def test_the_owner_moves_a_name_and_a_superseded_one_does_not(world: World) -> None:
    places, name = world.places(), world.name("space")
    world.own(world.a, "first")
    places.claim({name: world.a})
    assert places.move(name, world.a, "first", world.b) == world.b
    assert places.move(name, world.a, "first", "c") == world.b
    places.claim({world.name("other"): world.a})
    world.database.take(world.a, "second")
    with pytest.raises(FencedError):
        places.move(world.name("other"), world.a, "first", world.b)
    assert places.find([world.name("other")]) == {world.name("other"): world.a}


def test_a_move_waits_for_one_that_was_given_up(world: World) -> None:
    """Its COMMIT may still arrive. Until then the lock of the head keeps the next one out, which is tried again."""
    places, name = world.places(), world.name("space")
    world.own(world.a, "token")
    places.claim({name: world.a})
    with psycopg.connect(world.database.url) as given_up:
        given_up.execute("SELECT 1 FROM sievemq.head WHERE shard = %s FOR UPDATE", (world.a,))
        given_up.execute("UPDATE sievemq.namespace SET shard = %s WHERE name = %s", (world.b, name.encode()))
        with pytest.raises(AwayError):
            places.move(name, world.a, "token", "c")
    assert places.move(name, world.a, "token", "c") == world.b


def test_names_of_before_the_cluster_are_found_in_the_stores(world: World) -> None:
    places, name = world.places(), world.name("old")
    key = pack_value(b"", (name,))[4:]
    statement = "INSERT INTO sievemq.definition VALUES (%s, %s, %s, '')"
    with psycopg.connect(world.database.url) as connection:
        connection.execute(statement, (world.b, NAMESPACE.encode(), key))
    assert places.stored([name, world.name("new")], [world.b, world.a]) == {name: world.b}
    assert places.stored([name], [world.a]) == {}
    assert name not in places.all_names()
    places.claim({name: world.b, world.name("never made"): world.b})
    listed = places.all_names()
    assert (listed.get(name), world.name("never made") in listed) == (world.b, False)


def test_patterns_keep_their_order(world: World) -> None:
    places, pattern = world.places(), world.name("*")

    def add(number: int) -> None:
        try:
            world.places().set_pattern(f"{pattern}{number}", world.a)
        except AwayError:  # on a busy machine the lock of another one lasts too long
            add(number)

    together(*(partial(add, number) for number in range(3)))
    before = [each for each in places.patterns() if each[0].startswith(pattern)]
    assert len(before) == 3
    places.set_pattern(before[0][0], world.b)
    places.set_pattern(before[1][0], None)
    after = [each for each in places.patterns() if each[0].startswith(pattern)]
    assert after == [(before[0][0], world.b), before[2]]
    for name, _ in after:
        places.set_pattern(name, None)


def test_the_shards_are_listed_with_what_their_owners_show(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its beats may be rarer than any follower looks, if the lease is long."""
    monkeypatch.setattr(postgres_leases, "_SILENT_SECONDS", 0.0)
    world.own(world.a, "token")
    found = {sight.shard: sight for sight in world.places().shards()}
    assert found[world.a].owner == OWNER


def test_a_broker_and_a_database_agree_on_whether_there_are_several_shards(world: World) -> None:
    """A broker that does not know of the others would serve every namespace."""
    url = world.database.server.new_database()
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in STATEMENTS:
            connection.execute(statement)
        connection.execute("DROP TABLE sievemq.placement")
        with closing(PostgresPlaces(url, timeout=20)) as places, pytest.raises(StoreError, match=OLD):
            places.names("a")
        with (
            closing(PostgresLeases(url, "a", timeout=20, in_cluster=True)) as leases,
            pytest.raises(StoreError, match=OLD),
        ):
            leases.look()
        with closing(PostgresLeases(url, "a", timeout=20, in_cluster=False)) as leases:
            leases.look()
        connection.execute("CREATE TABLE sievemq.placement ()")
        connection.execute("INSERT INTO sievemq.namespace VALUES ('one', 'a')")
        with closing(PostgresLeases(url, "a", timeout=20, in_cluster=False)) as leases:
            leases.look()  # all of them are in this shard
        connection.execute("INSERT INTO sievemq.namespace VALUES ('two', 'b')")
        with (
            closing(PostgresLeases(url, "a", timeout=20, in_cluster=False)) as leases,
            pytest.raises(StoreError, match="over the shards a, b; a broker without the setting shards"),
        ):
            leases.look()
        for known in (PostgresLeases(url, "a", timeout=20, in_cluster=True), PostgresLeases(url, "c", timeout=20)):
            with closing(known):
                known.look()
