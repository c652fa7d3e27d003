"""The form for a sign-in policy, and its preview: for an organization, an application and the platform."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, TypeVar
from uuid import UUID

from core.kernel.errors import Refusal
from core.kernel.proofs import Method
from core.kernel.sign_in_policy.explanations import LABELS
from core.kernel.sign_in_policy.rules import GRACE_DAYS, METHODS, PROVIDER_PREFIX, Concerned, PolicyInvalid, PolicyOfUser, Rule, Rules
from core.tenancy.model import sign_in_policies
from entrypoints.http import kit
from entrypoints.http.pages import form_values
from entrypoints.http.pages.console_forms import Form

METHOD: Final = "method:"  # begins the checkbox names for methods
CONNECTION_OF: Final = "connection:"  # begins the field names for a domain's connection
HIGH_RISK: Final = "high_risk"
HOUR: Final = 60  # minutes
DAY: Final = 24 * HOUR
LIFETIMES: Final = (HOUR, 4 * HOUR, 8 * HOUR, 12 * HOUR, DAY, 3 * DAY, 7 * DAY, 14 * DAY, 30 * DAY, 90 * DAY)
IDLE_TIMES: Final = (5, 15, 30, HOUR, 4 * HOUR, 12 * HOUR, DAY, 7 * DAY, 30 * DAY)
TRUST_DAYS: Final = (0, 1, 7, 14, 30, 60, 90)
CONCERNED: Final = [("", "Not required"), (Concerned.ADMINS.value, "For owners and admins"), (Concerned.EVERYONE.value, "For everyone")]
# The platform's policy concerns platform owners alone.
LABELS_OF_PLATFORM: Final[Mapping[str, str]] = {**LABELS, Rule.ADMIN_NETWORKS: "Networks of platform owners"}
CONCERNED_OF_PLATFORM: Final = [("", "Not required"), (Concerned.EVERYONE.value, "For all platform owners")]
M = TypeVar("M", bound=kit.RequestModel)


@dataclass(frozen=True, slots=True)
class RequiredChoices:
    """An organization's verified domains, and the names of its active connections by slug."""

    domains: Sequence[str] = ()
    connections: Mapping[str, str] = field(default_factory=dict)


NO_CHOICES: Final = RequiredChoices()


def policy_values(
    rules: Sequence[Rule],
    policy: sign_in_policies.SignInPolicy,
    form: Form,
    preview: sign_in_policies.PolicyPreview | None,
    methods: Sequence[str] = METHODS,
    choices: RequiredChoices = NO_CHOICES,
) -> dict[str, Any]:
    """Return the values for `tenancy/_sign_in_policy.html`.

    `rules` are the rules that this kind of policy has, and `methods` are offered.
    """
    is_platform = policy.org_id is None
    typed = {"version": str(policy.version), **form} if form else _stored(policy)
    return {
        "rules": [rule.value for rule in rules],
        "labels": LABELS_OF_PLATFORM if is_platform else LABELS,
        "methods": [(METHOD + name, _method_label(name)) for name in methods],
        "concerned": CONCERNED_OF_PLATFORM if is_platform else CONCERNED,
        "lifetimes": _options("No limit", LIFETIMES, policy.rules, Rule.SESSION_LIFETIME),
        "idle_times": _options("No limit", IDLE_TIMES, policy.rules, Rule.SESSION_IDLE),
        "trust_days": _options("As in the general settings", TRUST_DAYS, policy.rules, Rule.DEVICE_TRUST),
        "typed": typed,
        "saved": None if typed["version"] == str(policy.version) else describe(policy.rules, is_platform=is_platform),
        "starts": {rule.value: due for rule, due in policy.rules.due_at.items()},
        "imposed": [LABELS[name] for name in policy.imposed_names],
        "preview": preview,
        "domains": [(CONNECTION_OF + domain, domain) for domain in choices.domains],
        "connections": [("", "Not required"), *((slug, name) for slug, name in choices.connections.items())],
        "unusable": [_method_label(name) for name in (preview.unusable_methods if preview is not None else ())],
        "address": kit.signed_in().address or "",
    }


