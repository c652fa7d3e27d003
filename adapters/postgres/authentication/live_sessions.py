"""SQL conditions for live sessions.

The aliases are `s` for the session, `u` for its user, `i` for its impersonator, and `p` for the session in which the
impersonator started it. `%(now)s` is the time. A statement that needs only some conditions says why.
"""

from typing import Final

from adapters.postgres.accounts.accounts import ACCOUNT_IS_USABLE

SESSION_NOT_ENDED: Final = "s.ended_at is null and s.expires_at > %(now)s"
IMPERSONATOR_JOIN: Final = """
    left join (users i join sessions p on p.user_id = i.id) on p.id = s.impersonator_session_id and i.id = s.impersonator_id"""
# An impersonation lives only while the impersonator is a platform owner and the session in which
# they started it is live (security I-3). This condition needs IMPERSONATOR_JOIN.
MAY_IMPERSONATE: Final = """
    (s.impersonator_id is null
     or i.is_platform_owner and i.deactivated_at is null and i.anonymized_at is null and not u.is_platform_owner
        and p.ended_at is null and p.expires_at > %(now)s)"""
SESSION_IS_LIVE: Final = f"{SESSION_NOT_ENDED} and {ACCOUNT_IS_USABLE} and {MAY_IMPERSONATE}"
