"""A refusal's status and code, and the most common refusals."""

from tests.support.builders import Answer

BAD, UNAUTHORIZED, MISSING = (400, "BAD_REQUEST"), (401, "UNAUTHORIZED"), (404, "NOT_FOUND")
FORBIDDEN, NOT_ACTIVE = (403, "FORBIDDEN"), (403, "ORGANIZATION_NOT_ACTIVE")


def refused(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.code
