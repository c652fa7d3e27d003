"""The steps around a route's view.

First come the rate limits (429), then the credentials (401), then the caller's rights (404, 403). All this happens
before the request is parsed. SCIM requests count per organization, after the credentials.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, Final, TypedDict, Unpack, cast, overload

import trio
from quart import Response, g, request

from core.authentication import impersonation
from core.authentication.model.policy import EnrolmentRequired, StepUpNeeded
from core.authentication.model.sessions import KeptFormEnded
from core.eventing import refusals
from core.eventing.refusals import RefusedChange
from core.kernel.access import OwnProofNeeded
from core.kernel.api_scopes import Area
from core.kernel.callers import Member, ScimClient, share_of
from core.kernel.errors import Refusal, SessionEnded
from core.kernel.rate_limits import Bucket
from core.kernel.shares import current_share
from core.kernel.sign_in_age import SignInNotRecent
from entrypoints.http.base.context import app_context, caller, ports, request_record
from entrypoints.http.edge.access.declaration import (
    ACCESS_ATTRIBUTE,
    SAFE_METHODS,
    Access,
    ApplicationTokens,
    Bounded,
    Credentials,
    Taking,
    View,
    access_of,
)
from entrypoints.http.edge.access.effects import EffectRow
from entrypoints.http.edge.limits import declared, forget_tokens, prepare_tokens, take_open_tokens, take_token
from entrypoints.http.edge.protocol.connection import LazyBody
from entrypoints.http.edge.queries import check_query, path_id, repeatable_parameters
from entrypoints.http.edge.reauthentication import POLICY_OF, to_ended_form, to_policy, to_reauthentication, to_sign_in_again
from entrypoints.http.edge.signatures import by_signature, ids_of

Authenticate = Callable[[Access], Awaitable[Response | None]]

METHODS_WITH_BODY: Final = frozenset({"POST", "PUT", "PATCH"})
FAILURE_RECORDED_WITHIN: Final = 5  # seconds
_AUTHENTICATE: Final = "_authenticate"  # a guarded view's attribute


class Changes(TypedDict, total=False):
    """The parts in an access rule that a single route can change."""

    limit: Bucket | tuple[Bucket, ...] | None
    taking: Taking
    takes_late_up_to: int
    inactive: bool
    applications: ApplicationTokens
    area: Area
    bounded: Bounded


class AccessDecorator:
    """A decorator such as `@person`. `@person(MINE, limit=LOGIN)` declares a route's effect, and changes parts in its access rule."""

    def __init__(self, access: Access, authenticate: Authenticate) -> None:
        """Create a decorator. `authenticate` identifies and authorizes the caller, or returns a redirect."""
        self._access = access
        self._authenticate = authenticate

    @overload
    def __call__(self, view: View, /) -> View: ...
    @overload
    def __call__(self, effect: EffectRow | None = None, /, **changes: Unpack[Changes]) -> Callable[[View], View]: ...
    def __call__(self, given: View | EffectRow | None = None, /, **changes: Unpack[Changes]) -> View | Callable[[View], View]:
        if given is None or isinstance(given, EffectRow):
            return AccessDecorator(replace(self._access, declared=given or self._access.declared, **changes), self._authenticate)
        return _guard(given, self._access, self._authenticate)


def _guard(view: View, access: Access, authenticate: Authenticate) -> View:
    ids, view = ids_of(view), by_signature(view)
    steps = _Steps(view, access, authenticate, repeatable_parameters(view))

    @wraps(view)
    async def guarded(*args: Any, **kwargs: Any) -> Any:
        try:
            return await steps.record_refusal(*args, **{**kwargs, **{name: path_id(kwargs[name]) for name in ids}})
        except BaseException:  # also a cancellation, because the body was too slow or too large
            if "impersonation_entry" in g:
                with trio.fail_after(FAILURE_RECORDED_WITHIN, shield=True):
                    await impersonation.record_failure(ports(), g.impersonation_entry)
            raise

    # The value contains the function: `functools.wraps` copies attributes, so a plain mark would
    # also appear on every decorator around it.
    setattr(guarded, ACCESS_ATTRIBUTE, (guarded, access))
    setattr(guarded, _AUTHENTICATE, authenticate)
    return guarded


