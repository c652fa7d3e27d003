"""The signed-in user's passkeys and security keys."""

from typing import Literal
from uuid import UUID

from pydantic import Field
from quart import Blueprint

from core.accounts import passkey_waits, passkeys
from core.accounts.model.passkeys import MAX_PASSKEYS, PasskeyKind, PasskeyWait
from core.kernel.rate_limits import PASSKEYS
from entrypoints.http import kit
from entrypoints.http.api.accounts import webauthn

routes = Blueprint("passkeys", __name__)

PATH = "/api/user/passkeys"


Kind = Literal["passkey", "security_key"]
CONDITIONAL = "Whether the browser creates a passkey right after a sign-in with a password, without asking you (`mediation: conditional`)."
KIND = "`passkey` signs in alone. `security_key` is a second factor only."


class PasskeyResponse(kit.ResponseModel):
    """A passkey or security key without its key."""

    id: UUID = Field(description="The id of the passkey.")
    kind: PasskeyKind = Field(description=KIND)
    name: str = Field(description="The name that you gave it, or that of the product.", examples=["Bitwarden"])
    product: str | None = Field(
        description="The password manager or device that keeps it, or null if that is not known.", examples=["Bitwarden"]
    )
    aaguid: UUID = Field(description="The model of the authenticator. All zeros if it does not say.")
    rp_id: str = Field(description="The host that it was made for. If that is no longer the host of passkeys here, it does not work.")
    backup_eligible: bool = Field(description="Whether the authenticator can sync the passkey to other devices.")
    created_at: kit.Timestamp = Field(description="The time when the passkey was added.")
    last_used_at: kit.Timestamp | None = Field(description="The time of its last use, to sign in or to confirm that it is you, or null.")


class PasskeyWaitResponse(kit.ResponseModel):
    """The wait for lost passkeys. After it, you can remove your passkeys without a passkey."""

    over_at: kit.Timestamp = Field(description="When you can remove your passkeys: 24 hours after the start.")
    until: kit.Timestamp = Field(description="When the wait ends: 72 hours after the start.")


class PasskeyListResponse(kit.ResponseModel):
    """A user's passkeys."""

    passkeys: list[PasskeyResponse] = Field(description=f"The passkeys, oldest first. There are at most {MAX_PASSKEYS}.")
    second_factor: bool = Field(description="Whether sign-ins ask for a passkey or security key after a password.")
    wait: PasskeyWaitResponse | None = kit.absent_if_none("The wait for lost passkeys, if one is running.")


class PasskeyOptionsRequest(kit.RequestModel):
    """A new passkey's kind."""

    kind: Kind = Field(default="passkey", description=KIND)
    conditional: bool = Field(default=False, description=CONDITIONAL)


@routes.post(f"{PATH}/options")
@kit.verified_person(kit.WAYS_IN, limit=PASSKEYS)
@kit.refuses(400)
async def start_registration(data: PasskeyOptionsRequest) -> webauthn.CreationOptionsResponse:
    """Start to add a passkey or a security key.

    Give `publicKey` to `navigator.credentials.create()` in the browser, and send the result to
    `POST /api/user/passkeys` in the same session. The challenge works once, for 10 minutes.
    """
    return webauthn.CreationOptionsResponse(
        publicKey=dict(await passkeys.start(kit.ports(), kit.signed_in(), PasskeyKind(data.kind), conditional=data.conditional))
    )


class PasskeyRequest(kit.RequestModel):
    """A new passkey."""

    credential: webauthn.RegistrationCredentialRequest = Field(description="The result of `navigator.credentials.create()`, as JSON.")
    kind: Kind = Field(default="passkey", description=f"{KIND} Send the kind of the options.")
    name: kit.Name | None = Field(default=None, description="A name to recognize it. Without a name, it gets its product's name.")
    conditional: bool = Field(
        default=False, description=f"{CONDITIONAL} Its authenticator need not verify you, and it is no proof for this session."
    )
    second_factor: bool | None = Field(
        default=None,
        description="Whether sign-ins ask for a passkey or security key after a password from now on. Without it: for a security key only.",
    )


class CreatedPasskeyResponse(PasskeyResponse):
    """A new passkey or security key."""

    backup_codes: list[str] | None = kit.absent_if_none(
        "New backup codes, if it became a second factor and you had none. No other response contains them."
    )


@routes.post(PATH)
@kit.verified_person(kit.WAYS_IN, limit=PASSKEYS)
@kit.returns(201)
async def register(data: PasskeyRequest) -> CreatedPasskeyResponse:
    """Add a passkey or a security key.

    You get an email about it, with a link that undoes it. An account can have 20 passkeys and security keys. If it becomes a second factor,
    trusted devices and pending sign-ins end. The first passkey ends an address change that another session requested.
    """
    credential, kind = data.credential.model_dump(), PasskeyKind(data.kind)
    passkey, codes = await passkeys.register(
        kit.ports(), kit.signed_in(), credential, data.name, kind, second=data.second_factor, conditional=data.conditional
    )
    return CreatedPasskeyResponse.of(passkey, backup_codes=list(codes) or None)


