"""Service accounts that authenticate with a pipeline's token, as GitHub Actions and GitLab CI give (RFC 7521 section 4.2)."""

from datetime import timedelta
from typing import Any

import jwt
import pytest

from core.federation.oauth.model.clients import ASSERTION_TYPE
from tests.fakes.http_server import Answer as Reply
from tests.fakes.outside import FakeClock
from tests.federation.api.client_authentication.keys import LEFT_OUT, ClientKey, client_key
from tests.federation.api.client_authentication.pipelines import DISCOVERY, KEYS, PATTERN, SUBJECT, Issuer, trust
from tests.programs.service_accounts import create
from tests.support.builders import BASE_URL, Answer, run_concurrently, run_sql
from tests.support.tenants import Tenant


@pytest.fixture
async def account(acme: Tenant, issuer: Issuer) -> str:
    """The path of a service account that trusts a repository's pipelines."""
    path = await create(acme, role="member", scopes=["members:read"])
    await trust(acme, path, issuer.address)
    return path


async def ask(tenant: Tenant, account: str, token: str, **fields: str) -> Answer:
    form = {
        "grant_type": "client_credentials",
        "client_id": account.rpartition("/")[2],
        "client_assertion": token,
        "client_assertion_type": ASSERTION_TYPE,
        **fields,
    }
    return await tenant.api.post("/auth/token", form)


async def test_a_pipeline_gets_a_token_without_a_stored_secret(acme: Tenant, issuer: Issuer, account: str, clock: FakeClock) -> None:
    """The pipeline's token works until it expires, because a job gets it once."""
    token = issuer.token(clock)
    for _ in range(2):
        answer = await ask(acme, account, token)
        assert (answer.status, answer.json["scope"]) == (200, "members:read")
        assert (await acme.api.get(f"{acme.path}/members", token=answer.json["access_token"])).status == 200
    [(used_at,)] = await run_sql(acme.pool, "select last_used_at from credentials")
    assert used_at == clock.now()
    clock.advance(timedelta(seconds=331))
    assert (await ask(acme, account, token)).status == 401


async def test_tokens_with_wrong_claims_are_refused(acme: Tenant, issuer: Issuer, account: str, clock: FakeClock) -> None:
    now = int(clock.now().timestamp())
    accepted: tuple[dict[str, Any], ...] = (
        {"aud": [BASE_URL]},
        {"exp": now - 29, "iat": now - 300},
        {"iat": now + 29},
        {"nbf": LEFT_OUT},
        {"sub": "repo:acme/shop:ref:refs/heads/next"},
        {"jti": "any", "job_workflow_ref": "any"},
        {"iat": now - 60, "exp": now - 60 + 86400},
    )
    audiences: tuple[Any, ...] = (
        "https://github.com/acme",
        f"{BASE_URL}/",
        BASE_URL.upper(),
        [],
        [BASE_URL] * 2,
        [BASE_URL, "https://elsewhere.example"],
    )
    heads = ("repo:acme/shop:ref:refs/heads/", "repo:acme/shop:ref:refs/heads/a/b", "repo:acme/shop:ref:refs/heads/a:b")
    others = ("repo:evil/shop:ref:refs/heads/main", "repo:acme/shop:ref:refs/tags/main", PATTERN.upper(), f"x{SUBJECT}", f"{SUBJECT}\n")
    refused: tuple[dict[str, Any], ...] = (
        *({"iss": value} for value in (f"{issuer.address}/", issuer.address.upper(), BASE_URL, LEFT_OUT, None, [issuer.address])),
        *({"aud": value} for value in (*audiences, [[BASE_URL]], LEFT_OUT, None, 5)),
        *({"sub": value} for value in (*heads, *others, "", None, LEFT_OUT, [SUBJECT])),
        *({"exp": value} for value in (LEFT_OUT, None, "x", True, now - 31, str(now + 60), 1e300)),
        *({"iat": value} for value in (LEFT_OUT, None, "x", now + 31)),
        *({"nbf": value} for value in ("x", now + 31)),
        {"iat": now - 60, "exp": now - 60 + 86401},
    )
    findings = []
    for expected, table in ((200, accepted), (401, refused)):
        for changes in table:
            answer = await ask(acme, account, issuer.token(clock, **changes))
            if answer.status != expected:
                findings.append(f"{changes}: {answer.status} {answer.text}")
    assert not findings, "\n".join(findings)


