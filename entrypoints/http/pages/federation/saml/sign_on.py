"""SAML single sign-on: AuthnRequests, sign-ins that start here, and the page that continues a sign-on.

Sources: decisions 174, 177.
"""

from dataclasses import replace
from functools import partial

from pydantic import Field
from quart import Blueprint, Response, after_this_request, request
from quart_schema import document_response

from core.applications.model import users
from core.authentication.flow.model import Flow, FlowEnded
from core.authentication.model import policy
from core.federation import destination
from core.federation.saml import configuration as saml
from core.federation.saml import sign_on as saml_sign_on
from core.federation.saml import target
from core.federation.saml.model import messages, sign_on
from core.kernel import errors
from core.kernel.access import AddressNotVerified, OwnProofNeeded
from core.kernel.callers import Visitor
from core.kernel.rate_limits import AUTH
from core.kernel.sign_in_policy.steps import Step
from entrypoints.http import kit
from entrypoints.http.api.federation.saml.configuration import PROVIDER, SAML
from entrypoints.http.edge.access import callers
from entrypoints.http.edge.openapi import succeeds_with_page
from entrypoints.http.edge.reauthentication import to_policy
from entrypoints.http.pages.federation.saml.messages import REFUSALS, continue_at, read_parameters, result_page
from entrypoints.http.pages.flow import flows
from entrypoints.http.pages.form_pages import no_access_page
from entrypoints.http.pages.visitors import visitor

routes = Blueprint("saml_sign_on", __name__)


async def _begin(org_slug: str, service_slug: str) -> Response:
    provider = await saml.load_provider(kit.ports(), org_slug, service_slug)
    parameters = await read_parameters()
    document = parameters.document("SAMLRequest") or errors.refuse(messages.SamlMessageInvalid)
    received = messages.ReceivedDocument(
        org_slug=org_slug, service_slug=service_slug, document=document, relay_state=parameters.relay_state
    )
    authn_request = await target.check(kit.ports(), kit.app_context().base_url, provider, received)
    flows.require_tab(or_frame=authn_request.is_passive)
    started = await target.begin(kit.ports(), kit.app_context().base_url, provider, received, authn_request)
    # A cross-site POST carries no SameSite=Lax cookies, but its response may set them. So the next
    # page gets the session cookie and this sign-on's cookie (security X-5).
    response = continue_at(started.path)
    kit.cookies.sign_on(started.state).set(response, started.cookie)
    return kit.cookies.forget_old_sign_ons(started.state, response)  # here too, because the browser may never continue


@routes.get(f"{PROVIDER}/sso")
@kit.anyone(kit.PROTOCOL)
@kit.refuses(403)
@kit.describes_page(
    {302: "Redirect to the page that continues the sign-on.", **REFUSALS},
    optional={"SAMLRequest": "The AuthnRequest, deflated and in base64.", "RelayState": "Returned with the response."},
    changes_state=True,
)
async def sso_by_redirect(org_slug: str, service_slug: str) -> Response:
    """Start a SAML sign-on with HTTP-Redirect.

    The application sends the browser here with an AuthnRequest. Requests' signatures are ignored.
    """
    return await _begin(org_slug, service_slug)


@routes.post(f"{PROVIDER}/sso")
@kit.anyone
@kit.refuses(403)
@kit.describes_page({303: "Redirect to the page that continues the sign-on.", **REFUSALS}, form=["SAMLRequest"])
async def sso_by_post(org_slug: str, service_slug: str) -> Response:
    """Start a SAML sign-on with HTTP-POST.

    The application sends a form with the AuthnRequest in base64, and optionally a `RelayState`.
    """
    return await _begin(org_slug, service_slug)


class SamlLoginQuery(kit.Query):
    """The query for a sign-in that starts here."""

    relay_state: kit.TokenText | None = Field(
        default=None, alias="RelayState", description="Sent to the application, for example the page where the user continues."
    )


class SamlLoginResponse(kit.ResponseModel):
    """The form fields to post to the application."""

    acs_url: str = Field(description="The URL of the application that receives the form.")
    saml_response: str = Field(description="The form field `SAMLResponse`, in base64.")
    relay_state: str | None = Field(description="The form field `RelayState`, or null if there is none.")


async def _authenticate(access: kit.Access) -> Response | None:
    if await callers.as_person_or_browser(access) is None:
        return None
    await callers.as_anyone(access)
    return await _to_sign_in(**(request.view_args or {}))


async def _to_sign_in(org_slug: str, service_slug: str) -> Response:
    flows.require_tab()
    relay_state, browser = request.args.get("RelayState"), kit.cookies.browser_id()
    await kit.take_token((AUTH,))
    kit.sign_in_goes_on(browser)
    flow = await target.begin_unsolicited(kit.ports(), kit.caller(), org_slug, service_slug, relay_state, browser)
    return kit.redirect(flows.path_of(flow, f"/{Step.SIGN_IN.value}"))


