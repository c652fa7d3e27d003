"""SAML endpoints and pages for browsers."""
