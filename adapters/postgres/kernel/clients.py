"""Conditions about the clients `v` in the table `services`."""

from typing import Final

# An organization registered the client. External clients stand in the same table, but in no list of applications.
REGISTERED: Final = "v.client_uri is null"
