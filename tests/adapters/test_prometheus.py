"""Prometheus metrics: names, labels, and the same figures from every process in a service."""

import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families

from adapters.prometheus import CONTENT_TYPE, DIRECTORY_VARIABLE, PrometheusMetrics, forget_process, metrics_directory
from core.accounts.model.email_queue import EmailOutcome
from core.authentication.model.login import LoginFailure
from tests import ROOT

if TYPE_CHECKING:
    from ports.observe import Metrics


PAGE = (ROOT / "docs/reference/metrics.md").read_text("utf-8")
DOCUMENTED = dict(re.findall(r"^\| `(sso_\w+)` \| (\w+)", PAGE, re.MULTILINE))


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore the environment variable that an instance sets for the library."""
    monkeypatch.setenv(DIRECTORY_VARIABLE, "")
    monkeypatch.delenv(DIRECTORY_VARIABLE)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "metrics").mkdir()
    return tmp_path / "metrics"


@pytest.fixture
def metrics(directory: Path) -> Iterator[PrometheusMetrics]:
    instance = PrometheusMetrics(directory)
    yield instance
    instance.close()


def types(exposition: bytes) -> dict[str, str]:
    """Return the metric types by name."""
    lines = (line.split(" ") for line in exposition.decode().splitlines() if line.startswith("# TYPE "))
    return {name: kind for _, _, name, kind in lines}


def samples(metrics: PrometheusMetrics, name: str) -> dict[tuple[str, ...], float]:
    """Return a metric's values by its label values, which are sorted by label name."""
    return {
        tuple(value for _, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(metrics.exposition().decode())
        for sample in family.samples
        if sample.name == name
    }


def value(metrics: PrometheusMetrics, name: str, *labels: str) -> float:
    return samples(metrics, name)[labels]


def run_in_process(directory: Path, script: str) -> int:
    """Run a script with metrics in another process and return its process id."""
    code = f"import os; from adapters.prometheus import PrometheusMetrics; metrics = PrometheusMetrics(); {script}; print(os.getpid())"
    environment = os.environ | {DIRECTORY_VARIABLE: str(directory)}
    process = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, check=True, capture_output=True, text=True)
    return int(process.stdout)


def test_every_documented_metric_exists_from_the_start(metrics: PrometheusMetrics) -> None:
    assert types(metrics.exposition()) == DOCUMENTED
    for name, kind in DOCUMENTED.items():
        sample_name = f"{name}_count" if kind == "histogram" else name
        none = (
            math.inf
            if name in ("sso_connection_certificate_expiry_timestamp_seconds", "sso_tls_certificate_expiry_timestamp_seconds")
            else 0.0
        )
        assert set(samples(metrics, sample_name).values()) == {none}, name


def test_the_content_type_is_that_of_the_text_format(metrics: PrometheusMetrics) -> None:
    assert CONTENT_TYPE.startswith("text/plain; version=0.0.4")
    assert b"_created" not in metrics.exposition()


def test_a_request_is_counted_by_method_route_and_status_class(metrics: PrometheusMetrics) -> None:
    metrics.http("GET", "/api/organizations/<org_slug>/members", 200, 0.004)
    metrics.http("GET", "/api/organizations/<org_slug>/members", 204, 0.3)
    metrics.http("POST", "/api/auth/login", 401, 20.0)
    of_members = ("GET", "/api/organizations/<org_slug>/members", "2xx")
    assert value(metrics, "sso_http_request_duration_seconds_count", *of_members) == 2
    assert value(metrics, "sso_http_request_duration_seconds_sum", *of_members) == pytest.approx(0.304)
    assert value(metrics, "sso_http_request_duration_seconds_bucket", "0.005", *of_members) == 1
    of_login = ("POST", "/api/auth/login", "4xx")
    assert value(metrics, "sso_http_request_duration_seconds_bucket", "10.0", *of_login) == 0
    assert value(metrics, "sso_http_request_duration_seconds_bucket", "+Inf", *of_login) == 1


def test_buckets_go_from_5_ms_to_10_s(metrics: PrometheusMetrics) -> None:
    bounds = [float(labels[0]) for labels in samples(metrics, "sso_http_request_duration_seconds_bucket")]
    assert (bounds[0], bounds[-2], bounds[-1]) == (0.005, 10.0, float("inf"))


def test_clients_cannot_add_labels(metrics: PrometheusMetrics) -> None:
    for number in range(200):
        metrics.http(f"METHOD{number}", "(unknown)", 404, 0.001)
        metrics.http("GET", "(unknown)", 404, 0.001)
        metrics.http("GET", "(unknown)", 600 + 100 * number, 0.001)
    assert samples(metrics, "sso_http_request_duration_seconds_count") == {
        ("GET", "(unknown)", "4xx"): 200,
        ("OTHER", "(unknown)", "4xx"): 200,
        ("GET", "(unknown)", "OTHER"): 200,
    }
    assert len(metrics._observe_http) == 1


