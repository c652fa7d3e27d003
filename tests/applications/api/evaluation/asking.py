"""Helpers: an application's questions."""

from base64 import b64encode
from dataclasses import dataclass
from typing import Any, Final

from core.applications.model.evaluation import EVALUATION_PATH, EVALUATIONS_PATH
from tests.applications.api.authorization.store import Store
from tests.support.builders import Answer, Api

RESOURCE: Final = {"type": "document", "id": "q3-report"}
READ: Final = "documents:read"
WRITE: Final = "documents:write"


def question(subject: object, permission: str = READ, *, of_type: str = "user", **further: Any) -> dict[str, Any]:
    """Return the body for a question about a subject."""
    return {"subject": {"type": of_type, "id": str(subject)}, "action": {"name": permission}, "resource": RESOURCE, **further}


def basic(client_id: object, secret: str = "a client secret") -> dict[str, str]:
    """Return the header for a client that authenticates with its secret."""
    return {"Authorization": f"Basic {b64encode(f'{client_id}:{secret}'.encode()).decode()}"}


def reason_of(answer: Answer) -> Any:
    """Return a negative decision's code, or a positive decision's role."""
    assert answer.status == 200, answer.text
    reason = answer.json["context"]["reason"]
    assert answer.json["decision"] == ("role" in reason)
    return reason.get("role") or reason["code"]


@dataclass(slots=True)
class Asking:
    """A service with permissions and roles, and its API key."""

    store: Store
    key: str

    @property
    def api(self) -> Api:
        return self.store.tenant.api

    async def ask(self, subject: object, permission: str = READ, **further: Any) -> Answer:
        """Ask a question with the API key."""
        return await self.api.post(EVALUATION_PATH, question(subject, permission, **further), headers={"X-Api-Key": self.key})

    async def ask_all(self, body: Any) -> Answer:
        """Send this body to the endpoint for several questions."""
        return await self.api.post(EVALUATIONS_PATH, body, headers={"X-Api-Key": self.key})

    async def reason(self, subject: object, permission: str = READ) -> Any:
        """Return a negative decision's code, or a positive decision's role."""
        return reason_of(await self.ask(subject, permission))
