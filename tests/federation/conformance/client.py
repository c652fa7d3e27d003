"""An application as the suite plays it, with the checks that the suite makes in many modules."""

import re
from base64 import urlsafe_b64encode
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from math import log2
from typing import Any, Final
from urllib.parse import urlencode

import jwt

from core.federation.oauth.model.authorization import ResponseMode
from core.kernel.values import new_secret
from tests.federation.api.relying import AUTHORIZE, TOKEN, RelyingParty, basic
from tests.federation.conformance.person import Outcome, Person
from tests.support.builders import BASE_URL, Answer

CONFIGURATION, USERINFO, JWKS = "/.well-known/openid-configuration", "/auth/userinfo", "/.well-known/jwks.json"
ERROR_PARAMETERS: Final = {"error", "error_description", "error_uri", "state", "iss"}
# Errors for a request with prompt=none (OpenID Connect Core section 3.1.2.6).
NEEDS_USER: Final = {"interaction_required", "login_required", "account_selection_required", "consent_required"}
# The claims that an ID token can have without a scope that gives them.
PROTOCOL_CLAIMS: Final = {"iss", "sub", "aud", "exp", "iat", "auth_time", "nonce", "acr", "amr", "azp", "at_hash", "sid", "nbf", "jti"}
# The claims for the standard scopes (OpenID Connect Core section 5.4).
PROFILE_CLAIMS: Final = frozenset(
    {
        *("name", "family_name", "given_name", "middle_name", "nickname", "preferred_username", "profile", "picture"),
        *("website", "gender", "birthdate", "zoneinfo", "locale", "updated_at"),
    }
)
EMAIL_CLAIMS: Final = frozenset({"email", "email_verified"})
_SKEW: Final = timedelta(minutes=5)
_YEAR: Final = 31536000  # seconds
_DESCRIPTION: Final = re.compile(r"[\x20-\x21\x23-\x5B\x5D-\x7E]*")  # RFC 6749 section 4.1.2.1, without line breaks


@dataclass(frozen=True, slots=True)
class Grant:
    """The tokens after a sign-in. `claims` are the ID token's claims."""

    outcome: Outcome
    code: str
    tokens: dict[str, Any]
    claims: dict[str, Any]


