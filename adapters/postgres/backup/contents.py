"""The data that a backup leaves out, because a restore must not bring it back (docs/adr/0022).

After a restore, sign-ins and links from before would be valid again, also if they ended after the backup. So backups
leave sign-ins and links out, and users sign in again.
"""

from typing import Final

# Unlogged tables are left out as well.
TABLES_LEFT_OUT: Final = frozenset(
    {
        # sessions, with their tokens and their state
        "sessions",
        "refresh_tokens",
        "policy_passes",
        "break_glass_uses",
        "impersonated_organizations",
        "personal_tokens",
        "saml_sessions",
        "logout_notices",
        "connection_logins",
        # unfinished sign-ins and sign-outs
        "authorization_codes",
        "device_codes",
        "kept_forms",
        "sent_forms",
        "sign_in_flows",
        "reauthentications",
        "pushed_requests",
        "saml_logout_requests",
        "saml_logouts",
        # used once, within a minute; its partitions are unlogged
        "dpop_proofs",
        # what the readers of set-up links prepared; an admin creates a new link
        "setup_links",
        "setup_proposals",
        # links in emails; invitations and undo links have their own tables, and stay valid
        "one_time_tokens",
        "account_recoveries",
        # used up within minutes
        "used_passkey_challenges",
        "used_provider_messages",
        # leases that ended processes had
        "leases",
        # The next start creates a key. A key that was retired after the backup must not sign again.
        "signing_keys",
        # The backup's description lists the migrations.
        "schema_migrations",
    }
)

COLUMNS_LEFT_OUT: Final = {
    "devices": frozenset({"trust_hash", "trust_expires_at"}),  # the user proves the second factor again
}
