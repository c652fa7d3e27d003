"""Storage for sign-in policies: every field, the versions, and the policies that concern a user."""

from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.accounts import factor_changes
from core.kernel.causes import SYSTEM
from core.kernel.display import PRODUCT
from core.kernel.proofs import Strength
from core.kernel.sign_in_policy import decision
from core.kernel.sign_in_policy.rules import MEMBERS, METHODS, Concerned, PolicyInvalid, Rules
from core.kernel.values import Email
from core.tenancy.model.sign_in_policies import SignInPolicy
from tests.support.builders import add_member, add_organization, run_sql
from tests.support.connections import add_connection
from tests.support.rows import ADA, DAY, HOUR, NOW, account, add
from tests.support.services import add_service, enroll_user
from tests.tables import table

EVERY_MEMBER: Any = {
    "methods": ["password", "passkey", "totp", "provider:websuite"],
    "second_factor": ["everyone", "admins", "high_risk"],
    "phishing_resistant": ["admins"],
    "min_password_length": 14,
    "session_lifetime_minutes": 720,
    "session_idle_minutes": 60,
    "device_trust_days": 0,
    "admin_networks": ["203.0.113.0/24", "2001:db8::/32", "198.51.100.7/32"],
    "invited_domains": ["acme.com", "xn--bcher-kva.example"],
    "grace_days": 14,
    "due_at": {"second_factor": "2026-12-10T09:00:00Z"},
    "until_due": {"second_factor": ["admins"]},
}


def policy(org: UUID | None, service: UUID | None = None, **document: Any) -> SignInPolicy:
    return SignInPolicy(id=uuid4(), org_id=org, service_id=service, rules=Rules.read(document), changed_at=NOW, changed_by=uuid4())


async def put(storage: Postgres, one: SignInPolicy) -> SignInPolicy:
    async with storage.transaction(by=SYSTEM) as tx:
        return replace(one, version=await tx.sign_in_policies.put(one))


async def test_a_policy_is_stored_with_every_rule(storage: Postgres, pool: Pool) -> None:
    acme, globex = await add_organization(pool, "acme"), await add_organization(pool, "globex")
    await put(storage, policy(globex, second_factor=["everyone"]))
    first = await put(storage, policy(acme, **EVERY_MEMBER))
    assert first.rules.document == EVERY_MEMBER
    async with storage.reading() as read:
        assert await read.sign_in_policies.find(acme) == first
        assert await read.sign_in_policies.find(None) is None
    second = await put(storage, replace(first, id=uuid4(), rules=Rules(), changed_at=NOW + HOUR, changed_by=uuid4()))
    assert second.version > first.version
    async with storage.reading() as read:
        assert await read.sign_in_policies.find(acme) == replace(second, id=first.id)


async def test_the_policy_of_an_application_adds_to_that_of_its_organization(storage: Postgres, pool: Pool) -> None:
    acme, globex = await add_organization(pool, "acme"), await add_organization(pool, "globex")
    shop, other = await add_service(pool, acme, "shop"), await add_service(pool, globex, "other")
    await put(storage, policy(globex, other, phishing_resistant=["everyone"]))
    of_shop = await put(storage, policy(acme, shop, second_factor=["everyone"]))
    async with storage.reading() as read:
        alone = await read.sign_in_policies.effective(acme)
        both = await read.sign_in_policies.effective(acme, shop)
        assert await read.sign_in_policies.effective(acme, other) == alone
    assert alone is not None
    assert both is not None
    assert [(part.name, part.rules) for part in both.parts] == [("Acme", Rules()), ("Shop", of_shop.rules)]
    assert both.version == alone.version
    async with storage.transaction(by=SYSTEM) as tx:
        assert await tx.sign_in_policies.remove(acme, shop)
        assert not await tx.sign_in_policies.remove(acme, other)
    async with storage.reading() as read:
        now_alone = await read.sign_in_policies.effective(acme, shop)
    assert now_alone is not None
    assert now_alone.parts == alone.parts
    assert now_alone.version > both.version
    await run_sql(pool, "delete from organizations where id = %s", globex)
    async with storage.reading() as read:
        assert await read.sign_in_policies.find(globex, other) is None


