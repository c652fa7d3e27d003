"""Where browsers return with a SAML identity provider's response."""

from typing import Final

from quart import Blueprint, Response, request
from werkzeug.exceptions import UnsupportedMediaType

from core.federation.connections import routing, trips
from core.federation.connections.model.saml_responses import MAX_ENCODED_RESPONSE, SamlFault, SamlResponseRefused
from core.federation.connections.model.settings import MAX_TEXT
from core.federation.model.sign_in import ProviderStateUnknown
from core.kernel.errors import refuse
from core.kernel.page_paths import connection_endpoint_path
from core.kernel.values import parse_id
from entrypoints.http.base import cookies
from entrypoints.http.base.context import ports
from entrypoints.http.edge.access import anyone
from entrypoints.http.edge.access.declaration import Taking
from entrypoints.http.edge.forms import FORM, read_fields
from entrypoints.http.edge.limits import take_open_tokens
from entrypoints.http.edge.openapi import describes_page, refuses
from entrypoints.http.pages.federation.connections.sign_in import begin_initiated, finish
from entrypoints.http.pages.federation.connections.visits import posting_page

routes = Blueprint("connection_acs_pages", __name__)

USUAL_FORM: Final = 32 * 1024  # bytes; usual responses have four to ten thousand
AGAIN: Final = "again"  # the field in a response that our own page has sent


@routes.post("/auth/connections/<connection_id>/acs")
@anyone(taking=Taking.IF_REFUSED, takes_late_up_to=USUAL_FORM)
@refuses(400, 401, 403, 404, 409)
@describes_page(
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
    if request.mimetype != FORM:
        raise UnsupportedMediaType("Send a form to this address.")
    fields = await read_fields()
    text, target, browser = fields.get("SAMLResponse", ""), fields.get("RelayState", "")[:MAX_TEXT], cookies.DEVICE.read()
    if browser is None and AGAIN not in fields:
        # A POST from another site has no cookies. So our page sends it again, and strangers make us read nothing
        # (security X-16).
        if len(text) > MAX_ENCODED_RESPONSE:
            raise SamlResponseRefused(SamlFault.TOO_LARGE)
        relay_state = {"RelayState": target} if target else {}
        return posting_page(connection_endpoint_path(id_, "acs"), {"SAMLResponse": text, **relay_state, AGAIN: "1"})
    returned = await trips.read_response(ports(), id_, browser, text)
    if returned.state is None and (initiator := await routing.find_initiator(ports(), id_)):
        # Any page can post a response that the identity provider made for another user. So it signs no user in: we request a new response.
        await take_open_tokens()
        return await begin_initiated(id_, initiator, target)
    return await finish(returned)
