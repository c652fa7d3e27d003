"""Tests of the API of invitations."""
