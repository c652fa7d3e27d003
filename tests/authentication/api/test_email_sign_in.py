"""Sign-in by email over the API (security A-3, A-4, A-5, A-7, A-10, B-1, B-2, E-5)."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, LiteralString
from urllib.parse import parse_qs, urlsplit

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.kernel.policy import Policy
from ports import Ports
from tests.authentication.email_sign_ins import LINK_PAGE, REQUEST, code_in, request_code, verify, wrong
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.support.browser import HOME, form_token, leads_to
from tests.support.builders import BASE_URL, EMAIL, Api, add_account, deliver, link, run_sql, sign_in
from tests.support.direct import change_ports
from tests.support.mfa import Authenticator
from tests.support.saml import SamlApplication, posted_response
from tests.support.saml.browser import SamlBrowser
from tests.support.services import add_service
from tests.support.tenants import Tenant


@pytest.fixture
def ports(ports: Ports) -> Ports:
    return replace(ports, policy=Policy(email_sign_in=True))


@pytest.fixture
def next_code(ports: Ports, sent: FakeMailTransport) -> Callable[[], Awaitable[str]]:
    """Deliver the emails, and return the last code."""

    async def read() -> str:
        await deliver(ports)
        return code_in(sent.newest(LINK_PAGE))

    return read


async def test_a_code_gives_the_tokens_of_a_login(
    api: Api, user: Account, pool: Pool, sent: FakeMailTransport, next_code: Callable[[], Awaitable[str]]
) -> None:
    token = await request_code(api)
    code = await next_code()
    answer = await verify(api, token, f"{code[:3]} {code[3:]}")
    assert answer.status == 200
    assert answer.json.keys() == {"access_token", "refresh_token", "expires_in"}
    assert (await api.get("/api/user", token=answer.json["access_token"])).json["email"] == EMAIL
    assert await run_sql(pool, "select provider, success from login_events") == [("email", True)]
    assert [event for (event,) in await run_sql(pool, "select data ->> 'provider' from events where name = 'user.login.success'")] == [
        "email"
    ]
    assert [message.to for message in sent.emails] == [EMAIL]


async def test_a_code_works_once_and_for_15_minutes(
    api: Api, user: Account, clock: FakeClock, sent: FakeMailTransport, next_code: Callable[[], Awaitable[str]]
) -> None:
    token = await request_code(api)
    code = await next_code()
    clock.advance(timedelta(minutes=15) - timedelta(seconds=1))
    assert (await verify(api, token, code)).status == 200
    again = await verify(api, token, code)
    assert (again.status, again.code) == (401, "UNAUTHORIZED")
    token = await request_code(api)
    code = await next_code()
    clock.advance(timedelta(minutes=15))
    assert (await verify(api, token, code)).status == 401
    assert len(sent.emails) == 2


async def test_the_link_signs_in_the_browser_that_opens_it_and_not_the_client(
    api: Api,
    user: Account,
    acme: Tenant,
    pool: Pool,
    browser: SamlBrowser,
    sent: FakeMailTransport,
    next_code: Callable[[], Awaitable[str]],
) -> None:
    """The session in the browser belongs to the platform, although the client asked for a service."""
    await add_service(pool, acme.org)
    token = await request_code(api, org_slug=acme.slug, service_slug="shop")
    code = await next_code()
    page = await browser.open(f"{LINK_PAGE}?token={link(sent.newest(LINK_PAGE))}")
    assert "was requested in another browser" in page.text
    assert leads_to(await browser.send(LINK_PAGE, form_token=form_token(page), token=link(sent.newest(LINK_PAGE)))) == HOME
    begun = await run_sql(pool, "select service_id, browser_hash is not null from sessions where proofs -> 0 ->> 'method' = 'email'")
    assert begun == [(None, True)]
    assert (await verify(api, token, code)).status == 401


async def test_the_code_works_only_for_the_client_that_asked(api: Api, user: Account, next_code: Callable[[], Awaitable[str]]) -> None:
    token = await request_code(api)
    code = await next_code()
    assert (await verify(api, "x" * 43, code)).status == 401
    assert (await verify(api, token, code)).status == 200


async def test_a_newer_request_replaces_the_older_one(
    api: Api, user: Account, clock: FakeClock, next_code: Callable[[], Awaitable[str]]
) -> None:
    older = await request_code(api)
    old_code = await next_code()
    clock.advance(timedelta(seconds=1))
    newer = await request_code(api)
    assert (await verify(api, newer, wrong(old_code))).status == 401, "nothing is sent yet"
    code = await next_code()
    assert (await verify(api, older, old_code)).status == 401
    assert (await verify(api, newer, code)).status == 200


@pytest.mark.slow
async def test_known_and_unknown_addresses_get_the_same_responses(
    api: Api, user: Account, ports: Ports, clock: FakeClock, pool: Pool, sent: FakeMailTransport
) -> None:
    """The responses are also equal when the address asks again, reaches its limit, and enters codes."""
    await add_account(ports, "closed@example.com", deactivated_at=clock.now())
    seen: dict[str, list[Any]] = {}
    for email in (EMAIL, "unknown@example.com", "closed@example.com"):
        answers: list[tuple[Any, ...]] = []
        tokens: list[str] = []
        for _ in range(7):
            clock.advance(timedelta(seconds=20))
            answer = await api.post(REQUEST, {"email": email})
            tokens.append(answer.json["request_token"])
            answers.append((answer.status, answer.json["message"], answer.json["expires_in"], len(tokens[-1])))
            await deliver(ports)
            clock.advance(timedelta(seconds=20))
            for token in tokens:
                answer = await verify(api, token, "000000")
                answers.append((answer.status, answer.json["error"], answer.headers.get("Retry-After")))
                clock.advance(timedelta(seconds=10))
        seen[email] = answers
        clock.advance(timedelta(hours=2))
    assert seen["unknown@example.com"] == seen[EMAIL]
    assert seen["closed@example.com"] == seen[EMAIL]
    assert [message.to for message in sent.emails] == [EMAIL] * 5, "5 emails in an hour"
    assert await run_sql(pool, "select count(*), count(token) from mails") == [(21, 0)]


async def test_five_wrong_codes_end_the_code_and_ten_end_all_codes_of_the_address_for_15_minutes(
    api: Api, user: Account, clock: FakeClock, next_code: Callable[[], Awaitable[str]]
) -> None:
    for _ in range(2):
        token = await request_code(api)
        code = await next_code()
        for _ in range(5):
            clock.advance(timedelta(seconds=10))
            assert (await verify(api, token, wrong(code))).json["error"].startswith("This code is wrong.")
        clock.advance(timedelta(seconds=10))
        ended = await verify(api, token, code)
        assert (ended.status, ended.json["error"][:30]) == (401, "This code can no longer be use")
    token = await request_code(api)
    blocked = await verify(api, token, await next_code())
    assert (blocked.status, blocked.code) == (429, "RATE_LIMIT_EXCEEDED")
    assert "use the link in the email" in blocked.json["error"]
    assert int(blocked.headers["Retry-After"]) > 600
    assert (await api.login()).status == 200, "passwords are counted separately"
    clock.advance(timedelta(minutes=15))
    token = await request_code(api)
    assert (await verify(api, token, await next_code())).status == 200


async def test_a_sign_in_with_the_link_ends_the_wait_of_the_codes(
    api: Api, user: Account, browser: SamlBrowser, sent: FakeMailTransport, next_code: Callable[[], Awaitable[str]]
) -> None:
    for _ in range(2):
        token = await request_code(api)
        code = await next_code()
        for _ in range(5):
            await verify(api, token, wrong(code))
    token = await request_code(api)
    assert (await verify(api, token, await next_code())).status == 429
    page = await browser.open(f"{LINK_PAGE}?token={link(sent.newest(LINK_PAGE))}")
    assert leads_to(await browser.send(LINK_PAGE, form_token=form_token(page), token=link(sent.newest(LINK_PAGE)))) == HOME
    token = await request_code(api)
    assert (await verify(api, token, await next_code())).status == 200


async def test_a_malformed_code_counts_as_no_attempt(api: Api, user: Account, pool: Pool) -> None:
    token = await request_code(api)
    for code in ("", "12345", "1234567", "abcdef", "\u0661\u0662\u0663\u0664\u0665\u0666"):
        assert (await verify(api, token, code)).status == 400, code
    assert await run_sql(pool, "select failures from sign_in_flows") == [(0,)]


async def test_the_second_factor_is_still_required(
    api: Api, user: Account, factor: Authenticator, pool: Pool, next_code: Callable[[], Awaitable[str]]
) -> None:
    token = await request_code(api)
    pending = (await verify(api, token, await next_code())).json
    assert (pending["mfa_required"], pending["refresh_token"]) == (True, "")
    assert (await api.get("/api/user", token=pending["access_token"])).status == 401
    done = await api.post("/api/auth/mfa/verify", {"code": factor.code(), "trust_device": True}, token=pending["access_token"])
    assert done.status == 200
    assert await run_sql(pool, "select provider from login_events where success") == [("email",)]
    token = await request_code(api)
    trusted = await verify(api, token, await next_code(), device_token=done.json["device_token"])
    assert "mfa_required" not in trusted.json, "a trusted device skips it, as with a password"


async def test_the_email_proves_the_mailbox_and_an_earlier_owner_keeps_nothing(
    api: Api, ports: Ports, pool: Pool, next_code: Callable[[], Awaitable[str]]
) -> None:
    squatter = await add_account(ports, verified=False)
    session = (await sign_in(ports, squatter)).access_token
    token = await request_code(api)
    answer = await verify(api, token, await next_code())
    assert answer.status == 200
    assert (await api.get("/api/user", token=answer.json["access_token"])).status == 200
    assert (await api.get("/api/user", token=session)).status == 401
    assert (await api.login()).status == 401, "the password is gone"
    assert await run_sql(pool, "select email_verified_at is not null, password_hash from users") == [(True, None)]


async def test_a_changed_address_that_was_never_proved_keeps_the_second_factor_only(
    api: Api, ports: Ports, user: Account, factor: Authenticator, pool: Pool, next_code: Callable[[], Awaitable[str]]
) -> None:
    await run_sql(pool, "update users set email_verified_at = null")
    session = (await sign_in(ports, user)).access_token
    token = await request_code(api)
    pending = (await verify(api, token, await next_code())).json
    assert pending["mfa_required"]
    assert (await api.get("/api/user", token=session)).status == 401
    assert await run_sql(pool, "select email_verified_at is not null, password_hash from users") == [(True, None)]


@pytest.mark.parametrize("change", ["update users set email = 'new@example.com'", "update users set deactivated_at = now()"])
async def test_an_account_that_changed_after_the_email_cannot_use_it(
    api: Api, user: Account, pool: Pool, next_code: Callable[[], Awaitable[str]], change: LiteralString
) -> None:
    token = await request_code(api)
    code = await next_code()
    await run_sql(pool, change)
    assert (await verify(api, token, code)).status == 401
    assert await run_sql(pool, "select count(*) from sessions") == [(0,)]


async def test_a_password_reset_ends_the_codes(
    api: Api, user: Account, ports: Ports, sent: FakeMailTransport, next_code: Callable[[], Awaitable[str]]
) -> None:
    token = await request_code(api)
    code = await next_code()
    await api.post("/api/auth/forgot-password", {"email": EMAIL})
    await deliver(ports)
    assert (await api.post("/api/auth/reset-password", {"token": link(sent.emails[-1]), "new_password": "another password"})).status == 200
    assert (await verify(api, token, code)).status == 401


# Services


async def test_a_service_decides_for_its_sign_ins(
    api: Api, acme: Tenant, user: Account, pool: Pool, sent: FakeMailTransport, next_code: Callable[[], Awaitable[str]]
) -> None:
    await add_service(pool, acme.org)
    path, target = f"/api/organizations/{acme.slug}/services/shop", {"org_slug": acme.slug, "service_slug": "shop"}
    assert "email_sign_in" not in (await api.get(path, token=acme.token("owner"))).json
    token = await request_code(api, **target)
    answer = await verify(api, token, await next_code())
    assert answer.status == 200, answer.text
    assert "sign in to Shop" in sent.emails[-1].text
    assert (await api.get("/api/user", token=answer.json["access_token"])).json["service"] == "shop"

    token = await request_code(api, **target)
    code = await next_code()
    changed = await api.patch(path, {"email_sign_in": False}, token=acme.token("owner"))
    assert (changed.status, changed.json["email_sign_in"]) == (200, False)
    assert (await api.post(REQUEST, {"email": EMAIL, **target})).status == 404
    assert (await verify(api, token, code)).status == 404, "switched off after the email"
    changes = await run_sql(pool, "select details -> 'changes' from audit_log where action = 'service.updated'")
    assert changes == [({"email_sign_in": {"old": None, "new": False}},)]
    assert (await api.patch(path, {"email_sign_in": None}, token=acme.token("owner"))).status == 200
    assert (await verify(api, token, code)).status == 200, "the refusal used nothing up"


async def test_a_service_can_switch_it_on_while_the_platform_has_it_off(
    app: QuartTrio, api: Api, acme: Tenant, user: Account, pool: Pool
) -> None:
    change_ports(app, policy=Policy())
    await add_service(pool, acme.org)
    target = {"org_slug": acme.slug, "service_slug": "shop"}
    assert (await api.post(REQUEST, {"email": EMAIL})).status == 404
    assert (await api.post(REQUEST, {"email": EMAIL, **target})).status == 404
    assert await run_sql(pool, "select count(*) from mails where kind = 'email_sign_in'") == [(0,)]
    await run_sql(pool, "update services set email_sign_in = true")
    assert (await api.post(REQUEST, {"email": EMAIL, **target})).status == 200


async def test_a_service_that_the_user_may_not_use_refuses_and_the_code_is_used_up(
    api: Api, acme: Tenant, user: Account, pool: Pool, next_code: Callable[[], Awaitable[str]]
) -> None:
    await add_service(pool, acme.org)
    await run_sql(pool, "update services set access_policy = 'members'")
    token = await request_code(api, org_slug=acme.slug, service_slug="shop")
    code = await next_code()
    assert (await verify(api, token, code)).status == 403
    await run_sql(pool, "update services set access_policy = 'anyone'")
    assert (await verify(api, token, code)).status == 401, "a code counts once, whatever follows it"


async def test_the_code_completes_a_saml_sign_on(
    api: Api, user: Account, shop: SamlApplication, browser: SamlBrowser, next_code: Callable[[], Awaitable[str]]
) -> None:
    [state] = parse_qs(urlsplit(await browser.start_sign_on(shop)).query)["saml_state"]
    token = await request_code(api, saml_state=state)
    answer = await verify(api, token, await next_code())
    assert "ticket=" in answer.json["redirect_url"]
    response = posted_response(await browser.open(answer.json["redirect_url"].removeprefix(BASE_URL)))
    assert response.find("//saml:AuthnContextClassRef").text.endswith(":unspecified"), "no password was used"
