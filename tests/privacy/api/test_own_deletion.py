"""DELETE /api/user, and its page: users delete their own account after a recent sign-in (security Y-3)."""

from datetime import timedelta

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.accounts.model.email_queue import EmailKind
from core.kernel.roles import ADMIN
from ports import Ports
from tests.accounts.api.account_pages.paths import page_text
from tests.accounts.profiles import set_profile
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.privacy.api.anonymization.data import DELETED_TABLES, PLACEHOLDER, account_row, add_all_data, columns_with, count_rows
from tests.support.browser import ACCOUNT, HOME, FakeBrowser, hidden_fields, leads_to
from tests.support.builders import EMAIL, PASSWORD, Answer, Api, add_account, deliver, impersonate, run_concurrently, run_sql, sign_in
from tests.support.mfa import add_mfa
from tests.support.platform import Platform
from tests.support.refusals import FORBIDDEN, UNAUTHORIZED, refused
from tests.support.services import add_service
from tests.support.tenants import Tenant

DELETE = f"{ACCOUNT}/delete"
TEN_MINUTES, SECOND = timedelta(minutes=10), timedelta(seconds=1)


@pytest.fixture
async def user(ports: Ports) -> Account:
    return await add_account(ports)


async def delete(api: Api, token: str) -> Answer:
    return await api.delete("/api/user", token=token)


async def is_deleted(pool: Pool, user: Account) -> bool:
    return (await account_row(pool, user.id))["anonymized_at"] is not None


@pytest.mark.slow
async def test_a_member_deletes_their_account_with_the_effects_of_an_anonymization(
    api: Api, ports: Ports, pool: Pool, sent: FakeMailTransport, acme: Tenant, user: Account
) -> None:
    await acme.join("ada", user)
    await add_all_data(acme, user, await add_service(pool, acme.org, "shop"))
    await run_sql(pool, "update users set mfa_enabled_at = null")
    await run_sql(pool, "update passkeys set user_verified = false")  # otherwise the change needs the passkey
    await set_profile(ports, user.id)
    answer = await delete(api, acme.token("ada"))
    assert (answer.status, answer.json) == (200, {"message": "Your account was deleted."})
    assert PLACEHOLDER.fullmatch((await account_row(pool, user.id))["email"])
    assert await columns_with(pool, EMAIL) == {"mails.address"}, "of the goodbye"
    assert await columns_with(pool, "Lovelace") == set()
    assert await count_rows(pool, user.id, *DELETED_TABLES) == dict.fromkeys(DELETED_TABLES, 0)
    assert await run_sql(pool, "select status from subscriptions where user_id = %s", user.id) == [("active",)]
    [entry] = [entry for entry in await acme.log() if entry["action"] == "user.anonymized"]
    assert (entry["actor_id"], entry["target_id"], entry["address"]) == (user.id, str(user.id), "0.0.0.0")  # noqa: S104
    assert await run_sql(pool, "select event_type, actor_id from privacy_log where user_id = %s", user.id) == [("user_anonymized", user.id)]
    await deliver(ports)
    assert [(email.to, email.subject) for email in sent.emails] == [(EMAIL, "Your account was deleted - Gatehouse")]
    assert await columns_with(pool, EMAIL) == set(), "the queue forgets the address of the goodbye"
    assert refused(await delete(api, acme.token("ada"))) == UNAUTHORIZED, "signed out"
    assert (await api.login()).status == 401


async def test_a_user_without_an_organization_deletes_their_account(api: Api, ports: Ports, pool: Pool, user: Account) -> None:
    assert (await delete(api, (await sign_in(ports, user)).access_token)).status == 200
    assert await is_deleted(pool, user)
    columns = "target_id, actor_id, address, agent, details"
    [entry] = await run_sql(pool, f"select {columns} from audit_log where org_id is null and action = 'user.anonymized'")  # noqa: S608
    assert entry == (str(user.id), user.id, "0.0.0.0", "anonymized", {}), "without personal data"  # noqa: S104


async def test_an_address_that_was_never_verified_gets_no_email(api: Api, ports: Ports, pool: Pool) -> None:
    user = await add_account(ports, verified=False)
    assert (await delete(api, (await sign_in(ports, user)).access_token)).status == 200
    assert await run_sql(pool, "select 1 from mails") == []


@pytest.mark.parametrize(("age", "status"), [(TEN_MINUTES, 200), (TEN_MINUTES + SECOND, 401)])
async def test_the_sign_in_must_be_recent(
    api: Api, ports: Ports, pool: Pool, clock: FakeClock, user: Account, age: timedelta, status: int
) -> None:
    token = (await sign_in(ports, user)).access_token
    clock.advance(age)
    answer = await delete(api, token)
    assert answer.status == status
    assert await is_deleted(pool, user) == (status == 200)
    if status == 401:
        assert 'error="insufficient_user_authentication", max_age="600"' in answer.headers["WWW-Authenticate"]
        assert answer.json["error"] == "Confirm that it's you: call POST /api/auth/reauthenticate or sign in again, and repeat this."
        assert (await delete(api, (await api.login()).json["access_token"])).status == 200


async def test_a_session_of_a_device_does_not_count(api: Api, ports: Ports, pool: Pool, user: Account) -> None:
    """The user may have approved another person's device."""
    token = (await sign_in(ports, user)).access_token
    await run_sql(pool, "update sessions set grant_type = 'device_code', authenticated_at = created_at")
    assert refused(await delete(api, token)) == UNAUTHORIZED
    assert not await is_deleted(pool, user)


