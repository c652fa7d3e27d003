"""Storage of sign-ins in progress."""

from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.accounts.model.attempt_limits import AttemptLimit
from core.authentication.flow.model import CodeAttempt, Flow


class FlowsRead(Protocol):
    """Read access to sign-ins in progress."""

    async def load(self, flow_id: UUID, browser_hash: bytes) -> Flow | None:
        """Return the flow of this browser, also after it has ended. Raises: SealBroken."""

    async def by_secret(self, secret_hash: bytes, browser_hash: bytes, now: datetime) -> Flow | None:
        """Return the open flow of this browser that others name by the secret with this hash. Raises: SealBroken."""


class Flows(FlowsRead, Protocol):
    """Write access to sign-ins in progress."""

    async def add(self, flow: Flow) -> None:
        """Add a flow. Of the open flows of its browser, the newest `MAX_OPEN` stay. The identity is encrypted."""

    async def save_proofs(self, flow: Flow) -> bool:
        """Store the user, the proofs and the identity of a flow, and add the flow if it is not stored. Lock the account first.

        Attempts start again. Return False, and change nothing, if the stored flow has ended.
        """

    async def close(self, flow: Flow, now: datetime) -> bool:
        """End an open flow of this browser or API client. Of several concurrent calls, exactly one returns True."""

    async def forget_proofs(self, user_id: UUID) -> None:
        """Take away what was proved for this user in flows. Lock the account first."""


class FlowSteps(Protocol):
    """Changes to sign-ins in progress that commit by themselves."""

    async def close(self, flow: Flow, now: datetime) -> bool:
        """As `Flows.close`."""

    async def count_attempt(self, flow: Flow, tries: int, subject: bytes, attempt_limit: AttemptLimit, now: datetime) -> CodeAttempt | None:
        """Count one attempt at the second factor of this flow and of its user, and return the data to check the code.

        This is atomic. Return None, and count nothing, if its proofs have ended or have had
        `tries` attempts. An attempt that `attempt_limit` blocks is not counted either. `subject`
        has the same meaning as in `AttemptLimits`. Only the id, the user and the browser of `flow` are used.

        Raises: SealBroken.
        """
