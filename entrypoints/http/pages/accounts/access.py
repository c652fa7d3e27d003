"""The account pages for applications, linked accounts and organizations, and the actions on devices and sessions."""

from typing import Any, Final
from urllib.parse import urlencode
from uuid import UUID

from pydantic import TypeAdapter, ValidationError
from quart import Blueprint, Response

from core.accounts import devices
from core.accounts.model.devices import ListedDevice
from core.applications import access
from core.authentication import identities, oauth_credentials, sessions
from core.authentication.model.identities import parse_provider
from core.authentication.model.sessions import LiveSession
from core.federation.connections import links
from core.kernel import errors, page_paths
from core.kernel.access import NotOfThisOrganization
from core.kernel.connections import PLATFORM_CONNECTIONS
from core.kernel.display import PLATFORM_SUPPORT, PRODUCT
from core.kernel.page_paths import SECURITY_PATH
from core.tenancy import grants, members, organizations
from core.tenancy.model.members import OwnerCannotLeave
from entrypoints.http import kit
from entrypoints.http.api.applications.service_access import launch_url
from entrypoints.http.api.tenancy.roles import role_text
from entrypoints.http.pages import consequences, console, console_forms
from entrypoints.http.pages.navigation import first_page

routes = Blueprint("account_access", __name__)

APPLICATIONS: Final = "/app/account/applications"
DEVICES: Final = "/app/account/devices"
ORGANIZATIONS: Final = page_paths.ORGANIZATIONS_PATH

# Devices


def device_values(result: ListedDevice) -> dict[str, Any]:
    device = result.device
    browser_, system = (" ".join(filter(None, pair)) for pair in ((device.browser, device.browser_version), (device.os, device.os_version)))
    return {
        "id": device.id,
        "name": device.name,
        "system": f"{browser_} on {system}",
        "used": device.last_used_at,
        "methods": " and ".join(kit.label(method, kit.sign_in_methods()) for method in device.methods),
        "first": device.created_at,
        "address": device.last_ip,
        "location": ", ".join(filter(None, (device.location.city, device.location.country))) if device.location else None,
        "is_current": result.is_current,
        "trusted": result.trusted,
    }


@routes.get("/app/account/devices")
@kit.page_session
@kit.describes_page({303: "The security page."})
async def show_devices() -> Response:
    """Redirect to the security page.

    It has your devices.
    """
    return kit.redirect(f"{SECURITY_PATH}#devices")


@routes.get("/app/account/devices/<device_id>")
@kit.page_session
@kit.describes_page(
    {200: "The page.", 403: "The device belongs to another user."},
    api=["GET /api/user/devices/<device_id>", "PATCH /api/user/devices/<device_id>", "DELETE /api/user/devices/<device_id>"],
)
async def show_device(device_id: UUID) -> Response:
    """Show a device."""
    result = await devices.find(kit.ports(), kit.signed_in(), device_id)
    return await console.console_page("accounts/device.html", device=device_values(result), typed=result.device.name, problem=None)


async def _renamed_values(typed: console_forms.Form, device_id: UUID) -> dict[str, Any]:
    result = await devices.find(kit.ports(), kit.signed_in(), device_id)
    return {"device": device_values(result), "typed": typed.get("name", "")}


_NAME: TypeAdapter[str] = TypeAdapter(kit.Name)


class NameInvalid(errors.Invalid):
    """A name must have 1 to 100 characters, and not only invisible characters."""


def _parse_name(text: str) -> str:
    try:
        return _NAME.validate_python(text)
    except ValidationError:
        raise NameInvalid from None


@routes.post("/app/account/devices/<device_id>/name")
@kit.page_session(kit.MINE)
@console_forms.accepts(form=["form_token", "name"])
@console_forms.on_refusal("accounts/device.html", _renamed_values, refusals=(errors.Invalid,))
async def rename_device(device_id: UUID, form: console_forms.Form) -> Response:
    """Rename a device.

    The name must have 1 to 100 characters.
    """
    device = await devices.rename(kit.ports(), kit.signed_in(), device_id, _parse_name(form.get("name", "")))
    return console.redirect_with_notice("device-renamed", f"{DEVICES}/{device.id}")


@routes.post("/app/account/devices/<device_id>/revoke")
@kit.page_session(kit.MINE)
@console_forms.accepts()
async def revoke_device(device_id: UUID) -> Response:
    """Revoke a device.

    Its sessions and its trust end.
    """
    await devices.revoke(kit.ports(), kit.signed_in(), device_id)
    return console.redirect_with_notice("device-revoked", SECURITY_PATH)


