"""The ways to the sign-in, after a session has ended, and to a younger sign-in, and back with the form that was sent (security G-2).

Source: security A-12, G-2.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final
from urllib.parse import urlencode

from quart import Response, current_app, g, request
from werkzeug.exceptions import HTTPException

from core.accounts.model import accounts
from core.authentication import admissions, browser, forms
from core.authentication.model.policy import NO_SLUG, EnrolmentRequired, PolicyPlace, StepUpNeeded
from core.kernel.access import OwnProofNeeded
from core.kernel.errors import Refusal
from core.kernel.page_paths import REAUTHENTICATION_PATH
from core.kernel.sign_in_age import SignInAge
from core.kernel.sign_in_policy.explanations import SignInNotAccepted
from core.tenancy.model.sign_in_policies import OwnFactorNeeded
from entrypoints.http.base import context, cookies, redirects
from entrypoints.http.base.rendering import templates
from entrypoints.http.edge.forms import FILE, is_upload, note_sent, read_form, refuse_foreign_origin
from entrypoints.http.edge.queries import path_id

# In the parameter `policy`, where an organization's slug stands. No slug has this character.
PLATFORM: Final = "*"
EVERYWHERE: Final = "**"  # all policies for the user, for a change to their factors
OWN_PROOF: Final = "***"  # no policy: the session began at an organization's connection, and the route needs a way of the account's own
OWN_PASSKEY: Final = "****"  # no policy: a passkey, because the account has a passkey
LOST_PASSKEY: Final = "*****"  # no policy: the password and the mailbox, for a user who lost all passkeys
OWN_FACTOR: Final = "******"  # no policy: the account's passkey or second factor, which no organization's policy refuses
# The parameter `policy` for the confirmation that a refusal asks for. It names no organization and no application.
POLICY_OF: Final = MappingProxyType(
    {
        SignInNotAccepted: EVERYWHERE,
        accounts.PasskeyNeeded: OWN_PASSKEY,
        accounts.PasswordAndMailboxNeeded: LOST_PASSKEY,
        OwnProofNeeded: OWN_PROOF,
        OwnFactorNeeded: OWN_FACTOR,
    }
)
KEPT_FORM: Final = "kept_form"  # the field with the id of the kept form that is sent
# Names of password fields, and of tokens from links. A form with a secret is not kept, not even sealed, but filled in again.
SECRETS: Final = frozenset({"current_password", "new_password", "password", "client_secret", "token"})


async def to_reauthentication(for_policy: str | None = None, age: SignInAge = SignInAge.ANY, org_slug: str | None = None) -> Response:
    """Return a redirect to the page that asks users to confirm that it's them, and then leads back here.

    A form that our own page sent is kept for them, unless it has a secret or a file. The fields from a kept form that
    the view has taken are kept again.

    `for_policy` names the sign-in policy that asks for it, as in acme, acme/shop, PLATFORM or EVERYWHERE. `age` is how old the sign-in
    through the required connection may be for this request. `org_slug` is the organization in which the user acts, if its policy limits the
    ways to confirm.
    """
    policy = {} if for_policy is None else {"policy": for_policy} | _age_field(age)
    policy |= {} if org_slug is None or for_policy is not None else {"org": org_slug}
    if request.method in ("GET", "HEAD"):
        return _redirect({"next": context.requested_path(), **policy})
    form = await read_form()
    browser.check_form_token(cookies.SESSION.read() or "", form.get("form_token", ""))
    if "taken_form" in g:  # a part of the view needs a younger sign-in than the route
        form = g.taken_form
    elif KEPT_FORM in form:  # it stays as it is: the user waited too long with its button
        return _redirect({**_target(form), **policy})
    if is_upload() or not SECRETS.isdisjoint(form):
        return _redirect({"next": redirects.page_of_sent_form(request.path, form), "empty": "yes", **policy})
    label = (current_app.view_functions[request.endpoint or ""].__doc__ or "").partition("\n")[0].partition(". ")[0]
    kept = await forms.keep(context.ports(), context.signed_in(), request.path, label.rstrip("."), form)
    return _redirect({**_target({**form, KEPT_FORM: str(kept)}), **policy})


def to_reauthentication_for(place: PolicyPlace, next_path: str, age: SignInAge = SignInAge.ANY) -> Response:
    """Return a redirect to the page that asks users to confirm that it's them for a sign-in policy, and then leads to `next_path`."""
    return _redirect({"next": next_path, "policy": _name_of(place)} | _age_field(age))


def _age_field(age: SignInAge) -> dict[str, str]:
    return {} if age is SignInAge.ANY else {"age": age.value}


