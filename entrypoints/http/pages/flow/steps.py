"""A flow's steps in a browser. All pages lead here, and the next step is decided here alone."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Final

from quart import Blueprint, Response

from core.authentication import admissions, policy_enrollment
from core.authentication.browser import FormTokenInvalid
from core.authentication.flow import flows
from core.authentication.flow.model import Flow, FlowTarget
from core.federation import destination
from core.federation.connections import people
from core.federation.oauth import requests
from core.kernel import errors
from core.kernel.callers import Visitor
from core.kernel.sign_in_policy.steps import Step
from core.kernel.values import Email
from entrypoints.http import kit
from entrypoints.http.pages.federation import oauth
from entrypoints.http.pages.federation.saml import sign_on
from entrypoints.http.pages.flow import forms, step_ups
from entrypoints.http.pages.flow.flows import FLOW_PATH, connection_path, in_flow, leads_to_request, path_of
from entrypoints.http.pages.flow.step_ups import StepUp
from entrypoints.http.pages.form_pages import check_session_form
from entrypoints.http.pages.visitors import visitor_with_mfa

routes = Blueprint("sign_in_flow", __name__)

ANSWERS: Final = {
    200: "The page of the step, the page that brings the answer to the application, or the sign-in has ended and the page goes on.",
    303: "Continue at the next step, at our page, or at the application.",
    403: "The signed-in user has no access to the application.",
}
# Steps in a browser without a sufficient session. Its user can switch between these steps.
_SIGN_INS: Final = (Step.SIGN_IN, Step.SIGN_UP, Step.SECOND_FACTOR)
_OTHER_SESSION: Final = "You've signed in again since this page was opened. Read it again before you continue."


class QuestionChanged(errors.Forbidden):
    """The application asks for something else now. Read it before you continue."""


async def _resume_page(flow: Flow, user: Visitor | None, _reply: destination.PageAnswer | None) -> destination.Asked | Response:
    if user is None and (flow.is_stored or not leads_to_request(flow)):
        return destination.Asked(Step.SIGN_IN, destination.Destination())
    if flow.is_stored:
        await flows.close(kit.ports(), flow)
    return kit.redirect(flow.request)


# How the pages for every target in `core.federation.targets` continue.
_RESUME: Final[
    Mapping[FlowTarget, Callable[[Flow, Visitor | None, destination.PageAnswer | None], Awaitable[destination.Asked | Response]]]
] = {
    FlowTarget.PAGE: _resume_page,
    FlowTarget.OAUTH: oauth.resume,
    FlowTarget.SAML: sign_on.resume,
}


async def step_page(
    flow: Flow, requested: Step | None = None, reply: destination.PageAnswer | None = None, problem: errors.Refusal | None = None
) -> Response:
    """Return the requested step's page, if the step is possible now, and otherwise a redirect to the next step.

    `reply` is the user's answer to a question, and `problem` says why it did not count.
    """
    if (email := people.address_to_link(kit.ports(), flow)) is not None:  # it waits for a sign-in, also in a browser with a session
        return await _link_page(flow, requested, email)
    user = await visitor_with_mfa()
    if user is None and requested is Step.SIGN_UP and not flow.is_stored:
        flow = replace(flow, request=requests.ask_for_sign_up(flow.request))
    outcome = await _RESUME[flow.target](flow, user, reply)
    if not isinstance(outcome, destination.Asked):
        return outcome
    if outcome.step is Step.ENROLL:
        is_reminder = outcome.admission.is_allowed  # the rule starts later
        if is_reminder and user is not None and not await admissions.claim_reminder(kit.ports(), user):
            return await step_page(flow, requested, reply, problem)  # another request reminds the user
        return kit.redirect(admissions.enrollment_path(outcome.admission.place, next=path_of(flow)))
    if outcome.step is Step.SIGN_IN:
        flow = await flows.ask_for_fresh(kit.ports(), flow, outcome.wants_fresh)
    step = _present(flow, outcome, requested)
    if step is not requested:
        return kit.redirect(path_of(flow, f"/{step.value}"))
    step_up = await step_ups.find(user, outcome.destination, outcome.admission) if step is Step.SIGN_IN else None
    if step_up is not None:
        return await _step_up_page(flow, outcome, step_up)
    if step in forms.FORMS:
        return await forms.FORMS[step](flow, outcome.destination)
    assert user is not None, "the others are questions to a signed-in user"
    return await forms.question_page(flow, outcome, user, problem or (None if reply is None else QuestionChanged()))


async def _step_up_page(flow: Flow, asked: destination.Asked, step_up: StepUp) -> Response:
    """Return the page or the redirect for a user with a session that is not enough."""
    if (connection := step_up.decision.leads_to) is not None:
        return kit.redirect(connection_path(flow, connection.id))
    if await _confirms_there(asked, step_up.user):
        return kit.to_reauthentication_for(asked.admission.place, path_of(flow))
    return await forms.sign_in_form(flow, step_up.narrow(asked.destination), step_up=step_up)


async def _confirms_there(asked: destination.Asked, user: Visitor) -> bool:
    """Return whether the page that confirms for a sign-in policy is next.

    It has the ways for a session that began at a connection: to sign in there again, or the second factor alone (security A-12).
    """
    if user.restricted_to is None or asked.admission.is_allowed:
        return False
    enrollment = await policy_enrollment.find_enrollment(kit.ports(), user, asked.admission.place)
    return enrollment.admission.step is Step.SIGN_IN


async def _link_page(flow: Flow, requested: Step | None, email: Email) -> Response:
    """Return the page on which the user signs in to the account that is linked next, or a redirect there."""
    step = Step.SECOND_FACTOR if flow.waits_for_code(kit.ports().clock.now()) else Step.SIGN_IN
    if step is not requested:
        return kit.redirect(path_of(flow, f"/{step.value}"))
    if step is Step.SECOND_FACTOR:
        return await forms.FORMS[step](flow, None)
    return await forms.sign_in_form(flow, asked=forms.link_sentence(flow), email=email)


def _present(flow: Flow, asked: destination.Asked, requested: Step | None) -> Step:
    step = asked.step
    if step not in _SIGN_INS:
        return step
    waits = flow.waits_for_code(kit.ports().clock.now())
    offers_sign_up = asked.destination is not None and asked.destination.offers_sign_up
    is_there = {Step.SIGN_IN: True, Step.SIGN_UP: offers_sign_up, Step.SECOND_FACTOR: waits}
    if requested is not None and is_there.get(requested, False):
        return requested
    return Step.SECOND_FACTOR if waits else step


@routes.get(FLOW_PATH)
@kit.anyone(kit.PROTOCOL)
@kit.describes_page(ANSWERS, changes_state=True)
@in_flow
async def continue_flow(flow: Flow) -> Response:
    """Continue a sign-in at its next step.

    A flow works only in the browser that began it.
    """
    return await step_page(flow)


def _question(step: Step) -> None:
    """Add the routes for a page that asks a signed-in user."""

    @kit.anyone(kit.PROTOCOL)
    @kit.describes_page(ANSWERS, changes_state=True)
    @in_flow
    async def show(flow: Flow) -> Response:
        return await step_page(flow, step)

    @kit.anyone
    @kit.describes_page(
        ANSWERS | {403: "The form was not sent by our page, or the user has no access."},
        form=["form_token", "answer", "question"],
    )
    @in_flow
    async def answer(flow: Flow) -> Response:
        form = await kit.read_form()
        if await visitor_with_mfa() is None:
            return kit.redirect(path_of(flow))
        try:
            check_session_form(form)
        except FormTokenInvalid:  # the form can belong to an earlier session: ask the present user
            return await step_page(flow, step, problem=FormTokenInvalid(_OTHER_SESSION))
        return await step_page(flow, step, destination.PageAnswer(form.get("answer", ""), form.get("question", "")))

    name = step.name.lower()
    show.__doc__ = f"""Ask the user about the step `{step.value}` of a sign-in.

    If the sign-in is at another step, the browser continues there.
    """
    answer.__doc__ = f"""Answer the question of the step `{step.value}`.

    `answer` is `continue` to agree, `select` to continue with this account, and every other value cancels.
    """
    routes.add_url_rule(f"{FLOW_PATH}/{step.value}", endpoint=name, view_func=show, methods=["GET"])
    routes.add_url_rule(f"{FLOW_PATH}/{step.value}", endpoint=f"answer_{name}", view_func=answer, methods=["POST"])


for _step in (Step.CONFIRM, Step.CONSENT, Step.SELECT):
    _question(_step)
