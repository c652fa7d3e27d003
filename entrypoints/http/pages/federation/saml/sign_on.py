"""SAML single sign-on: AuthnRequests, and sign-ins that start here.

Sources: decisions 174, 177.
"""

from pydantic import Field
from quart import Blueprint, Response, request
from quart_schema import document_response

from core.applications.model.users import NoAccessToService, SecondFactorRequired
from core.authentication.model.policy import EnrolmentRequired, StepUpNeeded
from core.federation.saml import configuration as saml
from core.federation.saml import sign_on as saml_sign_on
from core.federation.saml import target
from core.federation.saml.model.messages import ReceivedDocument, SamlMessageInvalid
from core.federation.saml.model.sign_on import SignOnResult
from core.kernel.access import AddressNotVerified, OwnProofNeeded
from core.kernel.callers import Visitor
from core.kernel.errors import refuse
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
from entrypoints.http.pages.flow.flows import path_of, require_tab
from entrypoints.http.pages.form_pages import no_access_page

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
