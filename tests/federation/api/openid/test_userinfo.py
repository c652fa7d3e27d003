"""The userinfo endpoint: which tokens it accepts, and how (OpenID Connect Core section 5.3, RFC 6750)."""

from datetime import timedelta

import pytest

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.federation.api.openid.client import USERINFO, OpenIdClient
from tests.federation.api.relying import REVOKE
from tests.support.builders import BASE_URL, EMAIL, Answer, run_sql, sign_in


def refusal(answer: Answer) -> tuple[int, str]:
    """Return a refusal's status and error, which the header names too if a token was sent."""
    error: str = answer.json["error"]
    assert answer.headers["WWW-Authenticate"] in (f'Bearer error="{error}"', f'Bearer error="{error}", scope="openid"', "Bearer")
    return answer.status, error


async def test_the_token_is_in_the_header_or_in_a_form(signed_in: OpenIdClient, user: Account) -> None:
    tokens = await signed_in.tokens(scope="openid email")
    expected = {"sub": str(user.id), "email": EMAIL, "email_verified": True}
    api, token = signed_in.party.api, tokens["access_token"]
    answers = [
        await api.get(USERINFO, token=token),
        await api.call("POST", USERINFO, token=token),
        await api.call("POST", USERINFO, raw=b"", headers={"Content-Type": "application/x-www-form-urlencoded"}, token=token),
        await signed_in.post_userinfo(access_token=token),
    ]
    for answer in answers:
        assert (answer.status, answer.json, answer.headers["Content-Type"]) == (200, expected, "application/json")
        assert answer.headers["Cache-Control"] == "no-store"


async def test_the_token_is_nowhere_else(signed_in: OpenIdClient) -> None:
    token = (await signed_in.tokens())["access_token"]
    api = signed_in.party.api
    for answer in (
        await api.get(USERINFO),
        await api.get(f"{USERINFO}?access_token={token}"),
        await api.get(USERINFO, headers={"Cookie": f"access_token={token}"}),
        await api.post(f"{USERINFO}?access_token={token}"),
        await api.post(USERINFO, {"access_token": token}),
        await signed_in.post_userinfo(),
        await signed_in.post_userinfo(access_token=""),
        await signed_in.post_userinfo(token=token),
    ):
        assert refusal(answer)[0] == 401
    assert (await signed_in.post_userinfo(access_token="nonsense")).status == 401
    twice = await api.call(
        "POST", USERINFO, raw=f"access_token={token}".encode(), headers={"Content-Type": "application/x-www-form-urlencoded"}, token=token
    )
    assert twice.status == 400, "RFC 6750 section 2: a client must not send the token twice"


async def test_tokens_for_something_else_are_refused(signed_in: OpenIdClient, ports: Ports, user: Account) -> None:
    tokens = await signed_in.tokens(nonce="n")
    plain = await signed_in.tokens(scope=None)
    other_resource = await signed_in.tokens(resource=f"{BASE_URL}/api")
    for name, token, expected in (
        ("an ID token", tokens["id_token"], (401, "invalid_token")),
        ("a refresh token", tokens["refresh_token"], (401, "invalid_token")),
        ("a token without openid", plain["access_token"], (403, "insufficient_scope")),
        ("a token for another resource", other_resource["access_token"], (401, "invalid_token")),
        ("a token of the platform", (await sign_in(ports, user)).access_token, (403, "insufficient_scope")),
        ("a changed token", tokens["access_token"][:-8] + "AAAAAAAA", (401, "invalid_token")),
    ):
        answer = await signed_in.party.api.get(USERINFO, token=token)
        assert refusal(answer) == expected, name
        assert (await signed_in.post_userinfo(access_token=token)).status == expected[0], name


async def test_a_token_expires(signed_in: OpenIdClient, clock: FakeClock) -> None:
    tokens = await signed_in.tokens()
    clock.advance(timedelta(seconds=899))
    await signed_in.userinfo(tokens)
    clock.advance(timedelta(seconds=1))
    assert refusal(await signed_in.party.api.get(USERINFO, token=tokens["access_token"])) == (401, "invalid_token")


ENDINGS = {
    "end of the session": "update sessions set ended_at = now()",
    "deactivation of the account": "update users set deactivated_at = now()",
    "removal from the service": "delete from service_users",
    "deletion of the service": "delete from services",
}


@pytest.mark.parametrize("ending", ENDINGS)
async def test_a_token_ends_with_its_session_user_or_application(signed_in: OpenIdClient, pool: Pool, ending: str) -> None:
    tokens = await signed_in.tokens(scope="openid email")
    await signed_in.userinfo(tokens)
    await run_sql(pool, ENDINGS[ending])
    answer = await signed_in.party.api.get(USERINFO, token=tokens["access_token"])
    is_removed = ending == "removal from the service"
    assert (answer.status, answer.json["error"]) == ((403, "access_denied") if is_removed else (401, "invalid_token"))


async def test_the_revocation_of_a_refresh_token_ends_the_access_token(signed_in: OpenIdClient) -> None:
    party, tokens = signed_in.party, await signed_in.tokens()
    answer = await party.post(REVOKE, token=tokens["refresh_token"], client_id=str(party.client_id), client_secret=party.secret)
    assert answer.status == 200
    assert refusal(await party.api.get(USERINFO, token=tokens["access_token"])) == (401, "invalid_token")


async def test_a_suspended_organization_gets_no_claims_and_no_new_tokens(signed_in: OpenIdClient, pool: Pool) -> None:
    """The token that its application has still reads the own profile until it expires (security J-9)."""
    tokens = await signed_in.tokens()
    await run_sql(pool, "update organizations set status = 'suspended'")
    statuses = [(await signed_in.party.api.get(path, token=tokens["access_token"])).status for path in (USERINFO, "/api/user")]
    assert statuses == [403, 200]
    assert (await signed_in.party.refresh(tokens["refresh_token"])).code == "ORGANIZATION_NOT_ACTIVE"


async def test_the_claims_are_as_they_are_now(signed_in: OpenIdClient, user: Account, pool: Pool) -> None:
    tokens = await signed_in.tokens(scope="openid profile email")
    await run_sql(pool, "update users set name = 'Ada', email = 'ada@elsewhere.example', email_verified_at = null where id = %s", user.id)
    answer = await signed_in.userinfo(tokens)
    assert (answer["name"], answer["email"], answer["email_verified"]) == ("Ada", "ada@elsewhere.example", False)


async def test_a_token_for_userinfo_also_reads_the_own_profile(signed_in: OpenIdClient, user: Account) -> None:
    """The routes in security J-9 accept it, too."""
    tokens = await signed_in.tokens()
    answer = await signed_in.party.api.get("/api/user", token=tokens["access_token"])
    assert (answer.status, answer.json["id"]) == (200, str(user.id))
    assert (await signed_in.party.api.get("/api/organizations", token=tokens["access_token"])).status == 403
