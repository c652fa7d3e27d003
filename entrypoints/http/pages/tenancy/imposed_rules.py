"""The page on which the owner removes imposed rules: rules that members with fewer rights made, which can keep the owner out."""

from typing import Final

from markupsafe import Markup
from quart import Blueprint, Response

from core.kernel.page_paths import ORGANIZATIONS_PATH, SECURITY_PATH
from core.kernel.roles import Capability
from core.kernel.sign_in_policy.explanations import LABELS
from core.tenancy import imposed_rules, organizations
from entrypoints.http.api.tenancy.sign_in_policy import OF_IMPOSED_RULES
from entrypoints.http.base.context import acting_member, ports
from entrypoints.http.edge.access import SHOWS_IMPOSED, UNLOCKS, member_page
from entrypoints.http.pages.consequences import Question, accepts_answer, sentence
from entrypoints.http.pages.console import redirect_with_notice
from entrypoints.http.pages.console_forms import Form, serves_form

routes = Blueprint("imposed_rules_pages", __name__)

PAGE: Final = "/app/organizations/<org_slug>/sign-in-policy/imposed-rules"
EFFECT: Final = (
    "Your own rules are in force again, except for required connections that members changed or that would keep you out. You and all "
    "admins get an email. Members can save such rules again."
)
ADVICE: Final = Markup(
    'This needs a passkey or a second factor of your account. If your account has none, <a href="{}">add a factor</a> first. If the rules '
    "prevent this, ask the operator of this site for a recovery of your account."
).format(SECURITY_PATH)


async def _question(**_: str) -> Question:
    imposed = await imposed_rules.list_all(ports(), acting_member())
    places = [(rules.service_slug or "the organization", ", ".join(LABELS[name] for name in rules.rules)) for rules in imposed]
    consequences = [sentence("Members with fewer rights than yours made or changed these rules for {}: {}.", *place) for place in places]
    return Question(
        verb="Remove sign-in rules of",
        target=(await organizations.get(ports(), acting_member())).name,
        consequences=(*consequences, EFFECT, ADVICE) if imposed else ("All rules are yours. There is nothing to remove.",),
        button="Remove rules" if imposed else "",
        back=("Organizations", ORGANIZATIONS_PATH),
    )


@serves_form(
    routes,
    PAGE,
    f"GET {OF_IMPOSED_RULES}",
    f"DELETE {OF_IMPOSED_RULES}",
    opens=member_page(Capability.ORGANIZATION_OWN, SHOWS_IMPOSED),
)
@member_page(Capability.ORGANIZATION_OWN, UNLOCKS)
@accepts_answer(f"DELETE {OF_IMPOSED_RULES}", _question)
async def remove(org_slug: str, form: Form) -> Response:
    """Remove the rules that members with fewer rights than the owner made."""
    await imposed_rules.remove(ports(), acting_member())
    return redirect_with_notice("imposed-rules-removed", f"/app/organizations/{org_slug}")
