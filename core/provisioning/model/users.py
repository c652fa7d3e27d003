"""A directory's users, and their blocks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as with_changes
from datetime import datetime
from typing import Any, Final, Self
from uuid import UUID

from core.accounts.model import profiles
from core.kernel import errors, roles
from core.kernel.values import Email, EmailInvalid
from core.provisioning.model import resources, schemas
from core.provisioning.model.patches import PatchResult
from core.provisioning.model.profiles import FURTHER_ATTRIBUTES, ScimProfile
from core.tenancy.model.invitations import TeamFull
from core.tenancy.model.organizations import Organization

# Directories deactivate users who leave, and never delete them. A directory may therefore know as
# many users who are not members as the organization may have members.
INACTIVE_PER_MEMBER: Final = 10


class ScimUserNotFound(errors.NotFound):
    """The directory of the organization knows no user with this id."""


class ProtectedUser(errors.Forbidden):
    """The owner of the organization and platform owners cannot be changed, deactivated or removed by SCIM."""


class MemberAboveDirectory(errors.Forbidden):
    """This member has rights that neither an admin nor the creator of the SCIM token has. Ask an owner to create the token anew."""


class AnonymizedUser(errors.Forbidden):
    """This user was anonymized and cannot be changed. Delete the user instead."""


class UserNameNotAnAddress(EmailInvalid):
    """Without a primary email address in emails, the userName must be an email address. Send one of the two."""


class DomainOfAnother(errors.Forbidden):
    """Another organization has verified the domain of this address, so only its directory can use the address. Invite the user instead."""


class UserNameTaken(errors.Conflict):
    """This userName or address is taken. If your directory knows the user, change that user. Otherwise invite them to the organization."""


class MembersFull(TeamFull):
    """The organization has reached its member limit. Deactivate or delete a user first."""

    scim_type = None

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"The organization already has the maximum of {limit} members. Deactivate or delete a user, or ask the operator of Gatehouse "
            "to raise the limit."
        )


class TooManyInactiveUsers(TeamFull):
    """The directory knows too many users who are not members. Delete some of them before you provision others."""

    scim_type = None

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"Your directory has {limit} or more users who are deactivated or outside the group. The limit is {INACTIVE_PER_MEMBER} times "
            "the number of members that the organization may have. Delete some of these users before you provision others."
        )


# The attributes that show the account's profile, if the directory did not send them.
PROFILE_ATTRIBUTES: Final = ("name", "displayName", "locale", "timezone", "photos")
_LISTS: Final = ("phoneNumbers", "photos")


@dataclass(frozen=True, slots=True)
class GroupOfUser:
    """A directory group that a user is in."""

    id: UUID
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScimUser:
    """A user that an organization's directory knows. Times are UTC."""

    id: UUID
    email: Email  # for a former member, the address they had when they left
    user_name: str  # the stored name, or else the address, or else the id if another user has the address as userName
    profile: ScimProfile
    active: bool
    created_at: datetime  # when the directory provisioned the user, or else when the membership began
    updated_at: datetime  # when one of these fields last changed
    role: roles.RoleName | None  # None: not a member
    is_blocked: bool  # by this directory
    is_platform_owner: bool
    is_anonymized: bool
    is_provisioned: bool  # by this directory
    account_profile: profiles.Profile = profiles.NO_PROFILE  # empty, unless the user has confirmed the membership
    values: Mapping[str, Any] = field(default_factory=dict)  # attributes that the organization declared, by their names

    @property
    def is_protected(self) -> bool:
        """Return whether SCIM cannot change this user (security C-3)."""
        return self.role == roles.OWNER or self.is_platform_owner


@dataclass(frozen=True, slots=True)
class ScimUserData:
    """A user's new data, from a request.

    `values` has the new values for attributes that the organization declared. A change to None removes the value. Other values
    stay.
    """

    email: Email
    profile: ScimProfile
    active: bool | None  # None: stays as it is
    values: Mapping[str, Any] = field(default_factory=dict)

    def keeping_names_of(self, user: ScimUser) -> Self:
        """Return the data with the present email address and userName."""
        return with_changes(self, email=user.email, profile=with_changes(self.profile, user_name=user.profile.user_name))

    def keeping_email_of(self, user: ScimUser) -> Self:
        """Return the data with the present email address. The new userName stays."""
        return with_changes(self, email=user.email, profile=with_changes(self.profile, user_name=self.profile.user_name or self.email))


@dataclass(frozen=True, slots=True)
class WelcomeContext:
    """A provisioned user's organization, and the only application in it that the user may use.

    There is no application if the user may use none or several.
    """

    organization: str
    application: str | None
    application_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class ScimUserChange:
    """A user's new data, and the request parts that are not applied.

    A request that deactivates is applied as far as it can be. Any other request is applied as a whole
    or not at all.
    """

    data: ScimUserData
    skipped: resources.SkippedParts


@dataclass(frozen=True, slots=True)
class UserReplacement:
    """A whole user's attributes, from a request, and the request parts that are not applied."""

    resource: resources.Resource
    skipped: resources.SkippedParts


