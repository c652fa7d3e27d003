"""Setting up SAML for a service in one step: from its metadata, or from single values, to a working sign-on."""

from collections.abc import Sequence
from dataclasses import dataclass

from core.applications import services
from core.applications.model.services import Service, ServiceSlugTaken, ServiceType
from core.federation.saml import configuration as saml
from core.federation.saml import metadata
from core.federation.saml.model.configuration import CERTIFICATE_YEARS, SamlConfiguration
from core.federation.saml.model.metadata import SamlProblem, replace_described
from core.kernel.callers import OrganizationCaller
from core.kernel.values import Slug, create_with_free_slug
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
) -> Sequence[SamlProblem]:
    """Replace the SAML configuration of a service, and return the problems of its metadata.

    If SAML is enabled and the service has no certificate yet, create one. Without `replaces_slo_certificate`, a change that replaces
    or removes the service's certificate for logouts is refused.

    Raises: SloCertificateReplaced; the errors of `metadata.read_source`, of `metadata.parse` and of `configuration.prepare`.
    """
    _, has_certificate = await saml.get_configuration(ports, caller, slug)
    described, problems = await _resolve(ports, caller, settings)
    configuration = await saml.prepare(ports, described)
    certificate = None
    if configuration.enabled and not has_certificate:
        certificate = await ports.certificates.create(caller.acts_in.slug, slug, ports.clock.now(), CERTIFICATE_YEARS)
    async with ports.storage.transaction(by=caller) as tx:
        now = ports.clock.now()
        await saml.apply(tx, caller, slug, configuration, certificate, now, replaces_slo_certificate=replaces_slo_certificate)
    return problems


async def create_service(
    ports: Ports, caller: OrganizationCaller, name: str, settings: ServiceProviderSettings
) -> tuple[Service, Sequence[SamlProblem]]:
    """Create a web application that signs users in with SAML, and return it and the problems of its metadata.

    Its slug is the first free one that resembles its name.
    """
    described, problems = await _resolve(ports, caller, settings)
    configuration = await saml.prepare(ports, described)

    async def create(slug: Slug) -> Service:
        draft = services.draft(ports, caller.acts_in.id, slug, name, ServiceType.WEB, {})
        certificate = await ports.certificates.create(caller.acts_in.slug, slug, ports.clock.now(), CERTIFICATE_YEARS)
        async with ports.storage.transaction(by=caller) as tx:
            created = await services.add(tx, caller, draft)
            await saml.apply(tx, caller, slug, configuration, certificate, ports.clock.now())
        return created.service

    return await create_with_free_slug(name, "application", create, ServiceSlugTaken), problems


async def _resolve(
    ports: Ports, caller: OrganizationCaller, settings: ServiceProviderSettings
) -> tuple[SamlConfiguration, Sequence[SamlProblem]]:
    if not settings.metadata and not settings.metadata_url:
        return settings.configuration, ()
    text = await metadata.read_source(ports, caller, settings.metadata, settings.metadata_url)
    described, problems = await metadata.parse(ports, text)
    return replace_described(settings.configuration, described), problems
