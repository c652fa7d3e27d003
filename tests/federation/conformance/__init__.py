"""One test for each module of the OpenID Foundation's test plans that this provider claims.

A test has the name of its module, and checks the conditions of that module in our own code. `docs/reference/conformance.md` shows
the verdicts of these tests beside those of the foundation's conformance suite.
"""
