"""The mailbox alone gets past no sign-in policy: a reset keeps the needed factor, or only a recovery replaces it (security A-6)."""

from collections.abc import Sequence
from datetime import timedelta
from html import unescape
from typing import Any
from uuid import UUID

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts import passkeys
from core.accounts.model.accounts import Account, RecoveryRequired
from core.kernel.causes import SYSTEM
from core.kernel.connections import PlatformCredentials
from core.kernel.sign_in_policy.rules import Rules
from core.tenancy.model.sign_in_policies import SignInPolicy
from ports import Ports
from tests.authentication.api.recovery.lost import LostUser, add_lost_user
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.fakes.provider import FakeProvider
from tests.federation.provider_sign_in import ProviderSignIn
from tests.support.browser import FakeBrowser, hidden_fields
from tests.support.builders import EMAIL, NEW_PASSWORD, Api, add_account, add_organization, deliver, link, run_sql, sign_in
from tests.support.identities import add_identity
from tests.support.mfa import Authenticator, add_mfa
from tests.support.passkeys.users import PasskeyUser
from tests.support.services import add_service, add_service_role, add_service_user
from tests.support.tenants import Tenant
from tests.tenancy.groups import add_group

TWO: dict[str, Any] = {"second_factor": ["everyone"]}
PASSKEY: dict[str, Any] = {"phishing_resistant": ["everyone"]}
LATER: dict[str, Any] = {**TWO, "due_at": {"second_factor": "2100-01-01T00:00:00+00:00"}}
PASSKEY_LATER: dict[str, Any] = {**TWO, **PASSKEY, "due_at": {"phishing_resistant": "2100-01-01T00:00:00+00:00"}}
ONLY_PASSKEYS: dict[str, Any] = {"methods": ["passkey"]}
AT_HIGH_RISK: dict[str, Any] = {"second_factor": ["high_risk"]}
PASSWORD_OR_PASSKEY, EMAIL_OR_PASSKEY, PROVIDER_OR_PASSKEY = (
    {"methods": ["passkey", other]} for other in ("password", "email", "provider:websuite")
)
BY_APP = (TWO, LATER, PASSKEY_LATER, PASSWORD_OR_PASSKEY)  # the user has an app then, and otherwise a passkey
# Where the policy is set, if it exists, and its rules
CASES: list[tuple[str | None, dict[str, Any]]] = [
    (None, TWO),
    (None, PASSKEY),
    ("organization", TWO),
    ("application", TWO),
    ("platform", TWO),
    ("platform", LATER),
    ("organization", PASSKEY_LATER),
    ("platform", PASSKEY_LATER),
    ("organization", PASSKEY),
    ("platform", PASSKEY),
    ("organization", ONLY_PASSKEYS),
    ("application", ONLY_PASSKEYS),
    ("application and organization", EMAIL_OR_PASSKEY),
    ("organization", PROVIDER_OR_PASSKEY),
    ("application", PROVIDER_OR_PASSKEY),
    ("settings of the application", {}),
    ("settings of the application and organization", PASSWORD_OR_PASSKEY),
    ("application of a group", PASSKEY),
    ("application of a role", PASSKEY),
    ("application of members", PASSKEY),
]


@pytest.fixture
def providers(provider: FakeProvider) -> list[PlatformCredentials]:
    return [provider.connection()]


async def store_policy(acme: Tenant, place: str, user: Account, document: dict[str, Any]) -> None:
    """Store a policy that the user has to meet at this place."""
    service = await add_service(acme.pool, acme.org) if "application" in place else None
    if place in ("organization", "application of members"):
        await acme.join("ada", user)
    elif service is not None and place == "application of a group":
        assign = "insert into service_groups_assigned values (%s, %s, %s, now())"
        await run_sql(acme.pool, assign, acme.org, service, await add_group(acme.pool, acme.org, user.id))
    elif service is not None and place == "application of a role":
        await add_service_role(acme.pool, service, user.id)
    elif service is not None:
        await add_service_user(acme.ports, service, user.id)
    else:
        await run_sql(acme.pool, "update users set is_platform_owner = true where id = %s", user.id)
    if place.startswith("settings of the application"):
        await run_sql(acme.pool, "update services set required_acr = %s where id = %s", "mfa" if document else "phr", service)
        service = None
        if not document:
            return
    if place == "application and organization":
        await put_policy(acme, acme.org, None, PASSWORD_OR_PASSKEY)
    await put_policy(acme, None if place == "platform" else acme.org, service, document)


