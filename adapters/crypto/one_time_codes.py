"""One-time codes by time (TOTP)."""

import hmac
from datetime import datetime
from urllib.parse import quote, urlencode

import pyotp

from core.kernel.values import Email

_CHARACTERS = 32  # of base32, five bits each: 160 bits, as long as SHA-1 (RFC 4226 section 4, R6)


class _Totp(pyotp.TOTP):
    """It decodes its secret once, for several codes."""

    _key: bytes | None = None

    def byte_secret(self) -> bytes:
        if self._key is None:
            self._key = super().byte_secret()
        return self._key


class TotpCodes:
    """ports.crypto.OneTimeCodes with what pyotp makes by default: SHA-1, six digits, steps of 30 seconds."""

    def new_secret(self) -> str:
        """160 random bits in base32."""
        return pyotp.random_base32(_CHARACTERS)

    def uri(self, secret: str, email: Email, issuer: str) -> str:
        """The `otpauth` address, with all in its label escaped: a local part may have a slash, which pyotp would leave as it is."""
        label = f"{quote(issuer, safe='')}:{quote(email, safe='')}"
        return f"otpauth://totp/{label}?{urlencode({'secret': secret, 'issuer': issuer}, quote_via=quote)}"

    def step_of(self, secret: str, code: str, now: datetime) -> int | None:
        """The step whose code this is, or None."""
        totp = _Totp(secret)
        current, found, given = totp.timecode(now), None, code.encode()
        for step in range(max(0, current - 1), current + 2):  # all of them, so that the time taken tells nothing
            if hmac.compare_digest(totp.generate_otp(step).encode(), given):
                found = step
        return found
