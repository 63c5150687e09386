"""What a team's store answers to the order of a search: rows, what is shown of them, and words.

FROZEN: `MIGRATION` is a step of the schema. Its functions run as the owner of the tables, as an
index of words cannot be used under row-level security, and ask for themselves who may read.
"""

from __future__ import annotations

from typing import Final

MIGRATION: Final = r"""
    CREATE FUNCTION met(
        in_tenant text, who text, ask text, near text, groups text[], nots text,
        in_project text, in_model text, in_outcome text, since bigint, until bigint,
        over bigint, under bigint, with_titles boolean, enough integer, cap integer,
        most_sessions integer, budget double precision, run integer, era integer
    ) RETURNS TABLE(
        capped boolean, back_to bigint, id bigint, uid text, ts bigint, kind smallint,
        state smallint
    )
        LANGUAGE plpgsql STABLE SECURITY DEFINER ROWS 100
        SET search_path = thence, pg_temp SET plan_cache_mode = force_generic_plan
        SET enable_seqscan = off SET max_parallel_workers_per_gather = 0 SET jit = off
        AS $$
    #variable_conflict use_column
    DECLARE
        uids text[];
        newest bigint;
        step record;
        names text;
        whole tsquery;
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
            -- All questions of one statement share its time.
            capped := seen >= cap OR (back IS NOT NULL AND seen >= enough AND
                extract(epoch FROM clock_timestamp() - statement_timestamp()) > budget);
            EXIT WHEN capped;
            names := (SELECT '(' || string_agg(
                quote_literal(step.sign || who || '.' || number), ' | ') || ')'
                FROM generate_series(step.low, step.high) AS number);
            whole := (ask || ' & ' || names)::tsquery;
            FOR id, uid, ts, kind, state IN
                WITH one AS MATERIALIZED (
                    SELECT w.id, w.uid, w.event_id FROM words AS w
                    WHERE w.tenant || '' = in_tenant AND w.body @@ whole
                        AND (near IS NULL OR w.pieces = 1) AND (uids IS NULL OR w.uid = ANY(uids))
                        AND (since IS NULL OR w.ts >= since) AND (until IS NULL OR w.ts < until)
                    ORDER BY w.id DESC LIMIT cap - seen
                ), of_pieces AS MATERIALIZED (
                    SELECT o.id, o.uid, o.event_id FROM found_in_pieces(in_tenant,
                        near || ' & ' || names, groups, nots, uids, since, until, cap - seen) AS o
                    WHERE near IS NOT NULL
                )
                SELECT o.id, o.uid, e.ts, e.kind, e.state
                FROM (SELECT * FROM one UNION SELECT * FROM of_pieces) AS o
                -- One look for each, by its key: a join may rather read all events.
                CROSS JOIN LATERAL (
                    SELECT x.ts, x.kind, x.state FROM events AS x WHERE x.tenant = in_tenant
                        AND x.uid = o.uid AND x.event_id = o.event_id LIMIT 1
                ) AS e
                ORDER BY o.id DESC LIMIT cap - seen
            LOOP
                seen := seen + 1;
                RETURN NEXT;
            END LOOP;
            back := step.low << CASE step.sign WHEN '@' THEN run ELSE era END;
        END LOOP;
        capped := capped OR seen >= cap;
        -- Planned each time: in a table that was small once any index seems as good.
        RETURN QUERY EXECUTE $q$
            SELECT NULL::boolean, NULL::bigint, -2 * s.id, s.uid, coalesce(s.ended, 0),
                -1::smallint, 0::smallint
            FROM sessions AS s
            WHERE $3 AND s.tenant || '' = $1 AND s.title_words IS NOT NULL
                AND s.title_words @@ $2 AND s.evicted IS NULL AND ($4 IS NULL OR s.uid = ANY($4))
            ORDER BY s.id DESC LIMIT $5 $q$
            USING in_tenant, (ask || ' & ' || quote_literal('#' || who))::tsquery, with_titles,
                uids, most_sessions;
        RETURN QUERY EXECUTE $q$
            SELECT NULL::boolean, NULL::bigint, -2 * s.id - 1, s.uid, coalesce(s.ended, 0),
                -2::smallint, 0::smallint
            FROM digests AS d JOIN sessions AS s ON s.tenant = d.tenant AND s.uid = d.uid
            WHERE d.tenant || '' = $1 AND d.words @@ $2 AND s.evicted IS NOT NULL
                AND ($3 IS NULL OR s.uid = ANY($3))
            ORDER BY s.id DESC LIMIT $4 $q$
            USING in_tenant, (ask || ' & ' || quote_literal('#' || who))::tsquery, uids,
                most_sessions;
        back_to := (SELECT e.ts FROM events AS e WHERE e.tenant = in_tenant AND e.id >= back
            AND e.ts > 0 ORDER BY e.id LIMIT 1);
        id := NULL; uid := NULL; ts := NULL; kind := NULL; state := NULL;
        RETURN NEXT;
    END $$;
    -- What is to be shown: events with their numbers, rows of their sessions.
    -- Events before sessions, as whoever changes both locks them.
    CREATE FUNCTION shown(in_tenant text, ids bigint[], uids text[], accounts text[])
        RETURNS TABLE(
            id bigint, uid text, event_id bigint, ref text, seq bigint, about bytea,
            digest bytea
        )
        LANGUAGE plpgsql STABLE SECURITY DEFINER ROWS 20
        SET search_path = thence, pg_temp SET plan_cache_mode = force_generic_plan
        SET enable_seqscan = off SET max_parallel_workers_per_gather = 0 SET jit = off
        AS $$
    #variable_conflict use_column
    BEGIN
        IF NOT may_read(in_tenant) THEN RETURN; END IF;
        RETURN QUERY
            SELECT e.id, e.uid, e.event_id, e.ref, e.seq, NULL::bytea, NULL::bytea
            FROM unnest(ids) AS wanted CROSS JOIN LATERAL (
                SELECT x.id, x.uid, x.event_id, x.ref, x.seq FROM events AS x
                WHERE x.tenant = in_tenant AND x.id = wanted LIMIT 1
            ) AS e;
        RETURN QUERY EXECUTE $q$
            SELECT NULL::bigint, s.uid, NULL::bigint, NULL::text, NULL::bigint, s.row, d.body
            FROM sessions AS s
            LEFT JOIN digests AS d ON d.tenant = s.tenant AND d.uid = s.uid AND d.uid = ANY($3)
            WHERE s.tenant = $1 AND s.uid = ANY($2) $q$ USING in_tenant, uids, accounts;
    END $$;
    -- Words with a beginning, of some rows that have one; without one, or with a short one, words
    -- with a part, of the newest rows.
    CREATE FUNCTION words_like(
        in_tenant text, who text, beginning text, part text, shortest integer, run integer
    ) RETURNS SETOF text
        LANGUAGE plpgsql STABLE SECURITY DEFINER ROWS 100
        SET search_path = thence, pg_temp SET enable_seqscan = off
        SET max_parallel_workers_per_gather = 0 SET jit = off
        AS $$
    DECLARE
        ask text := quote_literal('#' || who);
        last bigint := (SELECT max(e.id) >> run FROM events AS e WHERE e.tenant = in_tenant);
    BEGIN
        IF NOT may_read(in_tenant) OR last IS NULL THEN RETURN; END IF;
        IF length(beginning) < shortest THEN
            ask := quote_literal('@' || who || '.' || last) || ' | '
                || quote_literal('@' || who || '.' || last - 1);
        END IF;
        IF beginning <> '' THEN
            ask := '(' || ask || ') & ' || quote_literal(replace(beginning, '\', '\\')) || ':*';
        END IF;
        RETURN QUERY
            SELECT DISTINCT u.lexeme FROM (
                SELECT w.body FROM words AS w
                WHERE w.tenant || '' = in_tenant AND w.body @@ ask::tsquery LIMIT 500
            ) AS few CROSS JOIN LATERAL unnest(few.body) AS u
            WHERE starts_with(u.lexeme, beginning) AND strpos(u.lexeme, part) > 0
                AND u.lexeme !~ '^[#@=^]';
    END $$;
    REVOKE ALL ON FUNCTION met, shown, words_like FROM PUBLIC;
    DO $$
    DECLARE member name;
    BEGIN
        FOR member IN SELECT m.member FROM members AS m JOIN pg_roles AS r ON r.rolname = m.member
        LOOP
            EXECUTE format('GRANT EXECUTE ON FUNCTION met, shown, words_like TO %I', member);
        END LOOP;
    END $$
"""
