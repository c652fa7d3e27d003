"""The pages behind the links in emails: verify an address, undo an address change, and set a new password."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final
from uuid import UUID

from quart import Blueprint, Response

from core.accounts import accounts, undo
from core.accounts.model import email_queue
from core.accounts.model.accounts import LinkInvalid, PasswordReset, VerifiedEmail
from core.accounts.model.passkeys import SECURITY_KEY_MARK
from core.accounts.model.security_notices import SecurityNotice
from core.authentication import joining
from core.authentication.flow.model import Flow, FlowEnded
from core.authentication.methods.sign_up import is_of_browser
from core.federation import email_sign_in
from core.federation.email_sign_in import AccountLink
from core.kernel import page_paths
from core.kernel.callers import Visitor
from core.kernel.display import format_utc
from core.kernel.errors import Invalid
from core.kernel.proofs import FactorKind
from core.tenancy.model.settings import Design
from entrypoints.http import kit
from entrypoints.http.edge.openapi import answers_programs
from entrypoints.http.pages import form_pages
from entrypoints.http.pages.authentication import sign_in
from entrypoints.http.pages.flow import flows
from entrypoints.http.pages.visitors import visitor_of_account

routes = Blueprint("email_links", __name__)

TOKEN = {"token": "The token of the email."}


@routes.get("/auth/verify-email")
@kit.anyone(kit.PROTOCOL)
@answers_programs(kit.Message)
@kit.describes_page(
    {
        200: "The address is verified. The page has the sign-in form, if no user is signed in, or after a change a link to it.",
        303: "The browser is the one of the sign-up, and is signed in. Continue where the sign-up started, or at the second factor.",
        400: "The link has expired or has been used. The page has a form for a new one, or says that the address is verified already.",
    },
    query=TOKEN,
    changes_state=True,
)
async def verify_email() -> Response:
    """Verify an email address.

    The link in a verification email leads here. It works once. In the browser that signed up on our page, it also signs
    the user in. The link in the email to a requested new address leads here, too, and gives the account this address.
    Clients that prefer JSON get a message instead.
    """
    if not kit.wants_page():
        await accounts.verify_email(kit.ports(), kit.caller(), kit.link_token())
        return Response(kit.Message(message="The address is verified.").model_dump_json(), content_type="application/json")
    # Load everything before the token is used up, so that a failure afterwards cannot hide that the address is verified.
    link, user = (
        await email_sign_in.find_account_link(kit.ports(), email_queue.TokenPurpose.VERIFY_EMAIL, kit.link_token()),
        await visitor_of_account(),
    )
    flow = await _flow(link)
    try:
        values = await flows.page_values(flow)
    except FlowEnded:  # the application no longer accepts its request
        flow = flows.page_flow(_address_of(link))
        values = await flows.page_values(flow)
    try:
        result = await email_sign_in.verify_account_link(
            kit.ports(), kit.caller(), link, user, flow, kit.cookies.SESSION.read(), sign_in.presented_browser()
        )
    except LinkInvalid as refusal:
        return await _refused_verification(refusal, link, user, values)
    if not isinstance(result, VerifiedEmail):
        return await sign_in.sign_in_response(result, flow)
    return await _verified_page(result, link, user, values)


async def _flow(link: AccountLink) -> Flow:
    """Return the flow in which this browser asked for the email, or a new flow that continues at the address in the link."""
    return await flows.flow_of_link(_address_of(link), is_own=is_of_browser(link.continuation, kit.cookies.DEVICE.read()))


def _address_of(link: AccountLink) -> str:
    return kit.safe_next(link.continuation.next_path or page_paths.HOME_PATH)


async def _refused_verification(refusal: LinkInvalid, link: AccountLink, user: Visitor | None, values: dict[str, Any]) -> Response:
    email = await accounts.find_verified_email(kit.ports(), link.token)
    if email is None:
        return await _ended_link_page(refusal, page_paths.RESEND_VERIFICATION_PATH, link, change_email=page_paths.EMAIL_PATH)
    # A program that checks emails may have opened the link before the user did.
    values["design"] = link.design or values["design"]
    is_own = user is not None and user.email == email
    return form_pages.refused_form_page(refusal, "accounts/verified.html", **values, email=email, is_signed_in=is_own, other=user)


async def _verified_page(verified: VerifiedEmail, link: AccountLink, user: Visitor | None, values: dict[str, Any]) -> Response:
    is_own = user is not None and user.user_id == verified.user_id
    if verified.is_change:
        shown = {"design": link.design, "email": verified.email, "is_own": is_own, **flows.links(await _flow(link))}
        return kit.page_response(kit.render("accounts/email_changed.html", **shown))
    values["design"] = link.design or values["design"]
    return form_pages.form_page("accounts/verified.html", **values, email=verified.email, is_signed_in=is_own, other=user)


async def _ended_link_page(refusal: LinkInvalid, form_target: str, link: AccountLink, *, change_email: str | None = None) -> Response:
    """Return the page for a link that no longer works, with a form for a new link.

    `change_email` is where the user requests an address change, if the link may have proved a new address.
    """
    values = {"form_target": form_target, "change_email": change_email, "design": link.design, **flows.links(await _flow(link))}
    return form_pages.refused_form_page(refusal, "accounts/ended_link.html", **values)


@routes.get("/auth/reset-password")
@kit.anyone
@kit.describes_page({200: "The form.", 400: "The link has expired or has been used. The page has a form for a new one."}, query=TOKEN)
async def reset_password_page() -> Response:
    """Show the form to set a new password.

    The link in a reset or welcome email leads here. Opening it does not use it up.
    """
    link = await email_sign_in.find_account_link(kit.ports(), email_queue.TokenPurpose.RESET_PASSWORD, kit.link_token())
    reset = await accounts.find_reset(kit.ports(), link.token)
    if reset is None:
        return await _refused_reset(LinkInvalid(), link)
    return kit.page_response(_form({"token": link.token}, reset, link.design))


async def _refused_reset(refusal: LinkInvalid, link: AccountLink) -> Response:
    if not kit.wants_page():
        raise refusal
    return await _ended_link_page(refusal, page_paths.FORGOT_PASSWORD_PATH, link)


def _form(form: Mapping[str, str], reset: PasswordReset, design: Design | None, problem: str | None = None) -> kit.Page:
    status = 200 if problem is None else 400
    names = kit.ports().policy.provider_names
    added = [
        (
            name := f"keep:{method.id}",
            method.passkey or (method.provider and names[method.provider]),
            format_utc(method.added_at) + (" with your earlier passkeys and security keys" if method.second is FactorKind.PASSKEY else ""),
            name in form if "asked" in form else not method.is_recent,
            method.passkey is not None,
            method.needed_by,
        )
        for method in reset.added
    ]
    values: dict[str, Any] = {"design": design, "token": form["token"], "reset": reset, "added": added, "problem": problem}
    return kit.render("accounts/reset_password.html", status=status, **values)


@routes.post("/auth/reset-password")
@kit.anyone
@kit.describes_page(
    {200: "The password was updated.", 400: "The link or the password is not valid.", 403: "The form does not come from our page."},
    form=["token", "new_password", "asked"],
)
async def reset_password() -> Response:
    """Set a new password.

    The page's form sends this. All sessions on the account end.
    """
    form = await kit.read_form()
    # Load everything before the token is used up.
    link = await email_sign_in.find_account_link(kit.ports(), email_queue.TokenPurpose.RESET_PASSWORD, form.get("token", ""))
    application = await joining.application_to_open(kit.ports(), link.continuation)
    reset = await accounts.find_reset(kit.ports(), link.token)
    if reset is None:
        return await _refused_reset(LinkInvalid(), link)
    try:
        await accounts.reset_password(kit.ports(), kit.caller(), link.token, form.get("new_password", ""), _kept_methods(form, reset))
    except LinkInvalid as refusal:
        return await _refused_reset(refusal, link)
    except Invalid as refusal:
        return kit.page_response(_form(form, reset, link.design, refusal.message))
    values: dict[str, Any] = {"reset": reset, "sign_in": flows.links(await _flow(link))["sign_in"], "application": application}
    return kit.page_response(kit.render("accounts/password_reset_done.html", design=link.design, **values))


def _kept_methods(form: Mapping[str, str], reset: PasswordReset) -> list[UUID] | None:
    """Return the ids for the sign-in methods that the user keeps, or None if the page did not ask."""
    return [method.id for method in reset.added if f"keep:{method.id}" in form] if "asked" in form else None


@routes.get(page_paths.UNDO_PATH)
@kit.anyone
@kit.describes_page({200: "The form.", 400: "The link has expired or has been used."}, query=TOKEN)
async def undo_page() -> Response:
    """Show the form to undo a change to an account's security, and everything since.

    The link in the email about the change leads here. Opening it changes nothing.
    """
    token = kit.link_token()
    changes = await undo.find_undoable(kit.ports(), token)
    values: dict[str, Any] = {"token": token, "email": changes.notice.address, "starts": _to_lines(changes.starts)}
    return kit.page_response(kit.render("accounts/undo.html", **values, default=changes.starts.index(changes.default)))


# What an undo page says about a change. `{}` is the identity provider.
CHANGES: Final = {
    email_queue.EmailKind.PASSWORD_CHANGED: "The password was changed",
    email_queue.EmailKind.EMAIL_CHANGE_REQUESTED: "Another email address was entered",
    email_queue.EmailKind.IDENTITY_LINKED: "An account at {} was linked",
    email_queue.EmailKind.IDENTITY_UNLINKED: "An account at {} was unlinked",
    email_queue.EmailKind.MFA_ENABLED: "Two-factor authentication was turned on",
    email_queue.EmailKind.MFA_DISABLED: "Two-factor authentication was turned off",
    email_queue.EmailKind.PASSKEY_ADDED: "A passkey or security key was added",
    email_queue.EmailKind.PASSKEY_REMOVED: "A passkey or security key was deleted",
    email_queue.EmailKind.PASSKEY_WAIT_STARTED: "All passkeys were reported as lost",
    email_queue.EmailKind.PASSKEY_WAIT_OVER: "The wait for lost passkeys was over",
    email_queue.EmailKind.BACKUP_CODES_REGENERATED: "New backup codes were created",
    email_queue.EmailKind.PERSONAL_TOKEN_CREATED: "A personal access token was created",
    email_queue.EmailKind.ACCOUNT_DELETED: "The account was deleted",
}


def _to_lines(notices: Sequence[SecurityNotice]) -> list[tuple[str, str, str]]:
    """Return id, time and sentence for every change."""
    names = kit.ports().policy.provider_names

    def to_sentence(notice: SecurityNotice) -> str:
        product = (notice.detail or "").removeprefix(SECURITY_KEY_MARK)
        more = (
            f": {product}"
            if product and notice.kind in (email_queue.EmailKind.PASSKEY_ADDED, email_queue.EmailKind.PASSKEY_REMOVED)
            else ""
        )
        return kit.label(notice.kind, CHANGES).format(notice.detail and kit.label(notice.detail, names)) + more

    return [(str(notice.id), format_utc(notice.created_at), to_sentence(notice)) for notice in notices]


@routes.post(page_paths.UNDO_PATH)
@kit.anyone
@kit.describes_page(
    {200: "The changes are undone.", 400: "The link has expired or has been used.", 403: "The form does not come from our page."},
    form=["token", "start"],
)
async def undo_changes() -> Response:
    """Undo a change to an account's security, and everything since.

    The page's form sends this. `start` is the id of the first change to undo. Without it, the oldest change is the
    first. All sessions and personal access tokens end. It does not sign the user in.
    """
    form = await kit.read_form()
    start = form.get("start")
    undone = await undo.undo(kit.ports(), kit.caller(), form.get("token", ""), None if start is None else kit.path_id(start))
    return kit.page_response(kit.render("accounts/undone.html", **asdict(undone) | {"undone": _to_lines(undone.undone)}))
