"""The reauthentication page with an identity provider: there and back, with the second factor after it (security A-12)."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Final
from urllib.parse import urlencode

import pytest
from quart_trio import QuartTrio

from core.accounts.model.accounts import Account
from core.kernel.connections import CODEHOST, WEBSUITE
from core.kernel.roles import ADMIN
from ports import Ports
from tests.accounts.api.test_disjoint_policies import emailed_code
from tests.accounts.api.test_reset_and_policies import put_policy
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.fakes.provider import Person
from tests.federation.api.social.links.clients import SHOP
from tests.federation.provider_sign_in import ProviderSignIn, flow_in
from tests.support.browser import ACCOUNT, action_of, form_token, hidden_fields, leads_to
from tests.support.builders import BASE_URL, PASSWORD, Answer, add_member, add_organization, run_sql
from tests.support.direct import change_ports, set_up
from tests.support.identities import add_identity
from tests.support.mfa import add_mfa, use_in_sessions
from tests.support.passkeys.users import RP_ID, add_passkeys
from tests.support.saml import add_application
from tests.support.saml.browser import SamlBrowser
from tests.support.services import add_service, add_service_user
from tests.support.tenants import Tenant

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("provider", [CODEHOST, WEBSUITE], indirect=True)]

PAGE = "/app/reauthenticate"
CALLBACK = "https://shop.example.com/callback"
PASSWORD_PAGE = f"{ACCOUNT}/password"
NEW_PASSKEY = f"{ACCOUNT}/passkeys/new"
MEMBERS = "/app/organizations/acme/members"
NEW_TOKEN = f"{ACCOUNT}/personal-tokens/new"


@pytest.fixture
async def provider_only(provider_sign_in: ProviderSignIn, clock: FakeClock) -> ProviderSignIn:
    """A browser with an old session, for an account that has nothing but its linked identity."""
    await provider_sign_in.sign_in()
    await run_sql(provider_sign_in.pool, "update users set email_verified_at = null")
    clock.advance(timedelta(hours=2))
    return provider_sign_in


@pytest.fixture
async def account(provider_only: ProviderSignIn, ports: Ports) -> Account:
    user_id = await provider_only.user_id()
    assert user_id is not None
    async with ports.storage.reading() as read:
        account = await read.accounts.by_id(user_id)
    assert account is not None
    return account


async def go_to_provider(sign_in: ProviderSignIn, asking: Answer) -> Answer:
    """Press the provider's button, sign in there, and return the callback's response."""
    [action] = re.findall(rf'action="({PAGE}/[a-z]+)"', asking.text.replace(f"{PAGE}/email", ""))
    path = leads_to(await sign_in.browser.send(action, **hidden_fields(asking)))
    url = sign_in.provider.authorize((await sign_in.browser.open(path)).headers["Location"])
    return await sign_in.browser.open(url.removeprefix(BASE_URL))


async def test_an_account_without_another_way_comes_back_to_its_page(provider_only: ProviderSignIn) -> None:
    browser = provider_only.browser
    asking = await browser.open(leads_to(await browser.open(PASSWORD_PAGE)))
    assert (asking.text.count('type="password"'), "Email me a code" in asking.text) == (0, False)
    back = leads_to(await go_to_provider(provider_only, asking))
    assert leads_to(await browser.open(back)) == PASSWORD_PAGE
    assert (await browser.open(PASSWORD_PAGE)).status == 200


async def test_the_second_factor_is_asked_for_after_the_provider(provider_only: ProviderSignIn, account: Account, ports: Ports) -> None:
    browser = provider_only.browser
    app = await add_mfa(ports, account)
    await use_in_sessions(provider_only.pool, account)
    asking = await browser.open(leads_to(await browser.submit(NEW_TOKEN, NEW_TOKEN, name="Nightly", expires_in_days="30")))
    code = await browser.open(leads_to(await go_to_provider(provider_only, asking)))
    assert ('id="code"' in code.text, "Continue with" in code.text, "create a personal access token" in code.text) == (True, False, True)
    wrong = await browser.send(PAGE, **hidden_fields(code), code=app.wrong())
    assert (wrong.status, "create a personal access token" in wrong.text) == (401, True)
    kept = await browser.open(leads_to(await browser.send(PAGE, **hidden_fields(wrong), code=app.code())))
    assert "Continue: Create a personal access token</button>" in kept.text


async def test_a_second_factor_that_was_turned_off_is_not_waited_for(provider_only: ProviderSignIn, account: Account, ports: Ports) -> None:
    await add_mfa(ports, account)
    browser = provider_only.browser
    asking = await browser.open(f"{PAGE}?next={PASSWORD_PAGE}")
    back = leads_to(await go_to_provider(provider_only, asking))
    await run_sql(provider_only.pool, "update users set mfa_enabled_at = null")
    assert "Continue with" in (await browser.open(back)).text


def accepts(*methods: str, **rules: Any) -> dict[str, Any]:
    return {"methods": ["passkey", *methods], **rules}


WITH_APP: Final = accepts("provider:codehost", "provider:websuite", "totp", second_factor=["everyone"])
WITHOUT_APP: Final = accepts("provider:codehost", "provider:websuite")


@pytest.mark.parametrize(
    ("page", "document", "minutes"),
    [
        (NEW_PASSKEY, WITH_APP, 1),
        (NEW_PASSKEY, WITH_APP, 20),
        (MEMBERS, WITH_APP, 1),
        (MEMBERS, WITH_APP, 20),
        (MEMBERS, WITHOUT_APP, 1),
        (MEMBERS, WITHOUT_APP, 20),
        (MEMBERS, {"session_lifetime_minutes": 15}, 20),
    ],
    ids=["a change", "a late change", "with the app", "with the app, late", "without the app", "without the app, late", "newer"],
)
async def test_the_code_after_the_provider_is_asked_if_the_last_one_is_old(
    acme: Tenant, user: Account, clock: FakeClock, provider_sign_in: ProviderSignIn, page: str, document: dict[str, Any], minutes: int
) -> None:
    """The session's password does not count with the code, even if it is young."""
    await acme.join("ada", user, ADMIN)
    await add_identity(acme.pool, user.id, provider_sign_in.name, subject="4711")
    await run_sql(acme.pool, "update identities set issuer = %s", provider_sign_in.provider.address)
    app, browser = await add_mfa(acme.ports, user), provider_sign_in.browser
    await browser.sign_in_with(app)
    await put_policy(acme, acme.org, None, document)
    clock.advance(timedelta(minutes=minutes))
    asking = await browser.open(leads_to(await browser.open(page)))
    if page == NEW_PASSKEY and minutes == 20:
        await browser.send(PAGE, **hidden_fields(asking), password=PASSWORD, code=app.code())
        asking = await browser.open(leads_to(await browser.open(page)))
    clock.advance(timedelta(seconds=1))
    back = leads_to(await go_to_provider(provider_sign_in, asking))
    if minutes == 20 and page == MEMBERS:
        code = await browser.open(back)
        assert ('id="code"' in code.text, "Continue with" in code.text, 'type="password"' in code.text) == (True, False, False)
        back = leads_to(await browser.send(PAGE, **hidden_fields(code), code=app.code()))
    assert leads_to(await browser.open(back)) == page
    assert (await browser.open(page)).status == 200


