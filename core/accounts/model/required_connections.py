"""The required connections of a user's organizations, which a change by the user must keep."""

from dataclasses import dataclass, replace
from uuid import UUID

from core.kernel.connections import ConnectionFacts
from core.kernel.errors import Invalid
from core.kernel.sign_in_policy.rules import Rules


class ConnectionStaysRequired(Invalid):
    """An organization requires a sign-in through its identity provider. The user could come without it after a change."""

    def __init__(self, organization: str, advice: str) -> None:
        super().__init__(f"{organization} requires that you sign in through its identity provider. {advice}")


@dataclass(frozen=True, slots=True)
class ConnectionRequirement:
    """The rules of an organization that requires connections, and the facts about its user.

    A blocked user's address does not count, because they can take another address. The link binds them, because it binds them after the
    block.
    """

    org_id: UUID
    organization: str  # its name
    rules: Rules
    is_end_user: bool  # only uses its applications: no member, and not blocked by its directory
    is_blocked: bool
    user: ConnectionFacts

    @property
    def is_bound(self) -> bool:
        """Whether the user has to come through a connection."""
        return bool(self.rules.required_for(self.user))

    @property
    def needs_address(self) -> bool:
        """Whether the user has to come through a connection only because of the address."""
        return self.is_bound and not replace(self, user=replace(self.user, domain=None)).is_bound

    def without_link(self, connection_id: UUID) -> "ConnectionRequirement":
        """Return the requirement after this connection no longer knows the user."""
        return replace(self, user=replace(self.user, known_at=self.user.known_at - {connection_id}))
