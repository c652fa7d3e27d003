"""What all console pages share: the frame around a page, its lists, and the message about the last change.

The pages call the same use cases as the API, for callers with the same capability. After a change the browser is
redirected, so that reloading the page repeats nothing. Only a secret that is shown once is in the direct response to
its form. docs/contributing/adding-a-page.md shows how to add a page.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import urlencode
from uuid import UUID

from quart import Response, abort, current_app, g, request

from core.authentication import browser, forms
from core.authentication.browser import FormTokenInvalid
from core.kernel import callers, sign_in_age
from core.kernel.errors import refuse
from core.kernel.page_paths import REAUTHENTICATION_PATH
from core.kernel.roles import Capability
from core.tenancy import organizations
from entrypoints.http import kit
from entrypoints.http.api.tenancy.roles import role_text
from entrypoints.http.edge.typed_fields import as_api_reads
from entrypoints.http.pages.curl import commands
from entrypoints.http.pages.navigation import ORGANIZATION_PATH, PLATFORM_PATH, Mode, first_page, navigation_for
from entrypoints.http.pages.notices import NOTICES

SWITCHER_SIZE: Final = 10  # organizations in the switcher
V = TypeVar("V", bound=Callable[..., Any])


def shows(*api: str) -> Callable[[V], V]:
    """Document a console page. `api` names the API operations that do the same, the main operation first."""
    return kit.describes_page({200: "The page."}, api=api)


async def console_page(name: str, images_of: Iterable[UUID] = (), **values: Any) -> Response:
    """Return a console page, with the message about the last change. `images_of` are the people and organizations with an avatar."""
    notice = kit.cookies.NOTICE.read()
    values = {"problem": None, "wrong": None, **await frame_values(images_of), **values}
    response = kit.page_response(kit.render(name, scripted=True, done=_message(notice), **values))
    if notice is not None:
        kit.cookies.NOTICE.clear(response)
    return response


async def secret_page(heading: str, secrets: Mapping[str, str], *, advice: str, done: tuple[str, str]) -> Response:
    """Return the page that shows secrets once: label and value. `done` is the label and the path for the button that leaves it."""
    return await console_page("secret.html", page_heading=heading, secrets=secrets, advice=advice, leave=done)


async def frame_values(images_of: Iterable[UUID] = ()) -> dict[str, Any]:
    """Return the values for the frame around the page.

    Also load the frame's logos, and the pictures of the people and organizations in `images_of`.
    """
    user = kit.signed_in()
    g.form_owner = forms.seal_owner(kit.ports(), user)
    g.time_zone = user.time_zone
    memberships = await organizations.list_own(kit.ports(), user)
    await kit.load_images([*images_of, user.user_id, *(organization.id for organization, _ in memberships)])
    slug = user.acts_in.slug if isinstance(user, callers.Member) else None
    navigation = navigation_for(user, request.path)
    frame = {
        "user_id": user.user_id,
        "email": user.email,
        "time_zone": user.time_zone,
        "is_impersonated": user.impersonator_id is not None,
        "own_token": browser.form_token(session_secret()),
        "navigation": navigation,
        "here": next((organization for organization, _ in memberships if organization.slug == slug), None),
        "organizations": [
            (organization.id, organization.name, first_page(organization.slug, membership.rights), role_text(membership))
            for organization, membership in memberships
            if organization.slug != slug
            and organization.status is callers.OrganizationStatus.ACTIVE
            and membership.confirmed_at is not None
        ][:SWITCHER_SIZE],
        "platform_home": PLATFORM_PATH if user.is_platform_owner else None,
        "enrollment": kit.cookies.ENROLLMENT.read() if navigation.mode is Mode.PERSON else None,
        "curl": [] if navigation.mode is Mode.PERSON else _curl(),
    }
    root = organization_path() if isinstance(user, callers.Member) else None
    token = browser.form_token(session_secret(), impersonation_session())
    return {"form_token": token, "frame": frame, "with_query": with_query, "may": may, "root": root}


def confirmation_path(page: str) -> str | None:
    """Return the path on which the user confirms before they choose a file, or None if no confirmation is needed.

    A confirmation does not keep a chosen file. Members with a sign-in policy confirm later, because a connection in the policy can count.
    """
    user = kit.signed_in()
    asks_later = user.impersonator_id is not None or (isinstance(user, callers.Member) and user.has_sign_in_policy)
    is_recent = sign_in_age.is_enough(user.sign_in, sign_in_age.SignInAge.RECENT, kit.ports().policy, kit.ports().clock.now())
    return None if asks_later or is_recent else f"{REAUTHENTICATION_PATH}?{urlencode({'next': page})}"


def show_document(document: kit.ResponseModel) -> None:
    """Let the PUT under "Show as curl" send this document, which it replaces: fields that it leaves out would be cleared."""
    g.document = document.model_dump(mode="json")


def _curl() -> list[str]:
    """Return the API calls that do the same as the page."""
    view, values = current_app.view_functions.get(request.endpoint or ""), request.view_args or {}
    return commands(current_app, kit.docs_of(view).api, kit.app_context().base_url, values, as_api_reads(request.args), g.get("document"))


def impersonation_session() -> UUID | None:
    """Return the session in which this browser impersonates a user, or None."""
    user = kit.signed_in()
    return None if user.impersonator_id is None else user.session_id


def may(capability: str) -> bool:
    """Return whether the user has the capability in the page's organization. Pages leave out what the user may not do."""
    user = kit.signed_in()
    return isinstance(user, callers.Member) and Capability(capability) in user.acts_in.rights


def organization_path(below: str = "") -> str:
    """Return the path to the organization's overview, or to a page below it, such as `/members`."""
    return ORGANIZATION_PATH.format(slug=kit.acting_member().acts_in.slug) + below


def with_query(**changes: Any) -> str:
    """Return the current page's query with changes. None and an empty text remove a parameter."""
    values = {**request.args, **changes}
    return "?" + urlencode({name: value for name, value in values.items() if value not in (None, "")})


def neighbors(query: kit.PageQuery | kit.PartQuery, total: int) -> dict[str, Any]:
    """Return the values for `ui.pager` for a part of a list with `total` rows. From a part after the end, it leads to the last part."""
    limit = query.limit
    offset = query.offset if isinstance(query, kit.PartQuery) else query.page_request().offset
    here, last = offset // limit + 1, max(-(-total // limit), 1)

    def link(number: int) -> str:
        if isinstance(query, kit.PartQuery):
            return with_query(offset=(number - 1) * limit or None)
        return with_query(page=number if number > 1 else None)

    if here > last:
        abort(kit.redirect(request.path + link(last).removesuffix("?")))
    return {
        "previous": link(here - 1) if here > 1 else None,
        "next": link(here + 1) if here < last else None,
        "summary": f"Page {here} of {last:,}" if last > 1 else None,
    }


def session_secret() -> str:
    """Return the cookie for the browser's session. Raises: FormTokenInvalid."""
    return kit.cookies.SESSION.read() or refuse(FormTokenInvalid)


def redirect_with_notice(notice: str, target: str, *, count: int | None = None) -> Response:
    """Redirect to a page that shows a notice, which is a key in NOTICES."""
    return kit.redirect(target, notice=notice if count is None else f"{notice}.{count}")


def _message(notice: str | None) -> str | None:
    name, _, count = (notice or "").partition(".")
    message = NOTICES.get(name)
    if message is None or (count and not (count.isascii() and count.isdigit())):
        return None
    return message.format(count=count)