def opens_page_of(form: View) -> AccessDecorator:
    """Return the decorator for a form's page: the same callers can open the page, which changes nothing."""
    return AccessDecorator(replace(access_of(form), declared=None, limit=()), getattr(form, _AUTHENTICATE))


@dataclass(frozen=True, slots=True)
class _Steps:
    """A request's steps: every step runs around the next step. `repeatable` are the query parameters that may be repeated."""

    view: View
    access: Access
    authenticate: Authenticate
    repeatable: frozenset[str]

    async def record_refusal(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return await self.limit(*args, **kwargs)
        except Refusal as refusal:
            if refusal.audited and request.method not in SAFE_METHODS:
                arguments = {name: value for name, value in (request.view_args or {}).items() if name != "org_slug"}
                change = RefusedChange(request.method, request_record().route, arguments)
                await refusals.record(ports(), g.get("caller"), change, refusal)
            raise

    async def limit(self, *args: Any, **kwargs: Any) -> Any:
        access = self.access
        forget_tokens()
        if access.taking is not Taking.AT_ONCE and (
            request.method == "GET" or 0 < (request.content_length or 0) <= access.takes_late_up_to
        ):
            prepare_tokens(access.limits, join_reading=access.taking is Taking.WITH_FIRST_QUERY)
            response = await self.take_late(*args, **kwargs)
        else:
            if access.limit is not None:
                await take_token(access.limits)
            response = await self.within_limit(*args, **kwargs)
        for act in declared():
            await act()
        return response

    async def take_late(self, *args: Any, **kwargs: Any) -> Any:
        """Take the tokens if the request is refused, or, if its first query should have taken them, at the end of the request."""
        try:
            response = await self.within_limit(*args, **kwargs)
        except Exception:
            await take_open_tokens()
            raise
        except BaseException:  # a cancellation, because the body was too slow
            with suppress(Refusal), trio.fail_after(FAILURE_RECORDED_WITHIN, shield=True):
                await take_open_tokens()
            raise
        if self.access.taking is Taking.WITH_FIRST_QUERY:
            await take_open_tokens()
        return response

    async def within_limit(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return await self.authorize(*args, **kwargs)
        except SessionEnded:
            if self.access.credentials is not Credentials.COOKIE:
                raise
            return await to_sign_in_again()  # the session ended during the request
        except KeptFormEnded:
            return await to_ended_form()

    async def authorize(self, *args: Any, **kwargs: Any) -> Any:
        try:
            redirect = await self.authenticate(self.access)
            if redirect is not None:
                return redirect
            check_query(self.repeatable)
            client = caller()
            current_share.set(share_of(client))
            if isinstance(client, ScimClient):
                return await self.take_turn(client, *args, **kwargs)
            return await self.view(*args, **kwargs)
        except SignInNotRecent as refusal:  # the route or a part of it that the view knows requires a younger sign-in
            if self.access.credentials is not Credentials.COOKIE:
                raise
            user = g.get("caller")
            org_slug = user.acts_in.slug if isinstance(user, Member) and user.has_sign_in_policy else None
            return await to_reauthentication(POLICY_OF.get(type(refusal)), org_slug=org_slug)
        except OwnProofNeeded as refusal:
            if self.access.credentials is not Credentials.COOKIE:
                raise
            g.caller = refusal.caller
            return await to_reauthentication(POLICY_OF[OwnProofNeeded])
        except (EnrolmentRequired, StepUpNeeded) as refusal:
            if self.access.credentials is not Credentials.COOKIE:
                raise
            g.caller = refusal.caller
            return await to_policy(refusal)

    async def take_turn(self, client: ScimClient, *args: Any, **kwargs: Any) -> Any:
        body = cast("LazyBody", request.body)
        turns = app_context().directory_turns
        with turns.admit(client.org_id):
            if request.method in METHODS_WITH_BODY and request.is_json and not body.is_large:
                await body  # before the turn: slow clients must not stop further requests from their organization
            if body.is_large:  # the view reads it, which can take long; the places for large bodies limit such requests (security N-10)
                return await self.view(*args, **kwargs)
            with await turns.places.take():
                return await self.view(*args, **kwargs)
