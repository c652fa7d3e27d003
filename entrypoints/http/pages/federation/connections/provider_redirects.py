"""Redirects of browsers to an organization's identity provider."""

from collections.abc import Mapping

from quart import Response

from core.federation.connections.model.saml import ProviderRedirect
from entrypoints.http import kit


def redirect_response(redirect: ProviderRedirect, status: int = 303) -> Response:
    """Return the redirect to the identity provider, or the page that posts our request to it."""
    return kit.redirect(redirect.url, status) if redirect.form is None else posting_page(redirect.url, redirect.form)


def posting_page(action: str, parameters: Mapping[str, str]) -> Response:
    """Return the page that posts these fields. It posts with a script, and has a button for browsers without scripts."""
    return kit.page_response(kit.render("federation/connection_form.html", scripted=True, action=action, parameters=parameters))
