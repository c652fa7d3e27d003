"""Reauthentication: the user of a session proves again that they are here, in the ways that are left to them (security A-12).

An open session is no proof for what outlives it. The user proves their presence with a password, an emailed code, or a sign-in at a
linked identity provider. If the account has a second factor, the user shows it too. The session stays the same, and
this proof becomes its last sign-in. Recent first factors by different methods stay beside it, because the user's
sign-in policies can ask for them.
"""

import hmac
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from uuid import UUID

from core.accounts import attempt_limits, factor_changes, relying_party, session_proofs
from core.accounts.factors import codes
from core.accounts.factors.codes import VerifiedCode
from core.accounts.model import accounts, email_queue, passkeys
from core.accounts.model import mfa as mfa_model
from core.accounts.model.attempt_limits import SecretKind, session_subject
from core.accounts.model.mfa import CodeWrong
from core.accounts.own_account import lock_own_account
from core.authentication import admissions, events
from core.authentication.flow.methods import record_failure
from core.authentication.identities import add_ticket
from core.authentication.methods import passkey
from core.authentication.methods.passkey import VerifiedPasskey
from core.authentication.model import identities, sessions
from core.authentication.model import login as login_model
from core.authentication.model.login import LoginFailure
from core.kernel import errors
from core.kernel.access import AccountGone
from core.kernel.callers import Person
from core.kernel.connections import ConnectionSlug
from core.kernel.proofs import Factor, Method, Proof, Strength, complete, first_method_of, first_proof
from core.kernel.sign_in_age import LastSignIn
from core.kernel.sign_in_policy.decision import Decision, stands_for_second
from core.kernel.sign_in_policy.rules import PROVIDER_PREFIX, Rule, Rules
from core.kernel.sign_in_policy.steps import takes_passkey_only
from core.kernel.values import digest
from ports import Ports, storage


async def load_next_options(ports: Ports, caller: Person) -> sessions.ReauthenticationOptions:
    """Return the ways in which the caller can prove that they are here, without ways that their sign-in policies refuse.

    If they just did, these are the ways that a policy still asks for. If the organization of their token requires a connection, return
    the ways that count beside a sign-in there.
    """
    own_way = await admissions.find_own_way(ports, caller)
    decision = own_way or await factor_changes.find_missing_sign_in(ports, caller, is_next=True)
    return await load_options(ports, caller, decision)


async def load_options(ports: Ports, caller: Person, decision: Decision | None = None) -> sessions.ReauthenticationOptions:
    """Return the ways in which the caller can prove that they are here, or with a decision the ways that meet its sign-in policy."""
    now = ports.clock.now()
    async with ports.storage.reading() as read:
        account = await read.accounts.by_id(caller.user_id) or errors.refuse(AccountGone)
        places, asking = await _find_places(read, caller, account)
        pending = await read.reauthentications.load(caller.session_id)
        status = await read.mfa.status(account.id) or errors.refuse(AccountGone)
        seconds = await session_proofs.find_recent_seconds(ports, read, caller.session_id, account, now)
        keys = (await relying_party.load_usable(ports, read, account.id))[1] if status.has_keys else []
        factors = account.factors if decision is None else (await relying_party.load_without_lost_keys(ports, read, account)).factors
    is_recent = has_recent_first_factor(ports, caller, now) if decision is None else _is_recent(ports, decision, now)
    needs_second = bool(account.second_factors)
    # A sign-in at a provider waits for the second factor, and counts for nothing if this was turned off since.
    is_waiting = needs_second and pending is not None and now - pending.at <= ports.policy.fresh_sign_in_ttl
    waiting = pending.provider if pending is not None and is_waiting else None
    # A provider that cannot ask its user again proves little where the password could, and no second factor follows.
    accepts_password = decision is None or decision.methods is None or Method.PASSWORD in decision.methods
    shows_user = account.password_hash is None or (decision is not None and needs_second and not seconds)
    takes_all = shows_user or not (accepts_password or _is_too_old(caller, decision, now))
    options = sessions.ReauthenticationOptions(
        needs_first_factor=not is_recent,
        password=account.password_hash is not None,
        email_code=account.email_verified_at is not None,
        passkey=any(key.kind is passkeys.PasskeyKind.PASSKEY for key in keys),
        security_key=any(key.kind is passkeys.PasskeyKind.SECURITY_KEY for key in keys),
        providers=tuple(place for place in places if takes_all or place.provider in asking),
        needs_second_factor=needs_second and not any(_is_accepted(second, decision) for second in seconds),
        second_methods=tuple(method for method in status.methods if method is not Method.PASSKEY or keys),
    )
    if decision is not None:
        meeting = _that_meet(options, decision, factors, waiting)
        if takes_all or decision.leads_to is not None or any((meeting.password, meeting.email_code, meeting.passkey, meeting.providers)):
            return meeting
        return replace(options, needs_first_factor=True, is_for_policy=False)  # the provider that cannot ask follows
    return replace(options, needs_first_factor=options.needs_first_factor and waiting is None)


