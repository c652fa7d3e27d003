"""The check of a connection before users sign in, and test sign-ins by admins.

With OpenID Connect, a check asks for the metadata and the keys of the identity provider, and whether it accepts our credentials. With SAML,
it looks at the certificates, and compares the settings with the metadata, if they have an address.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Final
from uuid import UUID

from core.federation.connections import connections, metadata, openid, provider_requests, routing
from core.federation.connections.model import health, saml_responses
from core.federation.connections.model import openid as openid_model
from core.federation.connections.model.asserted import SubjectMissing
from core.federation.connections.model.connections import ConnectionProblem
from core.federation.connections.model.details import ConnectionDetails
from core.federation.connections.model.saml import ProviderRedirect
from core.federation.connections.model.settings import OidcSettings, SamlSettings
from core.federation.saml.metadata import charge_fetch_of
from core.federation.saml.model import configuration
from core.federation.saml.model.metadata import SamlProblemCode
from core.kernel import callers, errors
from core.kernel.outbound import SendFailure
from core.kernel.rate_limits import METADATA_FETCH
from ports import Ports

_METADATA_UNUSABLE: Final = "metadata_unusable"
NOT_CHECKED: Final = ConnectionProblem(
    "not_checked",
    False,
    f"The check was not made: your organization had {METADATA_FETCH.burst} checks within a minute. Wait a minute, then check again.",
)
# A check with one of these problems has read no metadata.
UNREAD: Final = frozenset({NOT_CHECKED.code, _METADATA_UNUSABLE, SamlProblemCode.METADATA_EXPIRED})


async def check(ports: Ports, caller: callers.OrganizationCaller, slug: str, base_url: str) -> list[ConnectionProblem]:
    """Return the problems of a connection, in any state. The metadata and the keys are fetched now.

    Raises: OrganizationConnectionNotFound, Limited, SealBroken.
    """
    details = await connections.find(ports, caller, slug)
    if details.connection.uses_test_provider:  # its settings name no identity provider
        return []
    if details.missing:
        return [ConnectionProblem(f"missing_{part}", True, f"Set this value first: {part.label}.") for part in details.missing]
    reach = await routing.find_reach(ports, details.connection)
    return [*await _check_settings(ports, caller, details, base_url), *reach.problems]


async def check_saved(ports: Ports, caller: callers.OrganizationCaller, slug: str, base_url: str) -> list[ConnectionProblem]:
    """Return the problems that values which were just saved cause at the identity provider.

    There are none while values are missing. If the organization has had too many checks, the only problem is that this one was not made.
    """
    details = await connections.find(ports, caller, slug)
    if details.connection.uses_test_provider or details.missing:
        return []
    try:
        return await _check_settings(ports, caller, details, base_url)
    except errors.Limited:
        return [NOT_CHECKED]


async def _check_settings(
    ports: Ports, caller: callers.OrganizationCaller, details: ConnectionDetails, base_url: str
) -> list[ConnectionProblem]:
    """Ask the identity provider, which has at most 30 seconds, and look at the settings. Raises: Limited, SealBroken."""
    match details.connection.settings:
        case OidcSettings() as settings:
            await charge_fetch_of(ports, caller.acts_in.id)
            return await _check_openid(ports, details, settings, base_url)
        case SamlSettings() as settings:
            return [*await check_saml(ports, caller.acts_in.id, details, settings), *_check_name_id(settings)]


async def begin_test(ports: Ports, caller: callers.Member, slug: str, way_back: str, device_cookie: str, base_url: str) -> ProviderRedirect:
    """Return the place at the identity provider at which an admin tests a connection, in any state. `way_back` is the path of its page.

    Raises: OrganizationConnectionNotFound, ConnectionIncomplete, Limited, OpenIdAnswerRefused, OpenIdProviderUnreachable.
    """
    details = await connections.find(ports, caller, slug)
    details.require_complete()
    await charge_fetch_of(ports, caller.acts_in.id)
    return await provider_requests.begin_test(ports, caller, details.connection, way_back, device_cookie, base_url)


# OpenID Connect


async def _check_openid(ports: Ports, details: ConnectionDetails, settings: OidcSettings, base_url: str) -> list[ConnectionProblem]:
    connection = details.connection
    client = await openid.load_client(ports, connection, settings)
    return await check_client(ports, client, openid.redirect_uri(connection, base_url))


async def check_client(ports: Ports, client: openid_model.OpenIdClient, redirect_uri: str) -> list[ConnectionProblem]:
    """Return the problems of our client at a provider. The metadata and the keys are fetched now."""
    try:
        metadata = await ports.openid_providers.discover(client, refresh=True)
    except (openid_model.OpenIdAnswerRefused, openid_model.OpenIdProviderUnreachable) as problem:
        return [describe(problem)]
    problems = await _check_keys(ports, client, metadata)
    if client.authentication not in metadata.authentications:
        return [*problems, describe(openid_model.OpenIdAnswerRefused(openid_model.OpenIdFault.METADATA_AUTHENTICATION))]
    try:
        await ports.openid_providers.check_client(client, metadata, redirect_uri)
    except (openid_model.OpenIdAnswerRefused, openid_model.OpenIdProviderUnreachable) as problem:
        problems.append(describe(problem))
    return problems


async def _check_keys(
    ports: Ports, client: openid_model.OpenIdClient, metadata: openid_model.OpenIdProviderMetadata
) -> list[ConnectionProblem]:
    try:
        keys = await ports.openid_providers.keys(client, metadata)
    except (openid_model.OpenIdAnswerRefused, openid_model.OpenIdProviderUnreachable) as problem:
        return [describe(problem)]
    if not any(key.is_usable for key in keys):
        return [describe(openid_model.OpenIdAnswerRefused(openid_model.OpenIdFault.SIGNING_KEY))]
    message = "The identity provider publishes the key {}, which cannot verify its tokens. Tokens signed with it are refused."
    return [ConnectionProblem("unusable_key", False, message.format(key.kid or "without an id")) for key in keys if not key.is_usable]


# SAML


def _check_certificates(details: ConnectionDetails, now: datetime) -> Iterator[ConnectionProblem]:
    """Return the certificate that expires soon, or has expired. Sign-ins go on, because an identity provider may forget to renew one."""
    end = health.CertificateEnd.of(details.certificates, details.keys.get(configuration.CertificateState.ACTIVE))
    if end is not None and (problem := end.problem_at(now)) is not None:
        yield ConnectionProblem(problem, False, health.HEALTH_PROBLEMS[problem])


def _check_name_id(settings: SamlSettings) -> Iterator[ConnectionProblem]:
    if settings.subject is None and settings.name_id_format is not configuration.NameIdFormat.PERSISTENT:
        message = (
            "Users are known by a NameID that can change, such as their address. Choose the format persistent, or an attribute that "
            "never changes."
        )
        yield ConnectionProblem("name_id_can_change", False, message)


async def check_saml(ports: Ports, org_id: UUID, details: ConnectionDetails, settings: SamlSettings) -> list[ConnectionProblem]:
    """Return the problems that the certificates and the metadata have. Metadata with an address is fetched now."""
    return [*_check_certificates(details, ports.clock.now()), *await _check_metadata(ports, org_id, details, settings)]


async def _check_metadata(ports: Ports, org_id: UUID, details: ConnectionDetails, settings: SamlSettings) -> list[ConnectionProblem]:
    """Compare the settings and certificates with the metadata, if they have an address. They are fetched now."""
    try:
        described = await metadata.fetch_own(ports, org_id, settings)
    except errors.Limited:
        raise
    except metadata.MetadataExpired as problem:
        return [ConnectionProblem(SamlProblemCode.METADATA_EXPIRED, False, problem.message)]
    except errors.Refusal as problem:
        return [ConnectionProblem(_METADATA_UNUSABLE, False, problem.message)]
    if described is None:
        return []
    problems = [*described.problems_of(settings, ports.clock.now())]
    differ = any(getattr(settings, name) != value for name, value in described.settings.items())
    former, new = described.compare_certificates(details.certificates)
    if differ or former or new:
        problems.append(ConnectionProblem("metadata_changed", False, "The identity provider has changed its metadata. Import them again."))
    return problems


def _describe_time(seconds_off: int | None) -> str:
    if seconds_off is None:
        return ""
    return f" A time in the answer is {abs(seconds_off):,} seconds {'ahead of our clock' if seconds_off > 0 else 'in the past'}."


def describe(problem: errors.Refusal) -> ConnectionProblem:
    """Return the problem of a sign-in in words for admins."""
    match problem:
        case openid_model.OpenIdProviderUnreachable():
            message = f"The identity provider was not reached: {problem.reason}."
            if problem.reason == SendFailure.NOT_ALLOWED:
                message += " Use a public address, or ask the operator of Gatehouse to allow it."
            return ConnectionProblem(problem.fault, True, message)
        case openid_model.OpenIdAnswerRefused():
            return ConnectionProblem(problem.fault, True, openid_model.OPENID_FAULTS[problem.fault] + _describe_time(problem.seconds_off))
        case openid_model.OpenIdAccessDenied():
            message = "The identity provider refused this sign-in. Assign the application to the user there."
            return ConnectionProblem(problem.error, True, message)
        case openid_model.OpenIdErrorReturned():
            return ConnectionProblem(problem.error, True, "The identity provider reports this error. Its log says more.")
        case SubjectMissing():
            message = "The value by which users are known did not arrive: the NameID, which cannot be transient, or the chosen attribute."
            return ConnectionProblem("subject_missing", True, message)
        case saml_responses.SamlResponseRefused():
            return ConnectionProblem(problem.fault, True, saml_responses.FAULTS[problem.fault] + _describe_time(problem.seconds_off))
        case saml_responses.SamlStatusReturned():
            return ConnectionProblem(problem.detail or problem.status, True, "The identity provider reports this. Its log says more.")
    return ConnectionProblem(problem.code.lower(), True, problem.message)
