"""The SAML identity providers of services: their first setup, their configuration and their certificates.

Each service can have one SAML identity provider here, which signs users in to the service with SAML
2.0 (security X-8, X-11, decisions 172, 179, 184, 185, 186). `messages` has the SAML messages,
`sign_on` and `assertions` sign users in, and `logout` signs them out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID

from core.applications import services
from core.applications.model.services import Service, ServiceNotFound, ServiceSlugTaken, ServiceType
from core.applications.model.users import AccessSettings
from core.authentication.model.claim_document import ATTRIBUTE
from core.federation.saml import events, metadata
from core.federation.saml.model.configuration import (
    CERTIFICATE_YEARS,
    DEFAULT_ATTRIBUTES,
    NOT_CONFIGURED,
    PREVIOUS_KEPT,
    AttributeSourceUnknown,
    CertificateNotFound,
    CertificateState,
    NameIdFormat,
    NextCertificateExists,
    NextCertificateNotFound,
    PreviousCertificateNotFound,
    SamlCertificate,
    SamlConfiguration,
    SamlDisabled,
    SamlIdentityProvider,
    SamlNotEnabled,
    SamlSetup,
    SloCertificateReplaced,
    validate,
)
from core.federation.saml.model.metadata import SamlProblem, replace_described
from core.kernel import callers, values
from core.kernel.errors import refuse
from core.kernel.roles import Capability
from ports import Ports, storage

# The machine that created the certificate may have a faster clock than this one.
CLOCK_TOLERANCE = timedelta(minutes=1)

# Administration


async def get_configuration(ports: Ports, caller: callers.OrganizationCaller, service_slug: str) -> tuple[SamlConfiguration, bool]:
    """Return a service's SAML configuration and whether it has a certificate."""
    async with ports.storage.reading() as read:
        service = await read.services.by_slug(caller.acts_in.id, service_slug) or refuse(ServiceNotFound)
        return (
            await read.saml.configuration(service.org_id, service.id) or NOT_CONFIGURED,
            await read.saml.certificate(service.org_id, service.id) is not None,
        )


async def configure(ports: Ports, caller: callers.OrganizationCaller, service_slug: str, configuration: SamlConfiguration) -> None:
    """Replace the SAML configuration of a service. Our certificates are kept."""
    configuration = await prepare(ports, configuration)
    async with ports.storage.transaction(by=caller) as tx:
        await apply(tx, caller, service_slug, configuration, None, ports.clock.now())


async def prepare(ports: Ports, configuration: SamlConfiguration) -> SamlConfiguration:
    """Return the valid configuration, with its certificate in the stored form. Raises: SloCertificateInvalid; the errors of `validate`."""
    configuration = validate(configuration)
    if configuration.slo_certificate is None:
        return configuration
    return replace(configuration, slo_certificate=await ports.certificates.read(configuration.slo_certificate))


async def apply(
    tx: storage.Transaction,
    caller: callers.OrganizationCaller,
    service_slug: str,
    configuration: SamlConfiguration,
    certificate: SamlCertificate | None,
    now: datetime,
    *,
    replaces_slo_certificate: bool = True,
) -> None:
    """Store a prepared configuration. `certificate` signs if the service has no other one.

    Without `replaces_slo_certificate`, a change that replaces or removes the service's certificate for logouts is refused.
    """
    _, service = await services.lock_organization_for(tx, caller, service_slug, Capability.INTEGRATIONS_MANAGE)
    old = await tx.saml.configuration(service.org_id, service.id) or NOT_CONFIGURED
    if not replaces_slo_certificate and old.slo_certificate not in (None, configuration.slo_certificate):
        raise SloCertificateReplaced
    await _require_attributes(tx, service.org_id, configuration)
    if configuration != old:
        await tx.saml.configure(service.org_id, service.id, configuration, now)
        tx.record(events.saml_configured(service, old, configuration))
    if certificate is not None and await tx.saml.certificate(service.org_id, service.id) is None:
        await tx.saml.add_certificate(service.org_id, service.id, certificate)
        tx.record(events.saml_certificate_created(service, certificate))


async def _require_attributes(tx: storage.Transaction, org_id: UUID, configuration: SamlConfiguration) -> None:
    """Check that the organization has declared its attributes that are sources."""
    sources = [source for source in configuration.attribute_mapping or () if source.startswith(ATTRIBUTE)]
    if sources:
        declared = {ATTRIBUTE + attribute.name for attribute in await tx.attributes.list_declared(org_id)}
        for source in sources:
            if source not in declared:
                raise AttributeSourceUnknown(source)


