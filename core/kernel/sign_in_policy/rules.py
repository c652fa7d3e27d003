"""The rules of a sign-in policy, which an organization, an application or the platform has, and the networks that they name."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_interface, ip_network
from itertools import zip_longest
from types import MappingProxyType
from typing import Any, Final, Self
from uuid import UUID

from core.kernel import connections, values
from core.kernel.errors import Invalid
from core.kernel.proofs import Method

Network = IPv4Network | IPv6Network
IPV4_IN_IPV6: Final = 96  # bits before an IPv4 address in an IPv6 address (::ffff:0:0/96)


def problem_of_network(text: str) -> str | None:
    """Return what is wrong with a network that can match no address, or None if it can match an address."""
    try:
        interface = ip_interface(text)
    except ValueError:
        return f"{text[:50]!r} is no network. Write an address, or as in 203.0.113.0/24."
    network = interface.network
    mapped = network.network_address.ipv4_mapped if isinstance(network, IPv6Network) else None
    if "%" in text:
        return f"{text[:50]} has a zone, which Gatehouse does not know. Leave the zone out."
    if mapped is not None and network.prefixlen >= IPV4_IN_IPV6:
        return f"Write {text} as an IPv4 network: {ip_network((mapped, network.prefixlen - IPV4_IN_IPV6), strict=False)}."
    if interface.ip != network.network_address:
        return f"{text} is an address in a network. Write {network}, or the address alone."
    return None


def is_in_networks(address: str, networks: Sequence[Network]) -> bool:
    """Return whether an IP address is in any of the networks."""
    ip = ip_address(address)
    if isinstance(ip, IPv6Address):
        ip = ip.ipv4_mapped or ip
    return any(ip in network for network in networks)


Document = Mapping[str, Any]  # the JSON form that rules have in the API and in the database


class PolicyInvalid(Invalid):
    """The sign-in policy is not valid."""

    def __init__(self, member: str, problem: str) -> None:
        """`member` names the wrong member in the document, and `problem` is a sentence about it."""
        super().__init__(f"{member}: {problem}")
        self.member, self.problem = member, problem


class Rule(StrEnum):
    """A rule of a sign-in policy. The values are the member names in the document."""

    METHODS = "methods"
    SECOND_FACTOR = "second_factor"
    PHISHING_RESISTANT = "phishing_resistant"
    MIN_PASSWORD_LENGTH = "min_password_length"  # noqa: S105  (a name)
    SESSION_LIFETIME = "session_lifetime_minutes"
    SESSION_IDLE = "session_idle_minutes"
    DEVICE_TRUST = "device_trust_days"
    ADMIN_NETWORKS = "admin_networks"
    INVITED_DOMAINS = "invited_domains"
    CONNECTIONS = "required_connections"  # an organization's rule, for the addresses at every domain
    CONNECTION = "required_connection"  # an application's rule, for all its users


class Concerned(StrEnum):
    """The users that a rule about factors concerns."""

    EVERYONE = "everyone"
    ADMINS = "admins"
    HIGH_RISK = "high_risk"  # sign-ins with a high risk


# The rules that take effect when a grace period ends.
RULES_WITH_GRACE: Final = (Rule.METHODS, Rule.SECOND_FACTOR, Rule.PHISHING_RESISTANT)
RULES_OF_ORGANIZATIONS: Final = frozenset(Rule) - {Rule.CONNECTION}
RULES_OF_APPLICATIONS: Final = frozenset({*RULES_WITH_GRACE, Rule.SESSION_LIFETIME, Rule.SESSION_IDLE, Rule.DEVICE_TRUST, Rule.CONNECTION})
# These rules are about new passwords and invitations, and keep no user out.
RULES_WITHOUT_LOCKOUT: Final = frozenset({Rule.MIN_PASSWORD_LENGTH, Rule.INVITED_DOMAINS})
RULES_OF_PLATFORM: Final = frozenset(
    {Rule.SECOND_FACTOR, Rule.PHISHING_RESISTANT, Rule.SESSION_LIFETIME, Rule.SESSION_IDLE, Rule.ADMIN_NETWORKS}
)
PROVIDER_PREFIX: Final = "provider:"
METHODS: Final = (
    *(Method.PASSWORD.value, Method.EMAIL.value, Method.PASSKEY.value, Method.TOTP.value, Method.CONNECTION.value),
    *(PROVIDER_PREFIX + slug for slug in connections.PLATFORM_CONNECTIONS),
)
MAX_ITEMS: Final = 50  # of networks and domains
GRACE_DAYS: Final = "grace_days"
# The least and the greatest value per number.
LIMITS: Final[Mapping[str, tuple[int, int]]] = MappingProxyType(
    {
        Rule.MIN_PASSWORD_LENGTH: (8, 64),
        Rule.SESSION_LIFETIME: (15, 90 * 24 * 60),
        Rule.SESSION_IDLE: (5, 30 * 24 * 60),
        Rule.DEVICE_TRUST: (0, 90),
        GRACE_DAYS: (0, 60),
    }
)
_CHOICES: Final[Mapping[Rule, Sequence[str]]] = MappingProxyType(
    {
        Rule.METHODS: METHODS,
        Rule.SECOND_FACTOR: [*Concerned],
        Rule.PHISHING_RESISTANT: [Concerned.EVERYONE, Concerned.ADMINS],
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules of a policy. Without its value, a rule asks for nothing. `due_at` has the start (UTC) of rules that start later."""

    methods: frozenset[str] | None = None
    second_factor: frozenset[Concerned] = frozenset()
    phishing_resistant: frozenset[Concerned] = frozenset()
    min_password_length: int | None = None
    session_lifetime: timedelta | None = None
    session_idle: timedelta | None = None
    device_trust: timedelta | None = None  # zero: every sign-in asks for the second factor
    admin_networks: tuple[Network, ...] = ()  # admins act only from there
    invited_domains: frozenset[values.Domain] | None = None
    required_connections: Mapping[values.Domain, connections.RequiredConnection] = field(default_factory=dict, hash=False)
    required_connection: connections.RequiredConnection | None = None
    grace: timedelta = timedelta(0)
    due_at: Mapping[Rule, datetime] = field(default_factory=dict, hash=False)
    until_due: Document = field(default_factory=dict, hash=False)  # the values of these rules that hold until then

    @classmethod
    def parse(cls, document: Document) -> Self:
        """Return the rules in a document that a user wrote.

        Unknown members are ignored. Connections have their stored form.

        Raises: PolicyInvalid.
        """
        known = {name: value for name in [*Rule, GRACE_DAYS] if (value := document.get(name)) is not None}
        for name, (least, most) in LIMITS.items():
            if name in known and not least <= known[name] <= most:
                raise PolicyInvalid(name, f"Choose a number from {least} to {most}.")
        for rule, choices in _CHOICES.items():
            if unknown := set(known.get(rule, ())) - set(choices):
                raise PolicyInvalid(rule, f"{min(unknown)!r} is unknown. Choose from {', '.join(choices)}.")
        if known.get(Rule.METHODS) == []:
            raise PolicyInvalid(Rule.METHODS, "Allow at least one method, or leave the rule out.")
        for rule in (Rule.ADMIN_NETWORKS, Rule.INVITED_DOMAINS, Rule.CONNECTIONS):
            if len(known.get(rule, ())) > MAX_ITEMS:
                raise PolicyInvalid(rule, f"Name at most {MAX_ITEMS}.")
        if problem := next(filter(None, map(problem_of_network, known.get(Rule.ADMIN_NETWORKS, ()))), None):
            raise PolicyInvalid(Rule.ADMIN_NETWORKS, problem)
        try:
            return cls.read(known)
        except values.DomainInvalid as invalid:
            raise PolicyInvalid(Rule.INVITED_DOMAINS, invalid.message) from None

    @classmethod
    def read(cls, document: Document) -> Self:
        """Return the rules in a stored document. Unknown members are ignored: a later release may have written them."""
        domains = frozenset(values.Domain.parse(text) for text in document.get(Rule.INVITED_DOMAINS, ()))
        methods = document.get(Rule.METHODS)
        return cls(
            methods=None if methods is None else frozenset(methods),
            second_factor=_to_concerned(document, Rule.SECOND_FACTOR),
            phishing_resistant=_to_concerned(document, Rule.PHISHING_RESISTANT),
            min_password_length=document.get(Rule.MIN_PASSWORD_LENGTH),
            session_lifetime=_to_time("minutes", document.get(Rule.SESSION_LIFETIME)),
            session_idle=_to_time("minutes", document.get(Rule.SESSION_IDLE)),
            device_trust=_to_time("days", document.get(Rule.DEVICE_TRUST)),
            admin_networks=tuple(ip_network(text) for text in document.get(Rule.ADMIN_NETWORKS, ())),
            invited_domains=domains or None,
            required_connections={
                values.Domain.parse(domain): connections.RequiredConnection.read(each)
                for domain, each in document.get(Rule.CONNECTIONS, {}).items()
            },
            required_connection=None if (one := document.get(Rule.CONNECTION)) is None else connections.RequiredConnection.read(one),
            grace=timedelta(days=document.get(GRACE_DAYS, 0)),
            due_at={Rule(name): datetime.fromisoformat(time) for name, time in document.get("due_at", {}).items() if name in [*Rule]},
            until_due=document.get("until_due", {}),
        )

    @property
    def document(self) -> dict[str, Any]:
        """The rules as a document. Rules that ask for nothing have no member."""
        members: dict[str, Any] = {
            Rule.METHODS.value: None if self.methods is None else [name for name in METHODS if name in self.methods],
            Rule.SECOND_FACTOR.value: [who.value for who in Concerned if who in self.second_factor] or None,
            Rule.PHISHING_RESISTANT.value: [who.value for who in Concerned if who in self.phishing_resistant] or None,
            Rule.MIN_PASSWORD_LENGTH.value: self.min_password_length,
            Rule.SESSION_LIFETIME.value: None if self.session_lifetime is None else self.session_lifetime // timedelta(minutes=1),
            Rule.SESSION_IDLE.value: None if self.session_idle is None else self.session_idle // timedelta(minutes=1),
            Rule.DEVICE_TRUST.value: None if self.device_trust is None else self.device_trust.days,
            Rule.ADMIN_NETWORKS.value: [str(network) for network in self.admin_networks] or None,
            Rule.INVITED_DOMAINS.value: None if self.invited_domains is None else sorted(self.invited_domains),
            Rule.CONNECTIONS.value: {domain: each.document for domain, each in sorted(self.required_connections.items())} or None,
            Rule.CONNECTION.value: None if self.required_connection is None else self.required_connection.document,
            GRACE_DAYS: self.grace.days or None,
            "due_at": {rule.value: values.rfc3339(due) for rule, due in sorted(self.due_at.items())} or None,
            "until_due": dict(self.until_due) or None,
        }
        return {name: value for name, value in members.items() if value is not None}

    @property
    def shown(self) -> dict[str, Any]:
        """The rules as users read and write them: a document with connection slugs."""
        slugs = {
            Rule.CONNECTIONS.value: {domain: each.slug for domain, each in sorted(self.required_connections.items())},
            Rule.CONNECTION.value: self.required_connection and self.required_connection.slug,
        }
        return {name: slugs.get(name, value) for name, value in self.document.items()}

    @property
    def requires_connection(self) -> bool:
        """Whether some users have to come through a connection."""
        return bool(self.required_connections) or self.required_connection is not None

    def required_for(self, user: connections.ConnectionFacts) -> tuple[connections.RequiredConnection, ...]:
        """Return the connections that are required of this user, the usual connection first.

        Any of them is enough.

        A user who is known at a required connection needs it with any address: otherwise a new address would be a way around it.
        """
        if self.required_connection is not None:
            return (self.required_connection,)
        if user.domain is not None and user.domain in self.required_connections:
            return (self.required_connections[user.domain],)
        return tuple(each for _, each in sorted(self.required_connections.items()) if each.id in user.known_at)

    def require_only(self, rules: Collection[Rule]) -> Self:
        """Return the rules, which must all be in `rules`. Raises: PolicyInvalid if `rules` lacks a rule."""
        for rule in Rule:
            if rule in self.document and rule not in rules:
                raise PolicyInvalid(rule, "This policy has no such rule.")
        return self

    def in_force(self, now: datetime) -> Self:
        """Return the rules that hold now. Before its start, a rule has its earlier value."""
        later = [rule for rule, due in self.due_at.items() if now < due]
        if not later:
            return self
        earlier = Rules.read(self.until_due)
        return replace(self, **{rule.value: getattr(earlier, rule) for rule in later})

    def with_due_dates(self, before: "Rules", now: datetime) -> Self:
        """Return the rules, with start times for the rules that start later.

        `before` are the rules that they replace.

        A rule that becomes stricter starts when the grace period ends. It keeps an earlier start that it had for the same value.
        """
        held, due_at = before.in_force(now), dict[Rule, datetime]()
        for rule in RULES_WITH_GRACE:
            if _is_stricter(rule, self, held):
                due_at[rule] = now + self.grace if _is_stricter(rule, self, before) else before.due_at[rule]
        due_at = {rule: due for rule, due in due_at.items() if due > now}
        until_due = {rule.value: held.document[rule] for rule in due_at if rule in held.document}
        return replace(self, due_at=due_at, until_due=until_due)

    def tightened(self, before: "Rules", since: datetime) -> frozenset[Rule]:
        """Return the rules that can keep out users who meet the earlier rules, at any time from `since` (UTC) on."""
        starts = {due for due in (*self.due_at.values(), *before.due_at.values()) if due > since}
        pairs = [(self.in_force(at), before.in_force(at)) for at in (since, *starts)]
        names = {rule for new, old in pairs for rule in Rule if rule not in RULES_WITHOUT_LOCKOUT and _is_stricter(rule, new, old)}
        # If a domain's connection is dropped, its addresses can need another connection.
        is_dropped = any(
            new.required_connections and not old.required_connections.keys() <= new.required_connections.keys() for new, old in pairs
        )
        return frozenset(names | {Rule.CONNECTIONS} if is_dropped else names)

    def with_earlier(self, names: Collection[Rule], before: "Rules") -> "Rules":
        """Return these rules, with the values and starts that `before`, the earlier rules, has for the rules in `names`."""

        def merge(own: Document, earlier: Document) -> dict[str, Any]:
            kept = {name: value for name, value in own.items() if name not in names}
            return kept | {name: value for name, value in earlier.items() if name in names}

        own, earlier = self.document, before.document
        starts = {part: merge(own.get(part, {}), earlier.get(part, {})) for part in ("due_at", "until_due")}
        return Rules.read({**merge(own, earlier), **starts})

    def also_accepting(self, methods: Collection[str]) -> "Rules":
        """Return these rules, but let them also accept `methods`, now and later."""

        def widen(part: Document) -> dict[str, Any]:
            return {**part, **({Rule.METHODS: sorted({*part[Rule.METHODS], *methods})} if Rule.METHODS in part else {})}

        return Rules.read(widen({**self.document, "until_due": widen(self.until_due)}))

    def may_use(self, method: str | None) -> bool:
        """Return whether a sign-in may use this method. Backup codes can stand for an app or a key (see `decision`)."""
        if self.methods is None or method in self.methods or method == Method.OWNER_RECOVERY:
            return True
        return method == Method.BACKUP_CODE and not self.methods.isdisjoint({Method.TOTP, Method.PASSKEY})

    def admits(self, address: str | None) -> bool:
        """Return whether admins may act from this IP address. None is an unknown address."""
        return not self.admin_networks or (address is not None and is_in_networks(address, self.admin_networks))


