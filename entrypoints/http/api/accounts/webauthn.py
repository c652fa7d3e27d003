"""The JSON for ceremonies, with the names in WebAuthn Level 3 section 5.1. `adapters/crypto/passkey_json.py` reads their texts."""

from typing import Annotated, Any, Literal

from pydantic import Field

from core.accounts.model.passkeys import MAX_CREDENTIAL_ID
from entrypoints.http import kit

# Binary data in base64url without padding. The lengths allow the largest real values, and more.
CredentialId = Annotated[str, Field(max_length=-(-MAX_CREDENTIAL_ID * 4 // 3))]
ClientData = Annotated[str, Field(max_length=5462)]
Attestation = Annotated[str, Field(max_length=21_846)]


class AttestationResponseRequest(kit.RequestModel):
    """What an authenticator says about a new passkey (AuthenticatorAttestationResponseJSON)."""

    clientDataJSON: ClientData = Field(description="The client data, in base64url.")
    attestationObject: Attestation = Field(description="The attestation object, in base64url.")
    transports: kit.Texts | None = Field(default=None, description="How the browser reaches the authenticator.", examples=[["internal"]])


class RegistrationCredentialRequest(kit.RequestModel):
    """A new passkey, as the browser returns it (RegistrationResponseJSON). Other members are ignored."""

    id: CredentialId = Field(description="The credential id, in base64url.")
    rawId: CredentialId = Field(description="The same as `id`.")
    type: Literal["public-key"] = Field(description="Always `public-key`.")
    response: AttestationResponseRequest = Field(description="The answer of the authenticator.")


class AssertionResponseRequest(kit.RequestModel):
    """What an authenticator says at a sign-in (AuthenticatorAssertionResponseJSON)."""

    clientDataJSON: ClientData = Field(description="The client data, in base64url.")
    authenticatorData: Annotated[str, Field(max_length=2731)] = Field(description="The authenticator data, in base64url.")
    signature: Annotated[str, Field(max_length=1366)] = Field(description="The signature, in base64url.")
    userHandle: Annotated[str, Field(max_length=86)] | None = Field(default=None, description="The handle of the user, in base64url.")


class AuthenticationCredentialRequest(kit.RequestModel):
    """A passkey at a sign-in, as the browser returns it (AuthenticationResponseJSON). Other members are ignored."""

    id: CredentialId = Field(description="The credential id, in base64url.")
    rawId: CredentialId = Field(description="The same as `id`.")
    type: Literal["public-key"] = Field(description="Always `public-key`.")
    response: AssertionResponseRequest = Field(description="The answer of the authenticator.")


class RequestOptionsResponse(kit.ResponseModel):
    """The options for a sign-in."""

    publicKey: dict[str, Any] = Field(
        description="PublicKeyCredentialRequestOptionsJSON, for `PublicKeyCredential.parseRequestOptionsFromJSON()`.",
        examples=[{"challenge": "…", "rpId": "sso.example.com", "userVerification": "required"}],
    )


class CreationOptionsResponse(kit.ResponseModel):
    """The options for a registration."""

    publicKey: dict[str, Any] = Field(
        description="PublicKeyCredentialCreationOptionsJSON, for `PublicKeyCredential.parseCreationOptionsFromJSON()`.",
        examples=[{"challenge": "…", "rp": {"id": "sso.example.com", "name": "Gatehouse"}}],
    )
