"""A sign-in policy's preview against what happens to every member after it was saved."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from itertools import product
from typing import Any
from uuid import UUID

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.kernel.causes import SYSTEM
from core.kernel.connections import WEBSUITE
from core.kernel.proofs import Method, Proof, Proofs
from core.kernel.roles import RoleName
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.support.builders import Api, add_account, add_member, one_factor, run_sql, sign_in, two_factors
from tests.support.direct import set_up
from tests.support.identities import add_identity, at_nowhere
from tests.support.tenants import Tenant
from tests.tenancy.api.policy.policies import preview, save, try_preview

DAY = timedelta(days=1)


@dataclass(frozen=True)
class Kind:
    """A member's role and factors. A user has a password, an identity or a passkey."""

    role: str
    has_password: bool
    has_app: bool
    has_passkey: bool
    has_identity: bool


def kinds() -> Iterator[Kind]:
    for role, has in product(["admin", "member"], product([True, False], repeat=4)):
        kind = Kind(role, *has)
        if kind.has_password or kind.has_passkey or kind.has_identity:
            yield kind


@dataclass(frozen=True)
class SignedInMember:
    id: UUID
    token: str


async def add_member_of(kind: Kind, acme: Tenant, ports: Ports, pool: Pool, number: int) -> SignedInMember:
    """Add a member with a session that used all their factors."""
    has_password, has_app, has_passkey, now = kind.has_password, kind.has_app, kind.has_passkey, ports.clock.now()
    account = await add_account(
        ports,
        f"user{number}@example.com",
        None,
        mfa_enabled_at=now if has_app else None,
        passkey_count=1 if has_passkey else 0,
    )
    hashed = "a hash" if has_password else None
    await run_sql(pool, "update users set password_hash = %s, passkey_count = %s where id = %s", hashed, int(has_passkey), account.id)
    await add_member(pool, acme.org, account.id, kind.role, confirmed=True)
    session = await sign_in(ports, account, acme.org)
    way = "password" if has_password else "websuite"
    if kind.has_identity:
        await add_identity(pool, account.id, "websuite")
    proofs: Proofs = two_factors(now, way) if has_app else one_factor(now, way)
    if has_passkey:
        proofs = (Proof(Method.PASSKEY, now, user_verified=True, phishing_resistant=True),)
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.session_sign_ins.reauthenticate(session.session_id, account.id, proofs)
    return SignedInMember(account.id, session.access_token)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rules", "grace_days"),
    [
        ({"methods": ["password", "passkey", "totp"], "second_factor": ["everyone"], "phishing_resistant": ["admins"]}, 0),
        ({"methods": ["passkey", "provider:websuite"], "second_factor": ["high_risk"]}, 0),
        ({"second_factor": ["admins"], "methods": ["password", "totp", "provider:websuite", "passkey"]}, 7),
        ({"methods": ["password"]}, 0),
    ],
    ids=["factors", "methods", "later", "only passwords"],
)
async def test_a_preview_names_the_members_who_are_then_stopped(
    acme: Tenant, api: Api, app: QuartTrio, ports: Ports, pool: Pool, clock: FakeClock, rules: dict[str, Any], grace_days: int
) -> None:
    await set_up(app, [at_nowhere(WEBSUITE)])
    members = [await add_member_of(kind, acme, ports, pool, number) for number, kind in enumerate(kinds())]
    people = [person.id for person in acme.people.values()]
    await run_sql(pool, "update users set passkey_count = 1, password_hash = 'a hash' where id = any(%s)", people)
    seen = await preview(acme, {**rules, "grace_days": grace_days})
    assert seen["members"]["concerned"] == len(members) + len(acme.people)
    assert (await save(acme, {**rules, "grace_days": grace_days})).status == 200

    async def stopped() -> set[str]:
        answers = {str(member.id): await api.get(acme.path, token=member.token) for member in members}
        assert {answer.status for answer in answers.values()} <= {200, 401, 403}  # 401: the password in place of the passkey
        return {user for user, answer in answers.items() if answer.status == 403 and answer.json["error_code"] == "ENROLMENT_REQUIRED"}

    if grace_days:
        assert await stopped() == set()
        # The tokens have expired by then, so the policy starts at once instead.
        await run_sql(
            pool,
            """
            with started as (
                update sign_in_policies set rules = rules - 'due_at' - 'until_due', version = nextval('sign_in_policy_versions')
                where org_id = %s returning org_id, version)
            update organizations o set sign_in_policy_version = s.version from started s where o.id = s.org_id""",
            acme.org,
        )
    at_last = await stopped()
    assert 0 < len(at_last) < len(members)
    assert len(at_last) == seen["members"]["stopped_later" if grace_days else "stopped_now"]
    assert {person["user_id"] for person in seen["people"]} == at_last


async def test_a_preview_names_a_hundred_members(acme: Tenant, pool: Pool) -> None:
    await run_sql(
        pool,
        """
        with added as (
            insert into users (id, email, origin, created_at, updated_at)
            select gen_random_uuid(), n || '@acme.example', 'platform', now(), now() from generate_series(1, 110) n returning id, email)
        insert into memberships (id, org_id, user_id, email, role, created_at, confirmed_at)
        select gen_random_uuid(), %s, id, email, 'member', now(), now() from added""",
        acme.org,
    )
    seen = await preview(acme, {"second_factor": ["everyone"]})
    assert (seen["members"]["stopped_now"], len(seen["people"])) == (110 + len(acme.people), 100)


async def test_a_preview_names_members_only_to_callers_who_may_see_them(acme: Tenant) -> None:
    for slug, further in (("blind", []), ("viewer", ["members.view"])):
        role = {"slug": slug, "name": slug.title(), "capabilities": ["sign_in_policy.manage", *further]}
        assert (await acme.api.post(f"{acme.path}/roles", role, token=acme.token("owner"))).status == 201
        await acme.join(slug, await add_account(acme.ports, f"{slug}@acme.example", None), RoleName(slug))
    blind, viewer = [(await try_preview(acme, {"second_factor": ["everyone"]}, by=by)).json for by in ("blind", "viewer")]
    assert blind == {**viewer, "people": []}
    assert len(viewer["people"]) == viewer["members"]["stopped_now"] == 5
