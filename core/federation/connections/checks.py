"""The check of a connection before users sign in, and test sign-ins by admins.

A check asks for the metadata and the keys of the identity provider, and whether it accepts our credentials.
"""

from dataclasses import dataclass

from core.federation.connections import connections, openid, trips
from core.federation.connections.connections import ConnectionDetails
from core.federation.connections.model.openid import (
    OPENID_FAULTS,
    OpenIdAnswerRefused,
    OpenIdClient,
    OpenIdErrorReturned,
    OpenIdFault,
    OpenIdProviderMetadata,
    OpenIdProviderUnreachable,
)
from core.federation.connections.model.settings import OidcSettings
from core.federation.connections.trips import SamlNotTested
from core.federation.saml.metadata import charge_fetch
from core.kernel.callers import Member, OrganizationCaller
from core.kernel.errors import Refusal
from ports import Ports


@dataclass(frozen=True, slots=True)
class ConnectionProblem:
    """A problem of a connection, with a sentence for admins."""

    code: str
    is_error: bool  # users cannot sign in because of it
    message: str


async def check(ports: Ports, caller: OrganizationCaller, slug: str, base_url: str) -> list[ConnectionProblem]:
    """Return the problems of a connection, in any state. The metadata and the keys are fetched now.

    Raises: OrganizationConnectionNotFound, SamlNotTested, Limited, SealBroken.
    """
    details, settings = await _load(ports, caller, slug)
    connection = details.connection
    if details.missing:
        return [ConnectionProblem(f"missing_{part}", True, f"Set this value first: {part.replace('_', ' ')}.") for part in details.missing]
    await charge_fetch(ports, caller)
    client = await openid.load_client(ports, connection, settings)
    return await check_client(ports, client, openid.redirect_uri(connection, base_url))


async def check_client(ports: Ports, client: OpenIdClient, redirect_uri: str) -> list[ConnectionProblem]:
    """Return the problems of our client at a provider. The metadata and the keys are fetched now."""
    metadata, problems = await read_provider(ports, client)
    if metadata is None:
        return problems
    if client.authentication not in metadata.authentications:
        return [*problems, describe(OpenIdAnswerRefused(OpenIdFault.METADATA_AUTHENTICATION))]
    try:
        await ports.openid_providers.check_client(client, metadata, redirect_uri)
    except (OpenIdAnswerRefused, OpenIdProviderUnreachable) as problem:
        problems.append(describe(problem))
    return problems


async def begin_test(ports: Ports, caller: Member, slug: str, way_back: str, device_cookie: str, base_url: str) -> str:
    """Return the URL of the identity provider at which an admin tests a connection, in any state. `way_back` is the path of its page.

    Raises: OrganizationConnectionNotFound, SamlNotTested, ConnectionIncomplete, Limited, OpenIdAnswerRefused, OpenIdProviderUnreachable.
    """
    details, _ = await _load(ports, caller, slug)
    details.require_complete()
    await charge_fetch(ports, caller)
    return await trips.begin_test(ports, caller, details.connection, way_back, device_cookie, base_url)


async def read_provider(ports: Ports, client: OpenIdClient) -> tuple[OpenIdProviderMetadata | None, list[ConnectionProblem]]:
    """Fetch the metadata and the keys of a provider. Return the metadata, or None without them, and the problems."""
    try:
        metadata = await ports.openid_providers.discover(client, refresh=True)
    except (OpenIdAnswerRefused, OpenIdProviderUnreachable) as problem:
        return None, [describe(problem)]
    return metadata, await _check_keys(ports, client, metadata)


async def _load(ports: Ports, caller: OrganizationCaller, slug: str) -> tuple[ConnectionDetails, OidcSettings]:
    details = await connections.find(ports, caller, slug)
    if not isinstance(details.connection.settings, OidcSettings):
        raise SamlNotTested
    return details, details.connection.settings


async def _check_keys(ports: Ports, client: OpenIdClient, metadata: OpenIdProviderMetadata) -> list[ConnectionProblem]:
    try:
        keys = await ports.openid_providers.keys(client, metadata)
    except (OpenIdAnswerRefused, OpenIdProviderUnreachable) as problem:
        return [describe(problem)]
    if not any(key.is_usable for key in keys):
        return [describe(OpenIdAnswerRefused(OpenIdFault.SIGNING_KEY))]
    message = "The identity provider publishes the key {}, which cannot verify its tokens. Tokens signed with it are refused."
    return [ConnectionProblem("unusable_key", False, message.format(key.kid or "without an id")) for key in keys if not key.is_usable]


def describe(problem: Refusal) -> ConnectionProblem:
    """Return the problem of a sign-in in words for admins."""
    match problem:
        case OpenIdProviderUnreachable():
            return ConnectionProblem(problem.fault, True, f"The identity provider was not reached: {problem.reason}.")
        case OpenIdAnswerRefused():
            return ConnectionProblem(problem.fault, True, OPENID_FAULTS[problem.fault])
        case OpenIdErrorReturned():
            return ConnectionProblem(problem.error, True, "The identity provider reports this error. Its log says more.")
    return ConnectionProblem(problem.code.lower(), True, problem.message)
