"""The factors that the users on the list of break glass need (security SP-9)."""

from datetime import datetime
from uuid import UUID

from core.accounts import relying_party
from core.kernel.access import NotOfThisOrganization
from core.kernel.errors import refuse
from core.kernel.sign_in_policy.decision import met_situations, situations
from core.kernel.sign_in_policy.rules import EffectivePolicy
from core.tenancy.model.sign_in_policies import BreakGlassNeedsFactors, PolicyPerson
from ports import Ports
from ports.storage import Transaction


async def require_factors_of_listed(ports: Ports, tx: Transaction, org_id: UUID, now: datetime) -> None:
    """Check that the users on the list have the factors that each policy asks for, where it requires a connection of them.

    Otherwise the password alone could add the factors, and then open the organization. Raises: BreakGlassNeedsFactors.
    """
    listed = [each.user_id for each in await tx.sign_in_policies.break_glass_users(org_id)]
    if not listed:
        return
    applications = [application.id for application, _ in await tx.sign_in_policies.of_applications(org_id)]
    people = [await tx.sign_in_policies.person(org_id, user_id) or refuse(NotOfThisOrganization) for user_id in listed]
    for policy in [await tx.sign_in_policies.effective(org_id, service_id) for service_id in (None, *applications)]:
        if policy is None:
            continue
        for person in people:
            if policy.in_force(now).required_for(person.connections) and not _has_factors(ports, policy, person, now):
                raise BreakGlassNeedsFactors(person.account.email)


def _has_factors(ports: Ports, policy: EffectivePolicy, person: PolicyPerson, now: datetime) -> bool:
    """Return whether the own factors of this person are enough in each situation, also by the rules that start later."""
    factors = relying_party.without_lost_keys(ports, person.account, person.keys).factors
    facts = person.facts(policy.in_force(now), now, factors, email_is_on=ports.policy.email_sign_in)
    return met_situations(policy, facts) == situations(policy, now)
