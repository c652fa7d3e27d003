"""Accepting an invitation on one page: new users, signed-in users and other users (security A-7, A-10, G-2, R-3, R-5; decision 249)."""

import hashlib
import json
import re
from html import unescape
from typing import Final
from urllib.parse import parse_qsl, urlsplit

import pytest
from quart_trio import QuartTrio

from core.accounts.model.accounts import Account
from core.authentication.model.login import InviteeNeedsPassword
from core.kernel.causes import SYSTEM
from core.kernel.connections import PlatformCredentials
from core.kernel.sign_in_policy.rules import Rules
from core.tenancy.model.sign_in_policies import SignInPolicy
from ports import Ports
from tests.fakes.outside import FakeMailTransport
from tests.fakes.provider import FakeProvider, Person
from tests.federation.provider_sign_in import ProviderSignIn
from tests.support.browser import SIGN_IN, FakeBrowser, form_token, hidden_fields, leads_to
from tests.support.builders import BASE_URL, EMAIL, NEW_PASSWORD, PASSWORD, Answer, add_account, deliver, link, run_sql
from tests.support.mfa import Authenticator, add_mfa
from tests.support.passkeys.authenticator import SoftAuthenticator
from tests.support.passkeys.users import sign_in_with_passkey
from tests.support.saml.browser import SamlBrowser
from tests.support.services import add_service
from tests.support.tenants import Tenant

PAGE, DECLINE, ORGANIZATIONS = "/app/invitations/accept", "/app/invitations/decline", "/app/account/organizations"
OTHER: Final = "eve@example.com"
TO_ORGANIZATIONS: Final = f"{SIGN_IN}?next=%2Fapp%2Faccount%2Forganizations"


@pytest.fixture
def providers(provider: FakeProvider) -> list[PlatformCredentials]:
    return [provider.connection()]


async def invited(acme: Tenant, sent: FakeMailTransport, email: str = EMAIL) -> str:
    """Invite the address, and return the token in the email."""
    await acme.invite(email)
    await deliver(acme.ports)
    return link(sent.emails[-1])


async def open_page(browser: FakeBrowser, token: str) -> Answer:
    return await browser.open(f"{PAGE}?token={token}")


async def join(browser: FakeBrowser, token: str, password: str = NEW_PASSWORD, name: str = "Ada Lovelace") -> Answer:
    page = await open_page(browser, token)
    return await browser.send(PAGE, token=token, form_token=form_token(page), new_password=password, name=name)


async def membership(acme: Tenant, email: str = EMAIL) -> list[tuple[object, ...]]:
    query = """
        select m.role, m.confirmed_at is not null, u.email_verified_at is not null, u.name
        from users u join memberships m on m.user_id = u.id and m.org_id = %s where u.email = %s"""
    return await run_sql(acme.pool, query, acme.org, email)


async def test_a_new_user_needs_one_mail_and_one_page(acme: Tenant, browser: SamlBrowser, sent: FakeMailTransport) -> None:
    token = await invited(acme, sent)
    page = await open_page(browser, token)
    assert 'name="new_password"' in page.text
    assert leads_to(await join(browser, token)) == ORGANIZATIONS
    organizations = await browser.open(ORGANIZATIONS)
    assert (organizations.status, "Acme" in organizations.text, "joined" in organizations.text) == (200, True, True)
    assert await membership(acme) == [("member", True, True, "Ada Lovelace")]
    await deliver(acme.ports)
    assert [mail.to for mail in sent.emails] == [EMAIL]
    [(user,)] = await run_sql(acme.pool, "select id from users where email = %s", EMAIL)
    assert {(await acme.entry(action))["actor_id"] for action in ("invitation.accepted", "user.joined")} == {user}
    assert (await acme.api.login(password=NEW_PASSWORD)).status == 200


async def test_a_new_user_goes_on_to_the_application(acme: Tenant, browser: SamlBrowser, sent: FakeMailTransport) -> None:
    await add_service(acme.pool, acme.org)
    await run_sql(acme.pool, "update services set launch_url = 'https://shop.example.com/start'")
    token = await invited(acme, sent)
    page = await open_page(browser, token)
    assert "form-action" not in page.headers["Content-Security-Policy"]
    assert leads_to(await join(browser, token)) == "https://shop.example.com/start"
    assert await browser.is_in()


