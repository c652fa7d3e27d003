"""The largest requests that are read, in bytes (security N-3)."""

from typing import Final

MAX_HEADER_BLOCK: Final = 16 * 1024  # the request line and all headers
MAX_BODY: Final = 256 * 1024
# Limits for SCIM, and for changes to its group, which can list many members.
MAX_SCIM_BODY: Final = 1024 * 1024
MAX_SCIM_GROUP_BODY: Final = 16 * 1024 * 1024
