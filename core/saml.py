"""SAML: each service can have an identity provider of ours, which signs people in there (organizations.md sections 2.6 and 4.3; decisions,
points 172 to 187; security.md section 14; SAML 2.0).

Here is how it is set up, and its certificates. What is said to services is in core/saml_messages.py, signing people in in
core/saml_sign_on.py, and signing them out in core/saml_logout.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final
from uuid import UUID

from core import events, services, uris
from core.access import Capability, OrganizationStatus
from core.errors import Invalid, NotFound, refuse
from core.services import ServiceNotFound
from core.values import is_plain

if TYPE_CHECKING:
    from core.access import Member, ServiceContext
    from ports import Ports
    from ports.storage import Reading, Transaction

CERTIFICATE_YEARS: Final = 3
LONGEST_ENTITY_ID: Final = 1024  # SAML core, section 8.3.6
LONGEST_URL: Final = 2048
LONGEST_ATTRIBUTE: Final = 256


class EntityIdMissing(Invalid):
    """To enable SAML, send the entity_id of the application."""


class EntityIdInvalid(Invalid):
    """The entity_id must be what the application calls itself: 1 to 1024 characters, without spaces around them."""


class AcsUrlMissing(Invalid):
    """To enable SAML, send the acs_url of the application, to which responses go."""


class AcsUrlInvalid(Invalid):
    """The acs_url is not valid. It begins with https://, or with http:// on localhost, and has no user name and no fragment."""


class SloUrlInvalid(Invalid):
    """The slo_url is not valid. It begins with https://, or with http:// on localhost, and has no user name and no fragment."""


class NameIdFormatUnknown(Invalid):
    """The name_id_format must be emailAddress, unspecified, persistent or transient, or the URN of one of them."""


class AttributeSourceUnknown(Invalid):
    """The attribute_mapping has a source that there is not. The sources are email and id."""


class AttributeNameInvalid(Invalid):
    """The names in the attribute_mapping must have 1 to 256 characters, without spaces around them, and be different from each other."""


class NothingSigned(Invalid):
    """An application could not trust what nobody has signed. Leave sign_assertions or sign_response true."""


class SamlNotEnabled(Invalid):
    """SAML is not enabled for this service. Enable it first, then make a certificate."""


class NoCertificate(NotFound):
    """This service has no active certificate. Make one."""


class SamlOff(NotFound):
    """This service does not sign people in with SAML."""


class NameIdFormat(StrEnum):
    """By what a service knows people (SAML core, section 8.3)."""

    EMAIL = "urn:oasis:names:tc:SAML:1.1:nameid-format:emailAddress"
    UNSPECIFIED = "urn:oasis:names:tc:SAML:1.1:nameid-format:unspecified"
    PERSISTENT = "urn:oasis:names:tc:SAML:2.0:nameid-format:persistent"
    TRANSIENT = "urn:oasis:names:tc:SAML:2.0:nameid-format:transient"

    @classmethod
    def parse(cls, text: str) -> NameIdFormat:
        """The format with this URN or short name. Raises NameIdFormatUnknown."""
        for one in cls:
            if text in (one.value, one.value.rpartition(":")[2]):
                return one
        raise NameIdFormatUnknown


class Source(StrEnum):
    """What attributes are made of (organizations.md section 2.6)."""

    EMAIL = "email"
    ID = "id"


# Where nothing is chosen (decisions, point 182).
ATTRIBUTES: Final[Mapping[str, str]] = {source.value: source.value for source in Source}


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """How the identity provider of a service is set up (organizations.md section 2.6). `name_id_format` is None only where nothing was set
    up yet, and `attribute_mapping` for ATTRIBUTES."""

    enabled: bool = False
    entity_id: str | None = None
    acs_url: str | None = None
    slo_url: str | None = None
    name_id_format: NameIdFormat | None = None
    attribute_mapping: Mapping[str, str] | None = None
    sign_assertions: bool = True
    sign_response: bool = True


