"""The pages for an organization's applications: who may open them, the values to copy, the settings and the secret (decision 264)."""

import json
import re
from base64 import b64encode
from datetime import timedelta
from html import unescape
from itertools import product
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from markupsafe import escape

from adapters.postgres.engine.pool import Pool
from core.kernel.values import digest
from entrypoints.http.pages.applications.applications import GROUP_NAMES
from tests.accounts.api.account_pages.paths import ORGANIZATIONS, page_text
from tests.fakes.outside import FakeClock
from tests.federation.api.client_authentication.keys import client_key
from tests.federation.api.relying import RelyingParty, add_relying_party, sign_in_browser
from tests.support.browser import FakeBrowser, form_token, leads_to, main_of
from tests.support.builders import BASE_URL, Answer, Api, run_sql
from tests.support.services import add_service
from tests.support.tenants import Tenant

APPLICATIONS = "/app/organizations/acme/applications"


@pytest.fixture
async def relying_party(acme: Tenant, browser: FakeBrowser) -> RelyingParty:
    return await add_relying_party(acme, browser)


async def test_a_member_copies_values_that_the_discovery_document_confirms(acme: Tenant, relying_party: RelyingParty, api: Api) -> None:
    await sign_in_browser(relying_party, acme.people["member"])
    browser = relying_party.browser
    assert 'href="/app/organizations/acme"' in (await browser.open(ORGANIZATIONS)).text
    assert f'href="{APPLICATIONS}/shop"' in (await browser.open(APPLICATIONS)).text
    page = page_text(await browser.open(f"{APPLICATIONS}/shop"))
    metadata = (await api.get("/.well-known/openid-configuration")).json
    assert f"Issuer {metadata['issuer']} " in page
    assert f"End-session URL {metadata['end_session_endpoint']} " in page
    assert f"{BASE_URL}/.well-known/openid-configuration" in page
    assert f"Client ID {relying_party.client_id} " in page
    assert "Token endpoint authentication client_secret_basic " in page


@pytest.mark.parametrize(("service_type", "method"), [("spa", "none"), ("api", "client_secret_basic"), ("mobile", "none")])
async def test_the_page_names_how_the_client_authenticates(
    acme: Tenant, relying_party: RelyingParty, service_type: str, method: str
) -> None:
    await sign_in_browser(relying_party, acme.people["admin"])
    await add_service(acme.pool, acme.org, "other", service_type)
    page = page_text(await relying_party.browser.open(f"{APPLICATIONS}/other"))
    assert f"Token endpoint authentication {method} " in page


@pytest.mark.parametrize(("reader", "shown"), [("admin", "Type Last sign-in Created"), ("member", "Type Created")])
async def test_readers_of_the_sign_in_log_see_the_last_sign_in_to_each_application(
    relying_party: RelyingParty, acme: Tenant, reader: str, shown: str
) -> None:
    await sign_in_browser(relying_party, acme.people[reader])
    page = page_text(await relying_party.browser.open(APPLICATIONS))
    assert shown in page.replace("↓", "").replace("  ", " ")
    assert ("never" in page) == (reader == "admin")


async def test_a_long_list_has_more_pages(acme: Tenant, relying_party: RelyingParty) -> None:
    await sign_in_browser(relying_party, acme.people["admin"])
    for number in range(50):
        await add_service(acme.pool, acme.org, f"shop-{number}")
    first = await relying_party.browser.open(APPLICATIONS)
    assert 'href="?offset=50"' in first.text
    second = await relying_party.browser.open(f"{APPLICATIONS}?offset=50")
    assert (first.text.count('<th scope="row">'), second.text.count('<th scope="row">')) == (50, 1)
    assert "offset=100" not in second.text


