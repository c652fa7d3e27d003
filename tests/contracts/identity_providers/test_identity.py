"""The identity that a provider reports, and refreshed tokens (decisions 86, 102)."""

from datetime import timedelta
from typing import Any

import pytest

from core.federation.connections.model.openid import OPENID_FAULTS, OpenIdFault
from core.kernel.connections import (
    OFFICESUITE,
    WEBSUITE,
    ConnectionSettings,
    FederatedIdentity,
    ProviderTokens,
    ReauthenticationNotConfirmed,
)
from core.kernel.errors import ProviderFailed
from tests.contracts.identity_providers.case import Case
from tests.fakes.http_server import TRAP, in_form, in_json
from tests.fakes.provider import CLIENT, Person, sign
from tests.support.builders import run_concurrently

# The identity


async def test_an_identity_has_every_field(case: Case) -> None:
    case.server.scope = "openid email calendar"
    identity = await case.identify()
    tokens = identity.tokens
    assert identity == FederatedIdentity(
        provider=case.provider,
        issuer=case.server.address,
        subject="4711",
        email=identity.email,
        email_verified=case.provider != OFFICESUITE,
        tokens=ProviderTokens(
            tokens.access_token, tokens.refresh_token, case.clock.now() + timedelta(seconds=3600), ("openid", "email", "calendar")
        ),
    )
    assert identity.email == "ada@example.com"
    assert tokens.access_token.startswith("access-")
    assert (tokens.refresh_token or "").startswith("refresh-")
    for secret in (tokens.access_token, tokens.refresh_token or ""):
        assert secret not in repr(identity)


async def test_requests_accept_no_compression_and_carry_no_cookie(case: Case) -> None:
    await case.identify()
    for headers in case.server.headers:
        assert headers["accept-encoding"] == "identity"
        assert headers["user-agent"] == "Gatehouse"
        assert "cookie" not in headers


async def test_codehost_can_answer_with_a_form(codehost: Case) -> None:
    codehost.server.in_form = True
    codehost.server.expires_in = 28800
    identity = await codehost.identify()
    assert identity.tokens.expires_at == codehost.clock.now() + timedelta(hours=8)
    assert identity.tokens.scopes == ("read:user", "user:email"), "with commas between them"
    codehost.server.answers["/token"] = in_form({"error": "bad_verification_code", "error_description": TRAP})
    assert await codehost.refusal() == OPENID_FAULTS[OpenIdFault.REQUEST]


@pytest.mark.parametrize(
    ("person", "email", "verified"),
    [
        (Person(email="Ada@Example.com"), "ada@example.com", True),
        (Person(email_verified=False), "ada@example.com", False),
        (Person(email_verified=None), "ada@example.com", False),
        (Person(email=None), None, False),
        (Person(email="not an address"), None, False),
    ],
)
async def test_an_address_is_verified_only_if_the_provider_says_so(case: Case, person: Person, email: str | None, verified: bool) -> None:
    case.server.person = person
    identity = await case.identify()
    assert identity.email == email
    assert identity.email_verified == (verified and case.provider != OFFICESUITE)


async def test_strings_are_not_booleans(websuite: Case) -> None:
    for parameters in ("true", 1, "yes", [True]):
        websuite.server.claims = {"email_verified": parameters}
        assert not (await websuite.identify()).email_verified, parameters


async def test_the_user_info_completes_the_id_token(openid: Case) -> None:
    openid.server.claims = {"email": None, "email_verified": None}
    identity = await openid.identify()
    assert (identity.email, identity.email_verified) == ("ada@example.com", openid.provider == WEBSUITE)
    openid.server.answers["/user"] = in_json({"sub": "4712", "email": "eve@example.com", "email_verified": True})
    assert await openid.refusal() == OPENID_FAULTS[OpenIdFault.USERINFO_SUBJECT]


