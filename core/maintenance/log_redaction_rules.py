"""Entities, refusals and pure rules of `core.maintenance.log_redaction`."""

from __future__ import annotations

from enum import StrEnum

FIRST = 1000  # of each log, in the transaction that anonymizes, which for most people is all; the rest comes after it
BATCH = 5000


class Log(StrEnum):
    """What of which log is somebody's."""

    LOGINS = "logins"
    MFA = "mfa"
    MFA_DONE = "mfa_done"  # by them, to others
    MFA_IMPERSONATED = "mfa_impersonated"  # by them, as somebody else
    AUDIT_DONE = "audit_done"
    AUDIT_IMPERSONATED = "audit_impersonated"
    AUDIT_LINKS = "audit_links"  # to their account by the link of a mail, without signing in
    PRIVACY_DONE = "privacy_done"
