"""The query that loads the facts with which a pending sign-in is judged. It sends only statements on which the verdict depends."""

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final
from uuid import UUID

from core.accounts import devices, session_proofs
from core.accounts.model.accounts import Account
from core.accounts.model.devices import DeviceFingerprint, DeviceMatch, KnownDevice
from core.authentication import admissions, service_access
from core.authentication.flow.model import Flow
from core.authentication.model import policy
from core.kernel import judgement
from core.kernel.judgement import judge
from core.kernel.proofs import Proofs, Strength
from core.kernel.sign_in_policy.steps import Ask, Refuse, Step, Verdict
from ports import Ports
from ports.storage import Transaction


@dataclass(frozen=True, slots=True)
class ApplicationNeeds:
    """What an application requires from a sign-in, with the parts of its request that the flow itself does not have."""

    name: str | None = None  # of the application; None: the platform
    required: Strength = Strength.ONE  # by the application or its request
    has_sign_in_policy: bool = True  # False: its organization has none, so it is not loaded
    external_for: UUID | None = None  # as in `Opened`


NO_NEEDS: Final = ApplicationNeeds()


def opened_by(flow: Flow, external_for: UUID | None = None) -> service_access.Opened:
    """Return the application that the flow is for."""
    org_id, service_id, external_client = flow.application
    return service_access.Opened(org_id, service_id, flow.is_sign_on, external_client is not None, external_for)


@dataclass(slots=True)
class SignInQuery:
    """The facts about a sign-in in progress, read in one round trip, with the account locked if possible.

    `connection_id`: the organization's connection at which the sign-in began, if any. Sign-ins there have a risk history of their own.
    """

    ports: Ports
    tx: Transaction
    flow: Flow
    fingerprint: DeviceFingerprint
    now: datetime
    connection_id: UUID | None
    external_for: UUID | None = None  # as in `Opened`
    cookie: str | None = field(default=None, repr=False)  # of the session in this browser, if any
    subject: policy.PolicySubject | None = None  # the user in the application's policy, if there is a policy
    _known: Awaitable[KnownDevice | None] | None = None
    _policy: Awaitable[policy.PolicySubject | None] | None = None

    def send_behind(self, user_id: UUID) -> None:
        """Send the statements with the statement that locks the account."""
        org_id, service_id, external_client = self.flow.application
        # The organization of an external client only owns the API that the client asks for.
        trusting_id = org_id if external_client is None else None
        if org_id is not None and may_have_policy(self.flow):
            self._policy = self.tx.policy_passes.load(org_id, service_id, user_id, None)
        self._known = self.tx.devices.find_match(user_id, self.fingerprint, trusting_id, self.now, self.connection_id)

    async def load(self, user_id: UUID) -> DeviceMatch:
        """Return the device used to sign in, and keep the user for the policy."""
        if self._known is None:
            self.send_behind(user_id)
        assert self._known is not None, "it was sent"
        self.subject = None if self._policy is None else await self._policy
        return devices.to_match(user_id, self.fingerprint, await self._known, self.now)

    def facts(self, account: Account, device: DeviceMatch, proofs: Proofs, providers: Sequence[str] = ()) -> judgement.SignInFacts:
        """Return the facts about a sign-in to this account. It links the account at these providers."""
        is_high, mfa_at = device.device.risk.is_high, device.device.mfa_at if device.is_trusted_there else None
        if self.subject is None:
            facts = judgement.SignInFacts(now=self.now, settings=self.ports.policy, proofs=proofs)
        else:
            session, linked = policy.PolicySession(proofs, mfa_at, is_high), self.subject.providers | {*providers}
            self.subject = replace(self.subject, session=session, providers=linked)
            facts = admissions.facts_of(self.ports, judgement.PolicyPath.SIGN_IN, self.subject, self.now)
        return replace(
            facts,
            user_id=account.id,
            is_usable=account.is_usable,
            was_deleted=account.closed_at is not None,
            factors=account.factors,
            is_trusted=device.is_trusted,
            is_trusted_there=device.is_trusted_there,
            keeps_trust=self.flow.keeps_trust,
            may_use=None,
            asks_policy=self.flow.service is not None,
        )

    async def judge(self, account: Account, facts: judgement.SignInFacts) -> Verdict:
        """Return the verdict, and load the facts on which it depends. The decision of the policy is counted."""
        verdict = judge(facts)
        if not isinstance(verdict, Refuse):
            admissions.count(self.ports, facts, verdict)
        while isinstance(verdict, Ask):
            if verdict.step is Step.CHECK_ACCESS:
                facts = await self.with_access(facts, account.id)
            elif verdict.step is Step.SECOND_FACTOR and facts.earlier is None:
                facts = replace(facts, earlier=await self._find_earlier(account))
            else:
                break
            verdict = judge(facts)
        return verdict

    async def with_access(self, facts: judgement.SignInFacts, user_id: UUID) -> judgement.SignInFacts:
        """Return the facts with the user's access to the application, and the refusal reason to show."""
        may_use = await opened_by(self.flow, self.external_for).admits(self.tx, user_id, self.now)
        service = self.flow.service
        barred_by = None if may_use or service is None else await service_access.find_refusal(self.tx, service.org_id, user_id)
        return replace(facts, may_use=may_use, barred_by=barred_by)

    async def _find_earlier(self, account: Account) -> Proofs:
        """Return the second factors of the last minutes in the browser's session, unless the flow asks for more than a session."""
        if self.cookie is None or not self.flow.keeps_trust:
            return ()
        return await session_proofs.find_recent_seconds_of_browser(self.ports, self.tx, self.cookie, account, self.now)


def may_have_policy(flow: Flow) -> bool:
    """Return whether a sign-in policy of an organization can count in this flow."""
    return flow.application.org_id is not None and (flow.service is None or flow.service.has_sign_in_policy)
