"""Setting up SAML for a service in one step: from its metadata, or from single values, to a working sign-on."""

from dataclasses import dataclass, replace
from uuid import UUID

from core.applications import services
from core.applications.model.services import Service, ServiceSlugTaken, ServiceType
from core.federation.saml import configuration as saml
from core.federation.saml import metadata
from core.federation.saml.model.configuration import CERTIFICATE_YEARS, SamlConfiguration
from core.kernel.callers import OrganizationCaller
from core.kernel.values import Slug, create_with_free_slug, new_id
from ports import Ports


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceProviderSettings:
    """The SAML settings of a service as an admin enters them. Metadata, or its URL, replaces the values that it has."""

    configuration: SamlConfiguration
    metadata: str = ""
    metadata_url: str = ""

    @property
    def is_empty(self) -> bool:
        """Return whether nothing was entered that describes the service."""
        return not (self.metadata or self.metadata_url or self.configuration.entity_id or self.configuration.acs_url)


async def save(
    ports: Ports, caller: OrganizationCaller, slug: str, settings: ServiceProviderSettings, *, replaces_slo_certificate: bool = True
) -> None:
    """Replace the SAML configuration of a service. If it is enabled and has no certificate yet, create one.

    Raises: ServiceNotFound; the errors of `metadata.read_source`, of `configuration.configure` and of `SamlConfiguration`.
    """
    service = await services.find(ports, caller, slug)
    configuration = await _resolve(ports, caller, service.id, settings)
    await saml.configure(ports, caller, slug, configuration, replaces_slo_certificate=replaces_slo_certificate, creates_certificate=True)


async def create_service(ports: Ports, caller: OrganizationCaller, name: str, settings: ServiceProviderSettings) -> Service:
    """Create a web application that signs users in with SAML, with the first free slug that resembles its name.

    Raises: the errors of `services.create` and of `save`.
    """
    configuration = await saml.prepare(ports, await _resolve(ports, caller, new_id(), settings))

    async def create(slug: Slug) -> Service:
        draft = services.draft(ports, caller, slug, name, ServiceType.WEB, {})
        certificate = await ports.certificates.create(caller.acts_in.slug, slug, ports.clock.now(), CERTIFICATE_YEARS)
        async with ports.storage.transaction(by=caller) as tx:
            created = await services.add(tx, caller, draft)
            await saml.apply(tx, caller, slug, configuration, certificate, ports.clock.now())
        return created.service

    return await create_with_free_slug(name, "application", create, ServiceSlugTaken)


async def _resolve(ports: Ports, caller: OrganizationCaller, service_id: UUID, settings: ServiceProviderSettings) -> SamlConfiguration:
    if not settings.metadata and not settings.metadata_url:
        return settings.configuration
    text = await metadata.read_source(ports, settings.metadata, settings.metadata_url)
    read, _ = await metadata.describe(ports, caller.acts_in.id, service_id, text)
    return replace(
        settings.configuration,
        entity_id=read.entity_id,
        acs_url=read.acs_url,
        slo_url=read.slo_url,
        slo_certificate=read.slo_certificate,
        name_id_format=read.name_id_format,
    )