# Resources


def to_resource(user: ScimUser, schema: schemas.ScimSchema = schemas.USER) -> resources.Resource:
    """Return the attributes that a directory can change. Empty attributes are null, so that all users have the same attributes."""
    profile = user.profile
    name = {"formatted": profile.formatted, "familyName": profile.family_name, "givenName": profile.given_name}
    return {
        "externalId": profile.external_id,
        "userName": user.user_name,
        "name": name if any(name.values()) else None,
        "displayName": profile.display_name,
        "emails": [{"value": user.email, "type": "work", "primary": True}],
        **{attribute: profile.attributes.get(attribute) for attribute in FURTHER_ATTRIBUTES},
        **{name: user.values.get(declared) for name, declared in schema.declared.items()},
        "active": user.active,
    }


def to_response(user: ScimUser, schema: schemas.ScimSchema = schemas.USER) -> resources.Resource:
    """Return a response's attributes. Extension attributes are in a separate object.

    `name.formatted` is made from the given and the family name, unless the directory sent one. Where the directory sent
    no value, the response has the value from the account's profile. Users without a name that the directory did not
    create get the address part before the @ as their name. Directories such as Okta cannot read users without a name.
    """
    resource = to_resource(user)
    if resource["name"]:
        resource["name"]["formatted"] = user.profile.full_name
    profile = user.account_profile
    if not user.is_provisioned:
        name = profile.name or user.email.partition("@")[0]
        resource["name"] = resource["name"] or dict.fromkeys(("formatted", "familyName", "givenName"), name)
        resource["displayName"] = resource["displayName"] or name
    elif profile.name and not resource["name"] and not resource["displayName"]:
        resource |= {"name": {"formatted": profile.name, "familyName": None, "givenName": None}, "displayName": profile.name}
    resource["locale"] = resource["locale"] or profile.locale
    resource["timezone"] = resource["timezone"] or profile.zoneinfo
    if profile.picture and not resource["photos"]:
        resource["photos"] = [{"value": profile.picture, "type": "photo", "primary": True}]
    enterprise = {attribute.name: resource.pop(attribute.name) for attribute in schemas.ENTERPRISE_USER.attributes}
    has_enterprise = any(value is not None for value in enterprise.values())
    resource |= {name: resource[name] or [] for name in _LISTS}
    declared = {declared: user.values[declared] for declared in schema.declared.values() if declared in user.values}
    extensions = {schemas.ENTERPRISE_URN: enterprise if has_enterprise else {}, schemas.ATTRIBUTES_URN: declared}
    present = {urn: values for urn, values in extensions.items() if values}
    return {"schemas": [schemas.USER_URN, *present], **resource, **present}


def parse_user(body: Mapping[str, Any], schema: schemas.ScimSchema = schemas.USER) -> ScimUserData:
    """Parse a new user."""
    skipped = resources.SkippedParts()
    resource = resources.read_resource(schema, body, skipped)
    skipped.raise_error()
    values = {declared: resource[name] for name, declared in schema.declared.items() if name in resource}
    return with_changes(_to_data(resource, *_read_names(resource)), values=values)


def parse_replacement(body: Mapping[str, Any], schema: schemas.ScimSchema = schemas.USER) -> UserReplacement:
    """Parse a whole user that replaces the present user. Values that are not valid are noted, and left out."""
    skipped = resources.SkippedParts()
    return UserReplacement(resources.read_resource(schema, body, skipped), skipped)


def replaced(user: ScimUser, replacement: UserReplacement, schema: schemas.ScimSchema = schemas.USER) -> ScimUserChange:
    """Return the change that this user's replacement means.

    Raises: AttributeValueInvalid, EmailInvalid, UserNameNotAnAddress, unless the replacement deactivates.
    """
    resource, skipped = dict(replacement.resource), replacement.skipped.copy()
    present, shown = to_resource(user, schema), to_response(user, schema)
    # A directory may send back a value that it was shown and that is not stored.
    sent_back = {name for name in PROFILE_ATTRIBUTES if resource.get(name) == shown[name]}
    # A refused attribute keeps its present value, except `active`, because it may mean that this
    # request deactivates.
    resource |= {name: present[name] for name in {*skipped.refused, *sent_back} - {"active"} if name in present}
    names: tuple[str | None, Email] = user.user_name, user.email
    try:
        names = _read_names(resource, user)
    except errors.Invalid as error:
        skipped.refuse("userName", error)
    return _with_values(_to_change(user, resource, names, skipped), user, resource, schema)


def patched(user: ScimUser, result: PatchResult, schema: schemas.ScimSchema = schemas.USER) -> ScimUserChange:
    """Return the change that a patch for this user means.

    Raises: the patch's first error, EmailInvalid, UserNameNotAnAddress, unless the patch deactivates.
    """
    resource, skipped = result.resource, result.skipped
    names: tuple[str | None, Email] = user.user_name, user.email
    if "active" not in result.named:
        # A patch without `active` changes no access.
        resource.pop("active", None)
    try:
        names = _patched_names(user, result)
    except errors.Invalid as error:
        skipped.refuse("userName", error)
    return _with_values(_to_change(user, resource, names, skipped), user, resource, schema)


