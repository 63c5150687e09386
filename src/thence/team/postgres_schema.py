"""The tables of a store in Postgres, and how a running fleet gets from one schema to the next.

Every table carries the tenant (a team) and the machine; the tenant stands in every unique key and
in every join, so that it can be the distribution column of an engine that spreads tables. A row's
tenant is also what row-level security goes by: `members` says which roles read and write which
tenants, and the owner of the tables sees all.

FROZEN: `MIGRATIONS` is only ever appended to, and each only adds. A program goes on with a store
of a newer schema as long as that schema says so (`oldest`); what it does not know it leaves alone,
since all statements name their columns.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from thence.memory.rows import BOUND_BYTES
from thence.team import postgres_ranking, postgres_vectors

SCHEMA: Final = "thence"

TIER1: Final = ("events", "event_pages", "facts", "shares", "words", "folds", "calls")
TIER2: Final = ("spend", "digests", "signals", "vectors")
TABLES: Final = (
    *("sessions", *TIER1, *TIER2),
    *("owners", "kin", "removals", "tombstones", "pending", "packs", "members"),
)
"""All that hold somebody's data. Beside them `versions` says which migrations were made."""


_HAS_BOUND: Final = " OR ".join(
    f"position('\\x{key}'::bytea IN sessions.row) > 0" for key in BOUND_BYTES
)


class Migration(NamedTuple):
    """One step, and the oldest schema whose programs may go on after it."""

    statements: str
    oldest: int


FIRST_NUMBER: Final = 1 << 24
"""The number of the first event of a store: as many fit below, for sessions that are older."""

LEAST_ROOM: Final = 1 << 20
"""Numbers that must be free below all events of a tenant, so that older sessions are read later."""

