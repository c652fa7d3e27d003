"""Provider requests to an organization's OpenID provider, from the redirect to the asserted person."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import UUID, uuid4

import pytest

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.authentication.flow.model import FlowEnded, FlowTarget, new_flow
from core.federation.connections import provider_requests
from core.federation.connections.model.asserted import map_claims
from core.federation.connections.model.connections import ConnectionState, OrganizationConnection, OrganizationConnectionNotFound
from core.federation.connections.model.openid import OpenIdAccessDenied, OpenIdAnswerRefused, OpenIdErrorReturned
from core.federation.connections.model.people import ConnectionNotActive
from core.federation.connections.model.settings import ClaimMapping, OidcSettings, ProviderAuthentication
from core.federation.connections.openid import to_received
from core.federation.connections.provider_requests import (
    ConnectionReturn,
    ConnectionTestResult,
    PersonArrived,
    ProviderRequestFailed,
)
from core.federation.model.sign_in import STATE_TTL, ProviderAnswer, ProviderStateUnknown, SignedInAsAnotherUser
from core.kernel.callers import Person
from core.kernel.causes import SYSTEM
from core.kernel.values import Email, digest, new_id, new_secret
from ports import Ports
from tests.fakes.http_server import Answer
from tests.fakes.openid_issuers import CLIENT_ID, DISCOVERY, SECRET, FakeIssuer, OpenIdIssuers
from tests.fakes.outside import FakeClock
from tests.support.builders import add_organization, run_sql, with_loopback_sender
from tests.support.connections import add_connection, make_connection

BASE_URL = "https://id.example.com"


@dataclass(slots=True)
class Walk:
    """The browser of an admin who tests a connection."""

    ports: Ports
    issuer: FakeIssuer
    connection: OrganizationConnection
    admin: Person
    browser: str = field(default_factory=new_secret)

    async def begin(self) -> ConnectionReturn:
        return self.arrive(
            (await provider_requests.begin_test(self.ports, self.admin, self.connection, "/app", self.browser, BASE_URL)).url
        )

    def arrive(self, url: str) -> ConnectionReturn:
        """Sign in at the provider. Return what the browser brings back."""
        [redirect_uri] = parse_qs(urlsplit(url).query)["redirect_uri"]
        assert redirect_uri == f"{BASE_URL}/auth/connections/{self.connection.id}/callback"
        answer = self.issuer.authorize(url)
        return ConnectionReturn(
            connection_id=self.connection.id,
            browser=self.browser,
            state=answer["state"],
            answer=ProviderAnswer(code=answer.get("code"), error=answer.get("error"), issuer=answer.get("iss")),
        )

    async def finish(self, returned: ConnectionReturn, **changes: Any) -> ConnectionTestResult:
        result = await provider_requests.finish(self.ports, SYSTEM, self.admin, replace(returned, **changes), BASE_URL)
        assert isinstance(result, ConnectionTestResult)
        return result

    async def begin_sign_in(self, **values: Any) -> ConnectionReturn:
        flow = new_flow(self.ports.clock.now(), FlowTarget.PAGE, "/app", digest(self.browser), **values)
        return self.arrive((await provider_requests.begin(self.ports, SYSTEM, self.connection.id, self.browser, BASE_URL, flow)).url)

    async def finish_sign_in(self, returned: ConnectionReturn) -> PersonArrived | ProviderRequestFailed:
        result = await provider_requests.finish(self.ports, SYSTEM, None, returned, BASE_URL)
        assert isinstance(result, (PersonArrived, ProviderRequestFailed))
        return result


def signed_in(user_id: UUID) -> Person:
    return Person(user_id=user_id, email=Email("ada@example.com"), session_id=uuid4())


@pytest.fixture
async def walk(connection_ports: Ports, server: OpenIdIssuers, pool: Pool, user: Account) -> Walk:
    """A walk to a draft connection, which no user can sign in at yet."""
    issuer, org_id = server.add("okta"), await add_organization(pool, "acme")
    settings = OidcSettings(issuer=issuer.url, client_id=CLIENT_ID, client_authentication=ProviderAuthentication.BASIC)
    changes = {"settings": settings, "mapping": ClaimMapping(groups="groups"), "state": ConnectionState.DRAFT, "first_activated_at": None}
    connection = await add_connection(connection_ports.storage, org_id, "okta", **changes)
    async with connection_ports.storage.transaction(by=SYSTEM) as tx:
        await tx.connections.save_client_secret(org_id, connection.id, SECRET, connection_ports.clock.now())
    return Walk(connection_ports, issuer, connection, signed_in(user.id))


async def test_a_test_ends_in_the_asserted_person(walk: Walk) -> None:
    walk.issuer.claims = {"email_verified": True, "amr": ["pwd", "mfa"], "auth_time": 1_700_000_000, "session_expiry": 1_800_000_000}
    result = await walk.finish(await walk.begin())
    person = result.person
    assert person is not None
    assert (person.connection_id, person.org_id, person.subject) == (walk.connection.id, walk.connection.org_id, "4711")
    assert (person.email, person.is_email_verified, person.profile.name) == (Email("ada@example.com"), True, "Ada Lovelace")
    assert (person.groups, person.has_second_factor) == (frozenset({"staff"}), False), "the connection does not trust a second factor"
    times = (datetime.fromtimestamp(1_700_000_000, UTC), datetime.fromtimestamp(1_800_000_000, UTC))
    assert (person.authenticated_at, person.ends_at) == times
    assert person.claim_names == ("email", "email_verified", "groups", "name")
    assert (result.way_back, result.missing, result.refused_email) == ("/app", ["given_name", "family_name"], None)


async def test_a_test_names_an_address_that_is_none_and_claims_that_cannot_be_mapped(walk: Walk) -> None:
    walk.issuer.email, walk.issuer.claims = "x@y", {"zz": {"a": [1, 2]}}
    result = await walk.finish(await walk.begin())
    assert (result.person is not None and result.person.claim_names, result.refused_email) == (("email", "groups", "name", "zz"), "x@y")


async def test_a_provider_request_ends_only_in_its_browser_at_its_connection_once(walk: Walk, clock: FakeClock) -> None:
    """So two organizations' connections with the same issuer cannot be mixed up."""
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
    assert (await walk.finish(returned)).person is not None
    with pytest.raises(ProviderStateUnknown):
        await walk.finish(returned)
    late = await walk.begin()
    clock.advance(STATE_TTL)
    with pytest.raises(ProviderStateUnknown):
        await walk.finish(late)
    assert walk.issuer.counted["/token"] == 1