async def test_another_identity_and_a_refusal_lead_back_to_the_ways(provider_only: ProviderSignIn) -> None:
    browser, before = provider_only.browser, await provider_only.identities()
    target = leads_to(await browser.open(PASSWORD_PAGE))
    asking = await browser.open(target)
    provider_only.provider.person = Person("4712", "thief@example.com")
    other = await go_to_provider(provider_only, asking)
    provider_only.provider.refuses = "access_denied"
    refused = await go_to_provider(provider_only, asking)
    assert [answer.status for answer in (other, refused)] == [401, 400]
    assert all(f'href="{target}">Try again' in answer.text for answer in (other, refused))
    assert leads_to(await browser.open(PASSWORD_PAGE)) == target, "nothing changed"
    assert await provider_only.identities() == before


@pytest.mark.parametrize("owns_client", [True, False])
async def test_a_policy_that_accepts_the_provider_leads_there_as_its_application_does(
    app: QuartTrio, clock: FakeClock, acme: Tenant, user: Account, provider_sign_in: ProviderSignIn, owns_client: bool
) -> None:
    """The account is linked at the application alone, and has a password, which the policy does not accept."""
    browser, provider = provider_sign_in.browser, provider_sign_in.provider
    shop = await add_service(acme.pool, acme.org)
    if owns_client:  # and the platform has none
        await set_up(app, [provider.connection(client=None)])
        provider.clients["of-the-shop"] = "the shop's secret"
        path = f"/api/organizations/acme/services/shop/oauth-credentials/{provider.provider}"
        body = {"client_id": "of-the-shop", "client_secret": "the shop's secret"}
        assert (await acme.api.call("PUT", path, body, token=acme.token("owner"))).status == 200
    await provider_sign_in.sign_in(**SHOP)
    await add_service_user(acme.ports, shop, user.id, signed_in=False)
    await put_policy(acme, acme.org, shop, {"methods": ["passkey", f"provider:{provider.provider}"]})
    browser.cookies.clear()
    await browser.sign_in()
    assert (await browser.open(NEW_PASSKEY)).status == 303, "the password alone changes no factor"
    asking = await browser.open(leads_to(await browser.open(NEW_PASSKEY)))
    name = f"{provider.provider.capitalize()}{' for Shop' if owns_client else ''}"
    assert (f">Continue with {name}</button>" in asking.text, 'name="password"' in asking.text) == (True, False)
    clock.advance(timedelta(seconds=1))
    back = leads_to(await go_to_provider(provider_sign_in, asking))
    client = {form["client_id"] for sent, form in provider.requests if sent == "/token"}
    assert (client == {"of-the-shop"}) is owns_client
    assert leads_to(await browser.open(back)) == NEW_PASSKEY
    assert (await browser.open(NEW_PASSKEY)).status == 200
    await run_sql(acme.pool, "update organizations set status = 'suspended'")
    clock.advance(timedelta(hours=2))
    asking = await browser.open(leads_to(await browser.open(NEW_PASSKEY)))
    assert "Continue with" not in asking.text, "no user signs in at this application"


