"""Requests about a tenant's sign-in policies."""

from typing import Any

from tests.support.builders import Answer
from tests.support.tenants import Tenant


def path_of(acme: Tenant, service: str | None = None) -> str:
    return f"{acme.path}/sign-in-policy" if service is None else f"{acme.path}/services/{service}/sign-in-policy"


async def load(acme: Tenant, service: str | None = None) -> Any:
    answer = await acme.api.get(path_of(acme, service), token=acme.token("owner"))
    assert answer.status == 200, answer.text
    return answer.json


async def save(acme: Tenant, rules: dict[str, Any], service: str | None = None, by: str = "owner", version: int | None = None) -> Answer:
    seen = (await load(acme, service))["version"] if version is None else version
    return await acme.api.call("PUT", path_of(acme, service), {**rules, "version": seen}, token=acme.token(by))


async def try_preview(acme: Tenant, rules: dict[str, Any], service: str | None = None, by: str = "owner") -> Answer:
    return await acme.api.post(f"{path_of(acme, service)}/preview", rules, token=acme.token(by))


async def preview(acme: Tenant, rules: dict[str, Any], service: str | None = None) -> Any:
    answer = await try_preview(acme, rules, service)
    assert answer.status == 200, answer.text
    return answer.json
