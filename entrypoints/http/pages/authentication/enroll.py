"""The page on which users set up the factor that a sign-in policy requires, before they continue."""

from collections.abc import Mapping
from typing import Any, Final

from quart import Blueprint, Response, request

from core.authentication import admissions, policy_enrollment
from core.authentication.model.policy import PolicyPlace
from core.authentication.policy_enrollment import Enrollment
from core.kernel import proofs
from core.kernel.page_paths import ENROLL_PATH
from core.kernel.sign_in_policy import rules
from core.kernel.sign_in_policy.explanations import explain
from core.kernel.sign_in_policy.steps import Step
from entrypoints.http import kit
from entrypoints.http.pages import form_pages
from entrypoints.http.pages.notices import NOTICES

routes = Blueprint("enroll_pages", __name__)

TEMPLATE: Final = "authentication/enroll.html"
FIELDS: Final = {
    "org": "The slug of the organization with the sign-in policy. Without it, the platform's policy counts.",
    "service": "The slug of its application that the user opens.",
    "next": "The path on this server to continue at.",
}


def _place(fields: Mapping[str, str]) -> PolicyPlace:
    return PolicyPlace.read(fields.get("org", ""), fields.get("service", ""))


def _ways(enrollment: Enrollment) -> dict[str, bool]:
    """Return which ways to meet the policy the page offers: the ways that the account lacks."""
    decision = enrollment.admission.decision
    may_use, methods, needs_second = (
        rules.Rules(methods=decision.methods).may_use,
        decision.methods or (),
        decision.required is proofs.Strength.TWO,
    )
    return {
        "key": enrollment.admission.has_unused_key and needs_second and may_use(proofs.Method.PASSKEY),
        "passkey": may_use(proofs.Method.PASSKEY),
        "app": needs_second and not enrollment.admission.has_app and may_use(proofs.Method.TOTP),
        "password": decision.lacks_first and may_use(proofs.Method.PASSWORD),
        "providers": decision.lacks_first and any(name.startswith(rules.PROVIDER_PREFIX) for name in methods),
    }


def _values(enrollment: Enrollment, place: PolicyPlace, next_path: str) -> dict[str, Any]:
    decision = enrollment.admission.decision
    return {
        "form_token": form_pages.session_form_token(),
        "explanation": explain(decision),
        "due_at": decision.due_at,
        "target": {name: value for name, value in (("org", place.org_slug), ("service", place.service_slug), ("next", next_path)) if value},
        "needs_recovery": enrollment.needs_recovery,
        **_ways(enrollment),
    }


@routes.get(ENROLL_PATH)
@kit.sign_in_session(restricted=kit.Restricted.YES)
@kit.describes_page({200: "The page.", 303: "Nothing is missing. Continue at `next`, or confirm first that it's you."}, optional=FIELDS)
async def show() -> Response:
    """Ask the user to set up the factor that a sign-in policy requires.

    `next` is the path on this server to continue at. If the rule starts later, the user can leave it for now. The page also says what the
    user has just done, such as joining the organization.
    """
    place, next_path = _place(request.args), kit.next_of(request.args)
    enrollment = await policy_enrollment.find_enrollment(kit.ports(), kit.signed_in(), place)
    if enrollment.admission.step is Step.SIGN_IN:
        return kit.to_reauthentication_for(place, next_path)
    if not enrollment.admission.needs_factor:
        response = kit.redirect(next_path)
        kit.cookies.ENROLLMENT.clear(response)
        return response
    notice = NOTICES.get(kit.cookies.NOTICE.read() or "")
    response = kit.page_response(kit.render(TEMPLATE, done=notice, **_values(enrollment, place, next_path)))
    if notice is not None:
        kit.cookies.NOTICE.clear(response)
    if len(path := admissions.enrollment_path(place, next=next_path)) <= kit.cookies.MAX_ENROLLMENT:
        kit.cookies.ENROLLMENT.set(response, path)
    return response


@routes.post(ENROLL_PATH)
@kit.sign_in_session(kit.PROTOCOL, restricted=kit.Restricted.YES)
@kit.describes_page(
    {303: "Continue at `next`, or at the page if the rule has started.", 403: "Not a form of our page."}, form=["form_token"]
)
async def postpone() -> Response:
    """Leave the factor that a sign-in policy requires for later.

    The user is asked again on the next day.
    """
    form = await kit.read_form()
    form_pages.check_session_form(form)
    place, next_path = _place(form), kit.next_of(form)
    enrollment = await policy_enrollment.find_enrollment(kit.ports(), kit.signed_in(), place)
    if enrollment.admission.step is not None:
        return kit.redirect(admissions.enrollment_path(place, next=next_path))
    if enrollment.admission.needs_factor:
        await admissions.claim_reminder(kit.ports(), kit.signed_in())
    response = kit.redirect(next_path)
    kit.cookies.ENROLLMENT.clear(response)
    return response
