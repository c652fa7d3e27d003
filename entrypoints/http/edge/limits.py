"""Rate limits for requests: per client address, per OAuth client or session, and per organization for directories.

A sign-in on our pages gives back what its requests took, so that the limits per address count failures there, and not
the users behind an address.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import partial
from typing import Final
from uuid import UUID

from core.kernel import rate_limits
from core.kernel.errors import Limited
from core.kernel.values import digest
from entrypoints.http.base import context, cookies
from entrypoints.http.edge.client_address import limit_key


async def take_token(own: tuple[rate_limits.Bucket, ...]) -> None:
    """Take a token from every bucket for this route. If a bucket is empty, take none."""
    if prepare_tokens(own) is not None:
        await take_open_tokens()


def forget_tokens() -> None:
    """Begin a request that takes no tokens yet."""
    if rate_limits.request_tokens.get() is not None:
        rate_limits.request_tokens.set(None)
    if _declared.get():
        _declared.set(())


def prepare_tokens(own: tuple[rate_limits.Bucket, ...], *, join_reading: bool = False) -> rate_limits.RequestTokens | None:
    """Prepare to take these tokens later, with `join_reading` in the round trip of the first query. Return None if the route has none."""
    rule = context.current_request().url_rule
    assert rule is not None, "only matched routes are guarded"
    buckets = context.app_context().limits.of(rule.rule, own)
    if not buckets:
        return None
    tokens = rate_limits.RequestTokens(_address(), buckets, context.ports().clock.now(), cookies.DEVICE.read(), join_reading)
    rate_limits.request_tokens.set(tokens)
    return tokens


async def take_open_tokens() -> None:
    """Take this request's prepared tokens, unless they were taken. Raises: Limited."""
    tokens = rate_limits.request_tokens.get()
    if tokens is not None and not tokens.are_taken:
        tokens.join_reading = False
        async with context.ports().storage.autocommit() as statements:
            await statements.rates.take_of_request(tokens)


# What the current request's view has declared. The route's guard carries it out when the view has returned.
_declared: Final[ContextVar[tuple[Callable[[], Awaitable[None]], ...]]] = ContextVar("declared", default=())


def sign_in_goes_on(sign_in: str) -> None:
    """Keep the tokens that this request took until its sign-in succeeds.

    `sign_in` is the browser's device id. For a request for an email it is the email's id. Otherwise users could send
    emails to other people, and get the tokens back by a sign-in to their own account.
    """
    _after_view(partial(_keep, sign_in))


def sign_in_failed() -> None:
    """Take this request's prepared tokens. An empty bucket does not hide from the user why the sign-in fails."""
    if (tokens := rate_limits.request_tokens.get()) is not None:
        tokens.can_refuse = False
        _after_view(take_open_tokens)


def user_confirmed() -> None:
    """Give back the tokens that this request took, because a signed-in user has confirmed that it's them."""
    tokens = rate_limits.request_tokens.get()
    if tokens is not None and tokens.are_taken:
        _after_view(partial(_give_back, "", tokens.buckets))


def proof_accepted(sign_in: str) -> None:
    """Give back the tokens that were kept for this sign-in, by a request that took none.

    The code or link in an email has proven that the address is the user's own, or the user has answered an application's question.
    """
    _after_view(partial(_give_back, sign_in, ()))


def _after_view(act: Callable[[], Awaitable[None]]) -> None:
    _declared.set((*_declared.get(), act))


def declared() -> tuple[Callable[[], Awaitable[None]], ...]:
    """Return what the view has declared, to be done after it."""
    return _declared.get()


async def _keep(sign_in: str) -> None:
    tokens = rate_limits.request_tokens.get()
    if tokens is not None and tokens.are_taken:
        async with context.ports().storage.autocommit() as statements:
            await statements.rates.keep(digest(sign_in), tokens.client, tokens.buckets)


async def _give_back(sign_in: str, buckets: tuple[rate_limits.Bucket, ...]) -> None:
    if context.app_context().limits.are_on:
        async with context.ports().storage.autocommit() as statements:
            await statements.rates.give_back(digest(sign_in), _address(), buckets, context.ports().clock.now())


@asynccontextmanager
async def limited_if_refused() -> AsyncIterator[None]:
    """Count a request against its IP address limit if the block refuses it.

    A refused request has not proven who sends it, so it cannot use its own limit.
    """
    try:
        yield
    except Exception:
        await take_token(())
        raise


async def take_directory_token(org_id: UUID) -> None:
    """Take a token from the bucket for an organization's directory, whatever its addresses and SCIM tokens."""
    await _take(context.app_context().limits.of_directory, f"directory {org_id}")


async def take_userinfo_token(client_id: UUID) -> None:
    """Take a token from an authenticated application's bucket for userinfo, whatever its addresses.

    It is not the bucket for `/auth/token`: users' tokens must not use up what the application needs to sign users in.
    """
    await _take(context.app_context().limits.of_client, f"userinfo of client {client_id}")


async def take_session_token(session_id: UUID) -> None:
    """Take a token from the bucket for a session at an application that does not authenticate."""
    await _take(context.app_context().limits.of_session, f"session {session_id}")


class PolledTooOften(Limited):
    """The device polls too often, or too many devices poll from this address. Wait five seconds longer between polls."""

    oauth_error = "slow_down"  # RFC 8628 section 3.5


async def take_poll_token() -> None:
    """Take a token from the bucket for devices, which polls share with the device routes."""
    await _take(context.app_context().limits.additional(rate_limits.DEVICE), error=PolledTooOften)


async def _take(buckets: tuple[rate_limits.Bucket, ...], key: str | None = None, error: type[Limited] = Limited) -> None:
    """Take a token from every bucket for the key, by default the client address. Raises: `error` if a bucket is empty."""
    if not buckets:
        return
    async with context.ports().storage.autocommit() as statements:
        wait = await statements.rates.take(key or _address(), buckets, context.ports().clock.now())
    if wait > 0:
        raise error(wait)


def _address() -> str:
    return limit_key(context.request_record().address)
