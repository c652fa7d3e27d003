"""The checks before users change their account's factors.

The user shows a passkey if the account has any (security PK-12). No way in becomes weaker than the sign-in policies that they must meet
(security PK-8).
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from core.accounts import relying_party
from core.accounts.factors import own_proofs
from core.accounts.model import accounts
from core.accounts.own_account import lock_own_account
from core.kernel import access, sign_in_age
from core.kernel.callers import Person
from core.kernel.errors import refuse
from core.kernel.policy import Policy
from core.kernel.proofs import Method, Proof, Proofs, Strength, recent, seen_in, strength_of
from core.kernel.sign_in_policy import decision, explanations
from core.kernel.sign_in_policy.decision import find_loss, find_step_up
from core.kernel.sign_in_policy.rules import PolicyOfUser
from ports import Ports, storage

# A policy of the user, and a situation in which the account has to meet it.
Demand = tuple[tuple[UUID | None, UUID | None, bool], decision.Situation]


@dataclass(frozen=True, slots=True)
class Demands:
    """The sign-in policies that a user must meet at the places that they use, now or later."""

    policies: Sequence[PolicyOfUser]
    settings: Policy  # of the installation
    now: datetime  # UTC

    @property
    def email_is_on(self) -> bool:
        """Whether any place offers sign-in by email."""
        return any(self.settings.offers_email(each.email_sign_in) for each in self.policies)

    def met_by(self, account: accounts.Account, without: Collection[str] = ()) -> frozenset[Demand]:
        """Return the demands that an account with these factors can meet. It is without lost keys.

        `without` are identity providers with which the account is no longer linked. A password always counts, because the mailbox alone can
        set a password.
        """
        account = account if account.password_hash is not None else replace(account, password_hash="set by a reset")  # noqa: S106
        return frozenset(
            (_key_of(each), situation)
            for each in self.policies
            for situation in decision.met_situations(each.policy, self._facts(each, account, (), without))
        )

    def are_met_by(self, account: accounts.Account) -> bool:
        """Return whether an account with these factors can meet all policies in every situation."""
        demands = {(_key_of(each), situation) for each in self.policies for situation in decision.situations(each.policy, self.now)}
        return self.met_by(account) == demands

    def are_met_by_one(self, account: accounts.Account) -> bool:
        """Return whether the account could meet all policies in every situation with an app or a passkey as its only further factor."""
        bare = replace(account, mfa_enabled_at=None, passkey_count=0, security_key_count=0, passkey_second_at=None)
        return any(map(self.are_met_by, (replace(bare, mfa_enabled_at=self.now), replace(bare, passkey_count=1))))

    def list_step_ups(self, account: accounts.Account, proofs: Proofs) -> list[decision.Decision]:
        """Return a further sign-in for every policy that the proofs do not meet: the strongest that the account can do."""
        steps = (find_step_up(each.policy, self._facts(each, account, proofs)) for each in self.policies)
        return [step for step in steps if step is not None]

    def find_step_up(self, account: accounts.Account, proofs: Proofs) -> decision.Decision | None:
        """Return the strongest further sign-in of `list_step_ups`, or None if the proofs meet all policies."""
        return max(self.list_step_ups(account, proofs), key=decision.strictness, default=None)

    def for_break_glass(self, org_id: UUID | None = None) -> "Demands":
        """Return the demands of organizations that require a connection and list the user for break glass.

        `org_id`: only this organization.
        """
        policies = [each for each in self.policies if each.is_for_break_glass and org_id in (None, each.policy.org_id)]
        return replace(self, policies=policies)

    def find_refused_loss(
        self, policy: PolicyOfUser, before: accounts.Account, left: accounts.Account, without: Collection[str]
    ) -> Strength | None:
        """Return the strength that this policy asks for if its user may not do without it, and the account no longer reaches it.

        For an organization, that is the strength that its policy in force asks of every sign-in. For break glass, application policies
        count, too, at any time and risk: otherwise a password alone could add a factor later, and open the organization.
        """
        if policy.is_for_break_glass:
            losses = (
                replace(self, now=moment.at).find_loss(policy, before, left, without, risk_is_high=True)
                for moment in policy.policy.moments(self.now)
            )
            return next((loss for loss in losses if loss is not None), None)
        return None if policy.service_id is not None else self.find_loss(policy, before, left, without, risk_is_high=False)

    def find_loss(
        self, policy: PolicyOfUser, before: accounts.Account, left: accounts.Account, without: Collection[str], *, risk_is_high: bool
    ) -> Strength | None:
        """Return the strength that this policy asks for and the account no longer reaches, as `decision.find_loss` does."""
        facts = self._facts(policy, before, ()), self._facts(policy, left, (), without)
        return find_loss(policy.policy, *(replace(each, risk_is_high=risk_is_high) for each in facts))

    def _facts(
        self, policy: PolicyOfUser, account: accounts.Account, proofs: Proofs, without: Collection[str] = ()
    ) -> decision.PolicyFacts:
        """Return the facts about a sign-in to this account, apart from its risk, age, device and network."""
        email_is_on = self.settings.offers_email(policy.email_sign_in)
        return decision.PolicyFacts(
            now=self.now,
            proofs=proofs,
            factors=account.factors,
            first_ways=account.first_ways(policy.providers.difference(without), email_is_on=email_is_on),
            is_admin=policy.is_admin,
        )


def _key_of(policy: PolicyOfUser) -> tuple[UUID | None, UUID | None, bool]:
    return policy.policy.org_id, policy.service_id, policy.is_of_settings


async def load_demands(ports: Ports, read: storage.Reading | storage.Transaction, user_id: UUID, now: datetime) -> Demands:
    """Return the user's sign-in policies."""
    return Demands(await read.sign_in_policies.anywhere(user_id, None), ports.policy, now)