async def disable(ports: Ports, caller: callers.OrganizationCaller, service_slug: str) -> None:
    """Disable SAML for a service and deactivate its certificates. Enabling it again needs a new certificate."""
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        _, service = await services.lock_organization_for(tx, caller, service_slug, Capability.INTEGRATIONS_MANAGE)
        was_enabled = await tx.saml.disable(service.org_id, service.id, now)
        had_certificate = await tx.saml.deactivate_certificates(service.org_id, service.id, now)
        if was_enabled or had_certificate:
            tx.record(events.saml_disabled(service))


async def create_certificate(ports: Ports, caller: callers.OrganizationCaller, service_slug: str) -> SamlCertificate:
    """Create the certificate for all further signatures.

    All others are deactivated at once, and their keys deleted (security X-11).
    """
    async with ports.storage.reading() as read:  # check before generating a key, which takes long
        service = await read.services.by_slug(caller.acts_in.id, service_slug) or refuse(ServiceNotFound)
        await _require_enabled(read, service.org_id, service.id)
    certificate = await ports.certificates.create(caller.acts_in.slug, service_slug, ports.clock.now(), CERTIFICATE_YEARS)
    async with ports.storage.transaction(by=caller) as tx:
        _, service = await services.lock_organization_for(tx, caller, service_slug, Capability.INTEGRATIONS_MANAGE)
        await _require_enabled(tx, service.org_id, service.id)
        await tx.saml.deactivate_certificates(service.org_id, service.id, ports.clock.now())
        await tx.saml.add_certificate(service.org_id, service.id, certificate)
        tx.record(events.saml_certificate_created(service, certificate))
    return certificate


async def _require_enabled(read: storage.Reading | storage.Transaction, org_id: UUID, service_id: UUID) -> None:
    configuration = await read.saml.configuration(org_id, service_id)
    if configuration is None or not configuration.enabled:
        raise SamlNotEnabled


async def create_next_certificate(ports: Ports, caller: callers.OrganizationCaller, service_slug: str) -> SamlCertificate:
    """Create the certificate that `activate_certificate` will activate. The metadata contains it from now on."""
    async with ports.storage.reading() as read:  # check before generating a key, which takes long
        service = await read.services.by_slug(caller.acts_in.id, service_slug) or refuse(ServiceNotFound)
        await _require_no_next(read, service, ports.clock.now())
    certificate = await ports.certificates.create(caller.acts_in.slug, service_slug, ports.clock.now(), CERTIFICATE_YEARS)
    async with ports.storage.transaction(by=caller) as tx:
        _, service = await services.lock_organization_for(tx, caller, service_slug, Capability.INTEGRATIONS_MANAGE)
        await _require_no_next(tx, service, ports.clock.now())
        # One that has expired is not in the way.
        await tx.saml.move_certificate(service.org_id, service.id, [CertificateState.NEXT], None, ports.clock.now())
        await tx.saml.add_certificate(service.org_id, service.id, certificate, CertificateState.NEXT)
        tx.record(events.saml_next_certificate_created(service, certificate))
    return certificate


async def _require_no_next(read: storage.Reading | storage.Transaction, service: Service, now: datetime) -> None:
    await _require_enabled(read, service.org_id, service.id)
    certificates = await read.saml.certificates(service.org_id, service.id, now)
    if CertificateState.ACTIVE not in certificates:
        raise CertificateNotFound
    if CertificateState.NEXT in certificates:
        raise NextCertificateExists


async def delete_next_certificate(ports: Ports, caller: callers.OrganizationCaller, service_slug: str) -> None:
    """Delete the next certificate, which leaves the metadata."""
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        _, service = await services.lock_organization_for(tx, caller, service_slug, Capability.INTEGRATIONS_MANAGE)
        certificates = await tx.saml.certificates(service.org_id, service.id, now)
        certificate = certificates.get(CertificateState.NEXT) or refuse(NextCertificateNotFound)
        await tx.saml.move_certificate(service.org_id, service.id, [CertificateState.NEXT], None, now)
        tx.record(events.saml_next_certificate_deleted(service, certificate))


