"""The page of an application's sign-in policy, which adds to that of its organization."""

from typing import Any, Final

from quart import Blueprint, Response

from core.applications import services, sign_in_policies
from core.kernel.rate_limits import POLICY_PREVIEW
from core.kernel.roles import Capability
from core.kernel.sign_in_age import SignInAge
from core.kernel.sign_in_policy.rules import RULES_OF_APPLICATIONS, Rule
from core.tenancy.model.sign_in_policies import PolicyPreview
from entrypoints.http.api.tenancy.sign_in_policy import OF_APPLICATION, ApplicationPolicyPreviewRequest, ApplicationPolicyRequest
from entrypoints.http.base.context import acting_member, ports
from entrypoints.http.edge.access import member_page
from entrypoints.http.edge.openapi import refuses
from entrypoints.http.pages.applications.applications import APPLICATION, application_path, application_values
from entrypoints.http.pages.console import console_page, organization_path, redirect_with_notice, shows
from entrypoints.http.pages.console_forms import Form, accepts, answers_with, on_refusal
from entrypoints.http.pages.policy_forms import describe, naming_fields, policy_values, to_policy, wrong_rule

routes = Blueprint("application_policy_pages", __name__)

PAGE: Final = f"{APPLICATION}/sign-in-policy"
TEMPLATE: Final = "applications/sign_in_policy.html"
RULES: Final = [rule for rule in Rule if rule in RULES_OF_APPLICATIONS]


async def _values(form: Form | None, service_slug: str, preview: PolicyPreview | None = None) -> dict[str, Any]:
    service = await services.find(ports(), acting_member(), service_slug)
    details = await sign_in_policies.get(ports(), acting_member(), service_slug)
    return {
        **application_values(service),
        "organization_policy": organization_path("/sign-in-policy"),
        "in_force": describe(details.in_force),
        "has_policy": details.policy.version > 0,
        **policy_values(RULES, details.policy, form, preview),
    }


@routes.get(PAGE)
@member_page(Capability.SIGN_IN_POLICY_MANAGE)
@shows(f"GET {OF_APPLICATION}", f"PUT {OF_APPLICATION}", f"DELETE {OF_APPLICATION}")
async def show_policy(org_slug: str, service_slug: str) -> Response:
    """Show the sign-in policy of an application."""
    return await console_page(TEMPLATE, **await _values(None, service_slug))


@routes.post(PAGE)
@member_page(Capability.SIGN_IN_POLICY_MANAGE, outlives=True, sign_in=SignInAge.FRESH)
@accepts(f"PUT {OF_APPLICATION}")
@refuses(409)
@on_refusal(TEMPLATE, _values, wrong_rule)
async def save_policy(org_slug: str, service_slug: str, form: Form) -> Response:
    """Save the sign-in policy of an application."""
    data = to_policy(ApplicationPolicyRequest, form)
    with naming_fields():
        await sign_in_policies.save(ports(), acting_member(), service_slug, data.document, data.version)
    return redirect_with_notice("policy-saved", _path(service_slug))


@routes.post(f"{PAGE}/preview")
@member_page(Capability.SIGN_IN_POLICY_MANAGE, outlives=False, limit=POLICY_PREVIEW)
@accepts(f"POST {OF_APPLICATION}/preview", answers=answers_with("The form, and the effect that it would have."))
@on_refusal(TEMPLATE, _values, wrong_rule)
async def preview_policy(org_slug: str, service_slug: str, form: Form) -> Response:
    """Preview the effect of a sign-in policy. Nothing is saved."""
    data = to_policy(ApplicationPolicyPreviewRequest, form)
    with naming_fields():
        preview = await sign_in_policies.preview(ports(), acting_member(), service_slug, data.document)
    return await console_page(TEMPLATE, **await _values(form, service_slug, preview))


@routes.post(f"{PAGE}/remove")
@member_page(Capability.SIGN_IN_POLICY_MANAGE, outlives=True, sign_in=SignInAge.FRESH)
@accepts(f"DELETE {OF_APPLICATION}")
async def remove_policy(org_slug: str, service_slug: str) -> Response:
    """Remove the sign-in policy of an application. That of its organization stays."""
    await sign_in_policies.remove(ports(), acting_member(), service_slug)
    return redirect_with_notice("policy-removed", _path(service_slug))


def _path(service_slug: str) -> str:
    return f"{application_path(service_slug)}/sign-in-policy"
