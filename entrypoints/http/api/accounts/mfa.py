"""The signed-in user's second factor."""

from typing import Annotated, Literal

from pydantic import Field, WithJsonSchema
from quart import Blueprint

from core.accounts import mfa
from core.kernel import rate_limits
from core.kernel.display import PRODUCT
from entrypoints.http import kit
from entrypoints.http.edge.qr import qr_svg

routes = Blueprint("mfa", __name__)

QR_TITLE = f"QR code to add your {PRODUCT} account to an authenticator app"
# The use case checks the format, as it does for all codes.
SetupCode = Annotated[str, Field(max_length=kit.MAX_TEXT), WithJsonSchema({"type": "string", "pattern": "^[0-9]{6}$"})]
BACKUP_CODE_LIST = Field(
    description="Backup codes. Each code works once in place of a code from the app.", examples=[["ABCD-2345", "K7QM-9XPT"]]
)


class MfaStatusResponse(kit.ResponseModel):
    """Your second factor's status."""

    enabled: bool = Field(description="Whether a password alone does not sign in.")
    methods: list[str] = Field(
        description="The second factors that a sign-in accepts: `totp`, `passkey`, which is also a security key, and `backup_code`.",
        examples=[["totp", "backup_code"]],
    )
    has_backup_codes: bool = Field(description="Whether at least one backup code is unused.")


@routes.get("/api/user/mfa/status")
@kit.person(applications=kit.ApplicationTokens.WITHOUT_OPENID)
@kit.refuses(404)
async def get_status() -> MfaStatusResponse:
    """Return the status of your two-factor authentication.

    A setup that is not confirmed counts as off. An application's token with the scope `openid` is refused.
    """
    status = await mfa.get_status(kit.ports(), kit.signed_in())
    return MfaStatusResponse(enabled=status.enabled_at is not None, methods=list(status.methods), has_backup_codes=status.backup_codes > 0)


class MfaSetupResponse(kit.ResponseModel):
    """A new secret to confirm, in three forms."""

    secret: str = Field(description="The secret in base32, to type into an app.", examples=["JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP"])
    qr_code_svg: str = Field(description="A QR code of the URI, as an SVG image.")
    qr_code_uri: str = Field(
        description="The URI that authenticator apps open.", examples=["otpauth://totp/Gatehouse:ada%40example.com?..."]
    )


@routes.post("/api/user/mfa/setup")
@kit.person(kit.WAYS_IN, limit=rate_limits.MFA_SETUP)
@kit.refuses(400, 404)
async def start_setup() -> MfaSetupResponse:
    """Start to set up two-factor authentication.

    Confirm the secret with `POST /api/user/mfa/verify` within 15 minutes. Another setup replaces an
    unconfirmed secret.
    """
    setup = await mfa.start_setup(kit.ports(), kit.signed_in())
    return MfaSetupResponse(secret=setup.secret, qr_code_svg=qr_svg(setup.uri, QR_TITLE), qr_code_uri=setup.uri)


class ConfirmMfaRequest(kit.RequestModel):
    """A code that confirms the setup."""

    code: SetupCode = Field(description="The 6-digit code from the authenticator app.", examples=["123456"])


class MfaEnabledResponse(kit.ResponseModel):
    """Two-factor authentication is on. Only this response contains these backup codes."""

    enabled: Literal[True] = Field(description="Always true.")
    backup_codes: list[str] = BACKUP_CODE_LIST


@routes.post("/api/user/mfa/verify")
@kit.person(kit.WAYS_IN, limit=(rate_limits.MFA_CONFIRMATION, rate_limits.MFA_VERIFICATION))
@kit.refuses(404)
async def confirm_setup(data: ConfirmMfaRequest) -> MfaEnabledResponse:
    """Confirm the authenticator app and turn two-factor authentication on.

    The backup codes are returned only once. Trusted devices and pending sign-ins end.
    """
    return MfaEnabledResponse(enabled=True, backup_codes=list(await mfa.confirm_setup(kit.ports(), kit.signed_in(), data.code)))


class MfaDisabledResponse(kit.ResponseModel):
    """Two-factor authentication is off."""

    success: Literal[True] = Field(description="Always true.")
    message: str = Field(description="The result in one sentence.")


@routes.delete("/api/user/mfa")
@kit.person(kit.WAYS_IN, limit=rate_limits.MFA_SETUP)
@kit.refuses(400, 404)
async def disable() -> MfaDisabledResponse:
    """Remove your authenticator app.

    The secret is deleted, and no device is trusted any longer. Passkeys stay a second factor if they are a second factor, with the backup
    codes. Otherwise these are deleted, and two-factor authentication is off. A factor that a sign-in policy requires stays.
    """
    was_on = await mfa.disable(kit.ports(), kit.signed_in())
    message = "Two-factor authentication was turned off." if was_on else "Two-factor authentication was already off."
    return MfaDisabledResponse(success=True, message=message)


class BackupCodesResponse(kit.ResponseModel):
    """New backup codes. Only this response contains them."""

    backup_codes: list[str] = BACKUP_CODE_LIST


@routes.post("/api/user/mfa/backup-codes/regenerate")
@kit.person(kit.WAYS_IN, limit=rate_limits.MFA_SETUP)
@kit.refuses(400, 404)
async def regenerate_backup_codes() -> BackupCodesResponse:
    """Replace your backup codes.

    The new codes are returned only once. All earlier codes stop working.
    """
    return BackupCodesResponse(backup_codes=list(await mfa.regenerate_backup_codes(kit.ports(), kit.signed_in())))
