"""Provider requests at organizations' identity providers, to sign in, to sign in again, or to test a connection.

The browser goes to the identity provider with a state, and returns once with this state. A provider request ends with the person
that the identity provider asserts. It belongs to one browser and one connection (security O-11, O-12). `platform_requests` has the
provider requests at platform identity providers, which start and end in the same way.
"""

from collections.abc import Awaitable
from dataclasses import dataclass, field, replace
from typing import Self, TypeAlias
from urllib.parse import urlencode
from uuid import UUID

from core.authentication.flow.methods import record_failure
from core.authentication.flow.model import FLOW_TTL, Flow, FlowEnded, FlowTarget, ProviderHints, ProviderRequest, new_flow
from core.authentication.model.login import LoginFailure
from core.authentication.model.sign_in_log import ConnectionAttempt
from core.federation.connections import openid, saml, session_proofs
from core.federation.connections.logins import fault_of
from core.federation.connections.model import answers, asserted, connections, settings
from core.federation.connections.model.details import ConnectionDetails
from core.federation.connections.model.openid import OpenIdClient
from core.federation.connections.model.people import ConnectionNotActive
from core.federation.connections.model.saml import CookiesNeeded, ProviderRedirect, SamlAnswer
from core.federation.connections.model.saml_responses import decode_response
from core.federation.model import sign_in
from core.federation.saml.model.messages import new_message_id
from core.kernel import callers, errors, values
from core.kernel.causes import Caller
from core.kernel.connections import PLATFORM_IDS, ConnectionSlug
from core.kernel.proofs import Method
from ports import Ports


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionReturn:
    """The answer that a browser brings from an identity provider, and the browser's secrets."""

    connection_id: UUID
    browser: str | None = field(repr=False)  # the secret in the device cookie
    state: str | None = field(repr=False)
    answer: sign_in.ProviderAnswer | SamlAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionTestResult:
    """The result of a test sign-in. Nothing of it is stored, and no user is signed in."""

    connection: connections.OrganizationConnection
    way_back: str  # the path of the page that began it
    received: asserted.ReceivedClaims | None = field(default=None, repr=False)
    person: asserted.AssertedPerson | None = field(default=None, repr=False)
    problem: errors.Refusal | None = None

    @property
    def missing(self) -> list[str]:
        """The names of mapped claims that did not arrive."""
        if self.received is None:
            return []
        return [name for name in self.connection.mapping.document.values() if name is not None and not self.received.values.get(name)]

    @property
    def refused_email(self) -> str | None:
        """The value of the mapped claim if it cannot be an email address, or None."""
        if self.received is None or self.person is None or self.person.email is not None:
            return None
        return self.received.first(self.connection.mapping.email)


@dataclass(frozen=True, slots=True)
class PersonArrived:
    """The identity provider signed a person in, for this flow."""

    flow: Flow
    person: asserted.AssertedPerson


@dataclass(frozen=True, slots=True)
class ProviderRequestFailed:
    """A failed provider request. The user can go back to the flow, or to the page from which they linked an account or signed in again."""

    problem: errors.Refusal | errors.ProviderFailed
    flow: Flow


@dataclass(frozen=True, slots=True)
class SetupTestReturned:
    """The reader of a set-up link returned from the test of a proposed connection. The answer is not read yet."""

    provider_request: ProviderRequest


ProviderRequestResult: TypeAlias = PersonArrived | sign_in.SignedInAgain | ConnectionTestResult | SetupTestReturned | ProviderRequestFailed


@dataclass(frozen=True, slots=True)
class RequestedConnection:
    """The connection of a provider request, stored or proposed, with our side at its identity provider."""

    connection: connections.OrganizationConnection
    own: OpenIdClient | ConnectionDetails  # by protocol

    @classmethod
    def of(cls, credentials: connections.ConnectionCredentials) -> Self:
        """Return a stored connection."""
        connection = credentials.connection
        if isinstance(connection.settings, settings.OidcSettings):
            return cls(connection, openid.to_client(connection, connection.settings, credentials.client_secret, credentials.keys))
        return cls(connection, ConnectionDetails(connection, credentials.keys, credentials.certificates))


