"""SAML: each service can have an identity provider of ours, which signs people in there (organizations.md sections 2.6 and 4.3; decisions,
points 172 to 187; security.md section 14; SAML 2.0).

Here is how it is set up, and its certificates. What is said to services is in core/saml_messages.py, signing people in in
core/saml_sign_on.py, and signing them out in core/saml_logout.py.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from core.applications import services
from core.applications.services_rules import ServiceNotFound
from core.federation.saml import events
from core.kernel.errors import refuse
from core.kernel.principals import Capability, OrganizationStatus

if TYPE_CHECKING:
    from uuid import UUID

    from core.kernel.principals import Member
    from ports import Ports
    from ports.storage import Reading, Transaction
from core.federation.saml.configuration_rules import (
    DEFAULT_ATTRIBUTES,
    CERTIFICATE_YEARS,
    NOT_CONFIGURED,
    SamlCertificate,
    SamlConfiguration,
    SamlIdentityProvider,
    NameIdFormat,
    CertificateNotFound,
    SamlNotEnabled,
    SamlDisabled,
    SamlSetup,
    validate,
)

# What members do


async def get_configuration(ports: Ports, caller: Member, service_slug: str) -> tuple[SamlConfiguration, bool]:
    """How it is set up, and whether there is an active certificate (decisions, point 184). Raises ServiceNotFound."""
    async with ports.storage.reading() as read:
        service = await read.services.by_slug(caller.acts_in.id, service_slug) or refuse(ServiceNotFound)
        return (
            await read.saml.configuration(service.org_id, service.id) or NOT_CONFIGURED,
            await read.saml.certificate(service.org_id, service.id) is not None,
        )


async def configure(ports: Ports, caller: Member, service_slug: str, wanted: SamlConfiguration) -> None:
    """Set it up in the place of what was there (decisions, point 185). Certificates stay.

    Raises what `checked` and services.lock_organization_for raise.
    """
    validate(wanted)
    async with ports.storage.transaction(by=caller) as tx:
        _, service = await services.lock_organization_for(tx, caller, service_slug, Capability.INTEGRATIONS_MANAGE)
        old = await tx.saml.configuration(service.org_id, service.id) or NOT_CONFIGURED
        if wanted != old:
            await tx.saml.configure(service.org_id, service.id, wanted, ports.clock.now())
            tx.record(events.saml_configured(service, old, wanted))


async def disable(ports: Ports, caller: Member, service_slug: str) -> None:
    """Switch it off, and end its certificate: another one is needed to switch it on again (decisions, point 186).

    Raises what services.lock_organization_for raises.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        _, service = await services.lock_organization_for(tx, caller, service_slug, Capability.INTEGRATIONS_MANAGE)
        switched_off = await tx.saml.disable(service.org_id, service.id, now)
        deactivated = await tx.saml.deactivate_certificate(service.org_id, service.id, now)
        if switched_off or deactivated:
            tx.record(events.saml_disabled(service))


async def create_certificate(ports: Ports, caller: Member, service_slug: str) -> SamlCertificate:
    """A new certificate, with which everything is signed from now on; the one before it is over at once, and its key gone (X-11).

    Raises SamlNotEnabled, and what services.lock_organization_for raises.
    """
    async with ports.storage.reading() as read:  # so that nobody has keys made, which takes long, for nothing
        service = await read.services.by_slug(caller.acts_in.id, service_slug) or refuse(ServiceNotFound)
        await _check_enabled(read, service.org_id, service.id)
    certificate = await ports.certificates.new(caller.acts_in.slug, service_slug, ports.clock.now(), CERTIFICATE_YEARS)
    async with ports.storage.transaction(by=caller) as tx:
        _, service = await services.lock_organization_for(tx, caller, service_slug, Capability.INTEGRATIONS_MANAGE)
        await _check_enabled(tx, service.org_id, service.id)
        await tx.saml.deactivate_certificate(service.org_id, service.id, ports.clock.now())
        await tx.saml.add_certificate(service.org_id, service.id, certificate)
        tx.record(events.saml_certificate_created(service, certificate))
    return certificate


async def _check_enabled(read: Reading | Transaction, org_id: UUID, service_id: UUID) -> None:
    configuration = await read.saml.configuration(org_id, service_id)
    if configuration is None or not configuration.enabled:
        raise SamlNotEnabled


# What everybody meets


async def find_provider(read: Reading | Transaction, org_slug: str, service_slug: str, now: datetime) -> SamlIdentityProvider:
    """The identity provider of this service, if it is open: organization active, SAML enabled, certificate valid (decisions, point 179;
    security.md X-8). Raises OrganizationNotFound, OrganizationNotActive, ServiceNotFound, SamlOff."""
    setup = await read.saml.setup(org_slug, service_slug)
    await services.require_open(read, org_slug, setup.service if setup else None)
    return active_provider(setup or refuse(ServiceNotFound), now) or refuse(SamlDisabled)


def active_provider(setup: SamlSetup, now: datetime) -> SamlIdentityProvider | None:
    """The identity provider, if people can be signed in, and out, there now."""
    chosen, key = setup.configuration, setup.certificate
    if setup.service.status is not OrganizationStatus.ACTIVE or chosen is None or key is None:
        return None
    # The clock of a machine that made it a moment ago may be ahead of ours.
    if not chosen.enabled or not key.valid_from - timedelta(minutes=1) <= now < key.valid_until:
        return None
    assert chosen.entity_id is not None, "one that is enabled has all of them"
    assert chosen.acs_url is not None, "one that is enabled has all of them"
    return SamlIdentityProvider(
        service=setup.service,
        entity_id=chosen.entity_id,
        acs_url=chosen.acs_url,
        slo_url=chosen.slo_url,
        name_id_format=chosen.name_id_format or NameIdFormat.EMAIL,
        attribute_mapping=DEFAULT_ATTRIBUTES if chosen.attribute_mapping is None else chosen.attribute_mapping,
        sign_assertions=chosen.sign_assertions,
        sign_response=chosen.sign_response,
        certificate=key,
    )


async def check_enabled(ports: Ports, org_slug: str, service_slug: str) -> None:
    """Raises what `find` raises; before anything that was sent is looked at (decisions, point 16)."""
    async with ports.storage.reading() as read:
        await find_provider(read, org_slug, service_slug, ports.clock.now())


async def create_metadata(ports: Ports, org_slug: str, service_slug: str) -> bytes:
    """What a service needs to know of its identity provider (decisions, point 172). Raises what `find` raises."""
    async with ports.storage.reading() as read:
        found = await find_provider(read, org_slug, service_slug, ports.clock.now())
    return await ports.saml.metadata(found)


async def get_certificate(ports: Ports, caller: Member, service_slug: str) -> SamlCertificate:
    """The active certificate. Raises ServiceNotFound, NoCertificate."""
    async with ports.storage.reading() as read:
        service = await read.services.by_slug(caller.acts_in.id, service_slug) or refuse(ServiceNotFound)
        return await read.saml.certificate(service.org_id, service.id) or refuse(CertificateNotFound)