async def test_a_failed_test_shows_its_problem(walk: Walk) -> None:
    honest = (await walk.begin()).answer
    assert isinstance(honest, ProviderAnswer)
    cases: dict[str, tuple[type[Exception], ProviderAnswer]] = {
        "refused by the user": (OpenIdAccessDenied, ProviderAnswer(code=None, error="access_denied", issuer=walk.issuer.url)),
        "failed": (OpenIdErrorReturned, ProviderAnswer(code=None, error="server_error", issuer=walk.issuer.url)),
        "in words": (OpenIdErrorReturned, ProviderAnswer(code=None, error="<b>x</b>", issuer=walk.issuer.url)),
        "of another issuer": (OpenIdAnswerRefused, replace(honest, issuer="https://elsewhere.example")),
        "without a code": (OpenIdAnswerRefused, ProviderAnswer(code=None, error=None, issuer=walk.issuer.url)),
        "with a long code": (OpenIdAnswerRefused, replace(honest, code="x" * 4097)),
        "with a wrong code": (OpenIdAnswerRefused, replace(honest, code="x")),
    }
    findings = []
    for name, (refusal, answer) in cases.items():
        problem = (await walk.finish(await walk.begin(), answer=answer)).problem
        findings += [(name, problem)] if type(problem) is not refusal or "<b>" in str(problem) else []
    assert findings == []


async def test_a_test_leaves_nothing(walk: Walk, pool: Pool) -> None:
    """Nothing from the answer is stored. A provider that fails before the redirect leaves no flow, either."""
    walk.issuer.answers[DISCOVERY] = Answer(500)
    with pytest.raises(OpenIdAnswerRefused):
        await walk.begin()
    assert await run_sql(pool, "select 1 from sign_in_flows") == []
    walk.issuer.answers.clear()
    walk.ports = replace(walk.ports, openid_providers=with_loopback_sender(walk.ports).openid_providers)
    walk.issuer.userinfo = {"groups": None, "address": {"locality": "London"}, "level": 7, "is_admin": False}
    result = await walk.finish(await walk.begin())
    assert result.received is not None
    assert dict(result.received.values) == {"email": ["ada@example.com"], "name": ["Ada Lovelace"], "level": ["7"], "is_admin": ["false"]}
    assert result.person is not None
    assert result.person.groups is None
    assert await run_sql(pool, "select count(*) from login_events") == [(0,)]
    assert await run_sql(pool, "select 1 from sign_in_flows t where strpos(t::text, 'ada@example.com') > 0") == []


