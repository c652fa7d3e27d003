"""An organization's mail server and SIEM, which have the same routes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tests.support.builders import Answer
from tests.support.siem import TOKEN
from tests.support.tenants import Tenant

PASSWORD: Final = "s3cr3t-pa55word"


@dataclass(frozen=True, slots=True)
class Integration:
    """An integration: the last part of its path, and a full request body."""

    name: str
    full: Mapping[str, Any]

    async def put(self, acme: Tenant, body: Any, by: str = "owner") -> Answer:
        return await acme.api.post(f"{acme.path}/{self.name}", body, token=acme.token(by))

    async def get(self, acme: Tenant, by: str = "owner") -> Answer:
        return await acme.api.get(f"{acme.path}/{self.name}", token=acme.token(by))

    async def remove(self, acme: Tenant, by: str = "owner") -> Answer:
        return await acme.api.delete(f"{acme.path}/{self.name}", token=acme.token(by))

    async def send_test(self, acme: Tenant, by: str = "owner") -> Answer:
        return await acme.api.post(f"{acme.path}/{self.name}/test", token=acme.token(by))


SIEM: Final = Integration(
    "siem",
    {
        "provider": "splunk_hec",
        "endpoint_url": "https://siem.acme.example:8088/services/collector/event",
        "token": TOKEN,
        "enabled": True,
    },
)
SMTP: Final = Integration(
    "smtp",
    {
        "host": "mail.acme.example",
        "port": 465,
        "username": "robot@acme.example",
        "password": PASSWORD,
        "from_email": "post@acme.example",
        "from_name": "Acme Post",
        "tls": True,
    },
)
