"""The pages for sign-in and sign-out, and for a sign-in that replaces the session of another user (security A-3, G-2, G-4, O-13, S-5)."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Final
from uuid import UUID

from quart import Blueprint, Response

from core.accounts import accounts
from core.accounts.model import mfa, passkeys
from core.accounts.model.devices import PresentedDevice
from core.authentication import sessions
from core.authentication.flow.methods import SignInMethod
from core.authentication.flow.model import Flow, FlowTarget
from core.authentication.methods import second_factor
from core.authentication.methods.passkey import DiscoveredPasskey
from core.authentication.methods.password import Password
from core.authentication.model import login
from core.federation import sign_in as sign_in_flow
from core.federation.connections import sign_out as provider_sign_out
from core.federation.saml import logout as saml_logout
from core.federation.saml.model import sign_on
from core.federation.sign_in import BrowserSignIn
from core.kernel import errors, page_paths, rate_limits, values
from core.kernel.access import OtherUserPresent
from core.kernel.callers import Visitor
from core.kernel.sign_in_policy.steps import Step
from entrypoints.http import kit
from entrypoints.http.api.accounts.webauthn import AuthenticationCredentialRequest
from entrypoints.http.pages import console_forms, form_pages
from entrypoints.http.pages.federation.signed_out import signed_out_page
from entrypoints.http.pages.flow import flows, forms
from entrypoints.http.pages.flow.flows import FLOW_PATH
from entrypoints.http.pages.flow.steps import step_page
from entrypoints.http.pages.visitors import visitor

routes = Blueprint("sign_in", __name__)

# The notices after the page that asks to link an account.
LINKED: Final[Mapping[bool | None, str]] = {True: "connection-linked", False: "connection-not-linked"}


@flows.flow_route(routes, "/sign-in", "GET")
@kit.anyone(kit.PROTOCOL)
@kit.describes_page(
    {
        200: "The sign-in form.",
        303: "Continue at the next step, or at `next` if the user is signed in already.",
        403: "The signed-in user has no access to the application.",
    },
    changes_state=True,
)
@flows.in_flow
async def sign_in_page(flow: Flow) -> Response:
    """Show the sign-in page.

    Without a flow, `next` is the path on this server to continue at after the sign-in. The default, also
    for a path that is not valid, is the account page.
    """
    return await step_page(flow, Step.SIGN_IN)


@flows.flow_route(routes, "/sign-in", "POST")
@kit.anyone(limit=rate_limits.LOGIN)
@kit.describes_page(
    {
        200: "The sign-in has ended, or the form for the password. The page goes on.",
        303: "Signed in, or a code is required, or the domain leads to a connection: continue at the next page.",
        400: "A field is missing or malformed.",
        401: "The email address or the password is wrong, or the address is not verified yet.",
        403: "The form was not sent by our page.",
    },
    form=dict.fromkeys(("form_token", "email", "password", "step"), ""),
)
@flows.in_flow
async def sign_in(flow: Flow) -> Response:
    """Sign in with the form on the sign-in page.

    The response sets the session cookie, or redirects to the page for the second factor. A page that asks for the
    address alone sends `step`: the answer depends on the address's domain, and on no account.
    """
    form = await form_pages.read_own_form()
    email = form.get("email", "")
    try:
        address, password = values.Email.parse(email), form.get("password", "")
        if form.get(flows.STEP) == flows.ADDRESS and (to_connection := await flows.lead_to_connection(flow, form, address)) is not None:
            kit.sign_in_goes_on(kit.cookies.browser_id())
            return to_connection
        if flows.STEP in form and not password:
            kit.sign_in_goes_on(kit.cookies.browser_id())
            return await forms.password_form(flow, address)
        return await sign_in_browser(Password(address, password), flow, can_passkey=_can_passkey(form))
    except (errors.Invalid, errors.Unauthenticated, errors.Limited) as refusal:
        is_address = form.get(flows.STEP) == flows.ADDRESS and isinstance(
            refusal, values.EmailInvalid
        )  # the page still asks for the address alone
        return await forms.sign_in_again(refusal, flow, email, address_first=is_address)


@flows.flow_route(routes, "/sign-in/passkey", "POST")
@kit.anyone(limit=rate_limits.PASSKEY_SIGN_IN)
@kit.describes_page(
    {
        200: "The sign-in has ended. The page goes on.",
        303: "Signed in. Continue at the next step.",
        400: "The passkey is missing.",
        401: "The passkey is not known here, or its answer is not valid.",
        403: "The form was not sent by our page.",
    },
    form=["form_token", "credential"],
)
@flows.in_flow
async def sign_in_with_passkey(flow: Flow) -> Response:
    """Sign in with a passkey.

    It counts as the first and the second factor, so no code is asked after it.
    """
    form = await form_pages.read_own_form()
    try:
        credential = console_forms.read_credential(form, AuthenticationCredentialRequest, passkeys.PasskeyRefused)
        return await sign_in_browser(DiscoveredPasskey(credential), flow)
    except passkeys.PasskeyUnknown as refusal:
        return await forms.sign_in_again(refusal, flow, unknown_credential=credential["id"])
    except (errors.Invalid, errors.Unauthenticated, errors.Limited) as refusal:
        return await forms.sign_in_again(refusal, flow)


@routes.get(f"{FLOW_PATH}/code")
@kit.anyone(kit.PROTOCOL)
@kit.describes_page(
    {
        200: "The form for the code, or the sign-in has ended and the page goes on.",
        303: "Continue at the next step.",
        403: "The signed-in user has no access to the application.",
    },
    changes_state=True,
)
@flows.in_flow
async def code_page(flow: Flow) -> Response:
    """Show the page for the second factor.

    If no first factor was shown, too long ago, or with too many wrong codes since, the browser continues at another step.
    """
    return await step_page(flow, Step.SECOND_FACTOR)


@routes.post(f"{FLOW_PATH}/code")
@kit.anyone(limit=rate_limits.MFA_VERIFICATION)
@kit.describes_page(
    {
        200: "The sign-in has ended. The page goes on.",
        303: "Signed in. Continue at the next step.",
        400: "The code is malformed.",
        401: "The code or the passkey is wrong, or the sign-in cannot be continued.",
        403: "The form was not sent by our page.",
    },
    form=["form_token", "code", "credential"],
)
@flows.in_flow
async def sign_in_with_code(flow: Flow) -> Response:
    """Complete a sign-in with the second factor: a code, or a passkey or security key.

    With `trust=yes`, this browser can skip the second factor for a while. Organizations set how long.
    """
    form = await form_pages.read_own_form()
    try:
        return await sign_in_browser(_second_factor(form), flow, can_passkey=_can_passkey(form))
    except login.LastCodeWrong as refusal:
        return await forms.sign_in_again(refusal, flow)
    except (mfa.CodeMalformed, mfa.CodeWrong, passkeys.PasskeyRefused, errors.Limited) as refusal:
        return form_pages.refused_form_page(refusal, "authentication/sign_in_code.html", **await forms.code_values(flow))
    except errors.Unauthenticated as refusal:
        return await forms.sign_in_again(
            refusal if isinstance(refusal, (login.PreAuthInvalid, login.AccountInRecovery)) else login.PreAuthInvalid(), flow
        )


def _can_passkey(form: Mapping[str, str]) -> bool:
    """Return whether the page's script has found an authenticator in the device."""
    return form.get("can_passkey") == "yes"


