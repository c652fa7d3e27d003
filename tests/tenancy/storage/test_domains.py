"""Storage for domains. Only one organization at a time has verified a domain."""

from dataclasses import replace
from typing import Any, Final
from uuid import UUID, uuid4

import pytest

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.kernel.causes import SYSTEM
from core.kernel.values import Domain
from core.tenancy.model.domains import DomainClaim, DomainTaken
from tests.support.builders import add_organization, run_during, run_sql
from tests.support.rows import HOUR, NOW, SECOND, account, add, within

ACME: Final = Domain("acme.example")


def claim(org: UUID, domain: str = "acme.example", **changes: Any) -> DomainClaim:
    default = DomainClaim(org_id=org, domain=Domain(domain), challenge=f"challenge of {org}", verified_at=None, created_at=NOW - HOUR)
    return replace(default, **changes)


async def put(storage: Postgres, *claims: DomainClaim) -> None:
    async with storage.transaction(by=SYSTEM) as tx:
        for claim in claims:
            await tx.domains.add(claim)


async def all_of(storage: Postgres, *orgs: UUID) -> list[DomainClaim]:
    async with storage.reading() as read:
        return [claim for org in orgs for claim in await read.domains.of_organization(org)]


async def test_every_field_of_a_claim_is_stored_and_read_back(storage: Postgres, pool: Pool) -> None:
    acme, other_tenant = [await add_organization(pool, slug) for slug in ("acme", "twin")]
    acme_claim, twin_claim = claim(acme, verified_at=NOW - SECOND), claim(other_tenant, "twin.example")
    await put(storage, acme_claim, twin_claim)
    assert await all_of(storage, acme, other_tenant, uuid4()) == [acme_claim, twin_claim]


async def test_verification_and_removal_affect_one_domain_of_one_organization(storage: Postgres, pool: Pool) -> None:
    acme, other_tenant = [await add_organization(pool, slug) for slug in ("acme", "twin")]
    await put(storage, acme_claim := claim(acme), second := claim(acme, "acme.test"), twin_claim := claim(other_tenant))
    domain, verified = acme_claim.domain, replace(acme_claim, verified_at=NOW)
    assert await within(storage, lambda tx: tx.domains.mark_verified(acme, domain, NOW)) == verified
    assert await all_of(storage, acme, other_tenant) == [verified, second, twin_claim]
    async with storage.reading() as read:
        assert [await read.domains.find(org, domain) for org in (acme, other_tenant, uuid4())] == [verified, twin_claim, None]
    await within(storage, lambda tx: tx.domains.remove(acme, domain))
    assert await all_of(storage, acme, other_tenant) == [second, twin_claim]


async def test_many_organizations_claim_a_domain_and_one_verifies_it(storage: Postgres, pool: Pool) -> None:
    acme, other_tenant, third = [await add_organization(pool, slug) for slug in ("acme", "twin", "third")]
    await put(storage, claim(acme), claim(other_tenant), other := claim(third, "eu.acme.example"))
    for each in (claim(acme), other):
        await within(storage, lambda tx, each=each: tx.domains.mark_verified(each.org_id, each.domain, NOW))  # type: ignore[misc]
    with pytest.raises(DomainTaken):
        await within(storage, lambda tx: tx.domains.mark_verified(other_tenant, ACME, NOW))
    assert await all_of(storage, acme, other_tenant, third) == [
        claim(acme, verified_at=NOW),
        claim(other_tenant),
        replace(other, verified_at=NOW),
    ]
    await within(storage, lambda tx: tx.domains.remove(acme, ACME))
    assert (await within(storage, lambda tx: tx.domains.mark_verified(other_tenant, ACME, NOW))).verified_at == NOW


async def test_a_verification_waits_for_another_one_of_the_same_domain(storage: Postgres, pool: Pool) -> None:
    acme, other_tenant = [await add_organization(pool, slug) for slug in ("acme", "twin")]
    await put(storage, claim(acme), claim(other_tenant))
    first = [("update domains set verified_at = now() where org_id = %s", (other_tenant,))]
    with pytest.raises(DomainTaken):
        await run_during(pool, first, lambda: within(storage, lambda tx: tx.domains.mark_verified(acme, ACME, NOW)))


async def test_a_domain_is_deleted_with_its_organization(storage: Postgres, pool: Pool) -> None:
    acme, other_tenant = [await add_organization(pool, slug) for slug in ("acme", "twin")]
    await put(storage, claim(acme, verified_at=NOW), twin_claim := claim(other_tenant))
    await within(storage, lambda tx: tx.organizations.delete(acme, NOW))
    assert await all_of(storage, acme, other_tenant) == [twin_claim]
    assert await run_sql(pool, "select count(*) from domains") == [(1,)]


@pytest.mark.parametrize(
    ("address", "at_it"),
    [
        *(("ada@acme.example", True), ("ada@eu.acme.example", True), ("ada@de.eu.acme.example", True)),
        *(("ada@notacme.example", False), ("ada@example.com", False), ("acme.example@other.test", False), ("ada@acme.example.test", False)),
    ],
)
async def test_the_organization_with_the_closest_verified_domain_owns_an_address(
    storage: Postgres, pool: Pool, address: str, at_it: bool
) -> None:
    acme, other_tenant = [await add_organization(pool, slug) for slug in ("acme", "twin")]
    user = await add(storage, account(address))

    async def at_verified_domain() -> list[bool]:
        async with storage.transaction(by=SYSTEM) as tx:
            return [(await tx.accounts.account_control(user.id, org)).at_verified_domain for org in (acme, other_tenant)]

    async def verify(org: UUID, domain: str) -> None:
        await within(storage, lambda tx: tx.domains.mark_verified(org, Domain(domain), NOW))

    await put(storage, claim(acme), claim(other_tenant), claim(acme, "acme.test", verified_at=NOW))
    assert await at_verified_domain() == [False, False]
    await verify(acme, "acme.example")
    assert await at_verified_domain() == [at_it, False]
    # A closer domain counts once it is verified.
    await put(storage, claim(other_tenant, "eu.acme.example"))
    assert await at_verified_domain() == [at_it, False]
    await verify(other_tenant, "eu.acme.example")
    assert await at_verified_domain() == ([False, True] if "eu.acme" in address else [at_it, False])
