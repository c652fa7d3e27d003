"""Where to listen, as the operator writes it."""


def parse_bind(text: str) -> tuple[str, int]:
    """Host and port of `host:port`, `[v6]:port` or `:port`, whose empty host is every address of the machine. Raises ValueError."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError("must look like 127.0.0.1:8080, [::1]:8080 or :8080")
    return host.removeprefix("[").removesuffix("]"), int(port)
