"""The test provider: an admin answers a test sign-in in place of an identity provider.

One request signs the answer with a new key, reads it with the verifiers of real answers, and shows it. So the key and the signed answer
exist nowhere else, and no other sign-in can get them. The test sign-in ends with it, and nothing is stored (docs/adr/0049).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from math import isfinite
from typing import Any, Final

from core.authentication.flow.model import FlowTarget, ProviderRequest
from core.federation.connections import openid, provider_requests, saml
from core.federation.connections.model import connections
from core.federation.connections.model.asserted import ReceivedClaims
from core.federation.connections.model.details import ConnectionDetails
from core.federation.connections.model.openid import OpenIdClient
from core.federation.connections.model.settings import OidcSettings, SamlSettings
from core.federation.connections.provider_requests import ConnectionTestResult
from core.federation.saml.model import configuration, messages
from core.kernel import callers
from core.kernel.errors import refuse
from core.kernel.page_paths import connection_endpoint_path
from core.kernel.values import digest
from ports import Ports

TOKEN_TTL: Final = timedelta(minutes=1)
KEY_YEARS: Final = 1  # in the certificate of a key, which is forgotten at once


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenConnectionTest:
    """A test sign-in in the browser of an admin. `secret` is in the address of its page."""

    slug: str
    secret: str = field(repr=False)
    browser: str | None = field(repr=False)  # the secret in the device cookie


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedPerson:
    """The person that an admin asserts. All texts are printable."""

    subject: str
    claims: Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _SignedAnswer:
    """The values of an answer, and the key that signs it. Without a person, the identity provider refuses to sign in."""

    connection: connections.OrganizationConnection
    test: OpenConnectionTest
    person: PlayedPerson | None
    key: configuration.SamlCertificate
    base_url: str


async def find(ports: Ports, caller: callers.Member, test: OpenConnectionTest) -> connections.OrganizationConnection:
    """Return the connection that the caller's open test sign-in goes through."""
    async with ports.storage.reading() as read:
        connection = await read.connections.by_slug(caller.acts_in.id, test.slug) or refuse(connections.OrganizationConnectionNotFound)
        provider_request = await read.flows.provider_request(*_digests(test), connection.id, ports.clock.now())
    if not connection.uses_test_provider:
        raise connections.ConnectionTestOver
    _require_own(caller, provider_request)
    return connection


async def answer(
    ports: Ports,
    caller: callers.Member,
    connection: connections.OrganizationConnection,
    test: OpenConnectionTest,
    person: PlayedPerson | None,
    base_url: str,
) -> ConnectionTestResult:
    """End a test sign-in of the caller at the connection that `find` returned, and return its result.

    Without a person, the identity provider refuses to sign in.
    """
    async with ports.storage.transaction(by=caller) as tx:
        taken = tx.flows.take_provider_request(*_digests(test), connection.id, ports.clock.now())
    provider_request = _require_own(caller, await taken)
    key = await ports.certificates.create(caller.acts_in.slug, connection.slug, ports.clock.now(), KEY_YEARS)
    signed = _SignedAnswer(connection=connection, test=test, person=person, key=key, base_url=base_url)
    match connection.settings:
        case OidcSettings() as settings:
            received = _assert_openid(ports, settings, provider_request, signed)
        case SamlSettings() as settings:
            received = _assert_saml(ports, caller, settings, signed)
    return await provider_requests.to_result(connection, provider_request.flow.request, received)


def _digests(test: OpenConnectionTest) -> tuple[bytes, bytes]:
    return digest(test.secret), digest(test.browser or refuse(connections.ConnectionTestOver))


def _require_own(caller: callers.Member, provider_request: ProviderRequest | None) -> ProviderRequest:
    if provider_request is None or provider_request.flow.target is not FlowTarget.TEST or provider_request.user_id != caller.user_id:
        raise connections.ConnectionTestOver
    return provider_request


