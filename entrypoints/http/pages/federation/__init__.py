"""The pages for sign-ins to applications, and for consents."""
