"""The page of an organization's sign-in policy, with a preview of its effect."""

from typing import Any, Final

from quart import Blueprint, Response

from core.kernel.rate_limits import POLICY_PREVIEW
from core.kernel.roles import Capability
from core.kernel.sign_in_age import SignInAge
from core.kernel.sign_in_policy.rules import Rule
from core.tenancy import sign_in_policies
from core.tenancy.model.sign_in_policies import PolicyPreview
from entrypoints.http.api.tenancy.sign_in_policy import OF_ORGANIZATION, PolicyPreviewRequest, SignInPolicyRequest
from entrypoints.http.base.context import acting_member, ports
from entrypoints.http.edge.access import member_page
from entrypoints.http.edge.openapi import refuses
from entrypoints.http.pages.console import console_page, organization_path, redirect_with_notice, shows
from entrypoints.http.pages.console_forms import Form, accepts, answers_with, on_refusal
from entrypoints.http.pages.policy_forms import naming_fields, policy_values, to_policy, wrong_rule

routes = Blueprint("sign_in_policy_pages", __name__)

PAGE: Final = "/app/organizations/<org_slug>/sign-in-policy"
TEMPLATE: Final = "tenancy/sign_in_policy.html"


async def _values(form: Form | None = None, preview: PolicyPreview | None = None) -> dict[str, Any]:
    details = await sign_in_policies.get(ports(), acting_member())
    return {"path": organization_path("/sign-in-policy"), **policy_values([*Rule], details.policy, form, preview)}


@routes.get(PAGE)
@member_page(Capability.SIGN_IN_POLICY_MANAGE)
@shows(f"GET {OF_ORGANIZATION}", f"PUT {OF_ORGANIZATION}")
async def show_policy(org_slug: str) -> Response:
    """Show the sign-in policy of an organization."""
    return await console_page(TEMPLATE, **await _values())


@routes.post(PAGE)
@member_page(Capability.SIGN_IN_POLICY_MANAGE, outlives=True, sign_in=SignInAge.FRESH)
@accepts(f"PUT {OF_ORGANIZATION}")
@refuses(409)
@on_refusal(TEMPLATE, _values, wrong_rule)
async def save_policy(org_slug: str, form: Form) -> Response:
    """Save the sign-in policy of an organization."""
    data = to_policy(SignInPolicyRequest, form)
    with naming_fields():
        await sign_in_policies.save(ports(), acting_member(), data.document, data.version)
    return redirect_with_notice("policy-saved", organization_path("/sign-in-policy"))


@routes.post(f"{PAGE}/preview")
@member_page(Capability.SIGN_IN_POLICY_MANAGE, outlives=False, limit=POLICY_PREVIEW)
@accepts(f"POST {OF_ORGANIZATION}/preview", answers=answers_with("The form, and the effect that it would have."))
@on_refusal(TEMPLATE, _values, wrong_rule)
async def preview_policy(org_slug: str, form: Form) -> Response:
    """Preview the effect of a sign-in policy. Nothing is saved."""
    data = to_policy(PolicyPreviewRequest, form)
    with naming_fields():
        preview = await sign_in_policies.preview(ports(), acting_member(), data.document)
    return await console_page(TEMPLATE, **await _values(form, preview))
