"""The connection that the reader of a set-up link proposes: a product, and the values that its console shows.

The connection has its id from the start, so that the reader can copy our addresses. It is created when an admin applies it, as a draft.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Final
from uuid import UUID

from core.federation.connections import checks, connections, events, metadata, openid
from core.federation.connections.checks import ConnectionProblem
from core.federation.connections.connections import ConnectionDetails, ConnectionDraft
from core.federation.connections.model.connections import (
    MAX_CERTIFICATES,
    CertificateSource,
    OrganizationConnection,
    ProviderCertificate,
    TooManyProviderCertificates,
)
from core.federation.connections.model.openid import OpenIdClient
from core.federation.connections.model.presets import PRESETS, PresetUnknown
from core.federation.connections.model.settings import ConnectionSettingInvalid, OidcSettings, SamlSettings, SsoBinding
from core.federation.connections.trips import OwnSide
from core.federation.saml.metadata import charge_fetch_of, fetch
from core.federation.saml.model.metadata import MAX_METADATA_LENGTH
from core.kernel.callers import SetupLinkCaller, SetupPart
from core.kernel.connections import ConnectionProtocol
from core.kernel.errors import refuse
from core.kernel.values import Slug, new_id
from core.setup import proposals
from core.setup.model.links import SetupDocument, SetupLink, SetupNotReady, SetupProductMissing, SetupProposal
from ports import Ports
from ports.storage import Transaction

END_OF_CERTIFICATE: Final = "-----END CERTIFICATE-----"  # RFC 7468
ANOTHER: Final = ""  # a product without a preset


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderValues:
    """The values that the reader copied from the console of the product. A connection has those of its protocol."""

    issuer: str = ""
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    entity_id: str = ""
    sso_url: str = ""
    sso_binding: str = ""
    certificate: str = ""


async def choose(ports: Ports, caller: SetupLinkCaller, preset: str, protocol: ConnectionProtocol) -> None:
    """Propose a connection to this product, without values, in place of the one before. Raises: PresetUnknown, SetupPartFixed."""
    if preset not in (ANOTHER, *PRESETS):
        raise PresetUnknown
    document = SetupDocument(connection_id=str(new_id()), preset=preset, protocol=protocol.value)
    await proposals.propose(ports, caller, SetupPart.CONNECTION, document, is_ready=False)


async def import_metadata(ports: Ports, caller: SetupLinkCaller, text: str, url: str) -> None:
    """Take the values of the proposed connection from SAML metadata: of `text`, or without it of the document at `url`.

    Raises: SetupProductMissing, SetupNotReady; the errors of `fetch`, of `metadata.describe` and of `save`.
    """
    proposal = await _find(ports, caller)
    if proposal.document.protocol != ConnectionProtocol.SAML:
        raise SetupNotReady
    document = text or await fetch(ports, caller.org_id, url, MAX_METADATA_LENGTH)
    described = await metadata.describe(ports, document)
    found = ProviderValues(
        entity_id=described.settings.get("entity_id", ""),
        sso_url=described.settings.get("sso_url", ""),
        sso_binding=described.settings.get("sso_binding", ""),
        certificate="\n".join(each.certificate.strip() for each in described.certificates),
    )
    await save(ports, caller, found)


async def save(ports: Ports, caller: SetupLinkCaller, values: ProviderValues) -> None:
    """Store the values of the proposed connection. An empty client secret keeps the earlier one.

    Raises: SetupProductMissing, SetupPartFixed, SetupProposalReplaced, ConnectionSettingInvalid, ProviderCertificateInvalid.
    """
    proposal = await _find(ports, caller)
    given = {name: value for name, value in asdict(values).items() if value or name != "client_secret"}
    document = replace(proposal.document, **given)
    for name in _needed(document):
        if not getattr(document, name):
            raise ConnectionSettingInvalid(name, "Copy this value from the console of your identity provider.")
    _settings(document).check()
    if document.protocol == ConnectionProtocol.SAML:
        await read_certificates(ports, document)
    await proposals.propose(ports, caller, SetupPart.CONNECTION, document, is_ready=True, replaces=proposal)


def _needed(document: SetupDocument) -> tuple[str, ...]:
    is_saml = document.protocol == ConnectionProtocol.SAML
    return ("entity_id", "sso_url", "certificate") if is_saml else ("issuer", "client_id", "client_secret")


async def check(ports: Ports, caller: SetupLinkCaller, base_url: str) -> list[ConnectionProblem]:
    """Return the problems of the proposed connection with OpenID Connect. Its metadata and keys are fetched now.

    Raises: SetupProductMissing, SetupNotReady, Limited.
    """
    proposed = await load_proposed(ports, caller)
    if not isinstance(proposed.own, OpenIdClient):
        raise SetupNotReady
    await charge_fetch_of(ports, caller.org_id)
    return await checks.check_client(ports, proposed.own, openid.redirect_uri(proposed.connection, base_url))


@dataclass(frozen=True, slots=True)
class ProposedConnection:
    """A connection that is not stored, with our side at its identity provider."""

    connection: OrganizationConnection
    own: OwnSide


async def load_proposed(ports: Ports, caller: SetupLinkCaller, connection_id: UUID | None = None) -> ProposedConnection:
    """Return the connection that the caller proposes, as it would be applied. With `connection_id`, only the one with this id.

    Raises: SetupProductMissing, SetupNotReady.
    """
    details = await proposals.load(ports, caller)
    proposal = details.proposals.get(SetupPart.CONNECTION) or refuse(SetupProductMissing)
    connection, document = _draft(details.link, proposal, ports.clock.now()), proposal.document
    if not proposal.is_ready or proposal.applied_at is not None or connection_id not in (None, connection.id):
        raise SetupNotReady
    if isinstance(connection.settings, SamlSettings):
        return ProposedConnection(connection, ConnectionDetails(connection, {}, await read_certificates(ports, document)))
    client = OpenIdClient(
        connection_id=connection.id,
        issuer=connection.settings.issuer,
        client_id=connection.settings.client_id,
        authentication=connection.settings.client_authentication,
        client_secret=document.client_secret,
        key=None,
    )
    return ProposedConnection(connection, client)


async def _find(ports: Ports, caller: SetupLinkCaller) -> SetupProposal:
    return (await proposals.load(ports, caller)).proposals.get(SetupPart.CONNECTION) or refuse(SetupProductMissing)


def _settings(document: SetupDocument) -> OidcSettings | SamlSettings:
    preset = PRESETS.get(document.preset or "")
    if document.protocol == ConnectionProtocol.SAML:
        saml = SamlSettings(entity_id=document.entity_id or "", sso_url=document.sso_url or "", signs_requests=False)
        saml = replace(saml, sso_binding=SsoBinding(document.sso_binding or SsoBinding.REDIRECT))
        if preset is None:
            return saml
        values = preset.protocols[ConnectionProtocol.SAML]
        return replace(saml, name_id_format=values.name_id_format, subject=values.subject)
    oidc = OidcSettings(issuer=document.issuer or "", client_id=document.client_id or "")
    return oidc if preset is None else replace(oidc, scopes=preset.protocols[ConnectionProtocol.OIDC].scopes)


def _draft(link: SetupLink, proposal: SetupProposal, now: datetime) -> OrganizationConnection:
    document = proposal.document
    id_ = UUID(document.connection_id)
    draft = ConnectionDraft(
        slug=Slug.parse(f"{document.preset or 'provider'}-{id_.hex[-6:]}"),
        name=link.name,
        preset=document.preset or None,
        settings=_settings(document),
    )
    return connections.new_draft(link.org_id, draft, now, id_)


async def read_certificates(ports: Ports, document: SetupDocument) -> list[ProviderCertificate]:
    """Return the certificates of a proposal, each once, or none if it has none.

    Raises: ProviderCertificateInvalid, TooManyProviderCertificates.
    """
    pems = [f"{pem}{END_OF_CERTIFICATE}\n" for pem in (document.certificate or "").split(END_OF_CERTIFICATE) if pem.strip()]
    if len(pems) > MAX_CERTIFICATES:
        raise TooManyProviderCertificates
    facts = {each.fingerprint: each for each in [await ports.certificates.facts(pem) for pem in pems]}
    now = ports.clock.now()
    return [ProviderCertificate(**asdict(each), source=CertificateSource.ADMIN, is_active=True, added_at=now) for each in facts.values()]


async def store(
    ports: Ports, tx: Transaction, link: SetupLink, proposal: SetupProposal, certificates: Sequence[ProviderCertificate]
) -> None:
    """Create the proposed connection as a draft. The caller has locked the organization.

    Raises: TooManyConnections, ConnectionSlugTaken.
    """
    document, now = proposal.document, ports.clock.now()
    connection = _draft(link, proposal, now)
    await connections.add(tx, connection)
    if document.client_secret:
        await tx.connections.save_client_secret(connection.org_id, connection.id, document.client_secret, now)
        tx.record(events.client_secret_set(connection))
    for certificate in certificates:
        await tx.connection_keys.add_certificate(connection.org_id, connection.id, certificate)
        tx.record(events.certificate_added(connection, certificate))