async def test_forged_tokens_are_refused(acme: Tenant, issuer: Issuer, account: str, clock: FakeClock) -> None:
    good = issuer.token(clock)
    head, payload, signature = good.split(".")
    stranger, symmetric = client_key("RS256", "stranger"), {"iss": issuer.address, "sub": SUBJECT, "aud": BASE_URL, "exp": 2**31}
    tokens = [
        issuer.token(clock, ClientKey("pipeline", "RS256", stranger.private)),
        issuer.token(clock, stranger),
        issuer.token(clock, headers={"jwk": stranger.jwk}),
        issuer.token(clock, headers={"jku": "https://evil.example/keys"}),
        issuer.token(clock, headers={"x5u": "https://evil.example/keys"}),
        issuer.token(clock, headers={"crit": ["exp"]}),
        *(issuer.token(clock, headers={"typ": type_}) for type_ in ("at+jwt", "dpop+jwt", "stamp+jwt")),
        jwt.encode(symmetric, "secret" * 6, "HS256", headers={"kid": "pipeline"}),
        jwt.encode(symmetric, "", "none", headers={"kid": "pipeline"}),
        f"{head}.{payload}.",
        f"{head}.{payload}.{signature[:-4]}AAAA",
        f"{good}=",
        f"{head}.{payload}",
        "nonsense",
        good + "a" * 8192,
    ]
    assert [(await ask(acme, account, token)).status for token in tokens] == [401] * (len(tokens) - 1) + [400]
    assert (await ask(acme, account, good)).status == 200


async def test_a_token_of_one_issuer_never_passes_for_another(acme: Tenant, issuer: Issuer, account: str, clock: FakeClock) -> None:
    with Issuer() as other:
        other.keys = [client_key("ES256", "other")]
        await trust(acme, account, other.address, "build:42")
        assert (await ask(acme, account, other.token(clock, sub="build:42"))).status == 200
        crossed = [
            other.token(clock),  # the subject that is trusted at the first
            other.token(clock, iss=issuer.address),
            issuer.token(clock, iss=other.address, sub="build:42"),
            issuer.token(clock, ClientKey("pipeline", "ES256", other.keys[0].private)),
            issuer.token(clock, sub="build:42"),
        ]
        assert [(await ask(acme, account, token)).status for token in crossed] == [401] * len(crossed)


async def test_the_reason_names_what_does_not_fit(acme: Tenant, issuer: Issuer, account: str, clock: FakeClock) -> None:
    reasons = {
        issuer.token(clock, iss=f"{issuer.address}/"): "has another issuer than the credentials of this service account",
        issuer.token(clock, client_key("RS256", "stranger")): "is not signed with a key that its issuer publishes",
        issuer.token(clock, sub="repo:evil/shop"): "has another audience or subject than the credentials of this service account",
    }
    for token, reason in reasons.items():
        assert f"the pipeline's token {reason}." in (await ask(acme, account, token)).json["error_description"]


