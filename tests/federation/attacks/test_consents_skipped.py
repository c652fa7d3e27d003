"""Consents that no user gave: prompt=none, trust, and scopes that a page did not show (OpenID Connect Core section 3.1.2.4)."""

from typing import Final
from urllib.parse import urlencode

import pytest

from core.accounts.model.accounts import Account
from core.authentication.model.openid import Scope
from core.kernel.roles import ADMIN, MEMBER
from tests.federation.api.relying import RelyingParty, answer_fields, give_consent, openid_tokens, path_of
from tests.federation.attacks.world import is_code, unchanged
from tests.support.browser import action_of, form_token, hidden_fields, leads_to
from tests.support.builders import add_member, run_sql
from tests.support.services import add_service_user

EVERYTHING: Final = "openid profile email offline_access org roles"
CLAIMS: Final = '{"id_token": {"email": null}, "userinfo": {"roles": {"essential": true}}}'
# Requests about a user who has agreed to no scope.
SILENT: Final[dict[str, dict[str, str]]] = {
    "openid alone": {},
    "every scope": {"scope": EVERYTHING},
    "claims by name": {"claims": CLAIMS},
    "another answer": {"response_mode": "fragment"},
    "the API": {"resource": "http://gatehouse.test/api"},
}


async def trust(application: RelyingParty) -> None:
    await run_sql(application.tenant.pool, "update services set is_trusted = true where id = %s", application.service)


@pytest.mark.parametrize("is_trusted", [False, True])
async def test_an_organization_does_not_learn_who_visits_it(
    shop: RelyingParty, evil: RelyingParty, user: Account, is_trusted: bool
) -> None:
    """The user belongs to another organization. A silent request tells it nothing, and neither does a page that was not answered."""
    await shop.tenant.join("ada", user, MEMBER)
    if is_trusted:
        await trust(evil)
    async with unchanged(shop.tenant.pool):
        for changes in SILENT.values():
            answer = await shop.browser.open(path_of(evil, prompt="none", **changes))
            assert "error=consent_required" in answer.headers["Location"], changes
            assert not is_code(answer)
            assert "ada" not in answer.headers["Location"]
            page = await shop.browser.open(path_of(evil, **changes))
            assert (page.status, is_code(page)) == (200, False)


@pytest.mark.parametrize("state", ["unconfirmed", "left", "end user", "member of another organization", "suspended"])
async def test_trust_is_for_confirmed_members_only(shop: RelyingParty, evil: RelyingParty, user: Account, state: str) -> None:
    """An admin can add any account to their organization, without its consent."""
    pool, tenant = shop.tenant.pool, evil.tenant
    await trust(evil)
    if state == "end user":
        await add_service_user(tenant.ports, evil.service, user.id, signed_in=False)
    if state == "unconfirmed":
        await add_member(pool, tenant.org, user.id)
    if state in ("left", "suspended"):
        await add_member(pool, tenant.org, user.id, confirmed=True)
        assert is_code(await shop.browser.open(path_of(evil, prompt="none"))), "a confirmed member is not asked"
    if state == "left":
        await run_sql(pool, "delete from memberships where org_id = %s and user_id = %s", tenant.org, user.id)
    if state == "member of another organization":
        await shop.tenant.join("ada", user, ADMIN)
    if state == "suspended":
        await run_sql(pool, "update organizations set status = 'suspended' where id = %s", tenant.org)
    async with unchanged(pool):
        answer = await shop.browser.open(path_of(evil, prompt="none", scope=EVERYTHING))
        assert not is_code(answer)
        assert answer.status == (403 if state == "suspended" else 303)


async def test_the_trust_of_one_application_is_not_that_of_its_neighbor(shop: RelyingParty, till: RelyingParty, user: Account) -> None:
    await trust(shop)
    await shop.tenant.join("ada", user, MEMBER)
    await run_sql(shop.tenant.pool, "delete from consents")
    assert is_code(await shop.browser.open(path_of(shop, prompt="none")))
    async with unchanged(shop.tenant.pool):
        assert answer_fields(await shop.browser.open(path_of(till, prompt="none")))["error"] == "consent_required"


async def test_a_consent_covers_no_more_than_its_page_showed(shop: RelyingParty, user: Account) -> None:
    """The answer belongs to its flow's request, so that no form field widens it."""
    await run_sql(shop.tenant.pool, "delete from consents")
    page = await shop.browser.open(path_of(shop))
    form = {**hidden_fields(page), "answer": "continue", "scope": EVERYTHING, "claims": CLAIMS}
    path = f"{action_of(page)}?{urlencode({'scope': EVERYTHING, 'claims': CLAIMS})}"
    code = answer_fields(await shop.browser.send(path, **form))["code"]
    assert (await shop.exchange(code)).json["scope"] == "openid"
    assert await run_sql(shop.tenant.pool, "select scope::text from consents") == [("{openid}",)]
    async with unchanged(shop.tenant.pool):
        for changes in ({"scope": "openid email"}, {"claims": CLAIMS}):
            assert answer_fields(await shop.browser.open(path_of(shop, prompt="none", **changes)))["error"] == "consent_required"


async def test_an_answer_agrees_to_nothing_silently(shop: RelyingParty, user: Account) -> None:
    """A request with prompt=none has no page, so no form can answer it."""
    await run_sql(shop.tenant.pool, "delete from consents")
    token = form_token(await shop.browser.open(path_of(shop)))
    async with unchanged(shop.tenant.pool):
        for answer in ("continue", "select", "refuse", ""):
            response = await shop.browser.send(path_of(shop, prompt="none"), form_token=token, answer=answer)
            assert not is_code(response)
            assert answer_fields(await shop.browser.open(leads_to(response)))["error"] == "consent_required"


async def test_offline_access_needs_a_page_or_a_memory_of_one(shop: RelyingParty, user: Account) -> None:
    await run_sql(shop.tenant.pool, "delete from consents")
    await give_consent(shop, user, Scope.OPENID)
    assert (await openid_tokens(shop, scope="openid offline_access", prompt="none"))["scope"] == "openid"


@pytest.mark.parametrize("scope", ["openid", EVERYTHING])
async def test_a_hint_of_another_client_or_tenant_is_refused(
    shop: RelyingParty, evil: RelyingParty, till: RelyingParty, scope: str
) -> None:
    """A hint says nothing about who is signed in, and no client can use another client's ID token."""
    hint = (await openid_tokens(shop))["id_token"]
    async with unchanged(shop.tenant.pool):
        for application in (evil, till):
            for prompt in ("none", None, "login"):
                answer = answer_fields(await shop.browser.open(path_of(application, prompt=prompt, scope=scope, id_token_hint=hint)))
                assert (answer["error"], "code" in answer) == ("invalid_request", False)
        head, _, rest = hint.partition(".")
        for forged in (f"{head}.{rest[:-8]}AAAAAAAA", f"eyJhbGciOiJub25lIn0.{rest.partition('.')[0]}.", "x", "x" * 9000):
            assert answer_fields(await shop.browser.open(path_of(shop, prompt="none", id_token_hint=forged)))["error"] == "invalid_request"
