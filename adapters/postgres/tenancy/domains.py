"""Domains of organizations."""

from datetime import datetime
from typing import ClassVar, Final, LiteralString
from uuid import UUID

from adapters.postgres.engine.statements import Repository, Row
from core.kernel.values import Domain
from core.tenancy.domains_rules import DomainClaim, DomainTaken

# In the order that `to_claim` expects.
COLUMNS: Final = "org_id, domain, challenge, verified_at, created_at"


def verified_owner(host: LiteralString) -> LiteralString:
    """Return SQL for the id of the organization that verified this domain, or null.

    If no organization verified the domain itself, the closest verified parent domain decides.
    """
    labels = f"string_to_array({host}, '.')"
    return f"""
        (select d.org_id from generate_series(1, cardinality({labels})) number
         join domains d on d.domain = array_to_string(({labels})[number:], '.') and d.verified_at is not null
         order by number limit 1)"""


def to_claim(row: Row) -> DomainClaim:
    return DomainClaim(org_id=row[0], domain=Domain(row[1]), challenge=row[2], verified_at=row[3], created_at=row[4])


class Domains(Repository):
    """Implements `ports.storage.tenancy.Domains`."""

    constraints: ClassVar = {"domains_one_organization": DomainTaken}

    async def by_org(self, org_id: UUID) -> DomainClaim | None:
        return await self._one(to_claim, f"select {COLUMNS} from domains where org_id = %(org_id)s", org_id=org_id)

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
