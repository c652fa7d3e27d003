"""The page where a user approves or denies a device.

Sources: RFC 8628 section 3.3; security V-2 and V-3.
"""

from typing import Any, Literal

from pydantic import Field
from quart import Blueprint, Response, request
from quart_schema import document_response

from core.applications.model.users import NoAccessToService
from core.authentication.model.policy import EnrolmentRequired, StepUpNeeded
from core.federation.oauth import device_flow
from core.federation.oauth.model.device_flow import (
    MAX_TYPED_LENGTH,
    VERIFY_PATH,
    DeviceDecision,
    DeviceRequest,
    DeviceRequestStatus,
    format_user_code,
    verification_url,
)
from core.kernel.access import BlockedByDirectory, OwnProofNeeded
from core.kernel.callers import Person, Visitor
from core.kernel.errors import Invalid, Limited
from core.kernel.page_paths import SIGN_IN_PATH
from core.kernel.rate_limits import DEVICE
from entrypoints.http.base.context import ports, request_record, signed_in
from entrypoints.http.base.redirects import redirect, safe_next, to_sign_in, with_next
from entrypoints.http.base.rendering.templates import page_response, render
from entrypoints.http.edge.access import PROTOCOL, person_or_browser, sign_in_session
from entrypoints.http.edge.access.declaration import Bounded
from entrypoints.http.edge.bodies import RequestModel, ResponseModel, Text
from entrypoints.http.edge.client_address import limit_key
from entrypoints.http.edge.forms import parameters, read_form
from entrypoints.http.edge.openapi import describes, describes_page, refuses, serves_both, takes
from entrypoints.http.edge.reauthentication import to_own_proof, to_policy_first
from entrypoints.http.pages.form_pages import check_session_form, no_access_page, refused_page, session_form_token

routes = Blueprint("device_pages", __name__)


class DeviceDecisionRequest(RequestModel):
    """A device's user code, and the user's decision."""

    user_code: Text = Field(description="The code that the device shows.", examples=["BCDF-GHJK"])
    action: Literal["approve", "deny"] = Field(description="Whether to sign the device in.")


class DeviceDecisionResponse(ResponseModel):
    """The new status of the device's request."""

    status: DeviceRequestStatus = Field(description="`approved` or `denied`.")


class ActionUnknown(Invalid):
    """Choose whether to approve or deny the device."""


@routes.get(VERIFY_PATH)
@sign_in_session(limit=DEVICE, bounded=Bounded.YES)
@refuses(400)
@describes_page({200: "The form for the code that the device shows."}, optional={"user_code": "The code to fill in."})
async def verify_page() -> Response:
    """Show the page where a user enters a device's code.

    Opening the page approves nothing, even with a `user_code`.
    """
    user_code = request.args.get("user_code", "")[:MAX_TYPED_LENGTH]
    if signed_in().mfa_missing:
        return to_sign_in()
    return _page("federation/device.html", signed_in(), user_code=format_user_code(user_code), problem=None)


@routes.post(VERIFY_PATH)
@person_or_browser(PROTOCOL, limit=DEVICE, bounded=Bounded.YES)
@refuses(400)
@serves_both
@describes({303: "The browser must sign in first, and is redirected to the sign-in page."})
@takes(DeviceDecisionRequest)
@document_response(DeviceDecisionResponse)
async def verify() -> Response:
    """Approve or deny a device.

    An approved device gets the user's tokens with its next poll. API clients send an access token. The form on our own
    page is sent here too, and its response is a page.
    """
    user = signed_in()
    if isinstance(user, Visitor):
        return await _verify_by_form(user)
    body = await parameters(DeviceDecisionRequest)
    decision = DeviceDecision(body.action)
    await device_flow.decide(ports(), user, body.user_code, decision, _network())
    return Response(DeviceDecisionResponse.of(decision).model_dump_json(), content_type="application/json")


async def _verify_by_form(user: Visitor) -> Response:
    form = await read_form()
    check_session_form(form)
    text, action = form.get("user_code", ""), form.get("action")
    user_code = format_user_code(text[:MAX_TYPED_LENGTH])
    if user.mfa_missing:
        return redirect(with_next(SIGN_IN_PATH, safe_next(verification_url(user_code))))
    try:
        if action is None:
            return _confirm_page(user, format_user_code(text), await device_flow.find_request(ports(), user, text, _network()))
        decision = _decision(action)
        device = await device_flow.decide(ports(), user, text, decision, _network())
    except (Invalid, Limited) as refusal:
        values = {"form_token": session_form_token(), "email": user.email, "user_code": user_code}
        return refused_page(refusal, "federation/device.html", **values)
    except (BlockedByDirectory, NoAccessToService) as refusal:
        return no_access_page(refusal, user, verification_url(user_code))
    except OwnProofNeeded:
        return to_own_proof(safe_next(verification_url(user_code)))
    except (EnrolmentRequired, StepUpNeeded) as refusal:
        return to_policy_first(refusal, safe_next(verification_url(user_code)))
    is_approved = decision is DeviceDecision.APPROVE
    return page_response(
        render(
            "federation/device_done.html",
            approved=is_approved,
            service=None if device.is_external else device.service,
            organization=device.organization,
        )
    )


def _decision(action: str) -> DeviceDecision:
    try:
        return DeviceDecision(action)
    except ValueError:
        raise ActionUnknown from None


def _page(name: str, user: Person, **values: Any) -> Response:
    return page_response(render(name, form_token=session_form_token(), email=user.email, **values))


def _confirm_page(user: Visitor, user_code: str, device: DeviceRequest) -> Response:
    return _page(
        "federation/device_confirm.html",
        user,
        user_code=user_code,
        service=device.service,
        is_external=device.is_external,
        host=device.client_host,
        organization=device.organization,
        address=device.address,
        agent=device.agent,
        requested_at=device.created_at,
        scopes=device.scope,
        api=device.api,
    )


def _network() -> str:
    return limit_key(request_record().address)
