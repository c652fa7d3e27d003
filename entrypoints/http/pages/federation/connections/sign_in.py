"""The redirects to an organization's identity provider and back, also with a SAML response, and the page that asks to link an account."""

from functools import partial
from typing import Final
from urllib.parse import urlencode
from uuid import UUID

from quart import Blueprint, Response, request
from werkzeug.exceptions import UnsupportedMediaType

from core.authentication.flow.model import Flow, FlowEnded, ProviderHints
from core.federation.connections import people, provider_requests, routing
from core.federation.connections.model import saml_responses
from core.federation.connections.model.asserted import AssertedPerson
from core.federation.connections.model.connections import OrganizationConnectionNotFound
from core.federation.connections.model.people import LinkNeeded
from core.federation.connections.model.presets import PRESETS
from core.federation.connections.model.settings import MAX_TEXT
from core.federation.connections.people import ConnectionAnswer
from core.federation.model.sign_in import ProviderStateUnknown
from core.kernel.callers import Visitor
from core.kernel.errors import refuse
from core.kernel.page_paths import connection_endpoint_path
from core.kernel.values import parse_id
from core.setup import opening, testing
from entrypoints.http import kit
from entrypoints.http.edge.limits import take_open_tokens
from entrypoints.http.pages import form_pages
from entrypoints.http.pages.authentication import social
from entrypoints.http.pages.authentication.sign_in import sign_in_at_provider
from entrypoints.http.pages.federation.connections import provider_redirects
from entrypoints.http.pages.federation.connections.tests import result_page
from entrypoints.http.pages.federation.oauth import LISTED
from entrypoints.http.pages.flow import flows
from entrypoints.http.pages.flow.flows import FLOW_PATH
from entrypoints.http.pages.visitors import visitor

routes = Blueprint("connection_sign_in", __name__)


@routes.get("/auth/connections/<connection_id>/start")
@kit.anyone(kit.PROTOCOL)
@kit.refuses(400, 403, 404, 409)
@kit.describes_page(
    {
        200: "The page that posts our request to the identity provider, or the sign-in has ended and the page goes on.",
        302: "Redirect to the identity provider.",
    },
    optional={name: text for name, text in social.PARAMETERS.items() if name != "link"},
    changes_state=True,
)
@kit.repeatable(*LISTED)
async def start(connection_id: str) -> Response:
    """Sign in through an organization's connection.

    The application opens this URL in the user's browser, with the parameters for `GET /auth/authorize`. After the sign-in the browser
    continues there. Without parameters, the user continues in the organization's console.
    """
    flows.require_tab()
    id_ = parse_id(connection_id) or refuse(OrganizationConnectionNotFound)
    browser, arguments = kit.cookies.browser_id(), kit.joined_query()
    hints = ProviderHints(arguments.get("login_hint"), arguments.get("domain_hint"))
    begin = partial(provider_requests.begin, kit.ports(), kit.caller(), id_, browser, kit.app_context().base_url, hints=hints)
    return await social.begin_provider_request(arguments, None, browser, begin)


INITIATION: Final = {
    "iss": "The issuer of the connection, with SAML the entity id of the identity provider.",
    "login_hint": "The user, for the identity provider.",
    "target_link_uri": "The URL at which the user continues, if the connection lists it. Without it, they continue in the console.",
}


@routes.get("/auth/connections/<connection_id>/initiate")
@kit.anyone(kit.PROTOCOL)
@kit.refuses(400, 403, 404, 409)
@kit.describes_page(
    {200: "The sign-in could not start.", 303: "Redirect to the identity provider."}, optional=INITIATION, changes_state=True
)
async def initiate(connection_id: str) -> Response:
    """Sign in because the identity provider asks for it.

    Register this URL there as the initiate login URI (OpenID Connect Core section 4).
    """
    id_, arguments = parse_id(connection_id) or refuse(OrganizationConnectionNotFound), kit.joined_query()
    hints = ProviderHints(arguments.get("login_hint"))
    return await begin_initiated(id_, arguments.get("iss"), arguments.get("target_link_uri"), hints)