# Linked accounts


async def _identities_values(_: console_forms.Form, provider: str = "") -> dict[str, Any]:
    linked = await identities.list_linked(kit.ports(), kit.signed_in())
    linked_providers = {identity.provider for identity in linked}
    # Linked by a sign-in at an application, with its service's credentials.
    application_providers = set(await identities.list_sign_in_providers(kit.ports(), kit.signed_in())) - linked_providers
    linkable_providers = await oauth_credentials.list_platform_providers(kit.ports()) - linked_providers
    names = kit.ports().policy.provider_names
    return {
        "linked": [(identity, names[identity.provider]) for identity in linked],
        "others": [
            {
                "name": names[provider],
                "provider": provider,
                "can_be_linked": provider in linkable_providers,
                "at_an_application": provider in application_providers,
            }
            for provider in PLATFORM_CONNECTIONS
            if provider in linkable_providers | application_providers
        ],
        "links": await links.list_own(kit.ports(), kit.signed_in()),
    }


@routes.get(page_paths.IDENTITIES_PATH)
@kit.page_session
@console.shows(
    "GET /api/user/identities",
    "POST /api/user/identities/<provider>/link",
    "DELETE /api/user/identities/<provider>",
    "GET /api/user/connections",
)
async def show_identities() -> Response:
    """List your linked accounts."""
    images_of = [id_ for id_, _ in PLATFORM_CONNECTIONS.values()]
    return await console.console_page("accounts/identities.html", images_of=images_of, **await _identities_values({}))


@routes.post("/app/account/identities/<provider:provider>/link")
@kit.page_session(kit.WAYS_IN)
@console_forms.accepts(answers=console_forms.answers_with("A page that redirects to the identity provider."))
@console_forms.on_refusal("accounts/identities.html", _identities_values, refusals=(errors.Invalid,))
async def link_identity(provider: str, form: console_forms.Form) -> Response:
    """Link an account at an identity provider.

    The browser continues at the identity provider, and returns to your linked accounts.
    """
    ticket = await identities.start_link(kit.ports(), kit.signed_in(), provider)
    address = f"/auth/{provider}?{urlencode({'link': ticket})}"
    response = await console.console_page(
        "accounts/link.html", provider=kit.ports().policy.provider_names[parse_provider(provider)], address=address
    )
    # A page instead of a redirect: browsers apply the form-action policy on the form's page to all
    # redirects that follow, and we do not know the hosts that a provider redirects through.
    response.headers["Refresh"] = f"0; url={address}"
    return response


@routes.post("/app/account/identities/<provider:provider>/unlink")
@kit.page_session(kit.WAYS_IN)
@console_forms.accepts()
@console_forms.on_refusal("accounts/identities.html", _identities_values, refusals=(errors.Invalid,))
async def unlink_identity(provider: str, form: console_forms.Form) -> Response:
    """Unlink an account at an identity provider.

    This is refused if it is your only way to sign in.
    """
    await identities.unlink(kit.ports(), kit.signed_in(), provider)
    return console.redirect_with_notice("account-unlinked", page_paths.IDENTITIES_PATH)


# Organizations


@routes.get(ORGANIZATIONS)
@kit.page_session(restricted=kit.Restricted.YES)
@console.shows("GET /api/organizations", "POST /api/organizations/<org_slug>/leave")
async def show_organizations() -> Response:
    """List the organizations that have you as a member."""
    own = [
        (organization, membership, role_text(membership), first_page(organization.slug, membership.rights))
        for organization, membership in await organizations.list_own(kit.ports(), kit.signed_in())
    ]
    return await console.console_page("tenancy/own_organizations.html", organizations=own)


@routes.post("/app/account/organizations/<org_slug>/confirm")
@kit.page_session(kit.MINE)
@console_forms.accepts(answers=console_forms.ANSWERS_TO_BUTTON)
async def confirm_membership(org_slug: str) -> Response:
    """Confirm that you belong to an organization.

    Until then, its SAML applications do not admit you, and its owner cannot export your data.
    """
    await members.confirm(kit.ports(), kit.signed_in(), org_slug)
    return console.redirect_with_notice("membership-confirmed", ORGANIZATIONS)


@routes.get("/app/account/organizations/<org_slug>/leave")
@kit.page_session
@kit.describes_page({200: "The page.", 403: "You are not a member."}, api=["POST /api/organizations/<org_slug>/leave"])
async def show_leaving(org_slug: str) -> Response:
    """Ask before you leave an organization."""
    return await consequences.ask(await _leaving(org_slug))


