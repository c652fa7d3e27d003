"""Entities, refusals and pure rules of `core.federation.saml.configuration`."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from core.kernel import uris
from core.kernel.errors import Invalid, NotFound
from core.kernel.values import is_printable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime
    from uuid import UUID

    from core.kernel.principals import ServiceContext

CERTIFICATE_YEARS: Final = 3
MAX_ENTITY_ID_LENGTH: Final = 1024  # SAML core, section 8.3.6
MAX_URL_LENGTH: Final = 2048
MAX_ATTRIBUTE_NAME_LENGTH: Final = 256


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


class SignatureRequired(Invalid):
    """An application could not trust what nobody has signed. Leave sign_assertions or sign_response true."""


class SamlNotEnabled(Invalid):
    """SAML is not enabled for this service. Enable it first, then make a certificate."""


class CertificateNotFound(NotFound):
    """This service has no active certificate. Make one."""


class SamlDisabled(NotFound):
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


class AttributeSource(StrEnum):
    """What attributes are made of (organizations.md section 2.6)."""

    EMAIL = "email"
    ID = "id"


# Where nothing is chosen (decisions, point 182).
DEFAULT_ATTRIBUTES: Final[Mapping[str, str]] = {source.value: source.value for source in AttributeSource}


@dataclass(frozen=True, slots=True, kw_only=True)
class SamlConfiguration:
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


NOT_CONFIGURED: Final = SamlConfiguration()


@dataclass(frozen=True, slots=True, kw_only=True)
class SamlCertificate:
    """A key to sign with, and what vouches for it, X.509 in PEM; the key is PKCS #8 in PEM. It is sealed until it is asked for, where
    something is signed; what cannot be opened raises ports.crypto.SealBroken then. Times are UTC."""

    id: UUID
    certificate: str
    private_key: Callable[[], bytes] = field(repr=False, compare=False)
    valid_from: datetime
    valid_until: datetime
    created_at: datetime


@dataclass(frozen=True, slots=True)
class SamlSetup:
    """The identity provider of a service as it stands: None for what there is not."""

    service: ServiceContext
    configuration: SamlConfiguration | None
    certificate: SamlCertificate | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SamlIdentityProvider:
    """One that is open: its service, what the service is called and where its messages go, and what they are signed with."""

    service: ServiceContext
    entity_id: str  # the service's own
    acs_url: str
    slo_url: str | None
    name_id_format: NameIdFormat
    attribute_mapping: Mapping[str, str]
    sign_assertions: bool
    sign_response: bool
    certificate: SamlCertificate


# Where it is


def endpoint_path(org_slug: str, service_slug: str, what: str = "") -> str:
    """Where the identity provider of a service is, below the base URL: `metadata`, `sso`, `slo`, `authenticate`; its own is its id."""
    return f"/saml/{org_slug}/{service_slug}{what and '/'}{what}"


def endpoint_url(base_url: str, service: ServiceContext, what: str = "") -> str:
    """The same as an absolute address."""
    return base_url + endpoint_path(service.org_slug, service.slug, what)


# What may be set up


def validate(wanted: SamlConfiguration) -> SamlConfiguration:
    """The configuration, if it is sound. Raises EntityIdMissing, AcsUrlMissing, EntityIdInvalid, AcsUrlInvalid, SloUrlInvalid,
    AttributeSourceUnknown, AttributeNameInvalid, NothingSigned."""
    if wanted.enabled and not wanted.entity_id:
        raise EntityIdMissing
    if wanted.enabled and not wanted.acs_url:
        raise AcsUrlMissing
    if wanted.entity_id is not None and not _is_name(wanted.entity_id, MAX_ENTITY_ID_LENGTH):
        raise EntityIdInvalid
    if wanted.acs_url is not None and not _can_be_sent_to(wanted.acs_url):
        raise AcsUrlInvalid
    if wanted.slo_url is not None and not _can_be_sent_to(wanted.slo_url):
        raise SloUrlInvalid
    if wanted.attribute_mapping is not None:
        if not set(wanted.attribute_mapping) <= set(AttributeSource):
            raise AttributeSourceUnknown
        names = list(wanted.attribute_mapping.values())
        if len(set(names)) < len(names) or not all(_is_name(name, MAX_ATTRIBUTE_NAME_LENGTH) for name in names):
            raise AttributeNameInvalid
    if not wanted.sign_assertions and not wanted.sign_response:
        raise SignatureRequired
    return wanted


def _is_name(text: str, longest: int) -> bool:
    return 0 < len(text) <= longest and text == text.strip() and is_printable(text)


def _can_be_sent_to(url: str) -> bool:
    return len(url) <= MAX_URL_LENGTH and uris.is_web_url(url)
