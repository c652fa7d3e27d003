"""Registration, password recovery, and the signed-in user's profile and password."""

from typing import Annotated, Any

from pydantic import Field, WithJsonSchema
from quart import Blueprint

from core.accounts import accounts, email_changes, profiles
from core.accounts.model.profiles import MAX_LOCALE_LENGTH, MAX_NAME_LENGTH, MAX_PICTURE_LENGTH, OwnProfile, Profile, ProfileChanges
from core.kernel import rate_limits
from core.kernel.api_scopes import Area
from core.kernel.callers import Person
from core.kernel.errors import Invalid
from core.kernel.values import Email
from core.privacy import personal_data
from core.privacy.model.personal_data import closure_message
from entrypoints.http import kit
from entrypoints.http.base.context import own_profile
from entrypoints.http.edge.access import person_with_profile

routes = Blueprint("accounts", __name__)

EMAIL_MAY_FOLLOW = "If there is an account for this address, an email is on its way."

# The use case checks a new password's length.
NewPassword = Annotated[
    str,
    Field(max_length=kit.MAX_TEXT, description="The new password. Common passwords are refused."),
    WithJsonSchema({"type": "string", "format": "password", "minLength": 8, "maxLength": 128}),
]
OrgSlug = Annotated[
    kit.Text | None,
    Field(
        description="The slug of the organization that brands the email. An unknown or inactive organization is ignored.", examples=["acme"]
    ),
]

# The use case checks the texts in a profile.
ProfileName = Annotated[kit.Text, WithJsonSchema({"type": "string", "minLength": 1, "maxLength": MAX_NAME_LENGTH})]
PictureUrl = Annotated[kit.Text, WithJsonSchema({"type": "string", "format": "uri", "maxLength": MAX_PICTURE_LENGTH})]
LocaleTag = Annotated[kit.Text, WithJsonSchema({"type": "string", "maxLength": MAX_LOCALE_LENGTH})]
TimeZoneName = Annotated[kit.Text, WithJsonSchema({"type": "string"})]
Birthdate = Annotated[kit.Text, WithJsonSchema({"type": "string", "pattern": "^[0-9]{4}(-[0-9]{2}-[0-9]{2})?$"})]


class RegisterRequest(kit.RequestModel):
    """A new account."""

    email: kit.EmailAddress = Field(description="The email address of the account.")
    password: NewPassword
    org_slug: OrgSlug = None


@routes.post("/api/auth/register")
@kit.anyone(limit=rate_limits.REGISTER)
@kit.refuses(409)
async def register(data: RegisterRequest) -> kit.Message:
    """Create an account.

    The user gets an email with a verification link, and cannot sign in with the password before they open it.
    """
    await accounts.register(kit.ports(), kit.caller(), Email(data.email), data.password, data.org_slug)
    return kit.Message(message="The account was created. Open the link in the email that we sent to verify the address.")


class ForgotPasswordRequest(kit.RequestModel):
    """The address of an account with a lost password."""

    # Not an EmailAddress: the response is the same for an invalid address (security B-3).
    email: kit.Text = Field(description="The email address of the account.", examples=["ada@example.com"])
    org_slug: OrgSlug = None


@routes.post("/api/auth/forgot-password")
@kit.anyone(limit=rate_limits.FORGOT_PASSWORD)
async def forgot_password(data: ForgotPasswordRequest) -> kit.Message:
    """Send an email with a link to reset a password.

    The response does not tell whether an account exists. The link works only once, by default within an hour.
    """
    email = _parse_address(data.email)
    if email is not None:
        await accounts.forgot_password(kit.ports(), kit.caller(), email, data.org_slug)
    return kit.Message(message=EMAIL_MAY_FOLLOW)


class ResetPasswordRequest(kit.RequestModel):
    """A new password, with the token from the email."""

    token: kit.Text = Field(description="The parameter `token` of the link in the email.")
    new_password: NewPassword


@routes.post("/api/auth/reset-password")
@kit.anyone
async def reset_password(data: ResetPasswordRequest) -> kit.Message:
    """Set a new password with the token from a reset link.

    All sessions on the account end, no device is trusted any longer, and the email address is verified. Accounts at identity providers and
    a second factor that were added in the last 72 hours end, too. A factor stays if it came from a recovery, or if a sign-in policy asks
    for it.
    """
    await accounts.reset_password(kit.ports(), kit.caller(), data.token, data.new_password)
    return kit.Message(message="The password was updated. Sign in with the new password.")


class ResendVerificationRequest(kit.RequestModel):
    """The address to verify."""

    email: kit.Text = Field(description="The email address of the account.", examples=["ada@example.com"])


