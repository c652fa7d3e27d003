"""The return of a browser from an identity provider. It signs the user in, or links the identity to the user's account."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from core.authentication import browser as browser_sessions
from core.federation.model.sign_in import ProviderAnswer, ProviderConsentDenied, ProviderState, ProviderStateUnknown
from core.federation.upstream import session_links, social
from core.federation.upstream.social import ProviderIdentity
from core.kernel.callers import Visitor
from core.kernel.causes import Caller
from core.kernel.errors import ProviderFailed, Refusal, SessionEnded, refuse

if TYPE_CHECKING:
    from ports import Ports


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderReturn:
    """The answer that a browser brings from an identity provider, and the browser's secrets."""

    provider_name: str
    browser: str | None = field(repr=False)  # the secret in the device cookie
    state: str | None = field(repr=False)
    answer: ProviderAnswer
    session_cookie: str | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class SignInFailed:
    """The provider failed, or the user refused. `next_path` is the page to continue at."""

    refusal: ProviderConsentDenied | ProviderFailed
    next_path: str


@dataclass(frozen=True, slots=True)
class SignInStep:
    """The user was authenticated by a provider. The browser continues at `next_path`."""

    method: ProviderIdentity
    next_path: str


@dataclass(frozen=True, slots=True)
class IdentityLinked:
    """The identity was linked to the account of the user in this browser."""


@dataclass(frozen=True, slots=True)
class SignedInAgain:
    """The user of a session signed in again. The browser continues at `next_path`."""

    next_path: str


@dataclass(frozen=True, slots=True)
class NotSignedInAgain:
    """The user of a session did not sign in again. At `next_path` they can choose another way."""

    refusal: Refusal
    next_path: str


CallbackResult: TypeAlias = SignInFailed | SignInStep | IdentityLinked | SignedInAgain | NotSignedInAgain


async def finish(ports: Ports, caller: Caller, returned: ProviderReturn, base_url: str) -> CallbackResult:
    """Sign the user in, or do for the session of the browser what it went to the provider for.

    If the provider failed or the user refused, return the redirect that reports it to the waiting
    application. Without a waiting application, raise the error, or return it to a user who wanted to
    sign in again for their session.

    Raises: ProviderConsentDenied, ProviderFailed; the errors of `social.consume_state`,
    `social.fetch_identity`, `social.error_response`, `session_links.complete_for_session` and `sign_in.sign_in`.
    """
    pending = await social.consume_state(ports, returned.provider_name, returned.browser, returned.state)
    try:
        return await _finish(ports, caller, pending, returned, base_url)
    except Refusal as refusal:
        if not pending.reauthenticates:
            raise
        return NotSignedInAgain(refusal, pending.after)


async def _finish(ports: Ports, caller: Caller, pending: ProviderState, returned: ProviderReturn, base_url: str) -> CallbackResult:
    browser, state = returned.browser or refuse(ProviderStateUnknown), returned.state or refuse(ProviderStateUnknown)
    try:
        identity = await social.fetch_identity(ports, pending, browser, state, base_url, returned.answer)
    except (ProviderConsentDenied, ProviderFailed) as failure:
        if pending.user_id is not None:
            raise
        return SignInFailed(failure, pending.after)
    if pending.user_id is None:
        return SignInStep(ProviderIdentity(pending, identity), pending.after)
    visitor = await _visitor(ports, caller, returned.session_cookie)
    await session_links.complete_for_session(ports, caller, pending, identity, visitor)
    return SignedInAgain(pending.after) if pending.reauthenticates else IdentityLinked()


async def _visitor(ports: Ports, caller: Caller, session_cookie: str | None) -> Visitor | None:
    """Return the user who is signed in in this browser, or None."""
    if session_cookie is None:
        return None
    try:
        return await browser_sessions.authenticate(ports, session_cookie, address=caller.address, agent=caller.agent)
    except SessionEnded:
        return None