async def test_a_connection_of_a_suspended_organization_is_not_found(walk: Walk, pool: Pool) -> None:
    """The organization may be suspended while the browser is at the provider."""
    returned = await walk.begin()
    await run_sql(pool, "update organizations set status = 'suspended'")
    with pytest.raises(OrganizationConnectionNotFound):
        await walk.finish(returned)
    assert walk.issuer.counted["/token"] == 0


async def test_a_test_is_shown_to_no_other_user(walk: Walk) -> None:
    """Another user could have signed in in the same browser since."""
    for visitor in (None, signed_in(uuid4())):
        returned = await walk.begin()
        with pytest.raises(SignedInAsAnotherUser):
            await provider_requests.finish(walk.ports, SYSTEM, visitor, returned, BASE_URL)
    assert walk.issuer.counted["/token"] == 0


@pytest.mark.parametrize(
    ("claims", "is_verified"),
    [({"email_verified": value}, verified) for value, verified in ((True, True), (False, False), ("true", None), ("no", False), (1, False))]
    + [({}, None)],
)
def test_an_address_is_verified_only_by_the_word_true(claims: dict[str, Any], is_verified: bool | None) -> None:
    """The claim is about `email`. This claim says nothing about an address in another claim, which users may change."""
    assert to_received({"sub": "1", **claims}, ClaimMapping()).is_email_verified is is_verified
    assert to_received({"sub": "1", **claims}, ClaimMapping(email="upn")).is_email_verified is None


@pytest.mark.parametrize(
    ("claims", "left_out"),
    [
        ({"_claim_names": {"groups": "src1"}, "_claim_sources": {"src1": {"endpoint": "https://graph.example"}}}, True),
        ({"hasgroups": True}, True),
        ({"http://schemas.microsoft.com/claims/groups.link": "https://graph.example"}, True),
        ({"_claim_names": {"address": "src1"}}, False),
        ({"hasgroups": True, "groups": []}, False),
        ({}, False),
    ],
)
def test_groups_that_a_provider_left_out_are_found(claims: dict[str, Any], left_out: bool) -> None:
    mapping = ClaimMapping(groups="groups")
    assert map_claims(make_connection(new_id(), mapping=mapping), to_received({"sub": "1", **claims}, mapping)).groups_left_out is left_out


# Sign-ins

STATE = "update connections set state = %s where org_id is not null"


async def test_a_sign_in_ends_in_the_asserted_person(walk: Walk, pool: Pool) -> None:
    await run_sql(pool, STATE, "active")
    walk.issuer.claims = {"sid": "s1"}
    result = await walk.finish_sign_in(await walk.begin_sign_in(wants_fresh=True))
    assert isinstance(result, PersonArrived)
    assert result.person.session is not None
    assert (result.person.subject, result.flow.request, result.person.session.id) == ("4711", "/app", "s1")
    assert result.person.authenticated_at == walk.ports.clock.now().replace(microsecond=0)
    walk.issuer.claims = {"auth_time": 1_700_000_000}
    result = await walk.finish_sign_in(await walk.begin_sign_in(wants_fresh=True))
    assert isinstance(result, ProviderRequestFailed)


async def test_only_an_active_connection_of_an_active_organization_signs_users_in(walk: Walk, pool: Pool) -> None:
    """The connection may be deactivated while the browser is at the provider."""
    for state in ("draft", "inactive"):
        await run_sql(pool, STATE, "active")
        returned = await walk.begin_sign_in()
        await run_sql(pool, STATE, state)
        result = await walk.finish_sign_in(returned)
        assert isinstance(result, ProviderRequestFailed)
        assert isinstance(result.problem, ConnectionNotActive)
        with pytest.raises(ConnectionNotActive):
            await walk.begin_sign_in()
    await run_sql(pool, STATE, "active")
    returned = await walk.begin_sign_in()
    await run_sql(pool, "update organizations set status = 'suspended'")
    result = await walk.finish_sign_in(returned)
    assert isinstance(result, ProviderRequestFailed)
    assert isinstance(result.problem, OrganizationConnectionNotFound)
    await run_sql(pool, "update organizations set status = 'active'")
    gone = replace(new_flow(walk.ports.clock.now(), FlowTarget.PAGE, "/app", digest(walk.browser)), is_stored=True)
    with pytest.raises(FlowEnded):
        await provider_requests.begin(walk.ports, SYSTEM, walk.connection.id, walk.browser, BASE_URL, gone)
