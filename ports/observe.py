"""The clock, the metrics that operators see, and the interface to the running process and its settings."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, Protocol

from core.accounts.model import passkeys
from core.accounts.model.email_queue import EmailOutcome
from core.authentication.model.login import LoginFailure
from core.federation.connections.model.health import HealthState
from core.kernel.connections import ConnectionProtocol
from core.kernel.judgement import PolicyPath
from core.kernel.sign_in_policy.decision import Outcome
from core.maintenance.model import health

# Labels for HTTP requests in metrics and logs
METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
OTHER: Final = "OTHER"  # a single label for all unlisted methods and statuses
UNKNOWN_ROUTE: Final = "(unknown)"  # a single label for all unknown paths, so that a scan adds no labels (security L-4)


class Clock(Protocol):
    """The time. The core never asks the system for the time, so that tests can set it."""

    def now(self) -> datetime:
        """Return the current time in UTC, with its time zone."""


class Metrics(Protocol):
    """Counters, histograms and gauges. Metric labels come from fixed sets (security L-4). No method fails or waits."""

    def http(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count an HTTP request that ended. `route` is the route's template, and never the path itself."""

    def login_failed(self, reason: LoginFailure) -> None: ...
    def passkey_ceremony(self, ceremony: passkeys.Ceremony, refused: passkeys.PasskeyReason | None) -> None:
        """Count a passkey ceremony that was verified, or refused for this reason."""

    def sign_in_policy_decided(self, path: PolicyPath, outcome: Outcome) -> None:
        """Count a sign-in policy's decision."""

    def token_issued(self) -> None: ...

    def job_done(self, job_type: str, seconds: float) -> None:
        """Count a finished background job, successful or not."""

    def mail_attempt_failed(self) -> None:
        """Count an attempt to send an email that failed. The email is tried again, or given up."""

    def mail_ended(self, outcome: EmailOutcome) -> None: ...

    def mail_queue(self, depth: int, age: float) -> None:
        """Set how many emails could not be sent yet, and how many seconds the oldest email has waited."""

    def actor_restarted(self, actor: str, reason: str) -> None:
        """Count an actor's restart. `reason` is `failure`, or `outage` if the database or another server was down."""

    def siem_failed(self, reason: str) -> None:
        """Count a failed attempt to forward an audit log to a SIEM. `reason` is from a fixed set."""

    def siem_dropped(self, entries: int) -> None:
        """Count entries that were dropped because their SIEM did not accept them for too long."""

    def webhook_delivered(self, seconds: float) -> None:
        """Count a delivery that a webhook accepted, with the time since its event."""

    def logout_notified(self, seconds: float) -> None:
        """Count a logout notice that an application accepted, with the time since the session ended."""

    def queue_depth(self, depth: int) -> None:
        """Set how much background work is due, in items."""

    def pool(self, total: int, idle: int, maximum: int) -> None:
        """Set how many database connections this process has, by state."""

    def connection_answered(self, protocol: ConnectionProtocol, *, is_accepted: bool) -> None:
        """Count a sign-in answer from an organization's identity provider."""

    def saml_signature_disputed(self) -> None:
        """Count a message that was refused because xmlsec did not confirm a signature that our own code had verified."""

    def connection_health(self, count: Mapping[HealthState, int], first_end: datetime | None) -> None:
        """Set how many connections are active, by health, and when the first certificate ends, or None without a certificate."""

    def platform(
        self, active_users: int, organizations: int, mfa_enabled_users: int, passkey_users: int, password_alone_users: int
    ) -> None:
        """Set the platform's gauges."""


class Installation(Protocol):
    """This process, and the settings that all processes share."""

    @property
    def version(self) -> str: ...

    @property
    def process_id(self) -> int: ...

    @property
    def connections(self) -> health.ConnectionCounts:
        """The process's database connections now."""

    @property
    def has_mail_server(self) -> bool:
        """Whether the platform has a mail server. Without a mail server, emails are written to a folder."""

    def actors(self) -> Sequence[health.ActorState]:
        """Return the actors in this process, sorted by name."""

    async def run_checks(self) -> Sequence[health.CheckFinding]:
        """Return the findings from `gatehouse doctor`, at most a minute old. The checks contact servers, which can take half a minute."""

    def settings(self) -> Sequence[health.SettingInForce]:
        """Return all settings, in the order of the settings model. Secrets have no value (security L-3)."""