async def test_metadata_of_one_issuer_never_stands_for_another(acme: Tenant, issuer: Issuer, account: str, clock: FakeClock) -> None:
    """A failure is remembered for a minute, so that forged tokens cause no requests."""
    with Issuer() as other:
        for metadata in (
            {"issuer": other.address},
            {"issuer": f"{issuer.address}/"},
            {"issuer": None},
            {"jwks_uri": None},
            {"jwks_uri": "http://192.0.2.1/keys"},
            {"jwks_uri": issuer.address.replace("://", "://user@") + KEYS},
            {"jwks_uri": f"{issuer.address}{KEYS}?{'x' * 2048}"},
        ):
            issuer.metadata = metadata
            before = len(issuer.paths)
            for _ in range(3):
                assert (await ask(acme, account, issuer.token(clock))).status == 401
            assert issuer.paths[before:] == [DISCOVERY]
            clock.advance(timedelta(seconds=61))
        issuer.metadata = {}
        assert (await ask(acme, account, issuer.token(clock))).status == 200
        assert other.paths == []


@pytest.mark.parametrize(
    "failure", [Reply(500), Reply(302, b"", {"Location": KEYS}), Reply(200, b"[]"), Reply(200, b'{"x": "' + b"x" * 70_000 + b'"}')]
)
async def test_keys_that_cannot_be_fetched_are_not_asked_for_again_at_once(
    acme: Tenant, issuer: Issuer, account: str, clock: FakeClock, failure: Reply
) -> None:
    issuer.failure = failure
    for _ in range(3):
        assert (await ask(acme, account, issuer.token(clock))).status == 401
    assert issuer.paths == [DISCOVERY]
    issuer.failure = None
    clock.advance(timedelta(seconds=61))
    assert (await ask(acme, account, issuer.token(clock))).status == 200


async def test_keys_are_cached_and_replaced(acme: Tenant, issuer: Issuer, account: str, clock: FakeClock) -> None:
    answers = await run_concurrently(5, lambda _: ask(acme, account, issuer.token(clock)))
    assert [answer.status for answer in answers] == [200] * 5
    assert issuer.paths == [DISCOVERY, KEYS]
    former = issuer.keys[0]
    issuer.keys = [client_key("EdDSA", "next")]
    assert (await ask(acme, account, issuer.token(clock))).status == 200
    assert (await ask(acme, account, issuer.token(clock, former))).status == 401
    assert len(issuer.paths) == 4


async def test_keys_are_not_fetched_from_private_addresses(acme: Tenant, clock: FakeClock) -> None:
    """By default, test ports allow the loopback interface; these ports do not (security W-1)."""
    with Issuer() as server:
        account = await create(acme)
        await trust(acme, account, server.address)
        assert (await ask(acme, account, server.token(clock))).status == 401
        assert server.paths == []


async def test_our_own_tokens_are_no_tokens_of_a_pipeline(acme: Tenant, issuer: Issuer, account: str, clock: FakeClock) -> None:
    await run_sql(acme.pool, "update credentials set issuer = %s", BASE_URL)
    own = [acme.token("owner"), issuer.token(clock, iss=BASE_URL)]
    assert [(await ask(acme, account, token)).status for token in own] == [401] * 2
    assert issuer.paths == []


async def test_a_trust_ends_with_its_credential(acme: Tenant, issuer: Issuer, account: str, clock: FakeClock) -> None:
    issued = (await ask(acme, account, issuer.token(clock))).json["access_token"]
    [(credential,)] = await run_sql(acme.pool, "select id from credentials")
    await acme.api.delete(f"{account}/credentials/{credential}", token=acme.token("owner"))
    assert (await acme.api.get(f"{acme.path}/members", token=issued)).status == 401
    assert (await ask(acme, account, issuer.token(clock))).status == 401


async def test_the_client_id_is_required_and_says_which_account(acme: Tenant, issuer: Issuer, account: str, clock: FakeClock) -> None:
    """Another account that does not trust the pipeline refuses the same token."""
    other = await create(acme)
    token = issuer.token(clock)
    assert (await ask(acme, other, token)).status == 401
    form = {"grant_type": "client_credentials", "client_assertion": token, "client_assertion_type": ASSERTION_TYPE}
    assert (await acme.api.post("/auth/token", form)).status == 401
