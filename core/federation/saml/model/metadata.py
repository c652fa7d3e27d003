"""The metadata of a service provider, and the problems of a SAML configuration."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Final

from core.federation.saml.model.configuration import (
    MAX_ENTITY_ID_LENGTH,
    NameIdFormat,
    SamlCertificate,
    SamlConfiguration,
    endpoint_flaw,
    is_name,
)
from core.kernel.display import format_utc
from core.kernel.errors import Invalid
from core.kernel.policy import CERTIFICATE_EXPIRES_SOON

MAX_METADATA_LENGTH: Final = 128 * 1024  # characters
MAX_CERTIFICATES: Final = 10  # of one service provider; further ones are ignored


class MetadataInvalid(Invalid):
    """This is not SAML metadata. Enter the whole XML document as metadata, in UTF-8 and without a DOCTYPE, or its URL."""


class MetadataNotFetched(Invalid):
    """The metadata could not be fetched. Check its URL, or paste its XML."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"The metadata can't be used from this URL. {reason} Check the URL, or paste the XML.")


class NoServiceProvider(Invalid):
    """This metadata has no service provider (SPSSODescriptor). Paste the metadata of the application, not of an identity provider."""


class SeveralServiceProviders(Invalid):
    """This metadata has several service providers. Paste only the EntityDescriptor of this application."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceProviderMetadata:
    """The metadata of a service provider, as sent. None where it is missing."""

    entity_id: str | None
    acs_url: str | None  # with HTTP-POST
    slo_url: str | None  # with HTTP-Redirect
    slo_response_url: str | None  # its ResponseLocation
    has_other_slo: bool  # whether it has single logout with a binding that we do not send
    certificates: tuple[str, ...]  # PEM, not checked; for signatures
    name_id_formats: tuple[str, ...]
    valid_until: datetime | None = None  # UTC; the earliest end that the document states


class SamlProblemCode(StrEnum):
    """The kind of a problem."""

    NOT_ENABLED = "not_enabled"
    ENTITY_ID_MISSING = "entity_id_missing"
    ENTITY_ID_INVALID = "entity_id_invalid"
    ENTITY_ID_DUPLICATE = "entity_id_duplicate"
    ACS_URL_MISSING = "acs_url_missing"
    ACS_URL_INVALID = "acs_url_invalid"
    ACS_URL_NOT_HTTPS = "acs_url_not_https"
    SLO_URL_MISSING = "slo_url_missing"
    SLO_URL_INVALID = "slo_url_invalid"
    SLO_URL_NOT_HTTPS = "slo_url_not_https"
    SLO_BINDING_UNSUPPORTED = "slo_binding_unsupported"
    SLO_CERTIFICATE_UNUSABLE = "slo_certificate_unusable"
    SLO_CERTIFICATES_SEVERAL = "slo_certificates_several"
    SLO_CERTIFICATE_EXPIRED = "slo_certificate_expired"
    SLO_CERTIFICATE_EXPIRES_SOON = "slo_certificate_expires_soon"
    METADATA_EXPIRED = "metadata_expired"
    NAME_ID_FORMAT_UNSUPPORTED = "name_id_format_unsupported"
    CERTIFICATE_MISSING = "certificate_missing"
    CERTIFICATE_EXPIRED = "certificate_expired"
    CERTIFICATE_EXPIRES_SOON = "certificate_expires_soon"


@dataclass(frozen=True, slots=True)
class SamlProblem:
    """A problem of a SAML configuration. Users cannot sign in with an error, but can with a warning."""

    code: SamlProblemCode
    is_error: bool
    message: str


def choose_name_id_format(metadata: ServiceProviderMetadata) -> NameIdFormat | None:
    """Return the first format of the metadata that we support, or None."""
    return next((NameIdFormat(text) for text in metadata.name_id_formats if text in set(NameIdFormat)), None)


def replace_described(configuration: SamlConfiguration, described: SamlConfiguration) -> SamlConfiguration:
    """Return the configuration with the values that metadata describes. The others stay."""
    names = ("entity_id", "acs_url", "slo_url", "slo_certificate", "name_id_format")
    values = {name: value for name in names if (value := getattr(described, name)) is not None}
    # The addresses of one endpoint belong together: an earlier one for responses would be that of another endpoint.
    response_url = configuration.slo_response_url if described.slo_url is None else described.slo_response_url
    return replace(configuration, **values, slo_response_url=response_url)


def check_validity(metadata: ServiceProviderMetadata, now: datetime) -> Iterator[SamlProblem]:
    """Return the problem that the application states an end of its metadata which has passed (SAML metadata section 2.3.2)."""
    if message := describe_expiry(metadata.valid_until, now, "application"):
        yield SamlProblem(SamlProblemCode.METADATA_EXPIRED, False, message)


def describe_expiry(valid_until: datetime | None, now: datetime, party: str) -> str | None:
    """Return the sentence that the metadata of a party have expired, or None."""
    if valid_until is None or valid_until > now:
        return None
    return f"This metadata was valid until {format_utc(valid_until)}. Ask the {party} for its present metadata."


def check_addresses(configuration: SamlConfiguration) -> Iterator[SamlProblem]:
    """Return the problems of the entity id and the URLs of a configuration."""
    code = SamlProblemCode
    if configuration.entity_id is None:
        yield SamlProblem(code.ENTITY_ID_MISSING, True, "The entity ID is missing. Copy it from the application.")
    elif not is_name(configuration.entity_id, MAX_ENTITY_ID_LENGTH):
        yield SamlProblem(code.ENTITY_ID_INVALID, True, "The entity ID must have 1 to 1024 characters, without spaces around it.")
    if configuration.acs_url is None:
        yield SamlProblem(code.ACS_URL_MISSING, True, "The ACS URL is missing. It must accept responses with the binding HTTP-POST.")
    elif flaw := endpoint_flaw(configuration.acs_url):
        yield SamlProblem(code.ACS_URL_INVALID, True, f"The ACS URL is not allowed: {flaw}")
    elif not _is_https(configuration.acs_url):
        yield SamlProblem(code.ACS_URL_NOT_HTTPS, False, "The ACS URL has no https. It works only on the user's own computer.")
    if configuration.slo_url is None:
        yield SamlProblem(code.SLO_URL_MISSING, False, "Without an SLO URL, signing out here does not sign users out of the application.")
    elif flaw := endpoint_flaw(configuration.slo_url):
        yield SamlProblem(code.SLO_URL_INVALID, True, f"The SLO URL is not allowed: {flaw}")
    elif (url := configuration.slo_response_url) is not None and (flaw := endpoint_flaw(url)):
        yield SamlProblem(code.SLO_URL_INVALID, True, f"The URL for logout responses is not allowed: {flaw}")
    elif not _is_https(configuration.slo_url):
        yield SamlProblem(code.SLO_URL_NOT_HTTPS, False, "The SLO URL has no https. It works only on the user's own computer.")


def check_logout_certificate(valid_until: datetime, now: datetime) -> Iterator[SamlProblem]:
    """Return the problem with the application's certificate, or None if it has none. Its signatures are accepted all the same."""
    if valid_until <= now:
        message = f"The certificate of the application expired on {format_utc(valid_until)}. Ask for a new one."
        yield SamlProblem(SamlProblemCode.SLO_CERTIFICATE_EXPIRED, False, message)
    elif valid_until <= now + CERTIFICATE_EXPIRES_SOON:
        message = f"The certificate of the application expires on {format_utc(valid_until)}. Ask for a new one."
        yield SamlProblem(SamlProblemCode.SLO_CERTIFICATE_EXPIRES_SOON, False, message)


