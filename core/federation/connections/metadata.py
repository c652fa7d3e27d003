"""The metadata of a connection's SAML identity provider, from its address or as a document.

Sources: SAML metadata sections 2.3.2 and 2.4.3; security W-2, X-2.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from core.federation.connections import connections, events
from core.federation.connections.access import lock_to_change
from core.federation.connections.model.connections import (
    MAX_CERTIFICATES,
    CertificateFacts,
    CertificateSource,
    ConnectionProblem,
    OrganizationConnection,
    ProviderCertificate,
    ProviderCertificateInvalid,
    TooManyProviderCertificates,
)
from core.federation.connections.model.health import REFETCHED_EACH
from core.federation.connections.model.saml import MetadataNotUsed
from core.federation.connections.model.settings import SamlSettings, SsoBinding
from core.federation.saml.metadata import fetch, read_source
from core.federation.saml.model.configuration import NameIdFormat
from core.federation.saml.model.metadata import MAX_METADATA_LENGTH, MetadataInvalid, SamlProblemCode, describe_expiry
from core.kernel import errors
from core.kernel.callers import OrganizationCaller
from core.kernel.causes import SYSTEM
from core.tenancy import imposed_rules
from ports import Ports
from ports.storage import Transaction

CERTIFICATES_LEFT_OUT: Final = "certificates_left_out"  # the code of a problem that only the metadata show


@dataclass(frozen=True, slots=True)
class DescribedProvider:
    """The values that the metadata of an identity provider has."""

    settings: Mapping[str, Any]  # by the names of SamlSettings
    certificates: Sequence[CertificateFacts]
    name_id_formats: Sequence[str] = ()
    valid_until: datetime | None = None  # UTC
    left_out: int = 0  # certificates after the first MAX_CERTIFICATES

    def require_valid(self, now: datetime) -> None:
        """Check that the metadata have not expired."""
        if message := describe_expiry(self.valid_until, now, "identity provider"):
            raise MetadataExpired(message)

    def compare_certificates(self, present: Sequence[ProviderCertificate]) -> tuple[list[ProviderCertificate], list[CertificateFacts]]:
        """Return the present certificates of earlier metadata that these metadata lack, and the certificates here that are not present."""
        present_fingerprints = {each.fingerprint for each in present}
        fingerprints = {each.fingerprint for each in self.certificates}
        former = [each for each in present if each.source is CertificateSource.METADATA and each.fingerprint not in fingerprints]
        return former, [facts for facts in self.certificates if facts.fingerprint not in present_fingerprints]

    def problems_of(self, settings: SamlSettings, now: datetime) -> Iterator[ConnectionProblem]:
        """Return the problems: expired metadata, too many certificates, or a NameID format that the identity provider does not support."""
        if expiry := describe_expiry(self.valid_until, now, "identity provider"):
            yield ConnectionProblem(SamlProblemCode.METADATA_EXPIRED, False, expiry)
        yield from self.find_left_out()
        if settings.subject is not None or not self.name_id_formats or settings.name_id_format in self.name_id_formats:
            return
        usable = [each.short_name for each in NameIdFormat if each in self.name_id_formats and each is not NameIdFormat.TRANSIENT]
        choice = f"Choose {' or '.join(usable)} here, or add" if usable else "Add"
        message = (
            f"The metadata of the identity provider lack the NameID format {settings.name_id_format.short_name}, so it may refuse sign-ins "
            f"with InvalidNameIDPolicy. {choice} the format there."
        )
        yield ConnectionProblem("name_id_format_unsupported", False, message)

    def find_left_out(self) -> Iterator[ConnectionProblem]:
        """Return the problem that the metadata have more certificates than a connection can have."""
        if self.left_out:
            message = (
                f"The metadata of the identity provider have {MAX_CERTIFICATES + self.left_out} certificates, and only the first "
                f"{MAX_CERTIFICATES} are used. Remove old certificates at the identity provider."
            )
            yield ConnectionProblem(CERTIFICATES_LEFT_OUT, False, message)


async def import_metadata(ports: Ports, caller: OrganizationCaller, slug: str, text: str, url: str) -> list[ConnectionProblem]:
    """Take over the values and certificates of metadata: of `text`, or without it of the document at `url`, which is fetched.

    Return the problems of the metadata, also with the other settings of the connection.
    """
    await connections.find(ports, caller, slug)
    described = await describe(ports, await read_source(ports, caller, text, url, MAX_METADATA_LENGTH))
    async with ports.storage.transaction(by=caller) as tx:
        connection = await lock_to_change(tx, caller, slug)
        if not isinstance(connection.settings, SamlSettings):
            raise MetadataNotUsed
        await connections.require_power_over_trust(tx, caller, connection)
        await imposed_rules.impose_connection(tx, caller, connection.as_required, now := ports.clock.now())
        await apply(tx, connection, described, None if text else url, now)
        return [*described.problems_of(connection.settings, now)]


class MetadataOfAnother(errors.Invalid):
    """The metadata are those of another identity provider, with another entity ID. Nothing was changed. Correct the address or the file."""


class MetadataExpired(errors.Invalid):
    """This metadata is no longer valid. Ask the identity provider for its present metadata."""


async def fetch_own(ports: Ports, org_id: UUID, settings: SamlSettings) -> DescribedProvider | None:
    """Return the values of the metadata at the address of a connection, or None without an address.

    Raises: MetadataOfAnother, MetadataExpired; the errors that `fetch` and `describe` raise.
    """
    if settings.metadata_url is None:
        return None
    described = await describe(ports, await fetch(ports, org_id, settings.metadata_url, MAX_METADATA_LENGTH))
    if described.settings.get("entity_id") != settings.entity_id:
        raise MetadataOfAnother
    described.require_valid(ports.clock.now())
    return described


async def refetch(ports: Ports, connection: OrganizationConnection, settings: SamlSettings) -> bool:
    """Take over the metadata at their address, because a response has an unknown signature. Return whether they were read.

    That is at most once an hour for a connection: users who come with wrong responses cause no more fetches.
    """
    now = ports.clock.now()
    if settings.metadata_url is None:
        return False
    async with ports.storage.transaction(by=SYSTEM) as tx:
        if not await tx.connection_healths.claim_refetch(connection.org_id, connection.id, now, now - REFETCHED_EACH):
            return False
    try:
        described = await fetch_own(ports, connection.org_id, settings)
    except errors.Refusal:
        return False
    async with ports.storage.transaction(by=SYSTEM) as tx:
        if await tx.organizations.lock(connection.org_id) is None or described is None:
            return False
        current = await tx.connections.by_slug(connection.org_id, connection.slug)
        if current is None or current.id != connection.id or current.settings != settings:
            return False
        await apply(tx, current, described, settings.metadata_url, now)
        await tx.connection_healths.make_due(connection.org_id, connection.id)
    return True


async def describe(ports: Ports, text: str) -> DescribedProvider:
    """Return the values of metadata. Certificates that cannot verify our responses are left out.

    Raises: MetadataInvalid, NoIdentityProvider, SeveralIdentityProviders; ProviderCertificateInvalid if no certificate can be used.
    """
    if len(text) > MAX_METADATA_LENGTH:
        raise MetadataInvalid
    # Copied documents can begin with spaces or a byte order mark, which XML does not allow before its declaration.
    metadata = await ports.saml_providers.metadata(text.lstrip("\ufeff \t\r\n").encode("utf-8", "replace"))
    settings: dict[str, Any] = {} if metadata.entity_id is None else {"entity_id": metadata.entity_id}
    if metadata.slo_url is not None:
        settings |= {"slo_url": metadata.slo_url, "slo_response_url": metadata.slo_response_url}
    for binding in (SsoBinding.POST, SsoBinding.REDIRECT):  # the last one is preferred
        if binding in metadata.sso_urls:
            settings |= {"sso_url": metadata.sso_urls[binding], "sso_binding": binding}
    certificates: dict[str, CertificateFacts] = {}
    for pem in dict.fromkeys(metadata.certificates):
        with suppress(ProviderCertificateInvalid):
            facts = await ports.certificates.facts(pem)
            certificates[facts.fingerprint] = facts
    if not certificates:
        raise ProviderCertificateInvalid
    used = list(certificates.values())[:MAX_CERTIFICATES]
    return DescribedProvider(settings, used, metadata.name_id_formats, metadata.valid_until, len(certificates) - len(used))


async def apply(
    tx: Transaction, connection: OrganizationConnection, described: DescribedProvider, metadata_url: str | None, now: datetime
) -> OrganizationConnection:
    """Give a locked connection the values of metadata. Certificates from earlier metadata go. Certificates that admins added stay."""
    values: dict[str, Any] = {**described.settings, "metadata_url": metadata_url}
    settings = replace(connection.settings, **values)
    changed = await connections.save_change(tx, connection, replace(connection, settings=settings))
    present = await tx.connection_keys.certificates(connection.org_id, connection.id)
    former, new = described.compare_certificates(present)
    if len(present) - len(former) + len(new) > MAX_CERTIFICATES:
        raise TooManyProviderCertificates
    for each in former:
        await tx.connection_keys.remove_certificate(connection.org_id, connection.id, each.fingerprint)
        tx.record(events.certificate_removed(connection, each))
    for facts in new:
        certificate = ProviderCertificate(**asdict(facts), source=CertificateSource.METADATA, is_active=True, added_at=now)
        await tx.connection_keys.add_certificate(connection.org_id, connection.id, certificate)
        tx.record(events.certificate_added(connection, certificate))
    return changed
