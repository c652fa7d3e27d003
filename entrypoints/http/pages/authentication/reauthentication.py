"""The page on which a browser session's user confirms that it's them (security A-12).

It comes back to the page that the user opened, or shows a button that sends the form again that they sent.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlencode

from quart import Blueprint, Response, request

from core.accounts import factor_changes, passkey_waits
from core.accounts.factors import own_proofs
from core.accounts.model import mfa, passkeys
from core.accounts.model.accounts import PasswordTooLong
from core.authentication import admissions, forms, policy_enrollment, reauthentication
from core.authentication.model import policy, sessions
from core.authentication.model.identities import LinkedPlace
from core.authentication.model.login import EmailCodeMalformed
from core.authentication.reauthentication import load_options
from core.federation.connections import provider_requests, session_proofs
from core.federation.connections.model.connections import OrganizationConnection
from core.kernel import errors, page_paths, proofs, rate_limits, sign_in_age
from core.kernel.access import OwnProofNeeded
from core.kernel.callers import Visitor
from core.kernel.page_paths import REAUTHENTICATION_PATH
from core.kernel.sign_in_policy.decision import Decision
from core.kernel.sign_in_policy.explanations import explain
from core.kernel.sign_in_policy.rules import Rule
from core.kernel.sign_in_policy.steps import Step
from core.tenancy import imposed_rules
from entrypoints.http import kit
from entrypoints.http.api.accounts.webauthn import AuthenticationCredentialRequest
from entrypoints.http.base.redirects import page_of_sent_form
from entrypoints.http.edge.limits import user_confirmed
from entrypoints.http.edge.reauthentication import EVERYWHERE, LOST_PASSKEY, OWN_FACTOR, OWN_PASSKEY, POLICY_OF, place_of
from entrypoints.http.pages import console_forms, form_pages
from entrypoints.http.pages.console import redirect_with_notice
from entrypoints.http.pages.federation.connections.provider_redirects import redirect_response
from entrypoints.http.pages.form_values import FieldInvalid

routes = Blueprint("reauthentication_pages", __name__)

EMPTY: Final = {"password": "Enter your password.", "email_code": "Enter the code from the email.", "code": "Enter a code."}
FIELDS: Final[Mapping[type[errors.Refusal], str]] = {
    sessions.PasswordWrong: "password",
    PasswordTooLong: "password",
    sessions.EmailedCodeWrong: "email_code",
    EmailCodeMalformed: "email_code",
    sessions.SecondFactorMissing: "code",
    mfa.CodeMalformed: "code",
    mfa.CodeWrong: "code",
}
# They find the decision for a name in the parameter `policy` without an organization or application.
FINDERS: Final = MappingProxyType(
    {
        EVERYWHERE: factor_changes.find_missing_sign_in,
        OWN_PASSKEY: own_proofs.find_missing_passkey,
        LOST_PASSKEY: passkey_waits.find_missing_proof,
        OWN_FACTOR: imposed_rules.find_missing_factor,
    }
)
TOO_LATE: Final = FieldInvalid("That took too long. Confirm again in one of these ways.", "")
KEY_ALONE: Final = FieldInvalid("This key did not verify you, so it is not enough alone. Use a passkey, or another way.", "")
TEMPLATE: Final = "authentication/reauthentication.html"
_OWN_OR_AGAIN: Final = "Confirm that it's you in a way of your own, or sign in there again."
ANSWERS: Final = {303: "Continue at the next page.", 403: "The form was not sent by our page."}


def _target(fields: Any) -> dict[str, str]:
    """Return what the page comes back to: a page's path, which can have a form that was not kept, or a kept form's id."""
    return {name: fields[name] for name in ("form", "next", "empty", "policy", "age", "org") if fields.get(name)}


def _path(target: dict[str, str], **more: str) -> str:
    return f"{REAUTHENTICATION_PATH}?{urlencode({**target, **more})}" if target or more else REAUTHENTICATION_PATH


async def _kept_form(target: dict[str, str]) -> sessions.KeptForm | None:
    """Raises: KeptFormEnded."""
    return await forms.find_kept(kit.ports(), kit.signed_in(), kit.path_id(target["form"])) if "form" in target else None


async def _step_up(target: dict[str, str]) -> Decision | None:
    """Return the sign-in policy's decision that asks for the confirmation, or None if it asks for nothing now."""
    if target.get("policy") in (None, kit.OWN_PROOF):
        return None
    if (find := FINDERS.get(target["policy"])) is not None:
        return await find(kit.ports(), kit.signed_in())
    age = sign_in_age.SignInAge(target["age"]) if target.get("age") in tuple(sign_in_age.SignInAge) else sign_in_age.SignInAge.ANY
    enrollment = await policy_enrollment.find_enrollment(kit.ports(), kit.signed_in(), place_of(target["policy"]), age)
    return enrollment.admission.decision if enrollment.admission.step is Step.SIGN_IN else None


