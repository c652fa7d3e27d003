"""Consents: remembered per scope, trusted applications, and `offline_access` (OpenID Connect Core sections 3.1.2.4 and 11)."""

import pytest

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.authentication.model.openid import Scope
from tests.federation.api.openid.client import OpenIdClient, error
from tests.federation.api.relying import RelyingParty, add_relying_party, sign_in_browser
from tests.support.builders import add_account, add_member, run_sql
from tests.support.tenants import Tenant

ASKS = "Continue to <bdi>"


async def is_asked(client: OpenIdClient, **changes: str | None) -> bool:
    return ASKS in (await client.open(**changes)).text


async def test_a_consent_is_remembered_for_each_scope(signed_in: OpenIdClient, user: Account, pool: Pool) -> None:
    page = await signed_in.open(scope="openid email")
    for text, shown in (("Recognize you by your email address", True), ("See your profile", False), ("See your role", False)):
        assert (text in page.text) == shown, text
    await signed_in.agree(page, scope="openid email")
    for scope, is_question in (
        ("openid email", False),
        ("openid", False),
        ("openid email profile", True),
        ("openid roles", True),
        ("openid org", True),
    ):
        assert await is_asked(signed_in, scope=scope) == is_question, scope
    await signed_in.authorize(scope="openid profile")
    assert not await is_asked(signed_in, scope="openid email profile"), "consents add up"
    rows = await run_sql(pool, "select user_id, org_id, service_id, scope from consents")
    assert rows == [(user.id, signed_in.party.tenant.org, signed_in.party.service, rows[0][3])]
    assert set(rows[0][3]) == {"openid", "email", "profile"}


async def test_a_consent_is_for_one_application_and_one_user(signed_in: OpenIdClient, acme: Tenant, user: Account) -> None:
    await signed_in.authorize()
    blog = OpenIdClient(await add_relying_party(acme, signed_in.party.browser, "blog"))
    await sign_in_browser(blog.party, user)
    assert await is_asked(blog)
    await sign_in_browser(signed_in.party, await add_account(acme.ports, "bob@example.com"))
    assert await is_asked(signed_in)


async def test_a_known_user_is_asked_too_before_an_application_gets_claims(signed_in: OpenIdClient, user: Account, pool: Pool) -> None:
    """Without openid, end users and confirmed members are not asked. With it, they agree to the scopes."""
    await add_member(pool, signed_in.party.tenant.org, user.id, confirmed=True)
    assert not await is_asked(signed_in, scope=None)
    assert await is_asked(signed_in)


async def test_an_application_can_ask_every_user_in_each_sign_in(signed_in: OpenIdClient, user: Account, pool: Pool) -> None:
    await add_member(pool, signed_in.party.tenant.org, user.id, confirmed=True)
    await signed_in.configure(is_trusted=True, always_ask_consent=True)
    for scope in (None, "openid", "openid"):
        page = await signed_in.open(scope=scope)
        assert ASKS in page.text
        await signed_in.agree(page, scope=scope)
    assert error(await signed_in.open(prompt="none")) == "consent_required"
    await signed_in.configure(is_trusted=True, always_ask_consent=False)
    assert not await is_asked(signed_in)


# Trusted applications


async def test_a_trusted_application_does_not_ask_confirmed_members(signed_in: OpenIdClient, user: Account, pool: Pool) -> None:
    await signed_in.configure(is_trusted=True)
    everything = "openid profile email offline_access org roles"
    assert await is_asked(signed_in, scope=everything), "a stranger"
    assert error(await signed_in.open(prompt="none")) == "consent_required"
    await add_member(pool, signed_in.party.tenant.org, user.id)
    assert await is_asked(signed_in, scope=everything), "an unconfirmed member: an admin can add any account"
    assert error(await signed_in.open(prompt="none")) == "consent_required"
    await run_sql(pool, "update memberships set confirmed_at = now() where user_id = %s", user.id)
    tokens = await signed_in.tokens(scope=everything, prompt="none")
    assert tokens["scope"] == everything
    assert await run_sql(pool, "select count(*) from consents") == [(0,)], "no user has agreed to anything"
    assert await is_asked(signed_in, prompt="consent"), "the application can ask for the page"


