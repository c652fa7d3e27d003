"""Two organizations with domains that lead to identity providers, and addresses with the expected ways."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pytest

from core.federation.connections.model.connections import ConnectionState, OrganizationConnection
from ports import Ports
from tests.fakes.outside import FakeTxtRecords
from tests.support.connections import add_connection
from tests.support.tenants import Tenant
from tests.tenancy.domains import prove_domain

# The organizations' routes, by domain. Connection slugs have their organization's name in front.
ROUTES: Final[Mapping[str, Mapping[str, str]]] = {
    "acme": {
        "acme.example": "acme-okta",
        "eu.acme.example": "acme-entra",
        "social.acme.example": "codehost",
        "draft.acme.example": "acme-draft",
        "former.acme.example": "acme-former",
        "lab.acme.example": "acme-okta",  # which the other organization has proved
        "unproved.example": "acme-okta",
        "twin.example": "acme-okta",
    },
    "twin": {"twin.example": "twin-okta", "acme.example": "twin-okta", "deep.lab.acme.example": "twin-okta"},
}
PROVED: Final = {"acme": ["acme.example"], "twin": ["twin.example", "lab.acme.example"]}
# The identity provider for every address, or None.
WAYS: Final[Mapping[str, str | None]] = {
    "ada@acme.example": "acme-okta",
    " ADA@ACME.example ": "acme-okta",
    "owner@acme.example": "acme-okta",
    "ada@eu.acme.example": "acme-entra",
    "ada@us.acme.example": None,  # has no route
    "ada@social.acme.example": "codehost",
    "ada@draft.acme.example": None,
    "ada@former.acme.example": None,
    "ada@lab.acme.example": None,
    "ada@deep.lab.acme.example": "twin-okta",
    "ada@unproved.example": None,
    "ada@twin.example": "twin-okta",
    "ada@example.com": None,
}


@dataclass(frozen=True, slots=True)
class RoutedWorld:
    """The connections by slug. Both organizations' domains lead to them."""

    connections: Mapping[str, OrganizationConnection]

    def start_of(self, slug: str) -> str:
        return f"/auth/connections/{self.connections[slug].id}/start"


async def put_routes(team: Tenant, routes: Mapping[str, str]) -> None:
    """Set an organization's routes. The values are connection slugs, or `codehost`."""
    domains = [{"domain": name, "provider" if slug == "codehost" else "connection": slug} for name, slug in routes.items()]
    answer = await team.api.call("PUT", f"{team.path}/hrd", {"domains": domains}, token=team.token("owner"))
    assert answer.status == 200, answer.text


@pytest.fixture
async def world(acme: Tenant, other_tenant: Tenant, dns: FakeTxtRecords, ports: Ports) -> RoutedWorld:
    connections = {}
    for team in (acme, other_tenant):
        for name in ("okta", "entra", "draft", "former"):
            state = {"draft": ConnectionState.DRAFT, "former": ConnectionState.INACTIVE}.get(name, ConnectionState.ACTIVE)
            slug = f"{team.slug}-{name}"
            connections[slug] = await add_connection(ports.storage, team.org, slug, state=state)
        for domain in PROVED[team.slug]:
            await prove_domain(team, dns, domain)
        await put_routes(team, ROUTES[team.slug])
    return RoutedWorld(connections)