def _with_values(change: ScimUserChange, user: ScimUser, resource: Mapping[str, Any], schema: schemas.ScimSchema) -> ScimUserChange:
    """Return the change with the values for declared attributes that differ from the present values."""
    new = {declared: resource.get(name) for name, declared in schema.declared.items()}
    values = {declared: value for declared, value in new.items() if value != user.values.get(declared)}
    return with_changes(change, data=with_changes(change.data, values=values))


def _patched_names(user: ScimUser, result: PatchResult) -> tuple[str | None, Email]:
    present, user_name = user.profile.user_name, result.resource["userName"]
    primary = _primary_email(result.resource) if "emails" in result.named else None
    if "emails" in result.named and primary is None:
        result.skipped.ignore("emails")
    if primary is not None:
        return user_name, Email.parse(primary)
    if user_name == user.user_name:
        return user_name, user.email
    return _names_without_emails(user_name, user) if present is None else (user_name, user.email)


def _read_names(resource: Mapping[str, Any], user: ScimUser | None = None) -> tuple[str | None, Email]:
    """Return the userName, or None if it is the email address, and the address. `user` is the present user, if there is one.

    The primary email address is the address. Without a primary email address, the userName is the address.

    Raises: AttributeValueInvalid, EmailInvalid, UserNameNotAnAddress.
    """
    if "userName" not in resource:
        raise resources.AttributeValueInvalid("userName", "present")
    primary = _primary_email(resource)
    if primary is None:
        return _names_without_emails(resource["userName"], user)
    return resource["userName"], Email.parse(primary)


def _names_without_emails(user_name: str, user: ScimUser | None) -> tuple[str | None, Email]:
    """Return the userName and the address, for a request without a primary address.

    The userName is None if it is the email address. A member that the directory did not create has a primary address
    already, so the userName may be any string.
    """
    try:
        return None, Email.parse(user_name)
    except EmailInvalid:
        if user is None or user.is_provisioned:
            raise UserNameNotAnAddress from None
        return user_name, user.email


def _primary_email(resource: Mapping[str, Any]) -> str | None:
    """Return the primary address, if there is one.

    If no address says whether it is primary, this is the first address with type work, or without a type.
    """
    emails: Sequence[Mapping[str, Any]] = resource.get("emails") or []
    primary = [email for email in emails if email.get("primary")]
    work = [email for email in emails if email.get("primary") is None and email.get("type", "work").lower() == "work"]
    value: str | None = next(iter(primary or work), {}).get("value")
    return value


def _to_change(
    user: ScimUser, resource: Mapping[str, Any], names: tuple[str | None, Email], skipped: resources.SkippedParts
) -> ScimUserChange:
    if resource.get("active") is not False:
        skipped.raise_error()
    user_name, email = names
    if (user_name or email, email) == (user.user_name, user.email):
        user_name = user.profile.user_name  # unchanged
    elif names == (user.profile.user_name, user.email):
        user_name = email  # another user has it
    return ScimUserChange(_to_data(resource, user_name, email), skipped)


def _to_data(resource: Mapping[str, Any], user_name: str | None, email: Email) -> ScimUserData:
    name = resource.get("name") or {}
    attributes = {attribute: value for attribute in FURTHER_ATTRIBUTES if (value := resource.get(attribute)) is not None}
    for list_name in _LISTS:  # a patch may remove only an item's value
        if items := [item for item in attributes.pop(list_name, ()) if item.get("value")]:
            attributes[list_name] = items
    return ScimUserData(
        email=email,
        profile=ScimProfile(
            external_id=resource.get("externalId"),
            formatted=name.get("formatted"),
            given_name=name.get("givenName"),
            family_name=name.get("familyName"),
            display_name=resource.get("displayName"),
            user_name=user_name,
            attributes=attributes,
        ),
        active=resource.get("active"),
    )


# Limits


def require_member_capacity(organization: Organization, count: int) -> None:
    """Check that the locked organization may have `count` more members."""
    limit = organization.user_limit.value
    if count > 0 and organization.member_count + count > limit:
        raise MembersFull(limit)


def require_inactive_capacity(organization: Organization, count: int) -> None:
    """Check that a directory that knows `count` users outside the group may provision another user.

    Every user outside the group occupies an email address. The address's owner may know nothing about this, and can no
    longer create an account with it.
    """
    limit = INACTIVE_PER_MEMBER * organization.user_limit.value
    if count >= limit:
        raise TooManyInactiveUsers(limit)


class NotBlocked(errors.NotFound):
    """The organization's directory does not block this user."""


@dataclass(frozen=True, slots=True)
class DirectoryBlock:
    """A user that the organization's directory blocks. `since` is UTC."""

    user_id: UUID
    email: str | None  # the address that the user had when they left, or None if the directory forgot them
    since: datetime
