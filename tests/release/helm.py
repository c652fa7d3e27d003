"""Render the Helm chart with Helm 4, and check the manifests. The environment from `charts.lock` runs it, not the tests' environment.

Standard input has the chart's folder, the Kubernetes versions, and values by name. Standard output has, by the same names, the manifests
and the problems.
"""

import json
import sys
from functools import cache
from typing import Any

import helm_python  # type: ignore[import-not-found]
import kubernetes_validate  # type: ignore[import-not-found]
import yaml

BUILT_IN = ("v1", "apps/v1", "batch/v1", "networking.k8s.io/v1", "policy/v1")


def render(folder: str, values: dict[str, Any], versions: list[str], *, upgrade: bool) -> dict[str, Any]:
    report = helm_python.lint(folder, values, strict=True)
    problems = [message["error"] for message in report["messages"] if message["severity"] >= 2] + report["errors"]
    manifests: list[Any] = []
    notes = ""
    try:
        with helm_python.Chart.load(folder) as chart:
            chart.validate_schema(values)
            rendered = chart.render(values, name="sso", namespace="identity", is_install=not upgrade, is_upgrade=upgrade)
    except helm_python.HelmError as error:
        return {"problems": [*problems, str(error)], "manifests": [], "notes": ""}
    for name, text in rendered.items():
        if name.endswith("NOTES.txt"):
            notes = text
        elif not name.endswith(".tpl"):
            manifests += [document for document in yaml.safe_load_all(text) if document]
    built_in = [json.dumps(manifest, sort_keys=True) for manifest in manifests if manifest["apiVersion"] in BUILT_IN]
    problems += [problem for manifest in built_in for version in versions if (problem := find_problem(manifest, version))]
    return {"problems": problems, "manifests": manifests, "notes": notes}


@cache  # values differ in few manifests
def find_problem(manifest: str, version: str) -> str | None:
    document = json.loads(manifest)
    try:
        kubernetes_validate.validate(document, version, strict=True)
    except (kubernetes_validate.ValidationError, kubernetes_validate.SchemaNotFoundError) as error:
        return f"{document['kind']} in {version}: {error.message}"
    return None


def main() -> None:
    task = json.load(sys.stdin)
    answers = {
        name: {
            upgrade: render(task["folder"], values, task["versions"], upgrade=upgrade == "upgrade") for upgrade in ("install", "upgrade")
        }
        for name, values in task["values"].items()
    }
    json.dump(answers, sys.stdout)


main()
