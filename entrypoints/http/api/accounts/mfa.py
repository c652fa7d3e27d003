"""The second factor of the caller's own account (identity.md section 4.2; decisions, points 26, 43 and 44)."""

from typing import Annotated, Literal

from pydantic import Field, WithJsonSchema
from quart import Blueprint
from quart_schema import validate_request, validate_response

from core.accounts import mfa
from core.kernel.display import PRODUCT
from core.kernel.rate_limits import MFA_CONFIRMATION, MFA_SETUP, MFA_VERIFICATION
from entrypoints.http.edge.access import person
from entrypoints.http.edge.bodies import MAX_TEXT, RequestModel, ResponseModel
from entrypoints.http.edge.context import ports, signed_in
from entrypoints.http.edge.openapi import refuses
from entrypoints.http.edge.qr import qr_svg

routes = Blueprint("mfa", __name__)

QR_TITLE = f"QR code for an authenticator app to learn your {PRODUCT} account"
# Its form is judged by the use case, as that of every code is.
SetupCode = Annotated[str, Field(max_length=MAX_TEXT), WithJsonSchema({"type": "string", "pattern": "^[0-9]{6}$"})]


class MfaStatus(ResponseModel):
    """Whether two-factor authentication is on, and whether at least one backup code is left."""

    enabled: bool
    has_backup_codes: bool


@routes.get("/api/user/mfa/status")
@person(applications=True)
@refuses(404)
@validate_response(MfaStatus)
async def status() -> MfaStatus:
    """Whether you have two-factor authentication."""
    found = await mfa.get_status(ports(), signed_in())
    return MfaStatus(enabled=found.enabled_at is not None, has_backup_codes=found.backup_codes > 0)


class MfaSetup(ResponseModel):
    """A new secret: in base32, as a QR code (SVG), and as the address that the QR code shows."""

    secret: str
    qr_code_svg: str
    qr_code_uri: str


@routes.post("/api/user/mfa/setup")
@person(impersonated=False, limit=MFA_SETUP)
@refuses(400, 404)
@validate_response(MfaSetup)
async def setup() -> MfaSetup:
    """Begin to set up two-factor authentication. Confirm it within 15 minutes by a code of the app that was given the secret."""
    begun = await mfa.start_setup(ports(), signed_in())
    return MfaSetup(secret=begun.secret, qr_code_svg=qr_svg(begun.uri, QR_TITLE), qr_code_uri=begun.uri)


class MfaCode(RequestModel):
    """The six digits that the authenticator app shows."""

    code: SetupCode


class MfaEnabled(ResponseModel):
    """Two-factor authentication is on. Each backup code stands in for the app once; they are shown only here."""

    enabled: Literal[True]
    backup_codes: list[str]


@routes.post("/api/user/mfa/verify")
@person(impersonated=False, limit=(MFA_CONFIRMATION, MFA_VERIFICATION))
@refuses(404)
@validate_request(MfaCode)
@validate_response(MfaEnabled)
async def verify(data: MfaCode) -> MfaEnabled:
    """Confirm the authenticator app, which switches two-factor authentication on."""
    return MfaEnabled(enabled=True, backup_codes=list(await mfa.confirm_setup(ports(), signed_in(), data.code)))


class MfaDisabled(ResponseModel):
    """Two-factor authentication is off."""

    success: Literal[True]
    message: str


@routes.delete("/api/user/mfa")
@person(impersonated=False, limit=MFA_SETUP)
@refuses(404)
@validate_response(MfaDisabled)
async def disable() -> MfaDisabled:
    """Switch two-factor authentication off. The secret and all backup codes are deleted."""
    was_on = await mfa.disable(ports(), signed_in())
    message = "Two-factor authentication was switched off." if was_on else "Two-factor authentication was not on."
    return MfaDisabled(success=True, message=message)


class BackupCodes(ResponseModel):
    """Each code stands in for the authenticator app once; they are shown only here."""

    backup_codes: list[str]


@routes.post("/api/user/mfa/backup-codes/regenerate")
@person(impersonated=False, limit=MFA_SETUP)
@refuses(400, 404)
@validate_response(BackupCodes)
async def regenerate() -> BackupCodes:
    """Make new backup codes. All earlier ones are void, used or not."""
    return BackupCodes(backup_codes=list(await mfa.regenerate_backup_codes(ports(), signed_in())))
