"""SAML identity providers of organizations: their metadata, our requests to them, and our metadata for them.

Sources: SAML bindings sections 3.4 and 3.5; SAML metadata section 2.4; SAML profiles section 4.1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from core.federation.connections.model.saml_responses import AssertedNameId
from core.federation.connections.model.settings import SsoBinding
from core.federation.saml.model import configuration
from core.kernel import errors


class NoIdentityProvider(errors.Invalid):
    """This metadata has no identity provider (IDPSSODescriptor). Paste the metadata of your identity provider, not of an application."""


class SeveralIdentityProviders(errors.Invalid):
    """This metadata has several identity providers. Paste only the EntityDescriptor of yours."""


class MetadataNotUsed(errors.Conflict):
    """This connection uses OpenID Connect, which needs no SAML metadata. Set the issuer instead."""


class CookiesNeeded(errors.Invalid):
    """Your browser did not send the cookie of this sign-in. Allow cookies for this site, and start the sign-in again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityProviderMetadata:
    """The metadata of an identity provider, as sent. None where it is missing."""

    entity_id: str | None
    sso_urls: Mapping[SsoBinding, str]
    slo_url: str | None  # with HTTP-Redirect
    slo_response_url: str | None  # for logout responses, if it is another address
    certificates: tuple[str, ...]  # PEM, not checked; for signatures
    name_id_formats: tuple[str, ...]  # that it supports, not checked; none: it does not say
    valid_until: datetime | None = None  # UTC; the earliest end that the document states


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnServiceProvider:
    """Our service provider at the identity provider of a connection."""

    entity_id: str
    acs_url: str
    slo_url: str
    name_id_format: configuration.NameIdFormat | None  # to ask for; None: an attribute identifies users
    signs_requests: bool
    signing: Sequence[configuration.SamlCertificate]  # the active one first, which signs
    encryption: Sequence[configuration.SamlCertificate]  # to encrypt assertions with


@dataclass(frozen=True, slots=True, kw_only=True)
class SamlSignInRequest:
    """An AuthnRequest to an identity provider."""

    id: str
    destination: str
    binding: SsoBinding
    force_authn: bool
    issued_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class SamlLogoutRequest:
    """A LogoutRequest to an identity provider, with HTTP-Redirect."""

    id: str
    destination: str
    name_id: AssertedNameId
    session_index: str | None
    issued_at: datetime


@dataclass(frozen=True, slots=True)
class ProviderRedirect:
    """The redirect of a browser to an identity provider: with GET, or with a form that a page posts."""

    url: str
    form: Mapping[str, str] | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SamlAnswer:
    """The Response that a browser brings from an identity provider, parsed. It is not verified yet."""

    in_response_to: str | None  # the id of the request that it names
    tree: Any = field(repr=False)  # of the parser, which alone reads it
    is_long: bool = False
