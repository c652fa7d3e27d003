"""Consents that are given and withdrawn at the same time as codes are issued and exchanged."""

from typing import Any, Final

import pytest
from quart_trio import QuartTrio

from core.accounts.model.accounts import Account
from core.authentication.model.openid import Scope
from entrypoints.http.app import Edge
from tests.federation.api.relying import (
    RelyingParty,
    add_relying_party,
    answer_fields,
    authorize,
    give_consent,
    openid_tokens,
    path_of,
    sign_in_browser,
)
from tests.support.browser import FakeBrowser, form_token
from tests.support.builders import Answer, run_concurrently, run_during, run_sql
from tests.support.tenants import Tenant

pytestmark = pytest.mark.slow

CONSENTS: Final = "/app/account/consents"
ROUNDS: Final = 4


@pytest.fixture
async def shop(acme: Tenant, app: QuartTrio, edge: Edge, user: Account) -> RelyingParty:
    """An application. Its user is signed in and has not agreed to anything."""
    application = await add_relying_party(acme, FakeBrowser(app, edge.base_url))
    await sign_in_browser(application, user, provider="password")
    return application


async def withdraw(shop: RelyingParty, token: str) -> Answer:
    return await shop.browser.send(f"{CONSENTS}/{shop.service}/withdraw", form_token=token)


async def live_sessions(shop: RelyingParty) -> list[Any]:
    return await run_sql(shop.tenant.pool, "select id from sessions where scope is not null and ended_at is null")


async def test_two_forms_at_once_make_one_consent_to_all_scopes(shop: RelyingParty) -> None:
    scopes = ["openid email", "openid profile", "openid org", "openid roles"]
    pages = [await shop.browser.open(path_of(shop, scope=scope)) for scope in scopes]

    async def agree(number: int) -> Answer:
        return await shop.browser.answer(pages[number], "continue")

    codes = [answer_fields(answer)["code"] for answer in await run_concurrently(len(scopes), agree)]
    assert len(set(codes)) == len(scopes)
    [(scope,)] = await run_sql(shop.tenant.pool, "select scope from consents")
    assert set(scope) == {"openid", "email", "profile", "org", "roles"}
    assert len(scope) == 5
    events = await run_sql(shop.tenant.pool, "select count(*) from audit_log where action = 'consent.granted'")
    assert events == [(len(scopes),)], "each form had a new scope"


@pytest.mark.parametrize("act", ["exchange", "refresh", "agree", "silent"])
async def test_what_happens_during_the_withdrawal_leaves_no_session(shop: RelyingParty, user: Account, act: str) -> None:
    """Either it comes first, and its session ends, or it is refused. Only a new agreement starts a new session."""
    for _ in range(ROUNDS):
        await give_consent(shop, user, Scope.OPENID)
        tokens = await openid_tokens(shop)
        code = (await authorize(shop))["code"]
        page = form_token(await shop.browser.open(f"{CONSENTS}/{shop.service}"))
        question = await shop.browser.open(path_of(shop, prompt="consent"))
        answers: list[Answer] = []

        async def perform(number: int) -> None:
            if number:
                assert (await withdraw(shop, page)).status == 303  # noqa: B023
            elif act == "exchange":
                answers.append(await shop.exchange(code))  # noqa: B023
            elif act == "refresh":
                answers.append(await shop.refresh(tokens["refresh_token"]))  # noqa: B023
            elif act == "agree":
                answers.append(await shop.browser.answer(question, "continue"))  # noqa: B023
            else:
                answers.append(await shop.browser.open(path_of(shop, prompt="none")))  # noqa: B023

        await run_concurrently(2, perform)
        assert await live_sessions(shop) == []
        has_agreed = bool(await run_sql(shop.tenant.pool, "select 1 from consents"))
        assert act == "agree" or not has_agreed
        [answer] = answers
        assert answer.status in (200, 303, 400)
        if answer.status == 303 and "code" in (fields := answer_fields(answer)):
            assert (await shop.exchange(fields["code"])).status == (200 if has_agreed else 400)
        await run_sql(shop.tenant.pool, "delete from consents")
        await run_sql(shop.tenant.pool, "update sessions set ended_at = now() where scope is not null and ended_at is null")


async def test_a_code_needs_the_consent_that_is_withdrawn_during_its_request(shop: RelyingParty, user: Account) -> None:
    """The request has read the consent, and waits for the account, which the withdrawal has locked."""
    await give_consent(shop, user, Scope.OPENID)
    changes = [("select 1 from users where id = %s for no key update", (user.id,)), ("delete from consents", ())]
    answer = await run_during(shop.tenant.pool, changes, lambda: shop.browser.open(path_of(shop)))
    assert answer_fields(answer).get("error") == "access_denied"
    assert await run_sql(shop.tenant.pool, "select 1 from authorization_codes") == []
