"""The check of a connection with OpenID Connect before users sign in: metadata, keys, and our credentials."""

from dataclasses import dataclass
from enum import StrEnum

from core.federation.connections import openid
from core.federation.connections.model.connections import OrganizationConnection
from core.federation.connections.model.openid import (
    OPENID_FAULTS,
    OpenIdAnswerRefused,
    OpenIdClient,
    OpenIdFault,
    OpenIdProviderMetadata,
    OpenIdProviderUnreachable,
)
from core.federation.connections.model.settings import OidcSettings
from ports import Ports


class FindingSeverity(StrEnum):
    """Whether users can sign in with a finding."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class ConnectionFinding:
    """A problem of a connection, with a sentence for admins."""

    code: str
    severity: FindingSeverity
    sentence: str


async def check(ports: Ports, connection: OrganizationConnection, settings: OidcSettings, base_url: str) -> list[ConnectionFinding]:
    """Return the problems of a connection: none if users can sign in. The metadata and the keys are fetched now. Raises: SealBroken."""
    client = await openid.load_client(ports, connection, settings)
    try:
        metadata = await ports.openid_providers.discover(client, refresh=True)
    except OpenIdProviderUnreachable as unreachable:
        return [_error(unreachable.fault, f"The identity provider was not reached: {unreachable.reason.value}.")]
    except OpenIdAnswerRefused as refusal:
        return [_error(refusal.fault)]
    findings = await _check_keys(ports, client, metadata)
    if client.authentication not in metadata.authentications:
        return [*findings, _error(OpenIdFault.METADATA_AUTHENTICATION)]
    try:
        await ports.openid_providers.check_client(client, metadata, openid.redirect_uri(connection, base_url))
    except (OpenIdAnswerRefused, OpenIdProviderUnreachable) as problem:
        findings.append(_error(problem.fault))
    return findings


async def _check_keys(ports: Ports, client: OpenIdClient, metadata: OpenIdProviderMetadata) -> list[ConnectionFinding]:
    try:
        keys = await ports.openid_providers.keys(client, metadata)
    except (OpenIdAnswerRefused, OpenIdProviderUnreachable) as problem:
        return [_error(problem.fault)]
    if not any(key.is_usable for key in keys):
        return [_error(OpenIdFault.SIGNING_KEY)]
    sentence = "The identity provider publishes the key {}, which cannot verify its tokens. Tokens signed with it are refused."
    return [
        ConnectionFinding("unusable_key", FindingSeverity.WARNING, sentence.format(key.kid or "without an id"))
        for key in keys
        if not key.is_usable
    ]


def _error(fault: OpenIdFault, sentence: str | None = None) -> ConnectionFinding:
    return ConnectionFinding(fault, FindingSeverity.ERROR, sentence or OPENID_FAULTS[fault])