@routes.post("/api/auth/resend-verification")
@kit.anyone(limit=rate_limits.RESEND_VERIFICATION)
async def resend_verification(data: ResendVerificationRequest) -> kit.Message:
    """Send another email with a verification link.

    The response does not tell whether an account exists, or whether its address is already verified.
    """
    email = _parse_address(data.email)
    if email is not None:
        await accounts.resend_verification(kit.ports(), kit.caller(), email)
    return kit.Message(message=EMAIL_MAY_FOLLOW)


class AccountProfileResponse(kit.ResponseModel):
    """A user's account, with the basic profile fields."""

    id: str = Field(description="The id of the user.", examples=["2f1c7f3e-5b0a-4d0e-9d7e-0c6b2a3f4e5d"])
    email: str | None = Field(
        description="The user's email address. Null for services' access tokens with the scope `openid` and without `email`.",
        examples=["ada@example.com"],
    )
    pending_email: str | None = Field(
        description="A requested email address that is not proved yet, or null. Always null for access tokens of services.", examples=[None]
    )
    org: str = Field(description="The slug of this session's organization, or an empty string.", examples=["acme"])
    service: str = Field(description="The slug of this session's service, or an empty string.", examples=["shop"])
    name: str | None = Field(description="The full name, or null.", examples=["Ada Lovelace"])
    picture: str | None = Field(description="The https URL of a picture, or null.", examples=["https://images.example.com/ada.png"])
    locale: str | None = Field(description="The language and region as a tag of BCP 47, or null.", examples=["en-US"])
    zoneinfo: str | None = Field(description="The time zone as a name of the IANA database, or null.", examples=["Europe/London"])


# The details in a profile are claims from OpenID Connect (Core, section 5.1) that few users set.
def _detail(description: str, example: str) -> Any:
    """Return the definition of a field that is absent if it is not set."""
    return kit.absent_if_none(f"{description} Absent if not set.", examples=[example])


class ProfileDetailsResponse(kit.ResponseModel):
    """The details in a profile. A detail is absent if it is not set."""

    given_name: str | None = _detail("The given names.", "Ada")
    family_name: str | None = _detail("The family names.", "Lovelace")
    middle_name: str | None = _detail("The middle names.", "King")
    nickname: str | None = _detail("The casual name.", "Ada")
    preferred_username: str | None = _detail("The short name that the user likes to have.", "ada")
    profile: str | None = _detail("The https URL of a page about the user.", "https://example.com/ada")
    website: str | None = _detail("The https URL of the user's website.", "https://ada.example.com")
    gender: str | None = _detail("The gender, such as `female`, `male` or another text.", "female")
    birthdate: str | None = _detail("The birthdate: a date, `0000` for an unknown year, or the year alone.", "1815-12-10")


class ProfileResponse(ProfileDetailsResponse, AccountProfileResponse):
    """The signed-in user.

    The profile fields mean the same as in OpenID Connect.

    Details that are not set are absent. Applications read them at the userinfo endpoint, so they are absent for
    services' access tokens.
    """


def _to_response(user: Person, own: OwnProfile) -> ProfileResponse:
    org = user.organization.slug if user.organization else user.service.org_slug if user.service else ""
    return ProfileResponse(
        id=str(user.user_id),
        email=own.email,
        pending_email=own.pending_email,
        org=org,
        service=user.service.slug if user.service else "",
        name=own.profile.name,
        picture=own.profile.picture,
        locale=own.profile.locale,
        zoneinfo=own.profile.zoneinfo,
        **own.profile.details,
    )


@routes.get("/api/user")
@person_with_profile(applications=kit.ApplicationTokens.ALL, area=Area.ACCOUNT, restricted=kit.Restricted.YES)
async def get_profile() -> ProfileResponse:
    """Return your profile.

    Services' access tokens work here too. With the scope `openid`, they need the scope `email` for the address and
    `profile` for the profile fields.
    """
    return _to_response(kit.signed_in(), own_profile())


