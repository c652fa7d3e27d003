"""The acts that show no address to organizations, as SQL (security #addresses-of-platform-owners)."""

from typing import Final

# Join the account `w` from the attempt `l` if the user was a platform owner then or later.
# A statement reads the array once. Without the array, the statement would search the audit log for every attempt.
JOIN_PLATFORM_OWNER: Final = """
    left join users w on w.id = l.user_id and w.id = any(array(
        select id from users where is_platform_owner
        union all
        select target_id::uuid from audit_log where org_id is null and action = 'platform.owner.demoted'))
      and (w.is_platform_owner or exists (
        select from audit_log d where d.org_id is null and d.target_type = 'user' and d.target_id = w.id::text
          and d.action = 'platform.owner.demoted' and d.created_at >= l.created_at))"""
