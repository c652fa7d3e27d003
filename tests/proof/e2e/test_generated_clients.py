"""The API description, read by other projects: a validator, and client generators whose clients are used against the service."""

import importlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from tests.proof.clients.service_providers import CLIENTS
from tests.proof.e2e.conftest import settings_of_owner
from tests.proof.e2e.process import Service
from tests.support.openapi import description

pytestmark = pytest.mark.slow

EMAIL, PASSWORD = "ada@example.com", "nine lions at the river"
SETTINGS: Final = settings_of_owner(EMAIL, PASSWORD)
# The Python generator does not know these operations' content types. All other operations must be generated completely.
NOT_GENERATED = [
    "GET /assets/{name} within operations.",
    "GET /auth/connections/{connection_id}/metadata within connection_metadata.",
    "GET /images/{image_key}/{size} within images.",
    "GET /saml/{org_slug}/{service_slug}/metadata within saml.",
    "GET /setup/steps/connection/metadata within setup_connection_pages.",
    "PUT /api/organizations/{org_slug}/branding/logo within branding. Endpoint will not be generated.",
    "PUT /api/organizations/{org_slug}/services/{service_slug}/logo within services. Endpoint will not be generated.",
    "PUT /api/platform/connections/{provider}/logo within connections. Endpoint will not be generated.",
    "PUT /api/user/picture within images. Endpoint will not be generated.",
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The API description as a file."""
    path = tmp_path / "openapi.json"
    path.write_text(json.dumps(description()))
    return path


def run(*command: str, cwd: Path) -> str:
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    completed = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    return completed.stdout + completed.stderr


def test_the_description_is_valid_openapi_3_1() -> None:
    assert description()["openapi"].startswith("3.1.")
    assert importlib.import_module("tests.proof.clients.openapi_checks").errors_of(description()) == []


def test_openapi_python_client_generates_a_usable_client(
    running: Service, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "settings.yaml").write_text("post_hooks: []")  # by default, it formats the generated files
    command = (sys.executable, "-m", "openapi_python_client", "generate", "--path", str(file), "--config", "settings.yaml")
    output = run(*command, "--meta", "none", "--output-path", "generated", cwd=tmp_path)
    warnings = [line.removeprefix("WARNING parsing ") for line in output.splitlines() if line.startswith("WARNING")]
    assert sorted(set(warnings)) == NOT_GENERATED

    monkeypatch.syspath_prepend(tmp_path)
    client: Any = importlib.import_module("generated")
    models: Any = importlib.import_module("generated.models")

    def operation(tag: str, name: str) -> Any:
        return importlib.import_module(f"generated.api.{tag}.{name}").sync

    with client.Client(base_url=running.address) as anonymous:
        login = operation("sessions", "sessions_login")(client=anonymous, body=models.LoginRequest(email=EMAIL, password=PASSWORD))
    with client.AuthenticatedClient(base_url=running.address, token=login.access_token) as signed_in:
        body = models.OrganizationRequest(name="Acme", slug="acme")
        operation("organizations", "organizations_create")(client=signed_in, body=body)
        conflict = operation("organizations", "organizations_create")(client=signed_in, body=body)
        organizations = operation("organizations", "organizations_list_own_organizations")(client=signed_in)
    assert (type(conflict).__name__, conflict.error_code.value) == ("Error", "BAD_REQUEST")
    assert [each.organization.slug for each in organizations] == ["acme"]


def test_openapi_typescript_generates_a_usable_client(running: Service, file: Path, tmp_path: Path) -> None:
    if not (CLIENTS / "node_modules").is_dir():
        assert not os.environ.get("CI"), "npm and the packages of tests/proof/clients/node are missing"
        pytest.skip("npm is missing")
    (tmp_path / "node_modules").symlink_to(CLIENTS / "node_modules")
    (tmp_path / "package.json").write_text('{"type": "module"}')
    for name in ("use_api.ts", "tsconfig.json"):
        shutil.copy(CLIENTS / name, tmp_path)
    tools = tmp_path / "node_modules/.bin"
    # Not schema.d.ts: tsc checks this file's types as it checks our types, and skips the libraries' types.
    run(str(tools / "openapi-typescript"), str(file), "--output", "schema.ts", cwd=tmp_path)
    run(str(tools / "tsc"), cwd=tmp_path)
    results = json.loads(run("node", "use_api.js", running.address, EMAIL, PASSWORD, cwd=tmp_path))
    assert results == {"code": "BAD_REQUEST", "slugs": ["acme"]}