NOTHING_SET_UP: Final = Configuration()


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """A key to sign with, and what vouches for it, X.509 in PEM; the key is PKCS #8 in PEM. It is sealed until it is asked for, where
    something is signed; what cannot be opened raises ports.crypto.SealBroken then. Times are UTC."""

    id: UUID
    certificate: str
    private_key: Callable[[], bytes] = field(repr=False, compare=False)
    valid_from: datetime
    valid_until: datetime
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Setup:
    """The identity provider of a service as it stands: None for what there is not."""

    service: ServiceContext
    configuration: Configuration | None
    certificate: Certificate | None


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityProvider:
    """One that is open: its service, what the service is called and where its messages go, and what they are signed with."""

    service: ServiceContext
    entity_id: str  # the service's own
    acs_url: str
    slo_url: str | None
    name_id_format: NameIdFormat
    attribute_mapping: Mapping[str, str]
    sign_assertions: bool
    sign_response: bool
    certificate: Certificate


# Where it is


def path(org_slug: str, service_slug: str, what: str = "") -> str:
    """Where the identity provider of a service is, below the base URL: `metadata`, `sso`, `slo`, `authenticate`; its own is its id."""
    return f"/saml/{org_slug}/{service_slug}{what and '/'}{what}"


def address(base_url: str, service: ServiceContext, what: str = "") -> str:
    """The same as an absolute address."""
    return base_url + path(service.org_slug, service.slug, what)


# What may be set up


def checked(wanted: Configuration) -> Configuration:
    """The configuration, if it is sound. Raises EntityIdMissing, AcsUrlMissing, EntityIdInvalid, AcsUrlInvalid, SloUrlInvalid,
    AttributeSourceUnknown, AttributeNameInvalid, NothingSigned."""
    if wanted.enabled and not wanted.entity_id:
        raise EntityIdMissing
    if wanted.enabled and not wanted.acs_url:
        raise AcsUrlMissing
    if wanted.entity_id is not None and not _is_name(wanted.entity_id, LONGEST_ENTITY_ID):
        raise EntityIdInvalid
    if wanted.acs_url is not None and not _can_be_sent_to(wanted.acs_url):
        raise AcsUrlInvalid
    if wanted.slo_url is not None and not _can_be_sent_to(wanted.slo_url):
        raise SloUrlInvalid
    if wanted.attribute_mapping is not None:
        if not set(wanted.attribute_mapping) <= set(Source):
            raise AttributeSourceUnknown
        names = list(wanted.attribute_mapping.values())
        if len(set(names)) < len(names) or not all(_is_name(name, LONGEST_ATTRIBUTE) for name in names):
            raise AttributeNameInvalid
    if not wanted.sign_assertions and not wanted.sign_response:
        raise NothingSigned
    return wanted


def _is_name(text: str, longest: int) -> bool:
    return 0 < len(text) <= longest and text == text.strip() and is_plain(text)


def _can_be_sent_to(url: str) -> bool:
    return len(url) <= LONGEST_URL and uris.is_web(url)


# What members do


async def current(ports: Ports, caller: Member, service_slug: str) -> tuple[Configuration, bool]:
    """How it is set up, and whether there is an active certificate (decisions, point 184). Raises ServiceNotFound."""
    async with ports.storage.reading() as read:
        service = await read.services.by_slug(caller.acts_in.id, service_slug) or refuse(ServiceNotFound)
        return (
            await read.saml.configuration(service.org_id, service.id) or NOTHING_SET_UP,
            await read.saml.certificate(service.org_id, service.id) is not None,
        )


async def configure(ports: Ports, caller: Member, service_slug: str, wanted: Configuration) -> None:
    """Set it up in the place of what was there (decisions, point 185). Certificates stay.

    Raises what `checked` and services.enter raise.
    """
    checked(wanted)
    async with ports.storage.transaction(by=caller) as tx:
        _, service = await services.enter(tx, caller, service_slug, Capability.INTEGRATIONS_MANAGE)
        old = await tx.saml.configuration(service.org_id, service.id) or NOTHING_SET_UP
        if wanted != old:
            await tx.saml.configure(service.org_id, service.id, wanted, ports.clock.now())
            tx.record(events.saml_configured(service, old, wanted))


