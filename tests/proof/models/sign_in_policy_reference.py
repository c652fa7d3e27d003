"""A second, small statement about the sign-in policy, written from its documents and not from the code. All times are minutes."""

from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from typing import Any, Literal

Policy = dict[str, Any]  # a document; `due` has the minute at which a rule with a grace period starts
Answer = tuple[Literal["allowed", "step_up", "enroll", "refused"], str | None]
DAY = 24 * 60
SECONDS = {"totp", "backup_code", "key"}
GRACE = ("methods", "second_factor", "phishing_resistant")


@dataclass
class User:
    """A user, and the session in which the policy is asked."""

    first_ways: set[str]  # password, email, provider:...
    has_totp: bool = False
    has_passkey: bool = False
    has_key: bool = False  # a security key, as second factor
    is_admin: bool = False
    acts: bool = False
    risk: bool = False
    address: str = "203.0.113.7"
    proofs: list[tuple[str, int]] = field(default_factory=list)  # the method and its minute; the first factor comes first
    used_at: int | None = None
    trusted_at: int | None = None  # when this device proved the second factor


def answer(policies: list[Policy], user: User, now: int) -> Answer:
    """Return what a sign-in leads to, and the rule that asks for it."""
    return judge([in_force(policy, now) for policy in policies], user, now)


def due(policies: list[Policy], user: User, now: int) -> int | None:
    """Return the minute from which an allowed user has to set up a factor."""
    for minute in moments(policies, now)[1:]:
        later = [in_force(policy, minute) for policy in policies]
        if proved(later, user, now) < needed(later, user) and reachable(later, user) < needed(later, user):
            return minute
    return None


def moments(policies: list[Policy], now: int) -> list[int]:
    """Return now, and every later minute at which a rule starts."""
    return [now, *sorted({minute for policy in policies for minute in policy.get("due", {}).values() if minute > now})]


def judge(policies: list[Policy], user: User, now: int) -> Answer:
    if not policies:
        return "allowed", None
    recovered = any(method == "owner_recovery" for method, _ in user.proofs)
    if user.is_admin and user.acts and not recovered and not all(is_inside(policy, user.address) for policy in policies):
        return "refused", "admin_networks"
    need, have, can = needed_in_session(policies, user), proved(policies, user, now), reachable(policies, user)
    if have < need:
        rule = factor_rule(have if have < can else can, need)
        is_of_device = need > needed(policies, user) and rule != "methods"
        return ("step_up" if can >= need else "enroll"), ("device_trust_days" if is_of_device else rule)
    signed_in = signed_in_at(policies, user, now)
    for rule, start in (
        ("session_lifetime_minutes", signed_in),
        ("session_idle_minutes", max(signed_in, signed_in if user.used_at is None else user.used_at)),
    ):
        if any(rule in policy and now - start > policy[rule] for policy in policies):
            return ("step_up", rule) if can >= need else ("enroll", factor_rule(can, need))
    return "allowed", None


def in_force(policy: Policy, now: int) -> Policy:
    later = {rule for rule, start in policy.get("due", {}).items() if start > now}
    return {name: value for name, value in policy.items() if name not in later} | {
        rule: value for rule, value in policy.get("until", {}).items() if rule in later
    }


def needed(policies: list[Policy], user: User) -> int:
    def is_asked(rule: str) -> bool:
        concerned = [who for policy in policies for who in policy.get(rule, [])]
        return "everyone" in concerned or ("admins" in concerned and user.is_admin) or ("high_risk" in concerned and user.risk)

    return 3 if is_asked("phishing_resistant") else 2 if is_asked("second_factor") else 1


def needed_in_session(policies: list[Policy], user: User) -> int:
    """Return the needed strength, with the second factor if the device skipped it after the shortest period in the policies."""
    need, firsts = needed(policies, user), [minute for method, minute in user.proofs if method not in SECONDS]
    if user.trusted_at is None or any(way in SECONDS | {"passkey"} for way, _ in user.proofs):
        return need
    days = min((policy["device_trust_days"] for policy in policies if "device_trust_days" in policy), default=None)
    has_second = (user.has_totp and is_allowed(policies, "totp")) or (user.has_key and is_allowed(policies, "key"))
    return max(need, 2) if days is not None and has_second and max(firsts) - user.trusted_at >= days * DAY else need