def has_recent_first_factor(ports: Ports, caller: Person, now: datetime) -> bool:
    """Return whether the caller has just shown the account's own first factor, so that only the second factor may be missing."""
    if caller.restricted_to is not None or caller.sign_in is None:
        return False
    return caller.sign_in.is_younger_than(ports.policy.fresh_sign_in_ttl, now)


def _is_recent(ports: Ports, decision: Decision, now: datetime) -> bool:
    """Return whether the last first factor, or the sign-in at the required connection, is new enough."""
    if decision.connection is not None and decision.max_age is None and not decision.breaks_glass:
        return decision.rule is not Rule.CONNECTION
    return decision.first_at is not None and now - decision.first_at <= ports.policy.fresh_sign_in_ttl


def _is_too_old(caller: Person, decision: Decision | None, now: datetime) -> bool:
    """Return whether the session needs a newer sign-in, beside the method that the decision of a sign-in policy asks for."""
    if caller.restricted_to is not None or caller.sign_in is None:
        return True
    return decision is not None and decision.max_age is not None and not caller.sign_in.is_younger_than(decision.max_age, now)


def _is_accepted(second: Proof, decision: Decision | None) -> bool:
    """Return whether a second factor in the session counts for a sign-in policy's decision, if any."""
    if decision is None or decision.required <= Strength.ONE or second.method is Method.BACKUP_CODE:
        return True
    return Rules(methods=decision.methods).may_use(second.method)


def _that_meet(
    options: sessions.ReauthenticationOptions, decision: Decision, factors: Collection[Factor], waiting: ConnectionSlug | None
) -> sessions.ReauthenticationOptions:
    """Return the ways that are enough for the decision of a sign-in policy. A first factor shows that the user is here now.

    `factors` are the account's factors. After a sign-in at the `waiting` provider, only the second factor is missing, if the policy accepts
    this provider.
    """
    rules = Rules(methods=decision.methods)
    has_backup = stands_for_second(rules, factors)
    second_methods = tuple(
        method for method in options.second_methods if (has_backup if method is Method.BACKUP_CODE else rules.may_use(method))
    )
    if decision.leads_to is not None:  # a sign-in there alone makes the session newer
        return replace(options, needs_first_factor=True, password=False, email_code=False, passkey=False, providers=())
    # Without an allowed second factor, only a passkey gives two factors.
    by_passkey_only = takes_passkey_only(decision, has_second=bool(second_methods))
    allowed, first_ways = decision.methods, () if by_passkey_only else decision.methods
    if decision.required <= Strength.ONE:  # the account asks for its second factor, and the policy does not
        second_methods = options.second_methods
    of_providers = None if first_ways is None else decision.first_ways.intersection(first_ways)
    if decision.breaks_glass or decision.asks_own or decision.rule is Rule.CONNECTION:  # they prove nothing here
        of_providers = frozenset()
    is_next = waiting is not None and (of_providers is None or PROVIDER_PREFIX + waiting in of_providers)
    asks_again = options.needs_first_factor or decision.rule not in (Rule.SECOND_FACTOR, Rule.DEVICE_TRUST) or not second_methods
    meeting = replace(
        options,
        needs_first_factor=asks_again and not is_next,
        second_methods=second_methods,
        password=options.password and (first_ways is None or Method.PASSWORD in first_ways),
        email_code=options.email_code and not decision.asks_own and (first_ways is None or Method.EMAIL in first_ways),
        passkey=options.passkey and (allowed is None or Method.PASSKEY in allowed),
        connection=decision.asks_own or first_ways is None or Method.CONNECTION in first_ways,
        providers=tuple(place for place in options.providers if of_providers is None or PROVIDER_PREFIX + place.provider in of_providers),
    )
    others = (meeting.password, meeting.email_code, meeting.connection, meeting.providers)
    if meeting.needs_first_factor and not any(others):  # a passkey stands for all factors
        return replace(meeting, needs_second_factor=False, second_methods=())
    return meeting