def strictest_rules(all_rules: Sequence[Rules]) -> Rules:
    """Return the strictest value of every rule that applications can have.

    All further rules come from the first item. The dates are left out.
    """
    first, methods = next(iter(all_rules), Rules()), [rules.methods for rules in all_rules if rules.methods is not None]
    return Rules(
        methods=frozenset.intersection(*methods) if methods else None,
        second_factor=frozenset[Concerned]().union(*(rules.second_factor for rules in all_rules)),
        phishing_resistant=frozenset[Concerned]().union(*(rules.phishing_resistant for rules in all_rules)),
        min_password_length=first.min_password_length,
        session_lifetime=_least([rules.session_lifetime for rules in all_rules]),
        session_idle=_least([rules.session_idle for rules in all_rules]),
        device_trust=_least([rules.device_trust for rules in all_rules]),
        admin_networks=first.admin_networks,
        invited_domains=first.invited_domains,
        required_connections=first.required_connections,
        required_connection=next((each for rules in all_rules if (each := rules.required_connection) is not None), None),
    )


@dataclass(frozen=True, slots=True)
class PolicyPart:
    """The rules of an organization, an application or the platform, with its name."""

    name: str
    rules: Rules


@dataclass(frozen=True, slots=True)
class Moment:
    """A time from which the same rules hold until the next moment. The times are UTC."""

    at: datetime
    rules: Rules  # the strictest value for every rule
    until: datetime | None  # None for the last moment


