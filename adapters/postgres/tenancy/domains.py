"""The organizations' domains."""

from datetime import datetime
from typing import ClassVar, Final, LiteralString
from uuid import UUID

from adapters.postgres.engine.records import Record
from adapters.postgres.engine.statements import Answer, Repository, Row
from adapters.postgres.kernel.verified_domains import verified_owner
from core.kernel.values import Domain, Email, Page, PageResult
from core.tenancy.model.domains import DomainClaim, DomainTaken, ForeignAccount, ForeignInvitation

CLAIM: Final = Record(DomainClaim, "d", domain=Domain)
VERIFIED_OWNER: Final = verified_owner("%(host)s")
# Keep the pattern: an index finds the addresses at the domain and its subdomains by this pattern. A
# subdomain may belong to another organization.
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


class Domains(Repository):
    """Implements `ports.storage.tenancy.settings.Domains`."""

    constraints: ClassVar = {"domains_one_organization": DomainTaken}

    async def of_organization(self, org_id: UUID) -> list[DomainClaim]:
        sql = f'select {CLAIM.columns} from domains d where d.org_id = %(org_id)s order by d.domain collate "C"'
        return await self._all(CLAIM.read, sql, org_id=org_id)

    async def find(self, org_id: UUID, domain: Domain) -> DomainClaim | None:
        sql = f"select {CLAIM.columns} from domains d where d.org_id = %(org_id)s and d.domain = %(domain)s"
        return await self._one(CLAIM.read, sql, org_id=org_id, domain=domain)

    async def verified_owner_of_host(self, host: str) -> UUID | None:
        return await self._one(_to_id, VERIFIED_OWNER, host=host)

    def verified_owner(self, email: Email) -> Answer[UUID | None]:
        return self._one(_to_id, VERIFIED_OWNER, host=email.domain)

    async def foreign_accounts(self, org_id: UUID, domain: Domain, page: Page) -> PageResult[ForeignAccount]:
        return await self._page(
            lambda row: ForeignAccount(row[0], Email(row[1]), row[2], row[4], row[5]),
            _page(FOREIGN_ACCOUNTS),
            org_id=org_id,
            domain=domain,
            limit=page.limit,
            offset=page.offset,
        )

    async def foreign_invitations(self, org_id: UUID, domain: Domain, page: Page, now: datetime) -> PageResult[ForeignInvitation]:
        return await self._page(
            lambda row: ForeignInvitation(Email(row[1]), row[2], row[4], row[5], row[6]),
            _page(FOREIGN_INVITATIONS),
            org_id=org_id,
            domain=domain,
            limit=page.limit,
            offset=page.offset,
            now=now,
        )

    async def add(self, claim: DomainClaim) -> None:
        await self._run(CLAIM.insert("domains"), **CLAIM.values(claim))

    async def mark_verified(self, org_id: UUID, domain: Domain, now: datetime) -> DomainClaim:
        sql = f"""
            update domains d set verified_at = %(now)s where d.org_id = %(org_id)s and d.domain = %(domain)s
            returning {CLAIM.columns}"""
        verified = await self._one(CLAIM.read, sql, org_id=org_id, domain=domain, now=now)
        assert verified is not None, "the caller has locked the organization and read the claim"
        return verified

    async def remove(self, org_id: UUID, domain: Domain) -> None:
        await self._run("delete from domains where org_id = %(org_id)s and domain = %(domain)s", org_id=org_id, domain=domain)
