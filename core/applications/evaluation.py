"""Answers to the question whether a subject may do something (AuthZEN Authorization API 1.0).

An application asks about its own permissions only. Nothing is remembered between two requests, so a role that was
taken away counts in no later answer.
"""

from datetime import datetime
from uuid import UUID

from core.applications import api_keys
from core.applications.model import evaluation
from core.kernel import callers, errors
from core.kernel.causes import Caller
from core.kernel.roles import Permission
from ports import Ports
from ports.storage import Reading


async def answer_key(
    ports: Ports, caller: Caller, key: str, questions: evaluation.Questions
) -> tuple[callers.ServiceKey, list[evaluation.AccessDecision]]:
    """Return the caller with this API key, and the decisions about its service's permissions.

    A single statement reads the key, its service and the facts.
    """
    now, key_hash = ports.clock.now(), api_keys.hash_of(key)
    async with ports.storage.reading() as read:
        record, facts = await read.evaluations.by_key(key_hash, questions.valid, now) or (None, [])
    program = await api_keys.accept(ports, caller, record, key_hash, Permission.EVALUATE_ACCESS)
    return program, evaluation.decide_all(questions, facts)


async def answer_service(ports: Ports, service: callers.ServiceContext, questions: evaluation.Questions) -> list[evaluation.AccessDecision]:
    """Return the decisions about the permissions that an authenticated service declares."""
    _require_active(service)
    async with ports.storage.reading() as read:
        return evaluation.decide_all(
            questions, await read.evaluations.by_service(service.org_id, service.id, questions.valid, ports.clock.now())
        )


async def answer_credential(
    read: Reading, client_id: UUID, credential_id: UUID, questions: evaluation.Questions, now: datetime
) -> tuple[callers.ServiceContext, list[evaluation.AccessDecision]]:
    """Return the service that got a token for itself, and the decisions about its permissions.

    Raises: ProgramStopped if the token's credential has ended; OrganizationNotActive.
    """
    service, facts = await read.evaluations.by_credential(client_id, credential_id, questions.valid, now) or errors.refuse(
        errors.ProgramStopped
    )
    _require_active(service)
    return service, evaluation.decide_all(questions, facts)


def _require_active(service: callers.ServiceContext) -> None:
    if service.status is not callers.OrganizationStatus.ACTIVE:
        raise errors.OrganizationNotActive
