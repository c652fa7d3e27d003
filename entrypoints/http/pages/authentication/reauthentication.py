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
from core.accounts.model.accounts import PasswordTooLong
from core.accounts.model.mfa import CodeMalformed, CodeWrong
from core.accounts.model.passkeys import PasskeyKind, PasskeyRefused
from core.authentication import admissions, forms, policy_enrollment, reauthentication
from core.authentication.model.identities import LinkedPlace
from core.authentication.model.login import EmailCodeMalformed
from core.authentication.model.policy import NO_SLUG, PolicyPlace
from core.authentication.model.sessions import (
    EmailedCodeWrong,
    FirstFactorMissing,
    KeptForm,
    KeptFormEnded,
    PasswordWrong,
    ReauthenticationOptions,
    ReauthenticationProof,
    SecondFactorMissing,
)
from core.authentication.reauthentication import load_options
from core.federation.connections import session_proofs, trips
from core.federation.connections.model.connections import OrganizationConnection
from core.kernel.access import OwnProofNeeded
from core.kernel.callers import Visitor
from core.kernel.errors import Invalid, Limited, Refusal, Unauthenticated
from core.kernel.page_paths import ACCOUNT_PATH, HOME_PATH, ORGANIZATION_PATH, REAUTHENTICATION_PATH, connection_start_path
from core.kernel.proofs import Method, in_session
from core.kernel.rate_limits import EMAIL_SIGN_IN, LOGIN, MFA_VERIFICATION
from core.kernel.sign_in_age import SignInAge, is_enough
from core.kernel.sign_in_policy.decision import Decision, Outcome
from core.kernel.sign_in_policy.explanations import explain
from core.kernel.sign_in_policy.rules import Rule
from core.tenancy import imposed_rules
from entrypoints.http.api.accounts.webauthn import AuthenticationCredentialRequest
from entrypoints.http.base import cookies
from entrypoints.http.base.context import app_context, ports, signed_in
from entrypoints.http.base.redirects import page_of_sent_form, redirect, safe_next
from entrypoints.http.base.rendering.templates import page_response, render
from entrypoints.http.edge.access import PROTOCOL, sign_in_session
from entrypoints.http.edge.access.declaration import Bounded
from entrypoints.http.edge.forms import read_form
from entrypoints.http.edge.limits import user_confirmed
from entrypoints.http.edge.openapi import describes_page
from entrypoints.http.edge.queries import path_id
from entrypoints.http.edge.reauthentication import EVERYWHERE, LOST_PASSKEY, OWN_FACTOR, OWN_PASSKEY, OWN_PROOF, POLICY_OF, place_of
from entrypoints.http.pages.console import redirect_with_notice
from entrypoints.http.pages.console_forms import CREDENTIAL, read_credential, wrong_field
from entrypoints.http.pages.federation.connections.visits import visit_response
from entrypoints.http.pages.form_pages import check_session_form, refused_page, session_form_token
from entrypoints.http.pages.form_values import FieldInvalid

routes = Blueprint("reauthentication_pages", __name__)

