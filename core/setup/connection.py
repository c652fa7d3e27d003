"""The connection that a set-up link's reader proposes: a product, and the values that its console shows.

The connection has its id from the start, so that the reader can copy our addresses. The connection is created when an admin applies it, as
a draft.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Final
from uuid import UUID

from core.federation.connections import checks, connections, events, metadata, openid, saml
from core.federation.connections.connections import ConnectionDraft
from core.federation.connections.metadata import DescribedProvider
from core.federation.connections.model import health, presets
from core.federation.connections.model.connections import (
    MAX_CERTIFICATES,
    RESERVED_SLUGS,
    CertificateFacts,
    CertificateSource,
    ConnectionProblem,
    OrganizationConnection,
    ProviderCertificate,
    TooManyProviderCertificates,
)
from core.federation.connections.model.details import ConnectionDetails
from core.federation.connections.model.openid import OpenIdClient
from core.federation.connections.model.settings import ConnectionSettingInvalid, OidcSettings, SamlSettings, SsoBinding
from core.federation.connections.provider_requests import RequestedConnection
from core.federation.saml.metadata import charge_fetch_of, fetch
from core.federation.saml.model import configuration
from core.federation.saml.model.metadata import MAX_METADATA_LENGTH
from core.kernel import callers, errors
from core.kernel.connections import ConnectionProtocol
from core.kernel.display import format_utc
from core.kernel.values import Slug, new_id
from core.setup import proposals
from core.setup.model import links
from ports import Ports
from ports.storage import Transaction

END_OF_CERTIFICATE: Final = "-----END CERTIFICATE-----"  # RFC 7468
ANOTHER: Final = ""  # a product without a preset


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderValues:
    """The values that the reader copied from the product's console. A connection has the values for its protocol."""

    issuer: str = ""
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    entity_id: str = ""
    sso_url: str = ""
    sso_binding: str = ""
    slo_url: str = ""
    slo_response_url: str = ""
    metadata_url: str = ""
    certificate: str = ""


async def choose(ports: Ports, caller: callers.SetupLinkCaller, preset: str, protocol: ConnectionProtocol) -> None:
    """Propose a connection to this product, without values, in place of the earlier proposal."""
    if preset not in (ANOTHER, *presets.PRESETS):
        raise presets.PresetUnknown
    document = links.SetupDocument(connection_id=str(new_id()), preset=preset or None, protocol=protocol.value)
    await proposals.propose(ports, caller, callers.SetupPart.CONNECTION, document, is_ready=False)


async def has_values(ports: Ports, caller: callers.SetupLinkCaller) -> bool:
    """Return whether the reader loses values by choosing another product."""
    proposal = (await proposals.load(ports, caller)).proposals.get(callers.SetupPart.CONNECTION)
    return proposal is not None and (proposal.is_ready or proposal.document.private_key is not None) and proposal.applied_at is None


async def import_metadata(ports: Ports, caller: callers.SetupLinkCaller, text: str, url: str) -> list[ConnectionProblem]:
    """Take the proposed connection's values from SAML metadata: from `text`, or else from the document at `url`.

    The connection keeps this address, so that its metadata is refreshed later. Return the problems in the metadata.
    """
    proposal = await _find_saml(ports, caller)
    described = await read_metadata(ports, caller, text, url)
    settings = {name: described.settings.get(name) or "" for name in ("entity_id", "sso_url", "sso_binding", "slo_url", "slo_response_url")}
    certificates = join_certificates(described.certificates)
    values = ProviderValues(**settings, metadata_url="" if text else url, certificate=certificates)
    return await _store(ports, caller, proposal, values, described)


async def read_metadata(ports: Ports, caller: callers.SetupLinkCaller, text: str, url: str) -> DescribedProvider:
    """Return the values of the SAML metadata in `text`, or without `text` in the document at `url`."""
    described = await metadata.describe(ports, text or await fetch(ports, caller.org_id, url, MAX_METADATA_LENGTH))
    described.require_valid(ports.clock.now())
    return described


async def save(ports: Ports, caller: callers.SetupLinkCaller, values: ProviderValues) -> None:
    """Store the proposed connection's values. An empty client secret keeps the secret for the same issuer (security #stored-secrets)."""
    proposal = await _find(ports, caller)
    before = proposal.document
    if (values.entity_id, values.sso_url) == (before.entity_id, before.sso_url):  # the values that only metadata gives stay
        kept = {name: getattr(before, name) or "" for name in ("sso_binding", "slo_url", "slo_response_url", "metadata_url")}
        values = replace(values, **kept)
    await _store(ports, caller, proposal, values)


