"""Links that an API client starts and a browser finishes (security O-6)."""

import re
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from ports import Ports
from tests.accounts.email_changes import EmailChanger, undo
from tests.fakes.http_server import TRAP
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.fakes.provider import Person
from tests.federation.api.social.links.clients import PAGE, ApiClient, open_ticket
from tests.federation.provider_sign_in import ProviderSignIn, provider_requests_of
from tests.support.browser import HOME, SIGN_IN, FakeBrowser, has_ended, leads_to
from tests.support.builders import EMAIL, Api, add_account, deliver, link, run_concurrently, run_sql, sign_in
from tests.support.mfa import add_mfa
from tests.support.passkeys.users import PasskeyUser
from tests.support.services import add_service
from tests.support.tenants import Tenant

pytestmark = pytest.mark.slow


async def security_events(pool: Pool) -> list[tuple[Any, ...]]:
    return await run_sql(pool, "select action, actor_id, details from audit_log where action like 'security.%%'")


async def test_an_api_client_starts_a_link_and_a_browser_finishes_it(
    provider_sign_in: ProviderSignIn, api_client: ApiClient, user: Account, acme: Tenant
) -> None:
    await acme.join("ada", user)
    await run_sql(provider_sign_in.pool, "update memberships set confirmed_at = now()")
    answer = await provider_sign_in.browser.open(await open_ticket(provider_sign_in, await api_client.start_link()))
    assert leads_to(answer) == PAGE
    assert await api_client.list_subjects() == ["4711"]
    assert await provider_sign_in.identities() == [(EMAIL, None, provider_sign_in.name, provider_sign_in.provider.address, "4711", EMAIL)]
    assert await security_events(provider_sign_in.pool) == [("security.identity.linked", user.id, {"provider": provider_sign_in.name})]
    await provider_sign_in.sign_in()
    assert await provider_sign_in.user_id() == user.id


async def test_a_ticket_works_once_and_as_long_as_the_sign_in_is_fresh(
    provider_sign_in: ProviderSignIn, api_client: ApiClient, clock: FakeClock
) -> None:
    first, second = await api_client.start_link(), await api_client.start_link()
    await open_ticket(provider_sign_in, first)
    assert (await provider_sign_in.browser.open(first)).status == 400
    clock.advance(timedelta(minutes=10))
    assert (await provider_sign_in.browser.open(second)).status == 400


async def test_a_ticket_works_only_for_its_own_provider(provider_sign_in: ProviderSignIn, api_client: ApiClient) -> None:
    path = await api_client.start_link()
    assert (await provider_sign_in.browser.open(path.replace(provider_sign_in.name, "websuite"))).status == 404
    await open_ticket(provider_sign_in, path)


async def test_a_link_needs_the_session_that_started_it(provider_sign_in: ProviderSignIn, api_client: ApiClient) -> None:
    callback = await open_ticket(provider_sign_in, await api_client.start_link())
    await api_client.api.post("/api/auth/logout", token=api_client.token)
    assert (await provider_sign_in.browser.open(callback)).status == 401
    assert await provider_sign_in.identities() == []


async def test_a_link_finishes_only_in_the_browser_that_opened_it(
    provider_sign_in: ProviderSignIn, api_client: ApiClient, app: QuartTrio
) -> None:
    callback = await open_ticket(provider_sign_in, await api_client.start_link())
    other = FakeBrowser(app)
    await other.sign_in(EMAIL)
    await other.open(f"/auth/{provider_sign_in.name}")
    assert (await other.open(callback)).status == 400
    assert await provider_sign_in.identities() == []