async def _load_options(target: dict[str, str], decision: Decision | None) -> sessions.ReauthenticationOptions:
    """Return the ways that the page offers, without the ways that the policy in the user's acting organization refuses."""
    user = kit.signed_in()
    if decision is None and "org" in target and "policy" not in target:
        decision = await admissions.find_renewal(kit.ports(), user, policy.PolicyPlace.read(target["org"]).org_slug or policy.NO_SLUG)
    return await load_options(kit.ports(), user, decision)


def _reason(target: dict[str, str], decision: Decision | None, silent_at: str | None) -> str | None:
    """Return why the page asks, if the reason is not the sign-in's age.

    `silent_at` names the connection that may not have asked the user.
    """
    if silent_at is not None:
        return f"{silent_at} did not confirm that it asked you to sign in. {_OWN_OR_AGAIN}"
    if decision is not None and decision.asks_own:
        return f"{explain(decision)} {_OWN_OR_AGAIN}"
    if decision is not None and decision.breaks_glass:
        return f"{explain(decision)} In an emergency, you're listed for break glass: confirm that it's you in a way of your own."
    if decision is not None and decision.source is None:
        return explain(decision)
    if decision is not None:
        way = "Sign in again through its identity provider." if decision.leads_to else "Confirm that it's you in a way that it accepts."
        return f"{explain(decision)} {way}"
    return OwnProofNeeded().message if target.get("policy") == kit.OWN_PROOF else None


def _name(place: LinkedPlace) -> str:
    """Return the identity provider's name, with the application's name if the provider asks in its name."""
    name = kit.ports().policy.provider_names[place.provider]
    return f"{name} for {place.service_name}" if place.has_credentials else name


async def _connection(
    target: dict[str, str], decision: Decision | None, options: sessions.ReauthenticationOptions
) -> OrganizationConnection | None:
    """Return the connection at which the user signs in again, if that is the next step."""
    user = kit.signed_in()
    if not isinstance(user, Visitor) or target.get("policy") == kit.OWN_PROOF or not (options.connection and options.needs_first_factor):
        return None
    return await session_proofs.find_connection(kit.ports(), user, decision)


def _way_back(target: dict[str, str]) -> str:
    """Return a page that the user can open without the confirmation."""
    if "empty" in target:  # the form's page
        return kit.safe_next(target.get("next", page_paths.ACCOUNT_PATH))
    if "age" in target and (slug := place_of(target.get("policy", "")).org_slug) not in (None, policy.NO_SLUG):
        return page_paths.ORGANIZATION_PATH.format(org_slug=slug)
    return page_paths.ACCOUNT_PATH if kit.signed_in().restricted_to is None else page_paths.HOME_PATH


def _has_just_vouched(connection: OrganizationConnection) -> bool:
    """Return whether the identity provider signed the user in a few minutes ago, and may not have asked them."""
    user, since = kit.signed_in(), kit.ports().clock.now() - kit.ports().policy.fresh_sign_in_ttl
    every = proofs.in_session(user.browser.proofs) if isinstance(user, Visitor) else ()
    return any(proof.connection == connection.id and proof.vouched_at is not None and proof.vouched_at >= since for proof in every)


async def _values(target: dict[str, str], kept: sessions.KeptForm | None, *, is_emailed: bool, decision: Decision | None) -> dict[str, Any]:
    user = kit.signed_in()
    options = await _load_options(target, decision)
    is_second = options.needs_second_factor and proofs.Method.PASSKEY in options.second_methods
    if is_second and options.passkey and not options.security_key and options.second_methods == (proofs.Method.PASSKEY,):
        options = replace(options, password=False, email_code=False, providers=())  # the passkey stands for the first factor, too
    # Without a first factor, a security key is not enough: it gets a button beside the password.
    is_alone = options.passkey and (options.needs_first_factor or not is_second)
    is_beside = is_second and (options.security_key or not is_alone)
    passkey, _ = await reauthentication.start_passkey(kit.ports(), user, options, passkeys.PasskeyKind.PASSKEY) if is_alone else (None, "")
    kind = passkeys.PasskeyKind.SECURITY_KEY if is_alone else None
    key, key_name = await reauthentication.start_passkey(kit.ports(), user, options, kind) if is_beside else (None, "")
    again_at = await _connection(target, decision, options)
    others = (options.password, options.email_code, options.providers, again_at, not options.needs_first_factor)
    is_only_passkey = options.passkey and not any(others)
    silent_at = again_at.name if decision is None and again_at is not None and _has_just_vouched(again_at) else None
    glass = decision.connection if decision is not None and decision.breaks_glass and again_at is None else None
    return {
        "passkey": passkey,
        "key": key,
        "key_name": key_name,
        "scripted": passkey is not None or key is not None,
        "form_token": form_pages.session_form_token(),
        "email": user.email,
        "target": target,
        "options": options,
        "asked": _reason(target, decision if options.is_for_policy else None, silent_at),
        "connection": None if glass is None else page_paths.connection_start_path(glass.id, next=_path(target)),
        "providers": {place.provider: _name(place) for place in options.providers},
        "again_at": None if again_at is None else again_at.name,
        "is_only_passkey": is_only_passkey,
        "needs_recovery": await passkey_waits.needs_recovery(kit.ports(), user) if is_only_passkey else None,
        "is_platform_owner": user.is_platform_owner,
        "is_emailed": is_emailed and options.email_code,
        "label": kept and kept.label,
        "way_back": page_of_sent_form(kept.path, kept.fields) if kept else _way_back(target),
    }


