"""The second factors of a sign-in in progress that are enough for the application that waits for it."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from core.accounts import devices
from core.accounts.model.devices import PresentedDevice
from core.authentication.flow.admission import AccountFacts, ApplicationNeeds, hide_in_flow, may_have_policy
from core.authentication.flow.model import Flow
from core.authentication.policy_checks import Admission, judge_sign_in
from core.kernel.causes import Caller
from core.kernel.display import PRODUCT
from core.kernel.proofs import Proof, Proofs, complete, strength_of
from core.kernel.sign_in_policy.decision import Decision
from core.kernel.sign_in_policy.step_ups import step_up_to
from ports import Ports


async def find_accepted(
    ports: Ports, caller: Caller, flow: Flow, client: PresentedDevice, seconds: Sequence[Proof], needs: ApplicationNeeds
) -> tuple[Sequence[Proof], Decision | None]:
    """Return those proofs of a second factor that let the user of the flow in, and the decision that leaves others out, if one does.

    If none is enough, return all: the user then sets up another factor.
    """
    if not flow.proofs:
        return seconds, None
    first = replace(flow.proofs[0], at=ports.clock.now())
    reason = step_up_to(needs.required, needs.name or PRODUCT)
    enough = [second for second in seconds if strength_of(complete(first, second)) >= needs.required] or seconds
    judge = await _load_policy(ports, caller, flow, client, first, needs) if needs.has_sign_in_policy else None
    met = enough if judge is None else [second for second in enough if judge(complete(first, second)).is_allowed]
    if judge is not None and 0 < len(met) < len(enough):
        reason, enough = judge((first,)).decision, met
    return enough, reason if len(enough) < len(seconds) else None


async def _load_policy(
    ports: Ports, caller: Caller, flow: Flow, client: PresentedDevice, first: Proof, needs: ApplicationNeeds
) -> Callable[[Proofs], Admission] | None:
    """Return the decision of the application's policy as a function of the proofs, at the risk that the sign-in has on this device.

    None: there is no policy, the first factor alone meets it, or the user may not use the application and learns nothing about it.
    """
    if flow.user_id is None or not may_have_policy(flow):
        return None
    now, fingerprint = ports.clock.now(), devices.fingerprint(ports, caller, client)
    async with ports.storage.transaction(by=caller, in_session=False) as tx:  # it stores nothing, so the account is not locked
        device, subject = await AccountFacts(tx, flow, fingerprint, first.connection, now).load(flow.user_id, flow.identity)

        def judge(proofs: Proofs) -> Admission:
            return judge_sign_in(ports, subject, proofs, device, now, counts=False)

        admission = await hide_in_flow(tx, flow, judge((first,)), flow.user_id, now, needs.external_for)
    return None if admission.is_allowed else judge