async def activate_certificate(ports: Ports, caller: callers.OrganizationCaller, service_slug: str) -> tuple[SamlCertificate, datetime]:
    """Sign with the next certificate from now on. Return it, and the time until which the activation can be undone."""
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        _, service = await services.lock_organization_for(tx, caller, service_slug, Capability.INTEGRATIONS_MANAGE)
        org_id, service_id = service.org_id, service.id
        certificate = (await tx.saml.certificates(org_id, service_id, now)).get(CertificateState.NEXT) or refuse(NextCertificateNotFound)
        await tx.saml.move_certificate(org_id, service_id, [CertificateState.PREVIOUS], None, now)
        await tx.saml.move_certificate(org_id, service_id, [CertificateState.ACTIVE], CertificateState.PREVIOUS, now)
        await tx.saml.move_certificate(org_id, service_id, [CertificateState.NEXT], CertificateState.ACTIVE, now)
        tx.record(events.saml_certificate_activated(service, certificate))
    return certificate, now + PREVIOUS_KEPT


async def undo_activation(ports: Ports, caller: callers.OrganizationCaller, service_slug: str) -> SamlCertificate:
    """Sign with the previous certificate again, and return it. The active certificate becomes the next certificate."""
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        _, service = await services.lock_organization_for(tx, caller, service_slug, Capability.INTEGRATIONS_MANAGE)
        org_id, service_id = service.org_id, service.id
        certificates = await tx.saml.certificates(org_id, service_id, now)
        certificate = certificates.get(CertificateState.PREVIOUS) or refuse(PreviousCertificateNotFound)
        if CertificateState.NEXT in certificates:
            raise NextCertificateExists
        await tx.saml.move_certificate(org_id, service_id, [CertificateState.NEXT], None, now)
        await tx.saml.move_certificate(org_id, service_id, [CertificateState.ACTIVE], CertificateState.NEXT, now)
        await tx.saml.move_certificate(org_id, service_id, [CertificateState.PREVIOUS], CertificateState.ACTIVE, now)
        tx.record(events.saml_activation_undone(service, certificate))
    return certificate


async def list_certificates(
    ports: Ports, caller: callers.OrganizationCaller, service_slug: str
) -> Mapping[CertificateState, SamlCertificate]:
    """Return the certificates of a service that have a key."""
    async with ports.storage.reading() as read:
        service = await read.services.by_slug(caller.acts_in.id, service_slug) or refuse(ServiceNotFound)
        return await read.saml.certificates(service.org_id, service.id, ports.clock.now())


async def get_certificate(ports: Ports, caller: callers.OrganizationCaller, service_slug: str) -> SamlCertificate:
    """Return the active certificate of a service."""
    certificates = await list_certificates(ports, caller, service_slug)
    return certificates.get(CertificateState.ACTIVE) or refuse(CertificateNotFound)


async def get_next_certificate(ports: Ports, caller: callers.OrganizationCaller, service_slug: str) -> SamlCertificate:
    """Return the next certificate of a service."""
    certificates = await list_certificates(ports, caller, service_slug)
    return certificates.get(CertificateState.NEXT) or refuse(NextCertificateNotFound)


# Public


async def find_provider(
    read: storage.Reading | storage.Transaction, org_slug: str, service_slug: str, now: datetime
) -> SamlIdentityProvider:
    """Return the identity provider of a service if it is active (security X-8)."""
    return await require_provider(read, org_slug, await read.saml.setup_by_slug(org_slug, service_slug), now)


async def require_provider(
    read: storage.Reading | storage.Transaction, org_slug: str, setup: SamlSetup | None, now: datetime
) -> SamlIdentityProvider:
    """Return the identity provider of a setup that was looked up in this organization."""
    await services.require_open(read, org_slug, setup.service if setup else None)
    return active_provider(setup or refuse(ServiceNotFound), now) or refuse(SamlDisabled)


def active_provider(setup: SamlSetup, now: datetime) -> SamlIdentityProvider | None:
    """Return the identity provider, or None if it is not active.

    It is active if the organization is active, SAML enabled and the certificate valid.
    """
    configuration, certificate = setup.configuration, setup.certificate
    if setup.service.status is not callers.OrganizationStatus.ACTIVE or configuration is None or certificate is None:
        return None
    if not configuration.enabled or not certificate.valid_from - CLOCK_TOLERANCE <= now < certificate.valid_until:
        return None
    assert configuration.entity_id is not None, "`validate` requires it to enable SAML"
    assert configuration.acs_url is not None, "`validate` requires it to enable SAML"
    mapping = configuration.attribute_mapping
    return SamlIdentityProvider(
        service=setup.service,
        entity_id=configuration.entity_id,
        acs_url=configuration.acs_url,
        slo_url=configuration.slo_url,
        slo_response_url=configuration.slo_response_url,
        slo_certificate=configuration.slo_certificate,
        name_id_format=configuration.name_id_format or NameIdFormat.EMAIL,
        attribute_mapping=DEFAULT_ATTRIBUTES if mapping is None else mapping,
        attribute_formats=configuration.attribute_formats or {},
        sign_assertions=configuration.sign_assertions,
        sign_response=configuration.sign_response,
        certificate=certificate,
    )


