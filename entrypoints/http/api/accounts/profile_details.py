"""The details of a profile in responses: claims of OpenID Connect (Core, section 5.1) that few users set."""

from typing import Any

from entrypoints.http.edge.bodies import ResponseModel, absent_if_none


def _detail(description: str, example: str) -> Any:
    """Return the definition of a field that is absent if it is not set."""
    return absent_if_none(f"{description} Absent if not set.", examples=[example])


class ProfileDetailsResponse(ResponseModel):
    """The details of a profile. Each one is absent if it is not set."""

    given_name: str | None = _detail("The given names.", "Ada")
    family_name: str | None = _detail("The family names.", "Lovelace")
    middle_name: str | None = _detail("The middle names.", "King")
    nickname: str | None = _detail("The casual name.", "Ada")
    preferred_username: str | None = _detail("The short name that the user likes to have.", "ada")
    profile: str | None = _detail("The https URL of a page about the user.", "https://example.com/ada")
    website: str | None = _detail("The https URL of the user's website.", "https://ada.example.com")
    gender: str | None = _detail("The gender, such as `female`, `male` or another text.", "female")
    birthdate: str | None = _detail("The birthdate: a date, `0000` for an unknown year, or the year alone.", "1815-12-10")
