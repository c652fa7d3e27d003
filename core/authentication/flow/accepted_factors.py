"""The second factors of a sign-in in progress that are enough for the application that waits for it."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

from core.accounts import devices
from core.accounts.model.devices import PresentedDevice
from core.authentication.flow.model import Flow
from core.authentication.model.policy import PolicyPath, PolicySession, PolicySubject
from core.authentication.policy_checks import Admission, hide_from_strangers, judge
from core.kernel.causes import Caller
from core.kernel.proofs import Proof, Proofs, Strength, complete, strength_of
from core.kernel.sign_in_policy.decision import NO_POLICY, Decision, Outcome
from ports import Ports


async def find_accepted(
    ports: Ports, caller: Caller, flow: Flow, client: PresentedDevice, seconds: Sequence[Proof], required: Strength
) -> tuple[Sequence[Proof], Decision]:
    """Return those proofs of a second factor that let the user of the flow in, and the decision about the first factor alone.

    `required` is the strength that the application or its request asks for. If none of the proofs is enough, the user signs in with a
    present factor, and then sets another one up: all are returned.
    """
    now = ports.clock.now()
    if not flow.proofs:
        return seconds, NO_POLICY
    first = replace(flow.proofs[0], at=now)
    seconds = [second for second in seconds if strength_of(complete(first, second)) >= required] or seconds
    subject = await _load_subject(ports, flow)
    if subject is None:
        return seconds, NO_POLICY
    decide_on = await _with_risk(ports, caller, flow, client, subject, now)
    async with ports.storage.reading() as read:
        seen = Admission(subject, decide_on((first,)))
        admission = await hide_from_strangers(read, seen, flow.application[:2], subject.account.id, now)
    if admission.is_allowed:  # a user who may not use the application learns nothing about its policy
        return seconds, NO_POLICY
    enough = [second for second in seconds if decide_on(complete(first, second)).outcome is Outcome.ALLOWED]
    return enough or seconds, admission.decision


async def _load_subject(ports: Ports, flow: Flow) -> PolicySubject | None:
    """Return the user of the flow with the sign-in policy of the application, if it has one."""
    org_id, service_id, _ = flow.application
    if org_id is None or flow.user_id is None or (flow.service is not None and not flow.service.has_sign_in_policy):
        return None
    async with ports.storage.reading() as read:
        subject = await read.policy_passes.load(org_id, service_id, flow.user_id, None)
    if subject is None or flow.identity is None:
        return subject
    return replace(subject, providers=subject.providers | {flow.identity.provider})  # this sign-in links it


async def _with_risk(
    ports: Ports, caller: Caller, flow: Flow, client: PresentedDevice, subject: PolicySubject, now: datetime
) -> Callable[[Proofs], Decision]:
    """Return the decision of the policy as a function of the proofs, at the risk that the sign-in has on this device."""
    fingerprint, org_id = devices.fingerprint(ports, caller, client), None if flow.service is None else flow.service.org_id
    async with ports.storage.transaction(by=caller, in_session=False) as tx:
        match = await devices.match_device(tx, subject.account.id, fingerprint, org_id, now)
    is_high = match.device.risk.is_high

    def decide_on(proofs: Proofs) -> Decision:
        return judge(ports, PolicyPath.PREVIEW, replace(subject, session=PolicySession(proofs, risk_is_high=is_high)), now)

    return decide_on
