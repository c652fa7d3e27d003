"""The rules of a sign-in policy, which an organization, an application or the platform has, and the networks that they name."""

import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
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


class Concerned(StrEnum):
    """The users that a rule about factors concerns."""

    EVERYONE = "everyone"
    ADMINS = "admins"
    HIGH_RISK = "high_risk"  # sign-ins with a high risk


PROVIDER_PREFIX: Final = "provider:"
METHODS: Final = (
    *(Method.PASSWORD.value, Method.EMAIL.value, Method.PASSKEY.value, Method.TOTP.value, Method.CONNECTION.value),
    *(PROVIDER_PREFIX + slug for slug in connections.PLATFORM_CONNECTIONS),
)
MAX_ITEMS: Final = 50  # of networks and domains


@dataclass(frozen=True, slots=True)
class Definition:
    """A rule's meaning, its place, and how its values are stored, combined and compared. Only `decide` knows the effect.

    A rule with the value `empty` asks for nothing, and has no member in the document.
    """

    name: str  # of the member in the document
    label: str  # on pages and in emails
    meaning: str  # in the API
    _: KW_ONLY
    field: str = ""  # in `Rules`, if it has another name there
    of_organizations: bool = True
    of_applications: bool = False
    of_platform: bool = False
    has_grace: bool = False  # a stricter value starts when the grace period ends
    keeps_out: bool = True  # False: the rule is about new passwords or invitations
    lockout: str | None = None  # why the caller, who has this {address}, cannot save such a value
    empty: Any = None
    limits: tuple[int, int] | None = None  # the least and the greatest number
    choices: Sequence[str] | None = None
    problem: Callable[[Any], str | None] = lambda _: None  # a sentence about a list that a user wrote
    read: Callable[[Any], Any] = lambda stored: stored  # unknown parts are ignored: a later release may have written them
    write: Callable[[Any], Any] = lambda value: value
    show: Callable[[Any], Any] | None = None  # as users read and write the value, if that is not the stored form
    strictest: Callable[[Sequence[Any]], Any] = lambda found: found[0]  # most rules have a value in one policy only
    is_stricter: Callable[[Any, Any], bool] = operator.ne  # (new, old): whether the new value can keep out further users
    concerns: Callable[[Any], frozenset[Concerned]] = lambda _: frozenset({Concerned.EVERYONE})

    def find_problem(self, stored: Any) -> str | None:
        """Return a sentence about a value that a user wrote, or None if the value is valid."""
        if self.limits is not None:
            least, most = self.limits
            return None if least <= stored <= most else f"Choose a number from {least} to {most}."
        if self.choices is not None and (unknown := set(stored) - set(self.choices)):
            return f"{min(unknown)!r} is unknown. Choose from {', '.join(self.choices)}."
        return f"Name at most {MAX_ITEMS}." if len(stored) > MAX_ITEMS else self.problem(stored)


def _factor_rule(name: str, label: str, meaning: str, choices: Sequence[Concerned]) -> Definition:
    return Definition(
        name,
        label,
        meaning,
        of_applications=True,
        of_platform=True,
        has_grace=True,
        empty=frozenset(),
        choices=choices,
        read=lambda stored: frozenset(who for who in Concerned if who in stored),
        write=lambda concerned: [who.value for who in Concerned if who in concerned],
        strictest=lambda found: frozenset.union(*found),
        is_stricter=lambda new, old: Concerned.EVERYONE not in old and not new <= old,
        concerns=frozenset,
    )


def _period_rule(name: str, label: str, meaning: str, limits: tuple[int, int], *, of_platform: bool = True) -> Definition:
    """Return the rule about a period. Its name is the field with the unit, such as `device_trust_days`."""
    field_name, _, units = name.rpartition("_")
    unit = timedelta(**{units: 1})
    return Definition(
        name,
        label,
        meaning,
        field=field_name,
        of_applications=True,
        of_platform=of_platform,
        limits=limits,
        read=lambda stored: stored * unit,
        write=lambda period: period // unit,
        strictest=min,
        is_stricter=operator.lt,
    )


