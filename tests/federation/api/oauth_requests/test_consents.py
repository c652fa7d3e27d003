"""Consents: they are recorded, shown and withdrawn (OpenID Connect Core section 3.1.2.4)."""

from typing import Any

import pytest

from core.accounts.model.accounts import Account
from core.kernel.roles import MEMBER
from ports import Ports
from tests.accounts.api.account_pages.paths import page_text
from tests.federation.api.relying import RelyingParty, add_relying_party, redirect_parts, sign_in_browser
from tests.support.browser import FakeBrowser, form_token, leads_to
from tests.support.builders import run_concurrently, run_sql, sign_in
from tests.support.refusals import FORBIDDEN, MISSING, refused
from tests.support.tenants import Tenant

CONSENTS, PAGE = "/api/user/consents", "/app/account/consents"
OPENID = {"response_type": "code", "scope": "openid email"}


async def agree(relying_party: RelyingParty, answer: str = "continue", **changes: str | None) -> dict[str, str]:
    """Answer the page for this request, and return the fields that the application gets."""
    fields = {**OPENID, **changes}
    page = await relying_party.open_request(**fields)
    assert page.status == 200, page.headers
    return redirect_parts(await relying_party.browser.answer(page, answer))[1]


async def tokens_of(relying_party: RelyingParty, code: str) -> dict[str, Any]:
    answer = await relying_party.exchange(code)
    assert answer.status == 200, answer.text
    tokens: dict[str, Any] = answer.json
    return tokens


async def is_asked(relying_party: RelyingParty, **changes: str | None) -> bool:
    return (await relying_party.open_request(**OPENID, **changes)).status == 200


async def consent_events(tenant: Tenant) -> list[tuple[str, list[str]]]:
    """Return the organization's consent events: their names and scopes. Webhooks and audit log have the same."""
    events = [(name, data["scopes"]) for name, _, data in await tenant.webhook_events() if name.startswith("consent.")]
    entries = [(entry["action"], entry["details"]["scopes"]) for entry in await tenant.log() if entry["action"].startswith("consent.")]
    assert sorted(entries) == sorted(events)
    return events


async def own_token(ports: Ports, user: Account) -> str:
    return (await sign_in(ports, user)).access_token


async def test_a_consent_is_recorded_once_for_each_new_scope(relying_party: RelyingParty, user: Account) -> None:
    await sign_in_browser(relying_party, user)
    assert "code" in await agree(relying_party)
    assert "code" in await agree(relying_party, prompt="consent")
    assert await consent_events(relying_party.tenant) == [("consent.granted", ["openid", "email"])]
    assert "code" in await agree(relying_party, scope="openid profile")
    assert await consent_events(relying_party.tenant) == [
        ("consent.granted", ["openid", "email"]),
        ("consent.granted", ["openid", "profile"]),
    ]
    [entry, _] = [entry for entry in await relying_party.tenant.log() if entry["action"] == "consent.granted"]
    assert (entry["target_type"], entry["target_id"], entry["actor_id"]) == ("user", str(user.id), user.id)
    assert (entry["details"]["service_slug"], entry["details"]["service_id"]) == ("shop", str(relying_party.service))


async def test_a_refused_consent_is_not_recorded(relying_party: RelyingParty, user: Account) -> None:
    await sign_in_browser(relying_party, user)
    assert (await agree(relying_party, "refuse"))["error"] == "access_denied"
    assert await consent_events(relying_party.tenant) == []
    assert await is_asked(relying_party)


async def test_a_user_sees_and_withdraws_a_consent(
    relying_party: RelyingParty, user: Account, ports: Ports, other_tenant: Tenant, browser: FakeBrowser
) -> None:
    await sign_in_browser(relying_party, user)
    plain = await tokens_of(relying_party, (await relying_party.code()))  # without OpenID Connect
    tokens = await tokens_of(relying_party, (await agree(relying_party))["code"])
    unused = await relying_party.code(**OPENID)
    elsewhere = await add_relying_party(other_tenant, browser, "elsewhere")
    other_tokens = await tokens_of(elsewhere, (await agree(elsewhere))["code"])
    token, api = await own_token(ports, user), relying_party.api
    own_consents = (await api.get(CONSENTS, token=token)).json["consents"]
    assert [consent["slug"] for consent in own_consents] == ["shop", "elsewhere"]
    assert own_consents[0] == {
        "service_id": str(relying_party.service),
        "slug": "shop",
        "name": "Shop",
        "organization": {"slug": "acme", "name": "Acme", "logo_url": None},
        "scopes": ["openid", "email"],
        "api_resources": [],
        "granted_at": own_consents[0]["granted_at"],
        "last_sign_in_at": own_consents[0]["granted_at"],  # the clock stands still
        "last_used_at": own_consents[0]["granted_at"],
        "client_uri": None,
    }
    assert (await api.delete(f"{CONSENTS}/{relying_party.service}", token=token)).status == 204
    assert [consent["slug"] for consent in (await api.get(CONSENTS, token=token)).json["consents"]] == ["elsewhere"]
    assert (await api.get("/auth/userinfo", token=tokens["access_token"])).status == 401
    assert (await relying_party.refresh(tokens["refresh_token"])).json["error"] == "invalid_grant"
    assert (await relying_party.exchange(unused)).json["error"] == "invalid_grant"
    assert await relying_party.is_live(plain)
    assert (await api.get("/auth/userinfo", token=other_tokens["access_token"])).status == 200
    assert await is_asked(relying_party)
    assert not await is_asked(elsewhere)
    silent = redirect_parts(await relying_party.open_request(**OPENID, prompt="none"))[1]
    assert silent["error"] == "consent_required"
    assert await consent_events(relying_party.tenant) == [
        ("consent.granted", ["openid", "email"]),
        ("consent.withdrawn", ["openid", "email"]),
    ]
    assert await consent_events(other_tenant) == [("consent.granted", ["openid", "email"])]
    assert refused(await api.delete(f"{CONSENTS}/{relying_party.service}", token=token)) == MISSING