async def lock_account(ports: Ports, tx: storage.Transaction, caller: Person, now: datetime) -> accounts.Account:
    """Lock the caller's account before its factors change."""
    account = await lock_own_account(tx, caller, now)
    await _require_accepted_sign_in(ports, tx, caller, account, now)
    return account


async def _require_accepted_sign_in(
    ports: Ports, tx: storage.Transaction, caller: Person, account: accounts.Account, now: datetime, *, is_fresh: bool = True
) -> None:
    """Check the caller's sign-in before their factors change.

    The account is locked, and the age of the sign-in is checked elsewhere.

    If the account has a passkey, the sign-in used this passkey. The sign-in meets every policy that the present factors can meet, now and
    later and at any risk. An account that cannot meet a policy sets up the missing factor with its present factors.
    """
    if (missing := await _find_missing_sign_in(ports, tx, caller.session_id, account, now, is_fresh=is_fresh)) is not None:
        raise explanations.SignInNotAccepted(missing, ports.policy.fresh_sign_in_ttl)


async def require_fresh_sign_in(ports: Ports, tx: storage.Transaction, caller: Person, account: accounts.Account, now: datetime) -> None:
    """Check the caller's sign-in, and its age, before their locked account changes.

    Raises: the errors of `require_sign_in`; SignInNotAccepted, also for a sign-in that is too old.
    """
    try:
        access.require_sign_in(caller, sign_in_age.SignInAge.FRESH, ports.policy, now)
    except sign_in_age.SignInNotRecent:
        await _require_accepted_sign_in(ports, tx, caller, account, now, is_fresh=False)
        raise
    await _require_accepted_sign_in(ports, tx, caller, account, now)


async def find_missing_sign_in(ports: Ports, caller: Person, *, is_next: bool = False) -> decision.Decision | None:
    """Return the further sign-in that the caller needs before their factors change, or None.

    After a sign-in that is too old, return the new sign-in, or None if all sign-in methods of the account are accepted. `is_next`: the
    sign-in may be for another purpose, so a passkey of the account is asked for only after a fresh sign-in.
    """
    if caller.restricted_to is not None:  # it changes no factors, and must not learn the policies of other organizations
        return None
    now = ports.clock.now()
    is_fresh = sign_in_age.is_enough(caller.sign_in, sign_in_age.SignInAge.FRESH, ports.policy, now)
    async with ports.storage.reading() as read:
        account = await read.accounts.by_id(caller.user_id) or refuse(access.AccountGone)
        return await _find_missing_sign_in(ports, read, caller.session_id, account, now, is_fresh=is_fresh, is_next=is_next)


