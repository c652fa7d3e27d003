"""Test sign-in: the preview equals a real sign-in, follows the same rules and leaves nothing behind (decision 270)."""

from typing import Any

import pytest

from core.authentication.model.openid import Scope
from core.federation.saml.model.configuration import NameIdFormat
from tests.federation.api.openid.client import OpenIdClient
from tests.federation.api.relying import add_relying_party, sign_in_browser
from tests.support.browser import FakeBrowser
from tests.support.builders import Answer, run_sql
from tests.support.refusals import BAD, refused
from tests.support.saml import NS, add_application
from tests.support.saml.browser import SamlBrowser
from tests.support.tenants import Tenant

SCOPE = "openid profile email org roles"
OF_ONE_TOKEN = {"sid", "at_hash", "nonce"}  # what differs between any two tokens
WRITTEN = ("sessions", "authorization_codes", "login_events", "service_users", "consents", "saml_name_ids", "audit_log", "events")


@pytest.fixture
async def shop(acme: Tenant, browser: FakeBrowser) -> OpenIdClient:
    client = OpenIdClient(await add_relying_party(acme, browser))
    await sign_in_browser(client.party, acme.people["admin"], provider="password")
    return client


async def preview(acme: Tenant, query: str = "", slug: str = "shop") -> Answer:
    return await acme.api.get(f"{acme.path}/services/{slug}/sign-in-preview{query}", token=acme.token("admin"))


async def openid(acme: Tenant, query: str = "") -> dict[str, Any]:
    result: dict[str, Any] = (await preview(acme, query)).json["openid"]
    return result


async def count_rows(acme: Tenant) -> list[int]:
    return [(await run_sql(acme.pool, f"select count(*) from {table}"))[0][0] for table in WRITTEN]  # noqa: S608


async def test_the_preview_has_the_claims_of_a_real_sign_in_and_stores_nothing(shop: OpenIdClient, acme: Tenant) -> None:
    before = await count_rows(acme)
    first = await openid(acme)
    assert await count_rows(acme) == before
    assert (first["outcome"], first["error"], first["scope"]) == ("consent", None, SCOPE.split())
    tokens = await shop.tokens(scope=SCOPE)
    second = await openid(acme)
    assert second["outcome"] == "signed_in", "the consent is remembered"
    real = await shop.id_claims(tokens)
    assert {**second["id_token"], **{name: real[name] for name in OF_ONE_TOKEN & real.keys()}} == real
    assert second["userinfo"] == await shop.userinfo(tokens)
    assert second["id_token"]["sid"] != real["sid"]
    assert "at_hash" not in second["id_token"]


async def test_the_preview_follows_the_rules_and_settings_of_the_application(shop: OpenIdClient, acme: Tenant) -> None:
    await shop.agree_before(acme.people["admin"], *Scope)
    await shop.configure(id_token_claims=False)
    result = await openid(acme, "?scope=openid%20email")
    assert "email" not in result["id_token"]
    assert result["userinfo"]["email"] == str(acme.people["admin"].email)
    assert (await openid(acme, "?scope=read"))["id_token"] is None
    await shop.configure(required_acr="mfa")
    assert (await openid(acme))["outcome"] == "sign_in"
    await shop.configure(required_acr=None, access_policy="assigned")
    await run_sql(acme.pool, "delete from service_users")
    result = await openid(acme)
    assert (result["outcome"], result["error"], result["id_token"]) == ("refused", "access_denied", None)
    assert refused(await preview(acme, "?redirect_uri=https://other.example/")) == BAD
    await shop.configure(redirect_uris=[])
    for query in ("", "?redirect_uri="):
        assert (await preview(acme, query)).json == {"openid": None, "saml": None}


async def test_the_preview_of_saml_has_the_attributes_of_a_real_assertion(acme: Tenant, app: Any, clock: Any) -> None:
    mapping = {"attribute_mapping": {"email": "mail", "id": "uid"}}
    application = await add_application(acme.ports, acme.pool, acme.org, acme.slug, "till", **mapping)
    before = await count_rows(acme)
    result = (await preview(acme, slug="till")).json["saml"]
    assert await count_rows(acme) == before
    assert (result["outcome"], result["entity_id"], result["name_id_format"]) == ("signed_in", application.entity_id, NameIdFormat.EMAIL)
    browser = SamlBrowser(app, clock)
    await sign_in_browser(await add_relying_party(acme, browser), acme.people["admin"], is_known=False)
    response = await browser.sign_on(application)
    assert result["name_id"] == response.name_id
    names = response.root.xpath("//saml:Attribute", namespaces=NS)
    assert result["attributes"] == {name.get("Name"): "".join(name.itertext()).strip() for name in names}
    await run_sql(acme.pool, "update services set access_policy = 'assigned' where slug = 'till'")
    result = (await preview(acme, slug="till")).json["saml"]
    assert (result["outcome"], result["error"], result["attributes"]) == ("refused", "FORBIDDEN", {})