async def _load(ports: Ports, connection: connections.OrganizationConnection) -> RequestedConnection:
    """Return a connection with its credentials. Raises: OrganizationConnectionNotFound, SealBroken."""
    async with ports.storage.reading() as read:
        credentials = await read.connections.credentials(connection.id, ports.clock.now()) or errors.refuse(
            connections.OrganizationConnectionNotFound
        )
    return RequestedConnection.of(credentials)


# To the identity provider


async def begin(
    ports: Ports, caller: Caller, connection_id: UUID, device_cookie: str, base_url: str, flow: Flow, hints: ProviderHints | None = None
) -> ProviderRedirect:
    """Return the place at the identity provider at which the user signs in.

    Raises: OrganizationConnectionNotFound, ConnectionNotActive, FlowEnded; the errors of `openid.start` and `saml.start`.
    """
    now = ports.clock.now()
    async with ports.storage.reading() as read:
        credentials = _require_active(await read.connections.credentials(connection_id, now))
    connection = credentials.connection
    if flow.org_id not in (None, connection.org_id):  # its sign-ins do not count there
        raise connections.OrganizationConnectionNotFound
    flow = replace(flow, expires_at=now + FLOW_TTL)
    provider_request = ProviderRequest(
        flow=flow, connection_id=connection.id, begun_at=now, expires_at=now + sign_in.STATE_TTL, hints=hints
    )
    return await start(ports, caller, RequestedConnection.of(credentials), provider_request, device_cookie, base_url)


def _require_active(credentials: connections.ConnectionCredentials | None) -> connections.ConnectionCredentials:
    """Return the active connection of an active organization. Raises: OrganizationConnectionNotFound, ConnectionNotActive."""
    if credentials is None:
        raise connections.OrganizationConnectionNotFound
    return credentials if credentials.connection.is_active else errors.refuse(ConnectionNotActive)


async def begin_test(
    ports: Ports, caller: callers.Person, connection: connections.OrganizationConnection, way_back: str, device_cookie: str, base_url: str
) -> ProviderRedirect:
    """Return the place at the identity provider at which an admin tests a connection in any state. `way_back` is the path of its page.

    The page of the test provider is below it.
    """
    now = ports.clock.now()
    ends_at = now + sign_in.STATE_TTL
    flow = new_flow(now, FlowTarget.TEST, way_back, values.digest(device_cookie), expires_at=ends_at)
    provider_request = ProviderRequest(flow=flow, connection_id=connection.id, user_id=caller.user_id, begun_at=now, expires_at=ends_at)
    if connection.uses_test_provider:
        state = new_message_id()
        await store(ports, caller, provider_request, state)
        return ProviderRedirect(f"{way_back}/provider?{urlencode({'test': state})}")
    return await start(ports, caller, await _load(ports, connection), provider_request, device_cookie, base_url)


async def begin_again(
    ports: Ports, caller: callers.Visitor, connection: connections.OrganizationConnection, after: str, device_cookie: str, base_url: str
) -> ProviderRedirect:
    """Return the redirect to the identity provider, which must ask the session's user to sign in again. `after`: the path that follows."""
    now, session_id = ports.clock.now(), caller.session_id
    of_session = {"session_id": session_id, "first_session_id": session_id, "wants_fresh": True, "expires_at": now + sign_in.STATE_TTL}
    flow = new_flow(now, FlowTarget.REAUTHENTICATION, after, values.digest(device_cookie), **of_session)
    provider_request = ProviderRequest(
        flow=flow, connection_id=connection.id, user_id=caller.user_id, begun_at=now, expires_at=flow.expires_at
    )
    return await start(ports, caller, await _load(ports, connection), provider_request, device_cookie, base_url)


