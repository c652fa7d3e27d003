"""The pages that a flow can show."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from quart import Response

from core.accounts.model.devices import PresentedDevice
from core.accounts.model.passkeys import NoPasskeysHere
from core.applications.model.client_settings import client_host
from core.authentication import admissions
from core.authentication.admissions import UserSession
from core.authentication.flow.facts import opened_by
from core.authentication.flow.model import Flow, FlowEnded
from core.authentication.methods import passkey, second_factor
from core.authentication.model import login, openid
from core.federation import claims
from core.federation.connections import people
from core.federation.destination import Asked, Destination
from core.federation.oauth.model.client_metadata import ClientMethod
from core.federation.sign_in import SignInOptions
from core.kernel import errors, uris
from core.kernel.callers import Visitor
from core.kernel.display import PRODUCT
from core.kernel.proofs import Strength
from core.kernel.sign_in_policy import steps
from core.kernel.sign_in_policy.explanations import explain
from core.programs.model.client_policy import ClientAdmission
from entrypoints.http import kit
from entrypoints.http.pages import form_pages, notices
from entrypoints.http.pages.console_forms import CredentialMissing
from entrypoints.http.pages.flow import flows, step_ups
from entrypoints.http.pages.flow.step_ups import StepUp
from entrypoints.http.pages.visitors import visitor_with_mfa

SIGNED_OUT, JOINED = "signed-out", "organization-joined"  # values for the notice cookie
NOTICES: Final = {
    kit.FORM_NOT_SENT: notices.NOTICES[kit.FORM_NOT_SENT],
    SIGNED_OUT: "You're signed out.",
    JOINED: "You've joined the organization. Sign in to continue.",
}


async def sign_in_form(
    flow: Flow,
    destination: Destination | None = None,
    asked: str | None = None,
    email: str | None = None,
    step_up: StepUp | None = None,
) -> Response:
    """Return the sign-in page, with the sentence that says why it is asked, or a notice about the step before, if any.

    `email` is filled in instead of the request's address. `step_up` is for a user with a session.
    """
    asked = step_up.sentence if step_up is not None else asked
    notice = asked or NOTICES.get(kit.cookies.NOTICE.read() or "")
    options = await flows.load_options(flow, destination)
    email = email or options.destination.login_hint or ""
    # A user who must meet a sign-in policy rule, or who links an account, is known already.
    address_first = asked is None and await flows.asks_address_first()
    response = await _sign_in_form(options, flow, email, notice=notice, address_first=address_first, step_up=step_up)
    if notice is not None:
        kit.cookies.NOTICE.clear(response)
    return response


async def password_form(flow: Flow, email: str) -> Response:
    """Return the page with the ways to sign in, after the page that asked for the address alone. Raises: FlowEnded."""
    return await _sign_in_form(await flows.load_options(flow), flow, email)


async def _sign_in_form(
    options: SignInOptions,
    flow: Flow,
    email: str,
    *,
    notice: str | None = None,
    address_first: bool = False,
    step_up: StepUp | None = None,
) -> Response:
    values: dict[str, Any] = {"email": email, "problem": None, "notice": notice, "is_unverified": False, "is_wrong": False}
    values |= {**flows.values_of(options, flow), "address_first": address_first, "step_up": step_up, **await _passkey_values()}
    return form_pages.form_page("authentication/sign_in.html", **values)


async def _find_step_up(flow: Flow, options: SignInOptions) -> StepUp | None:
    """Return the step-up for this browser's user, if any, after a refused attempt at the page with these options.

    A user who links an account signs in to the linked account, in any way that it has.
    """
    user, needs = await visitor_with_mfa(), options.destination.needs
    if user is None or people.address_to_link(kit.ports(), flow) is not None:
        return None
    of_policy = await admissions.preview(kit.ports(), opened_by(flow, needs.external_for), UserSession.of(user))
    step_up = await step_ups.find(user, options.destination, of_policy)
    if step_up is None and options.is_folded and options.passkey and not options.providers:
        shown = await step_ups.load(user, steps.step_up_to(Strength.PHISHING_RESISTANT, needs.name or PRODUCT))
        return replace(shown, needs_recovery=None)  # the session has shown the passkey, so its user can add another passkey
    return step_up


def link_sentence(flow: Flow) -> str | None:
    """Return the sentence that asks the user to sign in to the account that they link, if they do."""
    email = people.address_to_link(kit.ports(), flow)
    return None if email is None else f"Sign in to your account {email} to link it."


async def _passkey_values(unknown: str | None = None) -> dict[str, Any]:
    """Return the options for a passkey sign-in, and the signal to password managers about this unknown credential."""
    client = PresentedDevice(device_id=kit.cookies.browser_id(), token=None)
    try:
        options = await passkey.start(kit.ports(), client, kit.app_context().stored_rp_id)
    except NoPasskeysHere:
        return {"passkey": None, "signals": None}
    signals = None if unknown is None else {"signalUnknownCredential": {"rpId": options["rpId"], "credentialId": unknown}}
    return {"passkey": options, "signals": signals, "scripted": True}


async def sign_in_again(
    refusal: errors.Refusal, flow: Flow, email: str = "", *, address_first: bool = False, unknown_credential: str | None = None
) -> Response:
    """Return the sign-in page after a refused attempt, with the email address that the user typed. Raises: FlowEnded, also as `refusal`."""
    if isinstance(refusal, FlowEnded):
        raise refusal
    # The password was right, so the page may say that the account exists (security B-1).
    is_unverified = isinstance(refusal, login.EmailNotVerified)
    # A wrong email address or password marks the two fields, because the page must not say which
    # field is wrong.
    is_wrong = isinstance(refusal, errors.Invalid | login.CredentialsInvalid) and not isinstance(refusal, CredentialMissing)
    options = await flows.load_options(flow)
    if (step_up := await _find_step_up(flow, options)) is not None:
        options = await flows.load_options(flow, step_up.narrow(options.destination))
    notice = link_sentence(flow) if step_up is None else step_up.sentence
    values = {"email": email, "notice": notice, "is_unverified": is_unverified, "is_wrong": is_wrong, **flows.values_of(options, flow)}
    values |= {"address_first": address_first, "step_up": step_up, **await _passkey_values(unknown_credential)}
    return form_pages.refused_form_page(refusal, "authentication/sign_in.html", **values)


async def sign_up_form(flow: Flow, destination: Destination | None = None) -> Response:
    """Return the sign-up page."""
    options = await flows.load_options(flow, destination)
    email = options.destination.login_hint or ""
    return form_pages.form_page(
        "accounts/sign_up.html", email=email, typed_name="", problem=None, wrong=None, is_taken=False, **flows.values_of(options, flow)
    )


async def code_form(flow: Flow, destination: Destination | None = None) -> Response:
    """Return the page for the second factor."""
    return form_pages.form_page("authentication/sign_in_code.html", problem=None, **await code_values(flow, destination))


async def code_values(flow: Flow, destination: Destination | None = None) -> dict[str, Any]:
    """Return the values for the second factor's page, with the options for a passkey."""
    options = await flows.load_options(flow, destination)
    client = PresentedDevice(device_id=kit.cookies.DEVICE.read(), token=kit.cookies.TRUST.read())
    seconds = await second_factor.load_options(kit.ports(), kit.caller(), flow, client, options.destination.needs)
    asked = None if seconds.left_out_for is None else explain(seconds.left_out_for)
    values = {"methods": seconds.methods, "passkey": seconds.passkey_options, "key": seconds.key_name, "asked": asked, "scripted": True}
    return {**flows.values_of(options, flow), **values}


