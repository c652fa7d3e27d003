"""Trips to the OpenID provider of an organization, from the redirect to the asserted person."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import UUID, uuid4

import pytest

from adapters.http.openid_providers import FAILURE_PAUSE
from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.authentication.flow.model import FlowEnded, FlowTarget, new_flow
from core.federation.connections import trips
from core.federation.connections.model.connections import ConnectionState, OrganizationConnection, OrganizationConnectionNotFound
from core.federation.connections.model.mapping import ClaimMapping
from core.federation.connections.model.openid import OpenIdAnswerRefused, OpenIdErrorReturned
from core.federation.connections.model.settings import OidcSettings, ProviderAuthentication
from core.federation.connections.openid import to_received
from core.federation.connections.trips import (
    ConnectionNotActive,
    ConnectionReturn,
    ConnectionTestResult,
    ConnectionTripFailed,
    ConnectionTripResult,
    PersonArrived,
)
from core.federation.model.sign_in import STATE_TTL, ProviderAnswer, ProviderConsentDenied, ProviderStateUnknown, SignedInAsAnotherUser
from core.kernel.callers import Person
from core.kernel.causes import SYSTEM
from core.kernel.values import Email, digest, new_secret
from ports import Ports
from tests.fakes.http_server import Answer
from tests.fakes.openid_issuers import CLIENT_ID, DISCOVERY, SECRET, FakeIssuer, OpenIdIssuers
from tests.fakes.outside import FakeClock
from tests.support.builders import add_organization, run_sql, with_loopback_sender
from tests.support.connections import add_connection

BASE_URL = "https://id.example.com"


@dataclass(slots=True)
class Walk:
    """A browser on its trip to one connection."""

    ports: Ports
    issuer: FakeIssuer
    connection: OrganizationConnection
    browser: str = field(default_factory=new_secret)
    flow_values: dict[str, Any] = field(default_factory=dict)

    async def begin(self) -> ConnectionReturn:
        flow = new_flow(self.ports.clock.now(), FlowTarget.PAGE, "/app", digest(self.browser), **self.flow_values)
        return self.arrive(await trips.begin(self.ports, SYSTEM, flow, self.connection.id, self.browser, BASE_URL))

    def arrive(self, url: str) -> ConnectionReturn:
        """Sign in at the provider. Return what the browser brings back."""
        [redirect_uri] = parse_qs(urlsplit(url).query)["redirect_uri"]
        assert redirect_uri == f"{BASE_URL}/auth/connections/{self.connection.id}/callback"
        answer = self.issuer.visit(url)
        return ConnectionReturn(
            connection_id=self.connection.id,
            browser=self.browser,
            state=answer["state"],
            answer=ProviderAnswer(code=answer.get("code"), error=answer.get("error"), issuer=answer.get("iss")),
        )

    async def finish(self, returned: ConnectionReturn, visitor: Person | None = None, **changes: Any) -> ConnectionTripResult:
        return await trips.finish(self.ports, SYSTEM, visitor, replace(returned, **changes), BASE_URL)

    async def test(self, user_id: UUID) -> ConnectionReturn:
        """Begin a test sign-in."""
        return self.arrive(await trips.begin_test(self.ports, SYSTEM, user_id, self.connection, "/app", self.browser, BASE_URL))

    async def failure(self, **changes: Any) -> Exception:
        result = await self.finish(await self.begin(), **changes)
        assert isinstance(result, ConnectionTripFailed)
        return result.problem


def signed_in(user_id: UUID) -> Person:
    return Person(user_id=user_id, email=Email("ada@example.com"), session_id=uuid4())


@pytest.fixture
def connection_ports(ports: Ports) -> Ports:
    return with_loopback_sender(ports)


async def add_walk(ports: Ports, server: OpenIdIssuers, org_id: UUID, slug: str, **changes: Any) -> Walk:
    issuer = server.add(slug)
    settings = OidcSettings(issuer=issuer.url, client_id=CLIENT_ID, client_authentication=ProviderAuthentication.BASIC)
    connection = await add_connection(ports.storage, org_id, slug, **{"settings": settings, **changes})
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.connections.save_client_secret(org_id, connection.id, SECRET, ports.clock.now())
    return Walk(ports, issuer, connection)


@pytest.fixture
async def walk(connection_ports: Ports, server: OpenIdIssuers, pool: Pool) -> Walk:
    mapping = ClaimMapping(groups="groups")
    return await add_walk(connection_ports, server, await add_organization(pool, "acme"), "okta", mapping=mapping)


async def test_a_trip_ends_in_the_asserted_person(walk: Walk) -> None:
    walk.issuer.claims = {"email_verified": True, "amr": ["pwd", "mfa"], "session_expiry": 1_800_000_000, "sid": "s1"}
    walk.flow_values = {"wants_fresh": True}
    result = await walk.finish(await walk.begin())
    assert isinstance(result, PersonArrived)
    person = result.person
    assert (person.connection_id, person.org_id, person.subject) == (walk.connection.id, walk.connection.org_id, "4711")
    assert (person.email, person.is_email_verified, person.profile.name) == (Email("ada@example.com"), True, "Ada Lovelace")
    assert (person.groups, person.has_second_factor) == (frozenset({"staff"}), False), "the connection does not trust a second factor"
    assert (person.authenticated_at, person.ends_at) == (
        walk.ports.clock.now().replace(microsecond=0),
        datetime.fromtimestamp(1_800_000_000, UTC),
    )
    assert person.claim_names == ("email", "email_verified", "groups", "name")
    assert (result.flow.request, result.answer.session) == ("/app", "s1")


async def test_a_trip_ends_only_in_its_browser_at_its_connection_once(walk: Walk, server: OpenIdIssuers, clock: FakeClock) -> None:
    """Two connections of two organizations on one issuer cannot be mixed up."""
    returned = await walk.begin()
    changes: list[dict[str, Any]] = [
        {"browser": new_secret()},
        {"browser": None},
        {"state": new_secret()},
        {"state": "x" * 101},
        {"state": None},
        {"connection_id": uuid4()},
    ]
    for change in changes:
        with pytest.raises(ProviderStateUnknown):
            await walk.finish(returned, **change)
    assert isinstance(await walk.finish(returned), PersonArrived)
    with pytest.raises(ProviderStateUnknown):
        await walk.finish(returned)
    late = await walk.begin()
    clock.advance(STATE_TTL)
    with pytest.raises(ProviderStateUnknown):
        await walk.finish(late)
    assert walk.issuer.counted["/token"] == 1


async def test_a_failed_trip_leads_back_to_its_flow(walk: Walk) -> None:
    returned = await walk.begin()
    cases: dict[str, tuple[type[Exception], ProviderAnswer]] = {
        "refused by the user": (ProviderConsentDenied, ProviderAnswer(code=None, error="access_denied", issuer=walk.issuer.url)),
        "failed": (OpenIdErrorReturned, ProviderAnswer(code=None, error="server_error", issuer=walk.issuer.url)),
        "in words": (OpenIdErrorReturned, ProviderAnswer(code=None, error="<b>x</b>", issuer=walk.issuer.url)),
        "of another issuer": (OpenIdAnswerRefused, replace(returned.answer, issuer="https://elsewhere.example")),
        "without a code": (OpenIdAnswerRefused, ProviderAnswer(code=None, error=None, issuer=walk.issuer.url)),
        "with a long code": (OpenIdAnswerRefused, replace(returned.answer, code="x" * 4097)),
        "with a wrong code": (OpenIdAnswerRefused, replace(returned.answer, code="x")),
    }
    findings = []
    for name, (refusal, answer) in cases.items():
        problem = await walk.failure(answer=answer)
        findings += [(name, problem)] if type(problem) is not refusal or "<b>" in str(problem) else []
    assert findings == []


async def test_only_an_active_connection_of_an_active_organization_signs_users_in(walk: Walk, pool: Pool) -> None:
    """It may be deactivated while the browser is at the provider."""
    for state in (ConnectionState.DRAFT, ConnectionState.INACTIVE):
        await run_sql(pool, "update connections set state = 'active' where org_id is not null")
        returned = await walk.begin()
        await run_sql(pool, "update connections set state = %s where org_id is not null", state)
        result = await walk.finish(returned)
        assert isinstance(result, ConnectionTripFailed)
        assert isinstance(result.problem, ConnectionNotActive)
        with pytest.raises(ConnectionNotActive):
            await walk.begin()
    await run_sql(pool, "update connections set state = 'active' where org_id is not null")
    returned = await walk.begin()
    await run_sql(pool, "update organizations set status = 'suspended'")
    result = await walk.finish(returned)
    assert isinstance(result, ConnectionTripFailed)
    assert isinstance(result.problem, OrganizationConnectionNotFound)
    with pytest.raises(OrganizationConnectionNotFound):
        await walk.begin()


async def test_a_closed_flow_begins_no_trip_and_a_failing_provider_leaves_nothing(walk: Walk, pool: Pool) -> None:
    walk.issuer.answers[DISCOVERY] = Answer(500)
    with pytest.raises(OpenIdAnswerRefused):
        await walk.begin()
    assert await run_sql(pool, "select 1 from sign_in_flows") == []
    flow = new_flow(walk.ports.clock.now(), FlowTarget.PAGE, "/app", digest(walk.browser))
    stored = replace(flow, is_stored=True)  # and gone
    walk.issuer.answers.clear()
    walk.ports.clock.advance(FAILURE_PAUSE)  # type: ignore[attr-defined]
    with pytest.raises(FlowEnded):
        await trips.begin(walk.ports, SYSTEM, stored, walk.connection.id, walk.browser, BASE_URL)


# Test sign-ins


async def test_a_test_shows_its_beginner_the_answer_in_any_state(walk: Walk, user: Account, pool: Pool) -> None:
    """It signs no user in, and nothing of the answer is stored."""
    await run_sql(pool, "update connections set state = 'draft' where org_id is not null")
    visitor = signed_in(user.id)
    walk.issuer.userinfo = {"groups": None, "address": {"locality": "London"}, "level": 7, "is_admin": False}
    result = await walk.finish(await walk.test(user.id), visitor)
    assert isinstance(result, ConnectionTestResult)
    assert result.received is not None
    assert dict(result.received.values) == {"email": ["ada@example.com"], "name": ["Ada Lovelace"], "level": ["7"], "is_admin": ["false"]}
    assert result.missing == ["given_name", "family_name", "groups"]
    assert result.person is not None
    assert (result.person.subject, result.person.groups) == ("4711", None)
    walk.issuer.claims = {"aud": "another"}
    refused = await walk.finish(await walk.test(user.id), visitor)
    assert isinstance(refused, ConnectionTestResult)
    assert isinstance(refused.problem, OpenIdAnswerRefused)
    assert await run_sql(pool, "select count(*) from login_events") == [(0,)]
    assert await run_sql(pool, "select 1 from sign_in_flows t where strpos(t::text, 'ada@example.com') > 0") == []


async def test_a_test_is_shown_to_no_other_user(walk: Walk, user: Account) -> None:
    """A stranger could lead the browser of an admin to a page with the values of another user."""
    for visitor in (None, signed_in(uuid4())):
        with pytest.raises(SignedInAsAnotherUser):
            await walk.finish(await walk.test(user.id), visitor)


@pytest.mark.parametrize(
    ("claims", "is_verified"),
    [({"email_verified": True}, True), ({"email_verified": "true"}, False), ({"email_verified": 1}, False), ({}, False)],
)
def test_an_address_is_verified_only_by_the_word_true(claims: dict[str, Any], is_verified: bool) -> None:
    """The claim is about `email`. It says nothing about an address in another claim, which users may change."""
    assert to_received({"sub": "1", **claims}, ClaimMapping()).is_email_verified is is_verified
    assert not to_received({"sub": "1", **claims}, ClaimMapping(email="upn")).is_email_verified
