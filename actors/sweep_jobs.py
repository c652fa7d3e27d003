"""The jobs that sweeping actors run. Messages wake only jobs that have a `next_due`: jobs without it may be some minutes late."""

from typing import Final

from actors.sweeper import SweepJob
from core.accounts import passkey_waits
from core.applications import figures
from core.billing import subscriptions
from core.federation.connections import health
from core.federation.oauth import external_client_sweep
from core.maintenance import expiring_secrets, housekeeping
from core.privacy import personal_data
from core.programs import service_accounts
from core.tenancy import invitations, platform_sign_in_policy

# Refreshes identity providers' metadata and keys, and announces certificates that end.
CONNECTION_REFRESH: Final = SweepJob("connection_refresh", health.refresh_due, period=300.0, next_due=health.next_due)
# Erases accounts that their users deleted, when the time to undo that is over.
ERASURE: Final = SweepJob("erasure", personal_data.erase_due, period=300.0)
# Deletes external clients that no user agrees to any longer.
EXTERNAL_CLIENTS: Final = SweepJob("external_client_removal", external_client_sweep.sweep, period=3600.0)
# Counts the figures for charts. The present hour is counted again every time.
FIGURES: Final = SweepJob("figures", figures.count, period=180.0)
# Deletes obsolete rows.
HOUSEKEEPING: Final = SweepJob("housekeeping", housekeeping.sweep, period=180.0)
# Marks invitations as expired, as soon as their time is over.
INVITATION_EXPIRY: Final = SweepJob("invitation_expiry", invitations.sweep, period=60.0, next_due=invitations.next_expiry)
# Tells users that they can remove their lost passkeys now.
PASSKEY_WAITS: Final = SweepJob("passkey_waits", passkey_waits.sweep, period=60.0)
# Reminds platform owners that they need a second factor soon.
POLICY_REMINDER: Final = SweepJob("policy_reminder", platform_sign_in_policy.remind, period=300.0)
# Ends the roles that service accounts gave, after their owner left and the accounts ended.
PROGRAM_ENDS: Final = SweepJob("program_ends", service_accounts.end_due, period=300.0)
# Announces secrets that expire soon to their owners.
SECRET_ANNOUNCEMENT: Final = SweepJob("secret_announcement", expiring_secrets.announce, period=300.0)
# Marks subscriptions as expired when their period ends, unless the payment provider manages them.
SUBSCRIPTION_EXPIRY: Final = SweepJob("subscription_expiry", subscriptions.sweep, period=60.0, next_due=subscriptions.next_expiry)
