"""Passwords, tokens, certificates and encrypted secrets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from core.accounts.model.accounts import Account
from core.accounts.model.passkeys import (
    ChallengeBinding,
    Json,
    NewPasskey,
    Passkey,
    PasskeyKind,
    PresentedAssertion,
    RelyingParty,
    VerifiedAssertion,
)
from core.authentication.model.dpop import NonceKey, SignedProof
from core.authentication.model.openid import IdToken, IdTokenHint, LogoutToken
from core.authentication.model.tokens import SigningKey
from core.federation.connections.model.connections import CertificateFacts
from core.federation.saml.model.configuration import SamlCertificate
from core.kernel.claims import Accepts, Claims, PreAuthClaims, ProgramClaims
from core.kernel.values import Email


class Passwords(Protocol):
    """Password hashes made with Argon2id (security A-1, A-2).

    The number of concurrent hashes is limited, and the queue before them is bounded. `hash`,
    `verify` and `derive` raise Limited if the queue is full.
    """

    async def hash(self, password: str) -> str:
        """Return a new hash as a PHC string."""

    async def verify(self, password_hash: str | None, password: str) -> bool:
        """Return whether the password matches the hash.

        None means that the account does not exist or has no password. The answer is then False and
        takes as long as for any other hash (security B-2).
        """

    def is_outdated(self, password_hash: str) -> bool:
        """Return whether the hash was made with other parameters than the current ones."""

    def new_salt(self) -> bytes:
        """Return a salt for `derive` with 128 random bits. It contains the Argon2 parameters, so it stays usable when they change."""

    async def derive(self, secret: str, salt: bytes) -> bytes:
        """Return 32 bytes derived from this secret and this salt.

        For secrets that share a salt, so that a secret can be found among several by one derivation (security M-4).
        """


class OneTimeCodes(Protocol):
    """Time-based one-time codes of six digits (TOTP, RFC 6238; security M-1).

    They use SHA-1 and steps of 30 seconds, because every authenticator app supports these.
    """

    def new_secret(self) -> str:
        """Return 160 random bits as 32 characters of base32 (RFC 4648 section 6)."""

    def uri(self, secret: str, email: Email, issuer: str) -> str:
        """Return the `otpauth` URI that gives the secret to an authenticator app. Its label is `<issuer>:<email>`."""

    def matching_step(self, secret: str, code: str, now: datetime) -> int | None:
        """Return the time step of this code, counted from 1970, or None if the code is wrong.

        The current step, the one before it and the one after it are accepted. The call takes the same time for every code.
        """


class Passkeys(Protocol):
    """Ceremonies of passkeys (WebAuthn Level 3; security #passkeys).

    Verification takes 0.1 ms, so it runs on the thread that serves requests (docs/adr/0028).
    """

    def new_challenge(self, binding: ChallengeBinding, now: datetime) -> bytes:
        """Return a random challenge that works for CHALLENGE_TTL, for this binding only."""

    def creation_options(
        self,
        party: RelyingParty,
        challenge: bytes,
        account: Account,
        handle: bytes,
        kind: PasskeyKind,
        exclude: Sequence[Passkey],
        *,
        conditional: bool = False,
    ) -> Json:
        """Return the options of a registration (PublicKeyCredentialCreationOptionsJSON). `handle` is `user.id`.

        `conditional`: the browser asks the user nothing, so the authenticator need not verify them.
        """

    async def verify_registration(
        self,
        credential: Json,
        party: RelyingParty,
        binding: ChallengeBinding,
        now: datetime,
        *,
        verification: bool = True,
        presence: bool = True,
    ) -> NewPasskey:
        """Verify a new passkey (RegistrationResponseJSON).

        `verification`: the authenticator must have verified its user. `presence`: the user must have been present.

        Raises: CeremonyRefused.
        """

    def request_options(self, party: RelyingParty, challenge: bytes, allow: Sequence[Passkey] = (), *, verification: bool = True) -> Json:
        """Return the options of a sign-in (PublicKeyCredentialRequestOptionsJSON). Without `allow`, any discoverable passkey fits.

        Without `verification`, the authenticator verifies its user if it can.
        """

    def read_assertion(self, credential: Json) -> PresentedAssertion:
        """Return the parts of an answer to a sign-in (AuthenticationResponseJSON). Nothing is verified. Raises: CeremonyRefused."""

    async def verify_assertion(
        self,
        presented: PresentedAssertion,
        known: Passkey,
        party: RelyingParty,
        binding: ChallengeBinding,
        now: datetime,
        *,
        verification: bool = True,
    ) -> VerifiedAssertion:
        """Verify the answer of this passkey. `verification`: the authenticator must have verified its user.

        The sign counter is only read: `check_use` decides.

        Raises: CeremonyRefused.
        """


class Tokens(Protocol):
    """Access tokens and pre-auth tokens: JWTs signed with RS256 (RFC 7519, RFC 8725)."""

    @property
    def loaded_at(self) -> datetime:
        """The time of the last call of `use`, in UTC."""

    @property
    def issuer(self) -> str:
        """The issuer of all tokens, which is the base URL."""

    @property
    def api_audience(self) -> str:
        """The audience of tokens for our own API, as they are issued now."""

    @property
    def userinfo_audience(self) -> str:
        """The URL of the userinfo endpoint, which is the audience of tokens with a scope unless another resource is granted."""

    @property
    def claims_audience(self) -> str:
        """The audience of tokens that read large claims at the userinfo endpoint (OpenID Connect Core section 5.6.2)."""

    def begin_load(self) -> int:
        """Return the number of a load of the keys. The caller reads them after this call."""

    def use(self, keys: Sequence[SigningKey], now: datetime, load: int | None = None) -> None:
        """Replace the keys. `choose_signing_key` says which one signs. Those that have retired verify only hints.

        The keys of a load are ignored if those of a later one are used already: they can include a key
        that was removed. Without `load`, the keys were read just now.
        """

    def signing_kid(self, now: datetime) -> str | None:
        """Return the id of the key that signs at this time, or None."""

    async def new_key(self, now: datetime) -> SigningKey:
        """Return a new RSA key of 2048 bits. It is made in a thread, because it takes long."""

    def sign(self, claims: Claims) -> str: ...

    def sign_claims(self, claims: Mapping[str, Any], client_id: str, now: datetime) -> str:
        """Return claims about a user as a JWT for this client, which is valid for 5 minutes (OpenID Connect Core section 5.3.2)."""

    def sign_program(self, claims: ProgramClaims) -> str: ...

    def read_id_token_hint(self, token: str) -> IdTokenHint | None:
        """Return the user, session and client in an ID token of ours, even if it has expired, or its key has retired.

        None means that the token is not one of ours, or that its key is deleted.
        """

    def sign_logout_token(self, token: LogoutToken) -> str:
        """Return a signed logout token (Back-Channel Logout section 2.4)."""

    def sign_id_token(self, token: IdToken) -> str:
        """Return a signed ID token (OpenID Connect Core section 2)."""

    def id_token_claims(self, token: IdToken) -> dict[str, Any]:
        """Return the claims that `sign_id_token` signs."""

    def read(self, token: str, now: datetime, *, accepts: Accepts = Accepts.OWN) -> Claims | ProgramClaims:
        """Verify an access token of a user or a program and return its claims (security J-1, J-2, J-3, J-7).

        A token that the place does not accept is refused.

        Raises: TokenInvalid, WrongToken, TokenExpired, UnknownKey.
        """

    def sign_pre_auth(self, claims: PreAuthClaims) -> str:
        """Return a signed pre-auth token.

        Its type and its audience differ from those of an access token (RFC 8725 sections 3.11 and 3.12).
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
        """Verify the type and the signature of an assertion and return its claims, which the caller checks.

        Only the algorithms of `client_settings.ASSERTION_ALGORITHMS` are accepted. `typ` is `JWT` or missing.

        Raises: ClientAssertionInvalid; AssertionKeyUnknown if none of the keys signed it.
        """

    def check_keys(self, keys: Sequence[Mapping[str, Any]]) -> None:
        """Check that these keys can verify assertions.

        Raises: ClientKeysInvalid unless each is RSA with 2048 to 8192 bits, P-256 or Ed25519.
        """


class PipelineTokens(Protocol):
    """The tokens that pipelines get from a provider of their own, and present as client assertions."""

    def issuer(self, token: str) -> str | None:
        """Return the claim `iss` without verifying anything, or None if there is none."""

    def read(self, token: str, keys: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        """Verify a token, and return its claims, as `ClientAssertions.read` does."""


class DpopProofs(Protocol):
    """DPoP proofs (RFC 9449), and the keys of nonces that this process knows."""

    def read(self, proof: str) -> SignedProof:
        """Verify the header and the signature of a proof, and return its claims, which the caller checks.

        Only the algorithms of `dpop.PROOF_ALGORITHMS` are accepted. The proof contains its
        public key: RSA with 2048 to 8192 bits, P-256 or Ed25519.

        Raises: ProofInvalid.
        """

    def nonce_key(self, period: int) -> NonceKey | None: ...

    def keep_nonce_key(self, key: NonceKey) -> None:
        """Keep the key of a period, and forget those of earlier periods except the one before."""

    def forget_nonce_keys(self) -> None: ...


class Certificates(Protocol):
    """X.509 certificates: self-signed ones for our own keys, and those of services."""

    async def create(self, organization: str, name: str, now: datetime, years: int) -> SamlCertificate:
        """Return a new RSA key of 2048 bits and its certificate, signed with SHA-256.

        `organization` and `name` become the O and CN of the subject. The certificate is valid for
        `years` from the second of `now`. It is made in a thread, because it takes long.
        """

    async def read(self, pem: str) -> str:
        """Return a service's certificate in canonical PEM. Its validity does not matter, because the service's admin registered it.

        Raises: SloCertificateInvalid if it is not one X.509 certificate with an RSA key of 2048 to
        8192 bits.
        """

    async def public_jwk(self, pem: str) -> Mapping[str, str]:
        """Return the public key of a certificate that `create` made, as a JWK. Its id is the thumbprint of the certificate."""

    def sign_token(self, certificate: SamlCertificate, claims: Mapping[str, Any]) -> str:
        """Return a JWT with these claims (RS256), signed with the key of a certificate that `create` made."""

    async def facts(self, pem: str) -> CertificateFacts:
        """Return the facts of an identity provider's certificate, which is in PEM, or its base64 alone, as metadata have it.

        Raises: ProviderCertificateInvalid, as `read`.
        """

    async def valid_until(self, pem: str) -> datetime:
        """Return the end of the validity of a certificate that `read` returned, in UTC."""


@dataclass(frozen=True, slots=True)
class SecretContext:
    """The column and row of an encrypted value. It is authenticated with the value, which decrypts in no other place (security L-1)."""

    table: str
    row: str
    column: str


class Vault(Protocol):
    """Encryption with AES-256-GCM (security L-1).

    Each value names the id of its key. Each combination of table and column has its own derived key.
    """

    def seal(self, plaintext: bytes, context: SecretContext) -> bytes:
        """Encrypt a value with the active key."""

    def open(self, sealed: bytes, context: SecretContext) -> bytes:
        """Decrypt a value. Raises: SealBroken if the key is not configured, or the value was changed or belongs to another context."""

    def is_current(self, sealed: bytes) -> bool:
        """Return whether the value was encrypted with the active key."""


class SealBroken(Exception):
    """An encrypted value cannot be decrypted. There is no fallback to plaintext: the operator has to restore the key."""
