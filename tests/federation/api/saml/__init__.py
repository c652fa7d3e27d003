"""Tests of SAML sign-on over HTTP."""