async def test_the_strictest_policy_of_the_users_organizations_counts_for_changes_of_factors(storage: Postgres, pool: Pool) -> None:
    acme, globex = await add_organization(pool, "acme"), await add_organization(pool, "globex")
    user = await add(storage, account(email=ADA))
    await add_member(pool, acme, user.id, confirmed=True)
    await add_member(pool, globex, user.id)

    async def strictest() -> Strength:
        async with storage.reading() as read:
            policies = await read.sign_in_policies.of_user(user.id)
        return max((decision.strictest(each.policy, is_admin=each.is_admin, now=NOW) for each in policies), default=Strength.ONE)

    assert await strictest() is Strength.ONE
    of_admins = await put(storage, policy(acme, phishing_resistant=["admins"], second_factor=["high_risk"]))
    await put(storage, policy(globex, phishing_resistant=["everyone"]))
    assert await strictest() is Strength.ONE
    later = {"second_factor": (NOW + DAY).isoformat()}
    await put(storage, replace(of_admins, rules=Rules.read({"second_factor": ["everyone"], "due_at": later})))
    assert await strictest() is Strength.ONE
    await put(storage, replace(of_admins, rules=Rules.read({"second_factor": ["everyone"]})))
    assert await strictest() is Strength.TWO
    await put(storage, policy(None, phishing_resistant=["everyone"]))
    assert await strictest() is Strength.TWO
    await run_sql(pool, "update users set is_platform_owner = true where id = %s", user.id)
    assert await strictest() is Strength.PHISHING_RESISTANT
    async with storage.reading() as read:
        policies = await read.sign_in_policies.of_user(user.id)
    assert [(one.policy.name, one.is_admin) for one in policies] == [("Acme", False), (PRODUCT, True)]


async def test_the_policies_of_used_applications_count_for_removals_by_others(storage: Postgres, pool: Pool) -> None:
    acme, globex = await add_organization(pool, "acme"), await add_organization(pool, "globex")
    shop, unused, other = (
        await add_service(pool, acme, "shop"),
        await add_service(pool, acme, "unused"),
        await add_service(pool, globex, "other"),
    )
    user = await add(storage, account(email=ADA))

    async def strictest(org_id: UUID | None) -> Strength:
        async with storage.reading() as read:
            return await factor_changes.strictest_anywhere(read, user.id, NOW, org_id)

    await put(storage, policy(acme, unused, phishing_resistant=["everyone"]))
    await put(storage, policy(acme, shop, second_factor=["high_risk"]))
    await put(storage, policy(globex, phishing_resistant=["admins"]))
    await put(storage, policy(globex, other, phishing_resistant=["everyone"]))
    assert await strictest(acme) is Strength.ONE
    async with storage.transaction(by=SYSTEM) as tx:
        assert await enroll_user(tx, shop, user.id, NOW)
    assert [await strictest(org_id) for org_id in (acme, globex, None)] == [Strength.TWO, Strength.ONE, Strength.TWO]
    async with storage.transaction(by=SYSTEM) as tx:
        assert await enroll_user(tx, other, user.id, NOW)
    assert [await strictest(org_id) for org_id in (acme, globex, None)] == [Strength.TWO, *[Strength.PHISHING_RESISTANT] * 2]


async def test_the_required_connections_of_a_user_come_with_the_facts_for_an_address(storage: Postgres, pool: Pool) -> None:
    """For a member, for an application's user, and for an organization without the rule."""
    acme, globex, initech, hooli = [await add_organization(pool, slug) for slug in ("acme", "globex", "initech", "hooli")]
    user, stranger = await add(storage, account(email=ADA)), await add(storage, account("stranger@example.com"))
    await run_sql(
        pool,
        "insert into domains (org_id, domain, challenge, verified_at, created_at) values (%s, 'acme.example', 'x', now(), now())",
        acme,
    )
    for org, is_confirmed in ((acme, True), (globex, False), (hooli, True)):
        await add_member(pool, org, user.id, confirmed=is_confirmed)
    required = {"id": str(uuid4()), "slug": "okta"}
    for org in (acme, globex, initech):
        await put(storage, policy(org, required_connections={"acme.example": required}))
    await put(storage, policy(hooli, second_factor=["everyone"]))
    service = await add_service(pool, initech, "shop")
    async with storage.transaction(by=SYSTEM) as tx:
        assert await enroll_user(tx, service, user.id, NOW)
        assert await tx.sign_in_policies.requirements(stranger.id, stranger.email) == []
        bound = await tx.sign_in_policies.requirements(user.id, Email("ada@it.acme.example"))
        free = await tx.sign_in_policies.requirements(user.id, user.email)
    assert {(each.org_id, each.organization): (each.user.domain, each.is_bound) for each in bound} == {
        (acme, "Acme"): ("acme.example", True),
        (globex, "Globex"): (None, False),
        (initech, "Initech"): (None, False),
    }
    assert [each.is_bound for each in free] == [False, False, False]


