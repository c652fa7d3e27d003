"""A SAML sign-on as the target of a sign-in: the service's request, and the browser that continues it.

Implements security X-1, X-3 and X-5.

A service sends the browser here with an AuthnRequest, which begins a flow. The browser gets a state and a
cookie of this flow, because a form of another site arrives without our other cookies. It comes back with
both. If its session is not enough, the flow moves to the browser's device cookie, as all flows.
"""

import json
from dataclasses import asdict, dataclass, replace
from urllib.parse import urlencode
from uuid import UUID

from core.applications.model.services import Service
from core.authentication.flow import flows
from core.authentication.flow.model import FLOW_TTL, Flow, FlowEnded, FlowTarget, new_flow, read_stored
from core.authentication.flow.prove import confirm_membership_if_admitted
from core.authentication.model.login import SignedIn
from core.federation.destination import Destination
from core.federation.saml import configuration as saml
from core.federation.saml.model import configuration, messages
from core.federation.saml.model import configuration as saml_model
from core.federation.saml.model import messages as saml_messages
from core.federation.saml.model.sign_on import STATE_TTL, AuthnRequestReplayed, SamlSignOn, SignOnNotFound, SignOnReturn, SignOnStarted
from core.kernel import callers, errors, values
from core.kernel.causes import Caller
from core.kernel.proofs import Strength
from core.kernel.sign_in_policy.steps import Needs
from ports import Ports


@dataclass(frozen=True, slots=True)
class WaitingSignOn:
    """A sign-on in progress, and the identity provider that answers it."""

    flow: Flow
    sign_on: SamlSignOn
    provider: configuration.SamlIdentityProvider

    @property
    def needs(self) -> Needs:
        """What the request and the application require from the sign-in."""
        return _needs(self.sign_on, self.provider.service)


def _needs(sign_on: SamlSignOn, service: callers.ServiceContext) -> Needs:
    required = service.required_strength
    return Needs(is_silent=sign_on.is_passive, fresh=sign_on.force_authn, required=required, keeps_trust=required is Strength.ONE)


async def check(
    ports: Ports, base_url: str, provider: configuration.SamlIdentityProvider, received: messages.ReceivedDocument
) -> messages.AuthnRequest:
    """Return a service's AuthnRequest, which is valid. `provider` was loaded for it.

    Raises: the errors of `check_relay_state` and `check_authn_request`.
    """
    saml_messages.check_relay_state(received.relay_state)
    request = await ports.saml.read(received.document)
    if not isinstance(request, messages.AuthnRequest):
        raise messages.SamlMessageInvalid
    url = saml_model.endpoint_url(base_url, provider.service, "sso")
    saml_messages.check_authn_request(request, provider, url, ports.clock.now())
    return request


async def begin(
    ports: Ports,
    base_url: str,
    provider: configuration.SamlIdentityProvider,
    received: messages.ReceivedDocument,
    request: messages.AuthnRequest,
) -> SignOnStarted:
    """Begin the flow of a service's AuthnRequest, which `check` returned.

    If this or `check` raises, the service gets no message. A valid request with an option that we refuse begins
    a flow too: the service gets the SAML status when the browser comes back for the response.

    Raises: AuthnRequestReplayed; the errors of `configuration.find_provider`.
    """
    now, service = ports.clock.now(), provider.service
    issuer = saml_model.endpoint_url(base_url, service)
    sign_on = SamlSignOn(
        request_id=request.id,
        relay_state=received.relay_state,
        force_authn=request.force_authn,
        is_passive=request.is_passive,
        status=saml_messages.refusal_status(request, provider, issuer),
        subject=None if request.subject is None else saml_messages.resolve_name_id(request.subject, provider, issuer),
        context_class=None if request.context is None else saml_messages.choose_context_class(request.context),
    )
    state, cookie = values.new_secret(), values.new_secret()
    flow = _new_flow(ports, service, sign_on, cookie)
    flow = replace(flow, secret_hash=values.digest(state), expires_at=now + STATE_TTL)  # until its browser comes back
    async with ports.storage.autocommit() as statements:
        is_new = await statements.saml_sign_ons.begin(flow, values.digest(request.id))
    if not is_new:
        await saml.load_provider(ports, received.org_slug, received.service_slug)  # raises if the service was deleted
        raise AuthnRequestReplayed
    return SignOnStarted(_continuation_path(service.org_slug, service.slug, state), state, cookie)


async def begin_unsolicited(
    ports: Ports, caller: Caller, org_slug: str, service_slug: str, relay_state: str | None, device_cookie: str
) -> Flow:
    """Begin the flow of a user who opens our URL of a service without a session that is enough. The service sent no request."""
    saml_messages.check_relay_state(relay_state)
    provider = await saml.load_provider(ports, org_slug, service_slug)
    flow = _new_flow(ports, provider.service, SamlSignOn(request_id=None, relay_state=relay_state), device_cookie)
    if isinstance(caller, callers.Visitor):
        flow = replace(flow, first_session_id=caller.session_id)
    async with ports.storage.transaction(by=caller) as tx:
        await tx.flows.add(flow)
    return replace(flow, is_stored=True)


def _new_flow(ports: Ports, service: callers.ServiceContext, sign_on: SamlSignOn, cookie: str) -> Flow:
    needs = _needs(sign_on, service)
    return new_flow(
        ports.clock.now(),
        FlowTarget.SAML,
        json.dumps(asdict(sign_on)),
        values.digest(cookie),
        org_id=service.org_id,
        service_id=service.id,
        wants_fresh=needs.needs_fresh_sign_in,
        keeps_trust=needs.keeps_trust,
    )


