"""The page about break glass: the people who may come without the connection that the sign-in policy requires."""

from typing import Any, Final

from quart import Blueprint, Response

from core.kernel.roles import Capability
from core.tenancy import break_glass
from core.tenancy.model.sign_in_policies import MAX_BREAK_GLASS, BreakGlassUser
from entrypoints.http.api.tenancy.sign_in_policy import OF_BREAK_GLASS, BreakGlassUsersRequest, to_break_glass_users
from entrypoints.http.base.context import acting_member, ports
from entrypoints.http.edge.access import OWNS, member_page
from entrypoints.http.pages.console import may, organization_path, redirect_with_notice, show_document
from entrypoints.http.pages.console_forms import Form, accepts, on_refusal, serves_form
from entrypoints.http.pages.form_values import to_model

routes = Blueprint("break_glass_pages", __name__)

PAGE: Final = "/app/organizations/<org_slug>/sign-in-policy/break-glass"
TEMPLATE: Final = "tenancy/break_glass.html"
FIELDS: Final = tuple(f"person_{number}" for number in range(1, MAX_BREAK_GLASS + 1))


def _label(user: BreakGlassUser) -> str:
    name = f"{user.name} ({user.email})" if user.name else user.email
    return name if user.is_admin else f"{name}, no longer an admin"


async def _values(form: Form) -> dict[str, Any]:
    listed = await break_glass.list_users(ports(), acting_member())
    show_document(to_break_glass_users(listed))
    others = await break_glass.list_candidates(ports(), acting_member()) if may(Capability.MEMBERS_VIEW) else []
    candidates = {user.user_id: user for user in (*listed, *others)}
    return {
        "path": organization_path("/sign-in-policy/break-glass"),
        "policy_path": organization_path("/sign-in-policy"),
        "candidates": [("", "Choose a person"), *((str(user.user_id), _label(user)) for user in candidates.values())],
        "people": FIELDS,
        "sees_members": may(Capability.MEMBERS_VIEW),
        "typed": form or dict(zip(FIELDS, (str(user.user_id) for user in listed), strict=False)),
    }


@serves_form(routes, PAGE, f"GET {OF_BREAK_GLASS}", f"PUT {OF_BREAK_GLASS}")
@member_page(Capability.SIGN_IN_POLICY_MANAGE, OWNS)
@accepts(f"PUT {OF_BREAK_GLASS}")
@on_refusal(TEMPLATE, _values)
async def save(org_slug: str, form: Form) -> Response:
    """Save the people who may come without the required connection."""
    chosen = dict.fromkeys(value for name in FIELDS if (value := form.get(name, "")))
    data = to_model(BreakGlassUsersRequest, form, {"user_ids": lambda _: list(chosen)})
    await break_glass.replace_users(ports(), acting_member(), data.user_ids)
    return redirect_with_notice("break-glass-saved", organization_path("/sign-in-policy/break-glass"))