async def test_the_address_binds_only_users_who_take_part(storage: Postgres, pool: Pool) -> None:
    """Everyone else can take another address. A link binds them all."""
    counts = {"member": True, "unconfirmed member": True, "blocked": False, "user": True, "blocked user": False, "refused user": False}
    user, links = await add(storage, account(email=ADA)), list[tuple[UUID, UUID]]()
    for number, state in enumerate(counts):
        org = await add_organization(pool, f"acme-{number}")
        insert = "insert into domains (org_id, domain, challenge, verified_at, created_at) values (%s, %s, 'x', now(), now())"
        await run_sql(pool, insert, org, f"{number}.example")
        connection = await add_connection(storage, org)
        links.append((org, connection.id))
        await put(storage, policy(org, required_connections={f"{number}.example": {"id": str(connection.id), "slug": "okta"}}))
        if "user" in state:
            service = await add_service(pool, org, "shop")
            async with storage.transaction(by=SYSTEM) as tx:
                assert await enroll_user(tx, service, user.id, NOW)
        elif state != "blocked":
            await add_member(pool, org, user.id, confirmed=state == "member")
        if "refused" in state:
            await run_sql(
                pool, "insert into end_user_blocks (org_id, user_id, email, since) values (%s, %s, %s, now())", org, user.id, user.email
            )
        if "blocked" in state:
            await run_sql(pool, "insert into directory_blocks (org_id, user_id, since) values (%s, %s, now())", org, user.id)

    async def are_bound() -> dict[str, bool]:
        bound = {}
        async with storage.reading() as read:
            for number, state in enumerate(counts):
                requirements = await read.sign_in_policies.requirements(user.id, Email(f"ada@{number}.example"))
                bound[state] = next(each.is_bound for each in requirements if each.org_id == links[number][0])
        return bound

    assert await are_bound() == counts
    for org, connection_id in links:
        insert = """
            insert into connection_identities (org_id, connection_id, user_id, subject, linked_at, last_used_at)
            values (%s, %s, %s, '4711', now(), now())"""
        await run_sql(pool, insert, org, connection_id, user.id)
    assert await are_bound() == dict.fromkeys(counts, True)


@table(
    ("network", "advice"),
    [
        ("10.0.0.1/8", "Write 10.0.0.0/8"),
        ("2001:db8::7/32", "Write 2001:db8::/32"),
        ("::ffff:127.0.0.1", "127.0.0.1/32"),
        ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
        ("fe80::1%eth0", "has a zone"),
        ("fe80::%eth0/64", "has a zone"),
        ("10.0.0", "is no network"),
        ("", "is no network"),
    ],
)
def test_a_network_that_matches_no_address_is_refused_with_the_right_one(network: str, advice: str) -> None:
    with pytest.raises(PolicyInvalid) as refused:
        Rules.parse({"admin_networks": ["203.0.113.0/24", network]})
    assert advice in refused.value.problem


@table(
    "wrong",
    [
        *({name: value} for name, rule in MEMBERS.items() if rule.limits for value in (rule.limits[0] - 1, rule.limits[1] + 1)),
        *({name: ["somewhere"]} for name in ("methods", "second_factor", "phishing_resistant", "admin_networks", "invited_domains")),
        {"methods": []},
        {"methods": [*METHODS, "backup_code"]},
        {"phishing_resistant": [Concerned.HIGH_RISK]},
        {"admin_networks": ["203.0.113.7/24"]},
        {"admin_networks": [f"203.0.113.{number}" for number in range(51)]},
        {"invited_domains": [f"d{number}.example.com" for number in range(51)]},
    ],
    ids=str,
)
def test_a_wrong_rule_is_refused_by_its_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(PolicyInvalid) as refused:
        Rules.parse(wrong)
    assert [refused.value.member] == [*wrong]
