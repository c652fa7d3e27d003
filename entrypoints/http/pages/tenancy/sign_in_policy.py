"""The pages for sign-in policies and their previews, for break glass, and for the removal of imposed rules."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, Protocol

from markupsafe import Markup
from quart import Blueprint, Response

from core.applications import services
from core.applications import sign_in_policies as of_applications
from core.federation.connections import connections
from core.kernel import page_paths
from core.kernel.rate_limits import POLICY_PREVIEW
from core.kernel.roles import Capability
from core.kernel.sign_in_policy.explanations import LABELS
from core.kernel.sign_in_policy.rules import RULES_OF_APPLICATIONS, RULES_OF_ORGANIZATIONS, RULES_OF_PLATFORM, Document
from core.tenancy import break_glass, domains, imposed_rules, organizations, platform_sign_in_policy, sign_in_policies
from core.tenancy.model.sign_in_policies import MAX_BREAK_GLASS, BreakGlassUser, PolicyPreview
from core.tenancy.sign_in_policies import PolicyDetails
from entrypoints.http import kit
from entrypoints.http.api.tenancy import sign_in_policy
from entrypoints.http.api.tenancy.platform_sign_in_policy import PlatformPolicyPreviewRequest, PlatformPolicyRequest, PlatformPolicyResponse
from entrypoints.http.api.tenancy.sign_in_policy import OF_APPLICATION, OF_BREAK_GLASS, OF_IMPOSED_RULES, OF_ORGANIZATION
from entrypoints.http.pages import console, console_forms, policy_forms
from entrypoints.http.pages.applications.applications import APPLICATION, application_path, application_values
from entrypoints.http.pages.consequences import Question, accepts_answer, sentence
from entrypoints.http.pages.form_values import to_model

routes = Blueprint("sign_in_policy_pages", __name__)

PAGE: Final = "/app/organizations/<org_slug>/sign-in-policy"
TEMPLATE: Final = "tenancy/sign_in_policy.html"
APPLICATION_PAGE: Final = f"{APPLICATION}/sign-in-policy"
APPLICATION_TEMPLATE: Final = "applications/sign_in_policy.html"
PLATFORM_PAGE: Final = "/app/platform/sign-in-policy"
PLATFORM_API: Final = "/api/platform/sign-in-policy"
PLATFORM_TEMPLATE: Final = "platform/sign_in_policy.html"
PREVIEWED: Final = console_forms.answers_with("The form, and the effect that it would have.")


class RulesRequest(Protocol):
    """An API request about a policy."""

    @property
    def document(self) -> Document: ...


class VersionedRequest(RulesRequest, Protocol):
    """A request that changes a policy."""

    @property
    def version(self) -> int: ...


async def _save(data: VersionedRequest, save: Callable[[Document, int], Awaitable[PolicyDetails]], path: str) -> Response:
    with policy_forms.naming_fields():
        await save(data.document, data.version)
    return console.redirect_with_notice("policy-saved", path)


async def _preview(data: RulesRequest, preview: Callable[[Document], Awaitable[PolicyPreview]]) -> PolicyPreview:
    with policy_forms.naming_fields():
        return await preview(data.document)


# Organizations


async def _methods() -> Sequence[str]:
    policy = (await sign_in_policies.get(kit.ports(), kit.acting_member())).policy
    return policy_forms.offered_methods(await sign_in_policies.list_usable_methods(kit.ports(), kit.acting_member()), policy)


async def _choices() -> policy_forms.RequiredChoices:
    proved = [claim.domain for claim in await domains.list_own(kit.ports(), kit.acting_member()) if claim.verified_at is not None]
    own = await connections.list_own(kit.ports(), kit.acting_member())
    return policy_forms.RequiredChoices(proved, {each.slug: each.name for each in own if each.is_active})


async def _values(form: console_forms.Form, preview: PolicyPreview | None = None) -> dict[str, Any]:
    details = await sign_in_policies.get(kit.ports(), kit.acting_member())
    console.show_document(sign_in_policy.SignInPolicyResponse(**sign_in_policy.fields_of_policy(details)))
    return {
        "path": console.organization_path("/sign-in-policy"),
        "people_path": console.organization_path("/members"),
        **policy_forms.policy_values(RULES_OF_ORGANIZATIONS, details.policy, form, preview, await _methods(), await _choices()),
    }


@console_forms.serves_form(routes, PAGE, f"GET {OF_ORGANIZATION}", f"PUT {OF_ORGANIZATION}")
@kit.member_page(Capability.SIGN_IN_POLICY_MANAGE, kit.OWNS)
@console_forms.accepts(f"PUT {OF_ORGANIZATION}")
@kit.refuses(409)
@console_forms.on_refusal(TEMPLATE, _values, policy_forms.wrong_rule)
async def save_policy(org_slug: str, form: console_forms.Form) -> Response:
    """Save an organization's sign-in policy."""
    data = policy_forms.to_policy(sign_in_policy.SignInPolicyRequest, form, await _methods())
    return await _save(data, partial(sign_in_policies.save, kit.ports(), kit.acting_member()), console.organization_path("/sign-in-policy"))


