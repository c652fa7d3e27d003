"""The page at the end of a logout."""

from collections.abc import Mapping
from typing import Any

from quart import Response

from core.federation.connections.sign_out import is_sign_out_at_provider
from core.federation.oauth import end_session
from core.federation.oauth.model.end_session import ApplicationReturn
from core.federation.saml.model.sign_on import LogoutFinished
from core.kernel import page_paths
from core.kernel.errors import Refusal
from entrypoints.http import kit
from entrypoints.http.pages.form_pages import refused_page


async def signed_out_page(outcome: LogoutFinished, *, at_provider: bool = False) -> Response:
    """Return the page at the end of a logout, with a link to sign in again.

    If an application requested the logout, the browser returns there. If the logout is partial, the
    page says so first, and links to the application. So it does if the browser goes on at an identity provider.
    `at_provider`: the browser comes from an identity provider.
    """
    if is_sign_out_at_provider(outcome.after):
        if not outcome.is_partial:
            return kit.redirect(outcome.after)
        return end_page(ApplicationReturn("your identity provider", outcome.after), is_partial=True)
    application = await end_session.find_return(kit.ports(), outcome.after)
    if application is not None and not outcome.is_partial:
        return kit.redirect(application.url)
    next_path = page_paths.HOME_PATH if application is not None or outcome.after is None else outcome.after
    return end_page(application, is_partial=outcome.is_partial, at_provider=at_provider, next_path=next_path)


def end_page(
    application: ApplicationReturn | None,
    *,
    is_partial: bool = False,
    at_provider: bool = False,
    cannot_return: bool = False,
    next_path: str = page_paths.HOME_PATH,
    refusal: Refusal | None = None,
    unregistered: Mapping[str, Any] | None = None,
) -> Response:
    """Return the page for a user who is signed out, with a link to this application or else to the sign-in page.

    After a refusal, it has its status, and shows the URI that is not registered.
    """
    values: dict[str, Any] = {
        "is_partial": is_partial,
        "at_provider": at_provider,
        "cannot_return": cannot_return,
        "sign_in_path": kit.with_next(page_paths.SIGN_IN_PATH, next_path),
        "application": None if application is None else application.service_name,
        "return_url": None if application is None else application.url,
        "unregistered": unregistered,
    }
    if refusal is not None:
        return refused_page(refusal, "federation/signed_out.html", **values)
    return kit.page_response(kit.render("federation/signed_out.html", **values))
