"""An OpenID provider with Authlib, in memory. Its only user is signed in, and agrees."""

import json
import os
import time
from typing import Any, Final
from urllib.parse import urlsplit

from authlib.integrations.flask_oauth2 import AuthorizationServer, ResourceProtector
from authlib.oauth2.rfc6749 import ClientMixin, TokenMixin, grants
from authlib.oauth2.rfc6749.requests import OAuth2Request
from authlib.oauth2.rfc6750 import BearerTokenValidator
from authlib.oauth2.rfc7636 import CodeChallenge
from authlib.oidc.core import UserInfo
from authlib.oidc.core.grants import OpenIDCode
from flask import Flask, Response, jsonify
from joserfc import jwk

ADDRESS: Final = os.environ["ADDRESS"]
CLIENT: Final[dict[str, Any]] = json.loads(os.environ["CLIENT"])
KEY: Final = jwk.RSAKey.generate_key(2048, {"use": "sig", "alg": "RS256"}, auto_kid=True)
USER: Final = {"sub": "ada-17", "email": "judy@acme.example", "email_verified": True, "name": "Judy", "groups": ["staff"]}


class Client(ClientMixin):
    """Gatehouse."""

    client_id = CLIENT["client_id"]

    def get_client_id(self) -> str:
        return self.client_id

    def get_default_redirect_uri(self) -> str:
        return str(CLIENT["redirect_uris"][0])

    def get_allowed_scope(self, scope: str) -> str:
        return scope

    def check_redirect_uri(self, redirect_uri: str) -> bool:
        return redirect_uri in CLIENT["redirect_uris"]

    def check_client_secret(self, client_secret: str) -> bool:
        return bool(client_secret == CLIENT["client_secret"])

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        return method == "client_secret_post"

    def check_response_type(self, response_type: str) -> bool:
        return response_type == "code"

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type == "authorization_code"


class Code:
    """An authorization code."""

    auth_time = int(time.time())

    def __init__(self, code: str, request: OAuth2Request) -> None:
        self.code, self.request, self.data = code, request, dict(request.payload.data)
        self.code_challenge, self.code_challenge_method = self.data.get("code_challenge"), self.data.get("code_challenge_method")

    def get_redirect_uri(self) -> str | None:
        return self.data.get("redirect_uri")

    def get_scope(self) -> str:
        return str(self.data["scope"])

    def get_nonce(self) -> str | None:
        return self.data.get("nonce")

    def get_auth_time(self) -> int:
        return self.auth_time

    def get_acr(self) -> None:
        return None

    def get_amr(self) -> list[str]:
        return ["pwd", "mfa"]


class Token(TokenMixin):
    """An access token."""

    def __init__(self, scope: str) -> None:
        self.scope = scope

    def check_client(self, client: Client) -> bool:
        return True

    def get_scope(self) -> str:
        return self.scope

    def is_expired(self) -> bool:
        return False

    def is_revoked(self) -> bool:
        return False


codes: dict[str, Code] = {}
tokens: dict[str, Token] = {}


class CodeGrant(grants.AuthorizationCodeGrant):  # type: ignore[misc]
    TOKEN_ENDPOINT_AUTH_METHODS = ("client_secret_post",)

    def save_authorization_code(self, code: str, request: OAuth2Request) -> None:
        codes[code] = Code(code, request)

    def query_authorization_code(self, code: str, client: Client) -> Code | None:
        return codes.get(code)

    def delete_authorization_code(self, authorization_code: Code) -> None:
        del codes[authorization_code.code]

    def authenticate_user(self, authorization_code: Code) -> dict[str, Any]:
        return USER


class IdTokens(OpenIDCode):  # type: ignore[misc]
    def exists_nonce(self, nonce: str, request: OAuth2Request) -> bool:
        return False

    def get_jwt_config(self, grant: object, client: Client) -> dict[str, Any]:
        return {"key": KEY.as_dict(private=True), "alg": "RS256", "iss": ADDRESS, "exp": 600}

    def generate_user_info(self, user: dict[str, Any], scope: str) -> UserInfo:
        return UserInfo(sub=user["sub"])  # all other claims are at the userinfo endpoint


class Tokens(BearerTokenValidator):  # type: ignore[misc]
    def authenticate_token(self, token_string: str) -> Token | None:
        return tokens.get(token_string)


def save_token(token: dict[str, Any], request: OAuth2Request) -> None:
    tokens[token["access_token"]] = Token(token["scope"])


app = Flask(__name__)
server = AuthorizationServer(app, query_client=lambda id_: Client() if id_ == Client.client_id else None, save_token=save_token)
server.register_grant(CodeGrant, [IdTokens(require_nonce=True), CodeChallenge(required=True)])
protect = ResourceProtector()
protect.register_token_validator(Tokens())


@app.get("/.well-known/openid-configuration")
def discover() -> Response:
    endpoints = {f"{name}_endpoint": f"{ADDRESS}/{name}" for name in ("authorization", "token", "userinfo")}
    lists = {"response_types_supported": ["code"], "subject_types_supported": ["public"]}
    algorithms = {"id_token_signing_alg_values_supported": ["RS256"], "token_endpoint_auth_methods_supported": ["client_secret_post"]}
    return jsonify({"issuer": ADDRESS, **endpoints, "jwks_uri": f"{ADDRESS}/keys", **lists, **algorithms})


@app.get("/keys")
def keys() -> Response:
    return jsonify({"keys": [KEY.as_dict(private=False)]})


@app.get("/authorization")
def authorize() -> Any:
    return server.create_authorization_response(grant_user=USER, grant=server.get_consent_grant(end_user=USER))


@app.post("/token")
def issue_token() -> Any:
    return server.create_token_response()


@app.get("/userinfo")
@protect("openid")
def userinfo() -> Response:
    return jsonify(USER)


app.run("127.0.0.1", urlsplit(ADDRESS).port)
