"""The messages that a page shows about the change before it."""

from typing import Final

# By the name in the notice cookie. `{count}` is the number of things that were changed.
NOTICES: Final = {
    "address": "Check your inbox at the new address, and open the link that we sent there.",
    "same-address": "This is already your email address. Nothing was changed.",
    "kept-address": "Change canceled. You keep your email address.",
    "link": "Verification email sent. Check your inbox.",
    "password": "Password updated. You've been signed out on all other devices.",
    "first-password": "Password set.",
    "off": "Two-factor authentication is off.",
    "name": "Name saved.",
    "revoked": "Device revoked and signed out.",
    "ended": "Session ended.",
    "profile": "Profile saved.",
    "canceled": "Subscription canceled.",
    "withdrawn": "Access removed. The application asks you again the next time you sign in to it.",
    "left": "You left the organization.",
    "joined": "You've joined the organization.",
    "confirmed": "You confirmed your membership.",
    "others": "All other sessions ended.",
    "linked": "Account linked. You can now sign in with it.",
    "unlinked": "Account unlinked.",
    "settings-sign-in": "Sign-in settings saved.",
    "settings-consent": "Consent settings saved.",
    "settings-security": "Security settings saved. They apply to new sign-ins.",
    "settings-keys": "Keys saved.",
    "settings-lifetimes": "Token lifetimes saved. They apply to new tokens.",
    "role-changed": "Role changed.",
    "sessions-ended": "Sessions ended: {count}.",
    "reset-sent": "We sent the link to reset the password.",
    "member-removed": "Member removed.",
    "invited": "Invitations sent: {count}.",
    "invitation-canceled": "Invitation canceled.",
}
