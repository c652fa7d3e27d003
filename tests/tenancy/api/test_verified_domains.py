"""What an organization's verified domain is for (security T-6)."""

from uuid import uuid4

import pytest

from core.kernel.causes import SYSTEM
from core.kernel.values import Email
from tests.fakes.outside import FakeTxtRecords
from tests.support.scim import directory_of
from tests.support.tenants import Tenant
from tests.tenancy.domains import DOMAIN, prove_domain, remove_domain


async def test_every_rule_counts_each_verified_domain_of_an_organization(acme: Tenant, other_tenant: Tenant, dns: FakeTxtRecords) -> None:
    """The second domain counts like the first: for routes, other directories, other organizations' acts, and API resources."""
    names = (DOMAIN, "acme.test")
    await acme.api.call(
        "PUT", f"{acme.path}/hrd", {"domains": [{"domain": name, "provider": "codehost"} for name in names]}, token=acme.token("owner")
    )
    others = await directory_of(other_tenant)
    for name in names:
        await others.create_user(f"early@{name}")

    async def counts(name: str) -> set[str]:
        counted = set()
        found = await acme.api.post("/api/auth/lookup-email", {"email": f"ada@{name}"})
        if found.json["org_slug"] == acme.slug:
            counted.add("route")
        if (await others.try_create_user(f"{uuid4()}@eu.{name}")).status == 403:
            counted.add("directories")
        listed = await acme.api.get(f"{acme.path}/domains/{name}/accounts", token=acme.token("owner"))
        if listed.status == 200 and f"early@{name}" in [each["email"] for each in listed.json["accounts"]]:
            counted.add("foreign accounts")
        resource = {"identifier": f"https://{uuid4()}.{name}", "name": "Orders", "scopes": []}
        if (await acme.api.post(f"{acme.path}/api-resources", resource, token=acme.token("owner"))).status == 201:
            counted.add("API resource")
        async with acme.ports.storage.transaction(by=SYSTEM) as tx:
            user = await tx.accounts.by_email(Email(f"early@{name}")) or pytest.fail("the directory has created it")
            if (await tx.accounts.account_control(user.id, acme.org)).at_verified_domain:
                counted.add("control")
        return counted

    every = {"route", "directories", "foreign accounts", "API resource", "control"}
    assert [await counts(name) for name in names] == [set(), set()]
    await prove_domain(acme, dns, names[1])
    assert [await counts(name) for name in names] == [set(), every]
    await prove_domain(acme, dns, names[0])
    assert [await counts(name) for name in names] == [every, every]
    await remove_domain(acme, names[0])
    assert [await counts(name) for name in names] == [set(), every]