async def test_a_claim_without_a_value_counts_as_missing(openid: Case) -> None:
    """OpenID Connect Core section 5.3.2 says that providers should leave such claims out."""
    openid.server.sign = lambda claims: sign({**claims, "email": None})
    assert (await openid.identify()).email == "ada@example.com"


async def test_an_answer_without_a_token_type_is_accepted(case: Case) -> None:
    case.server.token_type = None
    assert (await case.identify()).subject == "4711"


async def test_expiry_and_refresh_token_are_optional(case: Case) -> None:
    case.server.expires_in, case.server.gives_refresh_token = None, False
    tokens = (await case.identify(scopes=["extra"])).tokens
    assert (tokens.expires_at, tokens.refresh_token) == (None, None)
    assert tokens.scopes[-1] == "extra", "where it does not say, they are those that were asked for"


@pytest.mark.parametrize("emails", [[], [{"email": "ada@example.com", "verified": True}], [7, None, "x"], [{"primary": True}]])
async def test_only_the_primary_address_of_codehost_counts(codehost: Case, emails: list[Any]) -> None:
    codehost.server.answers["/user/emails"] = in_json(emails)
    assert (await codehost.identify()).email is None


async def test_a_fresh_sign_in_is_reported_as_fresh(openid: Case) -> None:
    now = openid.clock.now()
    openid.server.signed_in_at = 0.0
    assert (await openid.identify(fresh_since=now)).is_fresh
    assert not (await openid.identify()).is_fresh
    for differs in (-59, 59):
        openid.server.claims = {"auth_time": int(now.timestamp()) + differs}
        assert (await openid.identify(fresh_since=now)).is_fresh, "clocks differ by a little"
    openid.server.claims = {"auth_time": None}
    assert (await openid.identify(fresh_since=now)).is_fresh, "not every provider says when"


# Refused responses


@pytest.mark.parametrize("at", [0, -61, 61, 10**12, True, "now", [], {}, float("nan"), float("-inf"), float("inf")])
async def test_an_old_sign_in_is_not_reported_as_fresh(openid: Case, at: Any) -> None:
    now = openid.clock.now()
    openid.server.claims = {"auth_time": int(now.timestamp()) + at if at in (-61, 61) else at}
    with pytest.raises(ReauthenticationNotConfirmed):
        await openid.identify(fresh_since=now)
    assert (await openid.identify()).subject == "4711", "only a request for a fresh sign-in checks its age"


# Refreshing


async def test_tokens_are_refreshed(case: Case) -> None:
    first = (await case.identify()).tokens
    assert first.refresh_token is not None
    case.clock.advance(timedelta(hours=2))
    second = await case.providers.refresh(case.connection, CLIENT, first.refresh_token)
    assert second.access_token != first.access_token
    assert second.refresh_token not in (None, first.refresh_token)
    assert second.expires_at == case.clock.now() + timedelta(hours=1)
    with pytest.raises(ProviderFailed, match="does not accept"):
        await case.providers.refresh(case.connection, CLIENT, first.refresh_token)


async def test_the_old_refresh_token_stays_if_there_is_no_new_one(case: Case) -> None:
    first = (await case.identify()).tokens
    assert first.refresh_token is not None
    case.server.rotates = False
    for _ in range(2):
        assert (await case.providers.refresh(case.connection, CLIENT, first.refresh_token)).refresh_token == first.refresh_token


async def test_many_parallel_requests_are_answered(websuite: Case) -> None:
    identities = await run_concurrently(8, lambda _: websuite.identify())
    assert {identity.subject for identity in identities} == {"4711"}
    assert len({identity.tokens.access_token for identity in identities}) == 8


def test_secrets_are_not_in_representations() -> None:
    settings = ConnectionSettings(client_id=CLIENT.client_id, authorize_url="https://a", token_url="https://t", userinfo_url="https://u")
    assert CLIENT.client_secret not in repr((settings, CLIENT))
