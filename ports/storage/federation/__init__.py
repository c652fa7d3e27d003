"""Storage for OAuth authorization codes, device codes, SAML and sign-ins at identity providers."""
