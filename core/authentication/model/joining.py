"""Values and refusals of the page of an invitation."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from core.kernel.errors import Invalid

if TYPE_CHECKING:
    from core.tenancy.model.invitations import ReceivedInvitation


class InviteeHasAccount(Invalid):
    """There is an account with this address already. Accept the invitation, and sign in as usual."""


class InvitationAnswer(StrEnum):
    """How the recipient of an invitation accepts it in this browser."""

    SIGNED_IN = "signed_in"  # the recipient is signed in
    CHOOSE_PASSWORD = "choose_password"  # the email proves the mailbox, and the account has no user yet  # noqa: S105
    SIGN_IN = "sign_in"  # the email proves the mailbox, and the recipient signs in afterwards
    UNPROVED = "unproved"  # the token proves nothing, so the page must not say whether there is an account


@dataclass(frozen=True, slots=True)
class OpenInvitation:
    """A pending invitation, and how its recipient accepts it."""

    received: ReceivedInvitation
    answer: InvitationAnswer