async def test_a_refused_password_changes_nothing_and_the_page_says_why(
    acme: Tenant, browser: SamlBrowser, sent: FakeMailTransport
) -> None:
    token = await invited(acme, sent)
    for password, name in (("short", "Ada"), (NEW_PASSWORD, "x" * 101), (EMAIL, "")):
        answer = await join(browser, token, password, name)
        assert (answer.status, 'role="alert"' in answer.text, 'name="new_password"' in answer.text) == (400, True, True)
    await acme.set_member_limit(3)
    assert "accept again" in (await join(browser, token)).text
    assert await run_sql(acme.pool, "select count(*) from users where email = %s", EMAIL) == [(0,)]
    assert (await browser.send(PAGE, token=token, new_password=NEW_PASSWORD)).status == 403
    assert not await browser.is_in()
    await acme.set_member_limit(4)
    assert leads_to(await join(browser, token, name="")) == ORGANIZATIONS
    assert await membership(acme) == [("member", True, True, None)]


async def test_nothing_of_a_squatter_survives(acme: Tenant, browser: SamlBrowser, ports: Ports, sent: FakeMailTransport) -> None:
    squatter = await add_account(ports, verified=False)
    await add_mfa(ports, squatter)
    await run_sql(acme.pool, "update users set name = 'Mallory', picture = 'https://evil.example/' where id = %s", squatter.id)
    token = await invited(acme, sent)
    assert leads_to(await join(browser, token, name="")) == ORGANIZATIONS
    assert await membership(acme) == [("member", True, True, None)]
    assert await run_sql(acme.pool, "select picture, mfa_enabled_at from users where id = %s", squatter.id) == [(None, None)]
    assert (await acme.api.login()).status == 401
    assert (await acme.api.login(password=NEW_PASSWORD)).status == 200


async def test_an_account_with_a_user_keeps_its_password_and_its_second_factor(
    acme: Tenant, browser: SamlBrowser, user: Account, factor: Authenticator, sent: FakeMailTransport
) -> None:
    token = await invited(acme, sent)
    page = await open_page(browser, token)
    assert 'name="new_password"' not in page.text
    forced = await browser.send(
        PAGE, token=token, form_token=form_token(await browser.open(SIGN_IN)), new_password=NEW_PASSWORD, name="Mallory"
    )
    assert (forced.status, "already" in forced.text) == (400, True)
    assert await membership(acme) == []
    assert leads_to(await browser.send(PAGE, token=token)) == TO_ORGANIZATIONS
    assert "Sign in to continue" in (await browser.open(TO_ORGANIZATIONS)).text
    assert not await browser.is_in()
    await browser.sign_in_with(factor)
    assert await membership(acme) == [("member", True, True, None)]


@pytest.mark.parametrize("provider_account", [True, False])
async def test_an_account_without_a_password_belongs_to_the_user_who_has_used_it(
    acme: Tenant, browser: SamlBrowser, ports: Ports, sent: FakeMailTransport, provider_account: bool
) -> None:
    account = await add_account(ports, password=None)
    if provider_account:
        columns = "id, user_id, provider, provider_user_id, linked_at"
        insert = f"insert into identities ({columns}) values (gen_random_uuid(), %s, 'codehost', '1', now())"  # noqa: S608
        await run_sql(acme.pool, insert, account.id)
    page = await open_page(browser, await invited(acme, sent))
    assert ('name="new_password"' in page.text) == (not provider_account)


async def test_the_token_that_the_inviter_knows_opens_no_account_and_reveals_none(
    acme: Tenant, browser: SamlBrowser, ports: Ports, sent: FakeMailTransport
) -> None:
    await add_account(ports)
    pages = []
    for email in (EMAIL, "unknown@example.com"):
        token = (await acme.invite(email))["token"]
        page = await open_page(browser, token)
        pages.append(page.text.partition("<body>")[2].replace(email, "").replace(token, ""))
        forced = await browser.send(PAGE, token=token, form_token=form_token(await browser.open(SIGN_IN)), new_password=NEW_PASSWORD)
        assert forced.status == 400
        pages.append(forced.text.partition("<body>")[2].replace(email, "").replace(token, ""))
    assert pages[:2] == pages[2:]
    assert 'name="new_password"' not in pages[0]
    assert not await browser.is_in()