@routes.get(REAUTHENTICATION_PATH)
@kit.sign_in_session(restricted=kit.Restricted.YES)
@kit.describes_page(
    {
        200: "The form, or the button that sends a kept form again.",
        303: "The sign-in is fresh. Continue at `next`.",
        400: "The kept form has expired.",
    },
    optional={
        "next": "The path on this server to continue at.",
        "form": "The id of a form that was sent with a sign-in that was too old.",
        "empty": "Whether a form with a secret or a file was sent at `next`, which was not kept.",
        "emailed": "Whether a code was just emailed.",
        "policy": "The sign-in policy that asks for it: `acme`, `acme/shop`, `*` for the platform, or `**` for all of the user. `***` asks "
        "for a way of the account's own, `****` for a passkey, `*****` for the password and the mailbox, and `******` for a passkey or a "
        "second factor.",
        "org": "The slug of the organization in which the user acts, if its sign-in policy limits the ways.",
        "age": "The age of the sign-in through the connection that the policy requires: `fresh` or `recent`.",
    },
)
async def show() -> Response:
    """Ask the user to confirm that it's them.

    `next` is the path on this server to continue at. Programs use `GET /api/auth/reauthenticate`.
    """
    user, target = kit.signed_in(), _target(request.args)
    next_path = kit.safe_next(target.get("next", page_paths.ACCOUNT_PATH))
    try:
        kept = await _kept_form(target)
    except sessions.KeptFormEnded as refusal:
        return form_pages.refused_page(refusal, "authentication/kept_form_ended.html", form_page=next_path)
    decision = await _step_up(target)
    if decision is not None and decision.rule is Rule.CONNECTION and (connection := decision.leads_to) is not None:
        return kit.redirect(page_paths.connection_start_path(connection.id, next=_path(target)))
    is_of_place = target.get("policy", EVERYWHERE) not in POLICY_OF.values()
    is_fresh = is_of_place or sign_in_age.is_enough(user.sign_in, sign_in_age.SignInAge.FRESH, kit.ports().policy, kit.ports().clock.now())
    if target.get("policy") == kit.OWN_PROOF and user.restricted_to is not None:
        is_fresh = False
    if decision is not None or not is_fresh:
        values = await _values(target, kept, is_emailed="emailed" in request.args, decision=decision)
        return kit.page_response(kit.render(TEMPLATE, problem=None, wrong=None, **values))
    if kept is None:
        return redirect_with_notice("form-not-kept", next_path) if "empty" in target else kit.redirect(next_path)
    values = {"form_token": form_pages.session_form_token(), "kept": kept, "form_page": page_of_sent_form(kept.path, kept.fields)}
    return kit.page_response(kit.render("authentication/kept_form.html", **values))


async def _read_own_form() -> dict[str, str]:
    form = await kit.read_form()
    form_pages.check_session_form(form)
    return form


async def _refused(refusal: errors.Refusal, target: dict[str, str], *, is_emailed: bool) -> Response:
    try:
        kept = await _kept_form(target)
    except sessions.KeptFormEnded:
        return kit.redirect(_path(target))
    values = await _values(target, kept, is_emailed=is_emailed, decision=await _step_up(target))
    return form_pages.refused_page(refusal, TEMPLATE, wrong=console_forms.wrong_field(refusal, FIELDS), **values)