def check_certificate(certificate: SamlCertificate | None, now: datetime) -> Iterator[SamlProblem]:
    """Return the problem of our own certificate, if it has one."""
    if certificate is None:
        yield SamlProblem(SamlProblemCode.CERTIFICATE_MISSING, True, "There is no certificate to sign with. Create one.")
    elif certificate.valid_until <= now:
        message = f"Our certificate expired on {format_utc(certificate.valid_until)}. Create a new one, and update the application."
        yield SamlProblem(SamlProblemCode.CERTIFICATE_EXPIRED, True, message)
    elif certificate.valid_until <= now + CERTIFICATE_EXPIRES_SOON:
        advice = "Create the next one, let the application read the metadata again, and activate it."
        message = f"Our certificate expires on {format_utc(certificate.valid_until)}. {advice}"
        yield SamlProblem(SamlProblemCode.CERTIFICATE_EXPIRES_SOON, False, message)


def check_duplicates(slugs: Sequence[str]) -> Iterator[SamlProblem]:
    """Return the problem that these other services of the organization have the same entity id, if there are any."""
    if slugs:
        message = f"These services have the same entity ID: {', '.join(slugs)}. Most applications need one of their own for each."
        yield SamlProblem(SamlProblemCode.ENTITY_ID_DUPLICATE, False, message)


def _is_https(url: str) -> bool:
    return url.lower().startswith("https://")
