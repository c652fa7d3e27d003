"""Tokens that are bound to a key (RFC 9449): how clients get, refresh, present and inspect them."""

from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import pytest
from quart_trio import QuartTrio

from adapters.crypto import JwtDpopProofs
from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.authentication.model.dpop import PROOF_ALGORITHMS, ProofReplayed, SentProof
from core.authentication.tokens import dpop
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.federation.api.dpop import BoundClient
from tests.federation.api.relying import AUTHORIZE, TOKEN, RelyingParty, claims, give_consent, openid_tokens
from tests.support.browser import FakeBrowser
from tests.support.builders import BASE_URL, Answer, Api, run_concurrently, run_sql, user_claims
from tests.support.direct import ask
from tests.support.dpop import LEFT_OUT, proof_key
from tests.support.tenants import Tenant

USER: Final = "/api/user"
ALGORITHMS: Final = "ES256 EdDSA PS256 RS256"


@pytest.fixture
def browser(app: QuartTrio) -> FakeBrowser:
    return FakeBrowser(app)


@pytest.fixture
def shop(relying_party: RelyingParty) -> BoundClient:
    """A confidential client."""
    return BoundClient(relying_party)


@pytest.fixture
def phone(mobile_app: RelyingParty) -> BoundClient:
    """A public client."""
    return BoundClient(mobile_app)