async def _find_places(
    read: storage.Reading | storage.Transaction, caller: Person, account: accounts.Account
) -> tuple[Sequence[identities.LinkedPlace], frozenset[ConnectionSlug]]:
    """Return where a sign-in can prove that the caller is here, with a place for every linked identity provider.

    The second value has the providers that can authenticate the user again.

    The place is the account itself, or the application that lends its credentials, as at a sign-in to it. The user comes back in the
    browser of the session. A session that is good in one organization only names no applications outside it.
    """
    if await read.session_sign_ins.browser_of(caller.session_id, account.id) is None:
        return (), frozenset()
    listed, places = read.oauth_credentials.list_connections(), dict[ConnectionSlug, identities.LinkedPlace]()
    linked = await read.identities.list_places(account.id)
    known = {each.slug: each for each in await listed}
    for place in linked:
        is_elsewhere = caller.restricted_to is not None and place.org_id not in (None, caller.restricted_to)
        is_offered = place.provider in known and (place.has_credentials or known[place.provider].settings.client_id is not None)
        if is_offered and not is_elsewhere:
            places.setdefault(place.provider, place)
    return [places[slug] for slug in known if slug in places], frozenset(slug for slug in known if known[slug].can_reauthenticate)


async def send_email_code(ports: Ports, caller: Person) -> None:
    """Email a code to the caller's verified address.

    The code works once, in this session only, and replaces any earlier code.

    Raises: NoVerifiedAddress; Limited if too many hashes are queued.
    """
    now, code, salt = ports.clock.now(), login_model.new_code(), ports.passwords.new_salt()
    code_hash = await ports.passwords.derive(code, salt)
    async with ports.storage.transaction(by=caller) as tx:
        account = await lock_own_account(tx, caller, now)
        if account.email_verified_at is None:
            raise sessions.NoVerifiedAddress
        await tx.reauthentications.save_code(
            caller.session_id, sessions.EmailedCode(digest(account.email), salt, code_hash, now + sessions.CODE_TTL)
        )
        await tx.email_queue.add(email_queue.new_email(email_queue.EmailKind.REAUTHENTICATION, account.email, now, token=code))


async def start_at_provider(ports: Ports, caller: Person, options: sessions.ReauthenticationOptions, provider_name: str, after: str) -> str:
    """Return a ticket with which the caller's browser signs in at this identity provider again, and continues at `after`.

    The `options` name the providers that are offered now. A silent sign-in elsewhere would make the session newer.

    Raises: ProviderUnknown, ProviderNotLinked, AccountGone, SessionEnded.
    """
    provider, now = identities.parse_provider(provider_name), ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        await lock_own_account(tx, caller, now)
        place = next((place for place in options.providers if place.provider == provider), None) or errors.refuse(
            sessions.ProviderNotLinked
        )
        return await add_ticket(ports, tx, caller, place, now, after=after)


async def complete_at_provider(
    ports: Ports, tx: storage.Transaction, account: accounts.Account, session_id: UUID, provider: ConnectionSlug, proof: Proof
) -> None:
    """Store a sign-in at an identity provider in the session of a locked account.

    If the account has a second factor, it must follow, or the user proved it in this session a few minutes ago.
    """
    if not account.second_factors or await session_proofs.find_recent_seconds(ports, tx, session_id, account, proof.at):
        await session_proofs.renew(ports, tx, session_id, account, (proof,), proof.at)
        tx.record(events.reauthenticated(account.id, provider))
    else:
        await tx.reauthentications.save_provider(session_id, provider, proof.at)


async def start_passkey(
    ports: Ports, caller: Person, options: sessions.ReauthenticationOptions, only: passkeys.PasskeyKind | None = None
) -> tuple[passkeys.Json, str]:
    """Return the options with which the caller's browser uses a passkey, or a security key if the `options` accept it.

    With them comes the name of these keys for users, as `name_kinds` returns it. `only`: keys of another kind do not count.
    Without a first factor, only a passkey is enough.
    """
    with_keys = Method.PASSKEY in options.second_methods
    async with ports.storage.reading() as read:
        party, own = await relying_party.load_usable(ports, read, caller.user_id)
    own = [each for each in own if (with_keys or each.kind is passkeys.PasskeyKind.PASSKEY) and only in (None, each.kind)]
    challenge = ports.passkeys.new_challenge(_binding(caller), ports.clock.now())
    # A security key may be unable to verify its user.
    verification = all(each.kind is passkeys.PasskeyKind.PASSKEY for each in own)
    if not own:
        raise passkeys.NoPasskey
    request = ports.passkeys.request_options(party or errors.refuse(passkeys.NoPasskey), challenge, own, verification=verification)
    return request, passkeys.name_kinds(each.kind for each in own)