async def test_a_browser_without_a_session_must_sign_in_as_the_user(
    provider_sign_in: ProviderSignIn, api_client: ApiClient, ports: Ports, clock: FakeClock, app: QuartTrio
) -> None:
    """A token thief opens the URL in their own browser."""
    await add_account(ports, "eve@example.com")
    path = await api_client.start_link()
    assert (
        (await provider_sign_in.browser.open(path))
        .headers["Location"]
        .startswith(f"{SIGN_IN}?next=%2Fauth%2F{provider_sign_in.name}%3Flink%3D")
    )
    assert leads_to(await provider_sign_in.browser.sign_in("eve@example.com")) == HOME
    answer = await provider_sign_in.browser.open(path)
    assert (answer.status, "Another user is signed in" in answer.text) == (403, True)
    assert await provider_requests_of(provider_sign_in.pool) == []
    assert await provider_sign_in.identities() == []
    owner = ProviderSignIn(FakeBrowser(app), provider_sign_in.provider, provider_sign_in.pool)
    assert leads_to(await owner.browser.open(await open_ticket(owner, path))) == PAGE, "the thief did not use the ticket up"


async def test_an_old_browser_session_of_the_user_must_sign_in_again(
    provider_sign_in: ProviderSignIn, ports: Ports, api: Api, user: Account, clock: FakeClock
) -> None:
    await provider_sign_in.browser.sign_in(EMAIL)
    clock.advance(timedelta(minutes=10, seconds=1))
    path = await ApiClient(api, (await sign_in(ports, user)).access_token, provider_sign_in.name).start_link()
    assert (
        (await provider_sign_in.browser.open(path))
        .headers["Location"]
        .startswith(f"/app/reauthenticate?next=%2Fauth%2F{provider_sign_in.name}")
    )


async def test_a_second_factor_that_was_turned_on_at_the_provider_is_asked_for(
    provider_sign_in: ProviderSignIn, api_client: ApiClient, user: Account, ports: Ports
) -> None:
    callback = await open_ticket(provider_sign_in, await api_client.start_link())
    await add_mfa(ports, user)
    answer = await provider_sign_in.browser.open(callback)
    assert leads_to(answer) == f"/app/reauthenticate?next={quote(PAGE, safe='')}"
    assert await provider_sign_in.identities() == []


async def test_a_passkey_that_was_added_at_the_provider_is_asked_for(
    provider_sign_in: ProviderSignIn, api_client: ApiClient, user: Account, ports: Ports
) -> None:
    callback = await open_ticket(provider_sign_in, await api_client.start_link())
    await PasskeyUser(api_client.api, (await sign_in(ports, user)).access_token).add()
    assert leads_to(await provider_sign_in.browser.open(callback)).startswith("/app/reauthenticate?")
    assert await provider_sign_in.identities() == []


async def test_a_sign_in_may_age_at_the_provider(provider_sign_in: ProviderSignIn, api_client: ApiClient, clock: FakeClock) -> None:
    clock.advance(timedelta(minutes=9))
    callback = await open_ticket(provider_sign_in, await api_client.start_link())
    clock.advance(timedelta(minutes=5))
    assert leads_to(await provider_sign_in.browser.open(callback)) == PAGE


async def test_a_link_from_a_session_of_a_browser_works_in_no_other_one(
    provider_sign_in: ProviderSignIn, api: Api, ports: Ports, user: Account, pool: Pool, app: QuartTrio
) -> None:
    """This holds for the browser session itself, and for a frontend session that was authorized in it."""
    await provider_sign_in.browser.sign_in(EMAIL)
    [(browser_session,)] = await run_sql(pool, "select id from sessions")
    token = await sign_in(ports, user)
    await run_sql(pool, "update sessions set browser_session_id = %s where id = %s", browser_session, token.session_id)
    path = await ApiClient(api, token.access_token, provider_sign_in.name).start_link()
    other = FakeBrowser(app)
    for email in (None, EMAIL):
        if email is not None:
            await other.sign_in(email)
        answer = await other.open(path)
        assert (answer.status, "only in the browser in which it was started" in answer.text) == (403, True)
    assert await provider_requests_of(pool) == []
    callback = await open_ticket(provider_sign_in, path)
    await provider_sign_in.browser.submit("/app/sign-out")
    await provider_sign_in.browser.sign_in(EMAIL)
    assert (await provider_sign_in.browser.open(callback)).status == 403, "another session of the same browser"
    assert await provider_sign_in.identities() == []


