"""SAML single sign-on: AuthnRequests, sign-ins that start here, and the page that continues a sign-on.

Sources: decisions 174, 177.
"""

from dataclasses import replace
from functools import partial

from pydantic import Field
from quart import Blueprint, Response, after_this_request, request
from quart_schema import document_response

from core.applications.model.users import NoAccessToService, SecondFactorRequired
from core.authentication.flow.model import Flow, FlowEnded
from core.authentication.model.policy import EnrolmentRequired, StepUpNeeded
from core.federation.destination import Asked, PageAnswer
from core.federation.saml import configuration as saml
from core.federation.saml import sign_on as saml_sign_on
from core.federation.saml import target
from core.federation.saml.model.messages import ReceivedDocument, SamlMessageInvalid
from core.federation.saml.model.sign_on import SignOnNotFound, SignOnResult, SignOnReturn
from core.kernel.access import AddressNotVerified, OwnProofNeeded
from core.kernel.callers import Visitor
from core.kernel.errors import SessionEnded, refuse
from core.kernel.rate_limits import AUTH
from core.kernel.sign_in_policy.steps import Step
from entrypoints.http.api.federation.saml.configuration import PROVIDER, SAML
from entrypoints.http.base import cookies
from entrypoints.http.base.context import app_context, caller, ports, signed_in
from entrypoints.http.base.redirects import redirect
from entrypoints.http.edge.access import PROTOCOL, anyone
from entrypoints.http.edge.access.callers import as_anyone, as_person_or_browser
from entrypoints.http.edge.access.declaration import Access, Bounded, Credentials
from entrypoints.http.edge.access.guards import AccessDecorator
from entrypoints.http.edge.bodies import ResponseModel, TokenText
from entrypoints.http.edge.errors import wants_page
from entrypoints.http.edge.limits import sign_in_goes_on, take_token
from entrypoints.http.edge.openapi import describes, describes_page, refuses, serves_both, succeeds_with_page
from entrypoints.http.edge.queries import Query
from entrypoints.http.edge.reauthentication import OWN_PROOF, to_policy, to_reauthentication
from entrypoints.http.pages.federation.saml.messages import REFUSALS, continue_at, read_parameters, result_page
from entrypoints.http.pages.flow.flows import path_of, require_tab, step_path
from entrypoints.http.pages.form_pages import no_access_page
from entrypoints.http.pages.visitors import visitor

routes = Blueprint("saml_sign_on", __name__)


async def _begin(org_slug: str, service_slug: str) -> Response:
    provider = await saml.load_provider(ports(), org_slug, service_slug)
    parameters = await read_parameters()
    document = parameters.document("SAMLRequest") or refuse(SamlMessageInvalid)
    received = ReceivedDocument(org_slug=org_slug, service_slug=service_slug, document=document, relay_state=parameters.relay_state)
    authn_request = await target.check(ports(), app_context().base_url, provider, received)
    require_tab(or_frame=authn_request.is_passive)
    started = await target.begin(ports(), app_context().base_url, provider, received, authn_request)
    # A cross-site POST carries no SameSite=Lax cookies, but its response may set them. So the next
    # page gets the session cookie and this sign-on's cookie (security X-5).
    response = continue_at(started.path)
    cookies.sign_on(started.state).set(response, started.cookie)
    return cookies.forget_old_sign_ons(started.state, response)  # here too, because the browser may never continue


