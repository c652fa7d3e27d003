"""The page where a user approves or denies a device.

Sources: RFC 8628 section 3.3; security V-2 and V-3.
"""

from typing import Any, Literal

from pydantic import Field
from quart import Blueprint, Response, request
from quart_schema import document_response

from core.applications.model.users import NoAccessToService
from core.authentication.model import policy
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
from core.kernel import access, callers, errors
from core.kernel.page_paths import SIGN_IN_PATH
from core.kernel.rate_limits import DEVICE
from entrypoints.http import kit
from entrypoints.http.edge import reauthentication
from entrypoints.http.edge.access import person_or_browser
from entrypoints.http.edge.client_address import limit_key
from entrypoints.http.pages import form_pages

routes = Blueprint("device_pages", __name__)


class DeviceDecisionRequest(kit.RequestModel):
    """A device's user code, and the user's decision."""

    user_code: kit.Text = Field(description="The code that the device shows.", examples=["BCDF-GHJK"])
    action: Literal["approve", "deny"] = Field(description="Whether to sign the device in.")


class DeviceDecisionResponse(kit.ResponseModel):
    """The new status of the device's request."""

    status: DeviceRequestStatus = Field(description="`approved` or `denied`.")


class ActionUnknown(errors.Invalid):
    """Choose whether to approve or deny the device."""


@routes.get(VERIFY_PATH)
@kit.sign_in_session(limit=DEVICE, restricted=kit.Restricted.YES)
@kit.refuses(400)
@kit.describes_page({200: "The form for the code that the device shows."}, optional={"user_code": "The code to fill in."})
async def verify_page() -> Response:
    """Show the page where a user enters a device's code.

    Opening the page approves nothing, even with a `user_code`.
    """
    user_code = request.args.get("user_code", "")[:MAX_TYPED_LENGTH]
    if kit.signed_in().mfa_missing:
        return kit.to_sign_in()
    return _page("federation/device.html", kit.signed_in(), user_code=format_user_code(user_code), problem=None)


@routes.post(VERIFY_PATH)
@person_or_browser(kit.PROTOCOL, limit=DEVICE, restricted=kit.Restricted.YES)
@kit.refuses(400)
@kit.serves_both
@kit.describes({303: "The browser must sign in first, and is redirected to the sign-in page."})
@kit.takes(DeviceDecisionRequest)
@document_response(DeviceDecisionResponse)
async def verify() -> Response:
    """Approve or deny a device.

    An approved device gets the user's tokens with its next poll. API clients send an access token. The form on our own
    page is sent here too, and its response is a page.
    """
    user = kit.signed_in()
    if isinstance(user, callers.Visitor):
        return await _verify_by_form(user)
    body = await kit.parameters(DeviceDecisionRequest)
    decision = DeviceDecision(body.action)
    await device_flow.decide(kit.ports(), user, body.user_code, decision, _network())
    return Response(DeviceDecisionResponse.of(decision).model_dump_json(), content_type="application/json")


async def _verify_by_form(user: callers.Visitor) -> Response:
    form = await kit.read_form()
    form_pages.check_session_form(form)
    text, action = form.get("user_code", ""), form.get("action")
    user_code = format_user_code(text[:MAX_TYPED_LENGTH])
    if user.mfa_missing:
        return kit.redirect(kit.with_next(SIGN_IN_PATH, kit.safe_next(verification_url(user_code))))
    try:
        if action is None:
            return _confirm_page(user, format_user_code(text), await device_flow.find_request(kit.ports(), user, text, _network()))
        decision = _decision(action)
        device = await device_flow.decide(kit.ports(), user, text, decision, _network())
    except (errors.Invalid, errors.Limited) as refusal:
        values = {"form_token": form_pages.session_form_token(), "email": user.email, "user_code": user_code}
        return form_pages.refused_page(refusal, "federation/device.html", **values)
    except (access.BlockedByDirectory, NoAccessToService) as refusal:
        return form_pages.no_access_page(refusal, user, verification_url(user_code))
    except access.OwnProofNeeded:
        return reauthentication.to_own_proof(kit.safe_next(verification_url(user_code)))
    except (policy.EnrolmentRequired, policy.StepUpNeeded) as refusal:
        return reauthentication.to_policy_first(refusal, kit.safe_next(verification_url(user_code)))
    is_approved = decision is DeviceDecision.APPROVE
    return kit.page_response(
        kit.render(
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


def _page(name: str, user: callers.Person, **values: Any) -> Response:
    return kit.page_response(kit.render(name, form_token=form_pages.session_form_token(), email=user.email, **values))


def _confirm_page(user: callers.Visitor, user_code: str, device: DeviceRequest) -> Response:
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
    return limit_key(kit.request_record().address)
