"""The pages of the user's profile, and of the deletion of the account (decision 247; security Y-3)."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from quart import Blueprint, Response

from core.accounts import accounts, profiles
from core.accounts.model.profiles import DETAILS, ProfileChanges, time_zones
from core.kernel.display import format_utc
from core.kernel.errors import Forbidden, Invalid
from core.kernel.sign_in_age import SignInAge
from core.kernel.values import Email
from core.privacy import personal_data
from core.privacy.model.personal_data import OwnerCannotDelete
from entrypoints.http.edge import cookies
from entrypoints.http.edge.access import page_session
from entrypoints.http.edge.context import page_response, ports, signed_in
from entrypoints.http.edge.openapi import describes_page
from entrypoints.http.pages import render
from entrypoints.http.pages.console import (
    FOREIGN_FORM,
    NOT_ACCEPTED,
    REDIRECTED,
    console_page,
    read_console_form,
    redirect_with_notice,
    refused_console_page,
)

routes = Blueprint("account_profile", __name__)

PROFILE: Final = "/app/account/profile"
DELETE: Final = "/app/account/delete"
FIELDS: Final = ("name", "picture", "locale", "zoneinfo", *DETAILS)
HIDDEN_FIELDS: Final = ("middle_name", "preferred_username", "profile", "website", "gender", "birthdate")  # until the user opens them

# The profile


def _profile_values(typed: Mapping[str, str | None], wrong: str | None) -> dict[str, Any]:
    chosen = typed["zoneinfo"]
    # Without the names that are kept for old data
    names = {name for name in time_zones() if "/" in name and not name.startswith("Etc/")} | {"UTC"}
    if chosen in time_zones():
        names.add(chosen)
    return {
        "typed": {field: typed[field] or "" for field in FIELDS},
        "time_zones": sorted(names),
        "wrong": wrong,
        "opens_details": wrong in HIDDEN_FIELDS or any(typed[field] for field in HIDDEN_FIELDS),
    }


@routes.get(PROFILE)
@page_session
@describes_page({200: "The form."}, api=["GET /api/user", "PATCH /api/user"])
async def show_profile() -> Response:
    """Show the form to change your profile.

    The profile has names, a picture, a language, a time zone and other details.
    """
    profile = (await accounts.get_own(ports(), signed_in())).profile
    return await console_page("accounts/profile.html", **_profile_values(asdict(profile), None))


@routes.post(PROFILE)
@page_session(outlives=True, sign_in=SignInAge.ANY)
@describes_page({303: REDIRECTED, 400: NOT_ACCEPTED, 403: FOREIGN_FORM}, form=["form_token"])
async def change_profile() -> Response:
    """Change your profile.

    An empty field removes a value, and a missing one keeps it.
    """
    form, user = await read_console_form(), signed_in()
    typed = {field: form[field].strip() or None for field in FIELDS if field in form}
    for field, text in typed.items():
        try:
            ProfileChanges.parse(**{field: text})
        except Invalid as refusal:
            values = _profile_values(dict.fromkeys(FIELDS) | typed, field)
            return await refused_console_page(refusal, "accounts/profile.html", **values)
    await profiles.change(ports(), user, ProfileChanges.parse(**typed))
    return redirect_with_notice("profile-saved", PROFILE)


# The deletion of the account


class ConfirmationWrong(Invalid):
    """This is not the email address of your account. Enter it to confirm the deletion."""


async def _deletion_values() -> dict[str, Any]:
    """Return the values of the page: what the user must do before the deletion, if anything."""
    user = signed_in()
    values: dict[str, Any] = {"email": user.email, "obstacle": None, "owns_organizations": False}
    try:
        await personal_data.check_own_deletion(ports(), user)
    except Forbidden as refusal:
        values |= {"obstacle": refusal.message, "owns_organizations": isinstance(refusal, OwnerCannotDelete)}
    return values


@routes.get(DELETE)
@page_session
@describes_page({200: "The page."}, api=["DELETE /api/user"])
async def show_deletion() -> Response:
    """Show what the deletion of your account does."""
    return await console_page("accounts/delete.html", **await _deletion_values())


@routes.post(DELETE)
@page_session(outlives=True, sign_in=SignInAge.FRESH)
@describes_page(
    {
        200: "The account is deleted, and the browser is signed out.",
        400: NOT_ACCEPTED,
        403: f"{FOREIGN_FORM} Or the page says what to do first.",
    },
    form=["form_token", "email"],
)
async def delete_account() -> Response:
    """Delete your account permanently.

    Enter the email address of your account to confirm.
    """
    form, user = await read_console_form(), signed_in()
    try:
        if Email.parse_part(form.get("email", "")) != user.email:
            raise ConfirmationWrong
        erase_at = await personal_data.delete_own_account(ports(), user)
    except (Invalid, Forbidden) as refusal:
        return await refused_console_page(refusal, "accounts/delete.html", **await _deletion_values())
    response = page_response(render("accounts/deleted.html", erase_at=None if erase_at is None else format_utc(erase_at)))
    cookies.clear_session_cookie(response)
    cookies.clear_trust_cookie(response)
    return response
