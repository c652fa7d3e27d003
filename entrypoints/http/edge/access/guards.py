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
from core.authentication.model import policy
from core.authentication.model.sessions import KeptFormEnded
from core.eventing import audit
from core.eventing.audit import RefusedChange
from core.kernel import callers, errors
from core.kernel.access import OwnProofNeeded
from core.kernel.api_scopes import Area
from core.kernel.rate_limits import Bucket
from core.kernel.shares import current_share
from core.kernel.sign_in_age import SignInNotRecent
from entrypoints.http.base import context
from entrypoints.http.edge import limits, queries, reauthentication, signatures
from entrypoints.http.edge.access import declaration
from entrypoints.http.edge.access.effects import EffectRow
from entrypoints.http.edge.protocol.connection import LazyBody

Authenticate = Callable[[declaration.Access], Awaitable[Response | None]]

METHODS_WITH_BODY: Final = frozenset({"POST", "PUT", "PATCH"})
FAILURE_RECORDED_WITHIN: Final = 5  # seconds
_AUTHENTICATE: Final = "_authenticate"  # a guarded view's attribute


class Changes(TypedDict, total=False):
    """The parts in an access rule that a single route can change."""

    limit: Bucket | tuple[Bucket, ...] | None
    taking: declaration.Taking
    takes_late_up_to: int
    inactive: bool
    applications: declaration.ApplicationTokens
    area: Area
    restricted: declaration.Restricted


class AccessDecorator:
    """A decorator such as `@person`. `@person(MINE, limit=LOGIN)` declares a route's effect, and changes parts in its access rule."""

    def __init__(self, access: declaration.Access, authenticate: Authenticate) -> None:
        """Create a decorator. `authenticate` identifies and authorizes the caller, or returns a redirect."""
        self._access = access
        self._authenticate = authenticate

    @overload
    def __call__(self, view: declaration.View, /) -> declaration.View: ...
    @overload
    def __call__(
        self, effect: EffectRow | None = None, /, **changes: Unpack[Changes]
    ) -> Callable[[declaration.View], declaration.View]: ...
    def __call__(
        self, given: declaration.View | EffectRow | None = None, /, **changes: Unpack[Changes]
    ) -> declaration.View | Callable[[declaration.View], declaration.View]:
        if given is None or isinstance(given, EffectRow):
            return AccessDecorator(replace(self._access, declared=given or self._access.declared, **changes), self._authenticate)
        return _guard(given, self._access, self._authenticate)


def _guard(view: declaration.View, access: declaration.Access, authenticate: Authenticate) -> declaration.View:
    ids, view = signatures.ids_of(view), signatures.by_signature(view)
    steps = _Steps(view, access, authenticate, queries.repeatable_parameters(view))

    @wraps(view)
    async def guarded(*args: Any, **kwargs: Any) -> Any:
        try:
            return await steps.record_refusal(*args, **{**kwargs, **{name: queries.path_id(kwargs[name]) for name in ids}})
        except BaseException:  # also a cancellation, because the body was too slow or too large
            if "impersonation_entry" in g:
                with trio.fail_after(FAILURE_RECORDED_WITHIN, shield=True):
                    await impersonation.record_failure(context.ports(), g.impersonation_entry)
            raise

    # The value contains the function: `functools.wraps` copies attributes, so a plain mark would
    # also appear on every decorator around it.
    setattr(guarded, declaration.ACCESS_ATTRIBUTE, (guarded, access))
    setattr(guarded, _AUTHENTICATE, authenticate)
    return guarded


def opens_page_of(form: declaration.View) -> AccessDecorator:
    """Return the decorator for a form's page: the same callers can open the page, which changes nothing."""
    return AccessDecorator(replace(declaration.access_of(form), declared=None, limit=()), getattr(form, _AUTHENTICATE))