def _continuation_path(org_slug: str, service_slug: str, state: str, ticket: str | None = None) -> str:
    """Return the path where the browser continues a sign-on. `ticket` comes from a sign-in through the API, if any."""
    fields = {"saml_state": state} | ({} if ticket is None else {"ticket": ticket})
    return f"{saml_model.endpoint_path(org_slug, service_slug, 'authenticate')}?{urlencode(fields)}"


async def find(ports: Ports, returned: SignOnReturn) -> WaitingSignOn:
    """Return the sign-on to which this browser comes back. Its session counts as the first one of the flow.

    Raises: SignOnNotFound; the errors of `configuration.find_provider`.
    """
    now, cookies = ports.clock.now(), (returned.cookie, returned.device_cookie)
    browser_hashes = [values.digest(cookie) for cookie in cookies if cookie is not None]
    async with ports.storage.reading() as read:
        setup, flow = await read.saml_sign_ons.find(
            returned.org_slug, returned.service_slug, values.digest(returned.state), browser_hashes, now - STATE_TTL, now
        ) or (None, None)
        provider = await saml.require_provider(read, returned.org_slug, setup, now)
    if flow is None:
        raise SignOnNotFound
    try:
        sign_on = _sign_on_of(flow)
    except FlowEnded:  # another release stored it
        raise SignOnNotFound from None
    if returned.cookie is not None and flow.browser_hash == values.digest(returned.cookie):
        flow = replace(flow, first_session_id=returned.session_id)
    return WaitingSignOn(flow, sign_on, provider)


async def load(ports: Ports, flow: Flow) -> WaitingSignOn:
    """Return the sign-on of a flow. Raises: FlowEnded if the identity provider is no longer active."""
    async with ports.storage.reading() as read:
        setup = await read.saml.setup_by_id(*_service_ids(flow)) or errors.refuse(FlowEnded)
    waiting = WaitingSignOn(flow, _sign_on_of(flow), saml.active_provider(setup, ports.clock.now()) or errors.refuse(FlowEnded))
    await flows.ask_for_more(ports, flow, waiting.needs)
    return waiting


def _service_ids(flow: Flow) -> tuple[UUID, UUID]:
    assert flow.org_id is not None, "a sign-on has a service"
    assert flow.service_id is not None, "a sign-on has a service"
    return flow.org_id, flow.service_id


def _sign_on_of(flow: Flow) -> SamlSignOn:
    return read_stored(
        SamlSignOn,
        json.loads(flow.request),
        status=messages.SamlStatus,
        subject=lambda subject: read_stored(messages.NameId, subject, format=configuration.NameIdFormat),
    )


async def keep(ports: Ports, waiting: WaitingSignOn, device_cookie: str) -> Flow:
    """Return the flow, which its browser continues with its device cookie from now on."""
    flow, now = waiting.flow, ports.clock.now()
    if flow.browser_hash == values.digest(device_cookie):
        return flow
    async with ports.storage.autocommit() as statements:
        kept = replace(flow, expires_at=now + FLOW_TTL)
        if not await statements.flows.move(kept, values.digest(device_cookie), now):
            raise SignOnNotFound
    return replace(kept, browser_hash=values.digest(device_cookie))


async def find_destination(ports: Ports, flow: Flow, _base_url: str) -> Destination:
    """Return the destination that the pages of the sign-in name. Raises: FlowEnded."""
    async with ports.storage.reading() as read:
        service, context = await read.services.client_by_id(*_service_ids(flow)) or errors.refuse(FlowEnded)
    required, has_policy = context.required_strength, context.has_sign_in_policy
    return Destination(service=service, has_sign_in_policy=has_policy, offers_sign_up=False, required=required)


def address(_flow: Flow) -> None:
    """Return None: no other browser can begin again, because a request is used once."""


# Sign-ins through the API


async def check_pending(ports: Ports, state: str) -> None:
    """Check that a sign-on with this state is pending (security T-5)."""
    _, service = await _find_pending(ports, state) or errors.refuse(SignOnNotFound)
    if service.status is not callers.OrganizationStatus.ACTIVE:
        raise errors.OrganizationNotActive


async def find_service(ports: Ports, state: str) -> Service | None:
    """Return the service of the pending sign-on with this state, if any."""
    pending = await _find_pending(ports, state)
    return None if pending is None else pending[0]


async def _find_pending(ports: Ports, state: str) -> tuple[Service, callers.ServiceContext] | None:
    now = ports.clock.now()
    async with ports.storage.reading() as read:
        return await read.saml_sign_ons.pending_service(values.digest(state), now - STATE_TTL, now)


async def complete_sign_in(ports: Ports, caller: Caller, state: str, signed_in: SignedIn) -> str:
    """Attach a sign-in through the API, with all factors verified, to a pending sign-on.

    Return the path where its browser continues.

    The path contains a ticket, because this call does not see the browser's cookie. Only a browser
    with the cookie and the ticket gets the assertion, so it is the browser in which the user signed
    in. Otherwise an attacker could make a victim complete the attacker's own sign-on.
    """
    ticket, session, now = values.new_secret(), signed_in.session, ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        completed = await tx.saml_sign_ons.complete_sign_in(
            values.digest(state), session.user_id, session.id, values.digest(ticket), now - STATE_TTL, now
        )
    org_id, org_slug, service_id, service_slug = completed or errors.refuse(SignOnNotFound)
    await confirm_membership_if_admitted(ports, signed_in, org_id, service_id)
    return _continuation_path(org_slug, service_slug, state, ticket)
