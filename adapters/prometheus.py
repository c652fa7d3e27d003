"""Prometheus metrics, the same from every process in a service (docs/reference/metrics.md).

A process keeps its figures in memory-mapped files in a shared directory. prometheus-client adds them up for every scrape.
"""

import math
import os
import shutil
import struct
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from itertools import product
from pathlib import Path
from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, multiprocess, values
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from core.accounts.model import passkeys
from core.accounts.model.email_queue import EmailOutcome
from core.authentication.model.login import LoginFailure
from core.eventing.model.siem import FAILURES
from core.federation.connections.model.health import HealthState
from core.kernel.connections import ConnectionProtocol
from core.kernel.judgement import PolicyPath
from core.kernel.sign_in_policy.decision import Outcome
from ports.observe import METHODS, OTHER, UNKNOWN_ROUTE

T = TypeVar("T")

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
DIRECTORY_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
_PREFIX = "gatehouse-metrics-"

JOB_TYPES = (
    *("mail", "webhook_delivery", "logout_notice", "siem_forwarding"),
    *("erasure", "figures", "housekeeping", "invitation_expiry", "subscription_expiry", "secret_announcement", "billing_reconciliation"),
    *("external_client_removal", "connection_refresh", "passkey_waits", "program_ends"),
)
# The actors that wiring starts, and why they are restarted.
ACTORS = (
    *("listener", "mailer", "key_reader", "webhook_dispatcher", "logout_notifier", "siem_forwarder"),
    *("eraser", "figure_counter", "housekeeper", "invitation_sweeper", "subscription_sweeper", "secret_announcer", "billing_reconciler"),
    *("external_client_sweeper", "connection_refresher", "passkey_waiter", "policy_reminder", "program_ender", "metrics_refresher"),
)
RESTART_REASONS = ("failure", "outage")

_READ_ATTEMPTS = 100
_READ_PAUSE = 0.01  # seconds

_STATUS_CLASSES = {1: "1xx", 2: "2xx", 3: "3xx", 4: "4xx", 5: "5xx"}
_HTTP_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_ACTIVE_CONNECTIONS = "sso_connections"
_JOB_BUCKETS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
# From the event to the receiver's response: usually less than a second, with retries up to hours.
_DELIVERY_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 600.0, 3600.0)
# Figures about the whole platform: the most recent value from any process is correct.
_PLATFORM_FIGURES = {
    "sso_job_queue_depth": "Background jobs that are due.",
    "sso_mail_queue_depth": "Emails that are due or failed, and are not sent yet.",
    "sso_mail_queue_age_seconds": "Time that the oldest of these emails has waited.",
    "sso_connection_certificate_expiry_timestamp_seconds": "End of the first certificate of an active connection as a Unix time, or +Inf.",
    "sso_tls_certificate_expiry_timestamp_seconds": "End of the server's certificate as a Unix time, or +Inf.",
    "sso_active_users_total": "Accounts that are not deactivated.",
    "sso_total_organizations": "Organizations.",
    "sso_mfa_enabled_users_total": "Active users with multi-factor authentication.",
    "sso_mfa_adoption_percentage": "Share of active users with multi-factor authentication.",
    "sso_passkey_users": "Active users with a passkey.",
    "sso_password_alone_users": "Active users whose password alone signs in.",
}


@contextmanager
def metrics_directory() -> Iterator[None]:
    """Create the directory that a service's processes share, and put its path into DIRECTORY_VARIABLE."""
    temporary = Path(tempfile.gettempdir())
    for leftover in temporary.glob(f"{_PREFIX}*"):  # a killed service cannot remove its directory
        pid = leftover.name.removeprefix(_PREFIX).partition("-")[0]
        if pid.isascii() and pid.isdigit() and not _is_running(int(pid)):
            shutil.rmtree(leftover, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=temporary, prefix=f"{_PREFIX}{os.getpid()}-", ignore_cleanup_errors=True) as directory:
        os.environ[DIRECTORY_VARIABLE] = directory
        yield


def _to_unix_time(end: datetime | None) -> float:
    return math.inf if end is None else end.timestamp()


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # it belongs to another user
        return True
    return True


def forget_process(pid: int, directory: Path | None = None) -> None:
    """Remove an ended process's gauges, such as its database connections. The process's counters stay. A worker's parent calls this."""
    multiprocess.mark_process_dead(pid, str(_require_directory(directory)))  # type: ignore[no-untyped-call]


