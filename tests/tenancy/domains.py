"""Every call about an organization's domain, and helpers that publish its DNS record."""

from collections.abc import Awaitable, Callable
from typing import Final

from tests.fakes.outside import FakeTxtRecords
from tests.support.builders import Answer
from tests.support.tenants import Tenant

DOMAIN: Final = "acme.example"
RECORD: Final = f"_gatehouse-challenge.{DOMAIN}"

CALLS: dict[str, Callable[[Tenant, str], Awaitable[Answer]]] = {
    "set": lambda team, by: set_domain(team, by=by),
    "list": lambda team, by: list_domains(team, by),
    "look": lambda team, by: get_domain(team, by=by),
    "verify": lambda team, by: verify_domain(team, by=by),
    "remove": lambda team, by: remove_domain(team, by=by),
}


async def set_domain(team: Tenant, domain: str = DOMAIN, by: str = "owner") -> Answer:
    return await team.api.post(f"{team.path}/domains", {"domain": domain}, token=team.token(by))


async def list_domains(team: Tenant, by: str = "owner") -> Answer:
    return await team.api.get(f"{team.path}/domains", token=team.token(by))


async def get_domain(team: Tenant, domain: str = DOMAIN, by: str = "owner") -> Answer:
    return await team.api.get(f"{team.path}/domains/{domain}", token=team.token(by))


async def verify_domain(team: Tenant, domain: str = DOMAIN, by: str = "owner") -> Answer:
    return await team.api.post(f"{team.path}/domains/{domain}/verify", token=team.token(by))


async def remove_domain(team: Tenant, domain: str = DOMAIN, by: str = "owner") -> Answer:
    return await team.api.delete(f"{team.path}/domains/{domain}", token=team.token(by))


def publish(dns: FakeTxtRecords, *claims: Answer) -> None:
    """Publish the records that these responses to a claim contain."""
    for answer in claims:
        record = answer.json["record"]
        dns.published.setdefault(record["name"], []).append(record["value"])


async def prove_domain(team: Tenant, dns: FakeTxtRecords, domain: str = DOMAIN) -> Answer:
    publish(dns, await set_domain(team, domain))
    answer = await verify_domain(team, domain)
    assert answer.status == 200, answer.text
    return answer
