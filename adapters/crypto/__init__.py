"""Passwords, one-time codes, passkeys, tokens, certificates and encrypted secrets. Only this package imports cryptographic libraries."""

from adapters.crypto.certificates import X509Certificates
from adapters.crypto.client_assertions import JwtClientAssertions, JwtPipelineTokens, sign_assertion
from adapters.crypto.dpop import JwtDpopProofs
from adapters.crypto.jwk import is_usable_key
from adapters.crypto.one_time_codes import TotpCodes
from adapters.crypto.own_tokens import JwtTokens
from adapters.crypto.passkeys import WebAuthnPasskeys
from adapters.crypto.passwords import Argon2Passwords, verifications_per_second
from adapters.crypto.provider_id_tokens import IdTokenInvalid, IdTokenKeyUnknown, read_id_token, read_logout_token
from adapters.crypto.rsa_signatures import is_signed_by, public_key_of, sign_sha256
from adapters.crypto.vault import AesVault, generate_key, parse_keys

__all__ = [
    "AesVault",
    "Argon2Passwords",
    "IdTokenInvalid",
    "IdTokenKeyUnknown",
    "JwtClientAssertions",
    "JwtDpopProofs",
    "JwtPipelineTokens",
    "JwtTokens",
    "TotpCodes",
    "WebAuthnPasskeys",
    "X509Certificates",
    "generate_key",
    "is_signed_by",
    "is_usable_key",
    "parse_keys",
    "public_key_of",
    "read_id_token",
    "read_logout_token",
    "sign_assertion",
    "sign_sha256",
    "verifications_per_second",
]