async def test_a_trusted_application_of_another_organization_asks(
    shop: OpenIdClient, user: Account, other_tenant: Tenant, pool: Pool
) -> None:
    """Otherwise an organization learns who opens its pages."""
    theirs = OpenIdClient(await add_relying_party(other_tenant, shop.party.browser, "theirs"))
    await theirs.configure(is_trusted=True)
    await add_member(pool, shop.party.tenant.org, user.id, confirmed=True)
    await sign_in_browser(theirs.party, user, is_known=False)
    assert await is_asked(theirs)
    assert error(await theirs.open(prompt="none")) == "consent_required"
    assert await run_sql(pool, "select count(*) from authorization_codes") == [(0,)]


@pytest.mark.parametrize("uri", ["com.example.till:/back", "http://127.0.0.1:51004/back"])
async def test_an_application_that_any_program_can_claim_to_be_asks_each_time(
    mobile_app: RelyingParty, user: Account, pool: Pool, uri: str
) -> None:
    """RFC 8252 section 8.6 requires this."""
    client = OpenIdClient(mobile_app)
    await mobile_app.set_redirect_uris(mobile_app.redirect_uri, "com.example.till:/back", "http://127.0.0.1/back")
    await client.configure(is_trusted=True)
    await add_member(pool, mobile_app.tenant.org, user.id, confirmed=True)
    assert not await is_asked(client), "at https"
    await client.agree_before(user, *Scope)
    for _ in range(2):
        assert await is_asked(client, redirect_uri=uri)
        assert "code" in await client.authorize(redirect_uri=uri)
    assert "error=consent_required" in (await client.open(redirect_uri=uri, prompt="none")).headers["Location"]
    await run_sql(pool, "delete from consents")
    tokens = await client.tokens(redirect_uri=uri, scope="openid offline_access")
    assert tokens["scope"] == "openid", "trust does not count here"


async def test_an_application_with_a_secret_asks_once_at_localhost(signed_in: OpenIdClient, user: Account, pool: Pool) -> None:
    """Another program on the machine could receive the code, but not redeem it. Trust needs https."""
    uri = "http://localhost:3000/callback"
    await signed_in.party.set_redirect_uris(signed_in.party.redirect_uri, uri)
    await signed_in.configure(is_trusted=True)
    await add_member(pool, signed_in.party.tenant.org, user.id, confirmed=True)
    assert await is_asked(signed_in, redirect_uri=uri)
    assert "code" in await signed_in.authorize(redirect_uri=uri)
    assert "code=" in (await signed_in.open(redirect_uri=uri, prompt="none")).headers["Location"]
    await signed_in.configure(pkce_without_secret=True)
    assert await is_asked(signed_in, redirect_uri=uri)


# offline_access


async def test_offline_access_counts_only_if_the_user_was_asked(signed_in: OpenIdClient, user: Account) -> None:
    scope = "openid offline_access"
    await signed_in.agree_before(user)
    assert (await signed_in.tokens(scope=scope))["scope"] == "openid", "it is left out, because no page asked the user (section 11)"
    page = await signed_in.open(scope=scope, prompt="consent")
    assert "Keep this access after you sign out" in page.text
    fields = await signed_in.agree(page, scope=scope, prompt="consent")
    tokens = (await signed_in.party.exchange(fields["code"])).json
    assert tokens["scope"] == scope
    assert (await signed_in.refresh(tokens))["scope"] == scope
    assert (await signed_in.tokens(scope=scope))["scope"] == scope, "the consent is remembered"
    assert (await signed_in.tokens())["scope"] == "openid", "only if it is asked for"


async def test_a_page_that_does_not_show_offline_access_does_not_give_it(signed_in: OpenIdClient) -> None:
    page = await signed_in.open(scope="openid offline_access")
    assert "Keep this access" not in page.text
    fields = await signed_in.agree(page, scope="openid offline_access")
    assert (await signed_in.party.exchange(fields["code"])).json["scope"] == "openid"


# The service's settings


async def test_an_admin_marks_an_application_as_trusted(acme: Tenant, signed_in: OpenIdClient) -> None:
    path = f"{acme.path}/services/shop"
    token = acme.token("admin")
    answer = await acme.api.get(path, token=token)
    assert not {"is_trusted", "id_token_claims"} & answer.json.keys(), "default values are left out"
    answer = await acme.api.patch(path, {"is_trusted": True, "id_token_claims": False}, token=token)
    assert (answer.status, answer.json["is_trusted"], answer.json["id_token_claims"]) == (200, True, False)
    answer = await acme.api.get(path, token=token)
    assert (answer.json["is_trusted"], answer.json["id_token_claims"]) == (True, False)
    for wrong in ({"is_trusted": "yes"}, {"is_trusted": None}, {"id_token_claims": 1}):
        assert (await acme.api.patch(path, wrong, token=token)).status == 400, wrong
