"""The checks before a user changes the factors of their account: no way in becomes weaker than the sign-in policies that they must meet."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from core.accounts import relying_party
from core.accounts.model.accounts import Account, FactorRequired, LinkNeedsProof, RecoveryRequired, SignInWayNotAccepted
from core.accounts.own_account import lock_own_account
from core.kernel.callers import Person
from core.kernel.proofs import Method, Proof, Proofs, Strength, reachable_strength
from core.kernel.sign_in_age import SignInNotRecent
from core.kernel.sign_in_policy.decision import PolicyFacts, can_meet, missing_strength, strictest
from core.kernel.sign_in_policy.rules import PolicyOfUser
from ports import Ports
from ports.storage import Reading, Transaction

Place = tuple[UUID | None, UUID | None]  # an organization and its application. (None, None): the platform


@dataclass(frozen=True, slots=True)
class Demands:
    """The sign-in policies that a user must meet at the places that they use, now or later, and the facts about their account."""

    policies: Sequence[PolicyOfUser]
    providers: frozenset[str]  # linked for the account
    email_is_on: bool
    now: datetime  # UTC

    def met_by(self, account: Account) -> frozenset[Place]:
        """Return the places with policies that an account with these factors can meet. It is without lost keys."""
        return frozenset(place_of(each) for each in self.policies if can_meet(each.policy, self._facts(each, account, ())))

    def are_met_by(self, account: Account) -> bool:
        return len(self.met_by(account)) == len({place_of(each) for each in self.policies})

    def missing(self, account: Account, proofs: Proofs) -> tuple[PolicyOfUser, Strength] | None:
        """Return the policy that asks for the strongest further sign-in, and its strength, or None if the proofs meet all."""
        found = [(each, missing_strength(each.policy, self._facts(each, account, proofs))) for each in self.policies]
        return max(((each, strength) for each, strength in found if strength is not None), key=lambda one: one[1], default=None)

    def _facts(self, policy: PolicyOfUser, account: Account, proofs: Proofs) -> PolicyFacts:
        """Return the facts about a sign-in to this account, apart from its risk, age, device and network."""
        return PolicyFacts(
            now=self.now,
            proofs=proofs,
            factors=account.factors,
            first_ways=account.first_ways(self.providers, email_is_on=self.email_is_on),
            is_admin=policy.is_admin,
        )


def place_of(policy: PolicyOfUser) -> Place:
    return policy.policy.org_id, policy.service_id


async def load_demands(ports: Ports, read: Reading | Transaction, user_id: UUID, now: datetime) -> Demands:
    """Return the sign-in policies of the user."""
    providers = frozenset(str(identity.provider) for identity in await read.identities.list_of_user(user_id, None))
    return Demands(await read.sign_in_policies.anywhere(user_id, None), providers, ports.policy.email_sign_in, now)


async def lock_account(ports: Ports, tx: Transaction, caller: Person, now: datetime) -> Account:
    """Lock the caller's account before a change of its factors. Raises: the errors of `lock_own_account` and `require_accepted_sign_in`."""
    account = await lock_own_account(tx, caller, now)
    await require_accepted_sign_in(ports, tx, caller, account, now)
    return account


async def require_accepted_sign_in(ports: Ports, tx: Transaction, caller: Person, account: Account, now: datetime) -> None:
    """Check the sign-in of the caller before a change of the factors of their locked account. The edge has checked that it is fresh.

    It meets each sign-in policy of the user that the present factors can meet, at any risk. An account that cannot meet a
    policy sets up the missing factor with its present ones. Passkeys of an earlier RP ID do not count, so that their user can
    add new ones.

    Raises: SignInNotRecent; SignInWayNotAccepted if an equally strong sign-in by another method is needed.
    """
    demands = await load_demands(ports, tx, account.id, now)
    if not demands.policies:
        return
    session = await tx.session_sign_ins.load_factors(caller.session_id, account.id)
    present = await relying_party.load_without_lost_keys(ports, tx, account)
    missing = demands.missing(present, () if session is None else session.proofs)
    if missing is not None and missing[1] is Strength.NONE:
        raise SignInWayNotAccepted(missing[0].name)
    if missing is not None:
        raise SignInNotRecent(ports.policy.fresh_sign_in_ttl, missing[1])


async def strictest_anywhere(read: Reading | Transaction, user_id: UUID, now: datetime, org_id: UUID | None) -> Strength:
    """Return the strength that policies in force ask of the user at a high risk. `org_id`: as in `sign_in_policies.anywhere`."""
    policies = await read.sign_in_policies.anywhere(user_id, org_id)
    return max((strictest(each.policy, is_admin=each.is_admin, now=now, risk_is_high=True) for each in policies), default=Strength.ONE)


