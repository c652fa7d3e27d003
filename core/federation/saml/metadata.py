"""The import of a service provider's metadata, and the check of a SAML configuration."""

from collections.abc import Sequence
from uuid import UUID

from core.applications import services
from core.applications.model.services import Service
from core.federation.saml.model.configuration import NOT_CONFIGURED, SamlConfiguration, SloCertificateInvalid, with_canonical_urls
from core.federation.saml.model.metadata import (
    MAX_CERTIFICATES,
    MAX_METADATA_LENGTH,
    MetadataInvalid,
    MetadataNotFetched,
    SamlProblem,
    SamlProblemCode,
    ServiceProviderMetadata,
    check_addresses,
    check_certificate,
    check_duplicates,
    check_logout_certificate,
    check_validity,
    choose_name_id_format,
)
from core.kernel import outbound
from core.kernel.callers import OrganizationCaller
from core.kernel.errors import Limited
from core.kernel.rate_limits import METADATA_FETCH
from core.kernel.uris import is_on_loopback
from ports import Ports

FETCH_SECONDS = 5.0
MAX_DUPLICATES = 5  # services with the same entity id that a problem names


async def read_metadata(ports: Ports, caller: OrganizationCaller, slug: str, text: str) -> tuple[SamlConfiguration, Sequence[SamlProblem]]:
    """Return the configuration that the metadata of a service provider describes, and its problems. Nothing is stored.

    The configuration is enabled, so that it can be sent to `configuration.configure` once it has no errors.
    """
    service = await services.find(ports, caller, slug)
    configuration, problems = await parse(ports, text)
    same = await _find_duplicates(ports, service, configuration)
    problems = [*problems, *check_addresses(configuration), *await _check_logout_certificate(ports, configuration), *check_duplicates(same)]
    return configuration, problems


async def _find_duplicates(ports: Ports, service: Service, configuration: SamlConfiguration) -> Sequence[str]:
    """Return the other services of the organization with the same entity id."""
    if configuration.entity_id is None:
        return []
    async with ports.storage.reading() as read:
        return await read.saml.services_with_entity_id(service.org_id, service.id, configuration.entity_id, MAX_DUPLICATES)


async def read_source(ports: Ports, caller: OrganizationCaller, text: str, url: str, at_most: int = outbound.MAX_REPLY_SIZE) -> str:
    """Return the text of metadata. Without it, fetch `url`, which has less than `at_most` bytes.

    Fetches are limited per organization, so that our address is of no use to probe or load other servers.
    """
    return text if text or not url else await fetch(ports, caller.acts_in.id, url, at_most)


async def fetch(ports: Ports, org_id: UUID, url: str, at_most: int) -> str:
    """Return the document at an address that the organization, or a set-up link's reader, chose."""
    target = outbound.parse_target(url)
    if not target.startswith("https:") and not is_on_loopback(target):
        raise MetadataNotFetched("Its URL must start with https://.")
    await charge_fetch_of(ports, org_id)
    try:
        reply = await ports.sender.get(target, FETCH_SECONDS, at_most=at_most)
    except outbound.SendFailed as failure:
        raise MetadataNotFetched(f"We could not fetch it: {failure.reason}.") from None
    if not reply.is_success:
        raise MetadataNotFetched(f"Its server answered with status {reply.status}.")
    if len(reply.body) >= at_most:
        raise MetadataNotFetched(f"It must have less than {at_most // 1024} KiB.")
    return reply.body.decode("utf-8", "replace")


async def charge_fetch_of(ports: Ports, org_id: UUID) -> None:
    """Count a fetch from an address that the organization, or a set-up link's reader, chose."""
    async with ports.storage.autocommit() as statements:
        wait = await statements.rates.take(f"metadata {org_id}", (METADATA_FETCH,), ports.clock.now())
    if wait > 0:
        raise Limited(wait)


