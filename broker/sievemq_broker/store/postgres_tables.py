"""The tables of a store in PostgreSQL, all in the schema ``sievemq``, and the function that carries a write.

    format      version; the oldest version whose brokers can use it; and a random id of the database
    head        per shard: token of its owner, epoch, name of the broker. A write locks the row, and does not update it
    lease       per shard: what its owner shows of itself. A beat changes it, a write does not
    written     per shard: number of the last write, next batch, time. A row a write, so that none is updated for ever
    batch       per shard and id: envelopes (blob.py), in pieces of at most PIECE_BYTES
    state       per shard and id: the outcome of them; only where the batch's row says something else
    definition  per shard, kind and key: value
    history     per shard, kind and id: a row of what has happened, as JSON. Not part of a write
    namespace   per name: the shard that has it. The row of a new one is made before its first client is welcomed
    placement   patterns in their order: the shard of a new namespace that one fits

The bytes of batches, states and definitions are those of the embedded store. Kinds and keys are bytes: text in
PostgreSQL has no NUL and no lone surrogates.

The function fails unless the caller's token owns the shard, and it locks the head: so no write of a former owner is
committed after a takeover, whatever was sent together with it. It returns false, and does nothing, if the write is
there already; or, for upkeep, if there was a write since the one whose number it names: a call that was given up may be
carried out late. A write that is one call needs no transaction around it.
"""

from __future__ import annotations

from typing import Final

#: Version of the tables. A newer one is refused; an older one has to be migrated.
FORMAT: Final = 1

#: Bytes of a batch's row in one row of the table: a larger value costs the server and the client several copies.
PIECE_BYTES: Final = 1024 * 1024

#: SQLSTATEs that the function raises: the token owns the shard no more; writes before this one are missing.
FENCED: Final = "SMQ01"
LOST: Final = "SMQ02"


#: Rows live for a short time, and the launcher of autovacuum looks once a minute. The owner vacuums as well. A file is
#: not truncated: that would lock out followers.
def _short_lived(*prefixes: str) -> list[str]:
    settings = ("vacuum_scale_factor = 0", "vacuum_threshold = 5000", "vacuum_cost_delay = 0")
    return [
        setting
        for prefix in prefixes
        for setting in (*[f"{prefix}autovacuum_{each}" for each in settings], f"{prefix}vacuum_truncate = off")
    ]


_WRITE: Final = f"""
CREATE FUNCTION sievemq.write(
    of_shard text, with_token text, number bigint, is_write boolean, is_last boolean, following bigint, at_time bigint,
    gone_batches bigint[], gone_states bigint[], state_ids bigint[], state_rows bytea[],
    batch_ids bigint[], batch_pieces integer[], batch_rows bytea[],
    gone_kinds bytea[], gone_keys bytea[], kinds bytea[], keys bytea[], definitions bytea[]
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    last bigint;
BEGIN
    PERFORM 1 FROM sievemq.head h WHERE h.shard = of_shard AND h.token = with_token FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'another broker owns the shard' USING ERRCODE = '{FENCED}';
    END IF;
    SELECT w.n INTO last FROM sievemq.written w WHERE w.shard = of_shard ORDER BY w.n DESC LIMIT 1;
    last := coalesce(last, 0);
    IF is_write AND number > last + 1 THEN
        RAISE EXCEPTION '%', number - 1 - last USING ERRCODE = '{LOST}';
    ELSIF number <> last + is_write::integer THEN
        RETURN false;
    END IF;
    IF gone_batches IS NOT NULL THEN
        DELETE FROM sievemq.batch b WHERE b.shard = of_shard AND b.id = ANY (gone_batches);
    END IF;
    IF gone_states IS NOT NULL THEN
        DELETE FROM sievemq.state s WHERE s.shard = of_shard AND s.id = ANY (gone_states);
    END IF;
    IF state_ids IS NOT NULL THEN
        INSERT INTO sievemq.state (shard, id, data)
        SELECT of_shard, u.id, u.data FROM unnest(state_ids, state_rows) AS u (id, data)
        ON CONFLICT (shard, id) DO UPDATE SET data = excluded.data;
    END IF;
    IF batch_ids IS NOT NULL THEN
        INSERT INTO sievemq.batch (shard, id, piece, data)
        SELECT of_shard, u.id, u.piece, u.data FROM unnest(batch_ids, batch_pieces, batch_rows) AS u (id, piece, data);
    END IF;
    IF gone_kinds IS NOT NULL THEN
        DELETE FROM sievemq.definition d USING unnest(gone_kinds, gone_keys) AS u (kind, key)
        WHERE d.shard = of_shard AND d.kind = u.kind AND d.key = u.key;
    END IF;
    IF kinds IS NOT NULL THEN
        INSERT INTO sievemq.definition (shard, kind, key, data)
        SELECT of_shard, u.kind, u.key, u.data FROM unnest(kinds, keys, definitions) AS u (kind, key, data)
        ON CONFLICT (shard, kind, key) DO UPDATE SET data = excluded.data;
    END IF;
    IF is_write AND is_last THEN
        INSERT INTO sievemq.written (shard, n, next_batch, time) VALUES (of_shard, number, following, at_time);
        DELETE FROM sievemq.written w WHERE w.shard = of_shard AND w.n = last;
    END IF;
    RETURN true;
END
$$
"""  # noqa: S608