@routes.get(f"{SAML}/login")
@kit.AccessDecorator(
    kit.Access("person_or_browser", kit.Credentials.ACCESS_TOKEN_OR_COOKIE, declared=kit.PROTOCOL, restricted=kit.Restricted.YES),
    _authenticate,
)
@kit.describes({303: "Without an access token and without a session on our pages: redirect to the sign-in page."}, changes_state=True)
@kit.refuses(429)
@kit.serves_both
@succeeds_with_page
@document_response(SamlLoginResponse)
async def login(org_slug: str, service_slug: str, query_args: SamlLoginQuery) -> Response | SamlLoginResponse:
    """Sign in to an application that did not send a SAML request.

    Returns a page that posts the SAML response to the application, or, with `Accept:
    application/json`, the fields to post. A browser needs only its session on our pages, so that
    users can bookmark this URL. With an access token instead, single logout does not reach the
    session at the application.
    """
    user = kit.signed_in()
    if user.mfa_missing and isinstance(user, Visitor):
        return await _to_sign_in(org_slug, service_slug)
    try:
        result = await saml_sign_on.idp_initiated(kit.ports(), user, org_slug, service_slug, query_args.relay_state)
    except users.SecondFactorRequired:
        if not isinstance(user, Visitor) or not kit.wants_page():
            raise
        return await _to_sign_in(org_slug, service_slug)
    except (users.NoAccessToService, AddressNotVerified) as refusal:
        if not isinstance(user, Visitor) or not kit.wants_page():
            raise
        return no_access_page(refusal, user, request.full_path)
    except OwnProofNeeded:
        if not isinstance(user, Visitor) or not kit.wants_page():
            raise
        return await kit.to_reauthentication(kit.OWN_PROOF)
    except (policy.EnrolmentRequired, policy.StepUpNeeded) as refusal:
        if not isinstance(user, Visitor) or not kit.wants_page():
            raise
        return await to_policy(refusal)
    return _to_response(result)


def _to_response(result: sign_on.SignOnResult) -> Response:
    if request.accept_mimetypes.best_match(["text/html", "application/json"]) != "application/json":
        return result_page(result)
    body = SamlLoginResponse.of(result)
    return Response(body.model_dump_json(), 200, {"Cache-Control": "no-store"}, content_type="application/json")


@routes.get(f"{PROVIDER}/authenticate")
@kit.anyone(kit.PROTOCOL)
@kit.refuses(401, 403, 429)
@kit.describes_page(
    {200: "The form that posts the response to the application.", 303: "Redirect to the sign-in page.", **REFUSALS},
    query={"saml_state": "The state of the sign-on."},
    optional={"ticket": "The ticket from a sign-in with `saml_state` through the API."},
    changes_state=True,
)
async def authenticate(org_slug: str, service_slug: str) -> Response:
    """Continue a SAML sign-on.

    A signed-in user is sent to the application immediately. A user without a session is sent to the sign-in page.
    """
    state = request.args.get("saml_state") or errors.refuse(sign_on.SignOnNotFound)
    after_this_request(partial(kit.cookies.forget_old_sign_ons, state))  # after errors too
    user, ticket = await visitor(), request.args.get("ticket")
    returned = sign_on.SignOnReturn(
        org_slug=org_slug,
        service_slug=service_slug,
        state=state,
        cookie=kit.cookies.sign_on(state).read(),
        device_cookie=kit.cookies.DEVICE.read(),
        session_id=None if user is None else user.session_id,
    )
    waiting = await target.find(kit.ports(), returned)
    try:
        outcome = await saml_sign_on.resume(kit.ports(), kit.caller(), waiting, user, ticket, kit.cookies.SESSION.read())
    except (users.NoAccessToService, AddressNotVerified) as refusal:
        if user is None or ticket is not None or not kit.wants_page():
            raise
        response = no_access_page(refusal, user, flows.path_of(await target.keep(kit.ports(), waiting, kit.cookies.browser_id())))
    else:
        if isinstance(outcome, destination.Asked):
            flow = await target.keep(kit.ports(), waiting, kit.cookies.browser_id())
            response = kit.redirect(flows.path_of(flow, flows.step_path(outcome.step)))
        else:
            response = result_page(outcome)
            if outcome.signed_in is not None:
                session, secret = outcome.signed_in
                kit.cookies.SESSION.set(response, secret, session.expires_at)
    kit.cookies.sign_on(state).clear(response)
    return response


async def resume(flow: Flow, user: Visitor | None, _reply: destination.PageAnswer | None) -> destination.Asked | Response:
    """Return the next step in a sign-on's flow, or the response that ends the flow."""
    try:
        outcome = await saml_sign_on.resume(kit.ports(), kit.caller(), await target.load(kit.ports(), flow), user)
        if isinstance(outcome, destination.Asked):
            return replace(outcome, destination=await target.find_destination(kit.ports(), flow, ""))
    except errors.SessionEnded:  # during this request
        return destination.Asked(Step.SIGN_IN)
    except (users.NoAccessToService, AddressNotVerified) as refusal:
        if user is None:
            raise
        # The flow is still open, so the page offers to continue it as another user.
        return no_access_page(refusal, user, flows.path_of(flow))
    except sign_on.SignOnNotFound:
        raise FlowEnded from None
    return result_page(outcome)
