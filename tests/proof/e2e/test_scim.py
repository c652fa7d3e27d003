"""scim2-tester, which checks everything that our SCIM discovery endpoints announce, against the running service."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urljoin
from uuid import uuid4

import httpx
import pytest
from scim2_client import BaseSyncSCIMClient
from scim2_tester import CheckResult, Status, check_server, filling

from tests import ROOT
from tests.proof.e2e.conftest import Start
from tests.proof.e2e.process import Service

pytestmark = pytest.mark.slow

ADA, PASSWORD = "ada@example.com", "nine lions at the river"
GUIDE: Final = ROOT / "docs/guides/scim.md"
# The checks that fail. The guide says why.
EXPLAINED: Final = [
    "User search_with_attributes",
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
GOOD: Final = {Status.SUCCESS, Status.COMPLIANT, Status.ACCEPTABLE}


class Client(BaseSyncSCIMClient):
    """scim2-client on httpx."""

    def __init__(self, address: str, token: str) -> None:
        super().__init__()
        self._base = f"{address}/scim/v2/"
        self._http = httpx.Client(headers={"Authorization": f"Bearer {token}"}, timeout=30, trust_env=False)

    def _stays_under_base_url(self, endpoint: str) -> bool:
        return urljoin(self._base, endpoint.lstrip("/")).startswith(self._base)

    def _parse_json(self, response: Any) -> Any:
        return response.json()

    def request(self, method: str, url: str, **options: Any) -> Any:
        return self._http.request(method, urljoin(self._base, url.lstrip("/")), **options)

    def close(self) -> None:
        self._http.close()


@pytest.fixture
def running(service: Start, own_database: dict[str, str]) -> Service:
    owner = {"SSO_PLATFORM_OWNER_EMAIL": ADA, "SSO_PLATFORM_OWNER_PASSWORD": PASSWORD}
    return service(SSO_AUTO_APPROVE_ORGANIZATIONS="true", SSO_RATE_LIMITS="off", **owner, **own_database).start()


@pytest.fixture
def client(running: Service) -> Iterator[Client]:
    token = running.login(ADA, PASSWORD)["access_token"]
    assert running.post("/api/organizations", {"name": "Acme", "slug": "acme"}, token=token).status_code == 200
    created = running.post("/api/organizations/acme/scim-tokens", {"name": "Tester"}, token=token)
    connected = Client(running.address, created.json()["token"])
    yield connected
    connected.close()


def test_all_checks_pass_except_those_that_the_guide_explains(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filling, "get_random_example_value", with_valid_values(filling.get_random_example_value))
    results = check_server(client)
    failed = Counter(f"{result.resource_type} {check_of(result)}" for result in results if result.status not in GOOD)
    assert failed == dict.fromkeys(EXPLAINED, 1)
    assert sum(result.status in GOOD for result in results) > 40
    guide = GUIDE.read_text("utf-8")
    for check in EXPLAINED:
        assert f"`{check.partition(' ')[2]}`" in guide, check


def check_of(result: CheckResult) -> str:
    """Return the name of the check, and the attribute if the check runs once for each attribute."""
    attribute = re.search(r"attribute '(.*?)'", result.reason or "")
    return f"{result.title} {attribute[1]}" if attribute else str(result.title)


def with_valid_values(original: Any) -> Any:
    """Wrap the tester's function for random values, so that user names are email addresses and each user's one address is primary."""

    def example(path: Any) -> Any:
        if str(path).endswith("userName"):
            return f"{uuid4()}@example.com"
        return True if str(path).endswith("primary") else original(path)

    return example
