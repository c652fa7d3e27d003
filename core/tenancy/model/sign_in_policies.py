"""Sign-in policies as they are stored, the people that they concern, and the refusals when they change."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID

from core.accounts.model import passkeys
from core.accounts.model.accounts import Account
from core.kernel import errors, proofs, roles, values
from core.kernel.connections import UNKNOWN_AT_CONNECTIONS, ConnectionFacts, RequiredConnection
from core.kernel.display import format_day
from core.kernel.sign_in_age import AuthenticationInsufficient
from core.kernel.sign_in_policy import explanations
from core.kernel.sign_in_policy.decision import Decision, Outcome, PolicyFacts, strictest
from core.kernel.sign_in_policy.rules import (
    METHODS,
    PROVIDER_PREFIX,
    Concerned,
    EffectivePolicy,
    Moment,
    PolicyInvalid,
    PolicyOfUser,
    PolicyPart,
    Rule,
    Rules,
)

MAX_PEOPLE: Final = 100  # in a preview
MAX_BREAK_GLASS: Final = 3
MAX_REMOVALS: Final = 10  # removals of imposed rules in an hour; then members with fewer rights than the owner can impose no rule
SECOND_METHODS: Final = frozenset({proofs.Method.TOTP, proofs.Method.PASSKEY})
MAX_COUNTED: Final = 10_000  # members, and end users, in a preview


class PolicyChanged(errors.Conflict):
    """The sign-in policy was changed by another request. Load it again, and repeat your change."""


class MethodsUnavailable(errors.Invalid):
    """Some users could not sign in with these methods. Allow passkeys, or passwords and authenticator apps."""

    def __init__(self, moment: Moment, now: datetime, application: str | None = None) -> None:
        """`application`: its name, if its settings or its policy allow too little together with this policy."""
        start = "" if moment.at <= now else f"from {format_day(moment.at)} "
        time = f"{start}until {format_day(moment.until)}, " if moment.until is not None else start and f"{start}on, "
        together = "" if application is None else f"together with the rules of {application}, "
        earlier = "" if moment.until is None else " Earlier rules hold until new ones start: choose another grace period."
        sentence = f"{time}{together}some users could not sign in with these methods."
        advice = "Allow passkeys, or passwords and authenticator apps."
        super().__init__(f"{sentence[0].upper()}{sentence[1:]} {advice}{earlier}")


class SettingsBeyondPolicies(errors.Invalid):
    """With these settings, the sign-in policies of the application and its organization let no user sign in. Change the policies first."""


class ConnectionRequired(errors.Conflict):
    """A sign-in policy requires this connection. Remove it from the policies of the organization and its applications first."""


class NothingImposed(errors.Invalid):
    """All rules of this organization are its owner's. There is nothing to remove. Change them in the sign-in policy."""


class ImposedRulesRemoved(errors.Conflict):
    """The owner has removed the rules of other members several times. Ask the owner to add this rule, or try again in an hour."""


class OwnFactorNeeded(explanations.SignInNotAccepted):
    """This needs a passkey or a second factor of your account, used now. Confirm that it's you with it, and repeat this."""


class OwnFactorMissing(AuthenticationInsufficient):
    """This needs a passkey or a second factor, but your account has none. Add a factor first, or ask the operator for a recovery."""

    needed: Mapping[str, str] = MappingProxyType({"acr_values": proofs.Acr.MFA.value})


class NotForBreakGlass(errors.Invalid):
    """Only owners and admins who have confirmed their membership can be listed for break glass. Choose up to three of them."""


class BreakGlassNeedsFactors(errors.Invalid):
    """A user on the list of break glass lacks the factors that a sign-in policy asks for. Ask them to set up the factors first."""

    def __init__(self, email: str | None) -> None:
        advice = "Ask them to set up the factors first, or leave them off the list."
        super().__init__(
            None if email is None else f"For break glass, {email} needs the factors that the sign-in policy asks for. {advice}"
        )


class NoAdminNetworks(errors.Invalid):
    """The admins of this organization may act from any network. There is nothing to remove."""


class WouldLockYouOut(errors.Invalid):
    """With these rules you could not sign in yourself. Set up the missing factor first, or give a grace period."""

    def __init__(self, rule: Rule | None, address: str | None) -> None:
        lockout = None if rule is None else rule.definition.lockout
        super().__init__(None if lockout is None else lockout.format(address=address))