async def test_a_signed_in_recipient_joins_with_one_click(
    acme: Tenant, browser: SamlBrowser, user: Account, sent: FakeMailTransport
) -> None:
    """The inviter knows this token, so another site's form must not confirm the membership."""
    token = (await acme.invite(EMAIL))["token"]
    await browser.sign_in()
    page = await open_page(browser, token)
    assert (await browser.send(PAGE, token=token, form_token="f" * 64)).status == 403
    assert await membership(acme) == []
    assert leads_to(await browser.send(PAGE, token=token, form_token=form_token(page))) == ORGANIZATIONS
    assert await membership(acme) == [("member", True, True, None)]


async def test_a_form_without_the_session_does_not_confirm_the_membership(acme: Tenant, browser: SamlBrowser, user: Account) -> None:
    token = (await acme.invite(EMAIL))["token"]
    await browser.sign_in()
    assert leads_to(await browser.send(PAGE, token=token)) == ORGANIZATIONS
    assert await membership(acme) == [("member", False, True, None)]


async def test_another_signed_in_user_learns_which_account_is_invited(
    acme: Tenant, browser: SamlBrowser, ports: Ports, user: Account, sent: FakeMailTransport
) -> None:
    await add_account(ports, OTHER)
    await browser.sign_in(OTHER)
    token = await invited(acme, sent)
    assert f"You're signed in as {OTHER}" in unescape((await open_page(browser, token)).text)
    accepted = await browser.send(PAGE, token=token)
    assert (accepted.status, f"You're signed in as {OTHER}" in unescape(accepted.text)) == (200, True)
    assert leads_to(await browser.send("/app/sign-out", form_token=form_token(accepted), next=ORGANIZATIONS)) == TO_ORGANIZATIONS
    # A new user is signed in instead of the first user.
    newcomer = await invited(acme, sent, "new@example.com")
    await browser.sign_in(OTHER, PASSWORD)
    assert leads_to(await join(browser, newcomer)) == ORGANIZATIONS
    assert "new@example.com" in (await browser.open("/app/account/email")).text


async def test_a_new_user_joins_with_an_identity_provider(
    acme: Tenant, browser: SamlBrowser, provider_sign_in: ProviderSignIn, provider: FakeProvider, sent: FakeMailTransport
) -> None:
    token = await invited(acme, sent)
    [start] = re.findall(r'href="(/auth/websuite\?[^"]+)"', (await open_page(browser, token)).text)
    assert token not in start
    hashed = hashlib.sha256(token.encode()).hexdigest()
    provider.person = Person(email=EMAIL)
    await provider_sign_in.sign_in(**dict(parse_qsl(urlsplit(unescape(start)).query)))
    page = await open_page(browser, hashed)
    assert 'name="new_password"' not in page.text
    assert leads_to(await browser.send(PAGE, token=hashed, form_token=form_token(page))) == ORGANIZATIONS
    assert await membership(acme) == [("member", True, True, None)]


async def test_a_signed_in_recipient_declines_with_the_hash(acme: Tenant, app: QuartTrio, browser: SamlBrowser, user: Account) -> None:
    hashed = hashlib.sha256((await acme.invite(EMAIL))["token"].encode()).hexdigest()
    assert (await FakeBrowser(app).send(DECLINE, token=hashed)).status == 400
    await browser.sign_in()
    answer = await browser.send(DECLINE, token=hashed)
    assert (answer.status, "signs people in for <bdi>Acme</bdi>" in answer.text) == (200, True)
    assert await acme.statuses() == {EMAIL: "rejected"}


# Without a password