def _second_factor(form: Mapping[str, str]) -> second_factor.Code | second_factor.SecondPasskey:
    trusts_device = form.get("trust") == "yes"
    if form.get(console_forms.CREDENTIAL):
        return second_factor.SecondPasskey(
            console_forms.read_credential(form, AuthenticationCredentialRequest, passkeys.PasskeyRefused), trusts_device
        )
    return second_factor.Code(form.get("code", ""), trusts_device)


async def sign_in_browser(method: SignInMethod, flow: Flow, *, can_passkey: bool = False, present_id: UUID | None = None) -> Response:
    """Verify a factor for this browser, which can create passkeys or not. Return a redirect to the flow's next page."""
    cookie, client = kit.cookies.SESSION.read(), presented_browser()
    outcome = await sign_in_flow.sign_in_browser(
        kit.ports(), kit.caller(), flow, method, cookie, client, can_passkey=can_passkey, present_id=present_id
    )
    return await sign_in_response(outcome, flow)


def presented_browser() -> PresentedDevice:
    """Return the device information in this browser's cookies."""
    return PresentedDevice(device_id=kit.cookies.DEVICE.read(), token=kit.cookies.TRUST.read())


async def sign_in_response(outcome: BrowserSignIn | Flow, flow: Flow, *, to: str | None = None) -> Response:
    """Return a redirect to the flow's next page, or to this URL, with the session cookie, or to the page for the second factor."""
    if isinstance(outcome, Flow):
        kit.sign_in_goes_on(kit.cookies.browser_id())
        return kit.redirect(flows.path_of(outcome, "/code"))
    target = to or (flow.request if flow.target is FlowTarget.PAGE else flows.path_of(flow))
    response = kit.redirect(
        kit.with_next(page_paths.PASSKEY_OFFER_PATH, target) if outcome.offers_passkey else target, notice=LINKED.get(outcome.is_linked)
    )
    kit.cookies.SESSION.set(response, outcome.cookie, outcome.expires_at)
    if outcome.device_token is not None:
        kit.cookies.TRUST.set(response, outcome.device_token)
    return response


