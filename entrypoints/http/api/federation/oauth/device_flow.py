"""Signing in devices that cannot show a page: what they ask for, and the page on which a person approves it (identity.md section 4.9;
RFC 8628; decisions, points 91 and 95 to 99; security.md section 13).

Their tokens they get at POST /auth/token.
"""

from typing import Any, Literal

from quart import Blueprint, Response, jsonify, request
from quart_schema import document_response, validate_response

from core.authentication import browser
from core.federation.oauth import device_flow, device_flow_rules
from core.federation.oauth.authorization import identify_client as identify_application
from core.federation.oauth.authorization_rules import AuthorizationRequest
from core.federation.oauth.device_flow_rules import CODE_TTL, POLL_INTERVAL, VERIFY_PATH, DeviceDecision, DeviceRequest, DeviceRequestStatus
from core.kernel.display import format_utc
from core.kernel.errors import Invalid, Limited, Refusal
from core.kernel.principals import Person, Visitor
from core.kernel.rate_limits import DEVICE
from entrypoints.http.api.federation.oauth.authorization import credentials
from entrypoints.http.edge import cookies
from entrypoints.http.edge.access import SIGN_IN, anyone, page_session, person_or_browser, to_sign_in
from entrypoints.http.edge.bodies import RequestModel, ResponseModel, Text
from entrypoints.http.edge.client_address import limit_key
from entrypoints.http.edge.context import app_context, caller, page_response, ports, request_record, signed_in
from entrypoints.http.edge.forms import parameters, read_form
from entrypoints.http.edge.openapi import describes_page, refuses, serves_both, speaks_oauth, takes
from entrypoints.http.pages import render
from entrypoints.http.pages.sign_in import redirect, refused_page, safe_next, with_next

routes = Blueprint("device_flow", __name__)


# For devices


class DeviceCodeRequest(RequestModel):
    """Which application asks: its client_id, or its organization and itself by their slugs. Mobile and desktop applications also send a
    code_challenge, with the method S256. A scope may be sent, and means nothing."""

    client_id: Text | None = None
    client_secret: Text | None = None
    org: Text | None = None
    service: Text | None = None
    scope: Text | None = None
    code_challenge: Text | None = None
    code_challenge_method: Text | None = None


class DeviceCodeResponse(ResponseModel):
    """The code that the device keeps to itself and asks for its tokens with, every `interval` seconds; the one that it shows to the person,
    and where that is to be typed; and in how many seconds both expire."""

    device_code: str
    user_code: str
    verification_uri: str
    verification_uri_complete: str
    expires_in: int
    interval: int


@routes.post("/auth/device/code")
@anyone(limit=DEVICE)
@refuses(400, 401, 403, 404)
@speaks_oauth
@takes(DeviceCodeRequest)
@validate_response(DeviceCodeResponse)
async def request_codes() -> tuple[DeviceCodeResponse, int, dict[str, str]]:
    """Ask for the codes with which a person signs in this device from elsewhere."""
    asked = await parameters(DeviceCodeRequest)
    client_id, client_secret = credentials(asked.client_id, asked.client_secret)
    if client_secret is not None:  # none is needed, but a wrong one is wrong (RFC 6749 section 5.2)
        await identify_application(ports(), client_id, client_secret)
    wanted = AuthorizationRequest(
        org=asked.org,
        service=asked.service,
        client_id=client_id,
        code_challenge=asked.code_challenge,
        code_challenge_method=asked.code_challenge_method,
    )
    begun = await device_flow.request_codes(ports(), caller(), wanted)
    uri = begun.verification_uri or f"{app_context().base_url}{VERIFY_PATH}"
    answer = DeviceCodeResponse(
        device_code=begun.device_code,
        user_code=begun.user_code,
        verification_uri=uri,
        verification_uri_complete=device_flow_rules.verification_url(begun.user_code, uri),
        expires_in=int(CODE_TTL.total_seconds()),
        interval=POLL_INTERVAL,
    )
    return answer, 200, {"Cache-Control": "no-store"}


# For people


class DeviceAnswer(RequestModel):
    """The code that the device shows, and what you say to it."""

    user_code: Text
    action: Literal["approve", "deny"]


class DeviceAnswered(ResponseModel):
    """What the device has been told by it."""

    status: DeviceRequestStatus


class ActionUnknown(Invalid):
    """Approve the device, or deny it."""


@routes.get(VERIFY_PATH)
@page_session(limit=DEVICE)
@refuses(400)
@describes_page({200: "The form for the code that a device shows."})
async def verify_page() -> Response:
    """The page on which a device is signed in; `user_code` is the code to fill in, which approves nothing by itself."""
    typed = request.args.get("user_code", "")[: device_flow_rules.MAX_TYPED_LENGTH]
    if signed_in().mfa_missing:
        return to_sign_in()
    return _page("device.html", signed_in(), user_code=device_flow_rules.format_user_code(typed), problem=None)


@routes.post(VERIFY_PATH)
@person_or_browser(limit=DEVICE, impersonated=False)
@refuses(400)
@serves_both
@takes(DeviceAnswer)
@document_response(DeviceAnswered)
async def verify() -> Response:
    """Approve or deny a device. Our page sends its own form here, with what belongs to its session, and is answered with pages."""
    me = signed_in()
    if isinstance(me, Visitor):
        return await _from_our_page(me)
    said = await parameters(DeviceAnswer)
    verdict = DeviceDecision(said.action)
    await device_flow.decide(ports(), me, said.user_code, verdict, _network())
    return jsonify(DeviceAnswered(status=verdict.status).model_dump())


async def _from_our_page(me: Visitor) -> Response:
    form = await read_form()
    browser.check_form_token(cookies.session_cookie() or "", form.get("form_token", ""))
    typed, action = form.get("user_code", ""), form.get("action")
    if me.mfa_missing:
        return redirect(
            with_next(
                SIGN_IN,
                safe_next(
                    device_flow_rules.verification_url(device_flow_rules.format_user_code(typed[: device_flow_rules.MAX_TYPED_LENGTH]))
                ),
            )
        )
    try:
        if action is None:
            waiting = await device_flow.find_request(ports(), me, typed, _network())
            return _question(me, device_flow_rules.format_user_code(typed), waiting)
        verdict = _verdict(action)
        waiting = await device_flow.decide(ports(), me, typed, verdict, _network())
    except (Invalid, Limited) as refusal:
        return _again(refusal, me, user_code=device_flow_rules.format_user_code(typed[: device_flow_rules.MAX_TYPED_LENGTH]))
    approved = verdict is DeviceDecision.APPROVE
    return page_response(render("device_done.html", approved=approved, service=waiting.service, organization=waiting.organization))


def _verdict(action: str) -> DeviceDecision:
    try:
        return DeviceDecision(action)
    except ValueError:
        raise ActionUnknown from None


def _page(name: str, me: Person, **values: Any) -> Response:
    return page_response(render(name, form_action="'self'", form_token=_token(), email=me.email, **values))


def _question(me: Visitor, user_code: str, waiting: DeviceRequest) -> Response:
    return _page(
        "device_confirm.html",
        me,
        user_code=user_code,
        service=waiting.service,
        organization=waiting.organization,
        address=waiting.address,
        agent=waiting.agent,
        asked=format_utc(waiting.created_at),
    )


def _again(refusal: Refusal, me: Visitor, **values: Any) -> Response:
    return refused_page(refusal, "device.html", form_token=_token(), email=me.email, **values)


def _token() -> str:
    return browser.form_token(cookies.session_cookie() or "")


def _network() -> str:
    return limit_key(request_record().address)
