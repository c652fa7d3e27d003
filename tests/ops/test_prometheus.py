"""What operators are given to watch the service with asks for figures that there are: the alert rules and the dashboard."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from adapters.prometheus import PrometheusMetrics
from tests import ROOT

OPS = ROOT / "ops"
RULES = OPS / "prometheus" / "gatehouse.rules.yml"
DASHBOARD = json.loads((OPS / "grafana" / "gatehouse.json").read_text("utf-8"))
PANELS: list[Any] = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def promtool(*arguments: str | Path) -> str:
    """What it says, after it was content."""
    if shutil.which("promtool") is None:
        message = "No promtool here, which tests of the alert rules need: on Debian, apt-get install prometheus."
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_rules_are_sound() -> None:
    assert "11 rules found" in promtool("check", "rules", RULES)


@pytest.mark.slow
def test_the_rules_fire_when_they_should_and_only_then() -> None:
    promtool("test", "rules", OPS / "prometheus" / "gatehouse.test.yml")


def expressions() -> list[str]:
    return [target["expr"] for panel in PANELS for target in panel["targets"]]


@pytest.mark.slow
def test_what_the_dashboard_asks_can_be_answered(tmp_path: Path) -> None:
    rules = tmp_path / "dashboard.yml"
    asked = [expression.replace("$__rate_interval", "5m") for expression in expressions()]
    recorded = [{"record": f"panel_{number}", "expr": expression} for number, expression in enumerate(asked)]
    rules.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": recorded}]}))  # JSON is YAML, too
    assert f"{len(asked)} rules found" in promtool("check", "rules", rules)


def test_there_is_every_figure_that_is_asked_for(tmp_path: Path) -> None:
    exposed = PrometheusMetrics(tmp_path).exposition().decode()
    families = set(re.findall(r"^# TYPE (\S+) ", exposed, re.MULTILINE))
    assert len(families) >= 12
    asked = set(re.findall(r"\bsso_\w+", RULES.read_text("utf-8") + json.dumps(DASHBOARD)))
    assert len(asked) >= 12
    assert {re.sub(r"_(bucket|count|sum)$", "", name) for name in asked} <= families


def test_every_job_and_reason_that_a_rule_names_is_one(tmp_path: Path) -> None:
    exposed = PrometheusMetrics(tmp_path).exposition().decode()
    named = re.findall(r'\b(?:job_type|reason)="[^"]+"', RULES.read_text("utf-8"))
    assert named
    assert [label for label in named if label not in exposed] == []


def test_every_panel_has_its_place() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        squares = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not taken & squares, panel["title"]
        taken |= squares
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    assert max(x for x, _ in taken) < 24