async def put_policy(acme: Tenant, org_id: UUID | None, service_id: UUID | None, document: dict[str, Any]) -> None:
    policy = SignInPolicy(org_id=org_id, service_id=service_id, rules=Rules.read(document), changed_at=acme.ports.clock.now())
    async with acme.ports.storage.transaction(by=SYSTEM) as tx:
        await tx.sign_in_policies.put(policy)


async def reset(
    api: Api, app: QuartTrio, ports: Ports, sent: FakeMailTransport, email: str = EMAIL, *, on_page: bool, kept: Sequence[str] = ()
) -> None:
    """Reset the password by the mailbox alone. On the page, only these boxes are ticked."""
    assert (await api.post("/api/auth/forgot-password", {"email": email})).status == 200
    await deliver(ports)
    token = link(sent.newest("/auth/reset-password", email))
    if not on_page:
        answer = await api.post("/api/auth/reset-password", {"token": token, "new_password": NEW_PASSWORD})
    else:
        browser = FakeBrowser(app)
        page = await browser.open(f"/auth/reset-password?token={token}")
        answer = await browser.send(
            "/auth/reset-password", **{**hidden_fields(page), "new_password": NEW_PASSWORD, **dict.fromkeys(kept, "yes")}
        )
    assert answer.status == 200, answer.text


async def factors(pool: Pool, user: Account) -> tuple[bool, int]:
    """Return whether the account has an app, and how many passkeys it has."""
    [row] = await run_sql(pool, "select mfa_enabled_at is not null, passkey_count from users where id = %s", user.id)
    return bool(row[0]), int(row[1])


async def is_recovery_required(pool: Pool, user: Account) -> bool:
    return await run_sql(pool, "select 1 from users where id = %s and recovery_required_at is not null", user.id) != []


@pytest.mark.parametrize(
    ("place", "document", "on_page"),
    [
        *((place, document, True) for place, document in CASES),
        *((place, document, False) for place, document in CASES if document in BY_APP),  # over the API, passkeys stay in any case
    ],
)
async def test_a_reset_keeps_the_only_factor_that_meets_a_policy_or_only_a_recovery_replaces_it(
    acme: Tenant,
    api: Api,
    app: QuartTrio,
    ports: Ports,
    pool: Pool,
    sent: FakeMailTransport,
    place: str | None,
    document: dict[str, Any],
    on_page: bool,
) -> None:
    """Even a factor from today stays, because the policy may have begun today.

    On the page, it ends, because a thief may have added factor and policy.
    """
    user, has_passkey = await add_account(ports), document not in BY_APP
    if has_passkey:
        await PasskeyUser(api, (await sign_in(ports, user)).access_token).add()
    else:
        await add_mfa(ports, user)
    if place is not None:
        await store_policy(acme, place, user, document)
    before = await factors(pool, user)
    await reset(api, app, ports, sent, on_page=on_page)
    ends = place is None or on_page
    assert await factors(pool, user) == ((False, 0) if ends else before)
    assert await is_recovery_required(pool, user) is (place is not None and on_page)
    if ends:
        token = (await api.login(EMAIL, NEW_PASSWORD)).json["access_token"]
        assert await try_to_add(api, token) == ([403] * 4 if place is not None else [200] * 4)


@pytest.mark.parametrize("on_page", [False, True], ids=["API", "page"])
async def test_a_reset_keeps_the_factor_that_a_policy_asks_for_beside_the_new_password(
    acme: Tenant, api: Api, app: QuartTrio, ports: Ports, pool: Pool, sent: FakeMailTransport, on_page: bool
) -> None:
    """Before the reset the account has no password, so that it did not meet the policy."""
    user = await add_account(ports)
    await PasskeyUser(api, (await sign_in(ports, user)).access_token).add()
    await add_mfa(ports, user)
    await run_sql(pool, "update users set password_hash = null where id = %s", user.id)
    await store_policy(acme, "organization", user, {**TWO, "methods": ["password", "totp"]})
    await reset(api, app, ports, sent, on_page=on_page)
    assert (await factors(pool, user))[0] is not on_page
    assert await is_recovery_required(pool, user) is on_page


