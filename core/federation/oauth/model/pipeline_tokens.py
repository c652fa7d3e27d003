"""The rules of tokens that pipelines present as client assertions (RFC 7521 section 4.2, OpenID Connect Core section 3.1.3.7).

The provider of the pipeline issues a token about a job, so its issuer and subject are not the client. The
pipeline may present it several times until it expires, because it gets one token for all steps of a job.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from core.federation.oauth.model.clients import LEEWAY, ClientAssertionInvalid
from core.kernel.values import read_time
from core.programs.model.credentials import PipelineTrust

# GitHub's tokens live 5 minutes. Those of GitLab live as long as the longest job.
MAX_LIFETIME: Final = timedelta(hours=24)


class PipelineTokenRefused(ClientAssertionInvalid):
    """The pipeline's token is not accepted. Check its issuer, audience and subject against the credential of the service account."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the pipeline's token {reason}")


def check_times(claims: Mapping[str, Any], now: datetime) -> None:
    """Check that a token is valid now. Raises: PipelineTokenRefused."""
    expires_at, issued_at = read_time(claims.get("exp")), read_time(claims.get("iat"))
    if expires_at is None or issued_at is None:
        raise PipelineTokenRefused("has no exp or no iat")
    if expires_at + LEEWAY <= now:
        raise PipelineTokenRefused("has expired")
    if expires_at > issued_at + MAX_LIFETIME:
        raise PipelineTokenRefused("is valid for longer than 24 hours")
    for name in ("iat", "nbf"):
        starts_at = read_time(claims[name]) if name in claims else now
        if starts_at is None or starts_at > now + LEEWAY:
            raise PipelineTokenRefused("has an iat or nbf that is not a time, or is in the future")


def is_trusted(claims: Mapping[str, Any], trust: PipelineTrust) -> bool:
    """Return whether a token with a signature of the trust's issuer belongs to a pipeline that is trusted.

    A token with several audiences is not trusted, because another server among them could present it here.
    """
    subject, audience = claims.get("sub"), claims.get("aud")
    audiences = [audience] if isinstance(audience, str) else audience
    return (
        claims.get("iss") == trust.issuer and audiences == [trust.audience] and isinstance(subject, str) and trust.accepts_subject(subject)
    )
