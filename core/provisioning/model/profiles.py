"""The profile that a directory gave to a user."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from core.accounts.model.profiles import Profile
from core.provisioning.model.schemas import ENTERPRISE_USER


@dataclass(frozen=True, slots=True)
class ScimProfile:
    """The names, the external id and further attributes that a directory gave to a user.

    Only this organization sees the values, except attributes that become the account's profile. `attributes` has the
    values for FURTHER_ATTRIBUTES, by their SCIM names.
    """

    external_id: str | None = None
    formatted: str | None = None
    given_name: str | None = None
    family_name: str | None = None
    display_name: str | None = None
    user_name: str | None = None  # None: the email address is the userName, unless another user has it
    attributes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def full_name(self) -> str | None:
        """The formatted name, or else the given and the family name."""
        return self.formatted or " ".join(part for part in (self.given_name, self.family_name) if part) or None


FURTHER_ATTRIBUTES: Final = (
    "title",
    "preferredLanguage",
    "locale",
    "timezone",
    "phoneNumbers",
    "photos",
    *(attribute.name for attribute in ENTERPRISE_USER.attributes),
)


def to_account_profile(profile: ScimProfile) -> Profile:
    """Return the profile that these attributes give to an account. The profile's texts are not checked."""
    photos: Sequence[Mapping[str, Any]] = profile.attributes.get("photos", ())
    photo = next((photo for photo in photos if photo.get("primary")), photos[0] if photos else {})
    return Profile(
        name=profile.display_name or profile.full_name,
        picture=photo.get("value"),
        locale=profile.attributes.get("locale"),
        zoneinfo=profile.attributes.get("timezone"),
    )


_ATTRIBUTE_NAMES: Final = {
    "external_id": "externalId",
    "formatted": "name.formatted",
    "given_name": "name.givenName",
    "family_name": "name.familyName",
    "display_name": "displayName",
    "user_name": "userName",
}


def changed_attributes(old: ScimProfile, new: ScimProfile) -> list[str]:
    """Return the SCIM names of the attributes that differ."""
    names = [attribute for name, attribute in _ATTRIBUTE_NAMES.items() if getattr(old, name) != getattr(new, name)]
    return [*names, *(name for name in FURTHER_ATTRIBUTES if old.attributes.get(name) != new.attributes.get(name))]
