"""The pages for the user's consents to applications (OpenID Connect Core section 3.1.2.4)."""

from typing import Any, Final

from quart import Blueprint, Response

from core.federation.oauth import consents
from core.federation.oauth.model.client_registration import is_sealed
from core.federation.oauth.model.consents import Consent
from entrypoints.http import kit
from entrypoints.http.pages import console, console_forms

routes = Blueprint("account_consents", __name__)

CONSENTS: Final = "/app/account/consents"
NOT_SHARED: Final = "You share nothing with this application."


def _values(consent: Consent) -> dict[str, Any]:
    return {
        "id": consent.service_id,
        "service": consent.service,
        "organization": consent.organization,
        "since": consent.granted_at,
        "last_sign_in": consent.last_sign_in_at,
        "last_used": consent.last_used_at,
        "is_external": consent.is_external,
        "is_self_registered": is_sealed(consent.client_uri),
        "host": consent.known_name,
        "address": None if is_sealed(consent.client_uri) else consent.client_uri,
        "scopes": [scope.value for scope in consent.scope],
        "apis": consent.apis,
    }


@routes.get(CONSENTS)
@kit.page_session
@console.shows("GET /api/user/consents")
async def show_consents() -> Response:
    """List the applications that you allowed to see parts of your account."""
    values = [_values(consent) for consent in await consents.list_own(kit.ports(), kit.signed_in())]
    return await console.console_page("federation/own_consents.html", images_of=[each["id"] for each in values], consents=values)


@routes.get(f"{CONSENTS}/<service_id>")
@kit.page_session
@kit.describes_page({200: "The page.", 404: NOT_SHARED}, api=["GET /api/user/consents", "DELETE /api/user/consents/<service_id>"])
async def show_consent(service_id: str) -> Response:
    """Show the data that an application can see."""
    user = kit.signed_in()
    consent = await consents.find_own(kit.ports(), user, kit.path_id(service_id))
    return await console.console_page("federation/own_consent.html", consent=_values(consent), email=user.email)


@routes.post(f"{CONSENTS}/<service_id>/withdraw")
@kit.page_session(kit.MINE)
@console_forms.accepts(answers={303: console_forms.REDIRECTED, 404: NOT_SHARED})
async def withdraw_consent(service_id: str) -> Response:
    """Stop sharing with an application.

    Its access ends, and it asks you again the next time you sign in.
    """
    await consents.withdraw(kit.ports(), kit.signed_in(), kit.path_id(service_id))
    return console.redirect_with_notice("consent-removed", CONSENTS)
