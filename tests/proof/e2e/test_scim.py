"""scim2-tester, which checks everything that our SCIM discovery endpoints announce, against the running service."""

import importlib
from collections import Counter
from typing import Final

import pytest

from tests import ROOT
from tests.proof.e2e.conftest import Start
from tests.proof.e2e.process import Service

pytestmark = pytest.mark.slow

ADA, PASSWORD = "ada@example.com", "nine lions at the river"
GUIDE: Final = ROOT / "docs/guides/scim.md"
# The checks that fail. The guide says why.
EXPLAINED: Final = [
    "User search_with_attributes",
    "User check_add_attribute",
    *(f"User check_remove_attribute {name}" for name in ("emails", "active")),
    *(
        f"Group {check}"
        for check in (
            *("object_creation", "object_query", "object_query_without_id", "object_query_with_attributes"),
            *("object_list_with_attributes", "search_with_attributes", "object_replacement", "object_deletion"),
            *("check_add_attribute", "check_remove_attribute", "check_replace_attribute"),
        )
    ),
]
# With directory groups, groups are created, and their checks run.
EXPLAINED_WITH_GROUPS: Final = ["Group search_with_attributes"]


@pytest.fixture
def running(service: Start, own_database: dict[str, str]) -> Service:
    owner = {"SSO_PLATFORM_OWNER_EMAIL": ADA, "SSO_PLATFORM_OWNER_PASSWORD": PASSWORD}
    return service(SSO_AUTO_APPROVE_ORGANIZATIONS="true", SSO_RATE_LIMITS="off", **owner, **own_database).start()


def test_all_checks_pass_except_those_that_the_guide_explains(running: Service) -> None:
    token = running.login(ADA, PASSWORD)["access_token"]
    assert running.post("/api/organizations", {"name": "Acme", "slug": "acme"}, token=token).status_code == 200
    for name, kind in (("site", "text"), ("level", "number"), ("is_contractor", "boolean"), ("tools", "list")):
        attribute = {"name": name, "label": name, "kind": kind, "writers": ["directory"]}
        assert running.post("/api/organizations/acme/attributes", attribute, token=token).status_code == 201
    created = running.post("/api/organizations/acme/scim-tokens", {"name": "Tester"}, token=token)
    with_groups = running.post("/api/organizations/acme/scim-tokens", {"name": "Groups", "directory_groups": True}, token=token)
    scim_checks = importlib.import_module("tests.proof.clients.scim_checks")
    checks = scim_checks.run_checks(running.address, created.json()["token"], ["User", "Group"])
    assert Counter(name for name, passed in checks if not passed) == dict.fromkeys(EXPLAINED, 1)
    assert sum(passed for _, passed in checks) > 40
    checks = scim_checks.run_checks(running.address, with_groups.json()["token"], ["Group"])
    assert Counter(name for name, passed in checks if not passed) == dict.fromkeys(EXPLAINED_WITH_GROUPS, 1)
    assert sum(passed for name, passed in checks if name.startswith("Group ")) > 10
    asked = running.get("/scim/v2/ServiceProviderConfig", token=created.json()["token"])
    assert asked.status_code == 200
    assert running.stop() == 0
    running.start()
    logged = running.get("/api/organizations/acme/scim-requests", token=running.login(ADA, PASSWORD)["access_token"]).json()["requests"]
    assert len(logged) == 100
    assert logged[0]["path"] == "/scim/v2/ServiceProviderConfig", "the last request before the stop is stored"
    guide = GUIDE.read_text("utf-8")
    for check in (*EXPLAINED, *EXPLAINED_WITH_GROUPS):
        assert f"`{check.partition(' ')[2]}`" in guide, check
