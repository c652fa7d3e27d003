"""User attributes in the access tests, and an application's claims."""

from collections.abc import Iterable
from uuid import UUID

from psycopg.types.json import Jsonb

from adapters.postgres.engine.pool import Pool
from tests.support.builders import run_sql


async def add_attributes(pool: Pool, slug: str, org: UUID, users: Iterable[UUID], service: UUID) -> str:
    """Declare an attribute with values for these users, and a service's claim with this attribute. Return the attribute's name."""
    name = "team"  # the same everywhere, as form field names are; the label and the values have the slug
    writers = ["user", "admin", "application"]
    declare = "insert into organization_attributes values (%s, %s, %s, 'text', %s, 'first', 1, now())"
    await run_sql(pool, declare, org, name, f"Team of {slug}", writers)
    for user in users:
        values = Jsonb({name: f"team at {slug}"})
        await run_sql(pool, "insert into attribute_values values (%s, %s, %s, now())", org, user, values)
    document = Jsonb({"fixed": {"tenant": f"claim of {slug}"}, "values": {"team": {"sources": [f"attribute:{name}"], "scope": "profile"}}})
    insert = "insert into service_claims (service_id, org_id, document, sources, changed_at) values (%s, %s, %s, '{attribute}', now())"
    await run_sql(pool, insert, service, org, document)
    await run_sql(pool, "update services set claims_version = nextval('service_claim_versions') where id = %s", service)
    return name