class ProfileUpdateRequest(kit.RequestModel):
    """The profile changes. Fields that are missing keep their value, and null removes a value."""

    email: kit.EmailAddress | None = Field(
        default=None, description="The new email address. Null is refused.", examples=["ada@example.com"]
    )
    name: ProfileName | None = kit.optional(description="The full name.", examples=["Ada Lovelace"])
    picture: PictureUrl | None = kit.optional(description="The https URL of a picture.", examples=["https://images.example.com/ada.png"])
    locale: LocaleTag | None = kit.optional(description="The language and region, as a tag of BCP 47.", examples=["en-US"])
    zoneinfo: TimeZoneName | None = kit.optional(description="The time zone, as a name of the IANA database.", examples=["Europe/London"])
    given_name: ProfileName | None = kit.optional(description="The given names.", examples=["Ada"])
    family_name: ProfileName | None = kit.optional(description="The family names.", examples=["Lovelace"])
    middle_name: ProfileName | None = kit.optional(description="The middle names.", examples=["King"])
    nickname: ProfileName | None = kit.optional(description="The casual name.", examples=["Ada"])
    preferred_username: ProfileName | None = kit.optional(description="The short name that the user likes to have.", examples=["ada"])
    profile: PictureUrl | None = kit.optional(description="The https URL of a page about the user.", examples=["https://example.com/ada"])
    website: PictureUrl | None = kit.optional(description="The https URL of the user's website.", examples=["https://ada.example.com"])
    gender: ProfileName | None = kit.optional(description="The gender, such as `female`, `male` or another text.", examples=["female"])
    birthdate: Birthdate | None = kit.optional(
        description="The birthdate: a date, `0000` for an unknown year, or the year alone.", examples=["1815-12-10"]
    )


@routes.patch("/api/user")
@kit.person(kit.MINE)
@kit.refuses(404, 429)
async def update_profile(data: ProfileUpdateRequest) -> ProfileResponse:
    """Change your profile, or request another email address.

    You keep the present address until you open the link in the email to the new address, within 24 hours. Then all your
    sessions except the current session end. The present address gets a notice with a link that undoes the change within
    72 hours. A repeated request for the same address sends its link again. The present address cancels the change. If
    an organization requires its identity provider for the present address, and not for the new address, sign in there
    once before you change it. Otherwise you have to leave an organization that you are a member of. If you are not its
    member, its applications refuse you until an admin unblocks you.
    """
    changes = ProfileChanges.parse(**{field: getattr(data, field) for field in Profile.__slots__})
    if "email" in data.model_fields_set:
        if data.email is None:
            raise EmailRequired
        await email_changes.request(kit.ports(), kit.signed_in(), Email(data.email))  # first, because it may be refused
    if changes.values:
        await profiles.change(kit.ports(), kit.signed_in(), changes)
    return _to_response(kit.signed_in(), await profiles.get_own(kit.ports(), kit.signed_in()))


@routes.delete("/api/user")
@kit.person(kit.ACTS_ON_ME)
@kit.refuses(429)
async def delete_account() -> kit.Message:
    """Delete your account permanently.

    Your email address, profile and sign-in methods are removed, and all sessions end. Organizations and
    applications keep your id without them. Subscriptions are not canceled. If you own an organization,
    transfer its ownership first. Platform owners must lose that role first. If a way to sign in was
    added, changed or removed in the last 72 hours, the account is closed at once. It is erased when the
    links in the emails about that can no longer undo the deletion.
    """
    erase_at = await personal_data.delete_own_account(kit.ports(), kit.signed_in())
    return kit.Message(message="Your account was deleted." if erase_at is None else closure_message(erase_at))


class EmailRequired(Invalid):
    """An account needs an email address. Send another address to change it."""


class SetPasswordRequest(kit.RequestModel):
    """An account's first password."""

    new_password: NewPassword


@routes.post("/api/user/set-password")
@kit.person(kit.WAYS_IN)
@kit.refuses(404, 429)
async def set_password(data: SetPasswordRequest) -> kit.Message:
    """Set your account's first password.

    It is refused if the account already has a password. Your sessions continue.
    """
    await accounts.set_password(kit.ports(), kit.signed_in(), data.new_password)
    return kit.Message(message="The password was set.")


class ChangePasswordRequest(kit.RequestModel):
    """The current and the new password."""

    current_password: kit.PasswordText = Field(description="The current password. Failed attempts count against the sign-in limit.")
    new_password: NewPassword


@routes.post("/api/user/change-password")
@kit.person(kit.WAYS_IN)
@kit.refuses(404, 429)
async def change_password(data: ChangePasswordRequest) -> kit.Message:
    """Change your password.

    All your sessions except the current session end, and no device is trusted any longer.
    """
    await accounts.change_password(kit.ports(), kit.signed_in(), data.current_password, data.new_password)
    return kit.Message(message="The password was updated. Your other sessions were ended.")


@routes.delete("/api/user/password")
@kit.person(kit.WAYS_IN)
@kit.refuses(400, 404)
@kit.describes({204: "The password is removed."})
async def remove_password() -> None:
    """Remove your password, if you have a passkey.

    You sign in with the passkey from now on. It is refused if the sign-in policy of an organization that you belong to
    does not accept passkeys. Your sessions continue. You get an email about it.
    """
    await accounts.remove_password(kit.ports(), kit.signed_in())


def _parse_address(text: str) -> Email | None:
    try:
        return Email.parse(text)
    except Invalid:
        return None
