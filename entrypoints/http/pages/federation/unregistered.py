"""The pages about a URI in a request that is not registered for its application.

Anyone can send any text as a URI, so it stands there as text, and leads nowhere.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, Final, TypeVar, cast
from urllib.parse import urlencode

from quart import Response

from core.applications.model import services
from core.federation import unregistered_uris
from entrypoints.http import kit
from entrypoints.http.pages.applications.client_settings import ON_PAGE
from entrypoints.http.pages.form_pages import refused_page
from entrypoints.http.pages.navigation import ORGANIZATION_PATH

LONGEST_SHOWN: Final = 8192  # characters; longer URIs are cut
V = TypeVar("V", bound=Callable[..., Any])


async def unregistered_page(refusal: services.UriNotRegistered, sign_out: str | None = None) -> Response:
    """Return the page about a URI that is not registered. `sign_out` is the path that continues a sign-out."""
    values = {"unregistered": await unregistered_values(refusal), "request_id": kit.request_record().request_id, "sign_out": sign_out}
    return refused_page(refusal, "federation/unregistered_uri.html", **values)


def shows_unregistered_uri(view: V) -> V:
    """Decorate a view that checks authorization requests: show the redirect URI if it is not registered."""

    @wraps(view)
    async def run(**parameters: Any) -> Any:
        try:
            return await view(**parameters)
        except services.UriNotRegistered as refusal:
            if refusal.unregistered is None or not kit.wants_page():
                raise
            return await unregistered_page(refusal)

    return cast("V", run)


async def unregistered_values(refusal: services.UriNotRegistered | None) -> dict[str, Any] | None:
    """Return the values for the part of a page that shows the URI, or None without a URI. Admins also get the way to the settings."""
    unregistered = None if refusal is None else refusal.unregistered
    if unregistered is None:
        return None
    facts = await unregistered_uris.load_facts(kit.ports(), kit.anonymous(), kit.cookies.SESSION.read(), unregistered)
    uri, setting = unregistered.uri, unregistered.setting
    can_stand_in_field = unregistered.flaw is None and len(uri) <= kit.MAX_TEXT
    path = f"{ORGANIZATION_PATH.format(slug=facts.org_slug)}/applications/{unregistered.service.slug}"
    query = f"?{urlencode({setting: uri})}" if can_stand_in_field else ""
    return {
        "uri": escape_invisible(uri),
        "length": len(uri) if len(uri) > LONGEST_SHOWN else None,
        "application": unregistered.service.name,
        "organization": facts.organization_name,
        "field": ON_PAGE[setting].label,
        "settings": f"{path}{query}#{ON_PAGE[setting].group}" if facts.may_register else None,
        "is_in_field": can_stand_in_field,
        "flaw": unregistered.flaw,
        "new_host": unregistered.new_host,
        "is_quiet": unregistered.new_host is not None or setting == services.POST_LOGOUT_REDIRECT_URIS,
    }


def escape_invisible(text: str) -> str:
    """Return a text's start, with escapes for characters that are not seen or that change the order in which characters are shown."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text[:LONGEST_SHOWN])
