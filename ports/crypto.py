"""Passwords, tokens, certificates and encrypted secrets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from core.accounts.model import passkeys
from core.accounts.model.accounts import Account
from core.authentication.model import dpop, openid
from core.authentication.model.tokens import SigningKey
from core.federation.connections.model.connections import CertificateFacts
from core.federation.saml.model.configuration import SamlCertificate
from core.kernel.claims import Accepts, Claims, PreAuthClaims, ProgramClaims
from core.kernel.values import Email


class Passwords(Protocol):
    """Password hashes made with Argon2id (security A-1, A-2).

    Concurrent hashes are limited, and their queue is bounded. `hash`, `verify` and `derive` raise Limited if the queue
    is full.
    """

    async def hash(self, password: str) -> str:
        """Return a new hash as a PHC string."""

    async def verify(self, password_hash: str | None, password: str) -> bool:
        """Return whether the password matches the hash.

        A hash of None means that the account does not exist or has no password. The answer is then False and takes as
        long as for a real hash (security B-2).
        """

    def is_outdated(self, password_hash: str) -> bool:
        """Return whether the hash was made with outdated parameters."""

    def new_salt(self) -> bytes:
        """Return a salt for `derive` with 128 random bits. The salt contains the Argon2 parameters, so it stays usable when they change."""

    async def derive(self, secret: str, salt: bytes) -> bytes:
        """Return 32 bytes derived from this secret and this salt.

        The result serves secrets that share a salt: one derivation finds a secret among several (security M-4).
        """


class OneTimeCodes(Protocol):
    """Time-based one-time codes with six digits (TOTP, RFC 6238; security M-1).

    The codes use SHA-1 and 30-second steps, because every authenticator app supports these.
    """

    def new_secret(self) -> str:
        """Return 160 random bits as 32 base32 characters (RFC 4648 section 6)."""

    def uri(self, secret: str, email: Email, issuer: str) -> str:
        """Return the `otpauth` URI that gives the secret to an authenticator app. The URI's label is `<issuer>:<email>`."""

    def matching_step(self, secret: str, code: str, now: datetime) -> int | None:
        """Return this code's time step, counted from 1970, or None if the code is wrong.

        The current step and its two neighbors are accepted. The call takes the same time for every code.
        """


class Passkeys(Protocol):
    """Passkey ceremonies (WebAuthn Level 3; security #passkeys).

    Verification takes 0.1 ms, so it runs on the thread that serves requests (docs/adr/0028).
    """

    def new_challenge(self, binding: passkeys.ChallengeBinding, now: datetime) -> bytes:
        """Return a random challenge that works for CHALLENGE_TTL, for this binding only."""

    def creation_options(
        self,
        party: passkeys.RelyingParty,
        challenge: bytes,
        account: Account,
        handle: bytes,
        kind: passkeys.PasskeyKind,
        exclude: Sequence[passkeys.Passkey],
        *,
        conditional: bool = False,
    ) -> passkeys.Json:
        """Return the options for a registration (PublicKeyCredentialCreationOptionsJSON). `handle` is `user.id`.

        `conditional`: the browser asks the user nothing, so the authenticator need not verify them.
        """

    async def verify_registration(
        self,
        credential: passkeys.Json,
        party: passkeys.RelyingParty,
        binding: passkeys.ChallengeBinding,
        now: datetime,
        *,
        verification: bool = True,
        presence: bool = True,
    ) -> passkeys.NewPasskey:
        """Verify a new passkey (RegistrationResponseJSON).

        `verification`: the authenticator must have verified its user. `presence`: the user must have been present.

        Raises: CeremonyRefused.
        """

    def request_options(
        self, party: passkeys.RelyingParty, challenge: bytes, allow: Sequence[passkeys.Passkey] = (), *, verification: bool = True
    ) -> passkeys.Json:
        """Return the options for a sign-in (PublicKeyCredentialRequestOptionsJSON). Without `allow`, any discoverable passkey fits.

        Without `verification`, the authenticator verifies its user if it can.
        """

    def read_assertion(self, credential: passkeys.Json) -> passkeys.PresentedAssertion:
        """Return the parts of the browser's answer at a sign-in (AuthenticationResponseJSON).

        Nothing is verified. Raises: CeremonyRefused.
        """

    async def verify_assertion(
        self,
        presented: passkeys.PresentedAssertion,
        known: passkeys.Passkey,
        party: passkeys.RelyingParty,
        binding: passkeys.ChallengeBinding,
        now: datetime,
        *,
        verification: bool = True,
    ) -> passkeys.VerifiedAssertion:
        """Verify the answer that this passkey signed. `verification`: the authenticator must have verified its user.

        The sign counter is only read: `check_use` decides.

        Raises: CeremonyRefused.
        """