class Rule(StrEnum):
    """A rule of a sign-in policy. The values are the member names in the document."""

    definition: Definition
    field: str  # the name in `Rules`

    def __new__(cls, definition: Definition) -> Self:
        member = str.__new__(cls, definition.name)
        member._value_, member.definition, member.field = definition.name, definition, definition.field or definition.name
        return member

    METHODS = Definition(
        "methods",
        "Allowed methods",
        f"The methods of a sign-in: {', '.join(f'`{name}`' for name in METHODS)}. null allows all.",
        of_applications=True,
        has_grace=True,
        choices=METHODS,
        problem=lambda names: None if names else "Allow at least one method, or leave the rule out.",
        read=lambda stored: frozenset(name for name in METHODS if name in stored),
        write=lambda methods: [name for name in METHODS if name in methods],
        strictest=lambda found: frozenset.intersection(*found),
        is_stricter=lambda new, old: not new >= old,
    )
    SECOND_FACTOR = _factor_rule(
        "second_factor",
        "Second factor",
        "The users who need a second factor: `everyone`, `admins`, or `high_risk` for sign-ins with a high risk.",
        [*Concerned],
    )
    PHISHING_RESISTANT = _factor_rule(
        "phishing_resistant", "Passkey", "The users who need a passkey: `everyone` or `admins`.", [Concerned.EVERYONE, Concerned.ADMINS]
    )
    MIN_PASSWORD_LENGTH = Definition(
        "min_password_length",
        "Shortest password",
        "The least length of new passwords of accounts that the organization controls.",
        keeps_out=False,
        limits=(8, 64),
    )
    SESSION_LIFETIME = _period_rule(
        "session_lifetime_minutes",
        "Longest session",
        "The number of minutes after which users confirm that it's them, or sign in again.",
        (15, 90 * 24 * 60),
    )
    SESSION_IDLE = _period_rule(
        "session_idle_minutes",
        "Longest idle time",
        "The number of minutes without a request after which users confirm that it's them, or sign in again.",
        (5, 30 * 24 * 60),
    )
    DEVICE_TRUST = _period_rule(
        "device_trust_days",
        "Trusted devices",
        "The number of days during which a trusted device skips the second factor. 0: it never does.",
        (0, 90),
        of_platform=False,
    )
    ADMIN_NETWORKS = Definition(
        "admin_networks",
        "Networks of admins",
        "The networks from which owners and admins may act, such as `203.0.113.0/24`. null allows all.",
        of_platform=True,
        lockout="Your address {address} is outside these networks. Add a network with it.",
        empty=(),
        problem=lambda texts: next(filter(None, map(problem_of_network, texts)), None),
        read=lambda texts: tuple(ip_network(text) for text in texts),
        write=lambda networks: [str(network) for network in networks],
        is_stricter=lambda new, old: not set(new) >= set(old),
        concerns=lambda _: frozenset({Concerned.ADMINS}),
    )
    INVITED_DOMAINS = Definition(
        "invited_domains",
        "Domains of invited addresses",
        "The domains of the email addresses that can be invited. null allows all.",
        keeps_out=False,
        read=lambda texts: frozenset(values.Domain.parse(text) for text in texts) or None,
        write=sorted,
    )
    # A domain without its connection is a stricter value, too: its addresses can need the connection of another domain.
    CONNECTIONS = Definition(
        "required_connections",
        "Required connections",
        "The slugs of the active connections through which users have to come, by the verified domain of their address.",
        empty=MappingProxyType({}),
        read=lambda stored: {values.Domain.parse(name): connections.RequiredConnection.read(each) for name, each in stored.items()},
        write=lambda required: {domain: each.document for domain, each in sorted(required.items())},
        show=lambda required: {domain: each.slug for domain, each in sorted(required.items())},
        concerns=lambda _: frozenset(),  # `Rules.required_for` decides
    )
    CONNECTION = Definition(
        "required_connection",
        "Required connection",
        "The slug of the active connection of the organization through which all users of the service have to come.",
        of_organizations=False,
        of_applications=True,
        lockout="With these rules you could not sign in yourself. First sign in through this connection, or list yourself for break glass "
        "and sign in without an identity provider.",
        read=connections.RequiredConnection.read,
        write=lambda connection: connection.document,
        show=lambda connection: connection.slug,
        concerns=lambda _: frozenset(),  # `Rules.required_for` decides
    )