async def start(
    ports: Ports, caller: Caller, to: RequestedConnection, provider_request: ProviderRequest, device_cookie: str, base_url: str
) -> ProviderRedirect:
    """Store a provider request, and return the place at the identity provider.

    Raises: FlowEnded; the errors of `openid.start` and `saml.start`.
    """
    match to.connection.settings, to.own:
        case settings.OidcSettings() as oidc, OpenIdClient() as client:
            state = values.new_secret()
            request = openid.make_request(
                to.connection, oidc, provider_request, state=state, device_cookie=device_cookie, base_url=base_url
            )
            redirect = ProviderRedirect(await openid.start(ports, client, request))
        case settings.SamlSettings() as saml_settings, ConnectionDetails() as details:
            state = new_message_id()  # the response names the request, so it finds the provider request
            redirect = await saml.start(ports, details, saml_settings, provider_request, state, base_url)
        case _:
            raise FlowEnded  # our side belongs to the other protocol
    await store(ports, caller, provider_request, state)
    return redirect


async def store(ports: Ports, caller: Caller, provider_request: ProviderRequest, state: str) -> None:
    """Store a provider request with its state. Raises: FlowEnded."""
    async with ports.storage.transaction(by=caller) as tx:
        if not await tx.flows.start(provider_request, values.digest(state)):
            raise FlowEnded


# Back from the identity provider


async def read_response(ports: Ports, connection_id: UUID, browser: str | None, text: str) -> ConnectionReturn:
    """Return the response in a SAML identity provider's form. It is not verified yet, and decrypted only for a live provider request."""
    answer = await ports.saml_providers.parse(decode_response(text))
    if browser is None and answer.in_response_to is not None:
        raise CookiesNeeded
    return ConnectionReturn(connection_id=connection_id, browser=browser, state=answer.in_response_to, answer=answer)


async def finish(
    ports: Ports, caller: Caller, visitor: callers.Person | None, returned: ConnectionReturn, base_url: str
) -> ProviderRequestResult:
    """Return the person that the identity provider asserts, the result of a test, or the problem.

    A sign-in again is stored in the session of the visitor. The answer to a test of a proposed connection is read by `read_test`.

    Raises: Limited, ProviderStateUnknown, OrganizationConnectionNotFound; SignedInAsAnotherUser if another user began the test.
    """
    provider_request, found = await take(ports, caller, returned)
    if provider_request.flow.target is FlowTarget.TEST:
        # The values of the answer are for the admin alone.
        if visitor is None or visitor.user_id != provider_request.user_id:
            raise sign_in.SignedInAsAnotherUser
        tested = found or errors.refuse(connections.OrganizationConnectionNotFound)
        if tested.connection.uses_test_provider:  # `tests.answer` alone reads its answers
            raise sign_in.ProviderStateUnknown
        return await read_test(
            ports, caller, RequestedConnection.of(tested), provider_request, returned, base_url, way_back=provider_request.flow.request
        )
    if provider_request.flow.target is FlowTarget.SETUP_TEST:
        return SetupTestReturned(provider_request)
    connection = None
    names: tuple[str, ...] = ()
    try:
        credentials = _require_active(found)
        connection = credentials.connection
        received = await _complete(ports, caller, RequestedConnection.of(credentials), provider_request, returned, base_url)
        arrived = PersonArrived(provider_request.flow, asserted.map_claims(connection, received))
        names = arrived.person.claim_names
        is_again = provider_request.flow.target is FlowTarget.REAUTHENTICATION
        if is_again:
            await session_proofs.complete(ports, visitor, provider_request, arrived.person, ports.clock.now())
        ports.metrics.connection_answered(connection.protocol, is_accepted=True)
        return sign_in.SignedInAgain(provider_request.flow.request) if is_again else arrived
    except errors.Refusal as problem:
        attempt = None
        if connection is not None:
            names = problem.received if isinstance(problem, answers.AnswerRefused) else names
            off = problem.seconds_off if isinstance(problem, answers.AnswerRefused) else None
            attempt = ConnectionAttempt(connection.id, connection.org_id, fault_of(problem), names, off)
            ports.metrics.connection_answered(connection.protocol, is_accepted=False)
        application = provider_request.flow.application
        await record_failure(ports, caller, LoginFailure.PROVIDER, Method.CONNECTION, None, application, connection=attempt)
        return ProviderRequestFailed(problem, provider_request.flow)