async def test_with_a_second_factor_the_sign_in_must_have_used_it(
    api: Api, ports: Ports, pool: Pool, clock: FakeClock, user: Account
) -> None:
    app = await add_mfa(ports, user)
    first = {"email": EMAIL, "password": PASSWORD}
    device = {"X-Device-Id": "a device"}
    pre_auth = (await api.post("/api/auth/login", first, headers=device)).json["access_token"]
    tokens = await api.post("/api/auth/mfa/verify", {"code": app.code(), "trust_device": True}, token=pre_auth, headers=device)
    clock.advance(SECOND)
    trusted = await api.post("/api/auth/login", first | {"device_token": tokens.json["device_token"]}, headers=device)
    assert refused(await delete(api, trusted.json["access_token"])) == UNAUTHORIZED, "the trusted device skipped the second factor"
    assert refused(await delete(api, (await sign_in(ports, user)).access_token)) == UNAUTHORIZED
    assert (await delete(api, tokens.json["access_token"])).status == 200
    assert await is_deleted(pool, user)


async def test_owners_and_platform_owners_must_give_up_their_role_first(api: Api, pool: Pool, acme: Tenant, platform: Platform) -> None:
    answer = await delete(api, acme.token("owner"))
    assert (answer.status, answer.json["error"].partition(".")[0]) == (403, "You own Acme")
    answer = await delete(api, platform.token)
    assert (answer.status, "platform owner" in answer.json["error"]) == (403, True)
    assert await run_sql(pool, "select 1 from users where anonymized_at is not null") == []
    assert (await acme.transfer("owner", "admin")).status == 200
    assert (await delete(api, acme.token("owner"))).status == 200
    assert refused(await delete(api, acme.token("admin"))) == FORBIDDEN


async def test_an_impersonator_is_refused(api: Api, ports: Ports, pool: Pool, user: Account, platform: Platform) -> None:
    assert refused(await delete(api, await impersonate(ports, platform.account, user))) == FORBIDDEN
    assert not await is_deleted(pool, user)


@pytest.mark.slow
async def test_no_organization_is_left_with_a_deleted_owner(api: Api, acme: Tenant, pool: Pool) -> None:
    """Deleting an account races with transferring the ownership to it."""
    for name in (f"n{number}" for number in range(5)):
        await acme.join(name, await add_account(acme.ports, f"{name}@example.com", None), ADMIN)
        owner = next(person for person, role in (await acme.roles()).items() if role == "owner")
        answers = await run_concurrently(
            20,
            lambda number, name=name, owner=owner: delete(api, acme.token(name)) if number % 2 else acme.transfer(owner, name),  # type: ignore[misc]
        )
        deleted, transferred = (any(answer.status == 200 for answer in answers[start::2]) for start in (1, 0))
        assert deleted != transferred
        await acme.check()
    assert (
        await run_sql(
            pool, "select 1 from memberships m join users u on u.id = m.user_id where role = 'owner' and anonymized_at is not null"
        )
        == []
    )


# The page


@pytest.fixture
async def browser(app: QuartTrio, user: Account) -> FakeBrowser:
    browser = FakeBrowser(app)
    assert leads_to(await browser.sign_in()) == HOME
    return browser


async def test_the_page_deletes_the_account_after_the_address_is_entered(browser: FakeBrowser, pool: Pool, user: Account) -> None:
    assert "Delete your account" in page_text(await browser.open(ACCOUNT))
    wrong = await browser.submit(DELETE, DELETE, email="eve@example.com")
    assert (wrong.status, "This is not the email address of your account." in page_text(wrong)) == (400, True)
    assert not await is_deleted(pool, user)
    done = await browser.submit(DELETE, DELETE, email=f" {EMAIL.upper()} ")
    assert (done.status, "Your account is deleted" in page_text(done)) == (200, True)
    assert await is_deleted(pool, user)
    assert not await browser.is_in()


async def test_the_page_leads_through_a_confirmation_with_all_factors_and_back(
    browser: FakeBrowser, ports: Ports, pool: Pool, clock: FakeClock, user: Account
) -> None:
    app = await add_mfa(ports, user)
    await browser.submit("/app/sign-out")
    await browser.sign_in_with(app, trust="yes")
    clock.advance(TEN_MINUTES + SECOND)
    confirmation = leads_to(await browser.submit(DELETE, DELETE, email=EMAIL))
    assert confirmation.startswith("/app/reauthenticate?form=")
    page = await browser.open(confirmation)
    assert "delete your account permanently." in page_text(page)
    fields = hidden_fields(page)
    assert (await browser.send("/app/reauthenticate", **fields, password=PASSWORD, code=app.wrong())).status == 401
    assert not await is_deleted(pool, user)
    assert leads_to(await browser.send("/app/reauthenticate", **fields, password=PASSWORD, code=app.code())) == confirmation
    kept = await browser.open(confirmation)
    assert f'action="{DELETE}"' in kept.text
    assert (await browser.send(DELETE, **hidden_fields(kept))).status == 200
    assert await is_deleted(pool, user)


async def test_the_page_says_what_an_owner_must_do_first(browser: FakeBrowser, pool: Pool, acme: Tenant, user: Account) -> None:
    await run_sql(pool, "update memberships set user_id = %s where org_id = %s and role = 'owner'", user.id, acme.org)
    page = await browser.open(DELETE)
    assert (page.status, "You own Acme. Transfer the ownership" in page_text(page)) == (200, True)
    assert f'action="{DELETE}"' not in page.text
    assert (await browser.submit(DELETE, ACCOUNT, email=EMAIL)).status == 403
    assert EmailKind.ACCOUNT_DELETED not in [kind for (kind,) in await run_sql(pool, "select kind from mails")]
