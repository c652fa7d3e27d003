"""Calls that answer invitations, and the errors they get."""

import hashlib
from datetime import timedelta
from typing import Any

from tests.support.builders import Answer, Api

WEEK = timedelta(days=7)


async def accept(api: Api, secret: str, **options: Any) -> Answer:
    return await api.post("/api/invitations/accept", {"token": secret}, **options)


async def decline(api: Api, secret: str, **options: Any) -> Answer:
    return await api.post("/api/invitations/decline", {"token": secret}, **options)


def sha256(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


EXPIRED, FULL = (400, "INVITATION_EXPIRED"), (400, "TEAM_LIMIT_EXCEEDED")
