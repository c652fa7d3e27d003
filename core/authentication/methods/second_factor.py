"""The second factor in a sign-in: any code that is enough, or a passkey or security key (security J-8, M-1, M-2, M-3, PK-10)."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from uuid import UUID

from core.accounts import attempt_limits, devices, mfa, relying_party
from core.accounts.factors import codes
from core.accounts.model import attempt_limits as attempt_limits_model
from core.accounts.model.accounts import Account
from core.accounts.model.attempt_limits import SecretKind
from core.accounts.model.devices import PresentedDevice
from core.accounts.model.mfa import CodeWrong, FirstFactor, RedeemedCode, attempt_subject
from core.accounts.model.passkeys import Ceremony, ChallengeBinding, Json, PasskeyKind, PasskeyRefused, name_kinds
from core.authentication.flow import flows
from core.authentication.flow.facts import NO_NEEDS, ApplicationNeeds, SignInQuery, may_have_policy
from core.authentication.flow.methods import Proved, SendBehind, record_failure
from core.authentication.flow.model import CodeAttempt, Flow
from core.authentication.methods import passkey
from core.authentication.model import login
from core.authentication.model.identities import PendingIdentity
from core.kernel import errors, judgement, proofs
from core.kernel.causes import Caller
from core.kernel.display import PRODUCT
from core.kernel.sign_in_policy.decision import Decision
from core.kernel.sign_in_policy.steps import Start, step_up_to
from ports import Ports
from ports.storage import Transaction


@dataclass(frozen=True, slots=True)
class _RightAnswer:
    """A right answer, which is not used up yet. `redeem` uses it up with the next statement, and `accept` gets the result."""

    proof: proofs.Proof
    redeem: Callable[[Transaction, Caller, FirstFactor, datetime], Awaitable[RedeemedCode | None]]
    accept: Callable[[Transaction, RedeemedCode, datetime], Awaitable[Account]]


Check = Callable[[CodeAttempt, datetime], Awaitable[_RightAnswer]]


async def load_options(
    ports: Ports, caller: Caller, flow: Flow, client: PresentedDevice, needs: ApplicationNeeds = NO_NEEDS
) -> login.SecondFactorOptions:
    """Return the second factors that are enough for the application. The flow has a first factor."""
    user_id = flow.user_id or errors.refuse(login.PreAuthInvalid)
    async with ports.storage.reading() as read:
        status = await read.mfa.status(user_id) or errors.refuse(login.PreAuthInvalid)
        party, keys = await relying_party.load_usable(ports, read, user_id) if proofs.Method.PASSKEY in status.methods else (None, [])
    now, passkeys = ports.clock.now(), [key for key in keys if key.kind is PasskeyKind.PASSKEY]
    full = [proofs.Proof(proofs.Method.PASSKEY, now, user_verified=True, phishing_resistant=True)] if passkeys else []
    present = [proofs.Proof(method, now) for method in status.methods if method is not proofs.Method.PASSKEY or keys]
    seconds, left_out_for = await find_accepted_factors(ports, caller, flow, client, present + full, needs)
    accepted = {second.method for second in seconds}
    methods = tuple(method for method in status.methods if method in accepted)
    if party is None or proofs.Method.PASSKEY not in accepted:
        return login.SecondFactorOptions(methods, None, left_out_for)
    verification = seconds == full  # a key that does not verify its user is not enough
    challenge = ports.passkeys.new_challenge(_binding(flow), now)
    taken = passkeys if verification else keys
    options = ports.passkeys.request_options(party, challenge, taken, verification=verification)
    return login.SecondFactorOptions(methods, options, left_out_for, name_kinds(key.kind for key in taken))


def _binding(flow: Flow) -> ChallengeBinding:
    return ChallengeBinding(Ceremony.SECOND_FACTOR, flow.id.bytes)


@dataclass(frozen=True, slots=True)
class Code:
    """A code, in a flow with the first factor of its account.

    With `trusts_device`, the device can skip the second factor until the period that the user's organizations set is over.
    """

    code: str = field(repr=False)
    trusts_device: bool = False

    async def verify(self, ports: Ports, caller: Caller, flow: Flow, client: PresentedDevice) -> Proved:
        """Verify the code. Its flow has at least its id and its user.

        Raises: CodeMalformed, CodeWrong, LastCodeWrong; the errors of `_verify`.
        """
        codes.check_format(self.code)

        async def check(attempt: CodeAttempt, now: datetime) -> _RightAnswer:
            code = await codes.verify(ports, attempt.account.id, attempt.enrollment, self.code)
            return _RightAnswer(proofs.Proof(code.method, now), code.redeem, partial(codes.accept, code))

        return await _verify(ports, caller, flow, check, trusts_device=self.trusts_device)


@dataclass(frozen=True, slots=True)
class SecondPasskey:
    """The answer from a passkey or security key, in a flow where the account has proved its first factor. `trusts_device` as in `Code`."""

    credential: Json = field(repr=False)
    trusts_device: bool = False

    async def verify(self, ports: Ports, caller: Caller, flow: Flow, client: PresentedDevice) -> Proved:
        """Verify the answer. Raises: PasskeyUnknown, PasskeyRefused, PasskeyChanged; the errors of `_verify`."""

        async def check(attempt: CodeAttempt, _: datetime) -> _RightAnswer:
            account, binding = attempt.account, _binding(flow)
            if not account.second_factors:  # they were turned off, and a first factor is enough
                raise login.PreAuthInvalid
            key = await passkey.verify(ports, caller, self.credential, binding, user_id=account.id, flow=attempt.flow, verification=False)
            return _RightAnswer(key.proof, key.redeem_second, key.accept_second)

        return await _verify(ports, caller, flow, check, trusts_device=self.trusts_device)


def to_method(code: str | None, credential: Json | None, *, trusts_device: bool) -> Code | SecondPasskey:
    """Return the answer of a client that sent a code or a credential."""
    if code is not None and credential is None:
        return Code(code, trusts_device)
    if credential is not None and code is None:
        return SecondPasskey(credential, trusts_device)
    raise login.OneSecondFactor


async def _count_attempt(ports: Ports, caller: Caller, flow: Flow, user_id: UUID, now: datetime) -> CodeAttempt:
    """Count an attempt at the second factor of an open flow.

    If the flow has ended, nothing is counted, and the response reveals nothing about the account.
    """
    limit, subject = attempt_limits_model.attempt_limit(ports.policy, SecretKind.MFA), attempt_subject(user_id)
    async with ports.storage.autocommit() as statements:
        attempt = await statements.flows.count_attempt(flow, login.MAX_CODE_ATTEMPTS, subject, limit, now) or errors.refuse(
            login.PreAuthInvalid
        )
    if (ended := attempt.blocked_until) is not None:
        used, application = proofs.first_method_of(attempt.flow.proofs) or "", attempt.flow.application
        await record_failure(ports, caller, login.LoginFailure.LOCKED, used, user_id, application, blocked_until=ended)
    attempt_limits_model.raise_if_locked(SecretKind.MFA, attempt.blocked_until, now)
    return attempt


async def _verify(ports: Ports, caller: Caller, flow: Flow, check: Check, *, trusts_device: bool) -> Proved:
    """Count an attempt at the second factor, and check it.

    Raises: PreAuthInvalid, TooManyAttempts, ServiceNotFound; the errors of `check`.
    """
    now, user_id = ports.clock.now(), flow.user_id or errors.refuse(login.PreAuthInvalid)
    attempt, subject = await _count_attempt(ports, caller, flow, user_id, now), attempt_subject(user_id)
    # The request of an API client is in its token.
    stored, identity = replace(attempt.flow, request=flow.request), attempt.flow.identity
    first_method = proofs.first_method_of(stored.proofs) or ""
    first = FirstFactor(stored.id, stored.browser_hash, user_id, stored.proofs_expire_at or now)

    async def refused(refusal: errors.Refusal) -> None:
        is_wrong = isinstance(refusal, (CodeWrong, PasskeyRefused))
        if is_wrong and await mfa.is_enabled(ports, user_id):
            await codes.log_failure(ports, caller, user_id)
            if isinstance(refusal, CodeWrong):  # `passkey.verify` records its own
                await record_failure(ports, caller, login.LoginFailure.MFA, first_method, user_id, stored.application)
                if attempt.flow.failures + 1 == login.MAX_CODE_ATTEMPTS:
                    raise login.LastCodeWrong from None
        elif is_wrong or isinstance(refusal, (login.PreAuthInvalid, *login.SERVICE_REFUSALS)):  # the code was right, or may have been
            await attempt_limits.clear(ports, SecretKind.MFA, subject)
            if is_wrong:  # the second factor was switched off during this request
                raise login.PreAuthInvalid from None

    try:
        answer = await check(attempt, now)
        stored = await flows.with_service(ports, stored)
    except errors.Refusal as refusal:
        await refused(refusal)
        raise

    async def lock(tx: Transaction, person: Caller, send_behind: SendBehind) -> tuple[Account, PendingIdentity | None]:
        if identity is not None:
            await tx.identities.lock_subject(identity.provider, identity.issuer, identity.subject)
        # Every operation that takes proofs away holds the lock on the account, so this sees its result.
        now = ports.clock.now()
        redeemed = answer.redeem(tx, person, first, now)
        send_behind(user_id)
        account = await answer.accept(tx, await redeemed or errors.refuse(login.PreAuthInvalid), now)
        return account if account.is_usable else errors.refuse(login.PreAuthInvalid), identity

    return Proved(
        proof=answer.proof,
        account=attempt.account,
        flow=stored,
        lock=lock,
        refused=refused,
        continues=True,
        is_one_time=True,
        trusts_device=trusts_device,
    )


async def find_accepted_factors(
    ports: Ports, caller: Caller, flow: Flow, client: PresentedDevice, seconds: Sequence[proofs.Proof], needs: ApplicationNeeds
) -> tuple[Sequence[proofs.Proof], Decision | None]:
    """Return the second-factor proofs that let the user in, and the decision that leaves some proofs out, if any.

    If none is enough, return all: the user then sets up another factor.
    """
    if not flow.proofs:
        return seconds, None
    first = replace(flow.proofs[0], at=ports.clock.now())
    reason = step_up_to(needs.required, needs.name or PRODUCT)
    enough = [second for second in seconds if proofs.strength_of(proofs.complete(first, second)) >= needs.required] or seconds
    facts = await _load_facts(ports, caller, flow, client, first, needs) if needs.has_sign_in_policy else None
    if facts is None:
        return enough, reason if len(enough) < len(seconds) else None
    met = [second for second in enough if isinstance(judgement.judge(replace(facts, proofs=proofs.complete(first, second))), Start)]
    if 0 < len(met) < len(enough):
        return met, judgement.judge(facts).decision
    return enough, reason if len(enough) < len(seconds) else None


async def _load_facts(
    ports: Ports, caller: Caller, flow: Flow, client: PresentedDevice, first: proofs.Proof, needs: ApplicationNeeds
) -> judgement.SignInFacts | None:
    """Return the facts about this sign-in, with its risk on this device.

    None: there is no policy, the first factor alone meets the policy, or the user may not use the application and learns nothing about it.
    """
    if flow.user_id is None or not may_have_policy(flow):
        return None
    now, fingerprint = ports.clock.now(), devices.fingerprint(ports, caller, client)
    async with ports.storage.transaction(by=caller, in_session=False) as tx:  # it stores nothing, so the account is not locked
        query = SignInQuery(ports, tx, flow, fingerprint, now, first.connection, needs.external_for)
        device = await query.load(flow.user_id)
        if query.subject is None:
            return None
        providers = () if flow.identity is None else (flow.identity.provider,)
        facts = replace(query.facts(query.subject.account, device, (first,), providers), asks_policy=True, factors=())
        if isinstance(judgement.judge(replace(facts, may_use=True)), Start):
            return None
        facts = await query.with_access(facts, flow.user_id)
    return facts if facts.may_use else None
