"""Authlib's client for Starlette, which also reads the userinfo endpoint and renews its tokens."""

import os

from authlib.integrations.starlette_client import OAuth, OAuthError
from httpx2 import HTTPStatusError
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.sessions import SessionMiddleware
from starlette.responses import JSONResponse
from starlette.routing import Route

oauth = OAuth()
oauth.register(
    "gatehouse",
    client_id=os.environ["CLIENT_ID"],
    client_secret=os.environ["CLIENT_SECRET"],
    server_metadata_url=os.environ["ISSUER"] + "/.well-known/openid-configuration",
    client_kwargs={"scope": "openid profile email offline_access", "code_challenge_method": "S256"},
    authorize_params={"prompt": "consent"},
)
tokens = {}


async def login(request):
    return await oauth.gatehouse.authorize_redirect(request, request.url_for("callback"))


async def callback(request):
    tokens.update(await oauth.gatehouse.authorize_access_token(request))
    return JSONResponse(tokens["userinfo"])


async def userinfo(request):
    return JSONResponse(await oauth.gatehouse.userinfo(token=tokens))


async def refresh(request):
    answer = await oauth.gatehouse.fetch_access_token(grant_type="refresh_token", refresh_token=tokens["refresh_token"])
    tokens.update(answer)
    return JSONResponse(await oauth.gatehouse.parse_id_token(tokens, nonce=None))


async def refused(request, error):
    return JSONResponse(repr(error), 502)


app = Starlette(
    routes=[Route(f"/{each.__name__}", each) for each in (login, callback, userinfo, refresh)],
    middleware=[Middleware(SessionMiddleware, secret_key="a secret of the tests")],
    exception_handlers={OAuthError: refused, HTTPStatusError: refused},
)