async def test_the_pages_of_other_organizations_do_not_exist(acme: Tenant, other_tenant: Tenant, relying_party: RelyingParty) -> None:
    """An unknown organization gives the same page."""
    await sign_in_browser(relying_party, other_tenant.people["owner"], is_known=False)
    for path in (APPLICATIONS, f"{APPLICATIONS}/shop", "/app/organizations/unknown/applications"):
        answer = await relying_party.browser.open(path)
        assert (answer.status, "This organization does not exist." in page_text(answer)) == (404, True)
    assert (await relying_party.browser.open(f"/app/organizations/{other_tenant.slug}/applications/shop")).status == 404


async def test_a_link_does_not_confirm_a_membership(acme: Tenant, relying_party: RelyingParty, pool: Pool) -> None:
    await run_sql(pool, "update memberships set confirmed_at = null where user_id = %s", acme.people["admin"].id)
    await sign_in_browser(relying_party, acme.people["admin"])
    assert leads_to(await relying_party.browser.open(APPLICATIONS)) == ORGANIZATIONS
    assert APPLICATIONS not in (await relying_party.browser.open(ORGANIZATIONS)).text
    assert await run_sql(pool, "select confirmed_at from memberships where user_id = %s", acme.people["admin"].id) == [(None,)]


async def test_names_cannot_contain_markup(acme: Tenant, relying_party: RelyingParty, pool: Pool) -> None:
    hostile = '<script>alert(1)</script>"><b>{{ 7 * 7 }}'
    await run_sql(pool, "update services set name = %s where id = %s", hostile, relying_party.service)
    await sign_in_browser(relying_party, acme.people["admin"])
    for path in (APPLICATIONS, f"{APPLICATIONS}/shop"):
        text = main_of(await relying_party.browser.open(path))
        assert "&lt;script&gt;alert(1)" in text
        assert "{{ 7 * 7 }}" in text
        assert "<script" not in text
        assert "<b>" not in text


# Settings

SHOP = f"{APPLICATIONS}/shop"
SECRET_PAGE = f"{SHOP}/secret"
SETTINGS = (SHOP, *(f"{SHOP}/settings/{group}" for group in GROUP_NAMES))


async def columns(relying_party: RelyingParty, *names: str) -> tuple[Any, ...]:
    [row] = await run_sql(relying_party.tenant.pool, f"select {', '.join(names)} from services where id = %s", relying_party.service)  # noqa: S608  (constants of this module)
    return tuple(row)


@pytest.fixture
async def admin(acme: Tenant, relying_party: RelyingParty) -> FakeBrowser:
    await sign_in_browser(relying_party, acme.people["admin"])
    return relying_party.browser


async def save(admin: FakeBrowser, group: str, **fields: str) -> Answer:
    return await admin.submit(SHOP, SHOP, group=group, **fields)


