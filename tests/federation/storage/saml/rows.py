"""Rows for a SAML application, and for other services."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import UUID

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres, Transaction
from core.authentication.flow.model import Flow, FlowTarget, new_flow
from core.federation.saml.model.configuration import AttributeFormat, NameIdFormat, SamlConfiguration
from core.federation.saml.model.messages import NameId
from core.federation.saml.model.sign_on import STATE_TTL, SamlLogout, SamlSession
from core.kernel.callers import ServiceContext
from core.kernel.values import digest
from tests.support.builders import run_sql
from tests.support.rows import NOW, within

STATE, BROWSER, LOGOUT_BROWSER = digest("state"), digest("cookie"), digest("cookie of the logout")
REQUEST: Final = digest("_asked")
TABLES: Final = (
    *("saml_configurations", "saml_certificates", "sign_in_flows", "client_assertions", "saml_name_ids", "saml_sessions"),
    *("saml_logouts", "saml_logout_requests"),
)
NAME_ID: Final = NameId("_name", NameIdFormat.PERSISTENT)
CONFIGURATION: Final = SamlConfiguration(
    enabled=True,
    entity_id="https://shop.example.com/metadata",
    acs_url="https://shop.example.com/acs",
    slo_url="https://shop.example.com/slo",
    slo_response_url="https://shop.example.com/slo-responses",
    slo_certificate="a certificate",
    name_id_format=NameIdFormat.PERSISTENT,
    attribute_mapping={"email": "mail"},
    attribute_formats={"mail": AttributeFormat("urn:format", ";")},
    sign_response=False,
)


@dataclass(frozen=True, slots=True)
class StoredSaml:
    """A service with a user, a SAML session, a pending sign-on and a logout in progress."""

    storage: Postgres
    pool: Pool
    service: ServiceContext
    user: UUID
    session: UUID
    flow: Flow
    logout: SamlLogout
    saml_session: SamlSession

    async def rows(self) -> list[list[tuple[Any, ...]]]:
        return [await run_sql(self.pool, f"select to_jsonb(t)::text from {table} t order by 1") for table in TABLES]  # noqa: S608

    async def run_without_effect(self, act: Callable[[Transaction], Awaitable[object]]) -> object:
        """Run a statement and check that it changes nothing. Return its result."""
        before = await self.rows()
        result = await within(self.storage, act)
        assert await self.rows() == before
        return result


def sign_on(service: ServiceContext, state: bytes = STATE) -> Flow:
    """Return the flow for a sign-on at this service."""
    flow = new_flow(NOW, FlowTarget.SAML, "the request", BROWSER, secret_hash=state, org_id=service.org_id, service_id=service.id)
    return replace(flow, wants_fresh=True, expires_at=NOW + STATE_TTL)


def other_services(saml_rows: StoredSaml, desk: ServiceContext, foreign: ServiceContext) -> list[tuple[UUID, UUID]]:
    """Return pairs of organization and service that do not own the rows, including mixed pairs."""
    return [
        (desk.org_id, desk.id),
        (foreign.org_id, foreign.id),
        (foreign.org_id, saml_rows.service.id),
        (saml_rows.service.org_id, foreign.id),
    ]
