"""The cookies of our own pages, all of them beyond the reach of scripts and of other sites' forms (security.md G-2; decisions, point 176).

Nothing under /api or /scim looks at any of them.
"""

import re
from datetime import datetime, timedelta
from typing import Final

from quart import Response, request

from core.accounts.devices_rules import TRUST_TOKEN_TTL
from core.federation.saml.logout_rules import LOGOUT_TTL
from core.federation.saml.sign_on_rules import STATE_TTL
from core.kernel.values import digest, new_secret
from entrypoints.http.edge.context import app_context, ports

DEVICE_AGE: Final = timedelta(days=400)  # no browser keeps one for longer
NOTICE_AGE: Final = timedelta(seconds=60)

SESSION, DEVICE, TRUST, PRE_AUTH, NOTICE = "session", "device", "trust", "pre-auth", "notice"
SAML, LOGOUT = "saml", "saml-logout"

SIGN_ONS: Final = 20  # of which a browser keeps the cookies at once
_SIGN_ON = re.compile(rf"{SAML}-[0-9a-f]{{16}}")

# What we have set ourselves looks like this; a pre-auth token is a signed one, and its own check is strict enough.
_SECRET = re.compile(r"[A-Za-z0-9_-]{43}")


def cookie_name(kind: str) -> str:
    """Under https browsers themselves see to it that nobody but this very host has set the cookie: that is what the prefix says."""
    return f"__Host-gatehouse-{kind}" if _is_https() else f"gatehouse-{kind}"


def session_cookie() -> str | None:
    """The secret of the browser's session."""
    return _secret(SESSION)


def set_session_cookie(response: Response, secret: str, expires_at: datetime) -> None:
    _set(response, SESSION, secret, expires_at - ports().clock.now())


def clear_session_cookie(response: Response) -> None:
    _clear(response, SESSION)


def device_cookie() -> str | None:
    """The id that the browser keeps of its own."""
    return _secret(DEVICE)


def keep_device_cookie(response: Response, device_id: str) -> None:
    """Let the browser keep this id, or keep it for longer."""
    _set(response, DEVICE, device_id, DEVICE_AGE)


def new_device_id() -> str:
    return new_secret()


def trust_cookie() -> str | None:
    """The token of a browser that need not show a second factor."""
    return _secret(TRUST)


def set_trust_cookie(response: Response, token: str) -> None:
    _set(response, TRUST, token, TRUST_TOKEN_TTL)


def pre_auth_cookie() -> str | None:
    """The token of a sign-in that waits for the second factor."""
    return request.cookies.get(cookie_name(PRE_AUTH))


def set_pre_auth_cookie(response: Response, token: str, expires_in: int) -> None:
    _set(response, PRE_AUTH, token, timedelta(seconds=expires_in))


def clear_pre_auth_cookie(response: Response) -> None:
    _clear(response, PRE_AUTH)


def notice_cookie() -> str | None:
    """The name of what the next page shall say was done."""
    return request.cookies.get(cookie_name(NOTICE))


def set_notice_cookie(response: Response, name: str) -> None:
    _set(response, NOTICE, name, NOTICE_AGE)


def clear_notice_cookie(response: Response) -> None:
    _clear(response, NOTICE)


def saml_cookie(state: str) -> str | None:
    """What the browser was given with this state of a SAML sign-on. Each has a cookie of its own, so that two do not disturb each other."""
    return _secret(_of_state(state))


def set_saml_cookie(response: Response, state: str, secret: str) -> None:
    _set(response, _of_state(state), secret, STATE_TTL)


def clear_saml_cookie(response: Response, state: str) -> None:
    _clear(response, _of_state(state))


def forget_old_sign_ons(state: str, response: Response) -> Response:
    """Let the browser keep the cookie of this sign-on, and of others that were never finished those of the newest: with all of them, its
    requests would become too long in the end.

    Browsers send the oldest first (RFC 6265, section 5.4). To do this where a cookie is set is not enough, since a form of another site,
    which begins a sign-on, comes without the others.
    """
    this, start = _of_state(state), cookie_name(SAML).removesuffix(SAML)
    kinds = [name.removeprefix(start) for name in request.cookies if name.startswith(start)]
    others = [kind for kind in kinds if _SIGN_ON.fullmatch(kind) and kind != this]
    for kind in others[: max(0, len(others) + 1 - SIGN_ONS)]:
        _clear(response, kind)
    return response


def _of_state(state: str) -> str:
    return f"{SAML}-{digest(state).hex()[:16]}"


def logout_cookie() -> str | None:
    """What the sign-out under way in this browser is known by: the secret of a session that it has ended."""
    return _secret(LOGOUT)


def set_logout_cookie(response: Response, secret: str) -> None:
    _set(response, LOGOUT, secret, LOGOUT_TTL)


def clear_logout_cookie(response: Response) -> None:
    _clear(response, LOGOUT)


def _secret(kind: str) -> str | None:
    value = request.cookies.get(cookie_name(kind))
    return value if value is not None and _SECRET.fullmatch(value) else None


def _is_https() -> bool:
    return app_context().origin.startswith("https://")


def _set(response: Response, kind: str, value: str, age: timedelta) -> None:
    response.set_cookie(
        cookie_name(kind), value, max_age=max(0, int(age.total_seconds())), path="/", secure=_is_https(), httponly=True, samesite="Lax"
    )


def _clear(response: Response, kind: str) -> None:
    _set(response, kind, "", timedelta(0))