KEY = {"kty": "EC", "crv": "P-256", "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU", "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}
PRIVATE = {**KEY, "d": "jpsQnnGQmL-YBIffH1136cspYG6-0iY7X1fCE9-E9LI"}


async def test_each_group_is_saved_and_shown_again(relying_party: RelyingParty, admin: FakeBrowser) -> None:
    """The other groups keep their values, and the API returns what the page saved."""
    groups: dict[str, dict[str, str]] = {
        "sign-in": {
            "redirect_uris": "https://a.example/callback\r\n\r\n  https://b.example/callback \r\n",
            "post_logout_redirect_uris": "https://a.example/bye",
            "backchannel_logout_uri": "https://a.example/logout",
            "initiate_login_uri": "https://a.example/login",
        },
        "consent": {
            "is_trusted": "yes",
            "always_ask_consent": "yes",
            "policy_uri": "https://a.example/privacy",
            "tos_uri": "",
            "logo_uri": "",
        },
        "keys": {"jwks": json.dumps({"keys": [KEY]}), "jwks_uri": "", "accepts_token_endpoint_audience": "yes"},
        "security": {"required_acr": "mfa", "pkce_without_secret": "yes", "dpop_bound_access_tokens": "yes"},
        "lifetimes": {"access_token_seconds": "120", "refresh_token_seconds": ""},
    }
    for group, fields in groups.items():
        assert "saved." in page_text(await admin.open(leads_to(await save(admin, group, **fields))))
    service = (await relying_party.api.get(f"{relying_party.tenant.path}/services/shop", token=relying_party.tenant.token("admin"))).json
    expected = {
        "redirect_uris": ["https://a.example/callback", "https://b.example/callback"],
        "post_logout_redirect_uris": ["https://a.example/bye"],
        "backchannel_logout_uri": "https://a.example/logout",
        "initiate_login_uri": "https://a.example/login",
        "is_trusted": True,
        "always_ask_consent": True,
        "policy_uri": "https://a.example/privacy",
        "id_token_claims": False,
        "jwks": {"keys": [KEY]},
        "accepts_token_endpoint_audience": True,
        "required_acr": "mfa",
        "dpop_bound_access_tokens": True,
        "pkce_without_secret": True,
        "access_token_seconds": 120,
    }
    assert {name: service[name] for name in expected} == expected
    assert "refresh_token_seconds" not in service
    text = "".join([(await admin.open(page)).text for page in SETTINGS])
    assert "\nhttps://a.example/callback\nhttps://b.example/callback</textarea>" in text
    assert text.count(" checked") == 5
    assert '<option value="mfa" selected>' in text
    answer = await save(admin, "lifetimes", access_token_seconds="", refresh_token_seconds="")
    assert leads_to(answer) == f"{SHOP}/settings/lifetimes", "the user stays on the page of the form"
    assert await columns(relying_party, "access_token_seconds", "is_trusted") == (None, True)


async def test_the_name_the_type_and_scopes_are_saved(relying_party: RelyingParty, admin: FakeBrowser) -> None:
    await save(admin, "general", name="Store", service_type="spa")
    assert await columns(relying_party, "name", "service_type", "client_secret_hash") == ("Store", "spa", None)
    await save(admin, "scopes", codehost_scopes="read:user  repo", websuite_scopes="none", officesuite_scopes="")
    await save(admin, "sign-in", email_sign_in="no", device_activation_uri="https://shop.example/activate")
    assert await columns(relying_party, "email_sign_in") == (False,)
    scopes = """
        select c.slug, x.scopes from service_connections x join connections c on c.id = x.connection_id
        where x.scopes is not null order by c.slug"""
    assert await run_sql(relying_party.tenant.pool, scopes) == [("codehost", ["read:user", "repo"]), ("websuite", [])]
    page = "".join([(await admin.open(each)).text for each in SETTINGS])
    assert all(f'value="{value}"' in page for value in ("read:user repo", "none", "https://shop.example/activate"))
    assert '<option value="no" selected>' in page


REFUSED: list[tuple[str, dict[str, str], str, str]] = [
    ("sign-in", {"redirect_uris": "https://ok.example\nftp://x.example"}, "redirect_uris", "must start with https://"),
    ("sign-in", {"redirect_uris": "https://x.example\nhttps://x.example"}, "redirect_uris", "listed twice"),
    ("sign-in", {"redirect_uris": "x\n" * 101}, "redirect_uris", "at most 100 items"),
    ("sign-in", {"post_logout_redirect_uris": "x"}, "post_logout_redirect_uris", "must start with https://"),
    ("sign-in", {"backchannel_logout_uri": "https://x.example/#here"}, "backchannel_logout_uri", "has a fragment"),
    (
        "sign-in",
        {"initiate_login_uri": "http://x.example/"},
        "initiate_login_uri",
        "The login URL (initiate_login_uri) must start with https://",
    ),
    *(
        ("consent", {name: "http://x.example/"}, name, f"({name}) must start with https://")
        for name in ("policy_uri", "tos_uri", "logo_uri")
    ),
    ("sign-in", {"device_activation_uri": "ftp://x.example/"}, "device_activation_uri", "must start with https://"),
    *(("general", {"name": name, "service_type": "web"}, "name", "Enter a value.") for name in ("", "  ")),
    ("scopes", {"codehost_scopes": "repo", "websuite_scopes": "a a"}, "websuite_scopes", "listed only once"),
    ("keys", {"jwks": "{"}, "jwks", "Paste a JWK set"),
    ("keys", {"jwks": '{"keys": [1]}'}, "jwks", "Paste a JWK set"),
    ("keys", {"jwks": '{"keys": []}'}, "jwks", "1 to 20 public keys"),
    *(
        ("keys", {"jwks_uri": uri}, "jwks_uri", "The URL of the public keys (jwks_uri) must start with https:// and contain a public host")
        for uri in ("http://x.example/", "https://", "https:x", "https:///x")
    ),
    ("keys", {"jwks": json.dumps({"keys": [KEY]}), "jwks_uri": "https://x.example/"}, "jwks_uri", "either jwks or jwks_uri"),
    ("lifetimes", {"access_token_seconds": "1e3"}, "access_token_seconds", "whole number"),
    ("lifetimes", {"access_token_seconds": "60", "refresh_token_seconds": "59"}, "refresh_token_seconds", "at least 60"),
    ("lifetimes", {"access_token_seconds": "999999999"}, "access_token_seconds", "at least 60"),
    ("security", {"enterprise": "yes", "pkce_without_secret": "yes"}, "enterprise", "does not allow PKCE instead of the client secret"),
]


@pytest.mark.parametrize(("group", "fields", "wrong", "message"), REFUSED)
async def test_a_refused_value_stays_in_its_field_with_the_reason(
    relying_party: RelyingParty, admin: FakeBrowser, group: str, fields: dict[str, str], wrong: str, message: str
) -> None:
    before = await columns(relying_party, "to_jsonb(services)")
    answer = await save(admin, group, **fields)
    assert answer.status == 400
    assert "Nothing was changed." in page_text(answer)
    error = answer.text.partition(f'id="{wrong}-error">')[2].partition("</p>")[0]
    assert message in unescape(error)
    assert re.search(rf'id="{wrong}"[^>]* aria-invalid="true" autofocus aria-describedby="{wrong}-error', answer.text)
    for name, value in fields.items():
        assert escape(value) in answer.text, name
    assert await columns(relying_party, "to_jsonb(services)") == before


async def test_a_private_key_is_not_sent_back(relying_party: RelyingParty, admin: FakeBrowser) -> None:
    answer = await save(admin, "keys", jwks=json.dumps({"keys": [PRIVATE]}))
    assert (answer.status, "replace this key" in page_text(answer), PRIVATE["d"] in answer.text) == (400, True, False)


async def test_the_reason_of_a_refused_form_quotes_no_private_key(relying_party: RelyingParty, admin: FakeBrowser) -> None:
    """Many reasons quote a value, or its beginning."""
    key = client_key().private
    der = key.private_bytes(Encoding.DER, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()).decode()
    organization = SHOP.partition("/applications/")[0]
    forms = {
        f"{organization}/invitations/new": "addresses",
        f"{organization}/api-resources/new": "scopes",
        f"{organization}/sign-in-policy": "admin_networks",
        f"{SHOP}/authorization/permissions": "name",
        f"{SHOP}/claims": "fixed",
    }
    quoted = []
    for (path, field), sent in product(forms.items(), (pem, b64encode(der).decode(), json.dumps(PRIVATE))):
        page = path.removesuffix("/permissions")
        answer = await admin.submit(path, page, **{field: sent})
        assert answer.status == 400, (path, answer.status)
        parts = [part.lower() for part in re.findall(r"[A-Za-z0-9+/=_-]{16}", sent)]
        quoted += [(path, sent[:20]) for part in parts if part in unescape(answer.text).lower()]
    assert quoted == []


async def test_a_public_client_has_neither_keys_nor_a_secret(acme: Tenant, admin: FakeBrowser) -> None:
    await add_service(acme.pool, acme.org, "spa", "spa")
    page = f"{APPLICATIONS}/spa"
    text = main_of(await admin.open(page)) + main_of(await admin.open(f"{page}/settings/security"))
    assert (await admin.open(f"{page}/settings/keys")).status == 404
    assert not [name for name in ("jwks", "pkce_without_secret", f"{page}/secret") if name in text]
    assert (await admin.submit(page, page, group="keys", jwks=json.dumps({"keys": [KEY]}))).status == 400
    assert (await admin.open(f"{page}/secret")).status == 400
    assert (await admin.submit(f"{page}/secret", page, overlap="")).status == 400
    assert leads_to(await admin.submit(page, page, group="sign-in", redirect_uris="https://spa.example/")) == page


async def test_only_the_form_of_this_session_changes_something(relying_party: RelyingParty, admin: FakeBrowser) -> None:
    before = await columns(relying_party, "to_jsonb(services)")
    fields = {"group": "sign-in", "redirect_uris": "https://evil.example/", "overlap": ""}
    for path in (SHOP, SECRET_PAGE):
        assert (await admin.send(path, **fields)).status == 403
        assert (await admin.send(path, form_token="0" * 64, **fields)).status == 403
        assert (await admin.submit(path, SHOP, **{**fields, "group": "", "overlap": "2 years"})).status == 400
        token = form_token(await admin.open(SHOP))
        assert (await admin.send(path, (b"sec-fetch-site", b"cross-site"), form_token=token, **fields)).status == 403
    assert await columns(relying_party, "to_jsonb(services)") == before


async def test_a_member_cannot_change_settings_and_the_attempt_is_audited(acme: Tenant, relying_party: RelyingParty) -> None:
    await sign_in_browser(relying_party, acme.people["member"])
    browser, before = relying_party.browser, await columns(relying_party, "to_jsonb(services)")
    page = await browser.open(SHOP)
    assert "<form" not in main_of(page)
    assert "ask an admin or the owner" in page_text(page)
    assert (await browser.open(SECRET_PAGE)).status == 403
    for path in (SHOP, SECRET_PAGE):
        answer = await browser.submit(path, "/app/account/security", group="consent", overlap="")
        assert (answer.status, "Your role in this organization does not allow this." in page_text(answer)) == (403, True)
    assert await columns(relying_party, "to_jsonb(services)") == before
    assert len(await acme.refusals()) == 2


async def test_an_admin_replaces_the_secret_with_an_overlap(relying_party: RelyingParty, admin: FakeBrowser, clock: FakeClock) -> None:
    await sign_in_browser(relying_party, relying_party.tenant.people["admin"])
    assert "Keep secret" in page_text(await admin.open(SECRET_PAGE))
    answer = await admin.submit(SECRET_PAGE, SECRET_PAGE, overlap="1 hour")
    assert (answer.status, answer.headers["Cache-Control"]) == (200, "no-store")
    old, new = relying_party.secret, answer.text.partition("<code>")[2].partition("</code>")[0]
    assert (await columns(relying_party, "client_secret_hash"))[0] == digest(new)
    for secret, status in ((old, 200), (new, 200)):
        assert (await relying_party.exchange(await relying_party.code(), client_secret=secret)).status == status
    page = await admin.open(SHOP)
    assert "The secret from before the last change works until" in page_text(page)
    assert new not in page.text
    clock.advance(timedelta(hours=1))
    await sign_in_browser(relying_party, relying_party.tenant.people["admin"])
    for secret, status in ((old, 401), (new, 200)):
        assert (await relying_party.exchange(await relying_party.code(), client_secret=secret)).status == status
    assert "The secret from before" not in page_text(await admin.open(SHOP))
    await admin.submit(SECRET_PAGE, SECRET_PAGE, overlap="")
    assert (await relying_party.exchange(await relying_party.code(), client_secret=new)).status == 401


async def test_stored_addresses_cannot_contain_markup(relying_party: RelyingParty, admin: FakeBrowser) -> None:
    hostile = 'https://x.example/</textarea><script>alert(1)</script>"onfocus='
    await run_sql(
        relying_party.tenant.pool,
        "update services set redirect_uris = %s, backchannel_logout_uri = %s where id = %s",
        [hostile],
        hostile,
        relying_party.service,
    )
    text = main_of(await admin.open(SHOP))
    assert text.count(str(escape(hostile))) == 2
    assert "<script" not in text
