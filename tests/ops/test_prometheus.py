"""The alert rules and the dashboard only use metrics that exist."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from adapters.prometheus import PrometheusMetrics
from ops.checks.references import anchors_of
from tests import ROOT
from tests.support.openapi import operations

OPS = ROOT / "ops"
RULES = OPS / "prometheus" / "gatehouse.rules.yml"
DASHBOARD = json.loads((OPS / "grafana" / "gatehouse.json").read_text("utf-8"))
PANELS: list[Any] = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
# Names in the ordered specification that break the conventions
ORDERED: Final = {"sso_active_users_total", "sso_db_pool_connections_total", "sso_mfa_enabled_users_total"}


def promtool(*arguments: str | Path, text: str = "", exit_code: int = 0) -> str:
    """Run promtool with `text` as its input and return its output."""
    if shutil.which("promtool") is None:
        message = "The tests of the alert rules need promtool. On Debian, run apt-get install prometheus."
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    result = subprocess.run(["promtool", *arguments], input=text, capture_output=True, text=True, check=False)
    assert result.returncode == exit_code, result.stdout + result.stderr
    return result.stdout + result.stderr


@pytest.mark.slow
def test_the_rules_are_valid() -> None:
    assert "18 rules found" in promtool("check", "rules", RULES)


@pytest.mark.slow
def test_the_names_of_metrics_follow_the_conventions(tmp_path: Path) -> None:
    metrics = PrometheusMetrics(tmp_path)
    problems = promtool("check", "metrics", text=metrics.exposition().decode(), exit_code=3)
    metrics.close()
    assert {line.split()[0] for line in problems.splitlines()} == ORDERED, problems


@pytest.mark.slow
def test_the_rules_fire_when_they_should() -> None:
    promtool("test", "rules", OPS / "prometheus" / "gatehouse.test.yml")


def test_the_rule_about_errors_ignores_all_operations_that_answer_501() -> None:
    unsupported_operations = {(method, path) for method, path, operation in operations() if "501" in operation["responses"]}
    checkout = "/api/organizations/{org_slug}/services/{service_slug}/checkout"
    assert {path for _, path in unsupported_operations} == {"/scim/v2/Me", "/scim/v2/Bulk", "/scim/v2/Groups", checkout}
    assert {method for method, path in unsupported_operations if path == "/scim/v2/Groups"} == {"POST"}
    rule = RULES.read_text("utf-8").partition("alert: GatehouseErrors")[2].partition("for:")[0]
    assert 'route!~"/scim/v2/(Me|Bulk)|/api/organizations/.+/checkout"' in rule
    assert 'method="POST", route="/scim/v2/Groups"' in rule


def test_each_rule_names_its_section_of_the_documentation() -> None:
    rules = RULES.read_text("utf-8")
    alerts = re.findall(r"- alert: (\w+)", rules)
    assert alerts
    assert re.findall(r"runbook: (\S+)", rules) == [f"docs/operating/alerts.md#{alert.lower()}" for alert in alerts]
    assert {alert.lower() for alert in alerts} <= anchors_of(ROOT / "docs/operating/alerts.md")


def expressions() -> list[str]:
    return [target["expr"] for panel in PANELS for target in panel["targets"]]


@pytest.mark.slow
def test_the_queries_of_the_dashboard_are_valid(tmp_path: Path) -> None:
    rules = tmp_path / "dashboard.yml"
    queries = [expression.replace("$__rate_interval", "5m") for expression in expressions()]
    recording_rules = [{"record": f"panel_{number}", "expr": expression} for number, expression in enumerate(queries)]
    rules.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": recording_rules}]}))  # JSON is YAML, too
    assert f"{len(queries)} rules found" in promtool("check", "rules", rules)


def test_every_metric_in_the_rules_and_the_dashboard_exists(tmp_path: Path) -> None:
    exposed = PrometheusMetrics(tmp_path).exposition().decode()
    families = set(re.findall(r"^# TYPE (\S+) ", exposed, re.MULTILINE))
    assert len(families) >= 12
    metrics = set(re.findall(r"\bsso_\w+", RULES.read_text("utf-8") + json.dumps(DASHBOARD)))
    assert len(metrics) >= 12
    assert {re.sub(r"_(bucket|count|sum)$", "", name) for name in metrics} <= families


def test_every_job_and_reason_in_the_rules_exists(tmp_path: Path) -> None:
    exposed = PrometheusMetrics(tmp_path).exposition().decode()
    labels = re.findall(r'\b(?:job_type|reason|outcome)="[^"]+"', RULES.read_text("utf-8"))
    assert labels
    assert [label for label in labels if label not in exposed] == []


def test_panels_do_not_overlap() -> None:
    cells: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        squares = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & squares, panel["title"]
        cells |= squares
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    assert max(x for x, _ in cells) < 24
