"""Sign-in with an email address and a password."""

from dataclasses import dataclass, field

from core.accounts import attempt_limits
from core.accounts.model import accounts, devices
from core.accounts.model import attempt_limits as attempt_limits_model
from core.accounts.model.attempt_limits import SecretKind
from core.accounts.model.devices import PresentedDevice
from core.authentication.flow import methods
from core.authentication.flow.model import Flow
from core.authentication.model import login
from core.kernel import errors, proofs
from core.kernel.causes import Caller
from core.kernel.values import Email
from ports import Ports
from ports.storage import Transaction


@dataclass(frozen=True, slots=True)
class Password:
    """The email address and the password of an account.

    An unknown address, an account that cannot sign in and a wrong password give the same response after the same work
    (security B-1, B-2). Wrong passwords from elsewhere do not lock out a device in which the account has signed in
    before (security A-3).
    """

    email: Email
    password: str = field(repr=False)

    async def verify(self, ports: Ports, caller: Caller, flow: Flow, client: PresentedDevice) -> methods.Proved:
        """Verify the password. Without a usable account, the same work is done (security B-2).

        Raises: CredentialsInvalid, EmailNotVerified, TooManyAttempts; Limited if too many passwords wait to be hashed.
        """
        accounts.check_password_length(self.password)
        now, kind = ports.clock.now(), SecretKind.PASSWORD
        limit = attempt_limits_model.attempt_limit(ports.policy, kind)
        async with ports.storage.autocommit() as statements:
            attempt = await statements.attempt_limits.count_password_attempt(self.email, devices.known_by(client), limit, now)
        account = attempt.account
        user_id = None if account is None else account.id
        if attempt.blocked_until is not None:
            await methods.record_failure(
                ports,
                caller,
                login.LoginFailure.LOCKED,
                proofs.Method.PASSWORD,
                user_id,
                flow.application,
                blocked_until=attempt.blocked_until,
            )
        attempt_limits_model.raise_if_locked(kind, attempt.blocked_until, now)
        usable = account if account is not None and account.is_usable and account.password_hash is not None else None
        is_right = await ports.passwords.verify(usable.password_hash if usable else None, self.password)
        if usable is None or not is_right:
            reason = login.LoginFailure.CREDENTIALS if account is None or account.is_usable else login.LoginFailure.CLOSED
            await methods.record_failure(ports, caller, reason, proofs.Method.PASSWORD, user_id, flow.application)
            raise login.CredentialsInvalid
        if usable.email_verified_at is None:
            await methods.record_failure(ports, caller, login.LoginFailure.UNVERIFIED, proofs.Method.PASSWORD, usable.id, flow.application)
            await attempt_limits.clear(ports, kind, attempt.subject)  # the password was right
            raise login.EmailNotVerified
        password_hash = usable.password_hash or ""
        new_hash = await ports.passwords.hash(self.password) if ports.passwords.is_outdated(password_hash) else None

        async def lock(tx: Transaction, _: Caller, send_behind: methods.SendBehind) -> tuple[accounts.Account, None]:
            # The account is read again under its lock: a password reset or a deactivation can have
            # committed during the hash.
            locked = tx.accounts.lock_for_login(usable.id, password_hash)
            send_behind(usable.id)
            account = await locked or errors.refuse(login.CredentialsInvalid)
            if new_hash is not None:
                await tx.accounts.rehash_password(account.id, new_hash, ports.clock.now())
            await tx.attempt_limits.clear(kind, attempt.subject)
            return account, None

        async def refused(refusal: errors.Refusal) -> None:
            if isinstance(refusal, login.SERVICE_REFUSALS):  # the password was right
                await attempt_limits.clear(ports, kind, attempt.subject)

        return methods.Proved(proof=proofs.Proof(proofs.Method.PASSWORD, now), account=usable, lock=lock, refused=refused)