async def _store(
    ports: Ports,
    caller: callers.SetupLinkCaller,
    proposal: links.SetupProposal,
    values: ProviderValues,
    described: DescribedProvider | None = None,
) -> list[ConnectionProblem]:
    """Store the values, together with the problems in the metadata that they were taken from, if any.

    Return the problems of the metadata.
    """
    changes = {name: value for name, value in asdict(values).items() if value or name != "client_secret"}
    document = replace(proposal.document, **changes, problems=None)
    if document.issuer != proposal.document.issuer and not values.client_secret and proposal.document.client_secret:
        raise ConnectionSettingInvalid("client_secret", "The issuer has changed. Enter the client secret that it created for you.")
    is_saml = document.protocol == ConnectionProtocol.SAML
    for name in ("entity_id", "sso_url", "certificate") if is_saml else ("issuer", "client_id", "client_secret"):
        if not getattr(document, name):
            raise ConnectionSettingInvalid(name, "Copy this value from the console of your identity provider.")
    settings = _settings(document).check()
    if is_saml:
        certificates = await read_certificates(ports, document.certificate or "")
        if {each.fingerprint for each in certificates} == {*document.metadata_fingerprints}:  # still the certificates from the metadata
            document = replace(document, problems=_find_left_out(proposal.document) or None)
    problems: list[ConnectionProblem] = []
    if described is not None and isinstance(settings, SamlSettings):
        problems = [*described.problems_of(settings, ports.clock.now())]
        fingerprints = tuple(each.fingerprint for each in described.certificates)
        document = replace(document, metadata_fingerprints=fingerprints, problems=tuple(problems))
    await proposals.propose(ports, caller, callers.SetupPart.CONNECTION, document, is_ready=True, replaces=proposal)
    return problems


def _find_left_out(document: links.SetupDocument) -> tuple[ConnectionProblem, ...]:
    """Return the problem that the metadata had more certificates than the proposal has. No check on its values finds it again."""
    return tuple(each for each in document.problems or () if each.code == metadata.CERTIFICATES_LEFT_OUT)


async def check(ports: Ports, caller: callers.SetupLinkCaller, base_url: str) -> list[ConnectionProblem]:
    """Return the proposed connection's problems, and store them with it. Metadata and keys are fetched now.

    Whether the NameID can change is no problem here: the product decides about it, and the reader has no choice.

    Raises: SetupProductMissing, SetupNotReady, Limited, SetupSessionMissing, OrganizationNotActive.
    """
    link, proposal = await _find_ready(ports, caller)
    return await _note(ports, caller, proposal, await _check(ports, link, proposal, base_url))


async def _note(
    ports: Ports, caller: callers.SetupLinkCaller, proposal: links.SetupProposal, found: Sequence[ConnectionProblem]
) -> list[ConnectionProblem]:
    """Store and return the problems that a check has found, with the problems in metadata that it has not read again."""
    reads_metadata = bool(proposal.document.metadata_url) and not any(problem.code in checks.UNREAD for problem in found)
    problems = [*found, *(() if reads_metadata else _find_left_out(proposal.document))]
    await proposals.note_problems(ports, caller, proposal, problems)
    return problems


async def _check(ports: Ports, link: links.SetupLink, proposal: links.SetupProposal, base_url: str) -> list[ConnectionProblem]:
    proposed = await build(ports, link, proposal)
    match proposed.own, proposed.connection.settings:
        case OpenIdClient() as client, _:
            await charge_fetch_of(ports, link.org_id)
            return await checks.check_client(ports, client, openid.redirect_uri(proposed.connection, base_url))
        case ConnectionDetails() as details, SamlSettings() as settings:
            return await checks.check_saml(ports, link.org_id, details, settings)
    raise links.SetupNotReady


async def check_saved(ports: Ports, caller: callers.SetupLinkCaller, base_url: str) -> list[ConnectionProblem]:
    """Return the problems of values that were just saved, as `check` does. After too many checks, return NOT_CHECKED only."""
    link, proposal = await _find_ready(ports, caller)
    try:
        problems = await _check(ports, link, proposal, base_url)
    except errors.Limited:
        problems = [checks.NOT_CHECKED]
    return await _note(ports, caller, proposal, problems)


async def load_proposed(ports: Ports, caller: callers.SetupLinkCaller, connection_id: UUID | None = None) -> RequestedConnection:
    """Return the connection that the caller proposes, as it would be applied. With `connection_id`, it must have this id."""
    link, proposal = await _find_ready(ports, caller)
    if connection_id is not None and str(connection_id) != proposal.document.connection_id:
        raise links.SetupNotReady
    return await build(ports, link, proposal)


