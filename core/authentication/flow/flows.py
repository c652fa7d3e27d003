"""Reading sign-ins in progress."""

from dataclasses import replace
from typing import Final
from uuid import UUID

from core.accounts import relying_party
from core.applications.model.services import ServiceNotFound
from core.authentication.flow.model import Flow, FlowEnded, FlowTarget
from core.kernel import callers, proofs
from core.kernel.access import AccountGone
from core.kernel.errors import refuse
from core.kernel.sign_in_policy.steps import Needs
from core.kernel.values import digest
from ports import Ports

NOT_ON_PAGES: Final = frozenset({FlowTarget.LINK, FlowTarget.REAUTHENTICATION, FlowTarget.TEST, FlowTarget.SETUP_TEST})


async def load(ports: Ports, flow_id: UUID, device_cookie: str | None) -> Flow | None:
    """Return the flow of the browser with this device cookie, also after it has ended, or None."""
    if device_cookie is None:
        return None
    async with ports.storage.reading() as read:
        return await read.flows.load(flow_id, digest(device_cookie))


async def load_open(ports: Ports, flow_id: UUID, device_cookie: str | None) -> Flow:
    """Return the open flow, with pages, of the browser with this device cookie."""
    flow = await load(ports, flow_id, device_cookie)
    if flow is None or not flow.is_open(ports.clock.now()) or flow.target in NOT_ON_PAGES:
        raise FlowEnded
    return flow


async def close(ports: Ports, flow: Flow) -> None:
    """End a flow. Raises: FlowEnded if it has ended."""
    async with ports.storage.autocommit() as statements:
        if not await statements.flows.close(flow, ports.clock.now()):
            raise FlowEnded


async def ask_for_more(ports: Ports, flow: Flow, needs: Needs) -> None:
    """If the target has more needs than when the flow began, let a trusted device no longer skip the second factor."""
    if flow.keeps_trust and not needs.keeps_trust:
        async with ports.storage.autocommit() as statements:
            await statements.flows.ask_for_more(flow, wants_fresh=needs.needs_fresh_sign_in)


async def ask_for_fresh(ports: Ports, flow: Flow, wants_fresh: bool | None) -> Flow:
    """Return the flow in which an identity provider must authenticate the user again for the present step, or need not. None: as before."""
    if wants_fresh in (None, flow.wants_fresh) or not flow.is_stored:
        return flow
    async with ports.storage.autocommit() as statements:
        await statements.flows.ask_for_fresh(flow, wants_fresh=bool(wants_fresh))
    return replace(flow, wants_fresh=bool(wants_fresh))


async def find_reachable(
    ports: Ports, visitor: callers.Visitor | None, service: callers.ServiceContext | None, needs: Needs
) -> proofs.Strength:
    """Return the strength that the account's present factors reach, if the session lacks the required strength."""
    if visitor is None or proofs.session_strength(callers.proofs_at(service, visitor.browser.proofs, ports.clock.now())) >= needs.required:
        return proofs.Strength.ONE
    return proofs.reachable_strength(await load_factors(ports, visitor))


async def load_factors(ports: Ports, visitor: callers.Visitor) -> tuple[proofs.Factor, ...]:
    """Return the factors of the account that work here."""
    async with ports.storage.reading() as read:
        account = await read.accounts.by_id(visitor.user_id) or refuse(AccountGone)
        return (await relying_party.load_without_lost_keys(ports, read, account)).factors


async def with_service(ports: Ports, flow: Flow) -> Flow:
    """Return the flow with the service of the session that it starts for an API client, if any. Raises: ServiceNotFound.

    With a pending SAML sign-on, which is its request, the client gets a session of the platform.
    """
    if flow.in_browser or flow.service_id is None or flow.request:
        return flow
    async with ports.storage.reading() as read:
        return replace(flow, service=await read.services.context_by_id(flow.service_id) or refuse(ServiceNotFound))
