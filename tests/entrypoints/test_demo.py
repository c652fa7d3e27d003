"""`gatehouse demo`: all data works, and a second run adds nothing."""

import re
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
from quart_trio import QuartTrio

from adapters.crypto import X509Certificates
from adapters.postgres.engine.pool import Pool
from core.applications.model.services import RedirectUriInvalid
from core.demo import creation, factors
from core.demo.model import demo
from core.demo.model.demo import Demo, DemoRefused, DemoUser
from core.federation.saml.model.configuration import SamlCertificate
from core.kernel.callers import Person
from core.tenancy import governance
from entrypoints.demo.output import as_json, as_walk, notes
from ports import Ports
from tests.fakes.outside import FakeClock, FakeMailTransport, FakeMetrics
from tests.federation.api.relying import AUTHORIZE, PKCE, TOKEN, VERIFIER, redirect_parts
from tests.support.browser import FakeBrowser, leads_to
from tests.support.builders import BASE_URL, Api, add_account, add_member, add_organization, make_ports, run_concurrently, run_sql, sign_in
from tests.support.identities import add_identity
from tests.support.mfa import Authenticator, add_mfa
from tests.support.saml import SamlApplication, new_certificate
from tests.support.saml.browser import SamlBrowser

# Tables with rows that every run replaces or adds, and with old secrets that stay valid for a day.
REPLACED = {"audit_log", "audit_totals", "events", "former_webhook_secrets", "guesses", "rates", "setup_links"}
POLICY = "/api/organizations/demo/sign-in-policy"
SECRETS = ("password", "client_secret", "api_key", "scim_token", "totp_secret", "secret", "setup_link")


async def counts(pool: Pool) -> dict[str, int]:
    tables = await run_sql(pool, "select relname from pg_stat_user_tables")
    names = [name for (name,) in tables if name not in REPLACED]
    return {name: (await run_sql(pool, f"select count(*) from {name}"))[0][0] for name in names}  # noqa: S608  (names of tables)


