"""Requests from users with a session: the facts to judge a request, and the consequences of the verdict."""

from dataclasses import replace

from core.accounts import factor_changes
from core.accounts.factors import own_proofs
from core.authentication import admissions
from core.authentication.admissions import Admission
from core.kernel.access import Requirement
from core.kernel.callers import Member, Person
from core.kernel.judgement import Act, Ask, PolicyPath, SignInFacts, judge
from core.kernel.sign_in_age import SignInAge, is_enough
from ports import Ports


def check(ports: Ports, path: PolicyPath, caller: Person, requirement: Requirement) -> SignInFacts:
    """Refuse a request that the caller's credentials alone forbid. Return the facts about the request for `admit`."""
    needs_more = requirement.age is not SignInAge.ANY or requirement.changes_factors or requirement.is_of_platform
    act = Act(caller, requirement, is_loaded=not needs_more and caller.impersonator_id is None)
    facts = SignInFacts(now=ports.clock.now(), settings=ports.policy, path=path, act=act)
    verdict = judge(facts)
    if not isinstance(verdict, Ask):
        Admission(verdict=verdict).require(ports, caller)
    return facts


async def admit(ports: Ports, facts: SignInFacts) -> Person:
    """Return the caller, if they may send the request now. A member comes with the sign-in at a required connection."""
    assert facts.act is not None, "the facts are about a request"
    caller, requirement = facts.act.caller, facts.act.requirement
    if facts.act.is_loaded:
        return caller
    if caller.impersonator_id is not None and not requirement.ends_session:
        await admissions.require_of_impersonator(ports, caller)
    if requirement.is_of_platform:
        await admissions.require_on_platform(ports, caller)
    has_policy = isinstance(caller, Member) and caller.has_sign_in_policy and caller.personal_token is None
    if isinstance(caller, Member) and has_policy and requirement.age is not SignInAge.ANY:
        found = await admissions.find_connection_sign_in(ports, facts.path, caller, requirement.age)
        caller = replace(caller, connection_sign_in=found)
    missing = None
    if requirement.changes_factors:
        is_fresh = is_enough(caller.sign_in, requirement.age, ports.policy, facts.now)
        find = own_proofs.find_missing_passkey if is_fresh else factor_changes.find_missing_sign_in
        missing = await find(ports, caller)
    verdict = judge(replace(facts, act=Act(caller, requirement, missing, is_loaded=True)))
    Admission(verdict=verdict).require(ports, caller)
    return caller
