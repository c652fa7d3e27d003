"""Storage for the facts that decide whether a subject has a permission at an application."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.applications.model.api_keys import ApiKeyRecord
from core.applications.model.evaluation import Question, SubjectFacts
from core.kernel.callers import ServiceContext


class EvaluationsRead(Protocol):
    """Read access to the facts about questions.

    Every method runs a single statement, so that all its facts are from the same moment.

    The facts have the questions' order. The credentials and the service are found even without questions.
    """

    async def by_key(self, key_hash: bytes, questions: Sequence[Question], now: datetime) -> tuple[ApiKeyRecord, list[SubjectFacts]] | None:
        """Return the API key, and the facts for its service, or None if the key is unknown or expired."""

    async def by_service(self, org_id: UUID, service_id: UUID, questions: Sequence[Question], now: datetime) -> list[SubjectFacts]:
        """Return the facts for a service."""

    async def by_credential(
        self, client_id: UUID, credential_id: UUID, questions: Sequence[Question], now: datetime
    ) -> tuple[ServiceContext, list[SubjectFacts]] | None:
        """Return the service with this client id, and the facts for it, or None if this credential's tokens have ended."""