def all_users(shown: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for tenant in (shown, shown["other_organization"]):
        for who in (tenant["owner"], tenant["admin"], tenant["member"], tenant["auditor"], *tenant["end_users"]):
            yield who["email"], who["password"]


class CachedCertificates(X509Certificates):
    """Certificates with a key per organization, because a new key takes a tenth of a second."""

    async def create(self, organization: str, name: str, now: datetime, years: int) -> SamlCertificate:
        return await new_certificate(now, organization)


@pytest.fixture
async def ports(pool: Pool, clock: FakeClock, sent: FakeMailTransport, metrics: FakeMetrics) -> Ports:
    return replace(await make_ports(pool, clock, sent, metrics), certificates=CachedCertificates())


@pytest.fixture
async def seeded(ports: Ports) -> Demo:
    return await creation.seed(ports)


@pytest.mark.slow
async def test_all_users_and_credentials_work(api: Api, seeded: Demo) -> None:
    shown = as_json(seeded, BASE_URL)
    for email, password in all_users(shown):
        assert (await api.login(email, password)).status == 200
    for tenant in (shown, shown["other_organization"]):
        assert tenant["organization"]["status"] == "active"
        org, service = tenant["organization"]["slug"], tenant["service"]["slug"]
        token = (await api.login(tenant["owner"]["email"], tenant["owner"]["password"])).json["access_token"]
        listed = (await api.get(f"/api/organizations/{org}/services", token=token)).json["services"]
        of_group = {each["client_id"] for each in listed if each["slug"] == "back-office"}
        assert len(of_group) == 1
        assert {each["client_id"] for each in listed} - of_group == {tenant[name]["client_id"] for name in ("service", "mobile_service")}
        members = (await api.get(f"/api/organizations/{org}/members", token=token)).json["members"]
        assert {(each["user"]["id"], each["membership"]["role"]) for each in members} == {
            (tenant[role]["id"], role) for role in ("owner", "admin", "member", "auditor")
        }
        key = {"X-Api-Key": tenant["api_key"]}
        users = (await api.get("/api/service/users", headers=key)).json
        assert {each["id"] for each in users["users"]} == {each["id"] for each in tenant["end_users"]}
        subscription = (await api.get(f"/api/service/subscriptions/{tenant['end_users'][0]['id']}", headers=key)).json
        assert subscription["plan_id"] == tenant["plan"]["id"]
        robot = await api.post("/auth/token", {"grant_type": "client_credentials", **tenant["service_account"]})
        assert robot.json["scope"] == "members:read"
        assert (await api.get(f"/api/organizations/{org}/members", token=robot.json["access_token"])).json["members"] == members
        resource = tenant["api_resource"]
        asked = {"grant_type": "client_credentials", "resource": resource["identifier"], **tenant["service_account"]}
        of_resource = (await api.post("/auth/token", asked)).json
        assert of_resource["scope"] == "orders:read"
        api_client = {name: resource[name] for name in ("client_id", "client_secret")}
        state = (await api.post("/auth/introspect", {**api_client, "token": of_resource["access_token"]})).json
        assert (state["active"], state["aud"], state["scope"]) == (True, resource["identifier"], "orders:read")
        known = (await api.get("/scim/v2/Users", token=tenant["scim_token"])).json
        assert {each["id"] for each in known["Resources"]} == {tenant[role]["id"] for role in ("owner", "admin", "member", "auditor")}
        both = {"org_slug": org, "service_slug": service}
        end_user = tenant["end_users"][0]
        signed_in = await api.post("/api/auth/login", {"email": end_user["email"], "password": end_user["password"], **both})
        profile = (await api.get("/api/user", token=signed_in.json["access_token"])).json
        assert (profile["org"], profile["service"]) == (org, service)
    owner = await api.login(shown["platform_owner"]["email"], shown["platform_owner"]["password"])
    listed = await api.get("/api/platform/organizations", token=owner.json["access_token"])
    assert {each["organization"]["slug"] for each in listed.json["organizations"]} == {"demo", "demo-other"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["service", "mobile_service"])
async def test_its_applications_can_exchange_codes(app: QuartTrio, api: Api, seeded: Demo, name: str) -> None:
    shown = as_json(seeded, BASE_URL)
    for tenant in (shown, shown["other_organization"]):
        application, who, browser = tenant[name], tenant["end_users"][0], FakeBrowser(app)
        client, pkce = {"client_id": application["client_id"]}, {} if "client_secret" in application else PKCE
        shows = {"code_verifier": VERIFIER} if pkce else {"client_secret": application["client_secret"]}
        for redirect_uri in application["redirect_uris"]:
            path = f"{AUTHORIZE}?{urlencode({**client, **pkce, 'redirect_uri': redirect_uri})}"
            if "gatehouse-session" not in browser.cookies:
                signed_in = await browser.fill(await browser.open(path), email=who["email"], password=who["password"])
                question = await browser.open(leads_to(signed_in))
            else:
                question = await browser.open(path)
            place, fields = redirect_parts(await browser.answer(question, "continue"))
            assert place == redirect_uri
            tokens = await api.post(TOKEN, {**client, **shows, "code": fields["code"], "redirect_uri": redirect_uri})
            profile = (await api.get("/api/user", token=tokens.json["access_token"])).json
            assert (profile["id"], profile["service"]) == (who["id"], application["slug"])


@pytest.mark.slow
async def test_a_device_gets_tokens(api: Api, seeded: Demo) -> None:
    shown = as_json(seeded, BASE_URL)
    client, who = {"client_id": shown["service"]["client_id"]}, shown["end_users"][0]
    codes = (await api.post("/auth/device/code", client)).json
    token = (await api.login(who["email"], who["password"])).json["access_token"]
    approved = await api.post("/auth/device/verify", {"user_code": codes["user_code"], "action": "approve"}, token=token)
    assert approved.json == {"status": "approved"}
    assert (await api.post(TOKEN, {**client, "device_code": codes["device_code"]})).json["token_type"] == "Bearer"


@pytest.mark.slow
async def test_one_application_signs_users_in_with_saml(app: QuartTrio, api: Api, clock: FakeClock, seeded: Demo) -> None:
    shown = as_json(seeded, BASE_URL)
    for tenant, made in ((shown, seeded.first), (shown["other_organization"], seeded.other)):
        assert (await api.get(tenant["saml"]["metadata_url"].removeprefix(BASE_URL))).status == 200
        org, service, who = made.organization, made.web.service, tenant["end_users"][0]
        browser = SamlBrowser(app, clock)
        await browser.sign_in(who["email"], who["password"])
        response = await browser.sign_on(SamlApplication(org.id, org.slug, service.id, service.slug, made.saml, None))
        assert (response.url, response.name_id) == (tenant["saml"]["acs_url"], who["email"])


@pytest.mark.slow
async def test_a_changed_saml_configuration_is_kept_unless_it_is_disabled(api: Api, ports: Ports, pool: Pool, seeded: Demo) -> None:
    await run_sql(pool, "update saml_configurations set acs_url = 'https://mine.example/acs'")
    before = await run_sql(pool, "select id from saml_certificates order by id")
    assert (await creation.seed(ports)).first.saml.acs_url == "https://mine.example/acs"
    assert await run_sql(pool, "select id from saml_certificates order by id") == before
    await run_sql(pool, "update saml_configurations set enabled = false")
    await run_sql(pool, "update saml_certificates set private_key = null, deactivated_at = now()")
    assert (await creation.seed(ports)).first.saml == demo.SAML
    for slug in demo.ORGANIZATIONS:
        assert (await api.get(f"/saml/{slug}/web-shop/metadata")).status == 200


@pytest.mark.slow
async def test_one_end_user_of_each_organization_has_a_second_factor(api: Api, ports: Ports, pool: Pool, seeded: Demo) -> None:
    shown = as_json(seeded, BASE_URL)
    for tenant in (shown, shown["other_organization"]):
        plain, cautious = tenant["end_users"]
        assert plain["totp_secret"] is None
        assert re.fullmatch("[A-Z2-7]{32}", cautious["totp_secret"])
        assert "mfa_required" not in (await api.login(plain["email"], plain["password"])).json
        first = (await api.login(cautious["email"], cautious["password"])).json
        assert (first["mfa_required"], first["refresh_token"]) == (True, "")
        code = Authenticator(cautious["totp_secret"], ports.clock).code()
        pair = (await api.post("/api/auth/mfa/verify", {"code": code}, token=first["access_token"])).json
        assert (await api.get("/api/user/mfa/status", token=pair["access_token"])).json == {
            "enabled": True,
            "has_backup_codes": False,
            "methods": ["totp"],
        }
    assert await run_sql(pool, "select action from audit_log where action like 'security.mfa%%'") == [("security.mfa.enabled",)] * 2


async def reseeded(ports: Ports) -> list[DemoUser]:
    """Run the demo again, and return its end users."""
    again = await creation.seed(ports)
    return [*again.first.end_users, *again.other.end_users]


@pytest.mark.slow
async def test_one_end_user_of_each_organization_has_a_passkey(api: Api, ports: Ports, pool: Pool, seeded: Demo) -> None:
    """Its private key exists nowhere, so it opens nothing."""
    for index, tenant in enumerate((seeded.first, seeded.other)):
        user = tenant.end_users[0] if index == 0 else (await reseeded(ports))[2]
        token = (await api.login(user.email, user.password)).json["access_token"]
        [passkey] = (await api.get("/api/user/passkeys", token=token)).json["passkeys"]
        assert (passkey["name"], passkey["rp_id"]) == (factors.PASSKEY_NAME, "gatehouse.test")
        assert (await api.delete("/api/user/password", token=token)).status == 400, "the passkey cannot sign in"
        assert (await api.call("PUT", "/api/user/passkeys/second-factor", {"enabled": True}, token=token)).status == 200
        refreshed = next(each for each in await reseeded(ports) if each.email == user.email)
        token = (await api.login(user.email, refreshed.password)).json["access_token"]
        assert (await api.delete(f"/api/user/passkeys/{passkey['id']}", token=token)).status == 204
    assert await run_sql(pool, "select rp_id from issuer") == [("gatehouse.test",)]
    await creation.seed(ports)
    assert await run_sql(pool, "select count(*) from passkeys") == [(2,)], "the next run adds it again"


@pytest.mark.slow
async def test_its_set_up_link_opens_until_the_next_run_and_an_admin_plays_its_identity_provider(
    app: QuartTrio, ports: Ports, seeded: Demo
) -> None:
    again = await creation.seed(ports)
    links = [as_json(each, BASE_URL)["setup_link"].removeprefix(BASE_URL) for each in (seeded, again)]
    opened = [await FakeBrowser(app).open(link) for link in links]
    assert [answer.status for answer in opened] == [400, 200]
    assert all(part in opened[1].text for part in ("Single sign-on", "Domain", "User directory"))
    browser, page = FakeBrowser(app), f"/app/organizations/demo-other/connections/{again.other.connection.slug}/test"
    await browser.sign_in(again.other.admin.email, again.other.admin.password)
    assert "Begin test sign-in" in (await browser.open(page)).text
    assert "<h1>You play the identity provider</h1>" in (await browser.open(leads_to(await browser.open(f"{page}/start")))).text


@pytest.mark.slow
async def test_people_of_the_demo_open_their_security_page(app: QuartTrio, seeded: Demo) -> None:
    """Their recorded sign-ins have no address and no device."""
    for user in (seeded.first.owner, seeded.first.end_users[0]):
        browser = FakeBrowser(app)
        await browser.sign_in(user.email, user.password)
        page = await browser.open("/app/account/security")
        assert (page.status, factors.PASSKEY_NAME in page.text) == (200, user.email.startswith(demo.PASSKEY_USER)), page.text


@pytest.mark.slow
async def test_one_organization_asks_its_admins_for_a_second_factor(api: Api, ports: Ports, clock: FakeClock, seeded: Demo) -> None:
    async def read_policy(demo_data: Demo) -> Any:
        owner = demo_data.first.owner
        token = (await api.login(owner.email, owner.password)).json["access_token"]
        answer = await api.get(POLICY, token=token)
        assert answer.status == 200, answer.text
        return answer.json

    first = await read_policy(seeded)
    assert (first["second_factor"], first["grace_days"]) == (["admins"], 14)
    clock.advance(timedelta(days=13))
    later = await read_policy(await creation.seed(ports))
    assert later["due_at"]["second_factor"] > first["due_at"]["second_factor"], "each run starts the grace again"
    owner = (await creation.seed(ports)).first.owner
    token = (await api.login(owner.email, owner.password)).json["access_token"]
    changed = {"second_factor": [], "version": (await api.get(POLICY, token=token)).json["version"]}
    assert (await api.call("PUT", POLICY, changed, token=token)).status == 200
    assert (await read_policy(await creation.seed(ports)))["second_factor"] is None, "the change of a user stays"


async def test_the_demo_at_an_address_of_numbers_has_no_passkey(ports: Ports, pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(ports.tokens), "issuer", "http://127.0.0.1:8080")
    await creation.seed(ports)
    assert await run_sql(pool, "select count(*) from passkeys") == [(0,)]


@pytest.mark.slow
async def test_a_second_run_replaces_the_second_factor(api: Api, ports: Ports, pool: Pool, seeded: Demo) -> None:
    old = seeded.first.end_users[1]
    first = (await api.login(old.email, old.password)).json
    body = {"code": Authenticator(old.totp_secret or "", ports.clock).code(), "trust_device": True}
    trusted = (await api.post("/api/auth/mfa/verify", body, token=first["access_token"])).json["device_token"]
    waiting = (await api.login(old.email, old.password)).json["access_token"]
    new = (await creation.seed(ports)).first.end_users[1]
    answer = await api.post("/api/auth/mfa/verify", {"code": Authenticator(old.totp_secret or "", ports.clock).code(1)}, token=waiting)
    assert answer.status == 401
    login = {"email": new.email, "password": new.password, "device_token": trusted}
    again = (await api.post("/api/auth/login", login)).json
    assert again["mfa_required"], "the device is no longer trusted"
    code = Authenticator(new.totp_secret or "", ports.clock).code()
    body = {"code": code, "trust_device": True}
    trusted = (await api.post("/api/auth/mfa/verify", body, token=again["access_token"])).json["device_token"]
    assert "mfa_required" not in (await api.post("/api/auth/login", {**login, "device_token": trusted})).json
    assert await run_sql(pool, "select count(*) from mfa_events where event_type = 'mfa_enabled'") == [(2,)]


@pytest.mark.slow
async def test_a_second_run_adds_nothing_and_replaces_secrets(api: Api, ports: Ports, pool: Pool, seeded: Demo) -> None:
    before, there = as_json(seeded, BASE_URL), await counts(pool)
    after = as_json(await creation.seed(ports), BASE_URL)
    assert await counts(pool) == there
    assert without_secrets(after) == without_secrets(before)
    assert not set(secrets(after)) & set(secrets(before))
    old, new = ({"X-Api-Key": shown["api_key"]} for shown in (before, after))
    assert (await api.get("/api/service/info", headers=old)).status == 401
    assert (await api.get("/api/service/info", headers=new)).status == 200
    grant = {"grant_type": "client_credentials"}
    statuses = [(await api.post("/auth/token", {**grant, **shown["service_account"]})).status for shown in (before, after)]
    assert statuses == [401, 200]
    api_clients = [{name: shown["api_resource"][name] for name in ("client_id", "client_secret")} for shown in (before, after)]
    statuses = [(await api.post("/auth/introspect", {**client, "token": "unknown"})).status for client in api_clients]
    assert statuses == [401, 200]
    assert (await api.get("/scim/v2/Groups", token=before["scim_token"])).status == 401
    assert (await api.get("/scim/v2/Groups", token=after["scim_token"])).status == 200


def without_secrets(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_secrets(each) for name, each in value.items() if name not in SECRETS}
    return [without_secrets(each) for each in value] if isinstance(value, list) else value


def secrets(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, each in value.items():
            if name not in SECRETS:
                yield from secrets(each)
            elif each is not None:
                yield each
    elif isinstance(value, list):
        for each in value:
            yield from secrets(each)


@pytest.mark.slow
async def test_redirect_uris_change_only_if_some_are_given(ports: Ports) -> None:
    uris = ["http://localhost:9999/back", "com.example.mine:/back"]
    for redirect_uris in (uris, []):
        tenant = (await creation.seed(ports, redirect_uris)).first
        assert list(tenant.web.service.redirect_uris) == uris[:1]  # only the mobile application can use the second URI
        assert list(tenant.mobile.service.redirect_uris) == uris


@pytest.mark.slow
async def test_a_note_names_redirect_uris_for_the_mobile_application_only(ports: Ports) -> None:
    of_app, of_web = "com.example.mine:/back", "https://shop.example/back"
    seeded = await creation.seed(ports, [of_app])
    assert list(seeded.first.web.service.redirect_uris) == ["http://localhost:3000/callback"]
    assert notes(seeded, []) == notes(seeded, [of_web]) == []
    [note] = notes(seeded, [of_app])
    assert f"{of_app} was set only for mobile-shop" in note
    assert "web-shop keeps http://localhost:3000/callback" in note
    [note] = notes(seeded, [of_app, of_web])
    assert of_web not in note
    assert "keeps" not in note


@pytest.mark.slow
async def test_no_email_is_sent(pool: Pool, seeded: Demo) -> None:
    assert await run_sql(pool, "select kind from mails") == []


# Obstacles

CreateObstacle = Callable[[Ports, Pool], Awaitable[object]]
SUSPEND = "update organizations set status = 'suspended', suspended_reason = 'x' where slug = 'demo'"


def sql(*statements: str) -> CreateObstacle:
    async def create_obstacle(_: Ports, pool: Pool) -> None:
        for statement in statements:
            await run_sql(pool, statement)

    return create_obstacle


async def delete_other_organization(ports: Ports, pool: Pool) -> None:
    """Delete the second organization as a platform owner, and suspend the first."""
    [(org_id,)] = await run_sql(pool, "select id from organizations where slug = 'demo-other'")
    async with ports.storage.reading() as read:
        platform_owner = await read.accounts.by_email(demo.PLATFORM_OWNER)
    assert platform_owner is not None
    session = await sign_in(ports, platform_owner)
    await governance.delete(ports, Person(user_id=platform_owner.id, email=platform_owner.email, session_id=session.session_id), org_id)
    await run_sql(pool, SUSPEND)


OBSTACLES: dict[str, tuple[CreateObstacle, str]] = {
    "suspended": (sql(SUSPEND), "The organization demo is suspended. Activate or delete it"),
    "suspended, and the other one is gone": (delete_other_organization, "The organization demo is suspended. Activate or delete it"),
    "rejected": (
        sql("update organizations set status = 'rejected' where slug = 'demo-other'"),
        "The organization demo-other was rejected.",
    ),
    "given away": (
        sql("update memberships set role = 'admin' where role = 'owner'"),
        "The organization demo is not the demo's: owner@demo.example does not own it.",
    ),
    "an address belongs to another account": (
        sql("update users set email = 'grace@example.com' where email = 'owner@demo-other.example'"),
        "The organization demo-other is not the demo's: owner@demo-other.example does not own it.",
    ),
    "an account is deactivated": (
        sql("update users set deactivated_at = now() where email = 'grace@customer.demo-other.example'"),
        "The account grace@customer.demo-other.example is deactivated.",
    ),
    "no room for a service": (
        sql(
            "update organizations set max_services = 1 where slug = 'demo-other'",
            "update services s set slug = 'renamed' from organizations o where o.id = s.org_id and o.slug = 'demo-other'"
            " and s.slug = 'mobile-shop'",
        ),
        "The demo data of the organization demo-other cannot be created: The organization has reached its limit of applications.",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OBSTACLES)
async def test_an_obstacle_is_named_and_nothing_changes(ports: Ports, pool: Pool, seeded: Demo, name: str) -> None:
    create_obstacle, message = OBSTACLES[name]
    await create_obstacle(ports, pool)
    before = await everything(pool)
    with pytest.raises(DemoRefused) as refused:
        await creation.seed(ports, ["https://elsewhere.example/back"])
    assert refused.value.message.startswith(message)
    assert refused.value.message.endswith(" Nothing was changed.")
    assert await everything(pool) == before


@pytest.mark.slow
async def test_an_organization_with_another_owner_is_not_changed(ports: Ports, pool: Pool) -> None:
    org = await add_organization(pool, "demo-other")
    await add_member(pool, org, (await add_account(ports, "grace@example.com", None)).id, "owner")
    before = await everything(pool)
    with pytest.raises(DemoRefused, match="demo-other is not the demo's"):
        await creation.seed(ports)
    assert await everything(pool) == before, "not even accounts"


@pytest.mark.slow
@pytest.mark.parametrize("uri", ["ftp://localhost/back", "http://shop.example/back", "com.example.mine", "https://*.example/", ""])
async def test_an_invalid_redirect_uri_is_refused(ports: Ports, pool: Pool, uri: str) -> None:
    before = await everything(pool)
    with pytest.raises(RedirectUriInvalid):
        await creation.seed(ports, ["https://shop.example/back", uri])
    assert await everything(pool) == before


async def everything(pool: Pool) -> dict[str, list[Any]]:
    """Return all rows in all tables."""
    tables = sorted(name for (name,) in await run_sql(pool, "select relname from pg_stat_user_tables"))
    return {name: await run_sql(pool, f"select t::text from {name} t order by 1") for name in tables}  # noqa: S608  (names of tables)


@pytest.mark.slow
async def test_deleted_data_is_created_again(api: Api, ports: Ports, pool: Pool, seeded: Demo) -> None:
    before = as_json(seeded, BASE_URL)
    changes = [
        "update organizations set status = 'pending' where slug = 'demo'",
        "update memberships set role = 'member' where role = 'admin'",
        "delete from memberships where role = 'member' and user_id = (select id from users where email = 'member@demo.example')",
        "update services set service_type = 'mobile', client_secret_hash = null where slug = 'web-shop'",
        "update services set service_type = 'web', client_secret_hash = '\\x00' where slug = 'mobile-shop'",
        "delete from subscriptions",
        "delete from saml_certificates",
        "delete from saml_configurations",
        "update services set redirect_uris = '{}'",
    ]
    for change in changes:
        await run_sql(pool, change)
    after = as_json(await creation.seed(ports), BASE_URL)
    assert without_secrets(after) == without_secrets(before)
    for tenant in (after, after["other_organization"]):
        token = (await api.login(tenant["admin"]["email"], tenant["admin"]["password"])).json["access_token"]
        key = {"X-Api-Key": tenant["api_key"]}
        assert (await api.get(f"/api/service/subscriptions/{tenant['end_users'][0]['id']}", headers=key)).status == 200
        listed = (await api.get(f"/api/organizations/{tenant['organization']['slug']}/services", token=token)).json["services"]
        assert {each["slug"]: each["service_type"] for each in listed} == {"web-shop": "web", "mobile-shop": "mobile", "back-office": "web"}
        groups = (await api.get(f"/api/organizations/{tenant['organization']['slug']}/groups", token=token)).json["groups"]
        assert [(group["name"], group["member_count"]) for group in groups] == [
            ("Auditors", 1),
            ("Finance", 2),
            ("Sales", 1),
        ], "with the member who had left"
        organization = f"/api/organizations/{tenant['organization']['slug']}"
        assert (await api.get(f"{organization}/members/{tenant['admin']['id']}", token=token)).json["membership"]["roles"] == [
            "admin",
            "auditor",
        ]
        own = (await api.get(f"{organization}/members/{tenant['admin']['id']}/attributes", token=token)).json
        assert (own["values"], own["effective"]) == ({"cost_center": None}, {"cost_center": "4800"}), "the value of the group"


@pytest.mark.slow
async def test_an_earlier_owner_of_an_address_loses_access(api: Api, ports: Ports, pool: Pool) -> None:
    squatter = await add_account(ports, "owner@demo.example", "a password of the squatter", verified=False)
    session = await sign_in(ports, squatter)
    await add_mfa(ports, squatter)
    await add_identity(pool, squatter.id)
    owner = (await creation.seed(ports)).first.owner
    assert (owner.id, (await api.get("/api/user", token=session.access_token)).status) == (squatter.id, 401)
    assert (await api.login(owner.email, "a password of the squatter")).status == 401
    assert "mfa_required" not in (await api.login(owner.email, owner.password)).json
    assert await run_sql(pool, "select 1 from identities") == []


@pytest.mark.slow
async def test_concurrent_runs_wait_for_each_other(ports: Ports, pool: Pool) -> None:
    seeds = await run_concurrently(2, lambda _: creation.seed(ports))
    first, second = (without_secrets(as_json(seed, BASE_URL)) for seed in seeds)
    assert first == second
    assert await run_sql(pool, "select count(*) from organizations") == [(2,)]


@pytest.mark.slow
async def test_all_placeholders_of_the_commands_are_replaced(seeded: Demo) -> None:
    walk = as_walk(seeded, BASE_URL)
    assert f"api={BASE_URL}\n" in walk
    web, mobile = seeded.first.web, seeded.first.mobile
    for text in (seeded.first.api_key, f"-u {web.service.client_id}:{web.client_secret}", f"client_id={mobile.service.client_id}"):
        assert text in walk
    assert "redirect_uri=http%3A%2F%2Flocalhost%3A3000%2Fcallback" in walk
    assert "/saml/demo/web-shop/metadata" in walk
    # Braces remain only where a shell function begins and in JSON bodies: every placeholder was
    # replaced.
    assert "{" not in re.sub(r'\(\) \{|\{"(email|code|user_code|schemas|name|subject|type)"', "", walk)