async def parse(ports: Ports, text: str) -> tuple[SamlConfiguration, Sequence[SamlProblem]]:
    """Return the configuration that metadata describes, and the problems of the document. Values that it lacks are None."""
    if len(text) > MAX_METADATA_LENGTH:
        raise MetadataInvalid
    # Copied documents can begin with spaces or a byte order mark, which XML does not allow before its declaration.
    metadata = await ports.saml.service_provider_metadata(text.lstrip("\ufeff \t\r\n").encode("utf-8", "replace"))
    problems = [*check_validity(metadata, ports.clock.now())]
    configuration = SamlConfiguration(
        enabled=True,
        entity_id=metadata.entity_id,
        acs_url=metadata.acs_url,
        slo_url=metadata.slo_url,
        slo_response_url=metadata.slo_response_url,
        slo_certificate=await _choose_certificate(ports, metadata, problems),
        name_id_format=choose_name_id_format(metadata),
    )
    if metadata.slo_url is None and metadata.has_other_slo:
        message = "The application has single logout only with a binding that is not supported. Its SLO URL must accept HTTP-Redirect."
        problems.append(SamlProblem(SamlProblemCode.SLO_BINDING_UNSUPPORTED, False, message))
    if metadata.name_id_formats and choose_name_id_format(metadata) is None:
        message = (
            "The metadata names no NameID format that is supported. The application gets email addresses, unless you choose another format."
        )
        problems.append(SamlProblem(SamlProblemCode.NAME_ID_FORMAT_UNSUPPORTED, False, message))
    return with_canonical_urls(configuration), problems


async def _choose_certificate(ports: Ports, metadata: ServiceProviderMetadata, problems: list[SamlProblem]) -> str | None:
    """Return the usable certificate of the metadata that is valid longest, or None. Add the problems of the others."""
    usable = {}
    for pem in metadata.certificates[:MAX_CERTIFICATES]:
        try:
            certificate = await ports.certificates.read(pem)
            usable[certificate] = await ports.certificates.valid_until(certificate)
        except SloCertificateInvalid:
            message = "The metadata has a certificate that cannot be used. It needs an RSA key of at least 2048 bits."
            problems.append(SamlProblem(SamlProblemCode.SLO_CERTIFICATE_UNUSABLE, False, message))
    if len(usable) > 1:
        message = "The metadata has several certificates. The one that is valid longest is used; the others are not accepted."
        problems.append(SamlProblem(SamlProblemCode.SLO_CERTIFICATES_SEVERAL, False, message))
    return max(usable, key=lambda certificate: usable[certificate], default=None)


async def check(ports: Ports, caller: OrganizationCaller, slug: str) -> Sequence[SamlProblem]:
    """Return the problems of a service's SAML configuration and certificates, as they are now. Raises: ServiceNotFound."""
    service = await services.find(ports, caller, slug)
    async with ports.storage.reading() as read:
        configuration = await read.saml.configuration(service.org_id, service.id) or NOT_CONFIGURED
        certificate = await read.saml.certificate(service.org_id, service.id)
        same = (
            []
            if configuration.entity_id is None
            else await read.saml.services_with_entity_id(service.org_id, service.id, configuration.entity_id, MAX_DUPLICATES)
        )
    problems = []
    if not configuration.enabled:
        problems.append(SamlProblem(SamlProblemCode.NOT_ENABLED, True, "SAML is not enabled. Enable it so that users can sign in."))
    problems += check_addresses(configuration)
    problems += check_duplicates(same)
    problems += await _check_logout_certificate(ports, configuration)
    problems += check_certificate(certificate, ports.clock.now())
    return problems


async def _check_logout_certificate(ports: Ports, configuration: SamlConfiguration) -> list[SamlProblem]:
    if configuration.slo_certificate is None:
        return []
    return [*check_logout_certificate(await ports.certificates.valid_until(configuration.slo_certificate), ports.clock.now())]