async def test_an_application_cannot_see_or_withdraw_consents(relying_party: RelyingParty, user: Account) -> None:
    await sign_in_browser(relying_party, user)
    tokens = await tokens_of(relying_party, (await relying_party.code()))
    assert refused(await relying_party.api.get(CONSENTS, token=tokens["access_token"])) == FORBIDDEN
    assert refused(await relying_party.api.delete(f"{CONSENTS}/{relying_party.service}", token=tokens["access_token"])) == FORBIDDEN


async def test_one_of_several_withdrawals_is_recorded(relying_party: RelyingParty, user: Account, ports: Ports) -> None:
    await sign_in_browser(relying_party, user)
    await agree(relying_party)
    token = await own_token(ports, user)
    answers = await run_concurrently(10, lambda _: relying_party.api.delete(f"{CONSENTS}/{relying_party.service}", token=token))
    assert sorted(answer.status for answer in answers) == [204] + [404] * 9
    assert [name for name, _ in await consent_events(relying_party.tenant)] == ["consent.granted", "consent.withdrawn"]


@pytest.mark.parametrize("is_trusted", [True, False])
async def test_choosing_an_account_gives_no_consent(relying_party: RelyingParty, user: Account, is_trusted: bool) -> None:
    """The page that asks only for the account shows no scopes, so that its answer must not count for them."""
    await relying_party.tenant.join("ada", user, MEMBER)
    await sign_in_browser(relying_party, user)
    await run_sql(relying_party.tenant.pool, "update services set is_trusted = true")
    fields = {**OPENID, "prompt": "select_account"}
    page = await relying_party.open_request(**fields)
    assert "Choose an account" in page.text
    await run_sql(relying_party.tenant.pool, "update services set is_trusted = %s", is_trusted)
    answer = await relying_party.browser.answer(page, "select")
    if is_trusted:
        assert "code" in redirect_parts(answer)[1]
    else:  # the scope page comes next
        page = await relying_party.browser.open(leads_to(answer))
        assert (page.status, "It will be able to:" in page.text) == (200, True)
    assert await consent_events(relying_party.tenant) == []


async def test_an_answer_to_a_silent_request_gives_no_code(relying_party: RelyingParty, user: Account) -> None:
    await sign_in_browser(relying_party, user)
    token = form_token(await relying_party.open_request(**OPENID))
    silent = relying_party.request(**OPENID, prompt="none")
    answer = await relying_party.browser.send(silent, form_token=token, answer="continue")
    fields = redirect_parts(await relying_party.browser.open(leads_to(answer)))[1]
    assert fields["error"] == "consent_required"


async def test_the_pages_show_and_end_what_is_shared(relying_party: RelyingParty, user: Account) -> None:
    await sign_in_browser(relying_party, user)
    browser = relying_party.browser
    assert "You haven't shared anything" in page_text(await browser.open(PAGE))
    await agree(relying_party, scope="openid email profile offline_access", prompt="consent")
    assert "Shop Acme Shared just now" in page_text(await browser.open(PAGE))
    assert "Shop can see parts of your account" in page_text(await browser.open("/app/account"))
    page = page_text(await browser.open(f"{PAGE}/{relying_party.service}"))
    for part in ("Recognize you by your email address, ada@example.com", "See your profile", "Keep this access after you sign out"):
        assert part in page
    assert "See your role" not in page
    assert leads_to(await browser.submit(f"{PAGE}/{relying_party.service}/withdraw", f"{PAGE}/{relying_party.service}")) == PAGE
    assert "Access removed." in page_text(await browser.open(PAGE))
    assert (await browser.open(f"{PAGE}/{relying_party.service}")).status == 404
    assert await is_asked(relying_party)