async def question_page(flow: Flow, asked: Asked, user: Visitor, problem: errors.Refusal | None) -> Response:
    """Return the page that asks the user before an application gets an answer, and says why an answer did not count."""
    options = await flows.load_options(flow, asked.destination)
    service, grant, api = options.destination.service, asked.grant, options.destination.api  # no service: the platform's own frontend
    values = {
        "design": options.design,
        "form_token": form_pages.session_form_token(),
        "step": asked.step.value,
        "question": asked.question,
        "service": None if service is None else service.known_name,
        "organization": options.design.organization_name if options.design else "",
        "logo": None if service is None else kit.image_path(service.logo_url),
        "target": options.destination.target,
        "email": user.email,
        "keeps": service is not None and grant is not None and await claims.shows_kept_facts(kit.ports(), service, grant.consent_scopes),
        "scopes": [] if grant is None else list(openid.in_order(grant.consent_scopes)),
        "api": api.access(grant.api.scope) if api and grant and grant.api else None,
        "selects_account": asked.step is steps.Step.SELECT,
        "links": {} if service is None else {label: link for name, label in LINKS.items() if (link := service.setting(name))},
        **flows.links(flow),
    }
    template = "federation/authorize.html"
    if service is not None and service.client_uri is not None:
        if asked.step is steps.Step.SELECT:
            values["organization"] = ""
        else:
            template = "federation/external_consent.html"
            values |= {"service": service.name, **_external_client_values(asked, client_host(service.client_uri))}
    if problem is not None:
        return form_pages.refused_page(problem, template, **values)
    return kit.page_response(kit.render(template, problem=None, **values))


