"""The received invitations, and the hashes that only the recipient can use."""

from datetime import timedelta
from uuid import uuid4

import pytest

from adapters.postgres.engine.pool import Pool
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.support.builders import (
    EMAIL,
    Answer,
    Api,
    SignedIn,
    add_account,
    run_sql,
    sign_in,
)
from tests.support.refusals import BAD, refused
from tests.support.tenants import Tenant, Tenants
from tests.tenancy.invitations import WEEK, accept, decline, sha256


async def list_received(api: Api, session: SignedIn) -> Answer:
    return await api.get("/api/invitations", token=session.access_token)


async def test_a_user_sees_the_invitations_they_received(acme: Tenant, tenants: Tenants, api: Api, ports: Ports, clock: FakeClock) -> None:
    user = await sign_in(ports, await add_account(ports, EMAIL, None))
    first = await acme.invite(role="admin")
    await acme.invite("other@example.com")
    clock.advance(timedelta(seconds=1))
    other = await tenants.add("acme-two")
    second = await other.invite()
    answer = await list_received(api, user)
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.json == [
        {
            **{name: invitation["invitation"][name] for name in ("id", "email", "role", "token", "expires_at", "created_at")},
            "organization": {"slug": tenant.slug, "name": tenant.slug.title()},
        }
        for invitation, tenant in ((second, other), (first, acme))
    ]
    assert first["token"] not in answer.text


async def test_the_received_list_has_only_pending_invitations(
    acme: Tenant, tenants: Tenants, api: Api, ports: Ports, clock: FakeClock
) -> None:
    account = await add_account(ports, EMAIL, None)
    await acme.invite()
    clock.advance(WEEK)
    canceling = await tenants.add("acme-two")
    response = await canceling.invite()
    await api.post(f"{canceling.invitations}/{response['invitation']['id']}", token=canceling.token("owner"))
    await decline(api, (await (await tenants.add("acme-three")).invite())["token"])
    user = await sign_in(ports, account)
    assert (await list_received(api, user)).json == []
    accepted = await (await tenants.add("acme-four")).invite()
    assert len((await list_received(api, user)).json) == 1
    await accept(api, accepted["token"])
    assert (await list_received(api, user)).json == []


async def test_an_unverified_address_has_an_empty_received_list(acme: Tenant, api: Api, ports: Ports, pool: Pool) -> None:
    user = await sign_in(ports, await add_account(ports, EMAIL, None, verified=False))
    response = await acme.invite()
    assert (await list_received(api, user)).json == []
    for answer in (accept, decline):
        assert refused(await answer(api, response["invitation"]["token"], token=user.access_token)) == BAD
    await run_sql(pool, "update users set email_verified_at = now(), first_verified_at = now() where email = %s", EMAIL)
    assert len((await list_received(api, user)).json) == 1


async def test_the_received_list_needs_a_session(api: Api) -> None:
    assert refused(await api.get("/api/invitations")) == (401, "UNAUTHORIZED")


@pytest.mark.parametrize("name", ["accept", "decline"])
async def test_the_hash_from_the_received_list_works_for_the_recipient_only(acme: Tenant, api: Api, ports: Ports, name: str) -> None:
    answer = {"accept": accept, "decline": decline}[name]
    user = await sign_in(ports, await add_account(ports, EMAIL, None))
    eve = await sign_in(ports, await add_account(ports, "eve@example.com", None))
    hashed = (await acme.invite())["invitation"]["token"]
    unknown = await answer(api, str(uuid4()))
    # The inviter sees the hash, too.
    for options in ({}, {"token": acme.token("owner")}, {"token": eve.access_token}):
        refusal = await answer(api, hashed, **options)
        assert refused(refusal) == BAD
        assert refusal.json["error"] == unknown.json["error"]
    assert refused(await answer(api, hashed.upper(), token=user.access_token)) == BAD
    assert refused(await answer(api, sha256(hashed), token=user.access_token)) == BAD
    assert await acme.statuses() == {EMAIL: "pending"}
    [invitation] = (await list_received(api, user)).json
    result = await answer(api, invitation["token"], token=user.access_token)
    assert (result.status, result.json) == (200, {})
    assert await acme.statuses() == {EMAIL: {"accept": "accepted", "decline": "rejected"}[name]}
