"""Concurrent answers to invitations: the member limit holds, and only one of many answers wins."""

from collections import Counter
from typing import Any

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.kernel.roles import OWNER
from core.kernel.values import new_id
from core.tenancy import invitations
from ports import Ports
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.support.browser import FakeBrowser, form_token
from tests.support.builders import EMAIL, Answer, Api, add_account, deliver, link, run_concurrently, run_during, run_sql, sign_in
from tests.support.refusals import refused
from tests.support.tenants import Tenant, Tenants
from tests.tenancy.invitations import FULL, WEEK, accept, decline


@pytest.mark.slow
@pytest.mark.parametrize("free", [0, 3, 19])
async def test_concurrent_acceptances_do_not_exceed_the_member_limit(acme: Tenant, api: Api, free: int) -> None:
    await acme.set_member_limit(3 + free)
    responses = [await acme.invite(f"{number}@example.com") for number in range(20)]
    answers = await run_concurrently(20, lambda number: accept(api, responses[number]["token"]))
    assert sorted(answer.status for answer in answers) == [200] * free + [400] * (20 - free)
    assert {refused(answer) for answer in answers if answer.status == 400} == {FULL}
    assert len(await acme.members()) == 3 + free
    assert list((await acme.statuses()).values()).count("accepted") == free
    assert (await acme.actions())["user.joined"] == free


@pytest.mark.slow
@pytest.mark.parametrize("exists", [True, False])
async def test_one_of_many_concurrent_acceptances_wins(acme: Tenant, api: Api, ports: Ports, pool: Pool, exists: bool) -> None:
    response = await acme.invite()
    user = await sign_in(ports, await add_account(ports, EMAIL, None)) if exists else None

    async def act(number: int) -> Answer:
        match number % 3 if user else 0:
            case 0:
                return await accept(api, response["token"])
            case 1:
                return await accept(api, response["invitation"]["token"], token=user.access_token if user else None)
        return await api.post(f"{acme.invitations}/{response['invitation']['id']}/accept", token=acme.token("owner"))

    answers = await run_concurrently(20, act)
    assert sorted(answer.status for answer in answers)[:2] in ([200, 400], [200, 404])
    assert {answer.status for answer in answers} <= {200, 400, 404}
    assert len(await acme.members()) == 4
    assert await acme.actions() == Counter(["user.invited", "invitation.accepted", "user.joined"])
    assert await run_sql(pool, "select count(*) from users where email = %s", EMAIL) == [(1,)]


@pytest.mark.slow
async def test_one_of_many_devices_joins_and_the_others_see_the_next_step(
    acme: Tenant, app: QuartTrio, ports: Ports, pool: Pool, sent: FakeMailTransport
) -> None:
    """All devices open the email's link, and choose a password."""
    await acme.invite()
    await deliver(ports)
    token, path = link(sent.emails[-1]), "/app/invitations/accept"
    devices = [FakeBrowser(app) for _ in range(20)]
    forms = [form_token(await device.open(f"{path}?token={token}")) for device in devices]

    async def act(number: int) -> Answer:
        return await devices[number].send(path, token=token, form_token=forms[number], new_password=f"the password of device {number}")

    answers = await run_concurrently(20, act)
    assert sorted(answer.status for answer in answers) == [303] + [400] * 19
    for answer in answers:
        assert answer.status == 303 or ("already been answered" in answer.text and 'href="/app/sign-in?' in answer.text)
    assert sum([await device.is_in() for device in devices]) == 1
    assert len(await acme.members()) == 4
    assert (await acme.actions())["user.joined"] == 1
    assert await run_sql(pool, "select count(*) from sessions where browser_hash is not null") == [(1,)]


async def test_an_account_that_gets_a_user_at_the_same_time_keeps_its_password(
    acme: Tenant, app: QuartTrio, ports: Ports, pool: Pool, sent: FakeMailTransport
) -> None:
    """A user verifies the address and sets a password, while the invitation page's form arrives."""
    await add_account(ports, EMAIL, verified=False)
    await acme.invite()
    await deliver(ports)
    token, path, device = link(sent.emails[-1]), "/app/invitations/accept", FakeBrowser(app)
    form = form_token(await device.open(f"{path}?token={token}"))
    verified = "update users set email_verified_at = now(), first_verified_at = now() where email = %s"
    answer = await run_during(
        pool, [(verified, (EMAIL,))], lambda: device.send(path, token=token, form_token=form, new_password="another password")
    )
    assert (answer.status, "There is an account with this address already" in answer.text) == (400, True)
    assert len(await acme.members()) == 3
    assert (await acme.api.login()).status == 200


