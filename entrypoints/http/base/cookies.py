"""The cookies of our own pages. Scripts and forms of other sites cannot use them (security G-2).

Routes under /api and /scim read no cookies.
"""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from quart import Response, after_this_request, g, request
from werkzeug.http import dump_cookie

from core.accounts.model.devices import TRUST_TOKEN_TTL
from core.federation.saml.model.sign_on import LOGOUT_TTL, STATE_TTL
from core.kernel.page_paths import ENROLL_PATH
from core.kernel.values import digest, new_secret
from core.setup.model.links import MAX_DAYS
from entrypoints.http.base.context import app_context, ports

DEVICE_AGE: Final = timedelta(days=400)  # browsers keep cookies no longer
NOTICE_AGE: Final = timedelta(seconds=60)
SETUP_AGE: Final = timedelta(days=MAX_DAYS)
ENROLLMENT_AGE: Final = timedelta(hours=1)
MAX_ENROLLMENT: Final = 2000  # characters; a longer path is not kept

SESSION, DEVICE, NOTICE, ENROLLMENT, SAML = "session", "device", "notice", "enrollment", "saml"

MAX_SIGN_ONS: Final = 20  # sign-on cookies that a browser keeps
_SIGN_ON = re.compile(rf"{SAML}-[0-9a-f]{{16}}")

_ENROLLMENT = re.compile(rf"{ENROLL_PATH}\?[A-Za-z0-9._~%&=+*-]+")
# The format of our secrets.
_SECRET = re.compile(r"[A-Za-z0-9_-]{43}")


@dataclass(frozen=True, slots=True)
class SecretCookie:
    """A cookie with a secret."""

    kind: str
    age: timedelta

    def read(self) -> str | None:
        """Return the secret, or None."""
        return _read_secret(self.kind)

    def set(self, response: Response, secret: str) -> None:
        """Set the secret."""
        _set(response, self.kind, secret, self.age)

    def clear(self, response: Response) -> None:
        """Remove the secret."""
        _clear(response, self.kind)


TRUST: Final = SecretCookie("trust", TRUST_TOKEN_TTL)  # of the device. Without it, the next sign-in needs the second factor
LOGOUT: Final = SecretCookie("saml-logout", LOGOUT_TTL)  # of the single logout in progress
PROVIDER_LOGOUT: Final = SecretCookie("provider-logout", LOGOUT_TTL)  # of the sign-out that goes on at an identity provider
SETUP: Final = SecretCookie("setup", SETUP_AGE)  # of the opened set-up link, which ends on the server, not with the cookie


def sign_on(state: str) -> SecretCookie:
    """Return the cookie of the SAML sign-on with this state. Each sign-on has a separate cookie."""
    return SecretCookie(f"{SAML}-{digest(state).hex()[:16]}", STATE_TTL)


def cookie_name(kind: str) -> str:
    """Return the name of a cookie. With https it has a prefix that makes browsers accept the cookie only from this host."""
    return f"__Host-gatehouse-{kind}" if _is_https() else f"gatehouse-{kind}"


def session_cookie() -> str | None:
    """Return the secret of the browser session, or None."""
    return _read_secret(SESSION)


def set_session_cookie(response: Response, secret: str, expires_at: datetime) -> None:
    """Set the session cookie until `expires_at`, in UTC."""
    _set(response, SESSION, secret, expires_at - ports().clock.now())


def clear_session_cookie(response: Response) -> None:
    """Remove the session cookie."""
    _clear(response, SESSION)


def device_cookie() -> str | None:
    """Return the device id of the browser, or None."""
    return _read_secret(DEVICE)


def browser_id() -> str:
    """Return the device id of the browser, or a new one. The response sets it, or extends its life, even if it is an error."""
    if "browser_id" not in g:
        g.browser_id = device_cookie() or new_secret()
        after_this_request(_keep_device_cookie)
    return str(g.browser_id)


async def _keep_device_cookie(response: Any) -> Any:
    _set(response, DEVICE, g.browser_id, DEVICE_AGE)
    return response


def notice_cookie() -> str | None:
    """Return the name of the notice that the next page shows, or None."""
    return request.cookies.get(cookie_name(NOTICE))


def set_notice_cookie(response: Response, name: str) -> None:
    """Set the notice that the next page shows."""
    _set(response, NOTICE, name, NOTICE_AGE)


def clear_notice_cookie(response: Response) -> None:
    """Remove the notice."""
    _clear(response, NOTICE)


def enrollment_cookie() -> str | None:
    """Return the path of the page that asked the user to set up a factor, or None."""
    path = request.cookies.get(cookie_name(ENROLLMENT), "")
    return path if _ENROLLMENT.fullmatch(path) else None


def set_enrollment_cookie(response: Response, path: str) -> None:
    """Set the path of the page that asks the user to set up a factor: the pages of their account lead back to it."""
    if len(path) <= MAX_ENROLLMENT:
        _set(response, ENROLLMENT, path, ENROLLMENT_AGE)


def clear_enrollment_cookie(response: Response) -> None:
    """Remove this path."""
    _clear(response, ENROLLMENT)


def forget_old_sign_ons(state: str, response: Response) -> Response:
    """Remove the oldest cookies of unfinished sign-ons, except this one, so that request headers do not become too long.

    Browsers send the oldest cookie first (RFC 6265 section 5.4). Call this also in requests that set
    no cookie: if a form of another site starts a sign-on, the browser sends that request without
    the other cookies, so they cannot be counted there.
    """
    current, prefix = sign_on(state).kind, cookie_name(SAML).removesuffix(SAML)
    kinds = [name.removeprefix(prefix) for name in request.cookies if name.startswith(prefix)]
    others = [kind for kind in kinds if _SIGN_ON.fullmatch(kind) and kind != current]
    for kind in others[: max(0, len(others) + 1 - MAX_SIGN_ONS)]:
        _clear(response, kind)
    return response


def _read_secret(kind: str) -> str | None:
    value = request.cookies.get(cookie_name(kind))
    return value if value is not None and _SECRET.fullmatch(value) else None


def _is_https() -> bool:
    return app_context().origin.startswith("https://")


def _set(response: Response, kind: str, value: str, age: timedelta) -> None:
    seconds = max(0, int(age.total_seconds()))
    # All browsers know Max-Age, so the date of Expires is not computed.
    cookie = dump_cookie(cookie_name(kind), value, seconds, path="/", secure=_is_https(), httponly=True, samesite="Lax", sync_expires=False)
    response.headers.add("Set-Cookie", cookie)


def _clear(response: Response, kind: str) -> None:
    _set(response, kind, "", timedelta(0))
