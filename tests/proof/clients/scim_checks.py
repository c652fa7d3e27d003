"""The checks from scim2-tester. Importing it takes seconds, so only the test that runs them imports this module."""

import re
from typing import Any, Final
from unittest.mock import patch
from urllib.parse import urljoin
from uuid import uuid4

import httpx
from scim2_client import BaseSyncSCIMClient
from scim2_tester import CheckResult, Status, check_server, filling

_GOOD: Final = {Status.SUCCESS, Status.COMPLIANT, Status.ACCEPTABLE}


def run_checks(address: str, token: str, resource_types: list[str]) -> list[tuple[str, bool]]:
    """Return the name of every check for these resource types and for the discovery, and whether it passed."""
    client = _Client(address, token)
    try:
        with patch.object(filling, "get_random_example_value", _with_valid_values(filling.get_random_example_value)):
            return [(_name(result), result.status in _GOOD) for result in check_server(client, resource_types=resource_types)]
    finally:
        client.close()


class _Client(BaseSyncSCIMClient):
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


def _name(result: CheckResult) -> str:
    """Return the resource type, the check, and the attribute if the check runs per attribute."""
    attribute = re.search(r"attribute '(.*?)'", result.reason or "")
    name = f"{result.resource_type} {result.title}"
    return f"{name} {attribute[1]}" if attribute else name


def _with_valid_values(original: Any) -> Any:
    """Wrap the tester's function for random values.

    User names are email addresses, and a user's only address is primary. The tester has no decimal values.
    """

    def example(path: Any) -> Any:
        if str(path).endswith("userName"):
            return f"{uuid4()}@example.com"
        if str(path).endswith("level"):
            return 8.5
        return True if str(path).endswith("primary") else original(path)

    return example
