"""The lifetime of device codes."""

from datetime import timedelta

TTL = timedelta(minutes=5)
