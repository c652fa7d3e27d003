"""Signing people in to applications with SAML (organizations.md section 4.3; decisions, points 173 to 182)."""

from functools import partial

from pydantic import Field
from quart import Blueprint, Response, after_this_request, request
from quart_schema import document_response, validate_querystring

from core.authentication import browser
from core.federation.saml import configuration as saml
from core.federation.saml import logout as saml_logout
from core.federation.saml import sign_on as saml_sign_on
from core.federation.saml.messages import ReceivedDocument, SamlMessageInvalid
from core.federation.saml.sign_on_rules import LoginRequired, NoAccessToService, SignOnNotFound, SignOnResult
from core.kernel import uris
from core.kernel.errors import refuse
from core.kernel.principals import AddressNotVerified, Capability
from entrypoints.http.api.federation.saml.configuration import SAML
from entrypoints.http.api.federation.saml.messages import PROVIDER, REFUSALS, onward, sent
from entrypoints.http.edge import cookies
from entrypoints.http.edge.access import anyone, member
from entrypoints.http.edge.bodies import ResponseModel, Text
from entrypoints.http.edge.context import acting_member, app_context, caller, page_response, ports
from entrypoints.http.edge.errors import wants_page
from entrypoints.http.edge.openapi import describes_page, refuses
from entrypoints.http.edge.queries import Query
from entrypoints.http.pages import render
from entrypoints.http.pages.sign_in import refused_page, safe_next, sign_in_form, visitor

routes = Blueprint("saml_sign_on", __name__)


async def _sign_on(org_slug: str, service_slug: str) -> Response:
    await saml.check_enabled(ports(), org_slug, service_slug)
    message = await sent()
    document = message.document("SAMLRequest") or refuse(SamlMessageInvalid)
    received = ReceivedDocument(org_slug=org_slug, service_slug=service_slug, document=document, relay_state=message.relay_state)
    begun = await saml_sign_on.begin(ports(), app_context().base_url, caller(), received)
    # A form of another site comes without our cookies, and our answer may set them all the same: so the page that follows has both.
    response = onward(begun.path)
    cookies.set_saml_cookie(response, begun.state, begun.cookie)
    return cookies.forget_old_sign_ons(begun.state, response)  # also where a browser does not go on


@routes.get(f"{PROVIDER}/sso")
@anyone
@refuses(403)
@describes_page({302: "On to the page that answers.", **REFUSALS}, changes_state=True)
async def sso_by_redirect(org_slug: str, service_slug: str) -> Response:
    """An application asks to have somebody signed in, by HTTP-Redirect: `SAMLRequest`, and perhaps `RelayState`."""
    return await _sign_on(org_slug, service_slug)


@routes.post(f"{PROVIDER}/sso")
@anyone
@refuses(403)
@describes_page({303: "On to the page that answers.", **REFUSALS}, form=["SAMLRequest"])
async def sso_by_post(org_slug: str, service_slug: str) -> Response:
    """The same by HTTP-POST."""
    return await _sign_on(org_slug, service_slug)


@routes.get(f"{PROVIDER}/authenticate")
@anyone
@refuses(403)
@describes_page(
    {200: "The form that posts the answer to the application; or the form to sign in, where nobody is signed in.", **REFUSALS},
    query={"saml_state": "What the sign-on is known by."},
    changes_state=True,
)
async def authenticate(org_slug: str, service_slug: str) -> Response:
    """The page on which people sign in for an application, and from which they go on to it."""
    state = request.args.get("saml_state") or refuse(SignOnNotFound)
    after_this_request(partial(cookies.forget_old_sign_ons, state))  # whatever the answer is
    ticket = request.args.get("ticket")
    found = await visitor()
    try:
        outcome = await saml_sign_on.resume(ports(), org_slug, service_slug, state, cookies.saml_cookie(state), ticket, found, caller())
    except (NoAccessToService, AddressNotVerified) as refusal:
        cookie = cookies.session_cookie()
        if found is None or cookie is None or ticket is not None or not wants_page():
            raise
        # The sign-on waits still: whoever signs in in the place of this person goes on with it.
        here = safe_next(request.full_path)
        return refused_page(refusal, "no_access.html", form_token=browser.form_token(cookie), next=here, email=found.email)
    if isinstance(outcome, LoginRequired):
        return await sign_in_form(outcome.path)
    response = _answer_page(outcome)
    if outcome.signed_in is not None:
        session, secret = outcome.signed_in
        if (cookie := cookies.session_cookie()) is not None:
            await saml_logout.replace_session(ports(), caller(), cookie, session.id)
        cookies.set_session_cookie(response, secret, session.expires_at)
    cookies.clear_saml_cookie(response, state)
    return response


class Unasked(Query):
    """`RelayState` is handed on to the application, which may take it for where to go."""

    relay_state: Text | None = Field(default=None, alias="RelayState")


class AnswerShown(ResponseModel):
    """What to post to the application, at `acs_url`: `SAMLResponse`, in base64, and `RelayState` where there is one."""

    acs_url: str
    saml_response: str
    relay_state: str | None


@routes.get(f"{SAML}/login")
@member(Capability.ORGANIZATION_VIEW, impersonated=False)
@refuses(400)
@validate_querystring(Unasked)
@document_response(AnswerShown)
async def login(org_slug: str, service_slug: str, query_args: Unasked) -> Response | AnswerShown:
    """Sign yourself in to the application, which has not asked for it.

    The answer is a page that posts to the application, or what it would post as JSON, if you prefer that.
    """
    answer = await saml_sign_on.idp_initiated(ports(), acting_member(), service_slug, query_args.relay_state)
    if request.accept_mimetypes.best_match(["text/html", "application/json"]) != "application/json":
        return _answer_page(answer)
    shown = AnswerShown(acs_url=answer.acs_url, saml_response=answer.saml_response, relay_state=answer.relay_state)
    return Response(shown.model_dump_json(), 200, {"Cache-Control": "no-store"}, content_type="application/json")


def _answer_page(answer: SignOnResult) -> Response:
    """The page that posts an answer to the application: by itself, and by a button where there are no scripts."""
    page = render(
        "saml_answer.html",
        form_action=uris.csp_source(answer.acs_url),
        scripted=True,
        acs_url=answer.acs_url,
        saml_response=answer.saml_response,
        relay_state=answer.relay_state,
        is_error=answer.is_error,
    )
    return page_response(page)
