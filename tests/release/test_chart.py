"""The Helm chart, rendered by Helm 4 with the values from every documented example, and the Compose files."""

import json
import re
import subprocess
import tarfile
from pathlib import Path
from typing import Any, Final

import pytest

from entrypoints.settings import Settings
from entrypoints.version import VERSION
from tests import ROOT
from tests.release.conftest import Shared

CHART: Final = ROOT / "ops/helm/gatehouse"
PAGE: Final = ROOT / "docs/operating/kubernetes.md"
COMPOSE: Final = ROOT / "docs/operating/compose.md"
PYTHON: Final = ROOT / ".venv/charts/bin/python"
KUBERNETES: Final = ["1.30", "1.34", "1.37"]  # the oldest that the chart allows, and two that are supported

# The fields in third-party resources that the chart may use.
CLUSTER: Final = {"instances", "imageName", "bootstrap", "storage", "resources"}
STORAGE: Final = {"size", "storageClass"}
ENDPOINT: Final = {"port", "path", "interval", "scheme", "tlsConfig", "authorization"}

LEAST: Final = {
    "image": {"repository": "registry.example.com/gatehouse"},
    "baseUrl": "https://id.example.com",
    "existingSecret": "gatehouse",
}
# Whole numbers in a values file are floating-point for Helm.
SETTINGS: Final = {
    "SSO_REFRESH_TOKEN_TTL": 2592000.0,
    "SSO_WEBHOOK_TIMEOUT": 0.25,
    "SSO_NOTIFY_OWNERS_OF_ORGANIZATIONS": True,
    "SSO_MAIL_FROM": "'A' <a@b.example>",
}
WRONG: Final[dict[str, Any]] = {
    "no secret": {"existingSecret": ""},
    "a secret as a setting": {"settings": {"SSO_ENCRYPTION_KEYS": "k1:x"}},
    "an unknown setting": {"settings": {"SSO_WORKRES": 2}},
    "a base URL without TLS": {"baseUrl": "http://id.example.com"},
    "a base URL with a path": {"baseUrl": "https://id.example.com/sso"},
    "an unknown database": {"database": {"kind": "mysql"}},
    "no replica": {"replicas": 0},
    "an unknown value": {"replicaCount": 2},
    "an ingress without a certificate": {"ingress": {"enabled": True}},
    "a proxy without a network": {"trustedProxies": ["10.0.0.1"]},
    "a proxy with a name": {"trustedProxies": ["proxy/32"]},
    "a proxy with a prefix that is too long": {"trustedProxies": ["10.0.0.0/99"]},
    "a proxy with a part that is too large": {"trustedProxies": ["10.0.0.256/32"]},
    "an ingress that speaks HTTP to pods with TLS": {
        "ingress": {"enabled": True, "tlsSecret": "id-tls"},
        "tls": {"existingSecret": "gatehouse-tls"},
    },
    "a size without a number": {"database": {"kind": "cloudnative-pg", "cloudnativePg": {"storage": {"size": "lots"}}}},
    "no image": {"image": {"repository": ""}},
}


