"""Who may read and write which tenant of a store in Postgres: roles, rights, members."""

from __future__ import annotations

import psycopg
from psycopg import sql

from thence.team.postgres_schema import SCHEMA, TABLES


def admit(
    db: psycopg.Connection[tuple[object, ...]], tenant: str, member: str, *, writes: bool
) -> None:
    """Let a role read a tenant, or write it too. Only the owner of the tables can."""
    role, schema = sql.Identifier(member), sql.Identifier(SCHEMA)
    rights = "SELECT, INSERT, UPDATE, DELETE" if writes else "SELECT"
    grants = [
        "GRANT USAGE ON SCHEMA {schema} TO {role}",
        "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA {schema} TO {role}",
        "GRANT SELECT ON ALL SEQUENCES IN SCHEMA {schema} TO {role}",
        "GRANT SELECT ON {schema}.versions, {schema}.members TO {role}",
    ]
    if writes:
        grants.append("GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO {role}")
    with db.transaction():
        for grant in grants:
            db.execute(sql.SQL(grant).format(role=role, schema=schema))
        for table in TABLES:
            if table != "members":
                grant = f"GRANT {rights} ON {{table}} TO {{role}}"
                named = sql.Identifier(SCHEMA, table)
                db.execute(sql.SQL(grant).format(table=named, role=role))
        db.execute(
            f"INSERT INTO {SCHEMA}.members(tenant, member, writes) VALUES(%s, %s, %s)"
            " ON CONFLICT (tenant, member) DO UPDATE SET writes = excluded.writes",
            (tenant, member, writes),
        )