@routes.post("/app/sign-out")
@kit.anyone
@kit.describes_page(
    {
        200: "Signed out here. The page continues with the applications that sign out over SAML, unless another sign-out is in progress, "
        "and at the identity provider of an organization.",
        303: "Signed out. Continue at the sign-in page.",
        403: "The form was not sent by our page.",
    },
    form=["form_token"],
)
async def sign_out() -> Response:
    """End this browser's session.

    Sessions at applications that used SAML single sign-on end too. A trusted browser stays trusted,
    unless `forget` is `yes`. `next` is the path to continue at after the next sign-in.
    """
    form, user = await kit.read_form(), await visitor()
    next_path = kit.safe_next(form.get("next") or page_paths.HOME_PATH)
    if user is not None:
        form_pages.check_session_form(form)
    signed_out = kit.redirect(kit.with_next(page_paths.SIGN_IN_PATH, next_path), notice=forms.SIGNED_OUT)
    response = await sign_out_browser(user, next_path, signed_out)
    if form.get("forget") == "yes":
        kit.cookies.TRUST.clear(response)
    return response


async def sign_out_browser(user: Visitor | None, after: str, signed_out: Response) -> Response:
    """End this browser's session.

    Return `signed_out`, or a logout's next page, which ends at the path `after`.

    Applications sign out over SAML first, and then the user at an organization's identity provider.
    """
    logout_cookies = sign_on.LogoutCookies(logout=kit.cookies.LOGOUT.read(), session=kit.cookies.SESSION.read())
    at_provider = await provider_sign_out.begin(kit.ports(), user, kit.cookies.PROVIDER_LOGOUT.read(), after)
    after = after if at_provider is None else at_provider.path
    logout = await saml_logout.sign_out(kit.ports(), user, kit.caller(), logout_cookies, after)
    if logout is None and at_provider is not None:
        response = kit.page_response(kit.render("federation/signing_out.html", next_path=at_provider.path, at_provider=True))
    elif logout is None:
        response = signed_out
    elif isinstance(logout, sign_on.LogoutFinished):
        response = await signed_out_page(logout)
    else:
        # A page instead of a redirect, because browsers apply the form-action policy to redirects,
        # and many pages have a button to sign out.
        assert logout.secret is not None, "a logout continues"
        response = kit.page_response(kit.render("federation/signing_out.html", next_path=logout.url, at_provider=False))
        kit.cookies.LOGOUT.set(response, logout.secret)
    if at_provider is not None:
        kit.cookies.PROVIDER_LOGOUT.set(response, at_provider.secret)
    kit.cookies.SESSION.clear(response)
    return response