@dataclass(frozen=True, slots=True)
class EffectivePolicy:
    """The policies that a sign-in has to meet, with their common version. `org_id` is None for the platform."""

    org_id: UUID | None
    version: int
    parts: tuple[PolicyPart, ...]  # the organization's or the platform's part first

    @property
    def name(self) -> str:
        """The name of the organization or the platform."""
        return self.parts[0].name

    def in_force(self, now: datetime) -> Rules:
        """Return the strictest value of every rule in force."""
        return strictest_rules([part.rules.in_force(now) for part in self.parts])

    def moments(self, now: datetime) -> list[Moment]:
        """Return now and every later time at which a rule starts, the earliest first. Questions about now and later walk all moments."""
        starts = [now, *self.due_dates(now)]
        return [Moment(at, self.in_force(at), until) for at, until in zip_longest(starts, starts[1:])]

    def concerns(self, now: datetime, *, is_admin: bool, user: connections.ConnectionFacts = connections.UNKNOWN_AT_CONNECTIONS) -> bool:
        """Return whether a rule, now or later, can ask something of this user's sign-ins."""
        return any(_concern(moment.rules, is_admin=is_admin) or moment.rules.required_for(user) for moment in self.moments(now))

    def due_dates(self, now: datetime) -> list[datetime]:
        """Return the later times at which a rule starts, the earliest first."""
        return sorted({due for part in self.parts for due in part.rules.due_at.values() if due > now})

    def source_of(self, rule: Rule, now: datetime) -> str:
        """Return the name of the first part with this rule in force.

        Without such a part, return the organization's or the platform's name.

        Among trust periods for devices, the shortest counts.
        """
        parts = [part for part in self.parts if rule in part.rules.in_force(now).document]
        if rule is Rule.DEVICE_TRUST:
            parts.sort(key=lambda part: timedelta.max if part.rules.device_trust is None else part.rules.device_trust)
        return parts[0].name if parts else self.name


