"""The logs that contain personal data, and the sizes of batches."""

from enum import StrEnum

# The number of entries per log that the anonymizing transaction redacts. Most users have fewer. The
# rest follows in batches.
FIRST = 1000
BATCH = 5000  # entries


class PersonalLog(StrEnum):
    """A group of log entries that contain personal data of a user."""

    LOGINS = "logins"
    MFA = "mfa"
    MFA_DONE = "mfa_done"  # actions by the user on others
    MFA_IMPERSONATED = "mfa_impersonated"  # actions by the user while impersonating
    AUDIT_DONE = "audit_done"
    AUDIT_IMPERSONATED = "audit_impersonated"
    AUDIT_LINKS = "audit_links"  # actions on the account by the link in an email, without a sign-in
    PRIVACY_DONE = "privacy_done"