def _binding(caller: Person) -> passkeys.ChallengeBinding:
    return passkeys.ChallengeBinding(passkeys.Ceremony.REAUTHENTICATE, caller.session_id.bytes)


async def reauthenticate(ports: Ports, caller: Person, proof: sessions.ReauthenticationProof) -> LastSignIn:
    """Verify all factors in the caller's account, and return the session's new last sign-in.

    A factor that was verified in this session a few minutes ago is not needed again, but at least one factor is. A
    right factor changes nothing while a further factor is missing or wrong.

    A passkey that verified its user stands for all factors. Otherwise the passkey is the second factor. A first factor
    beside it counts too, because a sign-in policy can ask for its method.

    Raises: FirstFactorMissing; PasswordWrong, EmailedCodeWrong, CodeWrong, which count as failed
    attempts; PasskeyUnknown, PasskeyRefused, PasskeyChanged; SecondFactorMissing, CodeMalformed,
    TooManyAttempts; Limited if too many hashes are queued.
    """
    now = ports.clock.now()
    if proof.code is not None:
        codes.check_format(proof.code)
    has_second = False
    async with ports.storage.reading() as read:
        account = await read.accounts.by_id(caller.user_id) or errors.refuse(AccountGone)
        if proof.code is None:
            has_second = bool(await session_proofs.find_recent_seconds(ports, read, caller.session_id, account, now))
    key = None if proof.passkey is None else await _verify_key(ports, caller, account, proof.passkey)
    is_complete = key is not None and not key.proof.is_second
    first = await _verify_first_factor(ports, caller, account, proof, now, is_needed=not is_complete)
    code = None if key is not None or has_second else await _verify_second_factor(ports, caller, account, proof.code)
    async with ports.storage.transaction(by=caller) as tx:
        locked = await lock_own_account(tx, caller, now)
        # A reset, a change of the address or a new second factor can have committed since.
        if (locked.password_hash, locked.email, locked.second_factors) != (account.password_hash, account.email, account.second_factors):
            raise errors.SessionEnded
        if key is not None:
            await key.redeem(tx)
        if first.code_hash is not None and not await tx.reauthentications.consume_code(caller.session_id, first.code_hash, now):
            raise sessions.EmailedCodeWrong
        if code is not None:
            await codes.use(tx, caller, account, code, now)
        await tx.reauthentications.remove(caller.session_id)
        second = key.proof if key is not None else None if code is None else Proof(code.method, now)
        if is_complete and first.proof is None:
            first, second = _FirstFactor(second), None
        await _store(ports, tx, caller, account, first.proof, second, now)
        context = await tx.session_contexts.load(caller.session_id, account.id, None, now) or errors.refuse(errors.SessionEnded)
    return context.sign_in or errors.refuse(errors.SessionEnded)


async def _store(
    ports: Ports,
    tx: storage.Transaction,
    caller: Person,
    account: accounts.Account,
    first: Proof | None,
    second: Proof | None,
    now: datetime,
) -> None:
    """Store the proofs in the session of a locked account. Without `first`, the last sign-in's first factor stays."""
    if first is not None:
        proofs = (first,) if second is None else complete(first, second)
        await session_proofs.renew(ports, tx, caller.session_id, account, proofs, now)
    elif second is not None:
        await session_proofs.add_second(tx, caller.session_id, account, second)
    tx.record(events.reauthenticated(account.id, None if first is None else first_method_of((first,))))


@dataclass(frozen=True, slots=True)
class _FirstFactor:
    """A verified first factor."""

    proof: Proof | None  # None: the session's last sign-in has it
    code_hash: bytes | None = field(default=None, repr=False)  # of the emailed code, which is not used up yet


