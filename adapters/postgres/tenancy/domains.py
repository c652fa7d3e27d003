"""Domains of organizations."""

from datetime import datetime
from typing import ClassVar, Final, LiteralString
from uuid import UUID

from adapters.postgres.engine.statements import DeferredRow, Repository, Row
from core.kernel.values import Domain, Email, Page, PageResult
from core.tenancy.model.domains import DomainClaim, DomainTaken, ForeignAccount, ForeignInvitation

# In the order that `to_claim` expects.
COLUMNS: Final = "org_id, domain, challenge, verified_at, created_at"


def verified_owner(host: LiteralString) -> LiteralString:
    """Return SQL for the id of the organization that verified this domain, or null.

    If no organization verified the domain itself, the closest verified parent domain decides.
    """
    # Keep generate_subscripts: the planner expects fewer rows of generate_series if it knows the
    # host, and would plan the statement anew each time, which takes longer than to execute it. Keep
    # the limit in the lateral subquery: without it the planner may read all domains instead of the
    # index.
    labels = f"string_to_array({host}, '.')"
    return f"""
        (select d.org_id from generate_subscripts({labels}, 1) number
         cross join lateral (
             select org_id from domains where domain = array_to_string(({labels})[number:], '.') and verified_at is not null limit 1) d
         order by number limit 1)"""


VERIFIED_OWNER: Final = verified_owner("%(host)s")
# Keep the pattern: an index finds the addresses at the domain and its subdomains by it. A subdomain
# may belong to another organization.
AT_DOMAIN: Final = f"""
    reverse('.' || split_part(email, '@', 2)) like reverse('.' || %(domain)s) || '%%'
    and {verified_owner("split_part(email, '@', 2)")} = %(org_id)s"""
FOREIGN_ACCOUNTS: Final = f"""
    select id, email, created_at, origin_org_id as by_org from users
    where origin_org_id is not null and origin_org_id <> %(org_id)s and {AT_DOMAIN}"""
FOREIGN_INVITATIONS: Final = f"""
    select id, email, created_at, org_id as by_org, expires_at from invitations
    where status = 'pending' and expires_at > %(now)s and org_id <> %(org_id)s and {AT_DOMAIN}"""


def _page(matching: LiteralString) -> LiteralString:
    return f"""
        with matching as materialized ({matching}),
        page as (select * from matching order by created_at desc, id limit %(limit)s offset %(offset)s)
        select counted.total, p.*, o.slug, o.name
        from (select count(*) as total from matching) counted
        left join (page p left join organizations o on o.id = p.by_org) on true
        order by p.created_at desc, p.id"""


def _to_id(row: Row) -> UUID:
    return UUID(str(row[0]))


def to_claim(row: Row) -> DomainClaim:
    return DomainClaim(org_id=row[0], domain=Domain(row[1]), challenge=row[2], verified_at=row[3], created_at=row[4])


class Domains(Repository):
    """Implements `ports.storage.tenancy.Domains`."""

    constraints: ClassVar = {"domains_one_organization": DomainTaken}

    async def by_org(self, org_id: UUID) -> DomainClaim | None:
        return await self._one(to_claim, f"select {COLUMNS} from domains where org_id = %(org_id)s", org_id=org_id)

    async def verified_owner(self, email: Email) -> UUID | None:
        return await self._one(_to_id, VERIFIED_OWNER, host=email.domain)

    async def verified_owner_of_host(self, host: str) -> UUID | None:
        return await self._one(_to_id, VERIFIED_OWNER, host=host)

    def verified_owner_deferred(self, email: Email) -> DeferredRow[UUID]:
        return self._one_deferred(_to_id, VERIFIED_OWNER, host=email.domain)

    async def foreign_accounts(self, org_id: UUID, domain: Domain, page: Page) -> PageResult[ForeignAccount]:
        rows = await self._all(lambda row: row, _page(FOREIGN_ACCOUNTS), org_id=org_id, domain=domain, limit=page.limit, offset=page.offset)
        accounts = [ForeignAccount(row[1], Email(row[2]), row[3], row[5], row[6]) for row in rows if row[1] is not None]
        return PageResult(accounts, rows[0][0])

    async def foreign_invitations(self, org_id: UUID, domain: Domain, page: Page, now: datetime) -> PageResult[ForeignInvitation]:
        rows = await self._all(
            lambda row: row, _page(FOREIGN_INVITATIONS), org_id=org_id, domain=domain, limit=page.limit, offset=page.offset, now=now
        )
        invitations = [ForeignInvitation(Email(row[2]), row[3], row[5], row[6], row[7]) for row in rows if row[1] is not None]
        return PageResult(invitations, rows[0][0])

    async def put(self, claim: DomainClaim) -> None:
        await self._run(
            """
            insert into domains (org_id, domain, challenge, verified_at, created_at)
            values (%(org_id)s, %(domain)s, %(challenge)s, %(verified_at)s, %(created_at)s)
            on conflict (org_id) do update set
                domain = excluded.domain, challenge = excluded.challenge, verified_at = excluded.verified_at,
                created_at = excluded.created_at""",
            org_id=claim.org_id,
            domain=claim.domain,
            challenge=claim.challenge,
            verified_at=claim.verified_at,
            created_at=claim.created_at,
        )

    async def mark_verified(self, org_id: UUID, now: datetime) -> DomainClaim:
        verified = await self._one(
            to_claim, f"update domains set verified_at = %(now)s where org_id = %(org_id)s returning {COLUMNS}", org_id=org_id, now=now
        )
        assert verified is not None, "the caller has locked the organization and read the claim"
        return verified

    async def remove(self, org_id: UUID) -> None:
        await self._run("delete from domains where org_id = %(org_id)s", org_id=org_id)
