"""Tests for SAML sign-on over HTTP."""
