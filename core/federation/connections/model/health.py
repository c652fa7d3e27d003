"""The health of connections: what their refreshes find, and when certificates that expire are announced."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Self
from uuid import UUID

from core.federation.connections.model import openid
from core.federation.connections.model.connections import ProviderCertificate
from core.federation.saml.model.configuration import SamlCertificate

ANNOUNCED_DAYS: Final = (60, 30, 7)  # before the end of a certificate; of several that are due, only the nearest is announced
REFRESHED_EACH: Final = timedelta(days=1)
RETRIED_EACH: Final = timedelta(hours=1)  # after a failure
REFETCHED_EACH: Final = timedelta(hours=1)  # because of an unknown certificate, which anyone can cause with a forged response
FAILURES_OF_OUTAGE: Final = 3  # one after the other, so that a short outage is not announced


class HealthState(StrEnum):
    """Whether users can sign in through a connection, as far as we know."""

    UNKNOWN = "unknown"  # it is not active, or new
    OK = "ok"
    WARNING = "warning"  # users can sign in, and something needs work
    FAILING = "failing"


class HealthProblem(StrEnum):
    """A problem of a connection that no request found. Others are the fault of a request, such as an `OpenIdFault`."""

    CERTIFICATE_EXPIRES = "certificate_expires"
    CERTIFICATE_EXPIRED = "certificate_expired"
    OWN_CERTIFICATE_EXPIRES = "own_certificate_expires"
    OWN_CERTIFICATE_EXPIRED = "own_certificate_expired"


_NEXT_KEY: Final = "Create the next key, give its certificate to the identity provider, and activate it."
# The sentence for admins about each problem.
HEALTH_PROBLEMS: Final[Mapping[str, str]] = MappingProxyType(
    {
        HealthProblem.CERTIFICATE_EXPIRES: (
            "The last certificate of the identity provider expires soon. Add its new certificate before the identity provider uses it."
        ),
        HealthProblem.CERTIFICATE_EXPIRED: "All certificates of the identity provider have expired. Add the one that it uses now.",
        HealthProblem.OWN_CERTIFICATE_EXPIRES: f"Our certificate for this connection expires soon. {_NEXT_KEY}",
        HealthProblem.OWN_CERTIFICATE_EXPIRED: f"Our certificate for this connection has expired. {_NEXT_KEY}",
        **{fault.value: message for fault, message in openid.OPENID_FAULTS.items()},
        "metadata_not_fetched": "The metadata can't be fetched. Check their address.",
        "metadata_invalid": "The metadata can't be read. Check their address.",
        "metadata_expired": (
            "The metadata at their address have expired, so nothing is taken from them. Ask the identity provider for its present metadata."
        ),
        "metadata_of_another": "The metadata are those of another identity provider. Check their address.",
        "no_identity_provider": "The metadata describe no identity provider. Check their address.",
        "several_identity_providers": "The metadata describe several identity providers. Use an address with one of them.",
        "provider_certificate_invalid": "The metadata have no certificate that can be used: RSA with 2048 to 8192 bits.",
        "too_many_provider_certificates": "The connection has 8 certificates. Remove those that are no longer used.",
        # A refresh has no user who waits.
        openid.OpenIdFault.UNREACHABLE: "The identity provider can't be reached. Check its address, and that its host is public.",
    }
)


@dataclass(frozen=True, slots=True)
class CertificateEnd:
    """The end of the first certificate that users need. The time is UTC."""

    at: datetime
    is_own: bool  # whether it is our certificate, and not one of the identity provider

    @property
    def problem(self) -> HealthProblem:
        return HealthProblem.OWN_CERTIFICATE_EXPIRES if self.is_own else HealthProblem.CERTIFICATE_EXPIRES

    def problem_at(self, now: datetime) -> HealthProblem | None:
        """Return the problem if the certificate has expired, or expires soon."""
        if self.at <= now:
            return HealthProblem.OWN_CERTIFICATE_EXPIRED if self.is_own else HealthProblem.CERTIFICATE_EXPIRED
        return self.problem if self.at <= now + timedelta(days=max(ANNOUNCED_DAYS)) else None

    @classmethod
    def of(cls, certificates: Sequence[ProviderCertificate], key: SamlCertificate | None) -> Self | None:
        """Return the earlier end: when the identity provider's last active certificate expires, or our own certificate.

        None without both.
        """
        ends = [cls(key.valid_until, is_own=True)] if key is not None else []
        last = max((each.valid_until for each in certificates if each.is_active), default=None)
        return min([*ends, *([] if last is None else [cls(last, is_own=False)])], key=lambda end: end.at, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionHealth:
    """The health of a connection since its last refresh. Times are UTC."""

    org_id: UUID
    connection_id: UUID
    health: HealthState = HealthState.UNKNOWN
    problem: str | None = None  # of HEALTH_PROBLEMS, or of a newer release
    failures: int = 0  # refreshes that failed one after the other
    refreshed_at: datetime | None = None
    due_at: datetime
    certificate_end: datetime | None = None
    announced_days: int | None = None  # before that end

    @property
    def message(self) -> str | None:
        """The problem, and what to do."""
        return None if self.problem is None else HEALTH_PROBLEMS.get(self.problem, self.problem)

    @property
    def is_failing(self) -> bool:
        return self.health is HealthState.FAILING

    def refresh(self, fault: str | None, end: CertificateEnd | None, now: datetime) -> "ConnectionHealth":
        """Return the health after a refresh, which found `fault` or nothing. `announced_days` stays."""
        failures = 0 if fault is None else self.failures + 1
        health, problem = _judge(fault, failures, end, now)
        ends = [] if end is None else [end.at, *(end.at - timedelta(days=days) for days in ANNOUNCED_DAYS)]
        return replace(
            self,
            health=health,
            problem=problem,
            failures=failures,
            refreshed_at=now,
            due_at=min([now + (REFRESHED_EACH if fault is None else RETRIED_EACH), *(each for each in ends if each > now)]),
            certificate_end=None if end is None else end.at,
            announced_days=self.announced_days if end is not None and end.at == self.certificate_end else None,
        )

    def days_to_announce(self, now: datetime) -> int | None:
        """Return the number of days before the end that is due to be announced, or None."""
        if self.certificate_end is None or self.certificate_end <= now:
            return None
        reached = [days for days in ANNOUNCED_DAYS if self.certificate_end <= now + timedelta(days=days)]
        return min((days for days in reached if self.announced_days is None or days < self.announced_days), default=None)


def _judge(fault: str | None, failures: int, end: CertificateEnd | None, now: datetime) -> tuple[HealthState, str | None]:
    problem = None if end is None else end.problem_at(now)
    if fault is not None:
        return HealthState.FAILING if failures >= FAILURES_OF_OUTAGE else HealthState.WARNING, fault
    return HealthState.OK if problem is None else HealthState.WARNING, problem


@dataclass(frozen=True, slots=True)
class ConnectionConcern:
    """An active connection of any organization that an admin should look at. `certificate_end` is UTC."""

    org_slug: str
    connection_slug: str
    problem: str | None  # because of which users cannot sign in
    certificate_end: datetime | None  # if it is near or past
    lacks_domain: bool  # no verified domain leads to it, and it has no users or its organization no verified domain


@dataclass(frozen=True, slots=True)
class ConnectionNotice:
    """The content of an email about the health of a connection. The time is UTC."""

    name: str
    path: str  # of the page with its health
    problem: str
    certificate_end: datetime | None = None

    def to_token(self) -> str:
        """Return the notice as the `token` of a queued email. A name has no line break."""
        return f"{self.name}\n{self.path}\n{self.problem}\n{self.certificate_end or ''}"

    @classmethod
    def parse(cls, token: str | None) -> Self:
        """Return the notice in a `token`. The queue may have forgotten it."""
        name, path, problem, end, *_ = [*(token or "").split("\n", 3), "", "", ""]
        return cls(name, path, problem, datetime.fromisoformat(end) if end else None)