GRACE_DAYS: Final = "grace_days"
_GRACE: Final = _period_rule(
    GRACE_DAYS,
    "Grace period",
    "The number of days until `methods`, `second_factor` and `phishing_resistant` start, when they become stricter.",
    (0, 60),
)
# The members of the documents that users write.
MEMBERS: Final[Mapping[str, Definition]] = MappingProxyType({**{rule: rule.definition for rule in Rule}, GRACE_DAYS: _GRACE})
# Each decision reads these. Without the list, it would take twice the time.
_FIELDS: Final = [(rule, rule.field, rule.definition.empty) for rule in Rule]
RULES_WITH_GRACE: Final = tuple(rule for rule in Rule if rule.definition.has_grace)
RULES_OF_ORGANIZATIONS: Final = tuple(rule for rule in Rule if rule.definition.of_organizations)
RULES_OF_APPLICATIONS: Final = tuple(rule for rule in Rule if rule.definition.of_applications)
RULES_OF_PLATFORM: Final = tuple(rule for rule in Rule if rule.definition.of_platform)


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
        known = {name: stored for name in MEMBERS if (stored := document.get(name)) is not None}
        for name, stored in known.items():
            if (problem := MEMBERS[name].find_problem(stored)) is not None:
                raise PolicyInvalid(name, problem)
        try:
            return cls.read(known)
        except values.DomainInvalid as invalid:
            raise PolicyInvalid(Rule.INVITED_DOMAINS, invalid.message) from None

    @classmethod
    def read(cls, document: Document) -> Self:
        """Return the rules in a stored document. Unknown members are ignored: a later release may have written them."""
        return cls(
            **{rule.field: rule.definition.read(stored) for rule in Rule if (stored := document.get(rule)) is not None},
            grace=_GRACE.read(document.get(GRACE_DAYS, 0)),
            due_at={Rule(name): datetime.fromisoformat(time) for name, time in document.get("due_at", {}).items() if name in [*Rule]},
            until_due=document.get("until_due", {}),
        )

    @property
    def present(self) -> dict[Rule, Any]:
        """The rules that ask for something, with their values."""
        return {rule: value for rule, name, empty in _FIELDS if (value := getattr(self, name)) != empty}

    @property
    def document(self) -> dict[str, Any]:
        """The rules as a document. Rules that ask for nothing have no member."""
        members: dict[str, Any] = {
            **{rule.value: rule.definition.write(value) for rule, value in self.present.items()},
            GRACE_DAYS: _GRACE.write(self.grace) or None,
            "due_at": {rule.value: values.rfc3339(due) for rule, due in sorted(self.due_at.items())} or None,
            "until_due": dict(self.until_due) or None,
        }
        return {name: value for name, value in members.items() if value is not None}

    @property
    def shown(self) -> dict[str, Any]:
        """The rules as users read and write them: a document with connection slugs."""
        return self.document | {
            rule.value: rule.definition.show(value) for rule, value in self.present.items() if rule.definition.show is not None
        }

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
        for rule in self.present:
            if rule not in rules:
                raise PolicyInvalid(rule, "This policy has no such rule.")
        return self

    def in_force(self, now: datetime) -> Self:
        """Return the rules that hold now. Before its start, a rule has its earlier value."""
        later = [rule for rule, due in self.due_at.items() if now < due]
        if not later:
            return self
        earlier = Rules.read(self.until_due)
        return replace(self, **{rule.field: getattr(earlier, rule.field) for rule in later})

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
        return frozenset(rule for new, old in pairs for rule in Rule if rule.definition.keeps_out and _is_stricter(rule, new, old))

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
    """Return the strictest value of every rule. The dates are left out."""
    found = dict[Rule, list[Any]]()
    for rules in all_rules:
        for rule, value in rules.present.items():
            found.setdefault(rule, []).append(value)
    return Rules(**{rule.field: rule.definition.strictest(values) for rule, values in found.items()})


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
        parts = [part for part in self.parts if rule in part.rules.in_force(now).present]
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
    present = [(rule.definition, value) for rule, value in rules.present.items() if rule.definition.keeps_out]
    concerned = frozenset[Concerned]().union(*(definition.concerns(value) for definition, value in present))
    return bool(concerned if is_admin else concerned - {Concerned.ADMINS})


def _is_stricter(rule: Rule, new: Rules, old: Rules) -> bool:
    was, is_ = old.present.get(rule), new.present.get(rule)
    return is_ is not None and (was is None or rule.definition.is_stricter(is_, was))