def _external_client_values(asked: Asked, host: str | None) -> dict[str, Any]:
    """Return the further values for an external client's consent page, with the changes since the user agreed to it.

    `host` is None for a client that registered itself.
    """
    agreement, grant, client = asked.agreement, asked.grant, asked.client
    api = None if asked.destination is None else asked.destination.api
    redirect_uri = None if asked.destination is None else asked.destination.redirect_uri
    news: list[str] = []
    if agreement is not None and not agreement.is_first and grant is not None and client is not None:
        new = agreement.compare(grant, client)
        news += [NEW_SCOPES[scope] for scope in openid.in_order(new.scope)]
        news += [scope.description for scope in (() if api is None else api.scopes) if scope.name in (new.api or ())]
        if new.redirect_uri:
            news.append("You continue at an address that is new.")
        if new.authentication:
            news.append(_describe_authentication(client.authentication, agreement.authentication))
    return {
        "host": host,
        "is_local": uris.is_on_device(redirect_uri or ""),
        "is_open": api is not None and api.external_clients.admit is ClientAdmission.ANY,
        "news": news,
    }


LINKS: Final[Mapping[str, str]] = {"policy_uri": "Privacy policy", "tos_uri": "Terms of service", "logo_uri": "Logo"}
# The OpenID Connect scopes that an external client can have
NEW_SCOPES: Final[Mapping[openid.Scope, str]] = {
    openid.Scope.OPENID: "It recognizes you when you sign in again.",
    openid.Scope.PROFILE: "It sees your profile.",
    openid.Scope.EMAIL: "It sees your email address.",
    openid.Scope.OFFLINE_ACCESS: "It keeps this access after you sign out.",
}


def _describe_authentication(new: str, old: str | None) -> str:
    """Return how an external client's proofs have changed. The arguments have the format of `ClientDocument.authentication`."""
    method, _, host = new.partition(" ")
    if method == ClientMethod.NONE:
        return "It no longer proves with a key that it is this application."
    if (old or "").startswith(method):
        return f"Its keys are now published at {host}." if host else "Its keys are now published in another place."
    return "It now proves with a key that it is this application."


FORMS: Final[Mapping[steps.Step, Callable[[Flow, Destination | None], Awaitable[Response]]]] = {
    steps.Step.SIGN_IN: sign_in_form,
    steps.Step.SIGN_UP: sign_up_form,
    steps.Step.SECOND_FACTOR: code_form,
}