@dataclass(frozen=True, slots=True)
class _Steps:
    """A request's steps: every step runs around the next step. `repeatable` are the query parameters that may be repeated."""

    view: declaration.View
    access: declaration.Access
    authenticate: Authenticate
    repeatable: frozenset[str]

    async def record_refusal(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return await self.limit(*args, **kwargs)
        except errors.Refusal as refusal:
            if refusal.audited and request.method not in declaration.SAFE_METHODS:
                arguments = {name: value for name, value in (request.view_args or {}).items() if name != "org_slug"}
                change = RefusedChange(request.method, context.request_record().route, arguments)
                await audit.record_refusal(context.ports(), g.get("caller"), change, refusal)
            raise

    async def limit(self, *args: Any, **kwargs: Any) -> Any:
        access = self.access
        limits.forget_tokens()
        if access.taking is not declaration.Taking.AT_ONCE and (
            request.method == "GET" or 0 < (request.content_length or 0) <= access.takes_late_up_to
        ):
            limits.prepare_tokens(access.limits, join_reading=access.taking is declaration.Taking.WITH_FIRST_QUERY)
            response = await self.take_late(*args, **kwargs)
        else:
            if access.limit is not None:
                await limits.take_token(access.limits)
            response = await self.within_limit(*args, **kwargs)
        for act in limits.declared():
            await act()
        return response

    async def take_late(self, *args: Any, **kwargs: Any) -> Any:
        """Take the tokens if the request is refused, or, if its first query should have taken them, at the end of the request."""
        try:
            response = await self.within_limit(*args, **kwargs)
        except Exception:
            await limits.take_open_tokens()
            raise
        except BaseException:  # a cancellation, because the body was too slow
            with suppress(errors.Refusal), trio.fail_after(FAILURE_RECORDED_WITHIN, shield=True):
                await limits.take_open_tokens()
            raise
        if self.access.taking is declaration.Taking.WITH_FIRST_QUERY:
            await limits.take_open_tokens()
        return response

    async def within_limit(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return await self.authorize(*args, **kwargs)
        except errors.SessionEnded:
            if self.access.credentials is not declaration.Credentials.COOKIE:
                raise
            return await reauthentication.to_sign_in_again()  # the session ended during the request
        except KeptFormEnded:
            return await reauthentication.to_ended_form()

    async def authorize(self, *args: Any, **kwargs: Any) -> Any:
        try:
            redirect = await self.authenticate(self.access)
            if redirect is not None:
                return redirect
            queries.check_query(self.repeatable)
            client = context.caller()
            current_share.set(callers.share_of(client))
            if isinstance(client, callers.ScimClient):
                return await self.take_turn(client, *args, **kwargs)
            return await self.view(*args, **kwargs)
        except SignInNotRecent as refusal:  # the route or a part of it that the view knows requires a younger sign-in
            if self.access.credentials is not declaration.Credentials.COOKIE:
                raise
            user = g.get("caller")
            org_slug = user.acts_in.slug if isinstance(user, callers.Member) and user.has_sign_in_policy else None
            return await reauthentication.to_reauthentication(reauthentication.POLICY_OF.get(type(refusal)), org_slug=org_slug)
        except OwnProofNeeded as refusal:
            if self.access.credentials is not declaration.Credentials.COOKIE:
                raise
            g.caller = refusal.caller
            return await reauthentication.to_reauthentication(reauthentication.POLICY_OF[OwnProofNeeded])
        except (policy.EnrolmentRequired, policy.StepUpNeeded) as refusal:
            if self.access.credentials is not declaration.Credentials.COOKIE:
                raise
            g.caller = refusal.caller
            return await reauthentication.to_policy(refusal)

    async def take_turn(self, client: callers.ScimClient, *args: Any, **kwargs: Any) -> Any:
        body = cast("LazyBody", request.body)
        turns = context.app_context().directory_turns
        with turns.admit(client.org_id):
            if request.method in METHODS_WITH_BODY and request.is_json and not body.is_large:
                await body  # before the turn: slow clients must not stop further requests from their organization
            if body.is_large:  # the view reads it, which can take long; the places for large bodies limit such requests (security N-10)
                return await self.view(*args, **kwargs)
            with await turns.places.take():
                return await self.view(*args, **kwargs)
