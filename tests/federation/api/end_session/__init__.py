"""Sign-outs that applications request (OpenID Connect RP-Initiated Logout 1.0)."""