async def _assert_openid(ports: Ports, settings: OidcSettings, provider_request: ProviderRequest, signed: _SignedAnswer) -> ReceivedClaims:
    """Return the claims of an ID token that is signed with this key."""
    connection, person, base_url = signed.connection, signed.person, signed.base_url
    if person is None:
        await openid.refuse_access(ports, connection)
    client = OpenIdClient(
        org_id=connection.org_id,
        connection_id=connection.id,
        issuer=base_url + connection_endpoint_path(connection.id),
        client_id=str(connection.id),
        authentication=settings.client_authentication,
    )
    cookie = signed.test.browser or refuse(connections.ConnectionTestOver)
    request = openid.make_request(connection, settings, provider_request, state=signed.test.secret, device_cookie=cookie, base_url=base_url)
    now = ports.clock.now()
    of_token = {
        "iss": client.issuer,
        "aud": client.client_id,
        "sub": person.subject,
        "nonce": request.nonce,
        "iat": int(now.timestamp()),
        "exp": int((now + TOKEN_TTL).timestamp()),
    }
    token = ports.certificates.sign_token(signed.key, {**{name: _to_json(values) for name, values in person.claims.items()}, **of_token})
    keys = [await ports.certificates.public_jwk(signed.key.certificate)]
    return openid.to_received(ports.openid_providers.read_token(client, request, token, keys), connection.mapping)


def _to_json(values: Sequence[str]) -> Any:
    read = [_read_json(each) for each in values]
    return read[0] if len(read) == 1 else read


def _read_json(text: str) -> Any:
    """Return the number, the boolean, the quoted text or the list of them that a text has as JSON, or otherwise the text itself."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if all(_is_simple(each) for each in (value if isinstance(value, list) else [value])) else text


def _is_simple(value: object) -> bool:
    return isinstance(value, bool | int | str) or (isinstance(value, float) and isfinite(value))


async def _assert_saml(ports: Ports, caller: callers.Member, settings: SamlSettings, signed: _SignedAnswer) -> ReceivedClaims:
    """Return the attributes of a response that is signed with this key."""
    org, now = caller.acts_in, ports.clock.now()
    connection, person, base_url = signed.connection, signed.person, signed.base_url
    # Our own identity provider writes the response, to a service that does not exist.
    service = callers.ServiceContext(
        id=connection.id,
        slug=connection.slug,
        client_id=connection.id,
        is_public=False,
        org_id=org.id,
        org_slug=org.slug,
        status=org.status,
    )
    trusted = replace(settings, entity_id=configuration.endpoint_url(base_url, service))
    facts = await ports.certificates.facts(signed.key.certificate)
    certificate = connections.ProviderCertificate(**asdict(facts), source=connections.CertificateSource.ADMIN, is_active=True, added_at=now)
    details = ConnectionDetails(connection, {}, [certificate])
    own = saml.own_service_provider(details, trusted, base_url)
    provider = configuration.SamlIdentityProvider(
        service=service,
        entity_id=own.entity_id,
        acs_url=own.acs_url,
        slo_url=None,
        slo_response_url=None,
        slo_certificate=None,
        name_id_format=settings.name_id_format,
        attribute_mapping={},
        attribute_formats={},
        sign_assertions=True,
        sign_response=True,
        certificate=signed.key,
    )
    response = messages.SamlResponse(
        id=messages.new_message_id(),
        in_response_to=signed.test.secret,
        issued_at=now,
        assertion=None if person is None else _to_assertion(person, settings, now),
        status=messages.SamlStatus.UNKNOWN_PRINCIPAL if person is None else None,
    )
    answer = await ports.saml_providers.parse(await ports.saml.response(provider, response))
    return saml.to_received(await saml.verify(ports, details, trusted, answer, base_url, expected=signed.test.secret), trusted)


def _to_assertion(person: PlayedPerson, settings: SamlSettings, now: datetime) -> messages.SamlAssertion:
    return messages.SamlAssertion(
        id=messages.new_message_id(),
        name_id=messages.NameId(person.subject, settings.name_id_format),
        session_index=messages.new_message_id(),
        authenticated_at=now,
        context_class=messages.PASSWORD_CONTEXT,
        attributes=tuple(configuration.SamlAttribute(name, tuple(values)) for name, values in person.claims.items()),
    )
