"""Storage for sign-ins in progress."""

from collections.abc import Awaitable
from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.accounts.model.attempt_limits import AttemptLimit
from core.accounts.model.devices import KnownBy
from core.authentication.flow.model import CodeAttempt, EmailAttempt, EmailChallenge, Flow, ProviderRequest
from core.kernel.values import Email


class FlowsRead(Protocol):
    """Read access to sign-ins in progress."""

    async def load(self, flow_id: UUID, browser_hash: bytes) -> Flow | None:
        """Return this browser's flow, also after it has ended. Raises: SealBroken."""

    async def by_secret(self, secret_hash: bytes, browser_hash: bytes, now: datetime) -> Flow | None:
        """Return this browser's open flow, by the hash of the secret that names it. Raises: SealBroken."""

    async def email_of(self, flow_id: UUID, browser_hash: bytes, now: datetime) -> EmailChallenge | None:
        """Return the newest email in this browser's flow, until it is used or expires."""

    async def email_by_link(self, link_hash: bytes, now: datetime) -> EmailChallenge | None:
        """Return the email that has the link with this hash, until it is used or expires. Its flow may have ended."""

    async def ticket(self, secret_hash: bytes, connection_id: UUID, now: datetime) -> ProviderRequest | None:
        """Return the ticket with this hash for a provider request at this connection. It is not used up."""

    async def provider_request(self, state_hash: bytes, browser_hash: bytes, connection_id: UUID, now: datetime) -> ProviderRequest | None:
        """Return the provider request that this browser started at this connection. It goes on."""


class Flows(FlowsRead, Protocol):
    """Write access to sign-ins in progress."""

    async def add(self, flow: Flow) -> None:
        """Add a flow. The newest `MAX_OPEN` open flows stay in the browser. The identity is encrypted."""

    async def save_proofs(self, flow: Flow) -> bool:
        """Store a flow's proofs, request and end, and add the flow if it is not stored. Lock the account first.

        The proofs replace the flow's challenge, and attempts start again. Return False, and change nothing, if the flow has ended.
        """

    async def ask_to_link(self, flow: Flow) -> bool:
        """Store a flow's link, without proofs, and add the flow if it is not stored. Return False if the flow has ended."""

    async def drop_link(self, flow: Flow) -> None:
        """Remove a flow's link, which was made or refused."""

    def close(self, flow: Flow, now: datetime) -> Awaitable[bool]:
        """End an open flow, which a browser or an API client has. Exactly one concurrent call returns True."""

    async def reopen(self, flow: Flow) -> None:
        """Open a flow again that was closed for an answer, because the answer was not sent."""

    async def forget_user(self, user_id: UUID) -> None:
        """Remove this user's proofs from flows, and the emails to the user. Lock the account first."""

    # Challenges: only a flow's newest challenge counts

    async def start(self, challenge: EmailChallenge | ProviderRequest, state_hash: bytes | None = None) -> bool:
        """Store an email, a provider request or a ticket for a provider request, and add the flow if it is not stored.

        A provider request has a state. The challenge replaces an earlier challenge and the flow's proofs, and attempts start again.
        A ticket is used up by the browser that starts its provider request. Return False, and change nothing, if the flow has
        ended, the ticket was used before, or the session that the flow is for has ended.
        """

    async def find_email(self, challenge_id: UUID, now: datetime) -> tuple[EmailChallenge, str | None, str | None] | None:
        """Return an email with its service's name and its code, if any, unless the service was deleted. Raises: SealBroken."""

    async def issue_email(self, challenge: EmailChallenge, user_id: UUID | None, link_hash: bytes | None, code: str) -> None:
        """Store an email's account, link and code. The code is encrypted. Without an account, the code opens nothing."""

    async def remove_older_emails(self, email: Email, begun_at: datetime) -> None:
        """Forget the emails to this address that were requested before this time."""

    async def redeem_email(self, challenge_id: UUID, now: datetime) -> bool:
        """Use up an email. Exactly one concurrent call returns True. Lock the account first."""

    def take_provider_request(
        self, state_hash: bytes, browser_hash: bytes, connection_id: UUID, now: datetime
    ) -> Awaitable[ProviderRequest | None]:
        """Forget the provider request that this browser started at this connection, and return it.

        Exactly one parallel call gets it.
        """


class FlowSteps(Protocol):
    """Changes to sign-ins in progress that commit by themselves."""

    def close(self, flow: Flow, now: datetime) -> Awaitable[bool]:
        """As `Flows.close`."""

    async def move(self, flow: Flow, browser_hash: bytes, now: datetime) -> bool:
        """Bind an open flow to another cookie in its browser, with its first session and its end.

        The newest `MAX_OPEN` open flows stay with that cookie. Return False, and change nothing, if the flow has ended.
        """

    async def ask_for_more(self, flow: Flow, *, wants_fresh: bool) -> None:
        """In an open flow, let no trusted device skip the second factor, and set whether only a fresh sign-in is enough."""

    async def ask_for_fresh(self, flow: Flow, *, wants_fresh: bool) -> None:
        """In an open flow, set whether only a fresh sign-in is enough."""

    async def count_attempt(self, flow: Flow, tries: int, subject: bytes, attempt_limit: AttemptLimit, now: datetime) -> CodeAttempt | None:
        """Count an attempt at the second factor for this flow and its user, and return the data to check the code.

        This is atomic. Return None, and count nothing, if its proofs have ended or have had `tries` attempts. An
        attempt that `attempt_limit` blocks is not counted either. `subject` has the same meaning as in `AttemptLimits`.
        Only the id, the user and the browser in `flow` are used.

        Raises: SealBroken.
        """

    async def count_email_attempt(
        self, flow_id: UUID | None, holder_hash: bytes, known: KnownBy, tries: int, attempt_limit: AttemptLimit, now: datetime
    ) -> EmailAttempt | None:
        """Count an attempt at a flow's newest email and at its address, and return the data to check the code.

        Find the flow by its id and its browser's hash, or without an id by the hash of the API client's secret. If the
        account knows a device by `known`, the attempt is counted for that device, and not for the address.

        This is atomic. Return None, and count nothing, if the flow has ended, or the email was used, has
        expired or has had `tries` attempts. An attempt that `attempt_limit` blocks is not counted either.

        Raises: SealBroken.
        """
