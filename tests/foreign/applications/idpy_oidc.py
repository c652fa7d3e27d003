"""idpy-oidc: its handler for relying parties, with the settings for discovery, the code flow and PKCE."""

import os

from flask import Flask, jsonify, redirect, request, session
from idpyoidc.client.rp_handler import RPHandler

ISSUER, ADDRESS = os.environ["ISSUER"], os.environ["ADDRESS"]
CLIENT = {
    "issuer": ISSUER,
    "client_id": os.environ["CLIENT_ID"],
    "client_secret": os.environ["CLIENT_SECRET"],
    "client_type": "oidc",
    "redirect_uris": [f"{ADDRESS}/callback"],
    "response_types_supported": ["code"],
    "scopes_supported": ["openid", "profile", "email", "offline_access"],
    "id_token_signing_alg_values_supported": ["RS256"],
    "client_authn_methods": ["client_secret_basic", "bearer_header"],
    "token_endpoint_auth_methods_supported": ["client_secret_basic"],
    "add_ons": {
        "pkce": {
            "function": "idpyoidc.client.oauth2.add_on.pkce.add_support",
            "kwargs": {"code_challenge_length": 64, "code_challenge_method": "S256"},
        }
    },
}

app = Flask(__name__)
app.secret_key = "a secret of the tests"
handler = RPHandler(ADDRESS, client_configs={ISSUER: CLIENT})


@app.get("/login")
def login():
    return redirect(handler.begin(ISSUER, req_args={"prompt": "consent", "scope": CLIENT["scopes_supported"]}))


@app.get("/callback")
def callback():
    result = handler.finalize(ISSUER, request.args.to_dict())
    if "error" in result:
        return jsonify(str(result)), 502
    session["state"] = result["state"]
    return jsonify(result["userinfo"].to_dict())


@app.get("/userinfo")
def userinfo():
    answer = handler.get_user_info(session["state"])
    return (jsonify(answer.to_dict()), 502) if "error" in answer else jsonify(answer.to_dict())


@app.get("/refresh")
def refresh():
    tokens = handler.refresh_access_token(session["state"])
    return jsonify(tokens["__verified_id_token"].to_dict())


@app.errorhandler(Exception)
def refused(error):
    return jsonify(repr(error)), 502