async def take(
    ports: Ports, caller: Caller, returned: ConnectionReturn, provider: ConnectionSlug | None = None
) -> tuple[ProviderRequest, connections.ConnectionCredentials | None]:
    """Return the provider request that ends with this answer, with the credentials of an organization's connection.

    The credentials are decrypted only then. A provider request ends only once. An answer from a platform connection names its
    `provider`, and ends only a provider request at this provider.

    Raises: ProviderStateUnknown.
    """
    browser, state, now = returned.browser, returned.state, ports.clock.now()
    is_here = (returned.connection_id in PLATFORM_IDS) == (provider is not None)
    if is_here and browser is not None and state is not None and len(state) <= sign_in.MAX_STATE_LENGTH:
        async with ports.storage.transaction(by=caller) as tx:
            taken = tx.flows.take_provider_request(values.digest(state), values.digest(browser), returned.connection_id, now)
            found = tx.connections.credentials(returned.connection_id, now)
        if (provider_request := await taken) is not None:
            return provider_request, await found
    await record_failure(ports, caller, LoginFailure.STATE, provider or Method.CONNECTION, None)
    raise sign_in.ProviderStateUnknown


async def read_test(
    ports: Ports,
    caller: Caller,
    to: RequestedConnection,
    provider_request: ProviderRequest,
    returned: ConnectionReturn,
    base_url: str,
    *,
    way_back: str,
) -> ConnectionTestResult:
    """Return the result of a test sign-in. The provider request was taken."""
    return await to_result(to.connection, way_back, _complete(ports, caller, to, provider_request, returned, base_url))


async def to_result(
    connection: connections.OrganizationConnection, way_back: str, answer: Awaitable[asserted.ReceivedClaims]
) -> ConnectionTestResult:
    """Return the result of a test sign-in with this answer, or with the refusal of it."""
    result = ConnectionTestResult(connection=connection, way_back=way_back)
    try:
        received = await answer
    except errors.Refusal as problem:
        return replace(result, problem=problem)
    return replace(result, received=received, person=asserted.map_claims(connection, received))


async def _complete(
    ports: Ports, caller: Caller, to: RequestedConnection, provider_request: ProviderRequest, returned: ConnectionReturn, base_url: str
) -> asserted.ReceivedClaims:
    browser, state = (
        returned.browser or errors.refuse(sign_in.ProviderStateUnknown),
        returned.state or errors.refuse(sign_in.ProviderStateUnknown),
    )
    match to.connection.settings, to.own, returned.answer:
        case settings.OidcSettings() as oidc, OpenIdClient() as client, sign_in.ProviderAnswer() as answer:
            request = openid.make_request(to.connection, oidc, provider_request, state=state, device_cookie=browser, base_url=base_url)
            return await openid.complete(ports, to.connection, client, request, answer)
        case settings.SamlSettings() as saml_settings, ConnectionDetails() as details, SamlAnswer() as answer:
            # The test of a proposed connection stores nothing, and its provider request was taken once.
            verify = saml.verify if provider_request.flow.target is FlowTarget.SETUP_TEST else saml.verify_or_refetch
            identity = await verify(ports, details, saml_settings, answer, base_url, expected=state)
            with answers.names_received(attribute.name for attribute in identity.attributes):
                received = saml.to_received(identity, saml_settings)
                if provider_request.flow.target in (FlowTarget.TEST, FlowTarget.REAUTHENTICATION):  # `people` does it for all others
                    await saml.use_up(ports, caller, to.connection, received.assertion)
                if provider_request.flow.wants_fresh and provider_request.flow.target is not FlowTarget.REAUTHENTICATION:
                    saml.check_fresh(identity, provider_request.begun_at, saml_settings.clock_skew)
            return received
    raise sign_in.ProviderStateUnknown  # the answer came to the endpoint of the other protocol