async def test_an_identity_of_another_user_is_not_linked(
    provider_sign_in: ProviderSignIn, api_client: ApiClient, app: QuartTrio, acme: Tenant
) -> None:
    """The context of this identity does not matter."""
    shop = await add_service(provider_sign_in.pool, acme.org)
    provider_sign_in.provider.person = Person(email="eve@example.com")
    await ProviderSignIn(FakeBrowser(app), provider_sign_in.provider, provider_sign_in.pool).sign_in(org="acme", service="shop")
    answer = await provider_sign_in.browser.open(await open_ticket(provider_sign_in, await api_client.start_link()))
    assert answer.status == 409
    assert [row[:2] for row in await provider_sign_in.identities()] == [("eve@example.com", shop)], "it stays with its user"


async def test_a_second_identity_at_a_provider_is_not_linked(provider_sign_in: ProviderSignIn, api_client: ApiClient) -> None:
    first, second = await api_client.start_link(), await api_client.start_link()
    assert (await provider_sign_in.browser.open(await open_ticket(provider_sign_in, first))).status == 303
    provider_sign_in.provider.person = Person(subject="4712")
    assert (await provider_sign_in.browser.open(await open_ticket(provider_sign_in, second))).status == 400
    assert await api_client.list_subjects() == ["4711"]


async def test_an_identity_at_a_service_can_also_be_linked_to_the_account(
    provider_sign_in: ProviderSignIn, api_client: ApiClient, app: QuartTrio, acme: Tenant
) -> None:
    shop = await add_service(provider_sign_in.pool, acme.org)
    await ProviderSignIn(FakeBrowser(app), provider_sign_in.provider, provider_sign_in.pool).sign_in(org="acme", service="shop")
    assert (await provider_sign_in.browser.open(await open_ticket(provider_sign_in, await api_client.start_link()))).status == 303
    assert {row[1] for row in await provider_sign_in.identities()} == {None, shop}


async def test_of_twenty_parallel_uses_of_a_ticket_one_works(provider_sign_in: ProviderSignIn, api_client: ApiClient) -> None:
    path = await api_client.start_link()
    await provider_sign_in.browser.sign_in(EMAIL)
    answers = await run_concurrently(20, lambda _: provider_sign_in.browser.open(path))
    assert sorted(answer.status for answer in answers) == [302] + [400] * 19


async def test_a_ticket_that_was_used_starts_no_second_provider_request(
    provider_sign_in: ProviderSignIn, api_client: ApiClient, app: QuartTrio
) -> None:
    """The ticket's flow id, which no page shows, starts no provider request either."""
    callback = await open_ticket(provider_sign_in, await api_client.start_link())
    [(flow, before)] = await run_sql(provider_sign_in.pool, "select id, t::text from sign_in_flows t")
    for browser in (provider_sign_in.browser, FakeBrowser(app)):
        answer = await browser.open(f"/auth/{provider_sign_in.name}?flow={flow}")
        assert has_ended(answer)
    assert await run_sql(provider_sign_in.pool, "select t::text from sign_in_flows t") == [(before,)]
    assert leads_to(await provider_sign_in.browser.open(callback)) == PAGE


async def test_a_provider_that_fails_links_nothing(provider_sign_in: ProviderSignIn, api_client: ApiClient) -> None:
    provider_sign_in.provider.refuses = "access_denied"
    assert (await provider_sign_in.browser.open(await open_ticket(provider_sign_in, await api_client.start_link()))).status == 400
    provider_sign_in.provider.refuses = TRAP
    answer = await provider_sign_in.browser.open(await open_ticket(provider_sign_in, await api_client.start_link()))
    assert answer.status == 500
    assert "what a provider says" not in answer.text
    assert await provider_sign_in.identities() == []


