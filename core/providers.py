"""The external identity providers, in the specification's neutral words."""

from enum import StrEnum


class Provider(StrEnum):
    """Who vouches for people beside us (the conventions of both documents)."""

    CODEHOST = "codehost"
    WEBSUITE = "websuite"
    OFFICESUITE = "officesuite"
