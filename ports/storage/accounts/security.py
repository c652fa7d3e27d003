"""Storage for second factors, devices, security notices and attempts."""

from collections.abc import Awaitable, Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.accounts.model import attempt_limits, devices, mfa
from core.accounts.model.security_notices import SecurityNotice
from core.authentication.model.login import LoginAttempt
from core.kernel.causes import Caller
from core.kernel.values import Email


class MfaRead(Protocol):
    """Read access to second factors."""

    async def status(self, user_id: UUID) -> mfa.MfaStatus | None:
        """Return the status, or None if the account does not exist."""

    async def enrollment(self, user_id: UUID) -> mfa.MfaEnrollment | None:
        """Return the secrets, which may be pending or expired, or None if the account does not exist. Raises: SealBroken."""

    async def newest_at(self, user_id: UUID, event: mfa.MfaEvent) -> datetime | None:
        """Return the time of the account's newest log entry of this kind (UTC), or None."""

    async def switches(self, user_id: UUID, since: datetime) -> list[mfa.FactorSwitch]:
        """Return when second factors were turned on and off since then, newest first. At equal times, turning on counts as newer."""

    async def lifetimes(self, user_id: UUID, rp_id: str | None) -> list[mfa.FactorLifetime]:
        """Return the account's app, its keys for this RP ID, and the apps and keys that an undo can restore."""

    async def has_unused_code(self, user_id: UUID, code_hash: bytes) -> bool:
        """Return whether the account has an unused backup code with this hash."""


class MfaLog(Protocol):
    """The log about second factors, which is separate from organizations' audit logs."""

    async def log(self, user_id: UUID, events: Sequence[mfa.MfaEvent], caller: Caller, now: datetime, *, reason: str | None = None) -> None:
        """Log an action's events, in this order. The events count as failed if any event is a failure."""


class Mfa(MfaRead, MfaLog, Protocol):
    """Write access to second factors. Callers lock the account first, except before the `redeem` methods. Secrets are stored sealed."""

    async def save_pending_secret(self, user_id: UUID, secret: str, now: datetime) -> None:
        """Store a secret that the user has to confirm. The new secret replaces an earlier secret."""

    async def use_step(self, user_id: UUID, setup_at: datetime, step: int) -> bool:
        """Use up a time step's code, by the secret set up at `setup_at`.

        Return False, and change nothing, if a code for this or a later step was used, or the secret was replaced.
        """

    async def use_backup_code(self, user_id: UUID, code_hash: bytes, now: datetime) -> bool:
        """Use up the backup code with this hash. Return whether the code was unused."""

    async def retire(self, user_id: UUID, enabled_at: datetime, now: datetime) -> None:
        """Keep the enabled second factor aside for an undo, before `remove`."""

    async def restore(self, user_id: UUID, since: datetime) -> datetime | None:
        """Restore the second factor that was enabled before `since` and kept aside since then. Return when it was enabled, or None."""

    async def remove_codes(self, user_id: UUID) -> None: ...
    async def replace_codes(self, user_id: UUID, salt: bytes, hashes: Sequence[bytes]) -> None: ...

    def redeem_step(
        self, first: mfa.FirstFactor, setup_at: datetime, step: int, caller: Caller, now: datetime
    ) -> Awaitable[mfa.RedeemedCode | None]:
        """Lock the account, consume its first factor, and use up the code as `use_step` does.

        If the code is used up, this is logged, and the failed attempts are cleared.

        An API client's flow is closed, and a browser's flow lives for FLOW_TTL from now on. The result is None if the
        first factor has ended or was proved again. Exactly one caller gets a result with `code_taken`. All remaining
        callers must roll back.
        """

    def redeem_backup_code(
        self, first: mfa.FirstFactor, code_hash: bytes, caller: Caller, now: datetime
    ) -> Awaitable[mfa.RedeemedCode | None]:
        """As `redeem_step`, but use up the backup code with this hash."""

    async def remove(self, user_id: UUID, *, keeps_codes: bool = False) -> None:
        """Delete the secret and, without `keeps_codes`, the backup codes. The log stays."""


