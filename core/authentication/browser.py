"""Browsers on our own pages: a session whose cookie stands where others have tokens, and forms that only our pages can have made
(decisions, point 176; security.md G-2)."""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING

from core.kernel.errors import Forbidden, SessionEnded, refuse
from core.kernel.principals import Visitor
from core.kernel.values import digest

if TYPE_CHECKING:
    from ports import Ports


class FormTokenWrong(Forbidden):
    """This form is not valid any more. Go back, load the page again, and send it once more."""


async def authenticate(ports: Ports, cookie: str, *, address: str | None, agent: str | None) -> Visitor:
    """Whose browser this is. Raises SessionEnded."""
    async with ports.storage.reading() as read:
        session, standing = await read.sessions.load_browser_session(digest(cookie), ports.clock.now()) or refuse(SessionEnded)
    return Visitor(
        user_id=standing.user_id,
        email=standing.email,
        email_verified=standing.email_verified_at is not None,
        session_id=session.id,
        is_platform_owner=standing.is_platform_owner,
        mfa_missing=standing.mfa_missing,
        address=address,
        agent=agent,
        browser=session,
    )


def form_token(cookie: str) -> str:
    """What a form has to bring along that goes with this cookie; it does not give the cookie away."""
    return hmac.new(cookie.encode(), b"form", hashlib.sha256).hexdigest()


def check_form_token(cookie: str, token: str) -> None:
    """Raises FormTokenWrong."""
    if not hmac.compare_digest(form_token(cookie).encode(), token.encode("utf-8", "surrogatepass")):
        raise FormTokenWrong