@flows.flow_route(routes, "/forgot-password", "GET")
@kit.anyone
@kit.describes_page({200: "The form for the email address."})
@flows.in_flow
async def forgot_password_page(flow: Flow) -> Response:
    """Show the page that requests a password reset link.

    It needs no session. Without a flow, `next` is the path to continue at after the next sign-in.
    """
    return form_pages.form_page(
        "accounts/forgot_password.html", design=(await flows.load_options(flow)).design, connection=None, email="", **flows.links(flow)
    )


@flows.flow_route(routes, "/forgot-password", "POST")
@kit.anyone(limit=rate_limits.FORGOT_PASSWORD)
@kit.describes_page(
    {200: "The same page for every email address of a domain.", 403: "The form was not sent by our page."},
    form=dict.fromkeys(("form_token", "email", "step"), ""),
)
@flows.in_flow
async def forgot_password(flow: Flow) -> Response:
    """Email a password reset link.

    The response does not tell whether an account has the email address. Where its domain leads to a connection, the page
    offers that first; with `step=password`, the email is sent.
    """
    form, options = await form_pages.read_own_form(), await flows.load_options(flow)
    with suppress(values.EmailInvalid):  # the response is the same for a malformed address (security B-3)
        email = values.Email.parse(form.get("email", ""))
        if (connection := await flows.find_connection(flow, form, email)) is not None:
            offer = (connection.name, flows.connection_path(flow, connection.id, login_hint=email))
            return form_pages.form_page(
                "accounts/forgot_password.html", design=options.design, connection=offer, email=email, **flows.links(flow)
            )
        await accounts.forgot_password(kit.ports(), kit.caller(), email, options.destination.org_slug, flows.address_to_store(flow))
    return kit.page_response(kit.render("accounts/forgot_password_done.html", design=options.design, **flows.links(flow)))


async def sign_in_at_provider(method: SignInMethod, flow: Flow, present: Visitor | None, start: str, address: str | None) -> Response:
    """Sign in an identity provider's user, or ask first if another user is signed in in this browser.

    `start` is the path that leads to the provider again, and `address` the email address that it named.
    """
    try:
        return await sign_in_browser(method, flow, present_id=None if present is None else present.user_id)
    except OtherUserPresent:
        assert present is not None, "the user of this browser is another one"
        return kit.page_response(
            kit.render(
                "authentication/other_user.html",
                form_token=form_pages.session_form_token(),
                action=flows.path_of(flow, "/switch"),
                start=start,
                stay=flows.path_of(flow),
                email=present.email,
                address=address,
            )
        )


@routes.post(f"{FLOW_PATH}/switch")
@kit.anyone
@kit.describes_page(
    {
        200: "The sign-in has ended. The page goes on.",
        303: "Signed out. Continue at the identity provider.",
        403: "The form was not sent by our page.",
    },
    form={"form_token": "The form token of the page.", "start": "The path that leads to the identity provider."},
)
@flows.in_flow
async def switch_user(flow: Flow) -> Response:
    """Sign in at an identity provider as a user who is not signed in in this browser.

    This browser's session ends first.
    """
    form, user = await kit.read_form(), await visitor()
    if user is not None:
        form_pages.check_session_form(form)
        await sessions.logout(kit.ports(), user)
    response = kit.redirect(kit.safe_next(form.get("start") or flows.path_of(flow)))
    kit.cookies.SESSION.clear(response)
    return response