class Tokens(Protocol):
    """Access tokens and pre-auth tokens: JWTs signed with RS256 (RFC 7519, RFC 8725)."""

    @property
    def loaded_at(self) -> datetime:
        """When `use` was last called, in UTC."""

    @property
    def issuer(self) -> str:
        """The issuer in all tokens, which is the base URL."""

    @property
    def api_audience(self) -> str:
        """The audience in tokens for our own API, as they are issued now."""

    @property
    def userinfo_audience(self) -> str:
        """The userinfo endpoint's URL: the audience in tokens with a scope unless another resource is granted."""

    @property
    def claims_audience(self) -> str:
        """The audience in tokens that read large claims at the userinfo endpoint (OpenID Connect Core section 5.6.2)."""

    def begin_load(self) -> int:
        """Start to load the keys, and return the load's number. The caller reads the keys after this call."""

    def use(self, keys: Sequence[SigningKey], now: datetime, load: int | None = None) -> None:
        """Replace the keys. `choose_signing_key` says which key signs. Retired keys verify only hints.

        A load is ignored if the keys of a later load are used already: it can include a key that was removed. Without
        `load`, the keys were read just now.
        """

    def signing_kid(self, now: datetime) -> str | None:
        """Return the id of the key that signs at this time, or None."""

    async def new_key(self, now: datetime) -> SigningKey:
        """Return a new RSA key with 2048 bits. The key is made in a thread, because it takes long."""

    def sign(self, claims: Claims) -> str: ...

    def sign_claims(self, claims: Mapping[str, Any], client_id: str, now: datetime) -> str:
        """Return claims about a user as a JWT for this client, which is valid for 5 minutes (OpenID Connect Core section 5.3.2)."""

    def sign_program(self, claims: ProgramClaims) -> str: ...

    def read_id_token_hint(self, token: str) -> openid.IdTokenHint | None:
        """Return the user, session and client in our own ID token, even if it has expired, or its key has retired.

        None means that we did not sign the token, or that its key is deleted.
        """

    def sign_logout_token(self, token: openid.LogoutToken) -> str:
        """Return a signed logout token (Back-Channel Logout section 2.4)."""

    def sign_id_token(self, token: openid.IdToken) -> str:
        """Return a signed ID token (OpenID Connect Core section 2)."""

    def id_token_claims(self, token: openid.IdToken) -> dict[str, Any]:
        """Return the claims that `sign_id_token` signs."""

    def read(self, token: str, now: datetime, *, accepts: Accepts = Accepts.OWN) -> Claims | ProgramClaims:
        """Verify a user's or a program's access token and return its claims (security J-1, J-2, J-3, J-7).

        A token that the place does not accept is refused.

        Raises: TokenInvalid, WrongToken, TokenExpired, UnknownKey.
        """

    def sign_pre_auth(self, claims: PreAuthClaims) -> str:
        """Return a signed pre-auth token.

        The token's type and audience differ from an access token's (RFC 8725 sections 3.11 and 3.12).
        """

    def read_pre_auth(self, token: str, now: datetime) -> PreAuthClaims:
        """Verify a pre-auth token and return its claims. Raises: TokenInvalid, WrongToken, PreAuthExpired, UnknownKey."""

    def jwks(self) -> dict[str, Any]:
        """Return the accepted public keys as a JWK set (RFC 7517)."""


