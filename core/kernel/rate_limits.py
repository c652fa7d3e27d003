"""Rate limits per client address: token buckets, as organizations.md section 8 and the endpoints' own rows have them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bucket:
    """A token bucket: `burst` tokens at most, one more every `period` seconds. `name` tells buckets of one client apart."""

    name: str
    period: float
    burst: int

    def scaled(self, factor: float) -> "Bucket":
        """The same bucket, `factor` times as generous."""
        return Bucket(self.name, self.period / factor, max(1, round(self.burst * factor)))


def per_minute(name: str, count: int) -> Bucket:
    """`count` a minute: a bucket of that capacity, refilled evenly (decisions, point 25)."""
    return Bucket(name, 60 / count, count)


AUTH = Bucket("auth", 1.0, 20)  # /auth/* and /api/auth/*
DEVICE = Bucket("device", 5.0, 10)  # /auth/device/*, and polls of devices at /auth/token (decisions, point 99)
REGISTER = per_minute("register", 10)
LOGIN = per_minute("login", 10)
FORGOT_PASSWORD = per_minute("forgot-password", 5)
RESEND_VERIFICATION = per_minute("resend-verification", 3)
IMPERSONATE = per_minute("impersonate", 10)
# The second factor (decisions, point 26). Confirming it has a bucket of its own, so that an enrolment does not use up that of the group.
MFA_SETUP = Bucket("mfa-setup", 300.0, 5)  # setup, disable and regenerate together
MFA_CONFIRMATION = Bucket("mfa-confirmation", 60.0, 5)  # POST /api/user/mfa/verify: five in five minutes
MFA_VERIFICATION = Bucket("mfa-verification", 1.0, 3)  # that, and POST /api/auth/mfa/verify
BILLING = Bucket("billing", 0.06, 100)  # POST /webhooks/billing: 1000 a minute, 100 at once
