"""Domains, and home realm discovery."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from core.kernel import connections, errors
from core.kernel.values import Domain, DomainInvalid, Email, to_printable

# A name with an underscore cannot be a host name. A user who may only add hosts to a domain
# therefore cannot add this record (RFC 8552).
MAX_RECORDS_SHOWN: Final = 3  # found records that a refusal shows if ours is missing
MAX_VALUE_SHOWN: Final = 80  # characters per record
RECORD_PREFIX: Final = "_gatehouse-challenge"
VALUE_PREFIX: Final = "gatehouse-verification="
MAX_RECORD_NAME: Final = 253
# In one organization
MAX_DOMAINS: Final = 50
MAX_ROUTES: Final = 100


class DomainNotFound(errors.NotFound):
    """This organization has no such domain. Add it first."""


class DomainNotVerified(errors.NotFound):
    """This domain is not verified yet. Publish its DNS record and verify it first."""


class DomainTooLong(DomainInvalid):
    """This domain is too long for the name of its DNS record. Add a parent domain instead."""


class TooManyDomains(errors.Invalid):
    """There are 50 domains already. Remove one that is no longer used."""


class DomainRequired(errors.Conflict):
    """The sign-in policy requires a connection for this domain. Remove the domain from the policy first."""


class DomainTaken(errors.Conflict):
    """Another organization has already verified this domain. If it should be yours, ask the operator of Gatehouse."""


class DnsFailed(errors.Invalid):
    """The DNS server did not answer, so the record could not be checked. Try again later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainClaim:
    """A domain that an organization claims, verified or not. Times are UTC.

    The challenge has 256 random bits and belongs to this claim only. The challenge is not secret, because it is
    published in the DNS.
    """

    org_id: UUID
    domain: Domain
    challenge: str
    verified_at: datetime | None
    created_at: datetime

    @property
    def record_name(self) -> str:
        """Return the name of the TXT record that verifies the domain."""
        return f"{RECORD_PREFIX}.{self.domain}"

    @property
    def record_value(self) -> str:
        """Return the value of the TXT record that verifies the domain."""
        return f"{VALUE_PREFIX}{self.challenge}"


@dataclass(frozen=True, slots=True)
class ForeignAccount:
    """An account at the organization's domain that another organization created. `created_at` is UTC."""

    user_id: UUID
    email: Email
    created_at: datetime
    org_slug: str | None  # the organization that created it, or None if it was deleted
    org_name: str | None


@dataclass(frozen=True, slots=True)
class ForeignInvitation:
    """Another organization's pending invitation to an address at the organization's domain. Times are UTC."""

    email: Email
    created_at: datetime
    expires_at: datetime
    org_slug: str
    org_name: str


class RecordNotFound(errors.Invalid):
    """The DNS has no TXT record with the expected value. Set it, and wait until the change is visible."""

    def __init__(self, claim: DomainClaim, found: Collection[str]) -> None:
        """`found` are the values in the TXT records with this name."""
        if found:
            values = ", ".join(f'"{to_printable(value)[:MAX_VALUE_SHOWN]}"' for value in sorted(found)[:MAX_RECORDS_SHOWN])
            reason = f"The TXT record {claim.record_name} has another value: {values}. Set the expected value."
        else:
            reason = f"There is no TXT record {claim.record_name}. Check its name."
        super().__init__(f"{reason} A change can take a while to become visible. Try again later.")


class RouteNotFound(errors.NotFound):
    """This organization has no identity provider for this domain."""


class RouteTargetUnknown(errors.Invalid):
    """The organization has no such connection. Name one in the list of its connections."""


class RouteTargetAmbiguous(errors.Invalid):
    """A domain leads to one identity provider. Send either provider or connection."""


class TooManyRoutes(errors.Invalid):
    """There are 100 domains with an identity provider already. Remove one that is no longer used."""


class DuplicateDomain(errors.Invalid):
    """A domain appears twice. Send each domain once, with one provider."""

    def __init__(self, domain: Domain) -> None:
        super().__init__(f"The domain {domain} appears twice. Send each domain once, with one provider.")


@dataclass(frozen=True, slots=True)
class HomeRealmRoute:
    """The identity provider for email addresses at exactly this domain: a platform provider, or an organization's connection.

    The route is used only if `verified`: the organization has verified the domain or a parent domain, and no other
    organization has verified a closer domain. A connection must also be active.
    """

    domain: Domain
    provider: connections.ConnectionSlug | None
    connection: connections.ConnectionRef | None
    verified: bool

    @property
    def slug(self) -> str:
        """The identity provider's slug. No organization's connection has the slug of a platform provider."""
        return self.provider or ("" if self.connection is None else self.connection.slug)

    @property
    def in_use(self) -> bool:
        """Whether users at the domain are sent to the identity provider."""
        return self.verified and (self.connection is None or self.connection.is_active)


@dataclass(frozen=True, slots=True)
class HomeRealmMatch:
    """The organization and the identity provider through which a user signs in: a platform provider, or an active connection."""

    org_slug: str
    provider: connections.ConnectionSlug | None = None
    connection: connections.ConnectionRef | None = None
