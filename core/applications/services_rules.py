"""Entities, refusals and pure rules of `core.applications.services`."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from core.kernel import uris
from core.kernel.errors import Invalid, NotFound
from core.kernel.values import KEEP, Keep, Slug, digest, given, new_secret

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID


# The plan of every new service; it is what users without a subscription have, for as long as there is one of this name (decisions, 37).
FREE: Final = "Free"
USERS_AT_ONCE: Final = 10_000  # how many are removed by a statement
# A service can be as large as a request; this many are held at once where all are listed.
LISTED_AT_ONCE: Final = 100


class ServiceNotFound(NotFound):
    """There is no such service."""


class ServiceSlugTaken(Invalid):
    """The organization has a service with this slug already. Choose another one."""


class ServiceLimitExceeded(Invalid):
    """The organization has as many services as it may have. Delete one, or ask the platform's operator for more."""

    code = "SERVICE_LIMIT_EXCEEDED"


class NothingToChange(Invalid):
    """Say what to change, at least one of the fields."""


class ScopeInvalid(Invalid):
    """A scope is printable ASCII without spaces, quotation marks and backslashes, and is named once."""


class RedirectUriInvalid(Invalid):
    """A redirect URI begins with https://, http://localhost or, in apps, com.example.app:/, and has no user name, fragment or asterisk."""


class RedirectUriTwice(Invalid):
    """A redirect URI is named twice. Name each of them once."""


class ActivationUriInvalid(Invalid):
    """The device activation page begins with https:// or http://localhost, and has no user name, fragment or asterisk."""


class NoClientSecret(Invalid):
    """Mobile and desktop services have no client secret: they cannot keep one, and use PKCE instead."""


class ServiceType(StrEnum):
    """What kind of application it is."""

    WEB = "web"
    MOBILE = "mobile"
    DESKTOP = "desktop"
    API = "api"

    @property
    def is_public(self) -> bool:
        """Whether it runs where everybody can read what it holds, so that it has no secret and PKCE instead."""
        return self in (ServiceType.MOBILE, ServiceType.DESKTOP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """An application that signs people in through us. Times are UTC.

    Scopes are None where the platform's default ones hold, and empty for none (decisions, point 102). `subscription_count` is kept by the
    transactions that add and remove. Only confidential clients have a secret, of which this is the SHA-256; with `pkce_without_secret` they
    may rely on PKCE instead where they show none (point 92).
    """

    id: UUID
    org_id: UUID
    slug: Slug
    name: str
    service_type: ServiceType
    client_id: UUID
    client_secret_hash: bytes | None = field(repr=False)
    codehost_scopes: tuple[str, ...] | None
    websuite_scopes: tuple[str, ...] | None
    officesuite_scopes: tuple[str, ...] | None
    redirect_uris: tuple[str, ...]
    device_activation_uri: str | None
    subscription_count: int
    created_at: datetime
    updated_at: datetime
    pkce_without_secret: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Something that the users of a service can subscribe to. Times are UTC; `currency` is a lower-case code of ISO 4217."""

    id: UUID
    org_id: UUID
    service_id: UUID
    name: str
    price_cents: int
    currency: str
    features: tuple[str, ...]
    billing_price_id: str | None
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What is chosen about a service, and may be chosen anew. Arrays replace what was there, and None clears them."""

    name: str | Keep = KEEP
    service_type: ServiceType | Keep = KEEP
    codehost_scopes: Sequence[str] | Keep | None = KEEP
    websuite_scopes: Sequence[str] | Keep | None = KEEP
    officesuite_scopes: Sequence[str] | Keep | None = KEEP
    redirect_uris: Sequence[str] | Keep | None = KEEP
    device_activation_uri: str | Keep | None = KEEP
    pkce_without_secret: bool | Keep = KEEP


SCOPES: Final = ("codehost_scopes", "websuite_scopes", "officesuite_scopes")


@dataclass(frozen=True, slots=True)
class Usage:
    """How many services there are and may be, and the name of the tier for people; None for an organization that has no tier."""

    current_services: int
    max_services: int
    tier: str | None


@dataclass(frozen=True, slots=True)
class Created:
    """A new service. Its secret, if it has one, is known here and never again."""

    service: Service
    default_plan: Plan
    usage: Usage
    client_secret: str | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class ListedService:
    """A service, and how many plans it has."""

    service: Service
    plan_count: int


# What a service may be

# RFC 6749 section 3.3.
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")


def configured(service: Service, settings: Settings) -> Service:
    """The service with these settings. Raises NothingToChange, ScopeInvalid, RedirectUriInvalid, RedirectUriTwice, ActivationUriInvalid.

    All redirect URIs are judged by the type that it has then, also those that stay.
    """
    wanted = given(**asdict(settings))
    if not wanted:
        raise NothingToChange
    for name in SCOPES:
        if wanted.get(name) is not None:
            wanted[name] = _scopes(wanted[name])
    if "redirect_uris" in wanted:
        wanted["redirect_uris"] = tuple(wanted["redirect_uris"] or ())
    new = replace(service, **wanted)
    if "redirect_uris" in wanted or "service_type" in wanted:
        check_redirect_uris(new.service_type, new.redirect_uris)
    if "device_activation_uri" in wanted and new.device_activation_uri is not None and not uris.is_web(new.device_activation_uri):
        raise ActivationUriInvalid
    return new


def _scopes(scopes: Sequence[str]) -> tuple[str, ...]:
    if len(set(scopes)) < len(scopes) or not all(_SCOPE.fullmatch(scope) for scope in scopes):
        raise ScopeInvalid
    return tuple(scopes)


def check_redirect_uris(service_type: ServiceType, redirect_uris: Sequence[str]) -> None:
    """Raises RedirectUriInvalid, RedirectUriTwice unless services of this type may have these. Public ones may have whatever any may."""
    if len(set(redirect_uris)) < len(redirect_uris):
        raise RedirectUriTwice
    for uri in redirect_uris:
        if not uris.is_web(uri) and not (service_type.is_public and uris.is_of_an_application(uri)):
            raise RedirectUriInvalid


def with_secret(service: Service) -> tuple[Service, str | None]:
    """The service with a client secret if its type needs one and without one if not; and that secret, if it is new."""
    if service.service_type.is_public:
        return replace(service, client_secret_hash=None), None
    if service.client_secret_hash is not None:
        return service, None
    secret = new_secret()
    return replace(service, client_secret_hash=digest(secret)), secret
