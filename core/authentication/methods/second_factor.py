"""A code of the second factor, of any kind (security J-8, M-1, M-2, M-3)."""

from dataclasses import dataclass, field, replace

from core.accounts import attempt_limits, mfa
from core.accounts.factors import codes
from core.accounts.model import attempt_limits as attempt_limits_model
from core.accounts.model.accounts import Account
from core.accounts.model.attempt_limits import SecretKind
from core.accounts.model.devices import PresentedDevice
from core.accounts.model.mfa import CodeWrong, FirstFactor, attempt_subject
from core.authentication.flow import flows
from core.authentication.flow.methods import Proved, record_failure
from core.authentication.flow.model import Flow
from core.authentication.model.identities import PendingIdentity
from core.authentication.model.login import MAX_CODE_ATTEMPTS, SERVICE_REFUSALS, LastCodeWrong, LoginFailure, PreAuthInvalid
from core.kernel.causes import Caller
from core.kernel.errors import Refusal, refuse
from core.kernel.proofs import Proof, first_method_of
from ports import Ports
from ports.storage import Transaction


@dataclass(frozen=True, slots=True)
class Code:
    """A code for the account whose first factor was proved in this flow.

    With `trusts_device`, the device can skip the second factor until the period that the user's organizations set is over.
    """

    code: str = field(repr=False)
    trusts_device: bool = False

    async def verify(self, ports: Ports, caller: Caller, flow: Flow, client: PresentedDevice) -> Proved:
        """Verify the code. Its flow has at least its id and its user.

        Raises: PreAuthInvalid, CodeMalformed, CodeWrong, LastCodeWrong, TooManyAttempts, ServiceNotFound.
        """
        codes.check_format(self.code)
        now, user_id = ports.clock.now(), flow.user_id or refuse(PreAuthInvalid)
        limit, subject = attempt_limits_model.attempt_limit(ports.policy, SecretKind.MFA), attempt_subject(user_id)
        # If the flow has ended, nothing is counted, and the response reveals nothing about the account.
        async with ports.storage.autocommit() as statements:
            attempt = await statements.flows.count_attempt(flow, MAX_CODE_ATTEMPTS, subject, limit, now) or refuse(PreAuthInvalid)
        # The request of an API client is in its token.
        stored, identity = replace(attempt.flow, request=flow.request), attempt.flow.identity
        first_method = first_method_of(stored.proofs) or ""
        if attempt.blocked_until is not None:
            await record_failure(
                ports, caller, LoginFailure.LOCKED, first_method, user_id, stored.application, blocked_until=attempt.blocked_until
            )
        attempt_limits_model.raise_if_locked(SecretKind.MFA, attempt.blocked_until, now)
        first = FirstFactor(stored.id, stored.browser_hash, user_id, stored.proofs_expire_at or now)

        async def refused(refusal: Refusal) -> None:
            if isinstance(refusal, CodeWrong) and await mfa.is_enabled(ports, user_id):
                await codes.log_failure(ports, caller, user_id)
                await record_failure(ports, caller, LoginFailure.MFA, first_method, user_id, stored.application)
                if attempt.flow.failures + 1 == MAX_CODE_ATTEMPTS:
                    raise LastCodeWrong from None
            elif isinstance(refusal, (CodeWrong, PreAuthInvalid, *SERVICE_REFUSALS)):  # the code was right, or may have been
                await attempt_limits.clear(ports, SecretKind.MFA, subject)
                if isinstance(refusal, CodeWrong):  # the second factor was switched off during this request
                    raise PreAuthInvalid from None

        try:
            verified = await codes.verify(ports, user_id, attempt.enrollment, self.code)
            stored = await flows.with_service(ports, stored)
        except Refusal as refusal:
            await refused(refusal)
            raise

        async def lock(tx: Transaction, person: Caller) -> tuple[Account, PendingIdentity | None]:
            if identity is not None:
                await tx.identities.lock_subject(identity.provider, identity.issuer, identity.subject)
            # Every operation that takes proofs away holds the lock on the account, so this sees its result.
            now = ports.clock.now()
            redeemed = verified.redeem(tx, person, first, now)
            await tx.send_deferred()
            account = await codes.accept(tx, redeemed.value or refuse(PreAuthInvalid), verified, now)
            return account if account.is_usable else refuse(PreAuthInvalid), identity

        return Proved(
            proof=Proof(verified.method, now),
            account=attempt.account,
            flow=stored,
            lock=lock,
            refused=refused,
            trusts_device=self.trusts_device,
        )
