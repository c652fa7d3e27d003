"""Rate limits of requests: per client address, per OAuth client or session, and per organization for directories.

A sign-in on our pages gives back what its requests took, so that the limits per address count failures
there, and not the users behind one address.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from uuid import UUID

from quart import g

from core.accounts import charges
from core.kernel.errors import Limited
from core.kernel.rate_limits import DEVICE, Bucket, Charge, Refund
from core.kernel.values import digest
from entrypoints.http.base.context import app_context, current_request, ports, request_record
from entrypoints.http.edge.client_address import limit_key


async def take_token(own: tuple[Bucket, ...]) -> None:
    """Take a token from every bucket of this route. If one is empty, take none."""
    if buckets := _buckets(own):
        charge = Charge(_address(), buckets, ports().clock.now())
        await charges.make(ports(), charge)
        g.charge = charge


def _buckets(own: tuple[Bucket, ...]) -> tuple[Bucket, ...]:
    rule = current_request().url_rule
    assert rule is not None, "only matched routes are guarded"
    return app_context().limits.of(rule.rule, own)


def prepare_charge(own: tuple[Bucket, ...]) -> None:
    """Prepare the charge that `take_token` would make, so that the view can make it with its first query."""
    if buckets := _buckets(own):
        g.charge = Charge(_address(), buckets, ports().clock.now())


def open_charge() -> Charge | None:
    """Return the prepared charge of this request, or None if it was made or there is none."""
    charge: Charge | None = g.get("charge")
    return None if charge is None or charge.is_taken else charge


async def make_charge() -> None:
    """Make the prepared charge of this request, unless it was made. Raises: Limited."""
    await charges.make(ports(), open_charge())


async def charge_failure() -> None:
    """Make the prepared charge of this request, because a sign-in fails. A full limit does not hide from the user why it fails."""
    with suppress(Limited):
        await make_charge()


@asynccontextmanager
async def limited_if_refused() -> AsyncIterator[None]:
    """Count a request against the limit of its IP address if the block refuses it.

    A refused request has not proven who it is, so it cannot use a limit of its own.
    """
    try:
        yield
    except Exception:
        await take_token(())
        raise


async def keep_taken(sign_in: str) -> None:
    """Keep the tokens that this request took, until the sign-in that it is part of succeeds.

    `sign_in` is the device id of the browser. For the request of an email it is the id of that email.
    Otherwise users could send emails to others, and get the tokens back by a sign-in to their own account.
    """
    charge: Charge | None = g.get("charge")
    if charge is not None and charge.is_taken:
        async with ports().storage.autocommit() as statements:
            await statements.rates.keep(digest(sign_in), charge.client, charge.buckets)


def refund_of_sign_in(device_id: str | None) -> Refund | None:
    """Return what the sign-in in this browser gives back if it succeeds in this request, or None if the request has no limit."""
    charge: Charge | None = g.get("charge")
    return None if charge is None else Refund(digest(device_id or ""), charge)


async def give_back_taken() -> None:
    """Give back the tokens that this request took, because a signed-in user has confirmed that it's them."""
    if (refund := refund_of_sign_in(None)) is not None:
        await _give_back(refund.sign_in_hash, refund.buckets)


async def give_back_kept(sign_in: str) -> None:
    """Give back the tokens that were kept for this sign-in, by a request that took none.

    The code or link of an email has proven that the address is the user's own, or the user has answered the question of an application.
    """
    if app_context().limits.are_on:
        await _give_back(digest(sign_in), ())


async def _give_back(sign_in_hash: bytes, buckets: tuple[Bucket, ...]) -> None:
    async with ports().storage.autocommit() as statements:
        await statements.rates.give_back(sign_in_hash, _address(), buckets, ports().clock.now())


async def take_directory_token(org_id: UUID) -> None:
    """Take a token from the bucket of an organization's directory, whatever its addresses and SCIM tokens."""
    await _take(app_context().limits.of_directory, f"directory {org_id}")


async def take_userinfo_token(client_id: UUID) -> None:
    """Take a token from the bucket for userinfo of an application that authenticates, whatever its addresses.

    It is not that of `/auth/token`: the tokens of users must not use up what the application needs to sign users in.
    """
    await _take(app_context().limits.of_client, f"userinfo of client {client_id}")


async def take_session_token(session_id: UUID) -> None:
    """Take a token from the bucket of a session at an application that does not authenticate."""
    await _take(app_context().limits.of_session, f"session {session_id}")


class PolledTooOften(Limited):
    """The device polls too often, or too many devices poll from this address. Wait five seconds longer between polls."""

    oauth_error = "slow_down"  # RFC 8628 section 3.5


async def take_poll_token() -> None:
    """Take a token from the bucket for devices, which polls share with the device routes."""
    await _take(app_context().limits.additional(DEVICE), error=PolledTooOften)


async def _take(buckets: tuple[Bucket, ...], key: str | None = None, error: type[Limited] = Limited) -> None:
    """Take a token from each bucket of the key, by default the client address. Raises: `error` if one is empty."""
    if not buckets:
        return
    async with ports().storage.autocommit() as statements:
        wait = await statements.rates.charge(key or _address(), buckets, ports().clock.now())
    if wait > 0:
        raise error(wait)


def _address() -> str:
    return limit_key(request_record().address)