EMPTY: Final = {"password": "Enter your password.", "email_code": "Enter the code from the email.", "code": "Enter a code."}
FIELDS: Final[Mapping[type[Refusal], str]] = {
    PasswordWrong: "password",
    PasswordTooLong: "password",
    EmailedCodeWrong: "email_code",
    EmailCodeMalformed: "email_code",
    SecondFactorMissing: "code",
    CodeMalformed: "code",
    CodeWrong: "code",
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


async def _kept_form(target: dict[str, str]) -> KeptForm | None:
    """Raises: KeptFormEnded."""
    return await forms.find_kept(ports(), signed_in(), path_id(target["form"])) if "form" in target else None


async def _step_up(target: dict[str, str]) -> Decision | None:
    """Return the sign-in policy's decision that asks for the confirmation, or None if it asks for nothing now."""
    if target.get("policy") in (None, OWN_PROOF):
        return None
    if (find := FINDERS.get(target["policy"])) is not None:
        return await find(ports(), signed_in())
    age = SignInAge(target["age"]) if target.get("age") in tuple(SignInAge) else SignInAge.ANY
    enrollment = await policy_enrollment.find_enrollment(ports(), signed_in(), place_of(target["policy"]), age)
    return enrollment.decision if enrollment.decision.outcome is Outcome.STEP_UP else None


async def _load_options(target: dict[str, str], decision: Decision | None) -> ReauthenticationOptions:
    """Return the ways that the page offers, without the ways that the policy in the user's acting organization refuses."""
    user = signed_in()
    if decision is None and "org" in target and "policy" not in target:
        decision = await admissions.find_renewal(ports(), user, PolicyPlace.read(target["org"]).org_slug or NO_SLUG)
    return await load_options(ports(), user, decision)


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
    return OwnProofNeeded().message if target.get("policy") == OWN_PROOF else None


def _name(place: LinkedPlace) -> str:
    """Return the identity provider's name, with the application's name if the provider asks in its name."""
    name = ports().policy.provider_names[place.provider]
    return f"{name} for {place.service_name}" if place.has_credentials else name


async def _connection(target: dict[str, str], decision: Decision | None, options: ReauthenticationOptions) -> OrganizationConnection | None:
    """Return the connection at which the user signs in again, if that is the next step."""
    user = signed_in()
    if not isinstance(user, Visitor) or target.get("policy") == OWN_PROOF or not (options.connection and options.needs_first_factor):
        return None
    return await session_proofs.find_connection(ports(), user, decision)


def _way_back(target: dict[str, str]) -> str:
    """Return a page that the user can open without the confirmation."""
    if "empty" in target:  # the form's page
        return safe_next(target.get("next", ACCOUNT_PATH))
    if "age" in target and (slug := place_of(target.get("policy", "")).org_slug) not in (None, NO_SLUG):
        return ORGANIZATION_PATH.format(org_slug=slug)
    return ACCOUNT_PATH if signed_in().bounded_to is None else HOME_PATH


def _has_just_vouched(connection: OrganizationConnection) -> bool:
    """Return whether the identity provider signed the user in a few minutes ago, and may not have asked them."""
    user, since = signed_in(), ports().clock.now() - ports().policy.fresh_sign_in_ttl
    every = in_session(user.browser.proofs) if isinstance(user, Visitor) else ()
    return any(proof.connection == connection.id and proof.vouched_at is not None and proof.vouched_at >= since for proof in every)


async def _values(target: dict[str, str], kept: KeptForm | None, *, is_emailed: bool, decision: Decision | None) -> dict[str, Any]:
    user = signed_in()
    options = await _load_options(target, decision)
    is_second = options.needs_second_factor and Method.PASSKEY in options.second_methods
    if is_second and options.passkey and not options.security_key and options.second_methods == (Method.PASSKEY,):
        options = replace(options, password=False, email_code=False, providers=())  # the passkey stands for the first factor, too
    # Without a first factor, a security key is not enough: it gets a button beside the password.
    is_alone = options.passkey and (options.needs_first_factor or not is_second)
    is_beside = is_second and (options.security_key or not is_alone)
    passkey, _ = await reauthentication.start_passkey(ports(), user, options, PasskeyKind.PASSKEY) if is_alone else (None, "")
    kind = PasskeyKind.SECURITY_KEY if is_alone else None
    key, key_name = await reauthentication.start_passkey(ports(), user, options, kind) if is_beside else (None, "")
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
        "form_token": session_form_token(),
        "email": user.email,
        "target": target,
        "options": options,
        "asked": _reason(target, decision if options.is_for_policy else None, silent_at),
        "connection": None if glass is None else connection_start_path(glass.id, next=_path(target)),
        "providers": {place.provider: _name(place) for place in options.providers},
        "again_at": None if again_at is None else again_at.name,
        "is_only_passkey": is_only_passkey,
        "needs_recovery": await passkey_waits.needs_recovery(ports(), user) if is_only_passkey else None,
        "is_platform_owner": user.is_platform_owner,
        "is_emailed": is_emailed and options.email_code,
        "label": kept and kept.label,
        "way_back": page_of_sent_form(kept.path, kept.fields) if kept else _way_back(target),
    }