@routes.post(f"{PAGE}/preview")
@kit.member_page(Capability.SIGN_IN_POLICY_MANAGE, kit.PREVIEWS, limit=POLICY_PREVIEW)
@console_forms.accepts(f"POST {OF_ORGANIZATION}/preview", answers=PREVIEWED)
@console_forms.on_refusal(TEMPLATE, _values, policy_forms.wrong_rule)
async def preview_policy(org_slug: str, form: console_forms.Form) -> Response:
    """Preview a sign-in policy's effect. Nothing is saved."""
    data = policy_forms.to_policy(sign_in_policy.PolicyPreviewRequest, form, await _methods())
    preview = await _preview(data, partial(sign_in_policies.preview, kit.ports(), kit.acting_member()))
    return await console.console_page(TEMPLATE, **await _values(form, preview))


# Applications


async def _application_methods(service_slug: str) -> Sequence[str]:
    policy = (await of_applications.get(kit.ports(), kit.acting_member(), service_slug)).policy
    return policy_forms.offered_methods(await of_applications.list_usable_methods(kit.ports(), kit.acting_member(), service_slug), policy)


async def _application_values(form: console_forms.Form, service_slug: str, preview: PolicyPreview | None = None) -> dict[str, Any]:
    service = await services.find(kit.ports(), kit.acting_member(), service_slug)
    details = await of_applications.get(kit.ports(), kit.acting_member(), service_slug)
    console.show_document(sign_in_policy.ApplicationPolicyResponse(**sign_in_policy.fields_of_policy(details)))
    return {
        **application_values(service),
        "organization_policy": console.organization_path("/sign-in-policy"),
        "in_force": policy_forms.describe(details.in_force),
        "has_policy": details.policy.version > 0,
        "people_path": console.organization_path("/members"),
        **policy_forms.policy_values(
            RULES_OF_APPLICATIONS, details.policy, form, preview, await _application_methods(service_slug), await _choices()
        ),
    }


def _application_path(service_slug: str) -> str:
    return f"{application_path(service_slug)}/sign-in-policy"


@console_forms.serves_form(routes, APPLICATION_PAGE, f"GET {OF_APPLICATION}", f"PUT {OF_APPLICATION}", f"DELETE {OF_APPLICATION}")
@kit.member_page(Capability.SIGN_IN_POLICY_MANAGE, kit.OWNS)
@console_forms.accepts(f"PUT {OF_APPLICATION}")
@kit.refuses(409)
@console_forms.on_refusal(APPLICATION_TEMPLATE, _application_values, policy_forms.wrong_rule)
async def save_application_policy(org_slug: str, service_slug: str, form: console_forms.Form) -> Response:
    """Save an application's sign-in policy."""
    data = policy_forms.to_policy(sign_in_policy.ApplicationPolicyRequest, form, await _application_methods(service_slug))
    return await _save(data, partial(of_applications.save, kit.ports(), kit.acting_member(), service_slug), _application_path(service_slug))


