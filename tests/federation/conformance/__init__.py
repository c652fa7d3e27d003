"""Tests for all modules in the OpenID Foundation's test plans that this provider claims.

A test has its module's name, and checks the module's conditions in our own code. `docs/reference/conformance.md` shows these tests'
verdicts beside the foundation's conformance suite.
"""