async def _find_ready(ports: Ports, caller: callers.SetupLinkCaller) -> tuple[links.SetupLink, links.SetupProposal]:
    details = await proposals.load(ports, caller)
    proposal = details.proposals.get(callers.SetupPart.CONNECTION) or errors.refuse(links.SetupProductMissing)
    if not proposal.is_ready or proposal.applied_at is not None:
        raise links.SetupNotReady
    return details.link, proposal


async def build(ports: Ports, link: links.SetupLink, proposal: links.SetupProposal) -> RequestedConnection:
    """Return the connection that a proposal stands for. A proposal that is not ready lacks values, which are empty."""
    document, now = proposal.document, ports.clock.now()
    connection = _draft(link, document, now)
    if isinstance(connection.settings, SamlSettings):
        keys = {} if document.private_key is None else {configuration.CertificateState.ACTIVE: await _read_key(ports, document, now)}
        certificates = await read_proposed_certificates(ports, document)
        return RequestedConnection(connection, ConnectionDetails(connection, keys, certificates))
    client = OpenIdClient(
        org_id=connection.org_id,
        connection_id=connection.id,
        issuer=connection.settings.issuer,
        client_id=connection.settings.client_id,
        authentication=connection.settings.client_authentication,
        client_secret=document.client_secret,
        key=None,
    )
    return RequestedConnection(connection, client)


async def create_key(ports: Ports, caller: callers.SetupLinkCaller) -> None:
    """Give the proposed connection our own key, which signs its requests and decrypts assertions. A present key stays."""
    proposal = await _find_saml(ports, caller)
    if proposal.document.private_key is not None:
        return
    async with ports.storage.reading() as read:
        organization = await read.organizations.by_id(caller.org_id) or errors.refuse(links.SetupSessionMissing)
    key = await ports.certificates.create(
        organization.slug, proposal.document.preset or "provider", ports.clock.now(), configuration.CERTIFICATE_YEARS
    )
    document = replace(
        proposal.document,
        own_certificate=key.certificate,
        private_key=key.private_key().decode(),
        problems=_find_left_out(proposal.document) or None,
    )
    await proposals.propose(ports, caller, callers.SetupPart.CONNECTION, document, is_ready=proposal.is_ready, replaces=proposal)


async def _read_key(ports: Ports, document: links.SetupDocument, now: datetime) -> configuration.SamlCertificate:
    facts, private_key = await ports.certificates.facts(document.own_certificate or ""), (document.private_key or "").encode()
    return configuration.SamlCertificate(
        id=new_id(),
        certificate=facts.certificate,
        private_key=lambda: private_key,
        valid_from=facts.valid_from,
        valid_until=facts.valid_until,
        created_at=now,
    )


async def own_metadata(ports: Ports, caller: callers.SetupLinkCaller, base_url: str) -> bytes:
    """Return our SAML metadata for the proposed connection's identity provider."""
    details = await proposals.load(ports, caller)
    proposed = await build(ports, details.link, await _find_saml(ports, caller))
    match proposed.own, proposed.connection.settings:
        case ConnectionDetails() as own, SamlSettings() as settings:
            return await ports.saml_providers.own_metadata(saml.own_service_provider(own, settings, base_url))
    raise links.SetupNotReady


async def _find(ports: Ports, caller: callers.SetupLinkCaller) -> links.SetupProposal:
    return (await proposals.load(ports, caller)).proposals.get(callers.SetupPart.CONNECTION) or errors.refuse(links.SetupProductMissing)


async def _find_saml(ports: Ports, caller: callers.SetupLinkCaller) -> links.SetupProposal:
    proposal = await _find(ports, caller)
    return proposal if proposal.document.protocol == ConnectionProtocol.SAML else errors.refuse(links.SetupNotReady)


def _settings(document: links.SetupDocument) -> OidcSettings | SamlSettings:
    first = presets.first_settings(document.preset, ConnectionProtocol(document.protocol or ConnectionProtocol.OIDC))
    if isinstance(first, OidcSettings):
        return replace(first, issuer=document.issuer or "", client_id=document.client_id or "")
    return replace(
        first,
        entity_id=document.entity_id or "",
        sso_url=document.sso_url or "",
        sso_binding=SsoBinding(document.sso_binding or SsoBinding.REDIRECT),
        slo_url=document.slo_url or None,
        slo_response_url=document.slo_response_url or None,
        metadata_url=document.metadata_url or None,
        signs_requests=document.private_key is not None,
    )


def _draft(link: links.SetupLink, document: links.SetupDocument, now: datetime) -> OrganizationConnection:
    slug = next(Slug.suggest(document.preset or link.name, "provider"))
    draft = ConnectionDraft(slug=slug, name=link.name, preset=document.preset, settings=_settings(document))
    return connections.new_draft(link.org_id, draft, now, UUID(document.connection_id))