_TABLES: Final = f"""
CREATE TABLE sievemq.format (version integer NOT NULL, oldest integer NOT NULL, id text NOT NULL);
CREATE TABLE sievemq.head (
    shard text PRIMARY KEY, token text NOT NULL, epoch bigint NOT NULL, incarnation text NOT NULL
);
CREATE TABLE sievemq.lease (
    shard text PRIMARY KEY, token text NOT NULL, beat bigint NOT NULL, released boolean NOT NULL,
    name text NOT NULL, url text NOT NULL, address text NOT NULL, settings text NOT NULL, backend integer NOT NULL,
    heir text NOT NULL DEFAULT ''
) WITH (fillfactor = 50);
CREATE TABLE sievemq.written (
    shard text, n bigint, next_batch bigint NOT NULL, time bigint NOT NULL, PRIMARY KEY (shard, n)
) WITH ({", ".join(_short_lived(""))});
CREATE TABLE sievemq.batch (
    shard text, id bigint, piece integer, data bytea NOT NULL, PRIMARY KEY (shard, id, piece)
) WITH ({", ".join(_short_lived("", "toast."))});
ALTER TABLE sievemq.batch ALTER COLUMN data SET STORAGE EXTERNAL;
CREATE TABLE sievemq.state (
    shard text, id bigint, data bytea NOT NULL, PRIMARY KEY (shard, id)
) WITH ({", ".join(_short_lived("", "toast."))});
CREATE TABLE sievemq.definition (
    shard text, kind bytea, key bytea, data bytea NOT NULL, PRIMARY KEY (shard, kind, key)
) WITH ({", ".join(_short_lived("", "toast."))});
INSERT INTO sievemq.format VALUES ({FORMAT}, {FORMAT}, gen_random_uuid()::text)
"""  # noqa: S608

#: What was added since, by table, column or index: ``sievemq store migrate`` makes what an older database lacks.
#: Brokers of both versions can use the tables, so nothing else of them changes.
ADDED: Final = {
    "history": (
        "CREATE TABLE sievemq.history "
        "(shard text, kind text, id bigint, data text NOT NULL, PRIMARY KEY (shard, kind, id))"
    ),
    "lease.http_url": "ALTER TABLE sievemq.lease ADD COLUMN http_url text NOT NULL DEFAULT ''",
    "lease.ports": "ALTER TABLE sievemq.lease ADD COLUMN ports text NOT NULL DEFAULT ''",
    "namespace": "CREATE TABLE sievemq.namespace (name bytea PRIMARY KEY, shard text NOT NULL)",
    "namespace_of_shard": "CREATE INDEX namespace_of_shard ON sievemq.namespace (shard)",
    "placement": (
        "CREATE TABLE sievemq.placement "
        "(position integer PRIMARY KEY, pattern bytea NOT NULL UNIQUE, shard text NOT NULL)"
    ),
}

#: What ``sievemq store init`` executes, in one transaction. A broker executes none of it.
STATEMENTS: Final = (
    "CREATE SCHEMA sievemq", *[each.strip() for each in _TABLES.split(";\n")], *ADDED.values(), _WRITE.strip(),
)  # fmt: skip

#: Tables whose rows come and go.
BUSY: Final = ("batch", "state", "definition", "written")
