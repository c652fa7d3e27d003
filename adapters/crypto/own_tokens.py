"""ID tokens, logout tokens and pre-auth tokens. With the access tokens, these are all token kinds."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from adapters.crypto import access_tokens, signed_tokens
from core.authentication.model import openid
from core.authentication.model.tokens import UnknownKey
from core.kernel import errors, proofs
from core.kernel.claims import PreAuthClaims

CLAIMS_TTL = timedelta(minutes=5)
PRE_AUTH_PATH = "/api/auth/mfa/verify"  # the only path that accepts pre-auth tokens, and so their audience (security J-2, J-8)


class JwtTokens(access_tokens.AccessTokens):
    """Implements `ports.crypto.Tokens` with PyJWT (security J-1, J-2, J-3, J-6, J-7, J-8)."""

    def sign_id_token(self, token: openid.IdToken) -> str:
        """Return a signed ID token. Raises: LookupError if no key can sign."""
        return self._sign(self.id_token_claims(token), signed_tokens.ID_TOKEN, token.issued_at)

    def id_token_claims(self, token: openid.IdToken) -> dict[str, Any]:
        payload: dict[str, Any] = {
            **token.claims,
            "iss": self._base_url,
            "sub": str(token.user_id),
            "aud": token.client_id,
            "azp": token.client_id,
            "iat": int(token.issued_at.timestamp()),
            "exp": int(token.expires_at.timestamp()),
            "auth_time": int(proofs.proved_at(token.proofs).timestamp()),
            "acr": token.acr,
            "sid": str(token.session_id),
        }
        if token.access_token is not None:
            payload["at_hash"] = openid.at_hash(token.access_token)
        if methods := proofs.amr_of(token.proofs):
            payload["amr"] = methods
        if token.nonce is not None:
            payload["nonce"] = token.nonce
        if token.session_expiry is not None:
            payload["session_expiry"] = int(token.session_expiry.timestamp())
        return payload

    def sign_claims(self, claims: Mapping[str, Any], client_id: str, now: datetime) -> str:
        ends_at = now + CLAIMS_TTL
        times = {"iat": int(now.timestamp()), "exp": int(ends_at.timestamp())}
        return self._sign({**claims, "iss": self._base_url, "aud": client_id, **times}, signed_tokens.CLAIMS, now)

    def sign_logout_token(self, token: openid.LogoutToken) -> str:
        """Return a signed logout token.

        Without a nonce, no client takes a logout token for an ID token. Raises: LookupError if no key can sign.
        """
        payload = {
            "iss": self._base_url,
            "sub": str(token.user_id),
            "aud": token.client_id,
            "iat": int(token.issued_at.timestamp()),
            "exp": int(token.expires_at.timestamp()),
            "jti": str(token.id),
            "sid": str(token.session_id),
            "events": {openid.LOGOUT_EVENT: {}},
        }
        return self._sign(payload, signed_tokens.LOGOUT_TOKEN, token.issued_at)

    def sign_pre_auth(self, claims: PreAuthClaims) -> str:
        """Return a signed pre-auth token. Raises: LookupError if no key can sign."""
        payload = {
            "iss": self._base_url,
            "aud": self._base_url + PRE_AUTH_PATH,
            "sub": str(claims.user_id),
            "sid": str(claims.id),
            "jti": str(claims.id),
            "iat": int(claims.issued_at.timestamp()),
            "exp": int(claims.expires_at.timestamp()),
            "token_use": "preauth",
        }
        if claims.saml_state is not None:
            payload["saml_state"] = claims.saml_state
        return self._sign(payload, signed_tokens.PRE_AUTH_TOKEN, claims.issued_at)

    def read_id_token_hint(self, token: str) -> openid.IdTokenHint | None:
        try:
            payload, _ = self._verify(token, signed_tokens.ID_TOKEN, signed_tokens.NEVER)  # also if its key has retired
            if payload.get("iss") != self._base_url or "token_use" in payload:
                return None
            return openid.IdTokenHint(
                str(payload["aud"]), access_tokens.to_uuid(payload.get("sub")), access_tokens.to_uuid(payload.get("sid"))
            )
        except (errors.TokenInvalid, errors.WrongToken, UnknownKey, KeyError):
            return None

    def read_pre_auth(self, token: str, now: datetime) -> PreAuthClaims:
        payload, _ = self._verify(token, signed_tokens.PRE_AUTH_TOKEN, now)
        get = payload.get
        if get("iss") != self._base_url or get("aud") != self._base_url + PRE_AUTH_PATH or get("token_use") != "preauth":
            raise errors.TokenInvalid
        claims = PreAuthClaims(
            id=access_tokens.to_uuid(get("jti")),
            user_id=access_tokens.to_uuid(get("sub")),
            issued_at=access_tokens.to_time(get("iat")),
            expires_at=access_tokens.to_time(get("exp")),
            saml_state=None if get("saml_state") is None else str(get("saml_state")),
        )
        if get("sid") != get("jti") or claims.issued_at > now + self._leeway:
            raise errors.TokenInvalid
        if claims.expires_at <= now:
            raise errors.PreAuthExpired
        return claims