async def _find_missing_sign_in(
    ports: Ports,
    read: storage.Reading | storage.Transaction,
    session_id: UUID,
    account: accounts.Account,
    now: datetime,
    *,
    is_fresh: bool = True,
    is_next: bool = False,
) -> decision.Decision | None:
    """Return the further sign-in that the account or its user's policies ask for in this session, or None.

    All recent proofs in the session count, so that several methods together meet policies that ask for different methods. Passkeys for an
    earlier RP ID do not count, so that their user can add new passkeys. If the sign-in is not fresh, older proofs do not count. `is_next`:
    as in `find_missing_sign_in`.
    """
    proofs = await own_proofs.load_proofs(read, session_id, account.id, now)
    own = None if is_next and not is_fresh else await own_proofs.find_passkey_step(ports, read, account, proofs, now)
    demands = await load_demands(ports, read, account.id, now)
    fresh = recent(proofs, now - ports.policy.fresh_sign_in_ttl)
    present = await relying_party.load_without_lost_keys(ports, read, account)
    counted = fresh if strength_of(fresh) > Strength.NONE else proofs if is_fresh else ()
    missing = demands.find_step_up(present, counted)
    if missing is None or (own is not None and decision.strictness(own) > decision.strictness(missing)):
        return own
    if not is_fresh and not counted and missing.required <= Strength.ONE and missing.methods is None:  # every method will do
        return None
    return replace(explanations.name_methods(missing, ports.policy.provider_names), max_age=ports.policy.fresh_sign_in_ttl)


async def strictest_anywhere(read: storage.Reading | storage.Transaction, user_id: UUID, now: datetime, org_id: UUID | None) -> Strength:
    """Return the strength that policies ask of the user at a high risk, now or later. `org_id`: as in `sign_in_policies.anywhere`."""
    policies = await read.sign_in_policies.anywhere(user_id, org_id)
    moments = ((each, moment.at) for each in policies for moment in each.policy.moments(now))
    return max(
        (decision.strictest(each.policy, is_admin=each.is_admin, now=at, risk_is_high=True) for each, at in moments), default=Strength.ONE
    )


async def accept_password(read: storage.Reading | storage.Transaction, user_id: UUID, now: datetime) -> bool:
    """Return whether every policy in force for the user accepts a password alone, if the risk is not high."""
    for each in await read.sign_in_policies.anywhere(user_id, None):
        needed = decision.strictest(each.policy, is_admin=each.is_admin, now=now)
        if needed >= Strength.TWO or not each.policy.in_force(now).may_use(Method.PASSWORD):
            return False
    return True


async def lock_account_to_add(ports: Ports, tx: storage.Transaction, caller: Person, now: datetime) -> accounts.Account:
    """Lock the caller's account before it gets another way to sign in.

    Once the account can meet all its user's policies, a recovery is needed no longer.
    """
    account = await lock_account(ports, tx, caller, now)
    await require_no_recovery(ports, tx, account, now, caller.session_id)
    return account


async def require_proof_to_link(ports: Ports, tx: storage.Transaction, account: accounts.Account, proofs: Proofs, now: datetime) -> None:
    """Check a sign-in before it links an account at an identity provider to a locked account that has the same verified address.

    The address proves the mailbox, and so as much as a password, which the mailbox can reset. Together with the other proofs in this
    sign-in, the address must be enough for every sign-in policy that the present factors can meet (security O-5, PK-8). If the account has
    a passkey, the sign-in must have used it.

    Raises: LinkNeedsProof; RecoveryRequired.
    """
    await require_no_recovery(ports, tx, account, now)
    if await own_proofs.find_passkey_step(ports, tx, account, proofs, now) is not None:
        raise accounts.LinkNeedsProof(None)
    present = await relying_party.load_without_lost_keys(ports, tx, account)
    demands = await load_demands(ports, tx, account.id, now)
    further = (proof for proof in proofs if proof.method is not Method.PROVIDER)
    of_mailbox = [Method.PASSWORD, *([Method.EMAIL] if demands.email_is_on else [])]
    missing = demands.find_step_up(present, (*(Proof(method, now) for method in of_mailbox), *further))
    if missing is not None:
        raise accounts.LinkNeedsProof(missing.source)


async def require_no_recovery(
    ports: Ports, tx: storage.Transaction, account: accounts.Account, now: datetime, session_id: UUID | None = None
) -> None:
    """Refuse another way to sign in for a locked account that needs a recovery. `session_id`: as in `needs_recovery`.

    Raises: RecoveryRequired.
    """
    if await needs_recovery(ports, tx, account, now, session_id):
        raise accounts.RecoveryRequired
    if await tx.accounts.is_recovery_required(account.id):
        await tx.accounts.set_recovery_required(account.id, None)


async def may_add(
    ports: Ports, read: storage.Reading | storage.Transaction, session_id: UUID, account: accounts.Account, now: datetime
) -> bool:
    """Return whether the policies of the account's user let this session add another way to sign in."""
    if await needs_recovery(ports, read, account, now, session_id):
        return False
    return await _find_missing_sign_in(ports, read, session_id, account, now) is None