def proved(policies: list[Policy], user: User, now: int) -> int:
    return max((strength for _, strength in sign_ins(policies, user, now)), default=0)


def sign_ins(policies: list[Policy], user: User, now: int) -> list[tuple[int, int]]:
    """Return the minute of every first factor that counts, and its strength with second factors from up to 10 minutes before it."""
    seconds = [method for method, is_there in (("totp", user.has_totp), ("key", user.has_key)) if is_there]
    allowed = [is_allowed(policies, method) for method in seconds]
    of_code = any(allowed) or not any("methods" in policy for policy in policies)  # stands for a single address, a device for all
    is_trusted = user.trusted_at is not None and not user.risk and all(allowed)
    for policy in policies:
        is_trusted = is_trusted and now - (user.trusted_at or 0) < policy.get("device_trust_days", 90) * DAY
    counting = [(way, minute) for way, minute in user.proofs if (of_code if way == "backup_code" else counts(policies, user, way))]
    found = []
    for way, minute in counting:
        others = [(other, since) for other, since in counting if other in SECONDS | {"passkey"} and since >= minute - 10]
        if way == "passkey" or ("passkey", minute) in others or any(other == "passkey" and since > minute for other, since in others):
            found.append((minute, 3))
        elif way not in SECONDS:
            found.append((minute, 2 if others or is_trusted else 1))
    return found


def reachable(policies: list[Policy], user: User) -> int:
    if user.has_passkey and is_allowed(policies, "passkey"):
        return 3
    if any("methods" in policy for policy in policies) and not any(is_allowed(policies, way) for way in user.first_ways):
        return 0
    return 2 if (user.has_totp and is_allowed(policies, "totp")) or (user.has_key and is_allowed(policies, "passkey")) else 1


def counts(policies: list[Policy], user: User, method: str) -> bool:
    """Return whether a proof counts.

    A provider's factor does not count where the account is not linked with it, if a policy names methods.
    """
    is_foreign = method.startswith("provider:") and method not in user.first_ways
    return is_allowed(policies, method) and not (is_foreign and any("methods" in policy for policy in policies))


def is_allowed(policies: list[Policy], method: str) -> bool:
    if method == "key":
        return is_allowed(policies, "passkey")
    return method == "owner_recovery" or all(method in policy.get("methods", [method]) for policy in policies)


def is_inside(policy: Policy, address: str) -> bool:
    networks, address = policy.get("admin_networks"), address.removeprefix("::ffff:")  # an IPv4 address inside an IPv6 address
    return not networks or any(ip_address(address) in ip_network(network) for network in networks)


def factor_rule(strength: int, need: int) -> str:
    return "methods" if strength == 0 else "phishing_resistant" if need == 3 else "second_factor"


def signed_in_at(policies: list[Policy], user: User, now: int) -> int:
    """Return the minute of the newest sign-in that is enough.

    Without such a sign-in, return the minute of the newest sign-in that counts, or of the newest first factor.
    """
    found, need = sign_ins(policies, user, now), needed_in_session(policies, user)
    enough = [minute for minute, strength in found if strength >= need] or [minute for minute, _ in found]
    return max(enough or [minute for method, minute in user.proofs if method not in SECONDS])


def save(new: Policy, old: Policy, now: int) -> Policy:
    """Return the document as it is stored: a stricter rule starts when the grace period ends, or when it would have started anyway."""
    held, starts = in_force(old, now), {}
    for rule in GRACE:
        if is_stricter(rule, new, held):
            starts[rule] = now + new.get("grace_days", 0) * DAY if is_stricter(rule, new, old) else old["due"][rule]
    starts = {rule: start for rule, start in starts.items() if start > now}
    return {**new, "due": starts, "until": {rule: held[rule] for rule in starts if rule in held}}


def is_stricter(rule: str, new: Policy, old: Policy) -> bool:
    if rule not in new or rule not in old:
        return rule in new
    if rule == "methods":
        return not set(old[rule]) <= set(new[rule])
    return "everyone" not in old[rule] and not set(new[rule]) <= set(old[rule])
