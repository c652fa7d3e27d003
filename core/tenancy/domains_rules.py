"""Entities, refusals and pure rules of `core.tenancy.domains`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from core.kernel.errors import Conflict, Invalid, NotFound
from core.kernel.values import Domain, DomainInvalid

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    pass

# A name with an underscore is no host's, so whoever is let have hosts in somebody's domain does not have this one (RFC 8552).
RECORD_PREFIX: Final = "_gatehouse-challenge"
VALUE_PREFIX: Final = "gatehouse-verification="
LONGEST_NAME: Final = 253


class DomainNotSet(NotFound):
    """This organization has not set a domain."""


class DomainTooLong(DomainInvalid):
    """This domain is too long: the record that would prove it could not be made. Set a domain that it is a subdomain of."""


class DomainTaken(Conflict):
    """Another organization has proved that it owns this domain. Whoever runs this platform can help you find out which one should."""


class DomainReplaced(Invalid):
    """Another domain was set while this one was being verified. Verify again."""


class DnsFailed(Invalid):
    """The DNS did not answer, so it is not known whether the record is there. Try again later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What an organization says is its domain, and since when that is proved. Times are UTC.

    The challenge is of 256 bits, and of this claim alone. It is no secret: it is to be published.
    """

    org_id: UUID
    domain: Domain
    challenge: str
    verified_at: datetime | None
    created_at: datetime

    @property
    def record_name(self) -> str:
        """The name of the TXT record that proves it."""
        return f"{RECORD_PREFIX}.{self.domain}"

    @property
    def record_value(self) -> str:
        """The text of that record."""
        return f"{VALUE_PREFIX}{self.challenge}"