def _proof(form: Mapping[str, str]) -> sessions.ReauthenticationProof:
    """Return the factors in the page's form. Raises: FieldInvalid if a field is empty; PasskeyRefused."""
    has_credential = bool(form.get(console_forms.CREDENTIAL))
    for name, message in EMPTY.items():
        if name in form and not form[name].strip() and not (has_credential and name == "code"):
            raise FieldInvalid(message, name)
    passkey = console_forms.read_credential(form, AuthenticationCredentialRequest, passkeys.PasskeyRefused) if has_credential else None
    code = None if has_credential else form.get("code")
    return sessions.ReauthenticationProof(password=form.get("password"), email_code=form.get("email_code"), code=code, passkey=passkey)


@routes.post(REAUTHENTICATION_PATH)
@kit.sign_in_session(kit.PROTOCOL, limit=(rate_limits.LOGIN, rate_limits.MFA_VERIFICATION), restricted=kit.Restricted.YES)
@kit.describes_page(
    {**ANSWERS, 400: "A field is missing or malformed.", 401: "The password, a code or the passkey is wrong."},
    form=["form_token", "password", "credential"],
)
async def confirm() -> Response:
    """Confirm that it's you, with all your account's factors.

    The browser continues at `next`. Programs use `POST /api/auth/reauthenticate`.
    """
    form = await _read_own_form()
    target, is_emailed = _target(form), "email_code" in form
    try:
        await reauthentication.reauthenticate(kit.ports(), kit.signed_in(), _proof(form))
    except sessions.FirstFactorMissing:  # the first factor was young enough when the page was shown
        return await _refused(KEY_ALONE if form.get(console_forms.CREDENTIAL) else TOO_LATE, target, is_emailed=is_emailed)
    except (errors.Invalid, errors.Unauthenticated, errors.Limited) as refusal:
        return await _refused(refusal, target, is_emailed=is_emailed)
    user_confirmed()
    return kit.redirect(_path(target))


@routes.post(f"{REAUTHENTICATION_PATH}/email")
@kit.sign_in_session(kit.PROTOCOL, limit=rate_limits.EMAIL_SIGN_IN, restricted=kit.Restricted.YES)
@kit.describes_page({**ANSWERS, 400: "The email address is not verified."}, form=["form_token"])
async def send_code() -> Response:
    """Email a code to the user, to confirm that it's them.

    The browser comes back to the page, which then asks for the code.
    """
    form = await _read_own_form()
    target = _target(form)
    try:
        await reauthentication.send_email_code(kit.ports(), kit.signed_in())
    except (errors.Invalid, errors.Limited) as refusal:
        return await _refused(refusal, target, is_emailed=False)
    return kit.redirect(_path(target, emailed="yes"))


@routes.post(f"{REAUTHENTICATION_PATH}/<provider:provider>")
@kit.sign_in_session(kit.PROTOCOL, restricted=kit.Restricted.YES)
@kit.describes_page(
    {**ANSWERS, 303: "Redirect to the start of the sign-in at the identity provider.", 400: "The identity provider is not offered."},
    form=["form_token"],
)
async def start_at_provider(provider: str) -> Response:
    """Sign in again at a linked identity provider.

    The provider must ask the user to sign in. The browser comes back to the page that asked.
    """
    form = await _read_own_form()
    target = _target(form)
    try:
        options = await _load_options(target, await _step_up(target))
        ticket = await reauthentication.start_at_provider(kit.ports(), kit.signed_in(), options, provider, _path(target))
    except errors.Invalid as refusal:
        return await _refused(refusal, target, is_emailed=False)
    return kit.redirect(f"/auth/{provider}?{urlencode({'link': ticket})}")


@routes.post(f"{REAUTHENTICATION_PATH}/connection")
@kit.sign_in_session(kit.PROTOCOL, restricted=kit.Restricted.YES)
@kit.describes_page(
    {**ANSWERS, 303: "Redirect to the identity provider of the organization.", 400: "The connection is not offered."}, form=["form_token"]
)
async def start_at_connection() -> Response:
    """Sign in again through the organization's connection at which the session began.

    The identity provider must ask the user to sign in. The browser comes back to the page that asked.
    """
    form, user = await _read_own_form(), kit.signed_in()
    target = _target(form)
    decision = await _step_up(target)
    connection = await _connection(target, decision, await _load_options(target, decision))
    if connection is None or not isinstance(user, Visitor):
        return await _refused(FieldInvalid("Choose one of these ways.", ""), target, is_emailed=False)
    try:
        redirect = await provider_requests.begin_again(
            kit.ports(), user, connection, _path(target), kit.cookies.browser_id(), kit.app_context().base_url
        )
    except errors.Invalid as refusal:
        return await _refused(refusal, target, is_emailed=False)
    return redirect_response(redirect)