def offered_methods(usable: Collection[str], policy: sign_in_policies.SignInPolicy) -> Sequence[str]:
    """Return the methods that the form offers: methods that work in this installation, and methods that the policy names already."""
    return [name for name in METHODS if name in usable or name in (policy.rules.methods or ())]


def _stored(policy: sign_in_policies.SignInPolicy) -> dict[str, str]:
    """Return the form fields for a stored policy."""
    rules, document = policy.rules, policy.rules.document
    numbers = (Rule.MIN_PASSWORD_LENGTH, Rule.SESSION_LIFETIME, Rule.SESSION_IDLE, Rule.DEVICE_TRUST)
    return {
        **{METHOD + name: "yes" for name in METHODS if rules.methods is None or name in rules.methods},
        **{rule.value: str(document.get(rule, "")) for rule in numbers},
        **{rule.value: "\n".join(document.get(rule, ())) for rule in (Rule.ADMIN_NETWORKS, Rule.INVITED_DOMAINS)},
        **{CONNECTION_OF + domain: each.slug for domain, each in rules.required_connections.items()},
        Rule.CONNECTION.value: "" if rules.required_connection is None else rules.required_connection.slug,
        Rule.SECOND_FACTOR.value: _chosen(rules.second_factor, policy),
        Rule.PHISHING_RESISTANT.value: _chosen(rules.phishing_resistant, policy),
        HIGH_RISK: "yes" if Concerned.HIGH_RISK in rules.second_factor else "",
        GRACE_DAYS: str(rules.grace.days),
        "version": str(policy.version),
    }


def _chosen(concerned: frozenset[Concerned], policy: sign_in_policies.SignInPolicy) -> str:
    """Return the option in CONCERNED for the users that a rule concerns. All users under the platform's policy are admins."""
    if policy.org_id is None and concerned:
        return Concerned.EVERYONE
    return next((who.value for who in (Concerned.EVERYONE, Concerned.ADMINS) if who in concerned), "")


def to_policy(model: type[M], form: Form, offered: Sequence[str] = METHODS) -> M:
    """Return the API request that the form stands for. All offered methods together are no rule, so that later methods count, too."""
    methods = [name for name in form_values.checked(form, METHOD) if name in METHODS]
    required = {name.removeprefix(CONNECTION_OF): slug for name, slug in form.items() if name.startswith(CONNECTION_OF) and slug}
    chosen = [form.get(Rule.SECOND_FACTOR, ""), HIGH_RISK if HIGH_RISK in form else ""]
    parsers = {
        Rule.METHODS.value: lambda _: None if {*methods} >= {*offered} else methods,
        Rule.SECOND_FACTOR.value: lambda _: [each for each in chosen if each],
        Rule.PHISHING_RESISTANT.value: lambda text: [text] if text else [],
        Rule.ADMIN_NETWORKS.value: lambda text: form_values.to_lines(text) or None,
        Rule.INVITED_DOMAINS.value: lambda text: form_values.to_lines(text) or None,
        Rule.CONNECTIONS.value: lambda _: required or None,
        Rule.CONNECTION.value: lambda text: text or None,
        **{name: form_values.to_number for name in model.model_fields if name.endswith(("_length", "_minutes", "_days", "version"))},
    }
    return form_values.to_model(model, form, {name: parse for name, parse in parsers.items() if name in model.model_fields})


@contextmanager
def naming_fields() -> Iterator[None]:
    """Name the form field that a refused rule stands in."""
    try:
        yield
    except PolicyInvalid as invalid:
        raise form_values.FieldInvalid(invalid.problem, invalid.member) from None


def wrong_rule(refusal: Refusal, _: Form) -> str | None:
    """Return the field that a policy's refusal is about, or None."""
    if isinstance(refusal, sign_in_policies.MethodsUnavailable):
        return Rule.METHODS
    return refusal.field if isinstance(refusal, form_values.FieldInvalid) else None