@routes.get(f"{PROVIDER}/sso")
@anyone(PROTOCOL)
@refuses(403)
@describes_page(
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
@anyone
@refuses(403)
@describes_page({303: "Redirect to the page that continues the sign-on.", **REFUSALS}, form=["SAMLRequest"])
async def sso_by_post(org_slug: str, service_slug: str) -> Response:
    """Start a SAML sign-on with HTTP-POST.

    The application sends a form with the AuthnRequest in base64, and optionally a `RelayState`.
    """
    return await _begin(org_slug, service_slug)


class SamlLoginQuery(Query):
    """The query for a sign-in that starts here."""

    relay_state: TokenText | None = Field(
        default=None, alias="RelayState", description="Sent to the application, for example the page where the user continues."
    )


class SamlLoginResponse(ResponseModel):
    """The form fields to post to the application."""

    acs_url: str = Field(description="The URL of the application that receives the form.")
    saml_response: str = Field(description="The form field `SAMLResponse`, in base64.")
    relay_state: str | None = Field(description="The form field `RelayState`, or null if there is none.")


async def _authenticate(access: Access) -> Response | None:
    if await as_person_or_browser(access) is None:
        return None
    await as_anyone(access)
    return await _to_sign_in(**(request.view_args or {}))


async def _to_sign_in(org_slug: str, service_slug: str) -> Response:
    require_tab()
    relay_state, browser = request.args.get("RelayState"), cookies.browser_id()
    await take_token((AUTH,))
    sign_in_goes_on(browser)
    flow = await target.begin_unsolicited(ports(), caller(), org_slug, service_slug, relay_state, browser)
    return redirect(path_of(flow, f"/{Step.SIGN_IN.value}"))


@routes.get(f"{SAML}/login")
@AccessDecorator(Access("person_or_browser", Credentials.ACCESS_TOKEN_OR_COOKIE, declared=PROTOCOL, bounded=Bounded.YES), _authenticate)
@describes({303: "Without an access token and without a session on our pages: redirect to the sign-in page."}, changes_state=True)
@refuses(429)
@serves_both
@succeeds_with_page
@document_response(SamlLoginResponse)
async def login(org_slug: str, service_slug: str, query_args: SamlLoginQuery) -> Response | SamlLoginResponse:
    """Sign in to an application that did not send a SAML request.

    Returns a page that posts the SAML response to the application, or, with `Accept:
    application/json`, the fields to post. A browser needs only its session on our pages, so that
    users can bookmark this URL. With an access token instead, single logout does not reach the
    session at the application.
    """
    user = signed_in()
    if user.mfa_missing and isinstance(user, Visitor):
        return await _to_sign_in(org_slug, service_slug)
    try:
        result = await saml_sign_on.idp_initiated(ports(), user, org_slug, service_slug, query_args.relay_state)
    except SecondFactorRequired:
        if not isinstance(user, Visitor) or not wants_page():
            raise
        return await _to_sign_in(org_slug, service_slug)
    except (NoAccessToService, AddressNotVerified) as refusal:
        if not isinstance(user, Visitor) or not wants_page():
            raise
        return no_access_page(refusal, user, request.full_path)
    except OwnProofNeeded:
        if not isinstance(user, Visitor) or not wants_page():
            raise
        return await to_reauthentication(OWN_PROOF)
    except (EnrolmentRequired, StepUpNeeded) as refusal:
        if not isinstance(user, Visitor) or not wants_page():
            raise
        return await to_policy(refusal)
    return _to_response(result)


def _to_response(result: SignOnResult) -> Response:
    if request.accept_mimetypes.best_match(["text/html", "application/json"]) != "application/json":
        return result_page(result)
    body = SamlLoginResponse.of(result)
    return Response(body.model_dump_json(), 200, {"Cache-Control": "no-store"}, content_type="application/json")


@routes.get(f"{PROVIDER}/authenticate")
@anyone(PROTOCOL)
@refuses(401, 403, 429)
@describes_page(
    {200: "The form that posts the response to the application.", 303: "Redirect to the sign-in page.", **REFUSALS},
    query={"saml_state": "The state of the sign-on."},
    optional={"ticket": "The ticket from a sign-in with `saml_state` through the API."},
    changes_state=True,
)
async def authenticate(org_slug: str, service_slug: str) -> Response:
    """Continue a SAML sign-on.

    A signed-in user is sent to the application immediately. A user without a session is sent to the sign-in page.
    """
    state = request.args.get("saml_state") or refuse(SignOnNotFound)
    after_this_request(partial(cookies.forget_old_sign_ons, state))  # after errors too
    user, ticket = await visitor(), request.args.get("ticket")
    returned = SignOnReturn(
        org_slug=org_slug,
        service_slug=service_slug,
        state=state,
        cookie=cookies.sign_on(state).read(),
        device_cookie=cookies.DEVICE.read(),
        session_id=None if user is None else user.session_id,
    )
    waiting = await target.find(ports(), returned)
    try:
        outcome = await saml_sign_on.resume(ports(), caller(), waiting, user, ticket, cookies.SESSION.read())
    except (NoAccessToService, AddressNotVerified) as refusal:
        if user is None or ticket is not None or not wants_page():
            raise
        response = no_access_page(refusal, user, path_of(await target.keep(ports(), waiting, cookies.browser_id())))
    else:
        if isinstance(outcome, Asked):
            flow = await target.keep(ports(), waiting, cookies.browser_id())
            response = redirect(path_of(flow, step_path(outcome.step)))
        else:
            response = result_page(outcome)
            if outcome.signed_in is not None:
                session, secret = outcome.signed_in
                cookies.SESSION.set(response, secret, session.expires_at)
    cookies.sign_on(state).clear(response)
    return response


async def resume(flow: Flow, user: Visitor | None, _reply: PageAnswer | None) -> Asked | Response:
    """Return the next step in a sign-on's flow, or the response that ends the flow."""
    try:
        outcome = await saml_sign_on.resume(ports(), caller(), await target.load(ports(), flow), user)
        if isinstance(outcome, Asked):
            return replace(outcome, destination=await target.find_destination(ports(), flow, ""))
    except SessionEnded:  # during this request
        return Asked(Step.SIGN_IN)
    except (NoAccessToService, AddressNotVerified) as refusal:
        if user is None:
            raise
        # The flow is still open, so the page offers to continue it as another user.
        return no_access_page(refusal, user, path_of(flow))
    except SignOnNotFound:
        raise FlowEnded from None
    return result_page(outcome)