async def test_a_link_is_mailed_and_goes_with_the_undo_of_what_the_same_session_changed_next(
    provider_sign_in: ProviderSignIn, api_client: ApiClient, ports: Ports, sent: FakeMailTransport
) -> None:
    assert leads_to(await provider_sign_in.browser.open(await open_ticket(provider_sign_in, await api_client.start_link()))) == PAGE
    changer = EmailChanger(api_client.api, ports, sent)
    [email] = await changer.emails(EMAIL)
    assert email.subject == "An account was linked to yours - Gatehouse"
    assert f"An account at {provider_sign_in.name.title()} was linked" in email.text
    undo_of_address = await changer.change(api_client.token, "thief@example.com")
    assert (await undo(api_client.api, undo_of_address)).status == 200
    assert await provider_sign_in.identities() == []
    assert (await undo(api_client.api, link(email))).status == 400, "used up with it"


async def test_an_unlinked_account_is_mailed_and_the_undo_links_it_again(
    provider_sign_in: ProviderSignIn, api_client: ApiClient, ports: Ports, sent: FakeMailTransport, clock: FakeClock
) -> None:
    assert leads_to(await provider_sign_in.browser.open(await open_ticket(provider_sign_in, await api_client.start_link()))) == PAGE
    before = await provider_sign_in.identities()
    clock.advance(timedelta(minutes=1))
    assert (await api_client.unlink()).status == 200
    [*_, email] = await EmailChanger(api_client.api, ports, sent).emails(EMAIL)
    assert email.subject == "An account was unlinked from yours - Gatehouse"
    page = await api_client.api.get(f"/auth/undo?token={link(email)}")
    assert "was unlinked" in page.text
    [start] = re.findall(r'type="radio" value="([0-9a-f-]+)"', page.text)[1:]
    assert (await undo(api_client.api, link(email), start)).status == 200
    assert await provider_sign_in.identities() == before
    actions = [action for action, _, _ in await security_events(provider_sign_in.pool)]
    assert (actions.count("security.identity.linked"), actions.count("security.changes.undone")) == (2, 1)


async def test_the_undo_takes_no_identity_from_another_account(
    provider_sign_in: ProviderSignIn, api_client: ApiClient, ports: Ports, sent: FakeMailTransport, clock: FakeClock
) -> None:
    assert leads_to(await provider_sign_in.browser.open(await open_ticket(provider_sign_in, await api_client.start_link()))) == PAGE
    clock.advance(timedelta(minutes=1))
    assert (await api_client.unlink()).status == 200
    [*_, email] = await EmailChanger(api_client.api, ports, sent).emails(EMAIL)
    eve = await add_account(ports, "eve@example.com")
    await run_sql(
        provider_sign_in.pool,
        """
        insert into identities (id, user_id, provider, issuer, provider_user_id, linked_at)
        values (gen_random_uuid(), %s, %s, %s, '4711', %s)""",
        eve.id,
        provider_sign_in.name,
        provider_sign_in.provider.address,
        clock.now(),
    )
    start = re.findall(r'type="radio" value="([0-9a-f-]+)"', (await api_client.api.get(f"/auth/undo?token={link(email)}")).text)[1]
    assert (await undo(api_client.api, link(email), start)).status == 200
    assert [row[0] for row in await provider_sign_in.identities()] == ["eve@example.com"]


async def test_a_sign_in_that_links_an_account_to_an_existing_one_is_mailed(
    provider_sign_in: ProviderSignIn, user: Account, ports: Ports, sent: FakeMailTransport, app: QuartTrio, clock: FakeClock
) -> None:
    clock.advance(timedelta(seconds=1))
    await provider_sign_in.sign_in()
    assert await provider_sign_in.user_id() == user.id
    await deliver(ports)
    assert [message.subject for message in sent.emails] == ["An account was linked to yours - Gatehouse"]
    provider_sign_in.provider.person = Person(subject="4712", email="new@example.com")
    await ProviderSignIn(FakeBrowser(app), provider_sign_in.provider, provider_sign_in.pool).sign_in()
    await deliver(ports)
    assert [message.to for message in sent.emails] == [EMAIL], "a sign-up is no surprise"