@dataclass(slots=True)
class Client:
    """An application that authenticates with client_secret_basic, and the person who signs in to it."""

    party: RelyingParty
    person: Person
    mode: ResponseMode
    scope: str = "openid"
    reverses_parameters: bool = False
    state: str = ""  # in the last request
    nonce: str | None = None  # in the last request

    @property
    def id(self) -> str:
        return str(self.party.client_id)

    def parameters(self, **changes: str | None) -> dict[str, str]:
        """Return a new request's parameters, in the suite's order. Omit parameters with the value None."""
        fields: dict[str, str | None] = {
            "client_id": self.id,
            "redirect_uri": self.party.redirect_uri,
            "scope": self.scope,
            "state": new_secret(),
            "nonce": new_secret(),
            "response_type": "code",
            "response_mode": None if self.mode is ResponseMode.QUERY else self.mode.value,
            **changes,
        }
        sent = {name: value for name, value in fields.items() if value is not None}
        if self.reverses_parameters:
            sent = dict(reversed(sent.items()))
        self.state, self.nonce = sent.get("state", ""), sent.get("nonce")
        return sent

    async def open(self, **changes: str | None) -> Outcome:
        return await self.person.open(f"{AUTHORIZE}?{urlencode(self.parameters(**changes))}")

    # The authorization endpoint's answer

    def parameters_of(self, outcome: Outcome) -> dict[str, str]:
        """Return the answer's parameters, which arrive in the requested way and name the state and the issuer."""
        assert outcome.page is None, outcome.page
        assert outcome.address == self.party.redirect_uri
        if self.mode is ResponseMode.FORM_POST:
            assert (outcome.method, outcome.query) == ("POST", {})
            answer = outcome.form
        else:
            assert (outcome.method, outcome.form) == ("GET", None)
            answer = outcome.query
        assert answer is not None
        assert (answer.get("state"), answer["iss"]) == (self.state, BASE_URL)
        return answer

    def code_of(self, outcome: Outcome) -> str:
        answer = self.parameters_of(outcome)
        assert answer.keys() == {"code", "state", "iss"}
        return answer["code"]

    def error_of(self, outcome: Outcome) -> str:
        """Return the error, after the suite's checks for errors from the authorization endpoint."""
        answer = self.parameters_of(outcome)
        assert answer.keys() <= ERROR_PARAMETERS
        assert _DESCRIPTION.fullmatch(answer["error_description"])
        return answer["error"]

    async def is_signed_out(self) -> bool:
        """Return whether a request with prompt=none gets an error that says that the user is needed."""
        outcome = await self.open(prompt="none")
        assert outcome.questions == 0
        return "error" in self.parameters_of(outcome) and self.error_of(outcome) in NEEDS_USER

    # Tokens

    async def sign_in(self, **changes: str | None) -> Grant:
        """Send a request, exchange its code, check the ID token, and call the userinfo endpoint."""
        return await self.complete(await self.open(**changes))

    async def complete(self, outcome: Outcome) -> Grant:
        code = self.code_of(outcome)
        tokens = read_tokens(await self.exchange(code))
        grant = Grant(outcome, code, tokens, await self.read_id_token(tokens))
        assert (await self.userinfo(tokens))["sub"] == grant.claims["sub"]
        return grant

    async def exchange(self, code: str, **fields: str) -> Answer:
        return await self.token_request(grant_type="authorization_code", code=code, redirect_uri=self.party.redirect_uri, **fields)

    async def token_request(self, **fields: str) -> Answer:
        assert self.party.secret is not None
        return await self.party.post(TOKEN, basic(self.id, self.party.secret), **fields)

    async def read_id_token(self, tokens: dict[str, Any]) -> dict[str, Any]:
        """Return the ID token's claims, after the checks in OpenID Connect Core section 3.1.3.7."""
        claims = await self.verify(tokens["id_token"])
        now = self.party.tenant.ports.clock.now()
        assert (claims["iss"], claims["aud"], claims.get("nonce")) == (BASE_URL, self.id, self.nonce)
        assert claims.get("azp", self.id) == self.id
        assert (now - _SKEW).timestamp() <= claims["iat"] <= (now + _SKEW).timestamp() < claims["exp"] < now.timestamp() + _YEAR
        assert claims["auth_time"] <= now.timestamp()
        assert 0 < len(claims["sub"].encode("ascii")) <= 255
        assert claims["acr"]
        left_half = sha256(tokens["access_token"].encode("ascii")).digest()[:16]
        assert claims["at_hash"] == urlsafe_b64encode(left_half).decode().rstrip("=")
        return claims

    async def verify(self, token: str) -> dict[str, Any]:
        """Return the claims in a token that is signed with RS256 by a published key. Checks no times: the clock is not the real one."""
        header = jwt.get_unverified_header(token)
        assert header["alg"] == "RS256"
        keys = (await self.party.api.get(JWKS)).json["keys"]
        assert len({key["kid"] for key in keys}) == len(keys)
        [key] = [key for key in keys if key["kid"] == header["kid"]]
        assert (key["kty"], key["use"], key["alg"]) == ("RSA", "sig", "RS256")
        options: Any = {"verify_exp": False, "verify_iat": False, "verify_aud": False}
        claims: dict[str, Any] = jwt.decode(token, jwt.PyJWK(key), algorithms=["RS256"], options=options)
        return claims

    async def userinfo(self, tokens: dict[str, Any]) -> dict[str, Any]:
        return read_userinfo(await self.party.api.get(USERINFO, token=tokens["access_token"]))

    async def configuration(self) -> dict[str, Any]:
        answer = await self.party.api.get(CONFIGURATION)
        assert (answer.status, answer.headers["Content-Type"]) == (200, "application/json")
        configuration: dict[str, Any] = answer.json
        return configuration


def read_tokens(answer: Answer) -> dict[str, Any]:
    """Return the tokens in a response from the token endpoint (RFC 6749 section 5.1)."""
    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/json"), answer.text
    assert (answer.headers["Cache-Control"], answer.headers["Pragma"]) == ("no-store", "no-cache")
    tokens: dict[str, Any] = answer.json
    assert tokens["token_type"] == "Bearer"
    assert 0 < tokens["expires_in"] <= _YEAR
    return tokens


def read_token_error(answer: Answer) -> str:
    """Return the error in a response from the token endpoint (RFC 6749 section 5.2)."""
    assert (answer.status, answer.headers["Content-Type"]) == (400, "application/json"), answer.text
    assert _DESCRIPTION.fullmatch(answer.json["error_description"])
    error: str = answer.json["error"]
    return error


def read_userinfo(answer: Answer) -> dict[str, Any]:
    """Return the claims in a userinfo response, after checking their types (OpenID Connect Core section 5.1)."""
    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/json"), answer.text
    claims: dict[str, Any] = answer.json
    assert claims["sub"]
    types: dict[str, type] = {"updated_at": int, "email_verified": bool}
    for name in claims.keys() & (PROFILE_CLAIMS | EMAIL_CLAIMS):
        assert type(claims[name]) is types.get(name, str), name
    assert not claims.keys() & {"_claim_names", "_claim_sources"}
    return claims


def entropy(text: str) -> float:
    """Return a text's Shannon entropy in bits, to estimate how hard it is to guess."""
    return -sum(count * log2(count / len(text)) for count in Counter(text).values())
