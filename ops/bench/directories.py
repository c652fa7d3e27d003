"""Organizations with provisioned users, for the rows about SCIM: a large one, a small one, and one with as many users as a page."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from core.kernel.values import digest
from core.provisioning.model.directories import new_token
from ops.bench.filling import add_organization
from ops.bench.row import Filling, Say
from ops.bench.service import Service

PAGE: Final = 100
DOMAIN: Final = "people.example"


@dataclass(frozen=True, slots=True)
class Scale:
    """The number of users of the organizations."""

    large: int
    small: int = 50
    page: int = PAGE
    gigabytes: float = 2

    def __str__(self) -> str:
        return f"{self.large:,} users in the large organization, {self.small} in the small one, {self.page} in the one with a full page"


@dataclass(frozen=True, slots=True)
class Directory:
    """The directory of an organization."""

    org_id: str
    token: str
    users: int
    email: str  # of one of them


def fill(service: Service, scale: Scale, _: Say) -> Sequence[Directory]:
    """Add the large organization, the small one, and the one with a full page."""
    return [add_directory(service, name, users) for name, users in (("large", scale.large), ("small", scale.small), ("page", scale.page))]


def add_directory(service: Service, name: str, users: int) -> Directory:
    """Add one organization with provisioned members and a SCIM token."""
    org_id, (text, prefix) = add_organization(service, name, users), new_token()
    # Two statements: a trigger of memberships reads the address of the user, which must be there before.
    service.query(
        """
        with token as (
            insert into scim_tokens (id, org_id, name, prefix, token_hash, created_by, created_at)
            values (gen_random_uuid(), %(org_id)s, 'Directory', %(prefix)s, %(hash)s, gen_random_uuid(), now()))
        insert into users (id, email, email_verified_at, first_verified_at, origin, origin_org_id, created_at, updated_at)
        select md5(%(name)s || n)::uuid, %(name)s || '-' || n || '@' || %(domain)s, at, at, 'scim', %(org_id)s, at, at
        from generate_series(1, %(users)s) n, lateral (select now() - (%(users)s - n) * interval '1 minute' as at) times""",
        org_id=org_id,
        prefix=prefix,
        hash=digest(text),
        name=name,
        users=users,
        domain=DOMAIN,
    )
    service.query(
        """
        with people as (
            select id, row_number() over (order by created_at) as n, created_at as at from users where origin_org_id = %(org_id)s),
        members as (
            insert into memberships (id, org_id, user_id, role, created_at, confirmed_at)
            select gen_random_uuid(), %(org_id)s, id, case when n = 1 then 'owner' else 'member' end, at, at from people)
        insert into scim_users (org_id, user_id, external_id, given_name, family_name, display_name, provisioned, updated_at)
        select %(org_id)s, id, 'external-' || n, 'Given ' || n, 'Family ' || n, 'Person ' || n, true, at from people""",
        org_id=org_id,
    )
    return Directory(str(org_id), text, users, f"{name}-{users // 2}@{DOMAIN}")


DIRECTORIES: Final = Filling("provisioned users", Scale(100_000), Scale(2000), fill)