@dataclass(frozen=True, slots=True)
class PolicyOfUser:
    """A policy that a user has to meet: for an organization, an application with its organization, or the platform.

    An application's settings can ask for a strength. This is a separate policy, because proofs by any method meet it.
    """

    policy: EffectivePolicy
    is_admin: bool
    service_id: UUID | None = None
    providers: frozenset[str] = frozenset()  # the providers linked in the account itself, or at an application of the organization
    email_sign_in: bool | None = None  # whether the application offers sign-in by email; None: as the platform does
    is_of_settings: bool = False
    is_for_break_glass: bool = False  # a connection is required there, and the user is listed as an admin who may come without it

    @property
    def name(self) -> str:
        """The name of the application, the organization or the platform."""
        return self.policy.parts[-1].name


def _concern(rules: Rules, *, is_admin: bool) -> bool:
    of_factors = rules.second_factor | rules.phishing_resistant
    is_asked = bool(of_factors - {Concerned.ADMINS}) or (is_admin and bool(of_factors or rules.admin_networks))
    return is_asked or (rules.methods, rules.session_lifetime, rules.session_idle, rules.device_trust) != (None,) * 4


def _to_concerned(document: Document, rule: Rule) -> frozenset[Concerned]:
    return frozenset(Concerned(text) for text in document.get(rule, ()) if text in [*Concerned])


def _to_time(unit: str, value: int | None) -> timedelta | None:
    return None if value is None else timedelta(**{unit: value})


def _least(times: Collection[timedelta | None]) -> timedelta | None:
    return min((time for time in times if time is not None), default=None)


def _is_stricter(rule: Rule, new: Rules, old: Rules) -> bool:
    if rule in (Rule.SECOND_FACTOR, Rule.PHISHING_RESISTANT):
        return not _everyone_counts_for_all(getattr(new, rule)) <= _everyone_counts_for_all(getattr(old, rule))
    was, is_ = old.document.get(rule), new.document.get(rule)
    if was is None or is_ is None:
        return is_ is not None
    match is_:
        case int():
            return bool(is_ < was)
        case dict():  # a connection, or connections by domain
            return any(was.get(name) != value for name, value in is_.items())
    return not set(is_) >= set(was)


def _everyone_counts_for_all(concerned: frozenset[Concerned]) -> frozenset[Concerned]:
    return frozenset(Concerned) if Concerned.EVERYONE in concerned else concerned
