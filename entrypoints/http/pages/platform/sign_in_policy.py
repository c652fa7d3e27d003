"""The page of the platform's sign-in policy, which concerns platform owners."""

from typing import Any, Final

from quart import Blueprint, Response

from core.kernel.sign_in_age import SignInAge
from core.kernel.sign_in_policy.rules import RULES_OF_PLATFORM, Rule
from core.tenancy import platform_sign_in_policy
from entrypoints.http.api.tenancy.platform_sign_in_policy import PlatformPolicyRequest
from entrypoints.http.base.context import ports, signed_in
from entrypoints.http.edge.access import platform_page
from entrypoints.http.edge.openapi import refuses
from entrypoints.http.pages.console import console_page, redirect_with_notice, shows
from entrypoints.http.pages.console_forms import Form, accepts, on_refusal
from entrypoints.http.pages.policy_forms import naming_fields, policy_values, to_policy, wrong_rule

routes = Blueprint("platform_policy_pages", __name__)

PAGE: Final = "/app/platform/sign-in-policy"
API: Final = "/api/platform/sign-in-policy"
TEMPLATE: Final = "platform/sign_in_policy.html"
RULES: Final = [rule for rule in Rule if rule in RULES_OF_PLATFORM]


async def _values(form: Form | None = None) -> dict[str, Any]:
    details = await platform_sign_in_policy.get(ports())
    return {"path": PAGE, **policy_values(RULES, details.policy, form)}


@routes.get(PAGE)
@platform_page
@shows(f"GET {API}", f"PUT {API}")
async def show_policy() -> Response:
    """Show the sign-in policy of platform owners."""
    return await console_page(TEMPLATE, **await _values())


@routes.post(PAGE)
@platform_page(sign_in=SignInAge.FRESH)
@accepts(f"PUT {API}")
@refuses(409)
@on_refusal(TEMPLATE, _values, wrong_rule)
async def save_policy(form: Form) -> Response:
    """Save the sign-in policy of platform owners."""
    data = to_policy(PlatformPolicyRequest, form)
    with naming_fields():
        await platform_sign_in_policy.save(ports(), signed_in(), data.model_dump(exclude={"version"}), data.version)
    return redirect_with_notice("policy-saved", PAGE)
