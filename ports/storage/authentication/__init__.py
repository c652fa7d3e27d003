"""Storage for sessions, logins, pending sign-ins, signing keys, linked identities and OAuth credentials."""