@pytest.mark.parametrize("age", [timedelta(0), timedelta(days=4)])
@pytest.mark.parametrize(
    ("on_page", "place", "of_shop"),
    [
        (on_page, place, of_shop)
        for on_page in (False, True)
        for place, of_shop in [(None, False), ("organization", False), ("application", False), ("application", True)]
    ],
)
async def test_a_reset_keeps_the_linked_account_that_meets_a_policy(
    acme: Tenant,
    api: Api,
    app: QuartTrio,
    ports: Ports,
    pool: Pool,
    clock: FakeClock,
    sent: FakeMailTransport,
    on_page: bool,
    place: str | None,
    of_shop: bool,
    age: timedelta,
) -> None:
    """If the reset removed it, the mailbox alone could add a passkey.

    Without a policy, only older accounts stay where nothing asks the user.

    On the page, a recent account ends, and only a recovery replaces it.
    """
    user = await add_account(ports)
    if place is not None:
        await store_policy(acme, place, user, PROVIDER_OR_PASSKEY)
    shops = await run_sql(pool, "select id from services")
    clock.advance(timedelta(minutes=1))
    await add_identity(pool, user.id, "websuite", shops[0][0] if of_shop else None, linked_at=clock.now())
    clock.advance(age)
    await reset(api, app, ports, sent, on_page=on_page)
    stays = not on_page or age > timedelta(0) if place is not None else age > timedelta(0) and not on_page
    assert await run_sql(pool, "select count(*) from identities") == [(int(stays),)]
    token = (await api.login(EMAIL, NEW_PASSWORD)).json["access_token"]
    assert await try_to_add(api, token) == ([401 if stays else 403] * 4 if place is not None else [200, 200, 200, 400 if stays else 200])


async def undo(api: Api, ports: Ports, sent: FakeMailTransport) -> str:
    """Follow the link "This wasn't me" in the email about the factor, and return the page."""
    await deliver(ports)
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "text/html"}
    done = await api.call("POST", "/auth/undo", raw=f"token={link(sent.newest('/auth/undo', EMAIL))}".encode(), headers=headers)
    assert done.status == 200, done.text
    return done.text


async def try_to_add(api: Api, token: str) -> list[int]:
    """Return the statuses for the first steps of adding an app, a passkey, a security key and a linked account."""
    setup = await api.post("/api/user/mfa/setup", token=token)
    options = [await api.post("/api/user/passkeys/options", {"kind": kind}, token=token) for kind in ("passkey", "security_key")]
    started = await api.post("/api/user/identities/websuite/link", token=token)
    return [answer.status for answer in (setup, *options, started)]


async def try_to_link_by_address(provider_sign_in: ProviderSignIn) -> str:
    """Sign in at a provider that knows only the account's address. Return the refusal's text, or nothing if it is linked."""
    answer = await provider_sign_in.complete()
    identities = await provider_sign_in.identities()
    assert (answer.status, identities == [], await provider_sign_in.user_id() is None) in [(303, False, False), (403, True, True)], (
        answer.text
    )
    return unescape(answer.text) if answer.status == 403 else ""


