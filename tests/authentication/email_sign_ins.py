"""Sign-in by email: the setting, requests over the API, and the emailed code."""

import re
from typing import Any

from quart_trio import QuartTrio

from core.kernel.policy import Policy
from ports.outside import EmailMessage
from tests.support.builders import EMAIL, Answer, Api
from tests.support.direct import change_ports

REQUEST, VERIFY = "/api/auth/email-sign-in", "/api/auth/email-sign-in/verify"
REQUEST_PAGE, LINK_PAGE = "/app/sign-in/email", "/auth/email-sign-in"


def switch_on(app: QuartTrio, **changes: Any) -> None:
    """Switch sign-in by email on for the platform."""
    change_ports(app, policy=Policy(email_sign_in=True, **changes))


def code_in(message: EmailMessage) -> str:
    match = re.search(r"^\d{6}$", message.text, re.MULTILINE)
    assert match, message.text
    return match[0]


def wrong(code: str) -> str:
    return f"{(int(code) + 1) % 10**6:06}"


async def request_code(api: Api, email: str = EMAIL, **target: str) -> str:
    """Request an email over the API, and return the request's token."""
    answer = await api.post(REQUEST, {"email": email, **target})
    assert answer.status == 200, answer.text
    return str(answer.json["request_token"])


async def verify(api: Api, token: str, code: str, **fields: str) -> Answer:
    return await api.post(VERIFY, {"request_token": token, "code": code, **fields})
