"""Readers for identity providers' responses."""

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NoReturn
from urllib.parse import parse_qsl

from adapters.http import upstream
from core.federation.connections.model import openid
from core.kernel.connections import ProviderTokens
from core.kernel.outbound import Reply
from core.kernel.values import is_printable

FORM: Final = "application/x-www-form-urlencoded"
MAX_KEY_ID: Final = 255
MAX_TOKEN_LENGTH: Final = 16 * 1024  # for stored tokens
MAX_TOKEN_SECONDS: Final = 10 * 365 * 86400  # longer lifetimes are cut, because the result could exceed what datetime can hold
_SCOPE: Final = re.compile(r"[!#-\[\]-~]{1,255}")  # RFC 6749 section 3.3; all further scopes are ignored


def parse_reply(reply: Reply, at_most: int, statuses: Collection[int] = (200,), *, may_be_form: bool = False) -> Mapping[str, Any]:
    """Return the JSON object in a response with one of these statuses, or the fields of a form. Raises: OpenIdAnswerRefused."""
    _check_reply(reply, at_most, statuses)
    if may_be_form and reply.headers.get("content-type", "").partition(";")[0].strip().lower() == FORM:
        try:
            return dict(parse_qsl(reply.body.decode(), max_num_fields=100))
        except ValueError:
            raise openid.OpenIdAnswerRefused(openid.OpenIdFault.MALFORMED) from None
    answer = _parse_json(reply)
    if not isinstance(answer, dict):
        raise openid.OpenIdAnswerRefused(openid.OpenIdFault.MALFORMED)
    return answer


def parse_primary_email(reply: Reply, at_most: int) -> dict[str, Any]:
    """Return the claims about the primary address in `codehost`'s list of addresses. Raises: OpenIdAnswerRefused."""
    _check_reply(reply, at_most, (200,))
    emails = _parse_json(reply)
    if not isinstance(emails, list):
        raise openid.OpenIdAnswerRefused(openid.OpenIdFault.MALFORMED)
    primary = next((entry for entry in emails if isinstance(entry, dict) and entry.get("primary") is True), {})
    return {"email": primary.get("email"), "email_verified": primary.get("verified")}


def _check_reply(reply: Reply, at_most: int, statuses: Collection[int]) -> None:
    if reply.status not in statuses:
        raise openid.OpenIdAnswerRefused(openid.OpenIdFault.STATUS)
    if len(reply.body) >= at_most:
        raise openid.OpenIdAnswerRefused(openid.OpenIdFault.TOO_LARGE)


def _parse_json(reply: Reply) -> object:
    try:
        return upstream.parse_json(reply.body)
    except upstream.UpstreamFailed:
        raise openid.OpenIdAnswerRefused(openid.OpenIdFault.MALFORMED) from None


def refuse_tokens(status: int, error: object) -> NoReturn:
    """Raise OpenIdAnswerRefused with the reason why the token endpoint refused (RFC 6749 section 5.2)."""
    if error in ("invalid_client", "unauthorized_client") or status == 401:
        raise openid.OpenIdAnswerRefused(openid.OpenIdFault.CLIENT)
    raise openid.OpenIdAnswerRefused(openid.OpenIdFault.CODE if error == "invalid_grant" else openid.OpenIdFault.REQUEST)


def require_token(value: object) -> str:
    """Return a token that can be part of a header."""
    if not isinstance(value, str) or not value or not value.isascii() or not value.isprintable():
        raise openid.OpenIdAnswerRefused(openid.OpenIdFault.TOKENS)
    return value


def to_tokens(answer: Mapping[str, Any], requested: Sequence[str], now: datetime, old: str | None = None) -> ProviderTokens:
    """Return the tokens to store. `requested` are the requested scopes. `old` is the refresh token to keep if the answer has none."""
    refresh_token, scopes = answer.get("refresh_token") or old, answer.get("scope")
    if isinstance(scopes, str):  # codehost separates them by commas, the standard by spaces (RFC 6749 section 3.3)
        granted = tuple(scope for scope in scopes.replace(",", " ").split() if _SCOPE.fullmatch(scope))
    else:  # without the field, the requested scopes were granted (RFC 6749 section 5.1)
        granted = tuple(requested)
    return ProviderTokens(
        access_token=_stored_token(answer.get("access_token")),
        refresh_token=None if refresh_token is None else _stored_token(refresh_token),
        expires_at=_expiry(answer.get("expires_in"), now),
        scopes=granted,
    )


def _stored_token(value: object) -> str:
    token = require_token(value)
    if len(token) > MAX_TOKEN_LENGTH:
        raise openid.OpenIdAnswerRefused(openid.OpenIdFault.TOKENS)
    return token


def _expiry(seconds: object, now: datetime) -> datetime | None:
    if isinstance(seconds, str) and seconds.isascii() and seconds.isdigit() and len(seconds) <= 10:
        seconds = int(seconds)  # form-encoded answers contain strings
    if not isinstance(seconds, int) or isinstance(seconds, bool) or seconds <= 0:
        return None
    return now + timedelta(seconds=min(seconds, MAX_TOKEN_SECONDS))


def key_text(value: object) -> str | None:
    """Return a key member that pages may show, or None."""
    return value if isinstance(value, str) and 0 < len(value) <= MAX_KEY_ID and is_printable(value) else None