@routes.post(f"{APPLICATION_PAGE}/preview")
@kit.member_page(Capability.SIGN_IN_POLICY_MANAGE, kit.PREVIEWS, limit=POLICY_PREVIEW)
@console_forms.accepts(f"POST {OF_APPLICATION}/preview", answers=PREVIEWED)
@console_forms.on_refusal(APPLICATION_TEMPLATE, _application_values, policy_forms.wrong_rule)
async def preview_application_policy(org_slug: str, service_slug: str, form: console_forms.Form) -> Response:
    """Preview the effect of an application's sign-in policy. Nothing is saved."""
    data = policy_forms.to_policy(sign_in_policy.ApplicationPolicyPreviewRequest, form, await _application_methods(service_slug))
    preview = await _preview(data, partial(of_applications.preview, kit.ports(), kit.acting_member(), service_slug))
    return await console.console_page(APPLICATION_TEMPLATE, **await _application_values(form, service_slug, preview))


@routes.post(f"{APPLICATION_PAGE}/remove")
@kit.member_page(Capability.SIGN_IN_POLICY_MANAGE, kit.OWNS)
@console_forms.accepts(f"DELETE {OF_APPLICATION}")
async def remove_application_policy(org_slug: str, service_slug: str) -> Response:
    """Remove an application's sign-in policy. Its organization's policy stays."""
    await of_applications.remove(kit.ports(), kit.acting_member(), service_slug)
    return console.redirect_with_notice("policy-removed", _application_path(service_slug))


# The platform


async def _platform_values(form: console_forms.Form, preview: PolicyPreview | None = None) -> dict[str, Any]:
    details = await platform_sign_in_policy.get(kit.ports())
    console.show_document(PlatformPolicyResponse(**sign_in_policy.fields_of_policy(details)))
    return {
        "path": PLATFORM_PAGE,
        "people_path": "/app/platform/people",
        **policy_forms.policy_values(RULES_OF_PLATFORM, details.policy, form, preview),
    }


@console_forms.serves_form(routes, PLATFORM_PAGE, f"GET {PLATFORM_API}", f"PUT {PLATFORM_API}")
@kit.platform_page(kit.OWNS)
@console_forms.accepts(f"PUT {PLATFORM_API}")
@kit.refuses(409)
@console_forms.on_refusal(PLATFORM_TEMPLATE, _platform_values, policy_forms.wrong_rule)
async def save_platform_policy(form: console_forms.Form) -> Response:
    """Save the platform owners' sign-in policy."""
    data = policy_forms.to_policy(PlatformPolicyRequest, form)
    return await _save(data, partial(platform_sign_in_policy.save, kit.ports(), kit.signed_in()), PLATFORM_PAGE)


@routes.post(f"{PLATFORM_PAGE}/preview")
@kit.platform_page(kit.PREVIEWS, limit=POLICY_PREVIEW)
@console_forms.accepts(f"POST {PLATFORM_API}/preview", answers=PREVIEWED)
@console_forms.on_refusal(PLATFORM_TEMPLATE, _platform_values, policy_forms.wrong_rule)
async def preview_platform_policy(form: console_forms.Form) -> Response:
    """Preview the effect of the platform owners' sign-in policy. Nothing is saved."""
    preview = await _preview(
        policy_forms.to_policy(PlatformPolicyPreviewRequest, form), partial(platform_sign_in_policy.preview, kit.ports())
    )
    return await console.console_page(PLATFORM_TEMPLATE, **await _platform_values(form, preview))


BREAK_GLASS_PAGE: Final = "/app/organizations/<org_slug>/sign-in-policy/break-glass"
BREAK_GLASS_TEMPLATE: Final = "tenancy/break_glass.html"
BREAK_GLASS_FIELDS: Final = tuple(f"person_{number}" for number in range(1, MAX_BREAK_GLASS + 1))


def _person_label(user: BreakGlassUser) -> str:
    name = f"{user.name} ({user.email})" if user.name else user.email
    return name if user.is_admin else f"{name}, no longer an admin"