@dataclass(frozen=True, slots=True, kw_only=True)
class SignInPolicy:
    """The sign-in policy for an organization, an application, or the platform. Times are UTC."""

    id: UUID = field(default_factory=values.new_id)
    org_id: UUID | None  # None for the platform
    service_id: UUID | None = None  # None for the whole organization
    rules: Rules
    changed_at: datetime
    changed_by: UUID | None = None
    version: int = 0  # 0 if it is not stored
    # The owner's rules and break-glass list, if members with fewer rights changed the policy. None: the present values are the owner's.
    owner_rules: Rules | None = None
    owner_listed: tuple[UUID, ...] | None = None
    # What members with fewer rights changed: the ids of connections, and the domains that took over users of a removed subdomain. If
    # the owner's rules require such a connection, or one for such a domain, this requirement is imposed.
    imposed_requirements: frozenset[str] = frozenset()
    reminded: int = 0  # for the platform's policy: how many emails about its start were sent

    def imposed(self) -> frozenset[Rule]:
        """Return the rules that members with fewer rights than the owner added or tightened."""
        if self.owner_rules is None:
            return frozenset()
        left = self._without_imposed(self.owner_rules)
        return self.rules.tightened(self.owner_rules, self.changed_at) | self.rules.tightened(left, self.changed_at)

    @property
    def imposed_names(self) -> Sequence[str]:
        """The imposed rules' names, and BREAK_GLASS if the break-glass list is imposed."""
        return [*sorted(self.imposed()), *([] if self.owner_listed is None else [explanations.BREAK_GLASS])]

    def changed_to(self, rules: Rules, rights: roles.Rights, now: datetime, by: UUID) -> "SignInPolicy":
        """Return the policy with the rules that a member with these rights saves. If the owner saves them, no rule is imposed."""
        changed = replace(self, rules=rules, changed_at=now, changed_by=by)
        if roles.Capability.ORGANIZATION_OWN not in rights:
            earlier = self.owner_rules or self.rules
            marked = replace(changed, owner_rules=rules.with_earlier(rules.tightened(earlier, now), earlier))
            if marked.imposed():
                return marked
        return replace(changed, owner_rules=None, imposed_requirements=frozenset())

    def tightened(self, before: "SignInPolicy", rights: roles.Rights) -> frozenset[Rule]:
        """Return the rules that a member with these rights tightened by this change, and no rule for the owner."""
        return frozenset() if roles.Capability.ORGANIZATION_OWN in rights else self.rules.tightened(before.rules, self.changed_at)

    def with_imposed(self, requirement: str) -> "SignInPolicy":
        """Return the policy with one more requirement in `imposed_requirements`."""
        return replace(self, owner_rules=self.owner_rules or self.rules, imposed_requirements=self.imposed_requirements | {requirement})

    def _without_imposed(self, rules: Rules) -> Rules:
        required = {
            domain: each
            for domain, each in rules.required_connections.items()
            if self.imposed_requirements.isdisjoint({domain, str(each.id)})
        }
        one = rules.required_connection
        return replace(
            rules,
            required_connections=required,
            required_connection=None if one is None or str(one.id) in self.imposed_requirements else one,
        )

    def rules_left_to(self, owner: ConnectionFacts) -> Rules:
        """Return the owner's rules without the imposed rules.

        If a connection that bound the owner is gone, an old link could bind the owner to another required connection. No connection binds
        the owner then.
        """
        saved = self.owner_rules or self.rules
        left = self._without_imposed(saved)
        unbound = set(left.required_for(owner))
        if unbound == set(saved.required_for(owner)):
            return left
        return replace(
            left, required_connections={domain: each for domain, each in left.required_connections.items() if each not in unbound}
        )

    def second_factor_due(self, now: datetime) -> datetime | None:
        """Return when the second factor becomes required (UTC), or None if it does not start later."""
        due = self.rules.due_at.get(Rule.SECOND_FACTOR)
        return due if due is not None and due > now else None


