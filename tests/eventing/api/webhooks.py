"""Members' requests about webhooks."""

from collections.abc import Mapping
from typing import Any

from core.kernel import event_catalog
from core.kernel.causes import SYSTEM
from core.kernel.event_catalog import EVENT_KINDS
from tests.support.builders import Answer
from tests.support.tenants import Tenant

URL = "https://hooks.acme.example/in?token=s3cr3t"
FULL = {"name": "Billing", "url": URL, "events": ["user.login.success", "user.invited"]}


async def call(acme: Tenant, method: str, path: str = "", body: Any = None, by: str = "owner") -> Answer:
    return await acme.api.call(method, f"{acme.path}/webhooks{path}", body, token=acme.token(by))


async def create_webhook(acme: Tenant, by: str = "owner", **changes: Any) -> dict[str, Any]:
    answer = await call(acme, "POST", "", {**FULL, **changes}, by)
    assert answer.status == 200, answer.text
    webhook: dict[str, Any] = answer.json
    return webhook


async def patch(acme: Tenant, webhook: Mapping[str, Any], body: Any, by: str = "owner") -> Answer:
    return await call(acme, "PATCH", f"/{webhook['id']}", body, by)


async def record_events(acme: Tenant, *names: str) -> None:
    """Record events in one system transaction."""
    async with acme.ports.storage.transaction(by=SYSTEM) as tx:
        for name in names:
            tx.record(event_catalog.Event(EVENT_KINDS[name], "x", org_id=acme.org, details={"n": 1}))


async def list_deliveries(acme: Tenant, webhook: Mapping[str, Any], query: str = "") -> Any:
    answer = await call(acme, "GET", f"/{webhook['id']}/deliveries{query}")
    assert answer.status == 200, answer.text
    return answer.json


def refusal(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.code
