"""The pages of sign-ins to applications, and of consents."""