@dataclass(frozen=True, slots=True)
class PolicyApplication:
    """The application that a policy is for. `email_sign_in` None: it offers sign-in by email as the platform does."""

    id: UUID
    name: str
    email_sign_in: bool | None
    required: proofs.Strength = proofs.Strength.ONE  # for every sign-in, by the application's settings

    def limits_more(self, before: "PolicyApplication") -> bool:
        """Return whether these settings may allow fewer sign-ins than the settings before."""
        return self.required > before.required or self.email_sign_in != before.email_sign_in

    @property
    def settings_part(self) -> PolicyPart | None:
        """The strength that the application requires, as rules, or None."""
        everyone = frozenset({Concerned.EVERYONE})
        rules = {proofs.Strength.TWO: Rules(second_factor=everyone), proofs.Strength.PHISHING_RESISTANT: Rules(phishing_resistant=everyone)}
        return PolicyPart(self.name, rules[self.required]) if self.required in rules else None


@dataclass(frozen=True, slots=True)
class ApplicationWays:
    """The ways to sign in that an organization's applications offer by their settings, in addition to the platform's ways."""

    email: bool
    providers: frozenset[str]  # identity providers for which an application has credentials


@dataclass(frozen=True, slots=True)
class PolicyPerson:
    """A user that a policy concerns: a confirmed member, or an end user without a role."""

    account: Account
    keys: passkeys.KeyHosts  # for the account
    role: roles.RoleName | None
    is_admin: bool  # an admin in the organization, or a platform owner
    providers: frozenset[str]  # the linked identity providers
    last_address: str | None  # from the member's newest session
    connections: ConnectionFacts = UNKNOWN_AT_CONNECTIONS

    @property
    def may_break_glass(self) -> bool:
        return self.is_admin and self.connections.is_listed

    def facts(self, rules: Rules, now: datetime, factors: Collection[proofs.Factor], *, email_is_on: bool) -> PolicyFacts:
        """Return the facts for a one-factor sign-in that these rules allow, or for any such sign-in if they allow none.

        An account with no factor at all sets a password first. An account that a required connection knows comes through it. `factors` are
        the account's factors that work here.
        """
        ways = self.account.first_ways(self.providers, email_is_on=email_is_on)
        known = [each for each in rules.required_for(self.connections) if each.id in self.connections.known_at]
        allowed = [way for way in sorted(ways) if rules.may_use(way)]
        others = (
            [proofs.Method.PASSKEY] if any(factor.kind is proofs.FactorKind.PASSKEY for factor in factors) else [proofs.Method.PASSWORD]
        )
        return PolicyFacts(
            now=now,
            proofs=(proofs.Proof(proofs.Method.CONNECTION, now, connection=known[0].id),)
            if known
            else _proofs_by([*allowed, *ways, *others][0], now),
            factors=factors,
            first_ways=ways,
            is_admin=self.is_admin,
            connections=self.connections,
            may_break_glass=self.may_break_glass,
            acts=self.role is not None and self.last_address is not None,
            address=self.last_address,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakGlassUser:
    """A confirmed member who is listed for break glass, or can be. Break glass counts for owners and admins."""

    user_id: UUID
    name: str | None
    email: str
    is_admin: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppedPerson:
    """A member who does not meet a policy, and the rule that says so."""

    user_id: UUID
    name: str | None
    email: str
    role: roles.RoleName | None
    missing: Rule
    is_stopped_now: bool  # otherwise when the rule starts


@dataclass(frozen=True, slots=True, kw_only=True)
class PeopleCount:
    """How many members or end users a policy concerns, and how many it stops now or when a rule starts."""

    concerned: int = 0
    stopped_now: int = 0
    stopped_later: int = 0
    is_exact: bool = True  # False: there are more users than were counted

    @property
    def meets(self) -> int:
        return self.concerned - self.stopped_now - self.stopped_later


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyPreview:
    """What a policy would do if it was saved now. There are no counts if there are too many users to count them in time."""

    rules: Rules  # as they would be stored
    due_at: datetime | None  # when its first later rule starts
    members: PeopleCount | None
    end_users: PeopleCount | None
    people: Sequence[StoppedPerson]  # at most MAX_PEOPLE
    lacks_break_glass: bool = False  # a connection is required, and no user may come without it
    unusable_methods: Sequence[str] = ()  # kept from the stored policy, but no longer offered


def require_available(
    policy: EffectivePolicy, now: datetime, *, email_is_on: bool, has_passkeys: bool, application: str | None = None
) -> None:
    """Refuse a policy that a user may be unable to meet, now or later. `application` as in `MethodsUnavailable`.

    Everyone can set up a password, TOTP, or a passkey where passkeys work.
    """
    firsts = {proofs.Method.PASSWORD, proofs.Method.EMAIL} if email_is_on else {proofs.Method.PASSWORD}
    for moment in policy.moments(now):
        rules = moment.rules
        methods = frozenset(METHODS) if rules.methods is None else rules.methods
        if has_passkeys and proofs.Method.PASSKEY in methods:
            continue
        has_second = proofs.Method.TOTP in methods or not rules.second_factor
        if rules.phishing_resistant or methods.isdisjoint(firsts) or not has_second:
            raise passkeys.NoPasskeysHere if proofs.Method.PASSKEY in methods else MethodsUnavailable(moment, now, application)


def require_offered(new: Rules, old: Rules, usable: Collection[str]) -> Sequence[str]:
    """Return the methods in the rules that are not offered. Refuse them, unless the stored policy has them: settings can change."""
    unusable = [name for name in METHODS if name in (new.methods or ()) and name not in usable]
    for name in unusable:
        if name not in (old.methods or ()):
            problem = f"No user can sign in with {name} here. Leave it out, or set it up first."
            raise passkeys.NoPasskeysHere if name == proofs.Method.PASSKEY else PolicyInvalid(Rule.METHODS, problem)
    return unusable


def is_stopped(decision: Decision) -> bool:
    """Return whether a user with this decision needs a new factor, another network, or a connection that does not know the user yet."""
    return decision.outcome in (Outcome.ENROLL, Outcome.REFUSED) or decision.rule is Rule.CONNECTION


def name_connection(rule: Rule, slug: str, active: Mapping[str, RequiredConnection]) -> dict[str, str]:
    """Return the stored form for the active connection with this slug."""
    if slug not in active:
        raise PolicyInvalid(rule, f"{slug[:50]!r} is no active connection of the organization. Choose an active one.")
    return active[slug].document


def name_connections(
    slugs: Mapping[str, str], active: Mapping[str, RequiredConnection], proved: Collection[values.Domain]
) -> dict[str, dict[str, str]]:
    """Return the stored form for connection slugs by domain."""
    named = dict[str, dict[str, str]]()
    for text, slug in slugs.items():
        try:
            domain = values.Domain.parse(text)
        except values.DomainInvalid as invalid:
            raise PolicyInvalid(Rule.CONNECTIONS, f"{text[:50]!r}: {invalid.message}") from None
        if domain not in proved:
            raise PolicyInvalid(Rule.CONNECTIONS, f"{domain} is no verified domain of the organization. Verify it first.")
        named[domain] = name_connection(Rule.CONNECTIONS, slug, active)
    return named


def recovery_methods(policies: Sequence[PolicyOfUser], now: datetime) -> frozenset[proofs.Method]:
    """Return the factors that a recovery may set up: an authenticator app or a passkey, if every policy in force accepts it.

    For break glass, rules that start later count, too: with a factor that they do not accept, the user would need another recovery.
    Policies that accept neither factor do not count. Without a factor that all counted policies accept, both factors are returned, and the
    sign-in asks for the missing factor.
    """
    accepted = [own for each in policies if (own := _second_methods(each, now))]
    return SECOND_METHODS.intersection(*accepted) or SECOND_METHODS


def _second_methods(policy: PolicyOfUser, now: datetime) -> frozenset[proofs.Method]:
    moments = policy.policy.moments(now) if policy.is_for_break_glass else policy.policy.moments(now)[:1]
    methods = frozenset(method for method in SECOND_METHODS if all(moment.rules.may_use(method) for moment in moments))
    needed = (strictest(policy.policy, is_admin=policy.is_admin, now=moment.at) for moment in moments)
    is_passkey_needed = proofs.Strength.PHISHING_RESISTANT in needed
    return methods - {proofs.Method.TOTP} if is_passkey_needed else methods


def changes_of(old: Rules, new: Rules) -> Mapping[str, Mapping[str, Any]]:
    """Return the old and the new value for every part of the document that changed."""
    was, is_ = old.shown, new.shown
    names = [name for name in {**was, **is_} if was.get(name) != is_.get(name)]
    return {name: {"old": was.get(name), "new": is_.get(name)} for name in names}


def _proofs_by(way: str, now: datetime) -> proofs.Proofs:
    if way == proofs.Method.PASSKEY:
        return (proofs.Proof(proofs.Method.PASSKEY, now, user_verified=True, phishing_resistant=True),)
    return (proofs.first_proof(way.removeprefix(PROVIDER_PREFIX), now),)