async def begin_initiated(connection_id: UUID, issuer: str | None, target: str | None, hints: ProviderHints | None = None) -> Response:
    """Return the redirect to the identity provider that has initiated a sign-in. `target` is the URL at which the user continues."""
    flows.require_tab()
    browser, to = kit.cookies.browser_id(), await routing.find_initiated_target(kit.ports(), connection_id, issuer, target)
    redirect = await provider_requests.begin(
        kit.ports(), kit.caller(), connection_id, browser, kit.app_context().base_url, flows.page_flow(to), hints
    )
    kit.sign_in_goes_on(browser)
    return provider_redirects.redirect_response(redirect)


@routes.post("/auth/connections/<connection_id>/initiate")
@kit.anyone(limit=None)
@kit.refuses(403, 404, 429)
@kit.describes_page({303: "Redirect to the same URL with GET."}, optional=INITIATION, form=INITIATION)
async def initiate_by_form(connection_id: str) -> Response:
    """Sign in because the identity provider asks for it, with a form.

    A form on another site brings no cookies, so it is redirected to the same URL with GET.
    """
    async with kit.limited_if_refused():
        fields = await kit.read_request_of_application() or {}
        sent = {name: fields[name] for name in INITIATION if fields.get(name)}
        id_ = parse_id(connection_id) or refuse(OrganizationConnectionNotFound)
    return kit.redirect(f"{connection_endpoint_path(id_, 'initiate')}?{urlencode(sent)}")


@routes.get("/auth/connections/<connection_id>/callback")
@kit.anyone(kit.PROTOCOL, taking=kit.Taking.IF_REFUSED)
@kit.refuses(400, 401, 403, 404, 409)
@kit.describes_page(
    {
        200: "The result of a test sign-in, or the sign-in has ended and the page goes on. Or another user is signed in in this browser, "
        "and the page asks first.",
        303: "Redirect to the target of the sign-in, or to a page that asks for a factor or to link an account.",
    },
    optional=social.CALLBACK_PARAMETERS,
    changes_state=True,
)
async def callback(connection_id: str) -> Response:
    """Return from an organization's identity provider.

    The identity provider redirects the browser here. Register this URL there.
    """
    return await finish(social.read_return(parse_id(connection_id) or refuse(ProviderStateUnknown)))


async def finish(returned: provider_requests.ConnectionReturn) -> Response:
    """Return the response to a browser that returns from an identity provider."""
    user = await visitor()
    result = await provider_requests.finish(kit.ports(), kit.caller(), user, returned, kit.app_context().base_url)
    match result:
        case provider_requests.ConnectionTestResult():
            return result_page(result)
        case provider_requests.SetupTestReturned(provider_request):
            base_url = kit.app_context().base_url
            tested = await testing.finish(kit.ports(), kit.caller(), kit.cookies.SETUP.read(), provider_request, returned, base_url)
            product = PRESETS.get(tested.connection.preset or "")
            name = "your identity provider" if product is None else product.name
            return result_page(tested, name, await opening.load_design(kit.ports(), tested.connection.org_id))
        case provider_requests.PersonArrived(flow, person):
            return await _arrive(flow, person, user)
    return await social.to_response(result, user)


async def _arrive(flow: Flow, person: AssertedPerson, user: Visitor | None) -> Response:
    """Sign in the person that the identity provider authenticated, or ask to link the account that exists already."""
    flows.remember_way_back(flow, "/sign-in")
    try:
        try:
            start = flows.connection_path(flow, person.connection_id)
            return await sign_in_at_provider(ConnectionAnswer(person), flow, user, start, person.email)
        except LinkNeeded:
            return kit.redirect(flows.path_of(await people.ask_to_link(kit.ports(), kit.caller(), flow, person), "/link"))
    except FlowEnded:  # in another tab
        return await flows.ended_page(str(flow.id))