async def _leaving(org_slug: str) -> consequences.Question:
    own = await organizations.list_own(kit.ports(), kit.signed_in())
    organization, membership = next((each for each in own if each[0].slug == org_slug), None) or errors.refuse(NotOfThisOrganization)
    applications = [each.name for each in await access.list_own_applications(kit.ports(), kit.signed_in()) if each.org_slug == org_slug]
    programs = await grants.list_going_on(kit.ports(), kit.signed_in().user_id, organization.id)
    return consequences.Question(
        verb="Leave",
        target=organization.name,
        consequences=(
            *(["You own this organization. Transfer the ownership first."] if membership.is_owner else []),
            "Your sessions in this organization end at once. To come back, you need an invitation. Your account remains.",
            *consequences.name_all("You can no longer use its applications that are only for members. You can now use", applications),
            *consequences.name_all(consequences.PROGRAMS, programs),
            "The credentials that you created for its service accounts and API resources end, and your pending invitations are canceled.",
        ),
        button="Leave organization",
        keep="Stay",
        back=("Your organizations", ORGANIZATIONS),
    )


@routes.post("/app/account/organizations/<org_slug>/leave")
@kit.page_session(kit.LEAVES)
@console_forms.accepts(answers={303: console_forms.REDIRECTED, 400: "You own the organization."})
async def leave_organization(org_slug: str) -> Response:
    """Leave an organization.

    Your sessions in the organization end. The owner transfers the ownership first.
    """
    try:
        await members.leave(kit.ports(), kit.signed_in(), org_slug)
    except OwnerCannotLeave as refusal:
        return await consequences.ask_again(refusal, await _leaving(org_slug), {})
    return console.redirect_with_notice("organization-left", ORGANIZATIONS)


# Applications


@routes.get(APPLICATIONS)
@kit.page_session(restricted=kit.Restricted.YES)
@console.shows("GET /api/user/applications")
async def show_applications() -> Response:
    """List the applications that you may use."""
    own = await access.list_own_applications(kit.ports(), kit.signed_in())
    return await console.console_page(
        "applications/own_applications.html",
        images_of=[each.id for each in own],
        applications=[
            {"id": each.id, "name": each.name, "organization": each.organization, "launch_url": launch_url(each)} for each in own
        ],
    )


# Sessions


def session_values(session: LiveSession, current: UUID) -> dict[str, Any]:
    user_agent = kit.ports().user_agents.parse(session.agent)
    return {
        "id": session.id,
        "title": _session_title(session),
        "connection": session.connection,
        "where": session.address or "unknown address",
        "agent": None if session.agent is None or session.by_support else f"{user_agent.browser} on {user_agent.os}",
        "since": session.created_at,
        "is_current": session.id == current,
    }


def _session_title(session: LiveSession) -> str:
    if session.by_support:
        return PLATFORM_SUPPORT
    if session.service is not None:
        if not session.organization:
            return session.service
        return f"{session.service}{', acting at' if session.is_external else ' of'} {session.organization}"
    if session.in_browser:
        return "Your account, in a browser"
    return f"{PRODUCT}, for {session.organization}" if session.organization else f"{PRODUCT}, through an application"


@routes.get("/app/account/sessions")
@kit.page_session
@kit.describes_page({303: "The security page."})
async def show_sessions() -> Response:
    """Redirect to the security page.

    It has your sessions.
    """
    return kit.redirect(f"{SECURITY_PATH}#sessions")


@routes.post("/app/account/sessions/<session_id>/end")
@kit.page_session(kit.MINE)
@console_forms.accepts(answers=console_forms.ANSWERS_TO_BUTTON)
async def end_session(session_id: UUID) -> Response:
    """End a session.

    Ending the current session signs you out.
    """
    user = kit.signed_in()
    has_ended = await sessions.end_own(kit.ports(), user, session_id)
    if session_id == user.session_id:
        return kit.redirect(page_paths.SIGN_IN_PATH)
    return console.redirect_with_notice("session-ended", SECURITY_PATH) if has_ended else kit.redirect(SECURITY_PATH)


@routes.post("/app/account/sessions/end-others")
@kit.page_session(kit.MINE)
@console_forms.accepts(answers=console_forms.ANSWERS_TO_BUTTON)
async def end_other_sessions() -> Response:
    """End all your sessions except the current session.

    The current session continues.
    """
    await sessions.end_others(kit.ports(), kit.signed_in())
    return console.redirect_with_notice("other-sessions-ended", SECURITY_PATH)
