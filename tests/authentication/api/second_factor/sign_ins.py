"""Sign-ins by a user with a second factor."""

from typing import Any

from tests.support.builders import EMAIL, PASSWORD, Answer, Api


async def start_login(api: Api, **more: Any) -> str:
    """Return the pre-auth token from a login with the right password."""
    answer = await api.post("/api/auth/login", {"email": EMAIL, "password": PASSWORD, **more})
    assert (answer.status, answer.json.get("mfa_required")) == (200, True), answer.text
    return str(answer.json["access_token"])


async def verify(api: Api, token: str, code: str, **more: Any) -> Answer:
    return await api.post("/api/auth/mfa/verify", {"code": code, **more}, token=token)
