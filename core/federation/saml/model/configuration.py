"""Values and rules of a service's SAML configuration and signing certificate."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from hashlib import sha256
from typing import Final
from uuid import UUID

from core.authentication.model.claim_document import LIST_CLAIMS, SOURCES, is_source
from core.kernel import errors, uris
from core.kernel.callers import ServiceContext
from core.kernel.values import is_printable

CERTIFICATE_YEARS: Final = 3
PREVIOUS_KEPT: Final = timedelta(days=7)  # an activation can be undone for this time
MAX_ENTITY_ID_LENGTH: Final = 1024  # SAML core section 8.3.6
MAX_URL_LENGTH: Final = 2048
MAX_ATTRIBUTE_NAME_LENGTH: Final = 256
MAX_SEPARATOR: Final = 10  # characters
MAX_VALUES: Final = 500  # of an attribute
MAX_CERTIFICATE_LENGTH: Final = 16 * 1024  # a service's PEM


class EntityIdMissing(errors.Invalid):
    """SAML needs the entity ID of the application. Copy it from the settings or the metadata of the application."""


class EntityIdInvalid(errors.Invalid):
    """The entity ID must have 1 to 1024 characters, without spaces at the start or the end. The application defines it."""


class AcsUrlMissing(errors.Invalid):
    """SAML needs the response URL (ACS) of the application. Copy it from the settings or the metadata of the application."""


class AcsUrlInvalid(errors.Invalid):
    """The response URL (ACS) must start with https://, or with http:// on localhost, and have no user name and no fragment."""


class SloUrlInvalid(errors.Invalid):
    """The URL for logouts (SLO) must start with https://, or with http:// on localhost, and have no user name and no fragment."""


class SloResponseUrlInvalid(errors.Invalid):
    """The URL for logout responses must start with https://, or with http:// on localhost, and have no user name and no fragment."""


class SloCertificateInvalid(errors.Invalid):
    """The certificate for logouts must be one X.509 certificate in PEM, with an RSA key of at least 2048 bits, without a private key."""


class SloCertificateReplaced(errors.Invalid):
    """This change replaces or removes the certificate for logouts. Confirm the change."""


class NameIdFormatUnknown(errors.Invalid):
    """The name_id_format must be emailAddress, unspecified, persistent or transient, or the URN of one of them."""


class AttributeSourceUnknown(errors.Invalid):
    """The attribute_mapping has an unknown source."""

    def __init__(self, source: str) -> None:
        super().__init__(
            f"The attribute_mapping has the unknown source {source!r}. Choose from {', '.join((*SOURCES, *LIST_CLAIMS))}, directory:<name> "
            "and attribute:<name> with an attribute of the organization."
        )


class AttributeNameInvalid(errors.Invalid):
    """The attribute names must be different and have 1 to 256 characters, without spaces at the start or the end."""


class AttributeFormatInvalid(errors.Invalid):
    """A format needs the name of an attribute and a URI such as urn:a:b, at most 256 characters. Its separator has 1 to 10."""


class SamlValuesNotJoinable(errors.Forbidden):
    """Values of an attribute cannot be told apart with this separator. Ask an admin of the organization to choose another one."""

    def __init__(self, name: str, separator: str) -> None:
        super().__init__(
            f"With the separator “{separator}”, the application would read other values of the attribute {name}. "
            "Ask an admin of the organization to choose another separator, or to send each value as an element of its own."
        )


class TooManySamlValues(errors.Forbidden):
    """The application cannot get all values of an attribute. Ask an admin of the organization to send it fewer."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"The attribute {name} has more than {MAX_VALUES} values. Ask an admin of the organization to send the application fewer."
        )


class SignatureRequired(errors.Invalid):
    """Responses must be signed. Sign assertions, responses or both."""


class SamlNotEnabled(errors.Invalid):
    """SAML is not enabled for this application. Enable it first, then create a certificate."""


class CertificateNotFound(errors.NotFound):
    """This application has no active certificate. Create one."""


class NextCertificateNotFound(errors.NotFound):
    """This application has no next certificate. Create one, and give the application the new metadata before you activate it."""


class NextCertificateExists(errors.Conflict):
    """This application already has a next certificate. Activate it, or delete it first."""


class PreviousCertificateNotFound(errors.NotFound):
    """There is no previous certificate to return to. It is kept for 7 days after an activation."""


class SamlDisabled(errors.NotFound):
    """This application does not support sign-in with SAML. The application's administrators can set it up."""