@dataclass(frozen=True, slots=True)
class Walk:
    """The pages that a user with an old password session opens, and the ways in which they confirm it until the pages open.

    `by_codehost` uses a provider that cannot ask its user again, and `by_websuite` uses a provider that can.
    """

    acme: Mapping[str, Any]
    by_codehost: Sequence[str]
    by_websuite: Sequence[str] = ("provider",)
    globex: Mapping[str, Any] = field(default_factory=dict)
    pages: Sequence[str] = (MEMBERS,)
    minutes: int = 16


BY_PROVIDER: Final = {"methods": ["passkey", "provider:codehost", "provider:websuite"]}
BY_EMAIL_TOO: Final = {"methods": ["email", "provider:codehost", "provider:websuite"]}
LIFETIME: Final = {"session_lifetime_minutes": 15}
IN_GLOBEX: Final = MEMBERS.replace("acme", "globex")
WALKS: Final[Mapping[str, Walk]] = {
    "lifetime": Walk(LIFETIME, ["password"]),
    "idle": Walk({"session_idle_minutes": 5}, ["password"], minutes=6),
    "methods": Walk(BY_PROVIDER, ["provider"]),
    "methods and lifetime": Walk(BY_PROVIDER | LIFETIME, ["password", "provider"]),
    "methods and idle": Walk(BY_PROVIDER | {"session_idle_minutes": 5}, ["password", "provider"], minutes=6),
    "methods with a way that shows the user": Walk(BY_EMAIL_TOO | LIFETIME, ["email"]),
    "a change": Walk(BY_PROVIDER, ["password", "provider"], pages=(NEW_PASSKEY,)),
    "a change with lifetime": Walk(BY_PROVIDER | LIFETIME, ["password", "provider"], pages=(NEW_PASSKEY, MEMBERS)),
    "another organization first": Walk(
        LIFETIME, ["provider", "password"], globex=BY_PROVIDER, pages=(IN_GLOBEX, MEMBERS, IN_GLOBEX, MEMBERS)
    ),
    "a change last": Walk(BY_PROVIDER, ["provider", "password", "provider"], pages=(MEMBERS, NEW_PASSKEY)),
}


@pytest.mark.parametrize("name", WALKS)
async def test_a_provider_that_cannot_ask_makes_no_session_newer_and_no_way_is_asked_for_twice(
    app: QuartTrio, acme: Tenant, user: Account, clock: FakeClock, provider_sign_in: ProviderSignIn, sent: FakeMailTransport, name: str
) -> None:
    """With the provider alone, the user at an open browser would show nothing."""
    walk, browser = WALKS[name], provider_sign_in.browser
    change_ports(app, policy=replace(acme.ports.policy, email_sign_in=True))
    await provider_sign_in.sign_in()
    browser.cookies.clear()
    globex = await add_organization(acme.pool, "globex")
    await acme.join("ada", user, ADMIN)
    await add_member(acme.pool, globex, user.id, ADMIN, confirmed=True)
    await put_policy(acme, acme.org, None, {**walk.acme})
    await put_policy(acme, globex, None, {**walk.globex})
    await browser.sign_in()
    clock.advance(timedelta(minutes=walk.minutes))
    ways = []
    for page in walk.pages:
        for _ in range(4):
            answer = await browser.open(page)
            if answer.status == 200:
                break
            asking = await browser.open(leads_to(answer))
            clock.advance(timedelta(seconds=1))
            if "Continue with" in asking.text:
                ways.append("provider")
                await go_to_provider(provider_sign_in, asking)
            elif 'type="password"' in asking.text:
                ways.append("password")
                by_hand = await browser.send(f"{PAGE}/{provider_sign_in.name}", **hidden_fields(asking))
                assert by_hand.status == 400, "it is not offered"
                await browser.send(PAGE, **hidden_fields(asking), password=PASSWORD)
            else:
                ways.append("email")
                asking = await browser.open(leads_to(await browser.send(f"{PAGE}/email", **hidden_fields(asking))))
                await browser.send(PAGE, **hidden_fields(asking), email_code=await emailed_code(acme.ports, sent))
    expected = walk.by_codehost if provider_sign_in.name == CODEHOST else walk.by_websuite
    assert (answer.status, ways) == (200, [*expected])