async def _break_glass_values(form: console_forms.Form) -> dict[str, Any]:
    listed = await break_glass.list_users(kit.ports(), kit.acting_member())
    console.show_document(sign_in_policy.to_break_glass_users(listed))
    others = await break_glass.list_candidates(kit.ports(), kit.acting_member()) if console.may(Capability.MEMBERS_VIEW) else []
    candidates = {user.user_id: user for user in (*listed, *others)}
    return {
        "path": console.organization_path("/sign-in-policy/break-glass"),
        "policy_path": console.organization_path("/sign-in-policy"),
        "candidates": [("", "Choose a person"), *((str(user.user_id), _person_label(user)) for user in candidates.values())],
        "people": BREAK_GLASS_FIELDS,
        "sees_members": console.may(Capability.MEMBERS_VIEW),
        "typed": form or dict(zip(BREAK_GLASS_FIELDS, (str(user.user_id) for user in listed), strict=False)),
    }


@console_forms.serves_form(routes, BREAK_GLASS_PAGE, f"GET {OF_BREAK_GLASS}", f"PUT {OF_BREAK_GLASS}")
@kit.member_page(Capability.SIGN_IN_POLICY_MANAGE, kit.OWNS)
@console_forms.accepts(f"PUT {OF_BREAK_GLASS}")
@console_forms.on_refusal(BREAK_GLASS_TEMPLATE, _break_glass_values)
async def save_break_glass(org_slug: str, form: console_forms.Form) -> Response:
    """Save the people who may come without the required connection."""
    chosen = dict.fromkeys(value for name in BREAK_GLASS_FIELDS if (value := form.get(name, "")))
    data = to_model(sign_in_policy.BreakGlassUsersRequest, form, {"user_ids": lambda _: list(chosen)})
    await break_glass.replace_users(kit.ports(), kit.acting_member(), data.user_ids)
    return console.redirect_with_notice("break-glass-saved", console.organization_path("/sign-in-policy/break-glass"))


IMPOSED_PAGE: Final = "/app/organizations/<org_slug>/sign-in-policy/imposed-rules"
IMPOSED_EFFECT: Final = (
    "Your own rules are in force again, except for required connections that members changed or that would keep you out. You and all "
    "admins get an email. Members can save such rules again."
)
IMPOSED_ADVICE: Final = Markup(
    'This needs a passkey or a second factor of your account. If your account has none, <a href="{}">add a factor</a> first. If the rules '
    "prevent this, ask the operator of this site for a recovery of your account."
).format(page_paths.SECURITY_PATH)


async def _imposed_question(**_: str) -> Question:
    imposed = await imposed_rules.list_all(kit.ports(), kit.acting_member())
    places = [(rules.service_slug or "the organization", ", ".join(LABELS[name] for name in rules.rules)) for rules in imposed]
    consequences = [sentence("Members with fewer rights than yours made or changed these rules for {}: {}.", *place) for place in places]
    return Question(
        verb="Remove sign-in rules of",
        target=(await organizations.get(kit.ports(), kit.acting_member())).name,
        consequences=(*consequences, IMPOSED_EFFECT, IMPOSED_ADVICE) if imposed else ("All rules are yours. There is nothing to remove.",),
        button="Remove rules" if imposed else "",
        back=("Organizations", page_paths.ORGANIZATIONS_PATH),
    )


@console_forms.serves_form(
    routes,
    IMPOSED_PAGE,
    f"GET {OF_IMPOSED_RULES}",
    f"DELETE {OF_IMPOSED_RULES}",
    opens=kit.member_page(Capability.ORGANIZATION_OWN, kit.SHOWS_IMPOSED),
)
@kit.member_page(Capability.ORGANIZATION_OWN, kit.UNLOCKS)
@accepts_answer(f"DELETE {OF_IMPOSED_RULES}", _imposed_question)
async def remove_imposed_rules(org_slug: str, form: console_forms.Form) -> Response:
    """Remove the rules that members with fewer rights than the owner made."""
    await imposed_rules.remove(kit.ports(), kit.acting_member())
    return console.redirect_with_notice("imposed-rules-removed", f"/app/organizations/{org_slug}")