async def _verify_key(ports: Ports, caller: Person, account: accounts.Account, credential: passkeys.Json) -> VerifiedPasskey:
    """Verify an answer from the caller's passkey or security key. If it can be a second factor, it can lack user verification."""
    verification = not account.second_factors and account.security_key_count == 0
    return await passkey.verify(ports, caller, credential, _binding(caller), user_id=account.id, verification=verification)


async def _verify_first_factor(
    ports: Ports, caller: Person, account: accounts.Account, proof: sessions.ReauthenticationProof, now: datetime, *, is_needed: bool
) -> _FirstFactor:
    """Return the first factor from the request, from a provider's sign-in that waits for the second factor, or from the session.

    Raises: FirstFactorMissing if a factor is needed; the errors for the password and the emailed code.
    """
    if proof.password is not None:
        await _verify_password(ports, caller, account, proof.password)
        return _FirstFactor(Proof(Method.PASSWORD, now))
    if proof.email_code is not None:
        return _FirstFactor(Proof(Method.EMAIL, now), await _verify_emailed_code(ports, caller, account, proof.email_code, now))
    has_second = proof.code is not None or proof.passkey is not None
    if has_second and account.second_factors:
        async with ports.storage.reading() as read:
            pending = await read.reauthentications.load(caller.session_id)
            is_at_connection = await session_proofs.has_connection(read, caller.session_id, account)
        if pending is not None and now - pending.at <= ports.policy.fresh_sign_in_ttl:
            return _FirstFactor(first_proof(pending.provider, pending.at))
        if is_at_connection or has_recent_first_factor(ports, caller, now):
            return _FirstFactor(None)
    if not is_needed:
        return _FirstFactor(None)
    raise sessions.FirstFactorMissing


async def _verify_password(ports: Ports, caller: Person, account: accounts.Account, password: str) -> None:
    """Raises: PasswordWrong, TooManyAttempts; Limited if too many hashes are queued."""
    accounts.check_password_length(password)
    subject = session_subject(caller.session_id)
    await attempt_limits.count_attempt(ports, SecretKind.PASSWORD, subject)
    if not await ports.passwords.verify(account.password_hash, password) or account.password_hash is None:
        await record_failure(ports, caller, LoginFailure.CREDENTIALS, Method.PASSWORD, account.id)
        raise sessions.PasswordWrong
    await attempt_limits.clear(ports, SecretKind.PASSWORD, subject)


async def _verify_emailed_code(ports: Ports, caller: Person, account: accounts.Account, text: str, now: datetime) -> bytes:
    """Return the hash of the right code.

    Codes are counted with passwords. Otherwise a thief of the session could ask for new codes, and guess on.

    Raises: EmailCodeMalformed, EmailedCodeWrong, TooManyAttempts; Limited if too many hashes are queued.
    """
    code, subject = login_model.normalize_code(text), session_subject(caller.session_id)
    await attempt_limits.count_attempt(ports, SecretKind.PASSWORD, subject)
    async with ports.storage.autocommit() as statements:
        emailed = await statements.reauthentications.count_code_attempt(caller.session_id, sessions.MAX_CODE_ATTEMPTS, now)
    if emailed is not None and emailed.address_hash == digest(account.email):  # the address has not changed since
        code_hash = await ports.passwords.derive(code, emailed.salt)
        if hmac.compare_digest(code_hash, emailed.code_hash):
            await attempt_limits.clear(ports, SecretKind.PASSWORD, subject)
            return code_hash
    await record_failure(ports, caller, LoginFailure.EMAIL_CODE, Method.EMAIL, account.id)
    raise sessions.EmailedCodeWrong


async def _verify_second_factor(ports: Ports, caller: Person, account: accounts.Account, code: str | None) -> VerifiedCode | None:
    """Return the verified code, or None if the account has no second factor. The code is not used up yet.

    Raises: SecondFactorMissing, CodeWrong, TooManyAttempts; Limited if too many hashes are queued.
    """
    if not account.second_factors:
        return None
    if code is None:
        raise sessions.SecondFactorMissing
    await attempt_limits.count_attempt(ports, SecretKind.MFA, mfa_model.attempt_subject(account.id))
    async with ports.storage.reading() as read:
        enrollment = await read.mfa.enrollment(account.id)
    try:
        return await codes.verify(ports, account.id, enrollment, code)
    except CodeWrong:
        await codes.log_failure(ports, caller, account.id)
        await record_failure(ports, caller, LoginFailure.MFA, Method.PASSWORD, account.id)
        raise
