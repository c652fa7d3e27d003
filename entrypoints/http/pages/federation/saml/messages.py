"""SAML messages in browser requests: the HTTP-Redirect and HTTP-POST bindings.

Sources: SAML bindings sections 3.4 and 3.5.

The response to a message that is not valid is an error page. Then nothing is sent to the
application (security X-3).
"""

from collections.abc import Mapping

from quart import Response, request
from werkzeug.exceptions import UnsupportedMediaType

from core.federation.saml.model import messages as saml_bindings
from core.federation.saml.model.messages import SamlMessageInvalid
from core.federation.saml.model.sign_on import SignOnResult
from entrypoints.http import kit

DEFLATE = "urn:oasis:names:tc:SAML:2.0:bindings:URL-Encoding:DEFLATE"
REFUSALS = {
    400: "The message is not valid. Nothing was sent to the application.",
    403: "The organization is not active, or the user has no access to the application.",
    404: "There is no such service, or it does not support sign-in with SAML.",
}


class SamlParameters:
    """The SAML parameters in a request."""

    def __init__(self, fields: Mapping[str, str]) -> None:
        """Raises: SamlMessageInvalid."""
        self._fields = fields
        if {"SAMLRequest", "SAMLResponse"} <= fields.keys():
            raise SamlMessageInvalid
        if self._fields.get("SAMLEncoding", DEFLATE) != DEFLATE:
            raise SamlMessageInvalid
        self.relay_state = self._fields.get("RelayState")

    def document(self, name: str) -> bytes | None:
        """Return the decoded document in this parameter, or None. Raises: SamlMessageInvalid."""
        text = self._fields.get(name)
        if text is None:
            return None
        return saml_bindings.decode_post(text) if request.method == "POST" else saml_bindings.decode_redirect(text)


async def read_parameters() -> SamlParameters:
    """Return the current request's SAML parameters.

    Raises: SamlMessageInvalid, FormInvalid, DuplicateParameter; UnsupportedMediaType for a POST that is not a form.
    """
    if request.method != "POST":
        return SamlParameters(request.args)
    if request.mimetype != kit.FORM:
        raise UnsupportedMediaType("Send a form to this address.")
    return SamlParameters(await kit.read_fields())


def continue_at(url: str) -> Response:
    """Redirect the browser with GET.

    The status is 303 after a form, because browsers may repeat the POST after a 302. Otherwise it
    is 302, as the binding requires.
    """
    return kit.redirect(url, 303 if request.method == "POST" else 302)


def result_page(result: SignOnResult) -> Response:
    """Return the page that posts a response to the application. It posts with a script, and has a button for browsers without scripts."""
    page = kit.render(
        "federation/saml_response.html",
        scripted=True,
        acs_url=result.acs_url,
        saml_response=result.saml_response,
        relay_state=result.relay_state,
        is_error=result.is_error,
    )
    return kit.page_response(page)