async def provider_of(read: storage.Reading, service: callers.ServiceContext, now: datetime) -> SamlIdentityProvider | None:
    """Return the identity provider of this service, or None if it is not active."""
    setup = await read.saml.setup_by_slug(service.org_slug, service.slug)
    return None if setup is None else active_provider(setup, now)


async def load_provider(ports: Ports, org_slug: str, service_slug: str) -> SamlIdentityProvider:
    """Return the identity provider of a service if it is active, before the request itself is read."""
    async with ports.storage.reading() as read:
        return await find_provider(read, org_slug, service_slug, ports.clock.now())


async def create_metadata(ports: Ports, org_slug: str, service_slug: str) -> bytes:
    """Return the metadata document of a service's identity provider, with all certificates that have a key."""
    now = ports.clock.now()
    async with ports.storage.reading() as read:
        provider = await find_provider(read, org_slug, service_slug, now)
        certificates = await read.saml.certificates(provider.service.org_id, provider.service.id, now)
    if CertificateState.ACTIVE not in certificates:  # SAML was disabled between the two reads
        raise SamlDisabled
    return await ports.saml.metadata(provider, list(certificates.values()))


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


async def set_up(
    ports: Ports, caller: callers.OrganizationCaller, slug: str, settings: ServiceProviderSettings, *, replaces_slo_certificate: bool = True
) -> Sequence[SamlProblem]:
    """Replace the SAML configuration of a service, and return the problems of its metadata.

    If SAML is enabled and the service has no certificate yet, create one. Without `replaces_slo_certificate`, a change that replaces
    or removes the service's certificate for logouts is refused.

    Raises: SloCertificateReplaced; the errors that `metadata.read_source`, `metadata.parse` and `configuration.prepare` raise.
    """
    _, has_certificate = await get_configuration(ports, caller, slug)
    described, problems = await _resolve(ports, caller, settings)
    configuration = await prepare(ports, described)
    certificate = None
    if configuration.enabled and not has_certificate:
        certificate = await ports.certificates.create(caller.acts_in.slug, slug, ports.clock.now(), CERTIFICATE_YEARS)
    async with ports.storage.transaction(by=caller) as tx:
        now = ports.clock.now()
        await apply(tx, caller, slug, configuration, certificate, now, replaces_slo_certificate=replaces_slo_certificate)
    return problems


async def create_service(
    ports: Ports, caller: callers.OrganizationCaller, name: str, settings: ServiceProviderSettings, access: AccessSettings
) -> tuple[Service, Sequence[SamlProblem]]:
    """Create a web application that signs users in with SAML, and return it and the problems of its metadata.

    Its slug is the first free one that resembles its name.
    """
    described, problems = await _resolve(ports, caller, settings)
    configuration = await prepare(ports, described)

    async def create(slug: values.Slug) -> Service:
        draft = services.draft(ports, caller.acts_in.id, slug, name, ServiceType.WEB, {}, access)
        certificate = await ports.certificates.create(caller.acts_in.slug, slug, ports.clock.now(), CERTIFICATE_YEARS)
        async with ports.storage.transaction(by=caller) as tx:
            created = await services.add(tx, caller, draft)
            await apply(tx, caller, slug, configuration, certificate, ports.clock.now())
        return created.service

    return await values.create_with_free_slug(name, "application", create, ServiceSlugTaken), problems


async def _resolve(
    ports: Ports, caller: callers.OrganizationCaller, settings: ServiceProviderSettings
) -> tuple[SamlConfiguration, Sequence[SamlProblem]]:
    if not settings.metadata and not settings.metadata_url:
        return settings.configuration, ()
    text = await metadata.read_source(ports, caller, settings.metadata, settings.metadata_url)
    described, problems = await metadata.parse(ports, text)
    return replace_described(settings.configuration, described), problems
