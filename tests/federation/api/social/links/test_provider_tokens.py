"""The provider's tokens, and their refresh (security O-7)."""

from datetime import timedelta

import pytest

from core.accounts.model.accounts import Account
from core.kernel.causes import SYSTEM
from core.kernel.connections import CODEHOST
from ports import Ports
from tests.fakes.http_server import TRAP, in_json
from tests.fakes.outside import FakeClock
from tests.fakes.provider import CLIENT
from tests.federation.api.social.links.clients import TOKEN_LIFETIME, ApiClient
from tests.federation.provider_sign_in import ProviderSignIn
from tests.support.builders import run_concurrently, run_sql
from tests.support.refusals import MISSING, refused
from tests.support.services import add_service, sign_in_to
from tests.support.tenants import Tenant

pytestmark = pytest.mark.slow


async def test_the_providers_token_is_returned(provider_sign_in: ProviderSignIn, api_client: ApiClient) -> None:
    await provider_sign_in.sign_in()
    answer = await api_client.get_token()
    assert answer.status == 200
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.json.keys() == {"provider", "access_token", "expires_at", "scopes"}
    assert answer.json["access_token"].startswith("access-")
    assert answer.json["scopes"] == ["read:user", "user:email"]
    assert provider_sign_in.provider.counted["/token"] == 1


async def test_an_expired_token_is_refreshed(provider_sign_in: ProviderSignIn, api_client: ApiClient, clock: FakeClock) -> None:
    await provider_sign_in.sign_in()
    first = (await api_client.get_token()).json
    for _ in range(3):  # with the refresh token from the previous refresh
        clock.advance(TOKEN_LIFETIME)
        second = (await api_client.get_token()).json
        assert second["access_token"] != first["access_token"]
        assert second["expires_at"] > first["expires_at"]
        assert (await api_client.get_token()).json == second
        first = second
    assert provider_sign_in.provider.counted["/token"] == 4


async def test_a_token_without_an_expiry_is_not_refreshed(
    provider_sign_in: ProviderSignIn, api_client: ApiClient, clock: FakeClock
) -> None:
    provider_sign_in.provider.expires_in = None
    await provider_sign_in.sign_in()
    clock.advance(2 * TOKEN_LIFETIME)
    answer = await api_client.get_token()
    assert (answer.status, answer.json["expires_at"]) == (200, None)
    assert provider_sign_in.provider.counted["/token"] == 1


async def test_one_of_several_parallel_requests_refreshes_the_token_for_all(
    provider_sign_in: ProviderSignIn, api_client: ApiClient, clock: FakeClock
) -> None:
    """A provider with one-time refresh tokens would treat a second use as theft."""
    await provider_sign_in.sign_in()
    clock.advance(TOKEN_LIFETIME)
    answers = await run_concurrently(10, lambda _: api_client.get_token())
    assert {answer.status for answer in answers} == {200}
    assert len({answer.json["access_token"] for answer in answers}) == 1
    assert provider_sign_in.provider.counted["/token"] == 2
    clock.advance(TOKEN_LIFETIME)
    assert (await api_client.get_token()).status == 200, "the new refresh token is stored"


async def test_a_failed_refresh_is_an_oauth_error_and_can_be_retried(
    provider_sign_in: ProviderSignIn, api_client: ApiClient, clock: FakeClock
) -> None:
    await provider_sign_in.sign_in()
    clock.advance(TOKEN_LIFETIME)
    provider_sign_in.provider.answers["/token"] = in_json({"error": "invalid_grant", "error_description": TRAP})
    answer = await api_client.get_token()
    assert refused(answer) == (500, "OAUTH_ERROR")
    assert "what a provider says" not in answer.text
    provider_sign_in.provider.answers.clear()
    assert (await api_client.get_token()).status == 200


async def test_an_expired_token_without_a_refresh_token_is_not_found(
    provider_sign_in: ProviderSignIn, api_client: ApiClient, clock: FakeClock
) -> None:
    provider_sign_in.provider.gives_refresh_token = False
    await provider_sign_in.sign_in()
    clock.advance(TOKEN_LIFETIME)
    assert refused(await api_client.get_token()) == (500, "OAUTH_ERROR")
    assert provider_sign_in.provider.counted["/token"] == 1


async def test_a_sign_in_during_the_refresh_keeps_its_tokens(
    provider_sign_in: ProviderSignIn, api_client: ApiClient, clock: FakeClock, ports: Ports, user: Account
) -> None:
    await provider_sign_in.sign_in()
    clock.advance(TOKEN_LIFETIME)
    now = clock.now()
    async with ports.storage.transaction(by=SYSTEM) as tx:
        claim = await tx.identities.claim_renewal(user.id, None, CODEHOST, now, now + timedelta(seconds=15))
        assert claim is not None
        assert await tx.identities.claim_renewal(user.id, None, CODEHOST, now, now + timedelta(seconds=15)) is None
    await provider_sign_in.sign_in()
    fresh = (await api_client.get_token()).json["access_token"]
    connection = provider_sign_in.provider.connection().connection
    renewed = await ports.openid_providers.refresh(connection, CLIENT, claim.refresh_token)
    async with ports.storage.transaction(by=SYSTEM) as tx:
        assert not await tx.identities.complete_renewal(claim, renewed)
    assert (await api_client.get_token()).json["access_token"] == fresh


async def test_an_abandoned_refresh_does_not_block_the_token(
    provider_sign_in: ProviderSignIn, api_client: ApiClient, clock: FakeClock
) -> None:
    await provider_sign_in.sign_in()
    clock.advance(TOKEN_LIFETIME)
    await run_sql(provider_sign_in.pool, "update identities set renewing_until = %s", clock.now())
    assert (await api_client.get_token()).status == 200


async def test_each_context_has_its_own_token_and_credentials(
    provider_sign_in: ProviderSignIn, api_client: ApiClient, ports: Ports, user: Account, acme: Tenant, clock: FakeClock
) -> None:
    shop = await add_service(provider_sign_in.pool, acme.org)
    provider_sign_in.provider.clients["of-the-shop"] = "its secret"
    path = f"/api/organizations/acme/services/shop/oauth-credentials/{provider_sign_in.name}"
    body = {"client_id": "of-the-shop", "client_secret": "its secret"}
    assert (await acme.api.call("PUT", path, body, token=acme.token("owner"))).status == 200
    await provider_sign_in.sign_in(org="acme", service="shop")
    assert refused(await api_client.get_token()) == MISSING
    application = ApiClient(api_client.api, (await sign_in_to(ports, provider_sign_in.pool, shop, user)).access_token, api_client.name)
    clock.advance(TOKEN_LIFETIME)
    application.token = (await sign_in_to(ports, provider_sign_in.pool, shop, user)).access_token
    assert (await application.get_token()).status == 200
    assert {form["client_id"] for sent, form in provider_sign_in.provider.requests if sent == "/token"} == {"of-the-shop"}