class DevicesRead(Protocol):
    """Read access to devices.

    `org_id` is the organization that owns the requested service, or None. The organization's trust period applies, as
    do the periods of organizations that the user is a confirmed member of.
    """

    async def of_user(
        self, user_id: UUID, session_id: UUID | None, org_id: UUID | None, now: datetime, after: devices.Device | None, limit: int
    ) -> list[devices.ListedDevice]:
        """Return devices that are not revoked, the most recently used first, beginning after `after`.

        `session_id` is the caller's session, or None if the caller is a service account.
        """

    async def by_id(self, device_id: UUID, session_id: UUID, org_id: UUID | None, now: datetime) -> devices.ListedDevice | None:
        """Return any user's device, revoked or not. `session_id` is the caller's session."""


class Devices(DevicesRead, Protocol):
    """Write access to devices. Callers lock the account first."""

    def find_match(
        self, user_id: UUID, fingerprint: devices.DeviceFingerprint, org_id: UUID | None, now: datetime, connection_id: UUID | None = None
    ) -> Awaitable[devices.KnownDevice | None]:
        """Find the user's device with this fingerprint, and summarize the user's earlier logins.

        Only logins at the same organization connection count, or with None all logins in other ways.

        A device matches by its trust token, else by the client's device id. If the client has no
        device id, the most recently used device without an id that has the same browser, system and
        type matches. Revoked devices never match.
        """

    async def by_client(self, user_id: UUID, client_hash: bytes) -> devices.Device | None:
        """Return the device with this client id hash, unless it is revoked."""

    async def add(self, device: devices.Device) -> None: ...

    async def update(self, device: devices.Device) -> None:
        """Update the device, except its owner, client id and creation time, unless it is revoked."""

    async def rename(self, user_id: UUID, device_id: UUID, name: str, now: datetime) -> None: ...

    async def revoke(self, user_id: UUID, device_id: UUID, now: datetime) -> None:
        """Revoke a device and its trust. The caller ends the device's sessions."""

    async def distrust(self, user_id: UUID, now: datetime) -> None:
        """End the trust in all the user's devices."""


class SecurityNoticesRead(Protocol):
    """Read access to the emails about ways into an account."""

    async def by_token(self, token_hash: bytes) -> SecurityNotice | None:
        """Return the notice with this undo token. The notice may have been used, or have expired."""

    async def live(self, user_id: UUID, now: datetime) -> list[SecurityNotice]:
        """Return the account's notices that can still be undone, oldest first."""


class SecurityNotices(SecurityNoticesRead, Protocol):
    """Write access to these notices. Callers lock the account before they write."""

    async def add(self, notice: SecurityNotice) -> None: ...
    async def by_id(self, notice_id: UUID) -> SecurityNotice | None: ...

    async def save_token(self, notice_id: UUID, token_hash: bytes) -> None:
        """Store the hash of the emailed token."""

    async def use_up(self, user_id: UUID, notice_id: UUID, since: datetime, now: datetime) -> None:
        """Mark all the account's notices since then as undone, and use up this notice's link.

        If this notice's change is older, another link can still undo it.
        """

    async def end_all(self, user_id: UUID, now: datetime) -> None:
        """Let no notice to the account be undone any longer."""


class AttemptReset(Protocol):
    """The attempt limits inside a transaction, where they can only be cleared."""

    async def clear(self, secret: attempt_limits.SecretKind, subject: bytes) -> None: ...

    async def clear_of_account(self, secret: attempt_limits.SecretKind, user_id: UUID, email: Email) -> None:
        """Delete the counters for the address and for all the account's devices."""


class AttemptLimits(AttemptReset, Protocol):
    """Counters for failed attempts (`core.accounts.attempt_limits`). Every method is atomic."""

    async def count_attempt(
        self, secret: attempt_limits.SecretKind, subject: bytes, attempt_limit: attempt_limits.AttemptLimit, now: datetime
    ) -> datetime | None:
        """Count an attempt. If the attempt must wait, count nothing and return until when."""

    async def count_password_attempt(
        self, email: Email, known: devices.KnownBy, attempt_limit: attempt_limits.AttemptLimit, now: datetime
    ) -> LoginAttempt:
        """Count an attempt at this address's password. The address may have no account.

        If the account has an unrevoked device with such a value, the attempt is counted for that device instead. A
        trust token that has expired does not count.
        """

    async def uncount(self, secret: attempt_limits.SecretKind, subject: bytes, attempt_limit: attempt_limits.AttemptLimit) -> None:
        """Take back a counted attempt, which was correct."""
