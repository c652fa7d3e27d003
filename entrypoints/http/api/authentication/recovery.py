"""The recovery for accounts that lost their factors: its start and its cancellation, by admins and platform owners (security M-8)."""

from uuid import UUID

from pydantic import Field
from quart import Blueprint

from core.authentication import account_recovery
from core.kernel.roles import Capability
from entrypoints.http import kit
from entrypoints.http.api.accounts.platform_users import existing_user
from entrypoints.http.api.authentication.user_access import UserAccessRequest

routes = Blueprint("recovery", __name__)

END_USERS, MEMBERS = Capability.END_USERS_MANAGE, Capability.MEMBERS_MANAGE


class RecoveryRequest(kit.RequestModel):
    """A recovery's start."""

    reason: kit.Reason = Field(description="The reason, for the audit log.")


class RecoveryResponse(kit.ResponseModel):
    """The part of a recovery that you give to its user."""

    code: str = Field(description="The code. It is shown only once.", examples=["K7M2P-X4QZ9"])
    expires_at: kit.Timestamp = Field(description="The time when the recovery ends.")
    refuses_sign_ins: bool = Field(
        description="Whether all sign-ins are refused until this recovery ends: a sign-in of the last 72 hours ended an earlier recovery."
    )


@routes.post("/api/organizations/<org_slug>/users/<user_id>/recovery")
@kit.member(END_USERS, kit.OWNS)
@kit.returns(201)
@kit.refuses(400, 429)
@kit.describes({201: "The code. The link is on its way."})
async def recover_user(org_slug: str, user_id: UUID, data: RecoveryRequest) -> RecoveryResponse:
    """Start the recovery of a user who lost their second factor or passkey.

    The user gets a link by email, and you get a code, which you give to them after checking who asks. With the link and the code, they set
    up a new factor within 24 hours. This is possible only for an account that your organization created, and that no other organization
    uses. Otherwise the answer is 403. All the user's sessions end. A new recovery replaces an earlier recovery. A sign-in as strong as the
    account can reach ends the recovery, because no factor is lost. If another person signed in, start another recovery within 72 hours:
    `refuses_sign_ins` is then true, and the user can sign in only when that recovery has ended. After as many recoveries for a user within
    an hour as `SSO_MAILS_PER_RECIPIENT` allows, the answer is 429, and nothing changes.
    """
    return RecoveryResponse.of(
        await account_recovery.issue_in_organization(kit.ports(), kit.acting_member(), user_id, data.reason, END_USERS)
    )


@routes.delete("/api/organizations/<org_slug>/users/<user_id>/recovery")
@kit.member(END_USERS, kit.BY_PEOPLE)
@kit.describes({204: "The recovery has ended."})
async def cancel_user(org_slug: str, user_id: UUID) -> None:
    """Cancel the recovery that your organization started for a user."""
    await account_recovery.cancel_in_organization(kit.ports(), kit.acting_member(), user_id, END_USERS)


@routes.post("/api/organizations/<org_slug>/members/<user_id>/recovery")
@kit.member(MEMBERS, kit.OWNS)
@kit.returns(201)
@kit.refuses(400, 429)
@kit.describes({201: "The code. The link is on its way."})
async def recover_member(org_slug: str, user_id: UUID, data: RecoveryRequest) -> RecoveryResponse:
    """Start the recovery for a member who lost their second factor or passkey.

    It works like the recovery for a user. It is never possible for the owner, or for a member with a right that you
    don't have.
    """
    return RecoveryResponse.of(
        await account_recovery.issue_in_organization(kit.ports(), kit.acting_member(), user_id, data.reason, MEMBERS)
    )


@routes.delete("/api/organizations/<org_slug>/members/<user_id>/recovery")
@kit.member(MEMBERS, kit.BY_PEOPLE)
@kit.describes({204: "The recovery has ended."})
async def cancel_member(org_slug: str, user_id: UUID) -> None:
    """Cancel the recovery that your organization started for a member."""
    await account_recovery.cancel_in_organization(kit.ports(), kit.acting_member(), user_id, MEMBERS)


@routes.post("/api/platform/users/<user_id>/recovery")
@kit.platform_owner(Capability.PLATFORM_USERS_MANAGE, kit.OWNS)
@existing_user
@kit.returns(201)
@kit.refuses(429)
@kit.describes({201: "The code. The link is on its way."})
async def recover_person(user_id: UUID, data: UserAccessRequest) -> RecoveryResponse:
    """Start the recovery for any account that is not a platform owner's.

    It works like the recovery for an organization's user. Platform owners are recovered on the server: `gatehouse owner recover`.
    """
    return RecoveryResponse.of(await account_recovery.issue_by_platform(kit.ports(), kit.signed_in(), user_id, data.reason))


@routes.delete("/api/platform/users/<user_id>/recovery")
@kit.platform_owner(Capability.PLATFORM_USERS_MANAGE, kit.BY_PEOPLE)
@existing_user
@kit.describes({204: "The recovery has ended."})
async def cancel_person(user_id: UUID) -> None:
    """Cancel an account's recovery, also if an organization's admin started it."""
    await account_recovery.cancel_by_platform(kit.ports(), kit.signed_in(), user_id)
