"""The metrics of organizations.md section 4.11, the same from every process of one service.

prometheus-client keeps the figures in memory-mapped files of one directory, one set for each process, and adds them up when asked.
"""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, multiprocess, values
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from core.authentication.login_failures import LoginFailure
from core.eventing.siem_rules import FAILURES

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
DIRECTORY_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
_PREFIX = "gatehouse-metrics-"

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
OTHER = "OTHER"
UNKNOWN_ROUTE = "(unknown)"
BACKEND = "postgres"
JOB_TYPES = (
    *("mail", "webhook_delivery", "siem_forwarding"),
    *("housekeeping", "invitation_expiry", "subscription_expiry", "billing_reconciliation"),
)

_STATUS_CLASSES = {1: "1xx", 2: "2xx", 3: "3xx", 4: "4xx", 5: "5xx"}
_HTTP_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # decisions, point 245
_JOB_BUCKETS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
# From the event to the answer of the receiver: mostly under a second, after retries hours.
_DELIVERY_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 600.0, 3600.0)


@contextmanager
def metrics_directory() -> Iterator[None]:
    """Around a service: make the directory in which its processes share their figures, and name it to them by DIRECTORY_VARIABLE."""
    temporary = Path(tempfile.gettempdir())
    for left in temporary.glob(f"{_PREFIX}*"):  # by a service that was killed, and could not remove it
        pid = left.name.removeprefix(_PREFIX).partition("-")[0]
        if pid.isascii() and pid.isdigit() and not _lives(int(pid)):
            shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=temporary, prefix=f"{_PREFIX}{os.getpid()}-", ignore_cleanup_errors=True) as directory:
        os.environ[DIRECTORY_VARIABLE] = directory
        yield


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # somebody else's
        return True
    return True


def forget_process(pid: int, directory: Path | None = None) -> None:
    """Forget what only a living process has: its database connections. Its counts stay. For the parent, when a worker has ended."""
    multiprocess.mark_process_dead(pid, str(_given(directory)))  # type: ignore[no-untyped-call]


