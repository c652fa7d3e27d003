"""Browser sessions on our own pages, and the tokens that protect their forms (decision 176; security G-2)."""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING

from core.kernel.errors import Forbidden, SessionEnded, refuse
from core.kernel.principals import Visitor
from core.kernel.values import digest

if TYPE_CHECKING:
    from ports import Ports


class FormTokenInvalid(Forbidden):
    """This form has expired. Go back, reload the page, and send the form again."""


async def authenticate(ports: Ports, cookie: str, *, address: str | None, agent: str | None) -> Visitor:
    """Return the user of the browser session with this cookie. Raises: SessionEnded."""
    async with ports.storage.reading() as read:
        session, context = await read.sessions.load_browser_session(digest(cookie), ports.clock.now()) or refuse(SessionEnded)
    return Visitor(
        user_id=context.user_id,
        email=context.email,
        email_verified=context.email_verified_at is not None,
        session_id=session.id,
        is_platform_owner=context.is_platform_owner,
        mfa_missing=context.mfa_missing,
        address=address,
        agent=agent,
        browser=session,
    )


def form_token(cookie: str) -> str:
    """Return the token that a form must contain to be accepted with this cookie. It does not reveal the cookie."""
    return hmac.new(cookie.encode(), b"form", hashlib.sha256).hexdigest()


def check_form_token(cookie: str, token: str) -> None:
    """Check the token of a form that was sent with this cookie. Raises: FormTokenInvalid."""
    if not hmac.compare_digest(form_token(cookie).encode(), token.encode("utf-8", "surrogatepass")):
        raise FormTokenInvalid