MIGRATIONS: tuple[Migration, ...] = (
    Migration(
        """
    CREATE SEQUENCE session_ids;
    CREATE SEQUENCE event_ids;
    CREATE SEQUENCE row_ids;
    CREATE TABLE sessions(
        tenant text COLLATE "C" NOT NULL, uid text COLLATE "C" NOT NULL,
        machine text COLLATE "C" NOT NULL,
        id bigint NOT NULL DEFAULT nextval('session_ids'), agent text COLLATE "C" NOT NULL,
        project text COLLATE "C", model text COLLATE "C", started bigint, ended bigint,
        outcome text COLLATE "C", tokens bigint NOT NULL, ticks bigint NOT NULL,
        raw_bytes bigint NOT NULL, change bigint NOT NULL, discovered bigint, ingested bigint,
        analysed bigint, evicted bigint, pinned boolean NOT NULL DEFAULT false,
        gone boolean NOT NULL DEFAULT false, path text COLLATE "C" NOT NULL,
        distilled bigint NOT NULL DEFAULT 0, redactor bigint NOT NULL, reader bigint NOT NULL,
        cursor bytea NOT NULL, row bytea NOT NULL,
        PRIMARY KEY(tenant, uid)
    );
    CREATE INDEX sessions_ended ON sessions(tenant, ended);
    CREATE INDEX sessions_machine ON sessions(tenant, machine);
    CREATE INDEX sessions_waiting ON sessions(tenant, uid) WHERE analysed IS NULL;
    CREATE TABLE events(
        tenant text COLLATE "C" NOT NULL, uid text COLLATE "C" NOT NULL,
        event_id bigint NOT NULL, machine text COLLATE "C" NOT NULL, id bigint NOT NULL,
        ts bigint NOT NULL, kind smallint NOT NULL, state smallint NOT NULL,
        tool text COLLATE "C", tokens bigint NOT NULL, ref text COLLATE "C",
        derived boolean NOT NULL DEFAULT false,
        PRIMARY KEY(tenant, uid, event_id)
    );
    CREATE INDEX events_order ON events(tenant, id);
    CREATE TABLE words(
        tenant text COLLATE "C" NOT NULL, uid text COLLATE "C" NOT NULL,
        event_id bigint NOT NULL, piece integer NOT NULL, machine text COLLATE "C" NOT NULL,
        pieces integer NOT NULL, id bigint NOT NULL, ts bigint NOT NULL, body tsvector NOT NULL,
        PRIMARY KEY(tenant, uid, event_id, piece)
    );
    CREATE INDEX words_body ON words USING gin(body);
    CREATE INDEX words_pieces ON words USING gin(body) WHERE pieces > 1;
    CREATE TABLE facts(
        tenant text COLLATE "C" NOT NULL, uid text COLLATE "C" NOT NULL, part integer NOT NULL,
        machine text COLLATE "C" NOT NULL, body bytea NOT NULL,
        PRIMARY KEY(tenant, uid, part)
    );
    ALTER TABLE facts ALTER body SET STORAGE EXTERNAL;
    CREATE TABLE shares(
        tenant text COLLATE "C" NOT NULL, uid text COLLATE "C" NOT NULL,
        machine text COLLATE "C" NOT NULL, body bytea NOT NULL,
        PRIMARY KEY(tenant, uid)
    );
    CREATE TABLE owners(
        tenant text COLLATE "C" NOT NULL, key bigint NOT NULL, uid text COLLATE "C" NOT NULL,
        machine text COLLATE "C" NOT NULL,
        PRIMARY KEY(tenant, key)
    );
    CREATE INDEX owners_session ON owners(tenant, uid);
    CREATE TABLE kin(
        tenant text COLLATE "C" NOT NULL, uid text COLLATE "C" NOT NULL,
        other text COLLATE "C" NOT NULL, machine text COLLATE "C" NOT NULL,
        PRIMARY KEY(tenant, uid, other)
    );
    CREATE TABLE spend(
        tenant text COLLATE "C" NOT NULL, uid text COLLATE "C" NOT NULL,
        day text COLLATE "C" NOT NULL, model text COLLATE "C" NOT NULL,
        place text COLLATE "C" NOT NULL, machine text COLLATE "C" NOT NULL,
        input bigint, output bigint, cache_creation bigint, cache_read bigint, cache_1h bigint,
        searches bigint, responses bigint NOT NULL, ticks bigint NOT NULL,
        unpriced bigint NOT NULL,
        PRIMARY KEY(tenant, uid, day, model, place)
    );
    CREATE TABLE digests(
        tenant text COLLATE "C" NOT NULL, uid text COLLATE "C" NOT NULL,
        machine text COLLATE "C" NOT NULL, change bigint NOT NULL, at bigint NOT NULL,
        body bytea NOT NULL, words tsvector NOT NULL,
        PRIMARY KEY(tenant, uid)
    );
    CREATE INDEX digests_words ON digests USING gin(words);
    CREATE TABLE signals(
        tenant text COLLATE "C" NOT NULL, uid text COLLATE "C" NOT NULL,
        id bigint NOT NULL DEFAULT nextval('row_ids'), machine text COLLATE "C" NOT NULL,
        kind text COLLATE "C" NOT NULL, body bytea NOT NULL,
        PRIMARY KEY(tenant, uid, id)
    );
    CREATE TABLE removals(
        tenant text COLLATE "C" NOT NULL, id bigint NOT NULL DEFAULT nextval('row_ids'),
        machine text COLLATE "C" NOT NULL, at bigint NOT NULL, what text COLLATE "C" NOT NULL,
        body text,
        PRIMARY KEY(tenant, id)
    );
    CREATE TABLE tombstones(
        tenant text COLLATE "C" NOT NULL, uid_hash bytea NOT NULL,
        machine text COLLATE "C" NOT NULL,
        PRIMARY KEY(tenant, uid_hash)
    );
    CREATE TABLE pending(
        tenant text COLLATE "C" NOT NULL, name text COLLATE "C" NOT NULL,
        machine text COLLATE "C" NOT NULL,
        PRIMARY KEY(tenant, name)
    );
    CREATE TABLE packs(
        tenant text COLLATE "C" NOT NULL, pack text COLLATE "C" NOT NULL,
        batch text COLLATE "C" NOT NULL, machine text COLLATE "C" NOT NULL, body bytea NOT NULL,
        PRIMARY KEY(tenant, pack, batch)
    );
    ALTER TABLE packs ALTER body SET STORAGE EXTERNAL;
    CREATE TABLE members(
        tenant text COLLATE "C" NOT NULL, member name NOT NULL,
        machine text COLLATE "C" NOT NULL DEFAULT '', writes boolean NOT NULL DEFAULT false,
        PRIMARY KEY(tenant, member)
    );

    -- Who asks, inside a function that runs as its owner too.
    CREATE FUNCTION me() RETURNS name LANGUAGE sql STABLE AS $$
        SELECT coalesce(nullif(current_setting('role', true), 'none'), session_user::text)::name
    $$;
    CREATE FUNCTION mine(writing boolean) RETURNS SETOF text
        LANGUAGE sql STABLE SECURITY DEFINER SET search_path = thence, pg_temp AS $$
        SELECT m.tenant FROM members AS m JOIN pg_roles AS r ON r.rolname = m.member
        WHERE (m.writes OR NOT writing) AND pg_has_role(me(), r.oid, 'USAGE')
    $$;
    CREATE FUNCTION may_read(wanted text) RETURNS boolean
        LANGUAGE sql STABLE SECURITY DEFINER SET search_path = thence, pg_temp AS $$
        SELECT pg_has_role(me(), current_user, 'USAGE') OR wanted IN (SELECT mine(false))
    $$;

    -- No policy lets an index answer @@ before it has judged each row, since @@ may leak what it
    -- looks at. So words are asked here, as the owner, and of one tenant that the asker may read.
    -- Plans that go through the rows of a tenant until enough of them match are ruled out, for
    -- a rare word that is all of them: the index of words is all there is to go by, and every
    -- question names the tenant in its words too.
    CREATE FUNCTION found(
        in_tenant text, ask text, lone boolean, uids text[], since bigint, until bigint, cap integer
    ) RETURNS TABLE(id bigint, uid text, event_id bigint)
        LANGUAGE sql STABLE SECURITY DEFINER ROWS 1000
        SET search_path = thence, pg_temp
        SET enable_seqscan = off SET enable_indexscan = off SET max_parallel_workers_per_gather = 0
        AS $$
        SELECT w.id, w.uid, w.event_id FROM words AS w
        WHERE may_read(in_tenant) AND w.tenant || '' = in_tenant AND w.body @@ ask::tsquery
            AND (NOT lone OR w.pieces = 1) AND (uids IS NULL OR w.uid = ANY(uids))
            AND (since IS NULL OR w.ts >= since) AND (until IS NULL OR w.ts < until)
        ORDER BY w.id DESC LIMIT cap
    $$;
    -- Texts in several pieces: each group of words may be met by another piece.
    CREATE FUNCTION found_in_pieces(
        in_tenant text, any_of text, groups text[], nots text,
        uids text[], since bigint, until bigint, cap integer
    ) RETURNS TABLE(id bigint, uid text, event_id bigint)
        LANGUAGE sql STABLE SECURITY DEFINER ROWS 100
        SET search_path = thence, pg_temp
        SET enable_seqscan = off SET max_parallel_workers_per_gather = 0
        AS $$
        WITH near AS MATERIALIZED (
            SELECT w.id, w.uid, w.event_id, w.body FROM words AS w
            WHERE may_read(in_tenant) AND w.tenant || '' = in_tenant AND w.pieces > 1
                AND w.body @@ any_of::tsquery AND (uids IS NULL OR w.uid = ANY(uids))
                AND (since IS NULL OR w.ts >= since) AND (until IS NULL OR w.ts < until)
        ), met AS (
            SELECT n.id, n.uid, n.event_id
            FROM near AS n, unnest(groups) WITH ORDINALITY AS g(ask, number)
            WHERE n.body @@ g.ask::tsquery
            GROUP BY n.id, n.uid, n.event_id HAVING count(DISTINCT g.number) = cardinality(groups)
        )
        SELECT m.id, m.uid, m.event_id FROM met AS m
        WHERE nots IS NULL OR NOT EXISTS (
            SELECT 1 FROM words AS x WHERE x.tenant = in_tenant AND x.uid = m.uid
                AND x.event_id = m.event_id AND x.body @@ nots::tsquery
        )
        ORDER BY m.id DESC LIMIT cap
    $$;
    CREATE FUNCTION found_digests(in_tenant text, ask text, cap integer)
        RETURNS TABLE(uid text, ended bigint, body bytea)
        LANGUAGE sql STABLE SECURITY DEFINER SET search_path = thence, pg_temp AS $$
        SELECT s.uid, s.ended, d.body FROM digests AS d
        JOIN sessions AS s ON s.tenant = d.tenant AND s.uid = d.uid
        WHERE may_read(in_tenant) AND d.tenant = in_tenant AND d.words @@ ask::tsquery
            AND s.evicted IS NOT NULL
        ORDER BY s.id DESC LIMIT cap
    $$;
    DO $$
    DECLARE name text;
    BEGIN
        FOREACH name IN ARRAY ARRAY[
            'sessions', 'events', 'words', 'facts', 'shares', 'owners', 'kin', 'spend', 'digests',
            'signals', 'removals', 'tombstones', 'pending', 'packs', 'members'
        ] LOOP
            EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
            EXECUTE format(
                'CREATE POLICY reading ON %I FOR SELECT'
                ' USING (tenant = ANY(ARRAY(SELECT thence.mine(false))))', name);
            CONTINUE WHEN name = 'members';
            EXECUTE format(
                'CREATE POLICY writing ON %I'
                ' USING (tenant = ANY(ARRAY(SELECT thence.mine(true))))'
                ' WITH CHECK (tenant = ANY(ARRAY(SELECT thence.mine(true))))', name);
        END LOOP;
    END $$;
    REVOKE ALL ON ALL FUNCTIONS IN SCHEMA thence FROM PUBLIC;
    """,
        1,
    ),
    # How far a machine has pushed a session; it moves with the rows themselves.
    Migration("ALTER TABLE sessions ADD COLUMN pushed bytea", 1),
    # What is long is kept compressed, by what takes a third of the time where the server has it.
    Migration(
        """
    DO $$ BEGIN
        ALTER TABLE words ALTER body SET COMPRESSION lz4;
        ALTER TABLE sessions ALTER row SET COMPRESSION lz4;
        ALTER TABLE digests ALTER body SET COMPRESSION lz4, ALTER words SET COMPRESSION lz4;
    EXCEPTION WHEN feature_not_supported OR invalid_parameter_value THEN NULL;
    END $$
    """,
        1,
    ),
    # A search is one question: going back, judging and numbering are done where the rows are.
    # Its plans are made once for a connection, and hold whatever is asked: no index but that of
    # words can answer, as the tenant is not compared by itself.
    Migration(
        """
    CREATE FUNCTION steps(newest bigint, run integer, era integer)
        RETURNS TABLE(sign text, low bigint, high bigint) LANGUAGE plpgsql IMMUTABLE AS $$
    DECLARE
        runs bigint := 1 << (era - run);
        least_run bigint := greatest(((newest >> era) - 1) * runs, 0);
        count bigint := 1;
    BEGIN
        sign := '@'; high := newest >> run;
        WHILE high >= least_run LOOP
            low := greatest(high - count + 1, least_run);
            RETURN NEXT;
            high := low - 1; count := count * 4;
        END LOOP;
        -- By then a word that has not filled the answer is rare enough to go by eras.
        sign := '^'; high := least_run / runs - 1; count := 1;
        WHILE high >= 0 LOOP
            low := greatest(high - count + 1, 0);
            RETURN NEXT;
            high := low - 1; count := least(count * 4, 1024);
        END LOOP;
    END $$;
    CREATE TYPE candidate AS (
        score double precision, id bigint, uid text, event_id bigint, ts bigint, kind smallint,
        state smallint, ref text
    );
    CREATE FUNCTION looked(
        in_tenant text, who text, ask text, near text, groups text[], nots text,
        in_project text, in_model text, in_outcome text, since bigint, until bigint,
        over bigint, under bigint, worths double precision[], shares double precision[],
        first_ts bigint, span double precision, wanted integer, cap integer,
        budget double precision, run integer, era integer
    ) RETURNS TABLE(
        capped boolean, back_to bigint, score double precision, id bigint, uid text,
        event_id bigint, ts bigint, kind smallint, state smallint, ref text, seq bigint, body bytea
    )
        LANGUAGE plpgsql STABLE SECURITY DEFINER ROWS 20
        SET search_path = thence, pg_temp SET plan_cache_mode = force_generic_plan
        SET enable_seqscan = off SET max_parallel_workers_per_gather = 0 SET jit = off
        AS $$
    #variable_conflict use_column
    DECLARE
        started timestamptz := clock_timestamp();
        uids text[];
        newest bigint;
        step record;
        names text;
        whole tsquery;
        met integer;
        top candidate[];
        best candidate[] := '{}';
        seen integer := 0;
        back bigint;
    BEGIN
        IF NOT may_read(in_tenant) THEN RETURN; END IF;
        IF num_nonnulls(in_project, in_model, in_outcome, since, until, over, under) > 0 THEN
            -- Planned for what is asked: parts of names have an index of their own.
            EXECUTE $q$
                SELECT coalesce(array_agg(s.uid), '{}') FROM sessions AS s WHERE s.tenant = $1
                AND ($2 IS NULL OR lower(coalesce(s.project, '')) LIKE $2 ESCAPE '!')
                AND ($3 IS NULL OR lower(coalesce(s.model, '')) LIKE $3 ESCAPE '!')
                AND ($4 IS NULL OR s.outcome = $4)
                AND ($5 IS NULL OR s.ended >= $5) AND ($6 IS NULL OR s.started < $6)
                AND ($7 IS NULL OR s.ticks > $7) AND ($8 IS NULL OR s.ticks < $8) $q$
                INTO uids USING in_tenant, in_project, in_model, in_outcome, since, until, over,
                    under;
        END IF;
        newest := (SELECT max(e.id) FROM events AS e WHERE e.tenant = in_tenant);
        capped := false;
        FOR step IN SELECT * FROM steps(newest, run, era) LOOP
            capped := seen >= cap OR (seen > wanted AND
                extract(epoch FROM clock_timestamp() - started) > budget);
            EXIT WHEN capped;
            names := (SELECT '(' || string_agg(
                quote_literal(step.sign || who || '.' || number), ' | ') || ')'
                FROM generate_series(step.low, step.high) AS number);
            whole := (ask || ' & ' || names)::tsquery;
            WITH one AS MATERIALIZED (
                SELECT w.id, w.uid, w.event_id FROM words AS w
                WHERE w.tenant || '' = in_tenant AND w.body @@ whole
                    AND (near IS NULL OR w.pieces = 1) AND (uids IS NULL OR w.uid = ANY(uids))
                    AND (since IS NULL OR w.ts >= since) AND (until IS NULL OR w.ts < until)
                ORDER BY w.id DESC LIMIT cap - seen
            ), judged AS MATERIALIZED (
                SELECT worths[e.kind + 1] * shares[e.state + 1]
                    + least(greatest(e.ts - first_ts, 0) / span, 1.0) AS score,
                    o.id, o.uid, o.event_id, e.ts, e.kind, e.state, e.ref
                FROM (SELECT DISTINCT o.id, o.uid, o.event_id FROM one AS o) AS o
                -- One look for each, by its key: a join may rather read all events.
                CROSS JOIN LATERAL (
                    SELECT x.ts, x.kind, x.state, x.ref FROM events AS x WHERE x.tenant = in_tenant
                        AND x.uid = o.uid AND x.event_id = o.event_id LIMIT 1
                ) AS e
            )
            SELECT (SELECT count(*) FROM judged), ARRAY(
                SELECT (j.score, j.id, j.uid, j.event_id, j.ts, j.kind, j.state, j.ref)::candidate
                FROM judged AS j ORDER BY j.score DESC, j.id DESC LIMIT wanted
            ) INTO met, top;
            best := best || top;
            IF near IS NOT NULL THEN
                WITH judged AS MATERIALIZED (
                    SELECT worths[e.kind + 1] * shares[e.state + 1]
                        + least(greatest(e.ts - first_ts, 0) / span, 1.0) AS score,
                        o.id, o.uid, o.event_id, e.ts, e.kind, e.state, e.ref
                    FROM found_in_pieces(in_tenant, near || ' & ' || names, groups, nots, uids,
                        since, until, cap - seen) AS o
                    CROSS JOIN LATERAL (
                        SELECT x.ts, x.kind, x.state, x.ref FROM events AS x
                        WHERE x.tenant = in_tenant AND x.uid = o.uid AND x.event_id = o.event_id
                        LIMIT 1
                    ) AS e
                )
                SELECT met + (SELECT count(*) FROM judged), ARRAY(
                    SELECT (j.score, j.id, j.uid, j.event_id, j.ts, j.kind, j.state, j.ref)
                        ::candidate
                    FROM judged AS j ORDER BY j.score DESC, j.id DESC LIMIT wanted
                ) INTO met, top;
                best := best || top;
            END IF;
            seen := seen + met;
            back := step.low << CASE step.sign WHEN '@' THEN run ELSE era END;
        END LOOP;
        capped := capped OR seen >= cap;
        back_to := (SELECT e.ts FROM events AS e WHERE e.tenant = in_tenant AND e.id >= back
            AND e.ts > 0 ORDER BY e.id LIMIT 1);
        RETURN NEXT;
        -- What is to be shown, with the number of events of its session that come before it.
        best := ARRAY(
            SELECT b FROM unnest(best) AS b ORDER BY b.score DESC, b.id DESC LIMIT wanted
        );
        RETURN QUERY
            WITH of_one AS MATERIALIZED (
                SELECT b.uid, array_agg(b.id ORDER BY b.id) AS ids FROM unnest(best) AS b
                GROUP BY b.uid
            ), numbered AS MATERIALIZED (
                SELECT o.ids[n.bucket] AS id, n.before
                FROM of_one AS o CROSS JOIN LATERAL (
                    SELECT c.bucket, (sum(c.count) OVER (ORDER BY c.bucket) - c.count)::bigint
                        AS before
                    FROM (
                        SELECT width_bucket(e.id, o.ids) AS bucket, count(*) AS count
                        FROM events AS e WHERE e.tenant = in_tenant AND e.uid = o.uid
                            AND e.id <= o.ids[cardinality(o.ids)]
                        GROUP BY 1
                    ) AS c
                ) AS n WHERE n.bucket > 0
            )
            SELECT capped, back_to, b.score, b.id, b.uid, b.event_id, b.ts, b.kind, b.state,
                b.ref, n.before, NULL::bytea
            FROM unnest(best) AS b JOIN numbered AS n ON n.id = b.id;
        -- Then the rows of their sessions, and digests of sessions whose events are gone. Planned
        -- each time: in a table that was small when its plan was made any index seems as good.
        RETURN QUERY EXECUTE $q$
            SELECT NULL::boolean, NULL::bigint, NULL::double precision, NULL::bigint, s.uid,
                NULL::bigint, NULL::bigint, NULL::smallint, NULL::smallint, NULL::text,
                NULL::bigint, s.row
            FROM sessions AS s WHERE s.tenant = $1 AND s.uid = ANY($2) $q$
            USING in_tenant, ARRAY(SELECT DISTINCT b.uid FROM unnest(best) AS b);
        RETURN QUERY EXECUTE $q$
            SELECT NULL::boolean, NULL::bigint, 1.0::double precision, NULL::bigint, s.uid,
                NULL::bigint, coalesce(s.ended, 0), NULL::smallint, NULL::smallint, NULL::text,
                NULL::bigint, d.body
            FROM digests AS d JOIN sessions AS s ON s.tenant = d.tenant AND s.uid = d.uid
            WHERE d.tenant || '' = $1 AND d.words @@ $2 AND s.evicted IS NOT NULL
            ORDER BY s.id DESC LIMIT 50 $q$
            USING in_tenant, (ask || ' & ' || quote_literal('#' || who))::tsquery;
    END $$;
    REVOKE ALL ON FUNCTION looked, steps FROM PUBLIC;
    DO $$
    DECLARE member name;
    BEGIN
        FOR member IN SELECT m.member FROM members AS m JOIN pg_roles AS r ON r.rolname = m.member
        LOOP
            EXECUTE format('GRANT EXECUTE ON FUNCTION looked, steps TO %I', member);
        END LOOP;
    END $$
    """,
        1,
    ),
    # Names that are asked for by parts of them. Where the extension cannot be had the same is
    # found by going through all sessions of the tenant, and `thence doctor` says so.
    Migration(
        """
    DO $$
    DECLARE place text;
    BEGIN
        CREATE EXTENSION IF NOT EXISTS pg_trgm;
        place := (SELECT n.nspname FROM pg_extension AS e
            JOIN pg_namespace AS n ON n.oid = e.extnamespace WHERE e.extname = 'pg_trgm');
        EXECUTE format(
            'CREATE INDEX sessions_parts ON sessions USING gin('
            'lower(coalesce(project, %1$L)) %2$I.gin_trgm_ops,'
            'lower(coalesce(model, %1$L)) %2$I.gin_trgm_ops) WITH (fastupdate = off)', '', place);
    EXCEPTION WHEN insufficient_privilege OR feature_not_supported OR undefined_file
        OR undefined_object THEN NULL;
    END $$
    """,
        1,
    ),
    # By which versions of the fold and of the digest a session was derived.
    Migration(
        """
    ALTER TABLE sessions ADD COLUMN fold bigint NOT NULL DEFAULT 0,
        ADD COLUMN digest bigint NOT NULL DEFAULT 0
    """,
        1,
    ),
    # What continues a session: the state of its fold, and the calls it has seen. A state counts
    # for the change it was written with alone: a program of the schema before leaves it behind.
    Migration(
        """
    CREATE TABLE folds(
        tenant text COLLATE "C" NOT NULL, uid text COLLATE "C" NOT NULL,
        machine text COLLATE "C" NOT NULL, change bigint NOT NULL, body bytea NOT NULL,
        PRIMARY KEY(tenant, uid)
    );
    ALTER TABLE folds ALTER body SET STORAGE EXTERNAL;
    CREATE TABLE calls(
        tenant text COLLATE "C" NOT NULL, uid text COLLATE "C" NOT NULL, key bigint NOT NULL,
        machine text COLLATE "C" NOT NULL,
        PRIMARY KEY(tenant, uid, key)
    );
    CREATE INDEX events_derived ON events(tenant, uid) WHERE derived;
    -- What a program of the schema before evicts or forgets is gone from here too.
    CREATE FUNCTION removed() RETURNS trigger LANGUAGE plpgsql SET search_path = thence, pg_temp
        AS $$
    BEGIN
        DELETE FROM folds AS f WHERE f.tenant = OLD.tenant AND f.uid = OLD.uid;
        DELETE FROM calls AS c WHERE c.tenant = OLD.tenant AND c.uid = OLD.uid;
        RETURN NULL;
    END $$;
    REVOKE ALL ON FUNCTION removed FROM PUBLIC;
    CREATE TRIGGER evicted AFTER UPDATE OF evicted ON sessions FOR EACH ROW
        WHEN (OLD.evicted IS NULL AND NEW.evicted IS NOT NULL) EXECUTE FUNCTION removed();
    CREATE TRIGGER forgotten AFTER DELETE ON sessions FOR EACH ROW EXECUTE FUNCTION removed();
    DO $$
    DECLARE
        name text;
        granted record;
    BEGIN
        FOREACH name IN ARRAY ARRAY['folds', 'calls'] LOOP
            EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
            EXECUTE format(
                'CREATE POLICY reading ON %I FOR SELECT'
                ' USING (tenant = ANY(ARRAY(SELECT thence.mine(false))))', name);
            EXECUTE format(
                'CREATE POLICY writing ON %I'
                ' USING (tenant = ANY(ARRAY(SELECT thence.mine(true))))'
                ' WITH CHECK (tenant = ANY(ARRAY(SELECT thence.mine(true))))', name);
            FOR granted IN SELECT m.member, bool_or(m.writes) AS writes FROM members AS m
                JOIN pg_roles AS r ON r.rolname = m.member GROUP BY m.member
            LOOP
                EXECUTE format('GRANT SELECT ON %I TO %I', name, granted.member);
                CONTINUE WHEN NOT granted.writes;
                EXECUTE format('GRANT INSERT, UPDATE, DELETE ON %I TO %I', name, granted.member);
            END LOOP;
        END LOOP;
    END $$
    """,
        1,
    ),
    # The kinds of events that are derived from one; -1 where nobody has looked yet, as in rows
    # that a program of the schema before writes.
    Migration("ALTER TABLE events ADD COLUMN implied smallint NOT NULL DEFAULT -1", 1),
    # Titles that clients and users make; asked as the owner, as words are.
    Migration(
        """
    ALTER TABLE sessions ADD COLUMN title_words tsvector;
    CREATE INDEX sessions_titles ON sessions USING gin(title_words)
        WHERE title_words IS NOT NULL;
    CREATE FUNCTION titled(
        in_tenant text, ask text, in_project text, in_model text, in_outcome text, since bigint,
        until bigint, over bigint, under bigint, cap integer
    ) RETURNS TABLE(uid text, ended bigint, body bytea)
        LANGUAGE sql STABLE SECURITY DEFINER SET search_path = thence, pg_temp AS $$
        SELECT s.uid, s.ended, s.row FROM sessions AS s
        WHERE may_read(in_tenant) AND s.tenant || '' = in_tenant
            AND s.title_words IS NOT NULL AND s.title_words @@ ask::tsquery AND s.evicted IS NULL
            AND (in_project IS NULL OR lower(coalesce(s.project, '')) LIKE in_project ESCAPE '!')
            AND (in_model IS NULL OR lower(coalesce(s.model, '')) LIKE in_model ESCAPE '!')
            AND (in_outcome IS NULL OR s.outcome = in_outcome)
            AND (since IS NULL OR s.ended >= since) AND (until IS NULL OR s.started < until)
            AND (over IS NULL OR s.ticks > over) AND (under IS NULL OR s.ticks < under)
        ORDER BY s.id DESC LIMIT cap
    $$;
    REVOKE ALL ON FUNCTION titled FROM PUBLIC;
    DO $$
    DECLARE member name;
    BEGIN
        FOR member IN SELECT m.member FROM members AS m JOIN pg_roles AS r ON r.rolname = m.member
        LOOP
            EXECUTE format('GRANT EXECUTE ON FUNCTION titled TO %I', member);
        END LOOP;
    END $$
    """,
        1,
    ),
    # Events with all that was derived of them, in pages. A program of the schema before writes
    # none, and its version of the fold says so.
    Migration(
        """
    ALTER TABLE events ADD COLUMN seq bigint;
    CREATE TABLE event_pages(
        tenant text COLLATE "C" NOT NULL, uid text COLLATE "C" NOT NULL, first bigint NOT NULL,
        machine text COLLATE "C" NOT NULL, body bytea NOT NULL,
        PRIMARY KEY(tenant, uid, first)
    );
    ALTER TABLE event_pages ALTER body SET STORAGE EXTERNAL;
    -- A search says the number that an event has, where it counted those before it.
    -- Planned each time, as below it: any index seems as good while a table is small.
    DO $do$
    BEGIN
        EXECUTE regexp_replace(
            pg_get_functiondef('looked'::regproc),
            'RETURN QUERY\\s+WITH of_one.*n\\.id = b\\.id;',
            $new$RETURN QUERY EXECUTE $q$
            SELECT $1, $2, b.score, b.id, b.uid, b.event_id, b.ts, b.kind, b.state, b.ref, e.seq,
                NULL::bytea
            FROM unnest($3) AS b CROSS JOIN LATERAL (
                SELECT o.seq FROM events AS o
                WHERE o.tenant = $4 AND o.uid = b.uid AND o.event_id = b.event_id LIMIT 1
            ) AS e $q$
            USING capped, back_to, best, in_tenant;$new$);
    END $do$;
    CREATE OR REPLACE FUNCTION removed() RETURNS trigger
        LANGUAGE plpgsql SET search_path = thence, pg_temp AS $$
    BEGIN
        DELETE FROM folds AS f WHERE f.tenant = OLD.tenant AND f.uid = OLD.uid;
        DELETE FROM calls AS c WHERE c.tenant = OLD.tenant AND c.uid = OLD.uid;
        DELETE FROM event_pages AS p WHERE p.tenant = OLD.tenant AND p.uid = OLD.uid;
        RETURN NULL;
    END $$;
    ALTER TABLE event_pages ENABLE ROW LEVEL SECURITY;
    CREATE POLICY reading ON event_pages FOR SELECT
        USING (tenant = ANY(ARRAY(SELECT thence.mine(false))));
    CREATE POLICY writing ON event_pages
        USING (tenant = ANY(ARRAY(SELECT thence.mine(true))))
        WITH CHECK (tenant = ANY(ARRAY(SELECT thence.mine(true))));
    DO $$
    DECLARE granted record;
    BEGIN
        FOR granted IN SELECT m.member, bool_or(m.writes) AS writes FROM members AS m
            JOIN pg_roles AS r ON r.rolname = m.member GROUP BY m.member
        LOOP
            EXECUTE format('GRANT SELECT ON event_pages TO %I', granted.member);
            CONTINUE WHEN NOT granted.writes;
            EXECUTE format('GRANT INSERT, UPDATE, DELETE ON event_pages TO %I', granted.member);
        END LOOP;
    END $$
    """,
        1,
    ),
    Migration(postgres_ranking.MIGRATION, 1),  # what searched before stays for older programs
    # Older sessions are numbered below all others; in a store that is there, above its numbers.
    Migration(
        "SELECT setval('event_ids', greatest((SELECT last_value FROM event_ids), 16777216))", 1
    ),
    Migration(postgres_vectors.MIGRATION, 1),
    # Sessions whose cost is a minimum: sums must say so.
    Migration(
        f"""
    ALTER TABLE sessions ADD COLUMN bound boolean NOT NULL DEFAULT false;
    UPDATE sessions SET bound=true WHERE {_HAS_BOUND};
    CREATE INDEX sessions_bound ON sessions(tenant, ended) WHERE bound;
    """,  # noqa: S608 - of our own constants
        1,
    ),
    Migration("ALTER TABLE digests ADD COLUMN state bytea", 1),  # what the next one goes on from
)
