"""What applications send by way of browsers, and how browsers are sent on: HTTP-Redirect and HTTP-POST (SAML bindings, 3.4 and 3.5).

A message that cannot be used is answered with a page, and nothing is sent anywhere (security.md X-3).
"""

from collections.abc import Sequence

from quart import Response, request
from werkzeug.exceptions import UnsupportedMediaType

from core.federation.saml import bindings as saml_bindings
from core.federation.saml.messages import SamlMessageInvalid
from entrypoints.http.edge.forms import FORM, read_fields
from entrypoints.http.pages.sign_in import redirect

PROVIDER = "/saml/<org_slug>/<service_slug>"
DEFLATE = "urn:oasis:names:tc:SAML:2.0:bindings:URL-Encoding:DEFLATE"
REFUSALS = {
    400: "The message cannot be used, and nothing was sent anywhere.",
    403: "The organization is not active, or the person has no access to the application.",
    404: "There is no such service, or it does not sign people in with SAML.",
}


class Sent:
    """What came by one of the two bindings: each field once."""

    def __init__(self, fields: Sequence[tuple[str, str]]) -> None:
        """Raises MessageInvalid."""
        ours = [(name, text) for name, text in fields if name in ("SAMLRequest", "SAMLResponse", "RelayState", "SAMLEncoding")]
        self._fields = dict(ours)
        if len(self._fields) < len(ours) or {"SAMLRequest", "SAMLResponse"} <= self._fields.keys():
            raise SamlMessageInvalid
        if self._fields.get("SAMLEncoding", DEFLATE) != DEFLATE:
            raise SamlMessageInvalid
        self.relay_state = self._fields.get("RelayState")

    def document(self, name: str) -> bytes | None:
        """The document of this name. Raises MessageInvalid."""
        text = self._fields.get(name)
        if text is None:
            return None
        unpacked = saml_bindings.decode_post if request.method == "POST" else saml_bindings.decode_redirect
        return unpacked(text)


async def sent() -> Sent:
    """What came. Raises MessageInvalid, FormInvalid, and 415 for a POST of anything but a form."""
    if request.method != "POST":
        return Sent(list(request.args.items(multi=True)))
    if request.mimetype != FORM:
        raise UnsupportedMediaType("Applications send a form here.")
    return Sent(await read_fields())


def onward(address: str) -> Response:
    """On, by GET: from a form with 303, since another method would send it again; else as the binding says, with 302."""
    return redirect(address, 303 if request.method == "POST" else 302)
