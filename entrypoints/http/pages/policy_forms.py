"""The form for a sign-in policy, and its preview: for an organization, an application and the platform."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
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


@dataclass(frozen=True, slots=True, kw_only=True)
class FormRule:
    """How a rule stands in the form and in a list of rules. Values have the form that `Rules.shown` has."""

    parse: Callable[[str, Form], Any] = lambda text, _: form_values.to_number(text)  # the text in the rule's field, and all fields
    to_text: Callable[[Any], str] = str  # in this field
    to_fields: Callable[[Any], Mapping[str, str]] = lambda _: {}  # further fields. None: there is no such rule
    describe: Callable[[Any], str]


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
    fields, shown = {GRACE_DAYS: str(policy.rules.grace.days), "version": str(policy.version)}, policy.rules.shown
    for rule, in_form in (FORM_OF_PLATFORM if policy.org_id is None else FORM).items():
        fields[rule.value] = in_form.to_text(shown[rule]) if rule in shown else ""
        fields |= in_form.to_fields(shown.get(rule))
    return fields


def _chosen(concerned: Collection[str]) -> str:
    """Return the option in CONCERNED for the users that a rule concerns."""
    return next((who.value for who in (Concerned.EVERYONE, Concerned.ADMINS) if who in concerned), "")


def to_policy(model: type[M], form: Form, offered: Sequence[str] = METHODS) -> M:
    """Return the API request that the form stands for. All offered methods together are no rule, so that later methods count, too."""

    def parser(rule: Rule) -> Callable[[str], Any]:
        return lambda text: FORM[rule].parse(text, form)

    parsers = {rule.value: parser(rule) for rule in FORM} | dict.fromkeys((GRACE_DAYS, "version"), form_values.to_number)
    if {*form_values.checked(form, METHOD)} >= {*offered}:
        parsers[Rule.METHODS.value] = lambda _: None
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
    shown, (labels, form_rules) = rules.shown, (LABELS_OF_PLATFORM, FORM_OF_PLATFORM) if is_platform else (LABELS, FORM)
    return [(labels[rule], form_rules[rule].describe(shown[rule]), rules.due_at.get(rule)) for rule in Rule if rule in shown]


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


def _who(concerned: Collection[str]) -> str:
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


def _to_lines(text: str, _: Form) -> list[str] | None:
    return form_values.to_lines(text) or None


def _to_connections(_: str, form: Form) -> dict[str, str] | None:
    return {name.removeprefix(CONNECTION_OF): slug for name, slug in form.items() if name.startswith(CONNECTION_OF) and slug} or None


FORM: Final[Mapping[Rule, FormRule]] = {
    Rule.METHODS: FormRule(
        parse=lambda _, form: [name for name in form_values.checked(form, METHOD) if name in METHODS],
        to_text=lambda _: "",
        to_fields=lambda methods: {METHOD + name: "yes" for name in METHODS if methods is None or name in methods},
        describe=lambda methods: ", ".join(map(_method_label, methods)),
    ),
    Rule.SECOND_FACTOR: FormRule(
        parse=lambda text, form: [each for each in (text, HIGH_RISK if HIGH_RISK in form else "") if each],
        to_text=_chosen,
        to_fields=lambda concerned: {HIGH_RISK: "yes" if HIGH_RISK in (concerned or ()) else ""},
        describe=_who,
    ),
    Rule.PHISHING_RESISTANT: FormRule(parse=lambda text, _: [text] if text else [], to_text=_chosen, describe=_who),
    Rule.MIN_PASSWORD_LENGTH: FormRule(describe=lambda length: f"{length} characters"),
    Rule.SESSION_LIFETIME: FormRule(describe=_duration),
    Rule.SESSION_IDLE: FormRule(describe=_duration),
    Rule.DEVICE_TRUST: FormRule(describe=_trust),
    Rule.ADMIN_NETWORKS: FormRule(parse=_to_lines, to_text="\n".join, describe=", ".join),
    Rule.INVITED_DOMAINS: FormRule(parse=_to_lines, to_text="\n".join, describe=", ".join),
    Rule.CONNECTIONS: FormRule(
        parse=_to_connections,
        to_text=lambda _: "",
        to_fields=lambda slugs: {CONNECTION_OF + domain: slug for domain, slug in (slugs or {}).items()},
        describe=lambda slugs: ", ".join(f"{domain}: {slug}" for domain, slug in slugs.items()),
    ),
    Rule.CONNECTION: FormRule(parse=lambda text, _: text or None, describe=str),
}
# All platform owners are admins.
FORM_OF_PLATFORM: Final[Mapping[Rule, FormRule]] = {
    **FORM,
    **{
        rule: replace(FORM[rule], to_text=lambda _: Concerned.EVERYONE.value, describe=lambda _: "for platform owners")
        for rule in (Rule.SECOND_FACTOR, Rule.PHISHING_RESISTANT)
    },
}