def describe(rules: Rules, *, is_platform: bool = False) -> list[tuple[str, str, datetime | None]]:
    """Return label and value for every rule that asks for something, and its start if it starts later."""
    document, labels = rules.shown, LABELS_OF_PLATFORM if is_platform else LABELS
    who = (lambda _: "for platform owners") if is_platform else _who
    values = {
        Rule.METHODS: ", ".join(_method_label(name) for name in document.get(Rule.METHODS, ())),
        Rule.SECOND_FACTOR: who(rules.second_factor),
        Rule.PHISHING_RESISTANT: who(rules.phishing_resistant),
        Rule.MIN_PASSWORD_LENGTH: f"{rules.min_password_length} characters",
        **{rule: _duration(document.get(rule, 0)) for rule in (Rule.SESSION_LIFETIME, Rule.SESSION_IDLE)},
        Rule.DEVICE_TRUST: _trust(document.get(Rule.DEVICE_TRUST, 0)),
        **{rule: ", ".join(document.get(rule, ())) for rule in (Rule.ADMIN_NETWORKS, Rule.INVITED_DOMAINS)},
        Rule.CONNECTIONS: ", ".join(f"{domain}: {slug}" for domain, slug in document.get(Rule.CONNECTIONS, {}).items()),
        Rule.CONNECTION: document.get(Rule.CONNECTION, ""),
    }
    return [(labels[rule], text, rules.due_at.get(rule)) for rule, text in values.items() if rule in document]


def own_policy_values(policies: Sequence[PolicyOfUser]) -> list[dict[str, Any]]:
    """Return every organization and application with rules for the user, by name, with these rules as `describe` returns them."""
    values = dict[tuple[UUID | None, str], list[tuple[str, str, datetime | None]]]()
    for each in policies:  # an application can have settings beside its policy
        if rules := describe(_rules_of(each), is_platform=each.policy.org_id is None):
            values.setdefault((each.policy.org_id, each.policy.name), []).extend(rules)
    return sorted(({"name": name, "rules": rules} for (_, name), rules in values.items()), key=lambda each: each["name"])


def _rules_of(policy: PolicyOfUser) -> Rules:
    """Return the rules about a user's sign-ins. Network rules are left out: they can be too many to read."""
    rules, others = policy.policy.parts[0].rules, frozenset() if policy.is_admin else frozenset({Concerned.ADMINS})
    return replace(
        rules,
        second_factor=rules.second_factor - others,
        phishing_resistant=rules.phishing_resistant - others,
        min_password_length=None,
        admin_networks=(),
        invited_domains=None,
    )


def _who(concerned: frozenset[Concerned]) -> str:
    if Concerned.EVERYONE in concerned:
        return "for everyone"
    texts = {Concerned.ADMINS: "for owners and admins", Concerned.HIGH_RISK: "when the risk is high"}
    return " and ".join(text for who, text in texts.items() if who in concerned)


def _method_label(name: str) -> str:
    if name == Method.EMAIL:
        return "Code or link by email"
    return kit.label(name.removeprefix(PROVIDER_PREFIX), kit.sign_in_methods())


def _options(none: str, usual: Sequence[int], rules: Rules, rule: Rule) -> list[tuple[str, str]]:
    """Return the options for a duration, with the present duration."""
    present, to_text = rules.document.get(rule), _trust if rule is Rule.DEVICE_TRUST else _duration
    return [("", none), *((str(each), to_text(each)) for each in sorted({*usual, *([] if present is None else [present])}))]


def _trust(days: int) -> str:
    return _duration(days * DAY) if days else "Never: a code or passkey each time"


def _duration(minutes: int) -> str:
    """Return a duration in the largest unit that divides it, such as "12 hours"."""
    unit, size = next((name, size) for name, size in (("day", DAY), ("hour", HOUR), ("minute", 1)) if minutes % size == 0)
    return f"{minutes // size} {unit}{'' if minutes == size else 's'}"