class ClientAssertions(Protocol):
    """Client assertions: JWTs that OAuth clients sign to authenticate (RFC 7523)."""

    def subject(self, assertion: str) -> str | None:
        """Return the claim `sub` without verifying anything, or None if there is none."""

    def read(self, assertion: str, keys: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        """Verify an assertion's type and signature and return its claims, which the caller checks.

        Only the algorithms in `client_settings.ASSERTION_ALGORITHMS` are accepted. `typ` is `JWT` or missing.

        Raises: ClientAssertionInvalid; AssertionKeyUnknown if no key signed it.
        """

    def check_keys(self, keys: Sequence[Mapping[str, Any]]) -> None:
        """Check that these keys can verify assertions.

        Raises: ClientKeysInvalid unless every key is RSA with 2048 to 8192 bits, P-256 or Ed25519.
        """


class PipelineTokens(Protocol):
    """The tokens that pipelines get from their own provider, and present as client assertions."""

    def issuer(self, token: str) -> str | None:
        """Return the claim `iss` without verifying anything, or None if there is none."""

    def read(self, token: str, keys: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        """Verify a token, and return its claims, as `ClientAssertions.read` does."""


class DpopProofs(Protocol):
    """DPoP proofs (RFC 9449), and the nonce keys that this process knows."""

    def read(self, proof: str) -> dpop.SignedProof:
        """Verify a proof's header and signature, and return its claims, which the caller checks.

        Only the algorithms in `dpop.PROOF_ALGORITHMS` are accepted. The proof contains its public key: RSA with 2048 to
        8192 bits, P-256 or Ed25519.

        Raises: ProofInvalid.
        """

    def nonce_key(self, period: int) -> dpop.NonceKey | None: ...

    def keep_nonce_key(self, key: dpop.NonceKey) -> None:
        """Keep a period's key and the previous key, and forget earlier keys."""

    def forget_nonce_keys(self) -> None: ...


class Certificates(Protocol):
    """X.509 certificates: self-signed certificates for our own keys, and the certificates of services."""

    async def create(self, organization: str, name: str, now: datetime, years: int) -> SamlCertificate:
        """Return a new RSA key with 2048 bits and its certificate, signed with SHA-256.

        `organization` and `name` become the subject's O and CN. The certificate is valid for `years` from `now`,
        without fractions of a second. The key is made in a thread, because it takes long.
        """

    async def read(self, pem: str) -> str:
        """Return a service's certificate in canonical PEM.

        The certificate's validity does not matter, because the service's admin registered it.

        Raises: SloCertificateInvalid if it is not a single X.509 certificate with an RSA key between 2048 and 8192
        bits.
        """

    async def public_jwk(self, pem: str) -> Mapping[str, str]:
        """Return the public key in a certificate that `create` made, as a JWK. The key id is the certificate's thumbprint."""

    def sign_token(self, certificate: SamlCertificate, claims: Mapping[str, Any]) -> str:
        """Return a JWT with these claims (RS256), signed with the key that `create` made for this certificate."""

    async def facts(self, pem: str) -> CertificateFacts:
        """Return the facts about an identity provider's certificate: PEM, or only its base64, as metadata have it.

        Raises: ProviderCertificateInvalid, as `read`.
        """

    async def valid_until(self, pem: str) -> datetime:
        """Return until when a certificate that `read` returned is valid, in UTC."""


@dataclass(frozen=True, slots=True)
class SecretContext:
    """The column and row that an encrypted value belongs to.

    The context is authenticated with the value, so a value decrypts in no other place (security L-1).
    """

    table: str
    row: str
    column: str


class Vault(Protocol):
    """Encryption with AES-256-GCM (security L-1).

    A value names the id of its key. Every column has its own derived key.
    """

    def seal(self, plaintext: bytes, context: SecretContext) -> bytes:
        """Encrypt a value with the active key."""

    def open(self, sealed: bytes, context: SecretContext) -> bytes:
        """Decrypt a value. Raises: SealBroken if the key is not configured, or the value was changed or belongs to another context."""

    def is_current(self, sealed: bytes) -> bool:
        """Return whether the value was encrypted with the active key."""


class SealBroken(Exception):
    """An encrypted value cannot be decrypted. There is no fallback to plaintext: the operator has to restore the key."""