def error(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.json["error"]


def challenge(answer: Answer) -> str:
    return str(answer.headers["WWW-Authenticate"])


# The token endpoint


@pytest.mark.parametrize("algorithm", PROOF_ALGORITHMS)
async def test_a_proof_binds_the_access_token(relying_party: RelyingParty, algorithm: str) -> None:
    shop = BoundClient(relying_party, proof_key(algorithm))
    tokens = await shop.tokens()
    assert tokens["token_type"] == "DPoP"
    assert claims(tokens)["cnf"] == {"jkt": shop.key.thumbprint}
    assert (await shop.get(USER, tokens["access_token"])).status == 200


async def test_without_a_proof_nothing_changes(relying_party: RelyingParty) -> None:
    tokens = await relying_party.tokens()
    assert (tokens["token_type"], "cnf" in claims(tokens)) == ("Bearer", False)


async def test_a_client_learns_the_nonce_from_the_error_and_repeats_the_request(shop: BoundClient, pool: Pool) -> None:
    code = await shop.party.code()
    first = await shop.exchange(code)
    assert error(first) == (400, "use_dpop_nonce")
    shop.nonce = first.headers["DPoP-Nonce"]
    second = await shop.exchange(code)
    assert (second.status, second.json["token_type"], second.headers.get("DPoP-Nonce")) == (200, "DPoP", None)
    [(used,)] = await run_sql(pool, "select count(*) from dpop_proofs")
    assert used == 1


async def test_a_newer_nonce_comes_with_a_successful_response(shop: BoundClient, clock: FakeClock) -> None:
    tokens = await shop.tokens()
    clock.advance(timedelta(seconds=30))
    answer = await shop.get(USER, tokens["access_token"])
    newer = answer.headers["DPoP-Nonce"]
    assert (answer.status, newer != shop.nonce) == (200, True)
    refreshed = await shop.refresh(tokens["refresh_token"])
    assert (refreshed.status, refreshed.headers["DPoP-Nonce"]) == (200, newer)
    clock.advance(timedelta(seconds=30))
    late = await shop.get(USER, tokens["access_token"])
    assert (late.status, "use_dpop_nonce" in challenge(late)) == (401, True)
    shop.nonce = newer
    assert (await shop.get(USER, tokens["access_token"])).status == 200


async def test_wrong_proofs_are_refused_before_the_code_is_used(shop: BoundClient) -> None:
    await shop.learn_nonce()
    code = await shop.party.code()
    wrong: list[dict[str, Any]] = [
        {"htm": "GET"},
        {"htu": f"{BASE_URL}/auth/par"},
        {"jti": ""},
        {"iat": LEFT_OUT},
        {"iat": 10**400},
        {"iat": float("nan")},
        {"headers": {"typ": "JWT"}},
    ]
    for changes in wrong:
        sent = {"DPoP": shop.proof("POST", TOKEN, **changes)}
        answer = await shop.party.post(TOKEN, sent, grant_type="authorization_code", code=code, client_id=str(shop.party.client_id))
        assert error(answer) == (400, "invalid_dpop_proof"), changes
    for nonce in ("made-up", LEFT_OUT):
        sent = {"DPoP": shop.proof("POST", TOKEN, nonce=nonce)}
        answer = await shop.party.post(TOKEN, sent, grant_type="authorization_code", code=code)
        assert error(answer) == (400, "use_dpop_nonce")
    assert (await shop.exchange(code)).status == 200


async def test_the_refresh_tokens_of_a_public_client_need_its_key(phone: BoundClient, pool: Pool) -> None:
    tokens = await phone.tokens()
    assert await run_sql(pool, "select key_thumbprint from sessions where service_id is not null") == [(phone.key.thumbprint,)]
    thief = replace(phone, key=proof_key(name="two"))
    token = tokens["refresh_token"]
    for answer in (await phone.party.refresh(token), await thief.refresh(token), await phone.party.refresh(token, client_id=None)):
        assert error(answer) == (400, "invalid_grant")
    direct = await phone.party.api.post("/api/auth/refresh", {"refresh_token": token})
    assert (direct.status, "POST /auth/token" in direct.json["error"]) == (401, True)
    refreshed = await phone.refresh(token)
    assert (refreshed.status, refreshed.json["token_type"], claims(refreshed.json)["cnf"]) == (200, "DPoP", {"jkt": phone.key.thumbprint})
    # The family is still whole, and a second use with the key ends it.
    assert (await phone.refresh(refreshed.json["refresh_token"])).status == 200


async def test_a_refresh_with_a_proof_binds_the_refresh_tokens_of_a_public_client(phone: BoundClient) -> None:
    """RFC 9449 section 5 requires this."""
    await phone.learn_nonce()
    bearer = (await phone.party.exchange(await phone.party.code())).json
    bound = (await phone.refresh(bearer["refresh_token"])).json
    assert (bearer["token_type"], bound["token_type"]) == ("Bearer", "DPoP")
    assert error(await phone.party.refresh(bound["refresh_token"])) == (400, "invalid_grant")
    assert (await phone.refresh(bound["refresh_token"])).status == 200


@pytest.mark.parametrize("with_key", [True, False])
async def test_a_second_use_of_a_bound_refresh_token_ends_the_session(phone: BoundClient, clock: FakeClock, *, with_key: bool) -> None:
    tokens = await phone.tokens()
    newer = (await phone.refresh(tokens["refresh_token"])).json
    clock.advance(timedelta(seconds=20))
    again = await (phone if with_key else phone.party).refresh(tokens["refresh_token"])
    assert error(again) == (400, "invalid_grant")
    assert (await phone.get(USER, newer["access_token"])).status == 401


async def test_a_thief_cannot_take_a_session_over_with_a_key_of_their_own(phone: BoundClient, clock: FakeClock) -> None:
    await phone.learn_nonce()
    bearer = await phone.party.tokens()
    stolen = (await phone.refresh(bearer["refresh_token"])).json
    assert (await phone.get(USER, stolen["access_token"])).status == 200
    clock.advance(timedelta(seconds=20))
    assert error(await phone.party.refresh(bearer["refresh_token"])) == (400, "invalid_grant")
    assert (await phone.get(USER, stolen["access_token"])).status == 401
    assert error(await phone.refresh(stolen["refresh_token"])) == (400, "invalid_grant")


async def test_a_confidential_client_can_change_its_key(shop: BoundClient) -> None:
    tokens = await shop.tokens()
    other = replace(shop, key=proof_key("EdDSA"))
    refreshed = await other.refresh(tokens["refresh_token"])
    assert (refreshed.status, claims(refreshed.json)["cnf"]) == (200, {"jkt": other.key.thumbprint})
    bearer = await shop.party.refresh(refreshed.json["refresh_token"])
    assert (bearer.status, bearer.json["token_type"]) == (200, "Bearer")


async def test_the_key_of_the_authorization_request_must_redeem_the_code(shop: BoundClient, phone: BoundClient) -> None:
    """RFC 9449 section 10 requires this."""
    for client in (shop, phone):
        await client.learn_nonce()
        code = await client.party.code(dpop_jkt=client.key.thumbprint)
        assert error(await client.party.exchange(code)) == (400, "invalid_grant")
        assert error(await replace(client, key=proof_key(name="two")).exchange(code)) == (400, "invalid_grant")
        assert (await client.exchange(code)).status == 200


async def test_a_client_can_be_made_to_use_bound_tokens_only(shop: BoundClient, pool: Pool, phone: BoundClient) -> None:
    """RFC 9449 section 5.2 defines this setting."""
    earlier = await phone.party.tokens()
    await run_sql(pool, "update services set dpop_bound_access_tokens = true")
    code = await shop.party.code()
    assert error(await shop.party.exchange(code)) == (400, "invalid_dpop_proof")
    await shop.learn_nonce()
    tokens = await shop.tokens()
    assert error(await shop.party.refresh(tokens["refresh_token"])) == (400, "invalid_grant")
    assert (await shop.refresh(tokens["refresh_token"])).json["token_type"] == "DPoP"
    # Tokens from before the setting was changed cannot be refreshed without a key either.
    assert error(await phone.party.refresh(earlier["refresh_token"])) == (400, "invalid_grant")
    direct = await phone.party.api.post("/api/auth/refresh", {"refresh_token": earlier["refresh_token"]})
    assert direct.status == 401
    # Such a token is bound to no key. So it is still rotated, and a second use is found.
    phone.nonce = shop.nonce
    refreshed = await phone.refresh(earlier["refresh_token"])
    assert (refreshed.json["token_type"], refreshed.json["refresh_token"] != earlier["refresh_token"]) == ("DPoP", True)


async def test_the_refresh_tokens_of_such_a_client_are_not_rotated(shop: BoundClient, phone: BoundClient, pool: Pool) -> None:
    """FAPI 2.0 section 5.3.2.1: a response that is lost costs nothing."""
    await run_sql(pool, "update services set dpop_bound_access_tokens = true")
    for client in (shop, phone):
        token = (await client.tokens())["refresh_token"]
        answers = [await client.refresh(token), *await run_concurrently(8, lambda _: client.refresh(token))]  # noqa: B023
        assert {(answer.status, answer.json["refresh_token"]) for answer in answers} == {(200, token)}
        assert len({answer.json["access_token"] for answer in answers}) == 9
    counts = (
        "select count(*), count(t.rotated_at) from refresh_tokens t join sessions s on s.id = t.session_id where s.service_id is not null"
    )
    assert await run_sql(pool, counts) == [(2, 0)]
    await run_sql(pool, "update services set dpop_bound_access_tokens = false")
    rotated = await phone.refresh(token)
    assert (rotated.status, rotated.json["refresh_token"] != token) == (200, True)


async def test_a_client_can_be_made_to_push_its_requests(shop: BoundClient, pool: Pool) -> None:
    """RFC 9126 section 6 defines this setting."""
    await run_sql(pool, "update services set require_pushed_authorization_requests = true")
    answer = await shop.party.open_request()
    assert "error=invalid_request" in answer.headers["Location"]
    fields = {"client_id": str(shop.party.client_id), "client_secret": shop.party.secret, "redirect_uri": shop.party.redirect_uri}
    pushed = await shop.party.post("/auth/par", **fields)
    target = f"{AUTHORIZE}?client_id={shop.party.client_id}&request_uri={pushed.json['request_uri']}"
    assert "code=" in (await shop.party.browser.open(target)).headers["Location"]


@pytest.mark.parametrize("setting", ["require_pushed_authorization_requests", "dpop_bound_access_tokens"])
async def test_a_client_with_either_setting_gets_no_tokens_for_a_password(
    acme: Tenant, shop: BoundClient, pool: Pool, setting: str
) -> None:
    await run_sql(pool, f"update services set {setting} = true")  # noqa: S608
    body = {"email": "x@example.com", "password": "a long password", "org_slug": acme.slug, "service_slug": shop.party.slug}
    answer = await acme.api.post("/api/auth/login", body)
    assert (answer.status, "code" in answer.json["error"]) == (400, True)


# Resources


async def test_a_bound_token_needs_its_scheme_and_its_proof(shop: BoundClient, relying_party: RelyingParty, user: Account) -> None:
    await give_consent(relying_party, user)
    await shop.learn_nonce()
    code = await relying_party.code(response_type="code", scope="openid")
    bound = (await shop.exchange(code)).json["access_token"]
    bearer = (await openid_tokens(relying_party))["access_token"]
    api = relying_party.api
    for path in (USER, "/auth/userinfo"):
        assert (await shop.get(path, bound)).status == 200
        as_bearer = await api.get(path, token=bound)
        assert (as_bearer.status, challenge(as_bearer).startswith('DPoP error="invalid_token"')) == (401, True)
        assert ALGORITHMS in challenge(as_bearer)
        as_bound = await shop.get(path, bearer)
        assert (as_bound.status, 'DPoP error="invalid_token"' in challenge(as_bound)) == (401, True)
        without = await api.get(path, headers={"Authorization": f"DPoP {bound}"})
        assert (without.status, 'DPoP error="invalid_dpop_proof"' in challenge(without)) == (401, True)
        with_other_key = await replace(shop, key=proof_key(name="two")).get(path, bound)
        assert (with_other_key.status, 'error="invalid_token"' in challenge(with_other_key)) == (401, True)
        assert (await api.get(path, token=bearer, headers={"DPoP": "ignored"})).status == 200
    form = f"access_token={bound}".encode()
    in_form = await api.call("POST", "/auth/userinfo", raw=form, headers={"Content-Type": "application/x-www-form-urlencoded"})
    assert in_form.status == 401


async def test_a_proof_must_fit_the_request(shop: BoundClient) -> None:
    token = (await shop.tokens())["access_token"]
    other = (await shop.tokens())["access_token"]
    for changes in (
        {"htm": "POST"},
        {"htu": f"{BASE_URL}/api/users"},
        {"htu": f"https://other.example{USER}"},
        {"ath": LEFT_OUT},
        {"ath": "x"},
    ):
        answer = await shop.get(USER, token, **changes)
        assert (answer.status, 'error="invalid_dpop_proof"' in challenge(answer)) == (401, True), changes
        assert answer.json["error_code"] == "UNAUTHORIZED"
    swapped = {"Authorization": f"DPoP {other}", "DPoP": shop.proof("GET", USER, token)}
    assert (await shop.party.api.call("GET", USER, headers=swapped)).status == 401
    assert (await shop.get(USER, token, htu=f"{BASE_URL.upper()}/api/./user?x=1#top")).status == 200
    assert (await shop.get(USER, token, query={"page": "1"})).status == 200


async def test_a_second_proof_in_a_header_of_its_own_is_refused(shop: BoundClient, app: QuartTrio) -> None:
    token = (await shop.tokens())["access_token"]
    proofs = [shop.proof("GET", USER, token).encode() for _ in range(2)]
    answer = await ask(app, "GET", USER, headers=[(b"authorization", f"DPoP {token}".encode()), *((b"dpop", text) for text in proofs)])
    assert (answer.status, answer.json["error"]) == (400, "The header dpop was sent more than once. Send it once.")


async def test_twenty_requests_with_one_proof_succeed_once(shop: BoundClient) -> None:
    token = (await shop.tokens())["access_token"]
    headers = {"Authorization": f"DPoP {token}", "DPoP": shop.proof("GET", USER, token)}
    answers = await run_concurrently(20, lambda _: shop.party.api.call("GET", USER, headers=headers))
    assert sorted(answer.status for answer in answers) == [200, *[401] * 19]
    assert all('error="invalid_dpop_proof"' in challenge(answer) for answer in answers if answer.status == 401)


async def test_twenty_token_requests_with_one_proof_succeed_once(shop: BoundClient) -> None:
    await shop.learn_nonce()
    codes = [await shop.party.code() for _ in range(20)]
    sent = {"DPoP": shop.proof("POST", TOKEN)}
    answers = await run_concurrently(
        20,
        lambda number: shop.party.post(
            TOKEN,
            sent,
            grant_type="authorization_code",
            code=codes[number],
            redirect_uri=shop.party.redirect_uri,
            client_id=str(shop.party.client_id),
            client_secret=shop.party.secret,
        ),
    )
    assert sorted(answer.status for answer in answers) == [200, *[400] * 19]


async def test_after_a_crash_of_the_database_proofs_from_before_are_refused(shop: BoundClient, pool: Pool, ports: Ports) -> None:
    """A crash empties the unlogged tables. This process still knows the old key."""
    token = (await shop.tokens())["access_token"]
    sent = {"Authorization": f"DPoP {token}", "DPoP": shop.proof("GET", USER, token)}
    assert (await shop.party.api.call("GET", USER, headers=sent)).status == 200
    for table in ("dpop_proofs", "dpop_nonce_keys"):
        await run_sql(pool, f"delete from {table}")  # noqa: S608
    replayed = await shop.party.api.call("GET", USER, headers=sent)
    assert (replayed.status, 'error="use_dpop_nonce"' in challenge(replayed)) == (401, True)
    assert replayed.headers["DPoP-Nonce"] != shop.nonce
    shop.nonce = replayed.headers["DPoP-Nonce"]
    assert (await shop.get(USER, token)).status == 200
    code = await shop.party.code()
    await run_sql(pool, "delete from dpop_nonce_keys")
    assert error(await shop.exchange(code)) == (400, "use_dpop_nonce")


async def test_processes_share_nonces_and_used_proofs(shop: BoundClient, ports: Ports) -> None:
    await shop.learn_nonce()
    other = replace(ports, dpop_proofs=JwtDpopProofs())  # as in a process that has just started
    assert await dpop.current_nonce(other) == shop.nonce
    sent = SentProof(shop.proof("POST", TOKEN), "POST", BASE_URL + TOKEN)
    await dpop.use(ports, await dpop.read_proof(ports, sent))
    with pytest.raises(ProofReplayed):
        await dpop.use(other, await dpop.read_proof(other, sent))


async def test_other_refusals_name_the_scheme_too(shop: BoundClient, pool: Pool, clock: FakeClock) -> None:
    token = (await shop.tokens())["access_token"]
    await run_sql(pool, "update sessions set ended_at = now() where service_id is not null")
    ended = await shop.get(USER, token)
    assert (ended.status, challenge(ended).startswith('DPoP error="invalid_token"')) == (401, True)
    clock.advance(timedelta(hours=1))
    expired = await shop.get(USER, token)
    assert challenge(expired).startswith('DPoP error="use_dpop_nonce"')


# Our own API for the user's own token


async def test_routes_of_an_organization_take_bound_tokens(acme: Tenant, ports: Ports, api: Api, shop: BoundClient) -> None:
    await shop.learn_nonce()
    for role in ("owner", "admin", "member"):
        unbound = user_claims(ports.tokens, acme.token(role), ports.clock.now())
        bound = ports.tokens.sign(replace(unbound, key_thumbprint=shop.key.thumbprint))
        assert (await shop.get(acme.path, bound)).status == 200
        assert (await api.get(acme.path, token=bound)).status == 401


async def test_selecting_an_organization_keeps_the_key(acme: Tenant, ports: Ports, shop: BoundClient) -> None:
    await shop.learn_nonce()
    unbound = user_claims(ports.tokens, acme.token("admin"), ports.clock.now())
    bound = ports.tokens.sign(replace(unbound, key_thumbprint=shop.key.thumbprint))
    answer = await shop.get(f"{acme.path}/select", bound, method="POST")
    assert answer.status == 200, answer.text
    assert claims(answer.json)["cnf"] == {"jkt": shop.key.thumbprint}


# Introspection


async def test_introspection_names_the_key(shop: BoundClient) -> None:
    tokens = await shop.tokens()
    party = shop.party
    fields = {"client_id": str(party.client_id), "client_secret": party.secret}
    answer = await party.post("/auth/introspect", **fields, token=tokens["access_token"])
    assert (answer.json["token_type"], answer.json["cnf"]) == ("DPoP", {"jkt": shop.key.thumbprint})
    plain = await party.post("/auth/introspect", **fields, token=(await party.tokens())["access_token"])
    assert (plain.json["token_type"], "cnf" in plain.json) == ("Bearer", False)


async def test_bound_tokens_are_revoked_without_a_proof(phone: BoundClient) -> None:
    """The token's holder can end it without a proof, and do nothing else."""
    tokens = await phone.tokens()
    assert (await phone.party.post("/auth/revoke", client_id=str(phone.party.client_id), token=tokens["refresh_token"])).status == 200
    assert (await phone.get(USER, tokens["access_token"])).status == 401