async def needs_recovery(
    ports: Ports, read: storage.Reading | storage.Transaction, account: accounts.Account, now: datetime, session_id: UUID | None = None
) -> bool:
    """Return whether only a recovery can give the account the factor that a policy asks for now or later (security A-13).

    That is so after an undo that removed the factor. For a user listed for break glass, it is so after every loss, because the list was
    saved with the factor. A recovery sets up a single factor: if these policies need two factors and the account has only one, the user
    signs in with it to add the second. For a platform owner, the operator's command is the recovery. `session_id` is the session that adds
    the factor.
    """
    demands = await load_demands(ports, read, account.id, now)
    is_required = await read.accounts.is_recovery_required(account.id)
    if not is_required:
        demands = demands.for_break_glass()
        if not demands.policies or (session_id is not None and await _is_recovered(read, session_id, account, now)):
            return False
    present = await relying_party.load_without_lost_keys(ports, read, account)
    has_one = present.mfa_enabled_at is not None or present.passkey_count > 0
    if not is_required and has_one and not demands.are_met_by_one(present):
        return False
    return not demands.are_met_by(present)


async def lacks_for_break_glass(
    ports: Ports, read: storage.Reading | storage.Transaction, account: accounts.Account, now: datetime, org_id: UUID
) -> bool:
    """Return whether the organization lists the user for break glass, and the account does not meet its policies at any time and risk."""
    demands = (await load_demands(ports, read, account.id, now)).for_break_glass(org_id)
    return not demands.are_met_by(await relying_party.load_without_lost_keys(ports, read, account))


async def _is_recovered(read: storage.Reading | storage.Transaction, session_id: UUID, account: accounts.Account, now: datetime) -> bool:
    """Return whether a platform owner's session began with a link from the operator."""
    if not account.is_platform_owner:
        return False
    session = await read.session_sign_ins.load_factors(session_id, account.id)
    return session is not None and any(proof.method is Method.OWNER_RECOVERY for proof in seen_in(session.proofs, None, now))


@dataclass(frozen=True, slots=True)
class LostAccess:
    """An organization or application that then asks the user to set up another factor, or does not let the user do without."""

    name: str
    always: bool  # otherwise only for sign-ins with a high risk
    is_refused: bool = False  # the user has to add another factor first
    is_for_break_glass: bool = False  # because the user is listed for break glass

    def __or__(self, other: "LostAccess") -> "LostAccess":
        """Combine two losses by policies with the same name."""
        return LostAccess(
            self.name,
            self.always or other.always,
            self.is_refused or other.is_refused,
            self.is_for_break_glass or other.is_for_break_glass,
        )


async def list_losses(
    ports: Ports, before: accounts.Account, left: accounts.Account, *, removed: UUID | None = None
) -> Sequence[LostAccess]:
    """Return the user's organizations and applications that need more than the remaining factors, ordered by name.

    `removed` is the key that goes, if any.
    """
    losses = dict[str, LostAccess]()
    async with ports.storage.reading() as read:
        demands = await load_demands(ports, read, before.id, ports.clock.now())
        before = await relying_party.load_without_lost_keys(ports, read, before)
        left = await relying_party.load_without_lost_keys(ports, read, left, removed=removed)
    for each in demands.policies:
        always, at_most = (demands.find_loss(each, before, left, (), risk_is_high=is_high) for is_high in (False, True))
        is_refused = demands.find_refused_loss(each, before, left, ()) is not None
        if at_most is not None or is_refused:
            loss = LostAccess(each.name, always is not None, is_refused, is_refused and each.is_for_break_glass)
            losses[each.name] = loss | losses.get(each.name, loss)
    return [loss for _, loss in sorted(losses.items())]


async def require_left(
    ports: Ports,
    tx: storage.Transaction,
    before: accounts.Account,
    left: accounts.Account,
    now: datetime,
    *,
    removed: UUID | None = None,
    without: Collection[str] = (),
) -> None:
    """Refuse to change a locked account so that it can no longer meet a sign-in policy, as `Demands.find_refused_loss` says.

    `removed` is the key that goes, if any, and `without` has the identity providers that are unlinked. Passkeys for an earlier RP ID do not
    count.
    """
    before = await relying_party.load_without_lost_keys(ports, tx, before)
    left = await relying_party.load_without_lost_keys(ports, tx, left, removed=removed)
    demands = await load_demands(ports, tx, left.id, now)
    for each in demands.policies:
        needed = demands.find_refused_loss(each, before, left, without)
        if needed is not None:
            raise accounts.FactorRequired(each.name, needed, for_break_glass=each.is_for_break_glass)