class NameIdFormat(StrEnum):
    """The kind of name that a service knows its users by (SAML core section 8.3)."""

    EMAIL = "urn:oasis:names:tc:SAML:1.1:nameid-format:emailAddress"
    UNSPECIFIED = "urn:oasis:names:tc:SAML:1.1:nameid-format:unspecified"
    PERSISTENT = "urn:oasis:names:tc:SAML:2.0:nameid-format:persistent"
    TRANSIENT = "urn:oasis:names:tc:SAML:2.0:nameid-format:transient"

    @property
    def short_name(self) -> str:
        """The last part of the URN, such as `persistent`."""
        return self.value.rpartition(":")[2]

    @classmethod
    def parse(cls, text: str) -> NameIdFormat:
        """Return the format with this URN or short name. Raises: NameIdFormatUnknown."""
        for name_id_format in cls:
            if text in (name_id_format.value, name_id_format.short_name):
                return name_id_format
        raise NameIdFormatUnknown


# An absolute URI (RFC 3986 section 4.3), as SAML core section 1.3.2 asks for. URNs have no authority.
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?:[A-Za-z0-9._~!$&'()*+,;=:@/?#\[\]-]|%[0-9A-Fa-f]{2})+")
# The sources that need no further facts about the user, and the attribute names of a service without an attribute mapping.
DEFAULT_ATTRIBUTES: Final[Mapping[str, str]] = {"email": "email", "id": "id"}


@dataclass(frozen=True, slots=True)
class AttributeFormat:
    """How an attribute is written. Without a separator, each value is an element of its own."""

    name_format: str | None = None  # a URI (SAML core section 8.2); None: the basic format, if the name has no space
    separator: str | None = None

    @property
    def is_valid(self) -> bool:
        name_format = self.name_format
        has_valid_uri = name_format is None or (len(name_format) <= MAX_ATTRIBUTE_NAME_LENGTH and bool(_URI.fullmatch(name_format)))
        has_valid_separator = self.separator is None or (0 < len(self.separator) <= MAX_SEPARATOR and is_printable(self.separator))
        return has_valid_uri and has_valid_separator


@dataclass(frozen=True, slots=True)
class SamlAttribute:
    """An attribute of an assertion."""

    name: str
    values: tuple[str, ...]
    name_format: str | None = None  # as in AttributeFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class SamlConfiguration:
    """The SAML settings of a service."""

    enabled: bool = False
    entity_id: str | None = None
    acs_url: str | None = None
    slo_url: str | None = None
    slo_response_url: str | None = None  # takes our LogoutResponses; None: `slo_url` does
    slo_certificate: str | None = None  # PEM; verifies the signatures of the service's LogoutRequests
    name_id_format: NameIdFormat | None = None  # None only before the first configuration
    attribute_mapping: Mapping[str, str] | None = None  # source to attribute name; None for DEFAULT_ATTRIBUTES
    attribute_formats: Mapping[str, AttributeFormat] | None = None  # by attribute name
    sign_assertions: bool = True
    sign_response: bool = True

    @property
    def slo_certificate_sha256(self) -> str | None:
        """The SHA-256 fingerprint of `slo_certificate` in hexadecimal, for events."""
        pem = self.slo_certificate
        if pem is None:
            return None
        return sha256(b64decode("".join(line for line in pem.splitlines() if not line.startswith("-----")))).hexdigest()


NOT_CONFIGURED: Final = SamlConfiguration()


class CertificateState(StrEnum):
    """The use of a certificate that has a key, in the order of the metadata. Only the active one signs."""

    ACTIVE = "active"
    NEXT = "next"  # for the application to learn before it is activated
    PREVIOUS = "previous"  # for PREVIOUS_KEPT, so that the activation can be undone


@dataclass(frozen=True, slots=True, kw_only=True)
class SamlCertificate:
    """A signing key and its X.509 certificate. Times are UTC."""

    id: UUID
    certificate: str  # PEM
    # Returns PKCS #8 in PEM. The key stays encrypted until a signature needs it. Equal functions
    # return the same key. Raises ports.crypto.SealBroken if it cannot be decrypted.
    private_key: Callable[[], bytes] = field(repr=False, compare=False)
    valid_from: datetime
    valid_until: datetime
    created_at: datetime
    kept_until: datetime | None = None  # a service's previous certificate


@dataclass(frozen=True, slots=True)
class SamlSetup:
    """A service with its SAML configuration and its active certificate, or None where it has none."""

    service: ServiceContext
    configuration: SamlConfiguration | None
    certificate: SamlCertificate | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SamlIdentityProvider:
    """The enabled SAML identity provider of a service. It has the service's SAML settings and the certificate for signatures."""

    service: ServiceContext
    entity_id: str  # of the service, not of this identity provider
    acs_url: str
    slo_url: str | None
    slo_response_url: str | None
    slo_certificate: str | None
    name_id_format: NameIdFormat
    attribute_mapping: Mapping[str, str]
    attribute_formats: Mapping[str, AttributeFormat]
    sign_assertions: bool
    sign_response: bool
    certificate: SamlCertificate

    @property
    def needs_further_facts(self) -> bool:
        """Whether an attribute has another source than the address and the id of the account."""
        return not self.attribute_mapping.keys() <= DEFAULT_ATTRIBUTES.keys()


def endpoint_path(org_slug: str, service_slug: str, endpoint: str = "") -> str:
    """Return an endpoint path at a service's identity provider.

    The endpoints are `metadata`, `sso`, `slo` and `authenticate`.

    Without an endpoint it is the path of the identity provider's entity id.
    """
    return f"/saml/{org_slug}/{service_slug}{endpoint and '/'}{endpoint}"


def endpoint_url(base_url: str, service: ServiceContext, endpoint: str = "") -> str:
    """Return an endpoint's absolute URL at a service's identity provider.

    Without an endpoint it is the identity provider's entity id.
    """
    return base_url + endpoint_path(service.org_slug, service.slug, endpoint)


def validate(configuration: SamlConfiguration) -> SamlConfiguration:
    """Return the configuration if it is valid."""
    if configuration.enabled and not configuration.entity_id:
        raise EntityIdMissing
    if configuration.enabled and not configuration.acs_url:
        raise AcsUrlMissing
    if configuration.entity_id is not None and not is_name(configuration.entity_id, MAX_ENTITY_ID_LENGTH):
        raise EntityIdInvalid
    configuration = with_canonical_urls(configuration)
    if configuration.acs_url is not None and (flaw := endpoint_flaw(configuration.acs_url)):
        raise AcsUrlInvalid(f"The response URL (ACS) is not allowed: {flaw}")
    if configuration.slo_url is not None and (flaw := endpoint_flaw(configuration.slo_url)):
        raise SloUrlInvalid(f"The URL for logouts (SLO) is not allowed: {flaw}")
    if configuration.slo_response_url is not None and (flaw := endpoint_flaw(configuration.slo_response_url)):
        raise SloResponseUrlInvalid(f"The URL for logout responses is not allowed: {flaw}")
    _check_attributes(configuration)
    if not configuration.sign_assertions and not configuration.sign_response:
        raise SignatureRequired
    return configuration


def _check_attributes(configuration: SamlConfiguration) -> None:
    if configuration.attribute_mapping is not None:
        for source in configuration.attribute_mapping:
            if source not in LIST_CLAIMS and not is_source(source):
                raise AttributeSourceUnknown(source)
        names = list(configuration.attribute_mapping.values())
        if len(set(names)) < len(names) or not all(is_name(name, MAX_ATTRIBUTE_NAME_LENGTH) for name in names):
            raise AttributeNameInvalid
    names_of_attributes = (configuration.attribute_mapping or DEFAULT_ATTRIBUTES).values()
    for name, attribute_format in (configuration.attribute_formats or {}).items():
        if name not in names_of_attributes or not attribute_format.is_valid:
            raise AttributeFormatInvalid


def is_name(text: str, max_length: int) -> bool:
    """Return whether this is printable text of at most `max_length` characters, without spaces around it."""
    return 0 < len(text) <= max_length and text == text.strip() and is_printable(text)


def with_canonical_urls(configuration: SamlConfiguration) -> SamlConfiguration:
    """Return the configuration with its URLs in canonical form."""
    urls = (configuration.acs_url, configuration.slo_url, configuration.slo_response_url)
    acs_url, slo_url, slo_response_url = [None if url is None else uris.canonicalize(url) for url in urls]
    return replace(configuration, acs_url=acs_url, slo_url=slo_url, slo_response_url=slo_response_url)


def endpoint_flaw(url: str) -> str | None:
    """Return why this cannot be a URL of an application, as `uris.web_flaw` does, or None if it can."""
    return uris.web_flaw(url) if len(url) <= MAX_URL_LENGTH else f"it has more than {MAX_URL_LENGTH} characters."