async def read_certificates(ports: Ports, text: str) -> list[ProviderCertificate]:
    """Return the certificates in a text, without duplicates: several in PEM, or the base64 of one. An empty text has no certificates."""
    pems = [pem for pem in text.split(END_OF_CERTIFICATE) if pem.strip()]
    if len(pems) > MAX_CERTIFICATES:
        raise TooManyProviderCertificates
    if END_OF_CERTIFICATE in text:
        pems = [f"{pem}{END_OF_CERTIFICATE}\n" for pem in pems]
    facts = {each.fingerprint: each for each in [await ports.certificates.facts(pem) for pem in pems]}
    now = ports.clock.now()
    return [ProviderCertificate(**asdict(each), source=CertificateSource.ADMIN, is_active=True, added_at=now) for each in facts.values()]


async def read_proposed_certificates(ports: Ports, document: links.SetupDocument) -> list[ProviderCertificate]:
    """Return the certificates of a proposal. Certificates in new metadata replace the certificates of earlier metadata."""
    certificates = await read_certificates(ports, document.certificate or "")
    of_metadata = document.metadata_fingerprints
    return [replace(each, source=CertificateSource.METADATA) if each.fingerprint in of_metadata else each for each in certificates]


async def find_problems(ports: Ports, proposals: Iterable[links.SetupProposal]) -> dict[callers.SetupPart, list[ConnectionProblem]]:
    """Return the problems in proposals that were not applied yet, by part.

    Problems come from the last check, and from certificates that are not valid now, or expire soon. Such certificates refuse no sign-in
    (`SamlPartner`). Certificate problems are found again now, because the last check can be out of date.
    """
    now = ports.clock.now()
    problems: dict[callers.SetupPart, list[ConnectionProblem]] = {}
    for proposal in proposals:
        document = links.NO_DOCUMENT if proposal.applied_at is not None else proposal.document
        certificates = await read_certificates(ports, document.certificate or "")
        of_check = [each for each in document.problems or () if each.code not in [*health.HealthProblem]]
        of_certificates = [problem for each in certificates if (problem := _certificate_problem(each, now)) is not None]
        end = health.CertificateEnd.of(certificates, None) if proposal.part is callers.SetupPart.CONNECTION else None
        if end is not None and end.problem_at(now) is health.HealthProblem.CERTIFICATE_EXPIRES:
            of_certificates.append(ConnectionProblem(end.problem, False, health.HEALTH_PROBLEMS[end.problem]))
        problems[proposal.part] = [*of_check, *of_certificates]
    return problems


def _certificate_problem(certificate: ProviderCertificate, now: datetime) -> ConnectionProblem | None:
    if certificate.valid_until <= now:
        end = format_utc(certificate.valid_until)
        message = f"A new certificate expired on {end}. Check that the identity provider signs with it, and not with a newer one."
        return ConnectionProblem(health.HealthProblem.CERTIFICATE_EXPIRED, False, message)
    if certificate.valid_from > now:
        message = f"A new certificate is not valid before {format_utc(certificate.valid_from)}. It must not be used earlier."
        return ConnectionProblem("certificate_not_yet_valid", False, message)
    return None


def join_certificates(certificates: Sequence[CertificateFacts | ProviderCertificate]) -> str:
    """Return the text that `read_certificates` reads."""
    return "\n".join(each.certificate.strip() for each in certificates)


async def store(tx: Transaction, caller: callers.OrganizationCaller, proposed: RequestedConnection, now: datetime) -> None:
    """Create the proposed connection as a draft, with a free slug. The caller has locked the organization."""
    connection = proposed.connection
    taken = {*RESERVED_SLUGS, *[each.slug for each in await tx.connections.of_org(connection.org_id)]}
    connection = replace(connection, slug=next(slug for slug in Slug.suggest(connection.slug, connection.slug) if slug not in taken))
    await connections.add(tx, caller, connection)
    match proposed.own:
        case OpenIdClient(client_secret=str(secret)):
            await tx.connections.save_client_secret(connection.org_id, connection.id, secret, now)
            tx.record(events.client_secret_set(connection))
        case ConnectionDetails(keys=keys, certificates=certificates):
            for state, key in keys.items():
                await tx.connection_keys.add(connection.org_id, connection.id, key, state)
                tx.record(events.key_created(connection, key))
            for certificate in certificates:
                await tx.connection_keys.add_certificate(connection.org_id, connection.id, certificate)
                tx.record(events.certificate_added(connection, certificate))
