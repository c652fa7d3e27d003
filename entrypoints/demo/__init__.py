"""The programs and the output of `gatehouse demo`."""