class PrometheusMetrics:
    """ports.observe.Metrics in the files of a directory; by default that of PROMETHEUS_MULTIPROC_DIR.

    Everything whose labels are known beforehand exists from the start, because a rate can only be computed from a zero.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = _given(directory)
        self._files = values.MultiProcessValue()  # type: ignore[no-untyped-call]
        self._observe_http: dict[tuple[str, str, int], Callable[[float], None]] = {}
        with self._in_files():
            self._http = Histogram(
                "sso_http_request_duration_seconds",
                "How long HTTP exchanges took, until the last byte was handed on.",
                ["method", "route", "status_class"],
                registry=None,
                buckets=_HTTP_BUCKETS,
            )
            self._connections, self._idle_connections, self._max_connections = (
                Gauge(f"sso_db_pool_connections_{name}", help_text, ["backend"], registry=None, multiprocess_mode="livesum").labels(BACKEND)
                for name, help_text in (
                    ("total", "Open database connections."),
                    ("idle", "Open database connections that nobody uses."),
                    ("max", "How many database connections may be open."),
                )
            )
            self._jobs = Histogram(
                "sso_job_processing_duration_seconds",
                "How long pieces of background work took.",
                ["job_type"],
                registry=None,
                buckets=_JOB_BUCKETS,
            )
            self._deliveries = Histogram(
                "sso_webhook_delivery_latency_seconds",
                "How long after its event a webhook was delivered.",
                registry=None,
                buckets=_DELIVERY_BUCKETS,
            )
            self._login_failures = Counter("sso_login_failures_total", "Logins that were refused.", ["reason"], registry=None)
            self._tokens = Counter("sso_auth_tokens_issued_total", "Access tokens that were issued.", registry=None)
            self._siem_failures = Counter(
                "sso_siem_failures_total", "Attempts to forward an audit log to a SIEM that failed.", ["reason"], registry=None
            )
            self._siem_drops = Counter(
                "sso_siem_dropped_entries_total", "Audit entries that waited for a SIEM too long, and were dropped.", registry=None
            )
            # Figures of the whole platform: whoever refreshed one last is right.
            latest = {
                name: Gauge(name, help_text, registry=None, multiprocess_mode="mostrecent")
                for name, help_text in (
                    ("sso_job_queue_depth", "Pieces of background work that are due."),
                    ("sso_active_users_total", "Accounts that are not deactivated."),
                    ("sso_total_organizations", "Organizations."),
                    ("sso_mfa_enabled_users_total", "Active users with multi-factor authentication."),
                    ("sso_mfa_adoption_percentage", "Share of active users with multi-factor authentication."),
                )
            }
            self._queue_depth, self._users, self._organizations, self._mfa_users, self._mfa_share = latest.values()
            self._touch(latest)

    def http(self, method: str, route: str, status: int, seconds: float) -> None:
        """An exchange ended. `route` is the route's template, never a path."""
        key = (method, route, status // 100)
        observe = self._observe_http.get(key)
        if observe is None:
            observe = self._new_http(*key)
        observe(seconds)

    def login_failed(self, reason: LoginFailure) -> None:
        """A login was refused; `reason` is from a fixed set."""
        with self._in_files():
            self._login_failures.labels(reason).inc()

    def token_issued(self) -> None:
        """An access token was issued."""
        self._tokens.inc()

    def job_done(self, job_type: str, seconds: float) -> None:
        """A piece of background work ended, well or not."""
        with self._in_files():
            self._jobs.labels(job_type).observe(seconds)

    def siem_failed(self, reason: str) -> None:
        """Forwarding a log to the SIEM of an organization failed; `reason` is from a fixed set."""
        with self._in_files():
            self._siem_failures.labels(reason).inc()

    def siem_dropped(self, entries: int) -> None:
        """So many entries have waited for the SIEM of their organization too long, and were dropped."""
        self._siem_drops.inc(entries)

    def webhook_delivered(self, seconds: float) -> None:
        """A webhook took what it was told, so long after it happened."""
        self._deliveries.observe(seconds)

    def queue_depth(self, depth: int) -> None:
        """How many pieces of background work are due."""
        self._queue_depth.set(depth)

    def pool(self, total: int, idle: int, maximum: int) -> None:
        """Database connections of this process."""
        self._connections.set(total)
        self._idle_connections.set(idle)
        self._max_connections.set(maximum)

    def platform(self, active_users: int, organizations: int, mfa_enabled_users: int) -> None:
        """The platform's gauges."""
        self._users.set(active_users)
        self._organizations.set(organizations)
        self._mfa_users.set(mfa_enabled_users)
        self._mfa_share.set(100 * mfa_enabled_users / active_users if active_users else 0)

    def exposition(self) -> bytes:
        """The figures of all processes in the text format 0.0.4. Reads files, so it belongs in a thread."""
        registry = CollectorRegistry()
        multiprocess.MultiProcessCollector(registry, path=str(self._directory))  # type: ignore[no-untyped-call]
        return generate_latest(registry)

    def close(self) -> None:
        """Close the files; what they hold stays. Only for who makes many instances, such as tests."""
        self._files.close_all_files()

    def _new_http(self, method: str, route: str, hundreds: int) -> Callable[[float], None]:
        labels = (method if method in METHODS else OTHER, route, _STATUS_CLASSES.get(hundreds, OTHER))
        with self._in_files():
            observe = self._http.labels(*labels).observe
        if OTHER not in labels:  # such keys may come from strangers, and each would stay here for ever
            self._observe_http[method, route, hundreds] = observe
        return observe

    def _touch(self, latest: dict[str, Gauge]) -> None:
        self._new_http("GET", UNKNOWN_ROUTE, 4)
        for reason in LoginFailure:
            self._login_failures.labels(reason)
        for result in FAILURES:
            self._siem_failures.labels(result.name.lower())
        for job_type in JOB_TYPES:
            self._jobs.labels(job_type)
        # The newest value of any process is shown, so a worker that starts must not write a zero over what another one has counted.
        figures = multiprocess.MultiProcessCollector(None, path=str(self._directory)).collect()  # type: ignore[no-untyped-call]
        present = {metric.name for metric in figures if metric.samples}
        for name, gauge in latest.items():
            if name not in present:
                gauge.set(0)

    @contextmanager
    def _in_files(self) -> Iterator[None]:
        """Let what is made meanwhile keep its figures in the files of this instance.

        prometheus-client decides that by a global variable, once, when it is first imported, so that the order of imports would
        matter and one process, such as a test run, could have one directory only.
        """
        before = values.ValueClass
        values.ValueClass = self._files
        os.environ[DIRECTORY_VARIABLE] = str(self._directory)
        try:
            yield
        finally:
            values.ValueClass = before


def _given(directory: Path | None) -> Path:
    given = directory or os.environ.get(DIRECTORY_VARIABLE)
    if not given:
        raise ValueError(f"Metrics need a directory: set {DIRECTORY_VARIABLE}.")
    return Path(given)