async def test_an_account_that_is_created_at_the_same_time_keeps_its_password(
    acme: Tenant, app: QuartTrio, ports: Ports, pool: Pool, sent: FakeMailTransport
) -> None:
    """A user gets an account in another way, such as another invitation, while the invitation page's form arrives."""
    await acme.invite()
    await deliver(ports)
    token, path, device = link(sent.emails[-1]), "/app/invitations/accept", FakeBrowser(app)
    form = form_token(await device.open(f"{path}?token={token}"))
    created = """
        insert into users (id, email, email_verified_at, first_verified_at, password_hash, origin, created_at, updated_at)
        select gen_random_uuid(), %s, now(), now(), password_hash, 'platform', now(), now() from users where email = %s"""
    other = await add_account(ports, "other@example.com")
    answer = await run_during(
        pool, [(created, (EMAIL, other.email))], lambda: device.send(path, token=token, form_token=form, new_password="another password")
    )
    assert (answer.status, "There is an account with this address already" in answer.text) == (400, True)
    assert len(await acme.members()) == 3
    assert (await acme.api.login()).status == 200


@pytest.mark.slow
async def test_one_of_many_concurrent_answers_wins(acme: Tenant, api: Api, ports: Ports, clock: FakeClock) -> None:
    for number in range(5):
        email = f"{number}@example.com"
        response = await acme.invite(email)
        before = await acme.actions()

        async def act(turn: int, response: dict[str, Any] = response) -> Answer:
            match turn % 3:
                case 0:
                    return await accept(api, response["token"])
                case 1:
                    return await decline(api, response["token"])
            return await api.post(f"{acme.invitations}/{response['invitation']['id']}", token=acme.token("admin"))

        answers = await run_concurrently(21, act)
        assert sorted(answer.status for answer in answers).count(200) == 1
        assert {answer.status for answer in answers} <= {200, 400, 404}
        status = (await acme.statuses())[email]
        assert (email in await acme.members()) == (status == "accepted")
        expected = {
            "accepted": ["invitation.accepted", "user.joined"],
            "rejected": ["invitation.declined"],
            "cancelled": ["invitation.revoked"],
        }
        assert await acme.actions() - before == Counter(expected[status])


@pytest.mark.slow
async def test_concurrent_requests_and_sweeps_expire_an_invitation_once(acme: Tenant, api: Api, ports: Ports, clock: FakeClock) -> None:
    for number in range(5):
        response = await acme.invite(f"{number}@example.com")
        clock.advance(WEEK)
        await acme.sign_in("owner")
        before = await acme.actions()

        async def act(turn: int, response: dict[str, Any] = response) -> int | None:
            match turn % 4:
                case 0:
                    return (await accept(api, response["token"])).status
                case 1:
                    return (await api.post(f"{acme.invitations}/{response['invitation']['id']}", token=acme.token("owner"))).status
                case 2:
                    return (await decline(api, response["token"])).status
            await invitations.sweep(ports, new_id())
            return None

        statuses = await run_concurrently(20, act)
        assert statuses.count(200) <= 1
        assert set(statuses) <= {200, 400, 404, None}
        assert await acme.actions() - before == Counter(["invitation.declined" if 200 in statuses else "invitation.expired"])


@pytest.mark.slow
async def test_concurrent_acceptances_create_one_account(tenants: Tenants, api: Api, pool: Pool) -> None:
    tenants_that_invite = [await tenants.add(f"org-{number}", cast={"owner": OWNER}) for number in range(10)]
    secrets = [(await tenant.invite())["token"] for tenant in tenants_that_invite]

    async def act(number: int) -> Answer:
        if number < 10:
            return await accept(api, secrets[number])
        return await api.post("/api/auth/register", {"email": EMAIL, "password": "correct horse battery staple"})

    answers = await run_concurrently(12, act)
    assert {answer.status for answer in answers} <= {200, 409}
    assert [answer.status for answer in answers].count(200) in (10, 11)
    [(user,)] = await run_sql(pool, "select id from users where email = %s", EMAIL)
    assert await run_sql(pool, "select count(*) from memberships where user_id = %s", user) == [(10,)]