def to_own_proof(next_path: str) -> Response:
    """Return a redirect to the page that asks users to confirm with a way of the account's own, and then leads to `next_path`."""
    return _redirect({"next": next_path, "policy": OWN_PROOF})


def _name_of(place: PolicyPlace) -> str:
    return "/".join(filter(None, (place.org_slug, place.service_slug))) or PLATFORM


def place_of(name: str) -> PolicyPlace:
    """Return the place of the sign-in policy with this name in the parameter `policy`."""
    org_slug, _, service_slug = name.partition("/")
    return PolicyPlace(None) if name == PLATFORM else PolicyPlace.read(org_slug or NO_SLUG, service_slug)


def to_policy_first(refusal: EnrolmentRequired | StepUpNeeded, next_path: str) -> Response:
    """Return a redirect to the page that a sign-in policy asks for, which then leads to `next_path`."""
    if isinstance(refusal, StepUpNeeded):
        return to_reauthentication_for(refusal.place, next_path, refusal.age)
    return redirects.redirect(admissions.enrollment_path(refusal.place, next=next_path))


async def to_policy(refusal: EnrolmentRequired | StepUpNeeded) -> Response:
    """Return a redirect to the page that a sign-in policy asks for, which then leads back here."""
    if isinstance(refusal, StepUpNeeded):
        return await to_reauthentication(_name_of(refusal.place), refusal.age)
    return to_policy_first(refusal, context.requested_path() if request.method in ("GET", "HEAD") else redirects.page_of_form(request.path))


async def take_form(form_id: str) -> dict[str, str]:
    """Return the fields from a form that was kept for this path. It can be taken once."""
    fields = note_sent(dict(await forms.take_kept(context.ports(), context.signed_in(), path_id(form_id), request.path)))
    g.taken_form = fields
    return fields


async def to_ended_form() -> Response:
    """Return a redirect to the page that says that the kept form has ended, and leads to the form's page."""
    return _redirect(_target(await read_form()))


def _target(form: Mapping[str, str]) -> dict[str, str]:
    """Return the parameters that name a kept form and its page."""
    return {"form": form[KEPT_FORM], "next": redirects.page_of_sent_form(request.path, form)}


def _redirect(target: dict[str, str]) -> Response:
    return Response(b"", 303, {"Location": f"{REAUTHENTICATION_PATH}?{urlencode(target)}", "Cache-Control": "no-store"})


OWNER: Final = "form_of"  # the field with a form's sealed owner
SEALED_FORM: Final = "sealed_form"  # the field with a form that waits in the page
RESTORES_ATTRIBUTE: Final = "_restores"  # marks views that can show a form again instead of doing what it asks
CODES: Final = frozenset({"code", "email_code"})
ADDED_FIELDS: Final = frozenset({"form_token", "form_key", OWNER, SEALED_FORM, KEPT_FORM})  # our pages add them to forms
# These fields are never sealed: passwords, secrets, codes, files and added fields.
LEFT_OUT: Final = SECRETS | CODES | ADDED_FIELDS | {FILE}
SIGNED_IN_PATH: Final = "/app/signed-in"


def without_secrets(fields: Mapping[str, str]) -> dict[str, str]:
    """Return the form fields that can come back."""
    return {name: text for name, text in fields.items() if name not in LEFT_OUT}


async def to_sign_in_again() -> Response:
    """Return a redirect to the sign-in page. If a form was sent, return the page that keeps it while the user signs in again.

    A form without a sealed owner, such as a button, is lost: the redirect says so.
    """
    if request.method in ("GET", "HEAD"):
        return redirects.to_sign_in()
    refuse_foreign_origin()
    restores = getattr(current_app.view_functions[request.endpoint or ""], RESTORES_ATTRIBUTE, False)
    if is_upload() and not restores:
        return redirects.to_sign_in()
    try:
        fields = await read_form()
    except (Refusal, HTTPException):
        return redirects.to_sign_in()
    if not restores:
        return redirects.to_sign_in(fields)
    is_again = SEALED_FORM in fields
    if is_again:
        form = forms.open_ended(context.ports(), fields[SEALED_FORM])
    else:
        form = forms.build_ended(context.ports(), fields.get(OWNER, ""), request.path, without_secrets(fields))
    sealed = None if form is None or form.path != request.path else forms.seal_ended(context.ports(), form)
    if form is None or sealed is None:
        return redirects.to_sign_in()
    page = templates.render(
        "authentication/session_ended.html",
        status=400,
        action=request.full_path.rstrip("?"),
        sealed=sealed,
        sign_in=SIGNED_IN_PATH,
        form_page=redirects.page_of_sent_form(request.path, form.fields),
        is_again=is_again,
        expires_at=form.expires_at,
    )
    return templates.page_response(page)