async def disable(ports: Ports, caller: Member, service_slug: str) -> None:
    """Switch it off, and end its certificate: another one is needed to switch it on again (decisions, point 186).

    Raises what services.enter raises.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        _, service = await services.enter(tx, caller, service_slug, Capability.INTEGRATIONS_MANAGE)
        switched_off = await tx.saml.disable(service.org_id, service.id, now)
        deactivated = await tx.saml.deactivate_certificate(service.org_id, service.id, now)
        if switched_off or deactivated:
            tx.record(events.saml_disabled(service))


async def new_certificate(ports: Ports, caller: Member, service_slug: str) -> Certificate:
    """A new certificate, with which everything is signed from now on; the one before it is over at once, and its key gone (X-11).

    Raises SamlNotEnabled, and what services.enter raises.
    """
    async with ports.storage.reading() as read:  # so that nobody has keys made, which takes long, for nothing
        service = await read.services.by_slug(caller.acts_in.id, service_slug) or refuse(ServiceNotFound)
        await _check_enabled(read, service.org_id, service.id)
    certificate = await ports.certificates.new(caller.acts_in.slug, service_slug, ports.clock.now(), CERTIFICATE_YEARS)
    async with ports.storage.transaction(by=caller) as tx:
        _, service = await services.enter(tx, caller, service_slug, Capability.INTEGRATIONS_MANAGE)
        await _check_enabled(tx, service.org_id, service.id)
        await tx.saml.deactivate_certificate(service.org_id, service.id, ports.clock.now())
        await tx.saml.add_certificate(service.org_id, service.id, certificate)
        tx.record(events.saml_certificate_created(service, certificate))
    return certificate


async def _check_enabled(read: Reading | Transaction, org_id: UUID, service_id: UUID) -> None:
    configuration = await read.saml.configuration(org_id, service_id)
    if configuration is None or not configuration.enabled:
        raise SamlNotEnabled


async def certificate(ports: Ports, caller: Member, service_slug: str) -> Certificate:
    """The active certificate. Raises ServiceNotFound, NoCertificate."""
    async with ports.storage.reading() as read:
        service = await read.services.by_slug(caller.acts_in.id, service_slug) or refuse(ServiceNotFound)
        return await read.saml.certificate(service.org_id, service.id) or refuse(NoCertificate)


# What everybody meets


async def find(read: Reading | Transaction, org_slug: str, service_slug: str, now: datetime) -> IdentityProvider:
    """The identity provider of this service, if it is open: organization active, SAML enabled, certificate valid (decisions, point 179;
    security.md X-8). Raises OrganizationNotFound, OrganizationNotActive, ServiceNotFound, SamlOff."""
    setup = await read.saml.setup(org_slug, service_slug)
    await services.check_open(read, org_slug, setup.service if setup else None)
    return opened(setup or refuse(ServiceNotFound), now) or refuse(SamlOff)


def opened(setup: Setup, now: datetime) -> IdentityProvider | None:
    """The identity provider, if people can be signed in, and out, there now."""
    chosen, key = setup.configuration, setup.certificate
    if setup.service.status is not OrganizationStatus.ACTIVE or chosen is None or key is None:
        return None
    # The clock of a machine that made it a moment ago may be ahead of ours.
    if not chosen.enabled or not key.valid_from - timedelta(minutes=1) <= now < key.valid_until:
        return None
    assert chosen.entity_id is not None, "one that is enabled has all of them"
    assert chosen.acs_url is not None, "one that is enabled has all of them"
    return IdentityProvider(
        service=setup.service,
        entity_id=chosen.entity_id,
        acs_url=chosen.acs_url,
        slo_url=chosen.slo_url,
        name_id_format=chosen.name_id_format or NameIdFormat.EMAIL,
        attribute_mapping=ATTRIBUTES if chosen.attribute_mapping is None else chosen.attribute_mapping,
        sign_assertions=chosen.sign_assertions,
        sign_response=chosen.sign_response,
        certificate=key,
    )


async def check_open(ports: Ports, org_slug: str, service_slug: str) -> None:
    """Raises what `find` raises; before anything that was sent is looked at (decisions, point 16)."""
    async with ports.storage.reading() as read:
        await find(read, org_slug, service_slug, ports.clock.now())


async def metadata(ports: Ports, org_slug: str, service_slug: str) -> bytes:
    """What a service needs to know of its identity provider (decisions, point 172). Raises what `find` raises."""
    async with ports.storage.reading() as read:
        found = await find(read, org_slug, service_slug, ports.clock.now())
    return await ports.saml.metadata(found)
