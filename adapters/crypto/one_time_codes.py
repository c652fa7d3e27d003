"""Time-based one-time codes (TOTP)."""

import hmac
from datetime import datetime
from urllib.parse import quote, urlencode

import pyotp

from core.kernel.values import Email

_SECRET_LENGTH = 32  # base32 characters with five bits: 160 bits, the length of SHA-1 (RFC 4226 section 4, R6)


class _Totp(pyotp.TOTP):
    """A TOTP that decodes its secret once for several codes."""

    _key: bytes | None = None

    def byte_secret(self) -> bytes:
        if self._key is None:
            self._key = super().byte_secret()
        return self._key


class TotpCodes:
    """Implements `ports.crypto.OneTimeCodes` with pyotp's defaults: SHA-1, six digits, 30-second steps."""

    def new_secret(self) -> str:
        return pyotp.random_base32(_SECRET_LENGTH)

    def uri(self, secret: str, email: Email, issuer: str) -> str:
        """Return the `otpauth` URI.

        The URI's label is escaped completely: a local part can contain a slash, which pyotp does not escape.
        """
        label = f"{quote(issuer, safe='')}:{quote(email, safe='')}"
        return f"otpauth://totp/{label}?{urlencode({'secret': secret, 'issuer': issuer}, quote_via=quote)}"

    def matching_step(self, secret: str, code: str, now: datetime) -> int | None:
        totp = _Totp(secret)
        current, match, code_bytes = totp.timecode(now), None, code.encode()
        for step in range(max(0, current - 1), current + 2):  # no early end, so that the duration reveals nothing
            if hmac.compare_digest(totp.generate_otp(step).encode(), code_bytes):
                match = step
        return match