@routes.get(PATH)
@kit.person
async def list_own() -> PasskeyListResponse:
    """List your passkeys and security keys.

    The list has all passkeys, also passkeys for an earlier host of this installation.
    """
    own = await passkeys.load_own(kit.ports(), kit.signed_in())
    wait, is_second = PasskeyWait.of(own.account, kit.ports().clock.now()), own.account.passkey_second_at is not None
    shown = None if wait is None else PasskeyWaitResponse.of(wait)
    return PasskeyListResponse(passkeys=PasskeyResponse.list_of(own.passkeys), second_factor=is_second, wait=shown)


@routes.post(f"{PATH}/wait")
@kit.person(kit.ACTS_ON_ME, limit=PASSKEYS)
@kit.refuses(400, 429)
@kit.returns(201)
async def start_wait() -> PasskeyWaitResponse:
    """Report that you lost all your passkeys.

    Confirm your password and a code by email first, with two calls of `POST /api/auth/reauthenticate`. After 24 hours you can remove the
    passkeys without a passkey. You get an email at the start and at the end. The link in these emails ends the wait, and so does a sign-in
    with a passkey. If the account has a second factor, or a sign-in policy asks it for a passkey, it needs a recovery instead.
    """
    return PasskeyWaitResponse.of(await passkey_waits.start(kit.ports(), kit.signed_in()))


@routes.delete(f"{PATH}/wait")
@kit.person(kit.MINE)
@kit.refuses(404)
@kit.describes({204: "The wait has ended."})
async def cancel_wait() -> None:
    """Cancel the wait for lost passkeys.

    The passkeys stay. Any session on the account can cancel the wait.
    """
    await passkey_waits.cancel(kit.ports(), kit.signed_in())


@routes.delete(PATH)
@kit.person(kit.ACTS_ON_ME, limit=PASSKEYS)
@kit.refuses(400, 404)
@kit.describes({204: "The passkeys are deleted."})
async def remove_lost() -> None:
    """Delete all your passkeys after the wait for lost passkeys.

    Confirm your password and a code by email again. This works once, within 72 hours after the start. You get an email with a link that
    undoes the deletion.
    """
    await passkey_waits.finish(kit.ports(), kit.signed_in())


class SecondPasskeysRequest(kit.RequestModel):
    """Whether sign-ins ask for a passkey or security key."""

    enabled: bool = Field(description="Whether sign-ins ask for a passkey or security key after a password.")


class SecondPasskeysResponse(kit.ResponseModel):
    """Whether passkeys and security keys are a second factor."""

    enabled: bool = Field(description="Whether sign-ins ask for a passkey or security key after a password.")
    backup_codes: list[str] | None = kit.absent_if_none("New backup codes, if you had none. No other response contains them.")


@routes.put(f"{PATH}/second-factor")
@kit.person(kit.WAYS_IN)
@kit.refuses(400)
async def set_second_factor(data: SecondPasskeysRequest) -> SecondPasskeysResponse:
    """Choose whether sign-ins ask for a passkey or security key after a password.

    If it is turned on, trusted devices, pending sign-ins and personal access tokens end.
    """
    codes = await passkeys.set_second(kit.ports(), kit.signed_in(), on=data.enabled)
    return SecondPasskeysResponse(enabled=data.enabled, backup_codes=list(codes) or None)


class PasskeyUpdateRequest(kit.RequestModel):
    """A passkey's new name."""

    name: kit.Name = Field(description="The new name.", examples=["Work laptop"])


@routes.patch(f"{PATH}/<passkey_id>")
@kit.person(kit.WAYS_IN)
async def rename(passkey_id: UUID, data: PasskeyUpdateRequest) -> PasskeyResponse:
    """Rename a passkey."""
    return PasskeyResponse.of(await passkeys.rename(kit.ports(), kit.signed_in(), passkey_id, data.name))


@routes.delete(f"{PATH}/<passkey_id>")
@kit.person(kit.WAYS_IN)
@kit.refuses(400)
@kit.describes({204: "The passkey is deleted."})
async def delete(passkey_id: UUID) -> None:
    """Delete a passkey or security key.

    You get an email about it, with a link that undoes it. Sessions that the passkey started continue. The only way to sign in stays. After
    you delete the last passkey, passkeys are no longer a second factor.
    """
    await passkeys.delete(kit.ports(), kit.signed_in(), passkey_id)