async def join_without_password(browser: FakeBrowser, token: str) -> Answer:
    page = await open_page(browser, token)
    assert 'name="new_password"' not in page.text
    return await browser.send(PAGE, token=token, form_token=form_token(page), name="Ada Lovelace", join=hidden_fields(page)["join"])


async def store_policy(acme: Tenant, document: dict[str, object]) -> None:
    policy = SignInPolicy(org_id=acme.org, rules=Rules.read(document), changed_at=acme.ports.clock.now())
    async with acme.ports.storage.transaction(by=SYSTEM) as tx:
        await tx.sign_in_policies.put(policy)


@pytest.mark.parametrize("document", [{"methods": ["passkey"]}, {"phishing_resistant": ["everyone"]}], ids=str)
async def test_a_new_user_joins_with_a_passkey_where_passwords_are_not_accepted(
    acme: Tenant, browser: SamlBrowser, sent: FakeMailTransport, ports: Ports, document: dict[str, object]
) -> None:
    """One email, one page, and the passkey page. What a squatter left behind is gone."""
    squatter = await add_account(ports, verified=False)
    token = await invited(acme, sent)
    await store_policy(acme, document)
    enroll = leads_to(await join_without_password(browser, token))
    assert enroll == "/app/enroll?org=acme&next=%2Fapp%2Faccount%2Forganizations"
    asked = await browser.open(enroll)
    assert ("Create a passkey" in asked.text, "Set a password" in asked.text, "authenticator app" in asked.text) == (True, False, False)
    joined = "You've joined the organization."
    assert joined in unescape(asked.text)
    assert joined not in unescape((await browser.open(enroll)).text), "the first page says it"
    assert leads_to(await browser.open("/app/organizations/acme")).startswith("/app/enroll"), "not without the passkey"
    authenticator, new = SoftAuthenticator(origin=BASE_URL), "/app/account/passkeys/new"
    options = re.search('data-options="([^"]*)"', (await browser.open(new)).text)
    assert options is not None
    credential = json.dumps(authenticator.create(json.loads(unescape(options[1]))))
    added = await browser.submit("/app/account/passkeys", page=new, credential=credential, kind="passkey")
    assert leads_to(added) == "/app/account/security"
    assert leads_to(await browser.open(enroll)) == ORGANIZATIONS
    assert (await browser.open("/app/organizations/acme")).status == 200
    assert await membership(acme) == [("member", True, True, "Ada Lovelace")]
    assert await run_sql(acme.pool, "select password_hash from users where id = %s", squatter.id) == [(None,)]
    assert (await sign_in_with_passkey(acme.api, authenticator)).status == 200


async def test_a_new_user_without_a_password_goes_on_to_the_application(
    acme: Tenant, browser: SamlBrowser, sent: FakeMailTransport
) -> None:
    """The application asks for the passkey by its flow."""
    await add_service(acme.pool, acme.org)
    await run_sql(acme.pool, "update services set launch_url = 'https://shop.example.com/start'")
    token = await invited(acme, sent)
    await store_policy(acme, {"phishing_resistant": ["everyone"]})
    assert leads_to(await join_without_password(browser, token)) == "https://shop.example.com/start"
    assert await browser.is_in()


async def test_no_user_joins_without_a_password_by_a_wrong_form(
    acme: Tenant, browser: SamlBrowser, sent: FakeMailTransport, ports: Ports
) -> None:
    """Neither where passwords are accepted, nor from another site, nor into an account that has a user."""
    token = await invited(acme, sent)
    page = await open_page(browser, token)
    refused = await browser.send(PAGE, token=token, form_token=form_token(page), join="yes")
    assert (refused.status, 'name="new_password"' in refused.text) == (400, True)
    assert str(InviteeNeedsPassword.__doc__) in unescape(refused.text)
    await store_policy(acme, {"methods": ["passkey"]})
    assert (await browser.send(PAGE, token=token, join="yes")).status == 403
    user = await add_account(ports)
    taken = await browser.send(PAGE, token=token, form_token=form_token(page), join="yes")
    assert (taken.status, await browser.is_in()) == (400, False)
    assert await run_sql(acme.pool, "select count(*) from memberships where user_id = %s", user.id) == [(0,)]
