"""The ways to confirm that the session's user is here, without ways that their sign-in policies refuse."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime

from core.accounts import factor_changes, relying_party, session_proofs
from core.accounts.model.accounts import Account
from core.accounts.model.passkeys import PasskeyKind
from core.authentication import admissions
from core.authentication.model.identities import LinkedPlace
from core.authentication.model.sessions import ReauthenticationOptions
from core.kernel.access import AccountGone
from core.kernel.callers import Person
from core.kernel.connections import ConnectionSlug
from core.kernel.errors import refuse
from core.kernel.proofs import Factor, Method, Proof, Strength
from core.kernel.sign_in_policy.decision import Decision, stands_for_second
from core.kernel.sign_in_policy.rules import PROVIDER_PREFIX, Rule, Rules
from core.kernel.sign_in_policy.step_ups import takes_passkey_only
from ports import Ports
from ports.storage import Reading, Transaction


async def load_next_options(ports: Ports, caller: Person) -> ReauthenticationOptions:
    """Return the ways in which the caller can prove that they are here, without ways that their sign-in policies refuse.

    If they just did, these are the ways that a policy still asks for. If the organization of their token requires a connection, return
    the ways that count beside a sign-in there.
    """
    own_way = await admissions.find_own_way(ports, caller)
    decision = own_way or await factor_changes.find_missing_sign_in(ports, caller, is_next=True)
    return await load_options(ports, caller, decision)


async def load_options(ports: Ports, caller: Person, decision: Decision | None = None) -> ReauthenticationOptions:
    """Return the ways in which the caller can prove that they are here, or with a decision the ways that meet its sign-in policy."""
    now = ports.clock.now()
    async with ports.storage.reading() as read:
        account = await read.accounts.by_id(caller.user_id) or refuse(AccountGone)
        places, asking = await _find_places(read, caller, account)
        pending = await read.reauthentications.load(caller.session_id)
        status = await read.mfa.status(account.id) or refuse(AccountGone)
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
    options = ReauthenticationOptions(
        needs_first_factor=not is_recent,
        password=account.password_hash is not None,
        email_code=account.email_verified_at is not None,
        passkey=any(key.kind is PasskeyKind.PASSKEY for key in keys),
        security_key=any(key.kind is PasskeyKind.SECURITY_KEY for key in keys),
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
    if caller.bounded_to is not None or caller.sign_in is None:
        return False
    return caller.sign_in.is_younger_than(ports.policy.fresh_sign_in_ttl, now)


def _is_recent(ports: Ports, decision: Decision, now: datetime) -> bool:
    """Return whether the last first factor, or the sign-in at the required connection, is new enough."""
    if decision.connection is not None and decision.max_age is None and not decision.breaks_glass:
        return decision.rule is not Rule.CONNECTION
    return decision.first_at is not None and now - decision.first_at <= ports.policy.fresh_sign_in_ttl


def _is_too_old(caller: Person, decision: Decision | None, now: datetime) -> bool:
    """Return whether the session needs a newer sign-in, beside the method that the decision of a sign-in policy asks for."""
    if caller.bounded_to is not None or caller.sign_in is None:
        return True
    return decision is not None and decision.max_age is not None and not caller.sign_in.is_younger_than(decision.max_age, now)


def _is_accepted(second: Proof, decision: Decision | None) -> bool:
    """Return whether a second factor in the session counts for a sign-in policy's decision, if any."""
    if decision is None or decision.required <= Strength.ONE or second.method is Method.BACKUP_CODE:
        return True
    return Rules(methods=decision.methods).may_use(second.method)


def _that_meet(
    options: ReauthenticationOptions, decision: Decision, factors: Collection[Factor], waiting: ConnectionSlug | None
) -> ReauthenticationOptions:
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
    read: Reading | Transaction, caller: Person, account: Account
) -> tuple[Sequence[LinkedPlace], frozenset[ConnectionSlug]]:
    """Return where a sign-in can prove that the caller is here, with a place for every linked identity provider.

    The second value has the providers that can authenticate the user again.

    The place is the account itself, or the application that lends its credentials, as at a sign-in to it. The user comes back in the
    browser of the session. A session that is good in one organization only names no applications outside it.
    """
    if await read.session_sign_ins.browser_of(caller.session_id, account.id) is None:
        return (), frozenset()
    listed, places = read.oauth_credentials.list_connections(), dict[ConnectionSlug, LinkedPlace]()
    linked = await read.identities.list_places(account.id)
    known = {each.slug: each for each in await listed}
    for place in linked:
        is_elsewhere = caller.bounded_to is not None and place.org_id not in (None, caller.bounded_to)
        is_offered = place.provider in known and (place.has_credentials or known[place.provider].settings.client_id is not None)
        if is_offered and not is_elsewhere:
            places.setdefault(place.provider, place)
    return [places[slug] for slug in known if slug in places], frozenset(slug for slug in known if known[slug].can_reauthenticate)
