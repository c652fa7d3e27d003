"""Provider tokens over the API (security J-9, O-7)."""

from datetime import timedelta

from tests.authentication.api.identities.person import DESK, PLATFORM, SHOP, Person
from tests.fakes.outside import FakeClock
from tests.support.builders import add_account
from tests.support.identities import add_identity
from tests.support.refusals import MISSING, refused


async def test_a_provider_token_is_returned_with_every_field(user: Person, clock: FakeClock) -> None:
    await user.add_identity(token="gho_1", expires_at=clock.now() + timedelta(seconds=1), scopes=["repo", "user"])
    answer = await user.get_provider_token()
    expected = {"provider": "codehost", "access_token": "gho_1", "expires_at": "2026-03-14T15:09:27.535897Z", "scopes": ["repo", "user"]}
    assert (answer.status, answer.json) == (200, expected)
    assert answer.headers["Cache-Control"] == "no-store"


async def test_unknown_expiry_and_scopes_are_returned_as_null_and_empty(user: Person) -> None:
    await user.add_identity(token="gho_1")
    assert (await user.get_provider_token()).json == {"provider": "codehost", "access_token": "gho_1", "expires_at": None, "scopes": []}


async def test_each_context_has_its_own_tokens(user: Person) -> None:
    for context in (PLATFORM, SHOP):
        await user.add_identity(context=context, token=f"of {context}")
    assert [(await user.get_provider_token(context=context)).json["access_token"] for context in (PLATFORM, SHOP)] == [
        "of platform",
        "of shop",
    ]
    assert refused(await user.get_provider_token(context=DESK)) == MISSING


async def test_without_an_identity_or_a_token_the_response_is_404(user: Person) -> None:
    await user.add_identity("websuite", token="of websuite")
    await user.add_identity("codehost")
    eve = await add_account(user.tenants.ports, "eve@example.com", None)
    await add_identity(user.tenants.pool, eve.id, "officesuite", token="of eve")
    assert [refused(await user.get_provider_token(provider)) for provider in ("codehost", "officesuite")] == [MISSING, MISSING]


async def test_an_expired_token_without_a_refresh_token_is_not_returned(user: Person, clock: FakeClock) -> None:
    await user.add_identity(token="gho_1", expires_at=clock.now())
    answer = await user.get_provider_token()
    assert refused(answer) == (500, "OAUTH_ERROR")
    assert "gho_1" not in answer.text
