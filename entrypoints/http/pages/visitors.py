"""A browser's user, on pages that need no session."""

from core.authentication import browser
from core.kernel.callers import Visitor
from core.kernel.errors import SessionEnded
from entrypoints.http import kit


async def visitor() -> Visitor | None:
    """Return the user in this browser's session, or None."""
    cookie = kit.cookies.SESSION.read()
    if cookie is None:
        return None
    try:
        return await browser.authenticate(kit.ports(), kit.anonymous(), cookie)
    except SessionEnded:
        return None


async def visitor_of_account() -> Visitor | None:
    """Return the user for pages about the account: `visitor_with_mfa`, but None if an organization's connection signed them in."""
    user = await visitor_with_mfa()
    return None if user is None or user.restricted_to is not None else user


async def visitor_with_mfa() -> Visitor | None:
    """Return the user in this browser's session, or None without a session or if the second factor is missing.

    It is missing if the user enabled a second factor after the session started, and has not verified it in this session.
    """
    user = await visitor()
    return None if user is None or user.mfa_missing else user
