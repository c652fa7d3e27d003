"""Organizations with provisioned users, for the SCIM rows: a large, a small, and an organization that fills a page."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from core.kernel.values import digest
from core.provisioning.model.directories import new_token
from ops.bench.filling import add_organization
from ops.bench.row import Bench, Filling, Measure, Say, measure_sequentially
from ops.bench.service import Service
from ops.bench.wrk import Request

PAGE: Final = 100
PUSHED: Final = 1000  # users that a change adds to a group or removes
DOMAIN: Final = "people.example"


@dataclass(frozen=True, slots=True)
class Scale:
    """How many users the organizations have."""

    large: int
    small: int = 50
    page: int = PAGE
    gigabytes: float = 2

    def __str__(self) -> str:
        return f"{self.large:,} users in the large organization, {self.small} in the small one, {self.page} in the one with a full page"


@dataclass(frozen=True, slots=True)
class Directory:
    """An organization's directory."""

    org_id: str
    token: str
    users: int
    email: str  # belongs to a user of this directory


def fill(service: Service, scale: Scale, _: Say) -> Sequence[Directory]:
    """Add a large organization, a small organization, and an organization that fills a page."""
    return [add_directory(service, name, users) for name, users in (("large", scale.large), ("small", scale.small), ("page", scale.page))]


def add_directory(service: Service, name: str, users: int) -> Directory:
    """Add an organization with provisioned members and a SCIM token."""
    org_id, (text, prefix) = add_organization(service, name, users), new_token()
    # Two statements: a trigger on memberships reads the user's address, which must be there before.
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


def pushes(bench: Bench) -> Measure:
    """Add 1,000 users to a group with all other users of the large organization, and remove them, in turn.

    The easier condition is an empty group in the same organization.
    """
    on, subjects = bench.shared.get(DIRECTORIES)
    bench.service, directory = on, subjects[0]
    bench.setting = (
        f"1 worker, 1 connection; {directory.users - PUSHED:,} users in the large group; {PUSHED:,} are added and removed in turn"
    )
    large, empty = [partial(measure_sequentially, on, _changes(on, directory, group)) for group in _add_groups(on, directory)]
    bench.easier = empty
    return large


def _add_groups(on: Service, directory: Directory) -> list[str]:
    """Add a group with nearly all users, and an empty group. Return their ids."""
    on.query("update scim_tokens set directory_groups = true where org_id = %(org_id)s", org_id=directory.org_id)
    rows = on.query(
        """
        with made as (
            insert into groups (id, org_id, name, name_key, scim_token_id, member_count, created_at, updated_at, members_changed_at)
            select gen_random_uuid(), t.org_id, g.name, g.name, t.id, g.members, now(), now(), now()
            from scim_tokens t, (values ('large', %(members)s), ('empty', 0)) g (name, members) where t.org_id = %(org_id)s
            returning id, org_id, name),
        filled as (
            insert into group_members (org_id, group_id, user_id, added_at)
            select g.org_id, g.id, u.id, now() from made g join users u on u.origin_org_id = g.org_id
            where g.name = 'large' and u.id <> all (%(pushed)s::uuid[]))
        select id from made order by name desc""",
        org_id=directory.org_id,
        members=directory.users - PUSHED,
        pushed=_pushed(on, directory),
    )
    on.tidy()
    return [str(row[0]) for row in rows]


def _pushed(on: Service, directory: Directory) -> list[str]:
    newest = "select id from users where origin_org_id = %(org_id)s order by created_at desc limit %(count)s"
    return [str(row[0]) for row in on.query(newest, org_id=directory.org_id, count=PUSHED)]


def _changes(on: Service, directory: Directory, group: str) -> list[Request]:
    members = [{"value": user} for user in _pushed(on, directory)]
    operations = [{"op": op, "path": "members", "value": members} for op in ("add", "remove")]
    schemas = ["urn:ietf:params:scim:api:messages:2.0:PatchOp"]
    path = f"/scim/v2/Groups/{group}"
    return [Request("PATCH", path, directory.token, {"schemas": schemas, "Operations": [operation]}) for operation in operations]
