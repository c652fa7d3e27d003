"""The facts about an account that a sign-in in progress depends on, and what its user may learn about the sign-in policy."""

from collections.abc import Awaitable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final
from uuid import UUID

from core.accounts import devices
from core.accounts.model.devices import DeviceFingerprint, DeviceMatch, KnownDevice
from core.authentication.flow.model import Flow
from core.authentication.model.identities import PendingIdentity
from core.authentication.model.policy import PolicySubject
from core.authentication.policy_checks import NO_ACCESS, NO_ADMISSION, Admission, hide_from_strangers, preview_session
from core.authentication.service_access import may_use
from core.kernel.proofs import Strength
from ports import Ports
from ports.storage import Reading, Transaction


@dataclass(frozen=True, slots=True)
class ApplicationNeeds:
    """The requirements of an application for a sign-in, with the parts of its request that the flow itself does not have."""

    name: str | None = None  # of the application; None: the platform
    required: Strength = Strength.ONE  # by the application or its request
    has_sign_in_policy: bool = True  # False: its organization has none, so it is not loaded
    external_for: UUID | None = None  # the API resource that an external client asks for: it decides about access


NO_NEEDS: Final = ApplicationNeeds()


class AccountFacts:
    """The facts about an account that a sign-in depends on. They are read in one round trip, with the lock on the account if possible.

    `connection_id` is that of the organization's connection at which the sign-in began, if it did: its risk has a history of its own.
    """

    def __init__(self, tx: Transaction, flow: Flow, fingerprint: DeviceFingerprint, connection_id: UUID | None, now: datetime) -> None:
        self._tx = tx
        self._flow = flow
        self._fingerprint = fingerprint
        self._connection_id = connection_id
        self._now = now
        self._known: Awaitable[KnownDevice | None] | None = None
        self._policy: Awaitable[PolicySubject | None] | None = None

    def send_behind(self, user_id: UUID) -> None:
        """Send the statements with the one that locks the account."""
        org_id, _, external_client = self._flow.application
        if external_client is not None:  # its organization only owns the API that the client asks for
            org_id = None
        self._policy = _load_policy(self._tx, self._flow, user_id)
        self._known = self._tx.devices.find_match(user_id, self._fingerprint, org_id, self._now, self._connection_id)

    async def load(self, user_id: UUID, identity: PendingIdentity | None) -> tuple[DeviceMatch, PolicySubject | None]:
        """Return the device of the sign-in, and the sign-in policy of the application, if it has one. The sign-in links the `identity`."""
        if self._known is None:
            self.send_behind(user_id)
        assert self._known is not None, "it was sent"
        device = devices.to_match(user_id, self._fingerprint, await self._known, self._now)
        subject = None if self._policy is None else await self._policy
        if subject is not None and identity is not None:
            subject = replace(subject, providers=subject.providers | {identity.provider})
        return device, subject


def may_have_policy(flow: Flow) -> bool:
    """Return whether a sign-in policy of an organization can count in this flow."""
    return flow.application.org_id is not None and (flow.service is None or flow.service.has_sign_in_policy)


def _load_policy(tx: Transaction, flow: Flow, user_id: UUID) -> Awaitable[PolicySubject | None] | None:
    """Return the sign-in policy of the application that the flow is for, or None without one."""
    org_id, service_id, _ = flow.application
    return None if org_id is None or not may_have_policy(flow) else tx.policy_passes.load(org_id, service_id, user_id, None)


async def hide_in_flow(
    read: Reading | Transaction, flow: Flow, admission: Admission, user_id: UUID, now: datetime, external_for: UUID | None = None
) -> Admission:
    """Return the decision about a sign-in of this user, or NO_ACCESS, as `hide_from_strangers` does for the application of the flow.

    `external_for`: as in `ApplicationNeeds`. Without it, no user may use an external client.
    """
    application, is_sign_on = flow.application[:2], flow.is_sign_on
    if flow.external_client is not None and external_for is None:
        return NO_ACCESS if admission.asks else admission
    return await hide_from_strangers(read, admission, application, user_id, now, is_sign_on=is_sign_on, external_for=external_for)


async def skips_second(tx: Transaction, flow: Flow, device: DeviceMatch, user_id: UUID, now: datetime) -> bool:
    """Return whether the trusted device skips the second factor.

    A user who may not use the application learns nothing about the period of its organization. For an external client, no such period
    was read.
    """
    if device.is_trusted is device.is_trusted_there:
        return device.is_trusted
    is_user = await may_use(tx, flow.application[:2], user_id, now, is_sign_on=flow.is_sign_on)
    return device.is_trusted_there if is_user else device.is_trusted


async def preview(ports: Ports, flow: Flow, user_id: UUID, session_id: UUID, external_for: UUID | None) -> Admission:
    """Return the decision of the application's policy about this session. A user who may not use the application learns nothing.

    `external_for`: as in `ApplicationNeeds`.
    """
    org_id, service_id, _ = flow.application
    if org_id is None:
        return NO_ADMISSION
    now = ports.clock.now()
    async with ports.storage.reading() as read:
        admission = await preview_session(ports, read, (org_id, service_id), user_id, session_id)
        return await hide_in_flow(read, flow, admission, user_id, now, external_for)
