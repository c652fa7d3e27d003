"""Sign-outs that an OpenID provider reports to us."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

import jwt
import pytest

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.federation.connections import sign_out
from core.federation.connections.model.connections import (
    ConnectionIdentity,
    OrganizationConnection,
    OrganizationConnectionNotFound,
)
from core.federation.connections.model.logins import LogoutTokenRefused, LogoutTokenUsed
from core.federation.connections.model.openid import LOGOUT_TOKEN_TTL
from core.federation.connections.model.settings import OidcSettings
from core.kernel.causes import SYSTEM, Anonymous
from core.kernel.errors import Refusal
from core.kernel.proofs import Method, Proof
from core.kernel.values import new_id
from ports import Ports
from tests.fakes.openid_issuers import CLIENT_ID, FakeIssuer, OpenIdIssuers
from tests.fakes.outside import FakeClock
from tests.fakes.provider import sign
from tests.support.builders import Api, add_organization, run_concurrently, run_sql, sign_in
from tests.support.connections import add_connection, add_login
from tests.support.connections.proofs import write_proofs


@dataclass(slots=True)
class Provider:
    """An active connection's provider, which knows the user as 4711 and has the user's session s1."""

    ports: Ports
    issuer: FakeIssuer
    connection: OrganizationConnection
    session_id: UUID

    async def report(self, token: str, connection_id: UUID | None = None) -> str:
        """Send a logout token. Return the refusal's name, or `accepted`."""
        try:
            await sign_out.receive_logout(self.ports, Anonymous(), connection_id or self.connection.id, token)
        except Refusal as refusal:
            return type(refusal).__name__
        return "accepted"


@pytest.fixture
async def provider(connection_ports: Ports, server: OpenIdIssuers, pool: Pool, user: Account) -> Provider:
    ports, issuer, org = connection_ports, server.add("okta"), await add_organization(pool, "acme")
    connection = await add_connection(ports.storage, org, settings=OidcSettings(issuer=issuer.url, client_id=CLIENT_ID))
    now = ports.clock.now()
    async with ports.storage.transaction(by=SYSTEM) as tx:
        identity = ConnectionIdentity(
            org_id=org, connection_id=connection.id, user_id=user.id, subject="4711", email=None, linked_at=now, last_used_at=now
        )
        await tx.connection_identities.add(identity)
    login = await add_login(ports.storage, connection, user.id)
    session = await sign_in(ports, user)
    await write_proofs(pool, user.id, (Proof(Method.CONNECTION, now, connection=connection.id, org=org, login=login.id),))
    return Provider(ports, issuer, connection, session.session_id)


async def ended(pool: Pool) -> int:
    [(count,)] = await run_sql(pool, "select count(*) from sessions where ended_at is not null")
    return int(count)


@pytest.mark.parametrize("left_out", [None, "sub", "sid"])
async def test_a_reported_sign_out_ends_the_session_here(provider: Provider, pool: Pool, left_out: str | None) -> None:
    wrong: list[dict[str, Any]] = [{"sub": "4712"}, {"sid": "s2"}, {"sub": "4712", "sid": None}, {"sub": None, "sid": "s2"}]
    assert [await provider.report(provider.issuer.logout_token(**changes)) for changes in wrong] == ["accepted"] * 4
    assert await ended(pool) == 0, "they name another user or another session"
    assert await provider.report(provider.issuer.logout_token(**({} if left_out is None else {left_out: None}))) == "accepted"
    assert await ended(pool) == 1
    [(details,)] = await run_sql(pool, "select details from audit_log where action = 'user.sessions_revoked'")
    assert details["sessions_revoked"] == 1


async def test_a_logout_token_has_its_own_type_or_that_of_every_jwt(provider: Provider) -> None:
    """The user's ID token, which also has the type that every JWT has, is refused."""
    types = ("logout+jwt", "application/logout+jwt", "JWT", "jwt", "application/jwt", None, "at+jwt", "secevent+jwt")
    answers = {typ: await provider.report(provider.issuer.logout_token(typ)) for typ in types}
    refused = LogoutTokenRefused.__name__
    assert answers == {**dict.fromkeys(types, "accepted"), "at+jwt": refused, "secevent+jwt": refused}
    for of_id_token in ({"events": None, "nonce": "n"}, {"events": None}, {"nonce": "n"}):
        assert await provider.report(provider.issuer.logout_token("JWT", **of_id_token)) == refused, of_id_token


async def test_a_logout_token_works_once_at_its_connection(provider: Provider, pool: Pool, clock: FakeClock) -> None:
    token = provider.issuer.logout_token(jti="once")
    other = await add_connection(
        provider.ports.storage, provider.connection.org_id, "other", settings=OidcSettings(issuer=provider.issuer.url, client_id="other")
    )
    assert await provider.report(token, other.id) == LogoutTokenRefused.__name__, "it is for another client"
    answers = await run_concurrently(20, lambda _: provider.report(token))
    assert sorted(answers) == sorted(["accepted"] + [LogoutTokenUsed.__name__] * 19)
    clock.advance(LOGOUT_TOKEN_TTL)
    assert await provider.report(token) == LogoutTokenRefused.__name__, "also when its use is forgotten"


@pytest.mark.parametrize("left_out", ["sub", "sid"])
async def test_a_logout_token_has_the_algorithm_of_the_id_token(provider: Provider, pool: Pool, left_out: str) -> None:
    """The provider publishes a second algorithm, which it does not use for our client. The refusal is in the sign-in log."""
    provider.issuer.metadata = {"id_token_signing_alg_values_supported": ["RS256", "ES256"]}
    [(user_id,)] = await run_sql(pool, "select user_id from connection_logins")
    newer = provider.ports.clock.now() + timedelta(minutes=1)
    await add_login(provider.ports.storage, provider.connection, user_id, created_at=newer, logout={"algorithm": "RS256"})
    claims = jwt.decode(provider.issuer.logout_token(**{left_out: None}), options={"verify_signature": False})
    assert await provider.report(sign(claims, "ES256", kid=None, typ="logout+jwt")) == LogoutTokenRefused.__name__
    assert await ended(pool) == 0
    rows = await run_sql(pool, "select reason, fault, org_id from login_events where not success")
    assert set(rows) == {("logout", "algorithm", provider.connection.org_id)}
    assert await provider.report(provider.issuer.logout_token(**{left_out: None})) == "accepted"
    assert await ended(pool) == 1


async def test_a_connection_that_is_not_active_takes_no_sign_outs(provider: Provider, pool: Pool) -> None:
    for change in ("update connections set state = 'inactive'", "update organizations set status = 'suspended'"):
        await run_sql(pool, change)
        assert await provider.report(provider.issuer.logout_token()) == OrganizationConnectionNotFound.__name__
        await run_sql(pool, "update connections set state = 'active'")
    assert await provider.report(provider.issuer.logout_token(), new_id()) == OrganizationConnectionNotFound.__name__
    assert (await ended(pool), provider.issuer.counted["/keys"]) == (0, 0)


async def test_the_endpoint_answers_as_the_standard_says(api: Api, ports: Ports, pool: Pool) -> None:
    connection = await add_connection(ports.storage, await add_organization(pool, "acme"))
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    answers = [
        await api.call("POST", f"/auth/connections/{id_}/backchannel-logout", raw=b"logout_token=a.b.c", headers=headers)
        for id_ in (connection.id, new_id())
    ]
    assert [(answer.status, answer.json["error"], answer.headers["Cache-Control"]) for answer in answers] == [
        (400, "invalid_request", "no-store"),
        (404, "invalid_request", "no-store"),
    ]
