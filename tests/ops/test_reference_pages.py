"""The handwritten reference pages name exactly the metrics, claims and rate limits in the code."""

import ast
import re
from pathlib import Path

from adapters.prometheus import JOB_TYPES, PrometheusMetrics
from core.authentication.model.openid import USER_CLAIMS
from core.kernel import rate_limits
from core.kernel.rate_limits import Bucket
from entrypoints.http.edge.access.declaration import access_of
from entrypoints.http.pages.curl import operations_of
from tests.support.builders import application

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs/reference"


def test_the_metrics_page_names_every_metric_and_job_type(tmp_path: Path) -> None:
    metrics = PrometheusMetrics(tmp_path)
    metrics.pool(total=1, idle=1, maximum=1)
    metrics.token_issued()
    metrics.siem_dropped(1)
    metrics.webhook_delivered(1)
    try:
        exposed = set(re.findall(r"^# TYPE (\w+) ", metrics.exposition().decode(), re.MULTILINE))
    finally:
        metrics.close()
    page = (PAGES / "metrics.md").read_text()
    assert set(re.findall(r"^\| `(sso_\w+)`", page, re.MULTILINE)) == exposed
    assert [job_type for job_type in JOB_TYPES if f"`{job_type}`" not in page] == []


def test_the_claims_page_names_every_claim() -> None:
    tree = ast.parse("".join((ROOT / "adapters/crypto" / name).read_text() for name in ("access_tokens.py", "own_tokens.py")))
    names = {"sign", "sign_pre_auth", "id_token_claims", "sign_logout_token"}
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name in names]
    assert len(functions) == 4
    keys = {
        node.value
        for function in functions
        for each in ast.walk(function)
        for node in (each.keys if isinstance(each, ast.Dict) else [each.slice] if isinstance(each, ast.Subscript) else [])
        if isinstance(node, ast.Constant)
    }
    # Three claims about a subscription are set in a loop over a tuple of names. The claims about the user in an ID
    # token follow from its scopes.
    keys |= {"plan", "subscription_status", "features"} | USER_CLAIMS
    page = (PAGES / "claims.md").read_text()
    claims = {name for row in re.findall(r"^\| (`[^|]+) \|", page, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    assert claims == keys


def test_the_limits_page_has_every_rate_limit() -> None:
    page = (PAGES / "limits.md").read_text()
    rows = {tuple(cell.strip() for cell in row.split("|")[2:4]) for row in page.splitlines() if row.startswith("| ")}
    buckets = [value for value in vars(rate_limits).values() if isinstance(value, Bucket)]
    assert [bucket.name for bucket in buckets if not rows & set(_rates(bucket))] == []


def test_the_limits_page_names_each_route_that_chooses_its_limit() -> None:
    page = (PAGES / "limits.md").read_text().partition("choose their limit themselves")[2].partition("## ")[0]
    limitless = (operation.split()[1] for operation, view in operations_of(application()) if access_of(view).limit is None)
    routes = {path.replace("<", "{").replace(">", "}") for path in limitless}  # only the API's paths have braces
    assert [route for route in routes if route.startswith(("/auth/", "/api/")) and f"`{route}`" not in page] == []


def _rates(bucket: Bucket) -> list[tuple[str, str]]:
    """Return the ways in which the page may state a bucket: tokens per second or minute, or a token per some seconds."""
    burst = str(bucket.burst)
    per_minute = f"{round(60 / bucket.period)} per minute"
    return [
        (per_minute, burst),
        (f"1 per {bucket.period:g} seconds", burst),
        ("1 per second", burst) if bucket.period == 1 else (per_minute, burst),
    ]