OF_APPLICATIONS: Final = [name for name, walk in WALKS.items() if walk.pages == (MEMBERS,) and "email" not in walk.by_codehost]


@pytest.mark.parametrize("protocol", ["OAuth", "SAML"])
@pytest.mark.parametrize("name", OF_APPLICATIONS)
async def test_an_application_asks_for_a_newer_sign_in_as_the_page_does(
    app: QuartTrio, acme: Tenant, user: Account, clock: FakeClock, provider_sign_in: ProviderSignIn, name: str, protocol: str
) -> None:
    """A link that begins at the provider makes the session no newer either."""
    walk, shop = WALKS[name], await add_application(acme.ports, acme.pool, acme.org, "acme")
    await acme.join("ada", user, ADMIN)
    await add_service_user(acme.ports, shop.id, user.id, signed_in=False)
    [(client_id,)] = await run_sql(acme.pool, "select client_id from services where id = %s", shop.id)
    request = f"/auth/authorize?{urlencode({'client_id': str(client_id), 'redirect_uri': CALLBACK})}"
    browser = provider_sign_in.browser = SamlBrowser(app, clock)
    await provider_sign_in.sign_in()
    browser.cookies.clear()
    await browser.sign_in()
    clock.advance(timedelta(minutes=walk.minutes))
    await put_policy(acme, acme.org, None, {**walk.acme})
    if walk.by_codehost != ["provider"]:
        await provider_sign_in.sign_in(next=MEMBERS)
        assert leads_to(await browser.open(MEMBERS)).startswith(PAGE)
    ways, expected = list[str](), walk.by_codehost if provider_sign_in.name == CODEHOST else walk.by_websuite
    for _ in range(4):
        page = await browser.open(request if protocol == "OAuth" else await browser.start_sign_on(shop))
        if "SAMLResponse" in page.text or page.headers.get("Location", "").startswith(CALLBACK):
            break
        clock.advance(timedelta(seconds=1))
        if "Continue with" in page.text.partition("<details")[0]:
            ways.append("provider")
            await provider_sign_in.sign_in(flow=flow_in(action_of(page)))
        else:
            ways.append("password")
            await browser.fill(page, email=user.email, password=PASSWORD)
    assert ways == [*expected]
    assert (await browser.open(MEMBERS)).status == 200


async def test_a_provider_counts_only_for_organizations_that_know_its_identity(
    clock: FakeClock, acme: Tenant, user: Account, provider_sign_in: ProviderSignIn
) -> None:
    """The account is linked at an application in Acme alone. Globex would otherwise admit a user who needs a recovery."""
    browser, accepted = provider_sign_in.browser, accepts(f"provider:{provider_sign_in.name}")
    globex, members = await add_organization(acme.pool, "globex"), MEMBERS.replace("acme", "globex")
    shop = await add_service(acme.pool, acme.org)
    for org in (acme.org, globex):
        await put_policy(acme, org, None, accepted)
    await provider_sign_in.sign_in(**SHOP)
    await acme.join("ada", user, ADMIN)
    await add_member(acme.pool, globex, user.id, ADMIN, confirmed=True)
    assert [context for _, context, *_ in await provider_sign_in.identities()] == [shop], "the first sign-in has linked it"
    assert (await browser.open(MEMBERS)).status == 200, "the sign-in at its application counts"
    assert leads_to(await browser.open(members)).startswith("/app/enroll?"), "and not in Globex"
    browser.cookies.clear()
    await browser.sign_in()
    clock.advance(timedelta(minutes=1))
    token = form_token(await browser.open(ACCOUNT))
    path = leads_to(await browser.send(f"{PAGE}/{provider_sign_in.name}", form_token=token, next=members, policy="acme"))
    url = provider_sign_in.provider.authorize((await browser.open(path)).headers["Location"])
    await browser.open(url.removeprefix(BASE_URL))
    assert (await browser.open(MEMBERS)).status == 200, "the confirmation counts"
    assert leads_to(await browser.open(members)).startswith("/app/enroll?"), "and not in Globex"
    await add_passkeys(acme.pool, user.id, RP_ID)
    asking = await browser.open(leads_to(await browser.open(members)))
    assert ("Use a passkey" in asking.text, "Continue with" in asking.text) == (True, False)