def in_charts(script: str, task: object) -> Any:
    """Run a script in the environment from `charts.lock`."""
    process = subprocess.run([PYTHON, "-I", *script.split("\n", 1)], input=json.dumps(task), capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


def files_of(page: Path) -> list[tuple[str, str]]:
    """Return the names of a page's YAML files, and their texts."""
    return re.findall(r"<!-- file: (\S+\.yaml) -->\n```yaml\n(.*?)```", page.read_text(), re.DOTALL)


def examples() -> dict[str, Any]:
    """Return the values in the page's examples by file name."""
    found = files_of(PAGE)
    read = "-c\nimport json, sys, yaml; print(json.dumps({name: yaml.safe_load(text) for name, text in json.load(sys.stdin)}))"
    values: dict[str, Any] = in_charts(read, found)
    return values


@pytest.fixture(scope="session")
def rendered(shared: Shared) -> Any:
    """The manifests and problems for all values."""
    return json.loads((shared("rendered", render) / "answers.json").read_text())


def render(folder: Path) -> None:
    values = {
        **examples(),
        "least": LEAST,
        "settings": LEAST | {"settings": SETTINGS},
        **{name: {**LEAST, **change} for name, change in WRONG.items()},
    }
    task = {"folder": str(CHART), "versions": KUBERNETES, "values": values}
    folder.mkdir()
    (folder / "answers.json").write_text(json.dumps(in_charts(str(ROOT / "tests/release/helm.py"), task)))


def of_kind(manifests: list[Any], kind: str) -> list[Any]:
    return [manifest for manifest in manifests if manifest["kind"] == kind]


def test_each_documented_example_gives_valid_manifests(rendered: Any) -> None:
    names = set(examples())
    assert {"external.yaml", "cloudnative-pg.yaml", "ingress.yaml"} <= names
    for name in (*names, "least"):
        for step in ("install", "upgrade"):
            assert rendered[name][step]["problems"] == [], (name, step)
            assert {"Deployment", "Service", "NetworkPolicy", "PodDisruptionBudget"} <= {
                manifest["kind"] for manifest in rendered[name][step]["manifests"]
            }


@pytest.mark.parametrize("name", WRONG)
def test_the_schema_refuses_wrong_values(rendered: Any, name: str) -> None:
    assert rendered[name]["install"]["problems"], name


def test_settings_become_the_texts_that_the_service_reads(rendered: Any) -> None:
    assert rendered["settings"]["install"]["problems"] == []
    [deployment] = of_kind(rendered["settings"]["install"]["manifests"], "Deployment")
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    texts = {variable["name"]: variable["value"] for variable in container["env"] if variable["name"] in SETTINGS}
    assert texts == dict(zip(SETTINGS, ("2592000", "0.25", "true", "'A' <a@b.example>"), strict=True))


def test_resources_of_other_projects_have_only_known_fields(rendered: Any) -> None:
    clusters, monitors = 0, 0
    for name in examples():
        for cluster in of_kind(rendered[name]["install"]["manifests"], "Cluster"):
            clusters += 1
            assert cluster["apiVersion"] == "postgresql.cnpg.io/v1"
            assert set(cluster["spec"]) <= CLUSTER
            assert set(cluster["spec"]["storage"]) <= STORAGE
            assert set(cluster["spec"]["bootstrap"]["initdb"]) == {"database", "owner"}
        for monitor in of_kind(rendered[name]["install"]["manifests"], "ServiceMonitor"):
            monitors += 1
            assert monitor["apiVersion"] == "monitoring.coreos.com/v1"
            assert set(monitor["spec"]) == {"selector", "endpoints"}
            [endpoint] = monitor["spec"]["endpoints"]
            assert set(endpoint) <= ENDPOINT
            assert set(endpoint["authorization"]["credentials"]) == {"name", "key"}
    assert (clusters, monitors) == (1, 1)


def test_pods_meet_the_restricted_standard_and_end_after_their_requests(rendered: Any) -> None:
    for name in examples():
        manifests = rendered[name]["upgrade"]["manifests"]
        for workload in of_kind(manifests, "Deployment") + of_kind(manifests, "Job"):
            pod = workload["spec"]["template"]["spec"]
            assert pod["securityContext"]["runAsNonRoot"]
            assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
            [container] = pod["containers"]
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert container["envFrom"] == [{"secretRef": {"name": "gatehouse"}}]
            assert container["image"].endswith(":0.0.0")
        [deployment] = of_kind(manifests, "Deployment")
        assert deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 35


def test_a_migration_runs_before_an_installation_unless_the_chart_makes_the_database(rendered: Any) -> None:
    for name, jobs in {"external.yaml": 1, "cloudnative-pg.yaml": 0}.items():
        assert len(of_kind(rendered[name]["install"]["manifests"], "Job")) == jobs
        [job] = of_kind(rendered[name]["upgrade"]["manifests"], "Job")
        assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
        assert job["spec"]["template"]["spec"]["containers"][0]["args"] == ["migrate"]


def test_the_notes_and_the_log_name_the_command_that_prints_the_link_of_the_first_owner(rendered: Any) -> None:
    install = rendered["external.yaml"]["install"]
    [deployment] = of_kind(install["manifests"], "Deployment")
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    [command] = [variable["value"] for variable in container["env"] if variable["name"] == "GATEHOUSE_COMMAND"]
    assert command == "kubectl --namespace identity exec deployment/sso-gatehouse -- gatehouse"
    assert f"  {command} owner link you@example.com\n" in install["notes"]
    assert f"\n{command} owner link you@example.com\n" in PAGE.read_text()


def parse_compose(text: str) -> Any:
    """Return the content of a Compose file that a parser for the specification accepts."""
    parse = """-c
import json, re, sys
from compose_spec import PyCompose
text = re.sub(r"\\$\\{[A-Z_]+(?::[-?][^}]*)?\\}", "value", json.load(sys.stdin))
compose = PyCompose.from_yaml(text)
compose.validate()
print(json.dumps(compose.to_dict()))
"""
    return in_charts(parse, text)


def test_the_compose_file_is_valid_and_passes_every_setting() -> None:
    gatehouse = parse_compose((ROOT / "ops/compose.yaml").read_text())["services"]["gatehouse"]
    assert gatehouse["env_file"]
    assert gatehouse["read_only"]
    # Settings here win over settings in the file, so only the settings that belong to the arrangement stand here.
    assert set(gatehouse["environment"]) == {"GATEHOUSE_COMMAND", "SSO_DATABASE_URL"}
    assert f"\n    {gatehouse['environment']['GATEHOUSE_COMMAND']} owner link you@example.com\n" in COMPOSE.read_text()


def test_the_documented_override_of_the_compose_file_is_valid_and_changes_the_service_alone() -> None:
    [(name, text)] = files_of(COMPOSE)
    assert name == "compose.override.yaml", "Compose reads a file of this name by itself"
    services = parse_compose(text)["services"]
    assert set(services) == {"gatehouse"}
    gatehouse = services["gatehouse"]
    assert set(gatehouse) == {"environment", "volumes", "ports"}
    names = {field.alias or f"SSO_{name.upper()}" for name, field in Settings.model_fields.items()}
    assert set(gatehouse["environment"]) <= names
    [volume], [port] = gatehouse["volumes"], gatehouse["ports"]
    for file in gatehouse["environment"].values():
        assert file.startswith(f"{volume.split(':')[1]}/")
    assert port.split(":")[1] in parse_compose((ROOT / "ops/compose.yaml").read_text())["services"]["gatehouse"]["ports"][0]


def test_a_release_has_the_chart_with_its_version(release: Path) -> None:
    with tarfile.open(release / f"gatehouse-{VERSION}.tgz") as chart:
        about = chart.extractfile("gatehouse/Chart.yaml")
        assert about is not None
        assert f"version: {VERSION}\nappVersion: {VERSION}" in about.read().decode()
