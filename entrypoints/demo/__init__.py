"""The programs and the output for `gatehouse demo`."""