async def lock_account_to_add(ports: Ports, tx: Transaction, caller: Person, now: datetime) -> Account:
    """Lock the caller's account before it gets another way to sign in.

    A recovery is needed no longer once the account can meet all policies of its user.

    Raises: RecoveryRequired; the errors of `lock_account`.
    """
    account = await lock_account(ports, tx, caller, now)
    await _require_no_recovery(ports, tx, account, now)
    return account


async def require_proof_to_link(ports: Ports, tx: Transaction, account: Account, proofs: Proofs, now: datetime) -> None:
    """Check a sign-in before it links an account at an identity provider to a locked account that has the same verified address.

    The address proves the mailbox, and so as much as a password, which the mailbox can reset. With the other proofs of the sign-in,
    this must be enough for each sign-in policy of the user that the present factors can meet (security O-5, PK-8).

    Raises: LinkNeedsProof; RecoveryRequired.
    """
    await _require_no_recovery(ports, tx, account, now)
    present = await relying_party.load_without_lost_keys(ports, tx, account)
    demands = await load_demands(ports, tx, account.id, now)
    of_mailbox = [Method.PASSWORD, *([Method.EMAIL] if demands.email_is_on else [])]
    further = (proof for proof in proofs if proof.method is not Method.PROVIDER)
    missing = demands.missing(present, (*(Proof(method, now) for method in of_mailbox), *further))
    if missing is not None:
        raise LinkNeedsProof(missing[0].name)


async def _require_no_recovery(ports: Ports, tx: Transaction, account: Account, now: datetime) -> None:
    """Refuse another way to sign in for a locked account that needs a recovery. Raises: RecoveryRequired."""
    if await tx.accounts.is_recovery_required(account.id):
        if await needs_recovery(ports, tx, account, now):
            raise RecoveryRequired
        await tx.accounts.set_recovery_required(account.id, None)


async def needs_recovery(ports: Ports, read: Reading | Transaction, account: Account, now: datetime) -> bool:
    """Return whether only a recovery can give the account the factor that a policy asks for now or later (security A-13)."""
    if not await read.accounts.is_recovery_required(account.id):
        return False
    present = await relying_party.load_without_lost_keys(ports, read, account)
    return not (await load_demands(ports, read, account.id, now)).are_met_by(present)


@dataclass(frozen=True, slots=True)
class LostAccess:
    """An organization or application that then asks the user to set up another factor."""

    name: str
    always: bool  # otherwise only for sign-ins with a high risk


async def list_losses(ports: Ports, before: Account, left: Account, *, removed: UUID | None = None) -> Sequence[LostAccess]:
    """Return the organizations and applications of the user that need more than the factors which are left, ordered by name.

    The user may do without: only policies of `require_left` refuse the change. `removed` is the key that goes, if any.
    """
    now, losses = ports.clock.now(), dict[str, bool]()
    async with ports.storage.reading() as read:
        policies = await read.sign_in_policies.anywhere(before.id, None)
        before = await relying_party.load_without_lost_keys(ports, read, before)
        left = await relying_party.load_without_lost_keys(ports, read, left, removed=removed)
    reached, reachable = reachable_strength(before.factors), reachable_strength(left.factors)
    for each in policies:
        always, at_most = (strictest(each.policy, is_admin=each.is_admin, now=now, risk_is_high=is_high) for is_high in (False, True))
        if reachable < min(at_most, reached):
            losses[each.name] = losses.get(each.name, False) or reachable < always
    return [LostAccess(name, always) for name, always in sorted(losses.items())]


async def require_left(
    ports: Ports, tx: Transaction, before: Account, left: Account, now: datetime, *, removed: UUID | None = None
) -> None:
    """Refuse a change of a locked account after which it can no longer meet a sign-in policy. `removed` is the key that goes, if any.

    Passkeys of an earlier RP ID do not count. Raises: FactorRequired.
    """
    before = await relying_party.load_without_lost_keys(ports, tx, before)
    left = await relying_party.load_without_lost_keys(ports, tx, left, removed=removed)
    reached, reachable = reachable_strength(before.factors), reachable_strength(left.factors)
    if reachable == reached:
        return
    for each in await tx.sign_in_policies.of_user(left.id):
        needed = strictest(each.policy, is_admin=each.is_admin, now=now)
        if reachable < min(needed, reached):
            raise FactorRequired(each.policy.name, needed)