@routes.get(REAUTHENTICATION_PATH)
@sign_in_session(bounded=Bounded.YES)
@describes_page(
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
    user, target = signed_in(), _target(request.args)
    next_path = safe_next(target.get("next", ACCOUNT_PATH))
    try:
        kept = await _kept_form(target)
    except KeptFormEnded as refusal:
        return refused_page(refusal, "authentication/kept_form_ended.html", form_page=next_path)
    decision = await _step_up(target)
    if decision is not None and decision.rule is Rule.CONNECTION and (connection := decision.leads_to) is not None:
        return redirect(connection_start_path(connection.id, next=_path(target)))
    is_of_place = target.get("policy", EVERYWHERE) not in POLICY_OF.values()
    is_fresh = is_of_place or is_enough(user.sign_in, SignInAge.FRESH, ports().policy, ports().clock.now())
    if target.get("policy") == OWN_PROOF and user.bounded_to is not None:
        is_fresh = False
    if decision is not None or not is_fresh:
        values = await _values(target, kept, is_emailed="emailed" in request.args, decision=decision)
        return page_response(render(TEMPLATE, problem=None, wrong=None, **values))
    if kept is None:
        return redirect_with_notice("form-not-kept", next_path) if "empty" in target else redirect(next_path)
    values = {"form_token": session_form_token(), "kept": kept, "form_page": page_of_sent_form(kept.path, kept.fields)}
    return page_response(render("authentication/kept_form.html", **values))


async def _read_own_form() -> dict[str, str]:
    form = await read_form()
    check_session_form(form)
    return form


async def _refused(refusal: Refusal, target: dict[str, str], *, is_emailed: bool) -> Response:
    try:
        kept = await _kept_form(target)
    except KeptFormEnded:
        return redirect(_path(target))
    values = await _values(target, kept, is_emailed=is_emailed, decision=await _step_up(target))
    return refused_page(refusal, TEMPLATE, wrong=wrong_field(refusal, FIELDS), **values)


def _proof(form: Mapping[str, str]) -> ReauthenticationProof:
    """Return the factors in the page's form. Raises: FieldInvalid if a field is empty; PasskeyRefused."""
    has_credential = bool(form.get(CREDENTIAL))
    for name, message in EMPTY.items():
        if name in form and not form[name].strip() and not (has_credential and name == "code"):
            raise FieldInvalid(message, name)
    passkey = read_credential(form, AuthenticationCredentialRequest, PasskeyRefused) if has_credential else None
    code = None if has_credential else form.get("code")
    return ReauthenticationProof(password=form.get("password"), email_code=form.get("email_code"), code=code, passkey=passkey)


@routes.post(REAUTHENTICATION_PATH)
@sign_in_session(PROTOCOL, limit=(LOGIN, MFA_VERIFICATION), bounded=Bounded.YES)
@describes_page(
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
        await reauthentication.reauthenticate(ports(), signed_in(), _proof(form))
    except FirstFactorMissing:  # the first factor was young enough when the page was shown
        return await _refused(KEY_ALONE if form.get(CREDENTIAL) else TOO_LATE, target, is_emailed=is_emailed)
    except (Invalid, Unauthenticated, Limited) as refusal:
        return await _refused(refusal, target, is_emailed=is_emailed)
    user_confirmed()
    return redirect(_path(target))


@routes.post(f"{REAUTHENTICATION_PATH}/email")
@sign_in_session(PROTOCOL, limit=EMAIL_SIGN_IN, bounded=Bounded.YES)
@describes_page({**ANSWERS, 400: "The email address is not verified."}, form=["form_token"])
async def send_code() -> Response:
    """Email a code to the user, to confirm that it's them.

    The browser comes back to the page, which then asks for the code.
    """
    form = await _read_own_form()
    target = _target(form)
    try:
        await reauthentication.send_email_code(ports(), signed_in())
    except (Invalid, Limited) as refusal:
        return await _refused(refusal, target, is_emailed=False)
    return redirect(_path(target, emailed="yes"))


@routes.post(f"{REAUTHENTICATION_PATH}/<provider:provider>")
@sign_in_session(PROTOCOL, bounded=Bounded.YES)
@describes_page(
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
        ticket = await reauthentication.start_at_provider(ports(), signed_in(), options, provider, _path(target))
    except Invalid as refusal:
        return await _refused(refusal, target, is_emailed=False)
    return redirect(f"/auth/{provider}?{urlencode({'link': ticket})}")


@routes.post(f"{REAUTHENTICATION_PATH}/connection")
@sign_in_session(PROTOCOL, bounded=Bounded.YES)
@describes_page(
    {**ANSWERS, 303: "Redirect to the identity provider of the organization.", 400: "The connection is not offered."}, form=["form_token"]
)
async def start_at_connection() -> Response:
    """Sign in again through the organization's connection at which the session began.

    The identity provider must ask the user to sign in. The browser comes back to the page that asked.
    """
    form, user = await _read_own_form(), signed_in()
    target = _target(form)
    decision = await _step_up(target)
    connection = await _connection(target, decision, await _load_options(target, decision))
    if connection is None or not isinstance(user, Visitor):
        return await _refused(FieldInvalid("Choose one of these ways.", ""), target, is_emailed=False)
    try:
        visit = await trips.begin_again(ports(), user, connection, _path(target), cookies.browser_id(), app_context().base_url)
    except Invalid as refusal:
        return await _refused(refusal, target, is_emailed=False)
    return visit_response(visit)