class PrometheusMetrics:
    """Implements `ports.observe.Metrics` with files in a directory, by default PROMETHEUS_MULTIPROC_DIR.

    Series with known labels exist from the start, because a rate can only be computed from an initial zero.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = _require_directory(directory)
        self._files = values.MultiProcessValue()  # type: ignore[no-untyped-call]
        self._observe_http: dict[tuple[str, str, int], Callable[[float], None]] = {}
        with self._using_own_files():
            counter, histogram = partial(Counter, registry=None), partial(Histogram, registry=None)
            gauge = partial(Gauge, registry=None)
            self._http = histogram(
                "sso_http_request_duration_seconds",
                "Duration of HTTP requests, until the last byte of the response was passed on.",
                ["method", "route", "status_class"],
                buckets=_HTTP_BUCKETS,
            )
            self._connections, self._idle_connections, self._max_connections = (
                gauge(f"sso_db_pool_connections_{name}", help_text, ["backend"], multiprocess_mode="livesum").labels("postgres")
                for name, help_text in (
                    ("total", "Open database connections."),
                    ("idle", "Open database connections that are idle."),
                    ("max", "Maximum number of open database connections."),
                )
            )
            self._jobs = histogram(
                "sso_job_processing_duration_seconds", "Duration of background jobs.", ["job_type"], buckets=_JOB_BUCKETS
            )
            self._deliveries = histogram(
                "sso_webhook_delivery_latency_seconds", "Time from an event to its delivery to a webhook.", buckets=_DELIVERY_BUCKETS
            )
            self._logout_notices = histogram(
                "sso_logout_notice_latency_seconds",
                "Time from the end of a session to the notice to its application.",
                buckets=_DELIVERY_BUCKETS,
            )
            self._login_failures = counter("sso_login_failures_total", "Refused sign-ins.", ["reason"])
            self._passkeys = counter("sso_passkey_ceremonies_total", "Ceremonies of passkeys.", ["ceremony", "outcome"])
            self._policy_decisions = counter("sso_sign_in_policy_decisions_total", "Decisions of sign-in policies.", ["path", "outcome"])
            self._connection_answers = counter(
                "sso_connection_answers_total", "Answers of identity providers of organizations to sign-ins.", ["protocol", "outcome"]
            )
            self._disputes = counter(
                "sso_saml_signatures_disputed_total", "SAML messages with a signature that our own code verifies and xmlsec does not."
            )
            self._active_connections = gauge(
                _ACTIVE_CONNECTIONS, "Active connections of organizations.", ["health"], multiprocess_mode="mostrecent"
            )
            self._tokens = counter("sso_auth_tokens_issued_total", "Issued access tokens.")
            self._siem_failures = counter("sso_siem_failures_total", "Failed attempts to forward an audit log to a SIEM.", ["reason"])
            self._siem_drops = counter(
                "sso_siem_dropped_entries_total", "Audit log entries that were dropped because their SIEM did not accept them in time."
            )
            self._mails = counter("sso_mails_total", "Emails that left the queue.", ["outcome"])
            self._mail_failures = counter("sso_mail_attempt_failures_total", "Failed attempts to send an email.")
            self._restarts = counter("sso_actor_restarts_total", "Restarts of actors.", ["actor", "reason"])
            latest = {name: gauge(name, text, multiprocess_mode="mostrecent") for name, text in _PLATFORM_FIGURES.items()}
            self._queue_depth, self._mail_depth, self._mail_age, self._certificate_end, self._tls_end, *platform = latest.values()
            self._users, self._organizations, self._mfa_users, self._mfa_share, self._passkey_users, self._alone_users = platform
            self._initialize(latest)

    def http(self, method: str, route: str, status: int, seconds: float) -> None:
        key = (method, route, status // 100)
        observe = self._observe_http.get(key)
        if observe is None:
            observe = self._new_http(*key)
        observe(seconds)

    def login_failed(self, reason: LoginFailure) -> None:
        self._login_failures.labels(reason).inc()

    def passkey_ceremony(self, ceremony: passkeys.Ceremony, refused: passkeys.PasskeyReason | None) -> None:
        self._passkeys.labels(ceremony, refused or "ok").inc()

    def sign_in_policy_decided(self, path: PolicyPath, outcome: Outcome) -> None:
        self._policy_decisions.labels(path, outcome.value).inc()

    def token_issued(self) -> None:
        self._tokens.inc()

    def job_done(self, job_type: str, seconds: float) -> None:
        with self._using_own_files():
            self._jobs.labels(job_type).observe(seconds)

    def mail_attempt_failed(self) -> None:
        self._mail_failures.inc()

    def mail_ended(self, outcome: EmailOutcome) -> None:
        self._mails.labels(outcome).inc()

    def mail_queue(self, depth: int, age: float) -> None:
        self._mail_depth.set(depth)
        self._mail_age.set(age)

    def actor_restarted(self, actor: str, reason: str) -> None:
        """Count an actor's restart. `reason` is in RESTART_REASONS."""
        with self._using_own_files():
            self._restarts.labels(actor, reason).inc()

    def siem_failed(self, reason: str) -> None:
        with self._using_own_files():
            self._siem_failures.labels(reason).inc()

    def siem_dropped(self, entries: int) -> None:
        self._siem_drops.inc(entries)

    def webhook_delivered(self, seconds: float) -> None:
        self._deliveries.observe(seconds)

    def logout_notified(self, seconds: float) -> None:
        self._logout_notices.observe(seconds)

    def queue_depth(self, depth: int) -> None:
        self._queue_depth.set(depth)

    def pool(self, total: int, idle: int, maximum: int) -> None:
        self._connections.set(total)
        self._idle_connections.set(idle)
        self._max_connections.set(maximum)

    def connection_answered(self, protocol: ConnectionProtocol, *, is_accepted: bool) -> None:
        self._connection_answers.labels(protocol, "accepted" if is_accepted else "refused").inc()

    def saml_signature_disputed(self) -> None:
        self._disputes.inc()

    def connection_health(self, count: Mapping[HealthState, int], first_end: datetime | None) -> None:
        with self._using_own_files():
            for health in HealthState:
                self._active_connections.labels(health).set(count.get(health, 0))
        self._certificate_end.set(_to_unix_time(first_end))

    def tls_certificate(self, end: datetime | None) -> None:
        """Set the end of the server's certificate. None: there is no certificate."""
        self._tls_end.set(_to_unix_time(end))

    def platform(
        self, active_users: int, organizations: int, mfa_enabled_users: int, passkey_users: int, password_alone_users: int
    ) -> None:
        self._users.set(active_users)
        self._organizations.set(organizations)
        self._mfa_users.set(mfa_enabled_users)
        self._passkey_users.set(passkey_users)
        self._alone_users.set(password_alone_users)
        self._mfa_share.set(100 * mfa_enabled_users / active_users if active_users else 0)

    def exposition(self) -> bytes:
        """Return all processes' figures in the text format 0.0.4. The method reads files, so call it in a thread."""
        registry = CollectorRegistry()
        multiprocess.MultiProcessCollector(registry, path=str(self._directory))  # type: ignore[no-untyped-call]
        return _read(lambda: generate_latest(registry))

    def close(self) -> None:
        """Close the files and keep their figures. For tests, which create many instances."""
        self._files.close_all_files()

    def _new_http(self, method: str, route: str, hundreds: int) -> Callable[[float], None]:
        labels = (method if method in METHODS else OTHER, route, _STATUS_CLASSES.get(hundreds, OTHER))
        with self._using_own_files():
            observe = self._http.labels(*labels).observe
        if OTHER not in labels:  # clients choose these labels, and the dictionary never shrinks
            self._observe_http[method, route, hundreds] = observe
        return observe

    def _initialize(self, latest: dict[str, Gauge]) -> None:
        self._new_http("GET", UNKNOWN_ROUTE, 4)
        known: Sequence[tuple[Counter | Histogram, Sequence[Iterable[str]]]] = (
            (self._login_failures, [LoginFailure]),
            (self._passkeys, [passkeys.Ceremony, ("ok", *passkeys.PasskeyReason)]),
            (self._policy_decisions, [PolicyPath, [outcome.value for outcome in Outcome]]),
            (self._connection_answers, [(ConnectionProtocol.OIDC, ConnectionProtocol.SAML), ("accepted", "refused")]),
            (self._siem_failures, [[result.name.lower() for result in FAILURES]]),
            (self._jobs, [JOB_TYPES]),
            (self._mails, [EmailOutcome]),
            (self._restarts, [ACTORS, RESTART_REASONS]),
        )
        for metric, labels in known:
            for series in product(*labels):
                metric.labels(*series)
        # The most recent value from any process is shown, so a worker that starts must not replace
        # a value with a zero.
        figures = _read(multiprocess.MultiProcessCollector(None, path=str(self._directory)).collect)  # type: ignore[no-untyped-call]
        present = {metric.name for metric in figures if metric.samples}
        for name, gauge in latest.items():
            if name not in present:
                gauge.set(0)
        if _ACTIVE_CONNECTIONS not in present:
            self.connection_health({}, None)
            self.tls_certificate(None)

    @contextmanager
    def _using_own_files(self) -> Iterator[None]:
        """Make metrics and labels that are created in this block use this instance's files.

        prometheus-client chooses the files by a global variable, once, at its first import. Without this block, the
        import order would matter, and a process such as a test run could use only a single directory.
        """
        before = values.ValueClass
        values.ValueClass = self._files
        os.environ[DIRECTORY_VARIABLE] = str(self._directory)
        try:
            yield
        finally:
            values.ValueClass = before


def _require_directory(directory: Path | None) -> Path:
    path = directory or os.environ.get(DIRECTORY_VARIABLE)
    if not path:
        raise ValueError(f"Metrics need a directory: set {DIRECTORY_VARIABLE}.")
    return Path(path)


def _read(read: Callable[[], T]) -> T:
    """Return all processes' figures. A file that another process is just creating is empty for a moment, so try again."""
    for _ in range(_READ_ATTEMPTS):
        try:
            return read()
        except struct.error:
            time.sleep(_READ_PAUSE)
    return read()