@pytest.mark.parametrize(("place", "document"), CASES)
async def test_after_an_undo_only_a_recovery_gives_the_factor_that_a_policy_asks_for(
    acme: Tenant,
    api: Api,
    app: QuartTrio,
    ports: Ports,
    pool: Pool,
    sent: FakeMailTransport,
    provider_sign_in: ProviderSignIn,
    place: str | None,
    document: dict[str, Any],
) -> None:
    user = await add_account(ports)
    token = (await sign_in(ports, user)).access_token
    if document not in BY_APP:
        await PasskeyUser(api, token).add()
    else:
        secret = (await api.post("/api/user/mfa/setup", token=token)).json["secret"]
        code = Authenticator(secret, ports.clock).code()
        assert (await api.post("/api/user/mfa/verify", {"code": code}, token=token)).status == 200
    if place is not None:
        await store_policy(acme, place, user, document)
    page = await undo(api, ports, sent)
    assert ("Only a recovery" in page) is (place is not None)
    assert await factors(pool, user) == (False, 0), "the link removes the factor, as it says"
    await reset(api, app, ports, sent, on_page=False)
    browser = FakeBrowser(app)
    await browser.sign_in(EMAIL, NEW_PASSWORD)
    token = (await api.login(EMAIL, NEW_PASSWORD)).json["access_token"]
    if place == "platform":
        assert (await api.get("/api/platform/organizations", token=token)).status == 403
    assert await try_to_add(api, token) == ([200] * 4 if place is None else [403] * 4)
    refusal = await try_to_link_by_address(provider_sign_in)
    assert (str(RecoveryRequired.__doc__) in refusal) is (place is not None), refusal
    await run_sql(pool, "delete from identities")
    refused = [await browser.open("/app/account/passkeys/new"), await browser.submit("/app/account/two-factor/setup")]
    assert [answer.status for answer in refused] == ([200, 200] if place is None else [403, 403])
    assert [str(RecoveryRequired.__doc__) in unescape(answer.text) for answer in refused] == [place is not None] * 2
    if place == "organization":
        enroll = (await browser.open("/app/enroll?org=acme")).text
        assert ("Only a recovery" in enroll, "Create a passkey" in enroll) == (True, False)
    await run_sql(pool, "delete from sign_in_policies")
    await run_sql(pool, "update organizations set sign_in_policy_version = null")
    await run_sql(pool, "update services set required_acr = null")
    assert await try_to_add(api, token) == [200] * 4, "no policy asks for it any longer"
    await store_policy(acme, "platform", user, TWO)
    enroll = (await browser.open("/app/enroll")).text
    assert ("Only a recovery" in enroll, "Create a passkey" in enroll) == (False, True), "a later policy is met as by any other user"


@pytest.mark.parametrize("by_provider", [False, True])
async def test_after_an_undo_an_account_that_is_linked_at_an_application_is_linked_nowhere_else(
    acme: Tenant, api: Api, ports: Ports, pool: Pool, sent: FakeMailTransport, provider_sign_in: ProviderSignIn, by_provider: bool
) -> None:
    """Another organization has the application. The identity was known there, but would be a new way into Acme."""
    user = await add_account(ports)
    await provider_sign_in.sign_in()
    shop = await add_service(pool, await add_organization(pool, "globex"))
    await run_sql(pool, "update identities set service_id = %s, linked_at = linked_at - interval '1 year'", shop)
    await PasskeyUser(api, (await sign_in(ports, user)).access_token).add()
    methods = {"methods": ["passkey", f"provider:{provider_sign_in.name}"]}
    await store_policy(acme, "organization", user, methods if by_provider else PASSKEY)
    assert "Only a recovery" in await undo(api, ports, sent)
    answer = await provider_sign_in.complete()
    assert (answer.status, str(RecoveryRequired.__doc__) in unescape(answer.text)) == (403, True)
    assert await run_sql(pool, "select service_id from identities") == [(shop,)]


async def test_after_an_undo_no_present_key_becomes_the_second_factor(
    acme: Tenant, api: Api, app: QuartTrio, ports: Ports, sent: FakeMailTransport
) -> None:
    """A key that became the second factor would come with backup codes, so the mailbox alone would meet the policy."""
    user = await add_account(ports)
    token = (await sign_in(ports, user)).access_token
    await PasskeyUser(api, token).add_key(second_factor=False)
    secret = (await api.post("/api/user/mfa/setup", token=token)).json["secret"]
    assert (await api.post("/api/user/mfa/verify", {"code": Authenticator(secret, ports.clock).code()}, token=token)).status == 200
    await store_policy(acme, "organization", user, TWO)
    await undo(api, ports, sent)
    await reset(api, app, ports, sent, on_page=False)
    token = (await api.login(EMAIL, NEW_PASSWORD)).json["access_token"]
    turned_on = await api.call("PUT", "/api/user/passkeys/second-factor", {"enabled": True}, token=token)
    assert (turned_on.status, turned_on.json["error"]) == (403, RecoveryRequired.__doc__)