@routes.get(f"{FLOW_PATH}/link")
@kit.anyone
@kit.describes_page({200: "The question whether to link the account.", 303: "Continue at the next step."})
@flows.in_flow
async def show_link(flow: Flow) -> Response:
    """Ask whether to link an account to an organization's connection.

    If the sign-in waits for nothing like that, the browser continues at its next step.
    """
    question = await people.find_question(kit.ports(), flow)
    if question is None:
        return kit.redirect(flows.path_of(flow))
    return form_pages.form_page("federation/link_connection.html", question=question, action=flows.path_of(flow, "/link"))


@routes.post(f"{FLOW_PATH}/link")
@kit.anyone
@kit.describes_page(
    {
        200: "The sign-in has ended. The page goes on.",
        303: "Continue at the sign-in page.",
        403: "The form was not sent by our page.",
    },
    form={
        "form_token": "The form token of the page.",
        "answer": "`continue` to link the account; every other value cancels.",
        "question": "The link that the page asked about.",
    },
)
@flows.in_flow
async def answer_link(flow: Flow) -> Response:
    """Answer whether to link an account to an organization's connection.

    The user signs in to the account next. That makes the link. If the sign-in waits for another link, its page follows.
    """
    form = await form_pages.read_own_form()
    if form.get("answer") != "continue":
        await people.drop_link(kit.ports(), kit.caller(), flow)
    elif not await people.agree_to_link(kit.ports(), kit.caller(), flow, form.get("question", "")):
        return kit.redirect(flows.path_of(flow, "/link"))
    return kit.redirect(flows.path_of(flow, "/sign-in"))


USUAL_FORM: Final = 32 * 1024  # bytes; usual responses have four to ten thousand
AGAIN: Final = "again"  # the field in a response that our own page has sent


@routes.post("/auth/connections/<connection_id>/acs")
@kit.anyone(taking=kit.Taking.IF_REFUSED, takes_late_up_to=USUAL_FORM)
@kit.refuses(400, 401, 403, 404, 409)
@kit.describes_page(
    {
        200: "The page that sends the response again with the cookies of this site, or the result of a test sign-in. Or another user is "
        "signed in in this browser, and the page asks first.",
        303: "Redirect to the target of the sign-in, or to a page that asks for a factor or to link an account.",
    },
    form=["SAMLResponse"],
)
async def acs(connection_id: str) -> Response:
    """Return from an organization's SAML identity provider.

    The identity provider lets the browser post its response here (HTTP-POST). Register this URL there as ACS URL. A response without a
    request signs no user in. If the connection allows it, the browser goes back with a request, and `RelayState` is the target.
    """
    id_ = parse_id(connection_id) or refuse(ProviderStateUnknown)
    if request.mimetype != kit.FORM:
        raise UnsupportedMediaType("Send a form to this address.")
    fields = await kit.read_fields()
    text, target, browser = fields.get("SAMLResponse", ""), fields.get("RelayState", "")[:MAX_TEXT], kit.cookies.DEVICE.read()
    if browser is None and AGAIN not in fields:
        # A POST from another site has no cookies. So our page sends it again, and strangers make us read nothing
        # (security X-16).
        if len(text) > saml_responses.MAX_ENCODED_RESPONSE:
            raise saml_responses.SamlResponseRefused(saml_responses.SamlFault.TOO_LARGE)
        relay_state = {"RelayState": target} if target else {}
        return provider_redirects.posting_page(connection_endpoint_path(id_, "acs"), {"SAMLResponse": text, **relay_state, AGAIN: "1"})
    returned = await provider_requests.read_response(kit.ports(), id_, browser, text)
    if returned.state is None and (initiator := await routing.find_initiator(kit.ports(), id_)):
        # Any page can post a response that the identity provider made for another user. So it signs no user in: we request a new response.
        await take_open_tokens()
        return await begin_initiated(id_, initiator, target)
    return await finish(returned)
