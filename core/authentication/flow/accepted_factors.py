"""The second factors that are enough for the application in a pending sign-in."""

from collections.abc import Sequence
from dataclasses import replace

from core.accounts import devices
from core.accounts.model.devices import PresentedDevice
from core.authentication.flow.facts import ApplicationNeeds, SignInQuery, may_have_policy
from core.authentication.flow.model import Flow
from core.kernel.causes import Caller
from core.kernel.display import PRODUCT
from core.kernel.judgement import SignInFacts, Start, judge
from core.kernel.proofs import Proof, complete, strength_of
from core.kernel.sign_in_policy.decision import Decision
from core.kernel.sign_in_policy.step_ups import step_up_to
from ports import Ports


async def find_accepted(
    ports: Ports, caller: Caller, flow: Flow, client: PresentedDevice, seconds: Sequence[Proof], needs: ApplicationNeeds
) -> tuple[Sequence[Proof], Decision | None]:
    """Return the second-factor proofs that let the user in, and the decision that leaves some proofs out, if any.

    If none is enough, return all: the user then sets up another factor.
    """
    if not flow.proofs:
        return seconds, None
    first = replace(flow.proofs[0], at=ports.clock.now())
    reason = step_up_to(needs.required, needs.name or PRODUCT)
    enough = [second for second in seconds if strength_of(complete(first, second)) >= needs.required] or seconds
    facts = await _load_facts(ports, caller, flow, client, first, needs) if needs.has_sign_in_policy else None
    if facts is None:
        return enough, reason if len(enough) < len(seconds) else None
    met = [second for second in enough if isinstance(judge(replace(facts, proofs=complete(first, second))), Start)]
    if 0 < len(met) < len(enough):
        return met, judge(facts).decision
    return enough, reason if len(enough) < len(seconds) else None


async def _load_facts(
    ports: Ports, caller: Caller, flow: Flow, client: PresentedDevice, first: Proof, needs: ApplicationNeeds
) -> SignInFacts | None:
    """Return the facts about this sign-in, with its risk on this device.

    None: there is no policy, the first factor alone meets the policy, or the user may not use the application and learns nothing about it.
    """
    if flow.user_id is None or not may_have_policy(flow):
        return None
    now, fingerprint = ports.clock.now(), devices.fingerprint(ports, caller, client)
    async with ports.storage.transaction(by=caller, in_session=False) as tx:  # it stores nothing, so the account is not locked
        query = SignInQuery(ports, tx, flow, fingerprint, now, first.connection, needs.external_for)
        device = await query.load(flow.user_id)
        if query.subject is None:
            return None
        providers = () if flow.identity is None else (flow.identity.provider,)
        facts = replace(query.facts(query.subject.account, device, (first,), providers), asks_policy=True, factors=())
        if isinstance(judge(replace(facts, may_use=True)), Start):
            return None
        facts = await query.with_access(facts, flow.user_id)
    return facts if facts.may_use else None