def test_each_method_of_the_port_changes_its_metric(metrics: PrometheusMetrics) -> None:
    port: Metrics = metrics
    port.login_failed(LoginFailure.CREDENTIALS)
    port.token_issued()
    port.token_issued()
    port.job_done("mail", 0.2)
    port.queue_depth(17)
    port.mail_attempt_failed()
    port.mail_ended(EmailOutcome.GIVEN_UP)
    port.mail_queue(4, 90.5)
    port.actor_restarted("mailer", "failure")
    port.pool(total=7, idle=3, maximum=10)
    port.platform(active_users=200, organizations=9, mfa_enabled_users=50, passkey_users=40, password_alone_users=30)
    assert value(metrics, "sso_login_failures_total", "credentials") == 1
    assert value(metrics, "sso_login_failures_total", "unverified") == 0
    assert value(metrics, "sso_auth_tokens_issued_total") == 2
    assert value(metrics, "sso_job_processing_duration_seconds_sum", "mail") == pytest.approx(0.2)
    assert value(metrics, "sso_job_queue_depth") == 17
    assert value(metrics, "sso_mail_attempt_failures_total") == 1
    assert samples(metrics, "sso_mails_total") == {("dropped",): 0, ("given_up",): 1, ("sent",): 0}
    assert (value(metrics, "sso_mail_queue_depth"), value(metrics, "sso_mail_queue_age_seconds")) == (4, 90.5)
    assert value(metrics, "sso_actor_restarts_total", "mailer", "failure") == 1
    assert value(metrics, "sso_actor_restarts_total", "mailer", "outage") == 0
    assert value(metrics, "sso_db_pool_connections_total", "postgres") == 7
    assert value(metrics, "sso_db_pool_connections_idle", "postgres") == 3
    assert value(metrics, "sso_db_pool_connections_max", "postgres") == 10
    assert value(metrics, "sso_active_users_total") == 200
    assert value(metrics, "sso_total_organizations") == 9
    assert value(metrics, "sso_mfa_enabled_users_total") == 50
    assert value(metrics, "sso_mfa_adoption_percentage") == 25
    assert value(metrics, "sso_passkey_users") == 40
    assert value(metrics, "sso_password_alone_users") == 30


def test_the_mfa_share_is_zero_without_users(metrics: PrometheusMetrics) -> None:
    metrics.platform(active_users=0, organizations=0, mfa_enabled_users=0, passkey_users=0, password_alone_users=0)
    assert value(metrics, "sso_mfa_adoption_percentage") == 0


def test_a_later_instance_does_not_change_the_files_of_an_earlier_one(metrics: PrometheusMetrics, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = PrometheusMetrics(tmp_path / "other")
    metrics.http("GET", "/health", 200, 0.001)
    metrics.login_failed(LoginFailure.MFA)
    other.http("GET", "/metrics", 200, 0.001)
    assert value(metrics, "sso_http_request_duration_seconds_count", "GET", "/health", "2xx") == 1
    assert value(metrics, "sso_login_failures_total", "mfa") == 1
    assert ("GET", "/health", "2xx") not in samples(other, "sso_http_request_duration_seconds_count")
    assert ("GET", "/metrics", "2xx") not in samples(metrics, "sso_http_request_duration_seconds_count")
    other.close()


@pytest.mark.slow
def test_every_process_shows_the_figures_of_all(metrics: PrometheusMetrics, directory: Path) -> None:
    metrics.http("GET", "/health", 200, 0.004)
    metrics.token_issued()
    metrics.pool(total=1, idle=1, maximum=10)
    metrics.platform(active_users=1, organizations=1, mfa_enabled_users=1, passkey_users=1, password_alone_users=0)
    pid = run_in_process(
        directory,
        "metrics.http('GET', '/health', 200, 0.004); metrics.token_issued(); metrics.pool(2, 1, 10); metrics.platform(8, 3, 2, 1, 0)",
    )
    assert value(metrics, "sso_http_request_duration_seconds_count", "GET", "/health", "2xx") == 2
    assert value(metrics, "sso_auth_tokens_issued_total") == 2
    assert value(metrics, "sso_db_pool_connections_total", "postgres") == 3
    assert value(metrics, "sso_db_pool_connections_max", "postgres") == 20
    assert value(metrics, "sso_active_users_total") == 8  # the most recent value, not a sum
    assert value(metrics, "sso_mfa_adoption_percentage") == 25

    forget_process(pid, directory)
    assert value(metrics, "sso_db_pool_connections_total", "postgres") == 1
    assert value(metrics, "sso_auth_tokens_issued_total") == 2
    assert value(metrics, "sso_active_users_total") == 8

    run_in_process(directory, "pass")  # a worker that has just started has no figures yet
    assert value(metrics, "sso_active_users_total") == 8
    assert value(metrics, "sso_auth_tokens_issued_total") == 2


def test_a_service_has_its_own_directory_and_removes_those_of_killed_services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    names = {"left": f"gatehouse-metrics-{process.pid}-x", "lives": "gatehouse-metrics-1-x", "strange": "gatehouse-metrics-x"}
    for name in names.values():
        (tmp_path / name).mkdir()
        (tmp_path / name / "counter_1.db").touch()
    with metrics_directory():
        ours = Path(os.environ[DIRECTORY_VARIABLE])
        assert ours.name.startswith(f"gatehouse-metrics-{os.getpid()}-")
        assert ours.stat().st_mode & 0o777 == 0o700
        assert {path.name for path in tmp_path.iterdir()} == {ours.name, names["lives"], names["strange"]}
    assert {path.name for path in tmp_path.iterdir()} == {names["lives"], names["strange"]}


def test_the_default_directory_comes_from_the_environment(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=DIRECTORY_VARIABLE):
        PrometheusMetrics()
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(directory))
    metrics = PrometheusMetrics()
    metrics.token_issued()
    assert [file.name for file in directory.glob("counter_*.db")] == [f"counter_{os.getpid()}.db"]
    metrics.close()