async def test_after_an_undo_no_passkey_is_offered(acme: Tenant, api: Api, app: QuartTrio, ports: Ports, sent: FakeMailTransport) -> None:
    user = await add_account(ports)
    await PasskeyUser(api, (await sign_in(ports, user)).access_token).add()
    await store_policy(acme, "organization", user, PASSKEY)
    await undo(api, ports, sent)
    await reset(api, app, ports, sent, on_page=False)
    session = await sign_in(ports, user)
    assert not await passkeys.is_offer_due(ports, user.id, session.session_id, ports.clock.now())


async def test_a_reset_ends_a_recent_factor_beside_an_older_one(
    acme: Tenant, api: Api, app: QuartTrio, ports: Ports, pool: Pool, clock: FakeClock, sent: FakeMailTransport
) -> None:
    """A session thief may have added the second passkey. The first passkey still meets the policy."""
    user = await add_account(ports)
    first = PasskeyUser(api, (await sign_in(ports, user)).access_token)
    await first.add()
    clock.advance(timedelta(days=4))
    thief = PasskeyUser(api, (await sign_in(ports, user)).access_token)
    await thief.confirm(first.authenticator)
    await thief.add()
    await store_policy(acme, "organization", user, PASSKEY)
    await reset(api, app, ports, sent, on_page=True)
    assert await factors(pool, user) == (False, 1)


@pytest.mark.parametrize("kept", ["app", "passkey", None])
async def test_of_two_recent_factors_the_user_keeps_either(
    acme: Tenant, api: Api, app: QuartTrio, ports: Ports, pool: Pool, sent: FakeMailTransport, kept: str | None
) -> None:
    """A session thief may have added a factor. Without a choice, only a recovery gives another factor."""
    user = await add_account(ports)
    passkey = await PasskeyUser(api, (await sign_in(ports, user)).access_token).add()
    await add_mfa(ports, user)
    await store_policy(acme, "organization", user, TWO)
    ids = {"app": user.id, "passkey": passkey["id"]}
    await reset(api, app, ports, sent, on_page=True, kept=[f"keep:{ids[kept]}"] if kept else [])
    assert await factors(pool, user) == (kept == "app", int(kept == "passkey"))
    assert await is_recovery_required(pool, user) is (kept is None)


@pytest.mark.parametrize("kept", ["linked account", "passkey", None])
async def test_of_a_linked_account_and_a_passkey_the_user_keeps_either(
    acme: Tenant, api: Api, app: QuartTrio, ports: Ports, pool: Pool, clock: FakeClock, sent: FakeMailTransport, kept: str | None
) -> None:
    user = await add_account(ports)
    clock.advance(timedelta(minutes=1))
    linked = await add_identity(pool, user.id, "websuite", linked_at=clock.now())
    clock.advance(timedelta(minutes=1))
    passkey = await PasskeyUser(api, (await sign_in(ports, user)).access_token).add()
    await store_policy(acme, "organization", user, PROVIDER_OR_PASSKEY)
    ids = {"linked account": linked, "passkey": passkey["id"]}
    await reset(api, app, ports, sent, on_page=True, kept=[f"keep:{ids[kept]}"] if kept else [])
    left = (await run_sql(pool, "select count(*) from identities"))[0][0], (await factors(pool, user))[1]
    assert left == (int(kept == "linked account"), int(kept == "passkey"))
    assert await is_recovery_required(pool, user) is (kept is None)


@pytest.fixture
async def lost(app: QuartTrio, acme: Tenant, sent: FakeMailTransport) -> LostUser:
    return await add_lost_user(acme, FakeBrowser(app), sent)


@pytest.mark.parametrize("on_page", [False, True], ids=["API", "page"])
async def test_a_reset_keeps_the_factor_of_a_recovery(
    lost: LostUser, api: Api, app: QuartTrio, ports: Ports, pool: Pool, sent: FakeMailTransport, on_page: bool
) -> None:
    """Otherwise the issuer's code would protect nothing for 72 hours. No policy asks for a factor here."""
    await run_sql(pool, "update users set recovery_required_at = now() where id = %s", lost.account.id)
    assert (await lost.send_app(await lost.recover())).status == 200
    assert await run_sql(pool, "select recovery_required_at from users where id = %s", lost.account.id) == [(None,)]
    await reset(api, app, ports, sent, str(lost.account.email), on_page=on_page)
    assert await factors(pool, lost.account) == (True, 0)
