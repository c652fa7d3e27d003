"""The pages for the user's profile, and for deleting the account (security Y-3)."""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any, Final

from quart import Blueprint, Response

from core.accounts import accounts, images, profiles
from core.accounts.model.profiles import DETAILS, Profile, ProfileChanges, time_zones
from core.kernel import errors
from core.kernel.display import format_utc
from core.kernel.images import LARGE
from core.kernel.rate_limits import IMAGE_UPLOAD
from core.kernel.values import Email
from core.privacy import personal_data
from core.privacy.model.personal_data import OwnerCannotDelete
from core.tenancy import grants
from entrypoints.http import kit
from entrypoints.http.pages import consequences, console_forms
from entrypoints.http.pages.console import redirect_with_notice
from entrypoints.http.pages.console_forms import FOREIGN_FORM

routes = Blueprint("account_profile", __name__)

PROFILE: Final = "/app/account/profile"
PICTURE: Final = f"{PROFILE}/picture"
DELETE: Final = "/app/account/delete"
FIELDS: Final = ("name", "picture", "locale", "zoneinfo", *DETAILS)
HIDDEN_FIELDS: Final = ("middle_name", "preferred_username", "profile", "website", "gender", "birthdate")  # until the user opens them

# The profile


def _typed(form: console_forms.Form) -> dict[str, str | None]:
    return {field: form[field].strip() or None for field in FIELDS if field in form}


async def _values(form: console_forms.Form) -> dict[str, Any]:
    profile = (await accounts.get_own(kit.ports(), kit.signed_in())).profile
    return _profile_values(profile, dict.fromkeys(FIELDS) | _typed(form) if form else asdict(profile))


async def _stored_values(_: console_forms.Form) -> dict[str, Any]:
    return await _values({})  # the form with a picture has no such fields


def _first_invalid(_: errors.Refusal, form: console_forms.Form) -> str | None:
    for field, text in _typed(form).items():
        try:
            ProfileChanges.parse(**{field: text})
        except errors.Invalid:
            return field
    return None


def _profile_values(stored: Profile, typed: Mapping[str, str | None]) -> dict[str, Any]:
    """Return the page's values. The field for the picture does not show an uploaded picture's address."""
    uploaded = kit.image_path(stored.picture, LARGE)
    if uploaded and typed["picture"] == stored.picture:
        typed = {**typed, "picture": None}
    chosen = typed["zoneinfo"]
    # Without the names that are kept for old data
    names = {name for name in time_zones() if "/" in name and not name.startswith("Etc/")} | {"UTC"}
    if chosen in time_zones():
        names.add(chosen)
    return {
        "typed": {field: typed[field] or "" for field in FIELDS},
        "time_zones": sorted(names),
        "uploaded": uploaded,
        "opens_details": any(typed[field] for field in HIDDEN_FIELDS),
    }


@console_forms.serves_form(routes, PROFILE, "GET /api/user", "PATCH /api/user", "PUT /api/user/picture", "DELETE /api/user/picture")
@kit.page_session(kit.MINE)
@console_forms.accepts()
@console_forms.on_refusal("accounts/profile.html", _values, _first_invalid, refusals=(errors.Invalid,))
async def change_profile(form: console_forms.Form) -> Response:
    """Change your profile.

    An empty field removes a value, and a missing field keeps it. An uploaded picture stays unless the form has another picture's address.
    """
    typed = _typed(form)
    if typed.get("picture") is None and kit.image_path((await accounts.get_own(kit.ports(), kit.signed_in())).profile.picture):
        typed.pop("picture", None)
    await profiles.change(kit.ports(), kit.signed_in(), ProfileChanges.parse(**typed))
    return redirect_with_notice("profile-saved", PROFILE)


@routes.post(PICTURE)
@kit.page_session(kit.MINE, limit=IMAGE_UPLOAD)
@console_forms.accepts_image("PUT /api/user/picture", "accounts/profile.html", _stored_values)
async def upload_picture(form: console_forms.Form) -> Response:
    """Upload your picture."""
    await images.set_picture(kit.ports(), kit.signed_in(), kit.uploaded_file())
    return redirect_with_notice("picture-saved", PROFILE)


@routes.post(f"{PICTURE}/remove")
@kit.page_session(kit.MINE)
@console_forms.accepts("DELETE /api/user/picture")
async def remove_picture() -> Response:
    """Remove your picture."""
    await images.remove_picture(kit.ports(), kit.signed_in())
    return redirect_with_notice("picture-removed", PROFILE)


# Deleting the account


class ConfirmationWrong(errors.Invalid):
    """This is not the email address of your account. Enter it to confirm the deletion."""


async def _deletion_values(_: console_forms.Form) -> dict[str, Any]:
    """Return the page's values: what the user must do before the deletion, if anything."""
    user = kit.signed_in()
    programs = consequences.name_all(consequences.PROGRAMS, await grants.list_going_on(kit.ports(), user.user_id))
    values: dict[str, Any] = {"email": user.email, "programs": programs, "obstacle": None, "owns_organizations": False}
    try:
        await personal_data.check_own_deletion(kit.ports(), user)
    except errors.Forbidden as refusal:
        values |= {"obstacle": refusal.message, "owns_organizations": isinstance(refusal, OwnerCannotDelete)}
    return values


@console_forms.serves_form(routes, DELETE, "DELETE /api/user")
@kit.page_session(kit.ACTS_ON_ME)
@console_forms.accepts(
    answers={
        **console_forms.answers_with("The account is deleted, and the browser is signed out."),
        403: f"{FOREIGN_FORM} Or the page says what to do first.",
    },
    form=["form_token", "email"],
)
@console_forms.on_refusal("accounts/delete.html", _deletion_values, refusals=(errors.Invalid, errors.Forbidden))
async def delete_account(form: console_forms.Form) -> Response:
    """Delete your account permanently.

    Enter your account's email address to confirm.
    """
    if Email.parse_part(form.get("email", "")) != kit.signed_in().email:
        raise ConfirmationWrong
    return _deleted_page(await personal_data.delete_own_account(kit.ports(), kit.signed_in()))


def _deleted_page(erase_at: datetime | None) -> Response:
    response = kit.page_response(kit.render("accounts/deleted.html", erase_at=None if erase_at is None else format_utc(erase_at)))
    kit.cookies.SESSION.clear(response)
    kit.cookies.TRUST.clear(response)
    return response
