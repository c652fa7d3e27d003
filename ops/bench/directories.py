"""Organizations with provisioned users, for the rows about SCIM: a large one, a small one, and one with as many users as a page."""

import time
import uuid
from dataclasses import dataclass
from typing import Final

import psycopg

from core.kernel.values import digest
from core.provisioning.model.directories import new_token
from ops.bench.filling import FREE_TIER, Report
from ops.bench.service import Service, tidy

FULL: Final = 100_000  # users of the large one
QUICK: Final = 2000
SMALL: Final = 50
PAGE: Final = 100
GIGABYTES: Final = 2.0
DOMAIN: Final = "people.example"


@dataclass(frozen=True, slots=True)
class Directory:
    """The directory of an organization."""

    org_id: str
    token: str
    users: int
    email: str  # of one of them


@dataclass(frozen=True, slots=True)
class Directories:
    """The filled organizations, and the time it took to fill them."""

    large: Directory
    small: Directory
    page: Directory  # with as many users as a page
    seconds: float

    def __str__(self) -> str:
        others = f"{self.small.users} in the small one, {self.page.users} in the one with a full page"
        return f"{self.large.users:,} users in the large organization, {others}"


def add_directories(service: Service, users: int, report: Report) -> Directories:
    """Add organizations with provisioned members and a SCIM token. The large one has `users` members."""
    started = time.monotonic()
    large, small, page = [add_directory(service, name, count) for name, count in (("large", users), ("small", SMALL), ("page", PAGE))]
    report(f"  {users:,} provisioned users after {time.monotonic() - started:.0f} s ...")
    tidy(service)
    return Directories(large, small, page, time.monotonic() - started)


def add_directory(service: Service, name: str, users: int) -> Directory:
    """Add one organization with a limit that allows a million more users."""
    org_id, (text, prefix) = uuid.uuid4(), new_token()
    with psycopg.connect(service.conninfo) as connection:
        connection.execute(
            """
            insert into organizations (id, slug, name, status, tier_id, member_count, max_users, created_at, updated_at, approved_at)
            values (%s, %s, %s, 'active', %s, %s, 10000000, now(), now(), now())""",
            [org_id, name, name.title(), FREE_TIER, users],
        )
        connection.execute(
            """
            insert into scim_tokens (id, org_id, name, prefix, token_hash, created_by, created_at)
            values (gen_random_uuid(), %s, 'Directory', %s, %s, gen_random_uuid(), now())""",
            [org_id, prefix, digest(text)],
        )
        for statement in _PEOPLE:
            connection.execute(statement, {"org_id": org_id, "name": name, "users": users, "domain": DOMAIN})
    return Directory(str(org_id), text, users, f"{name}-{users // 2}@{DOMAIN}")


# Several statements: a trigger of memberships reads the address of the user, which must be there before.
_PEOPLE: Final = (
    "create temporary table people (id uuid, n int, at timestamptz) on commit drop",
    """
    insert into people select gen_random_uuid(), n, now() - (%(users)s - n) * interval '1 minute' from generate_series(1, %(users)s) n""",
    """
    insert into users (id, email, email_verified_at, first_verified_at, origin, origin_org_id, created_at, updated_at)
    select id, %(name)s || '-' || n || '@' || %(domain)s, at, at, 'scim', %(org_id)s, at, at from people""",
    """
    insert into memberships (id, org_id, user_id, role, created_at, confirmed_at)
    select gen_random_uuid(), %(org_id)s, id, case when n = 1 then 'owner' else 'member' end, at, at from people""",
    """
    insert into scim_users (org_id, user_id, external_id, given_name, family_name, display_name, provisioned, updated_at)
    select %(org_id)s, id, 'external-' || n, 'Given ' || n, 'Family ' || n, 'Person ' || n, true, at from people""",
)
