"""The listening sockets: at an address, at a path, or passed by systemd (sd_listen_fds). Workers inherit them."""

import errno
import fcntl
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Final

from entrypoints.bind import LOCALHOST, LOOPBACK_ADDRESSES, SYSTEMD, parse_bind, unix_path

BACKLOG: Final = 1024
UNACKNOWLEDGED_WITHIN: Final = 20_000  # milliseconds until an unresponsive peer is dropped (TCP_USER_TIMEOUT)
UMASK_OF_SOCKET: Final = 0o117  # mode 0660: only the service's user and group can connect
FIRST_PASSED: Final = 3  # the descriptor for the first socket from systemd
PORT_ATTEMPTS: Final = 20  # to find a port that is free on the IPv4 and the IPv6 loopback address


class BindError(Exception):
    """The address cannot be used for listening. The message is a sentence for the operator."""


class AddressMissing(BindError):
    """The machine does not have the address."""


@contextmanager
def open_sockets(bind: str | None, setting: str = "SSO_BIND") -> Iterator[list[socket.socket]]:
    """Listen during the block, at no address if `bind` is None. `setting` is the setting that names the address.

    At the end of the block, remove a Unix socket's file, unless another service has replaced it.
    """
    path = unix_path(bind) if bind else None
    with ExitStack() as stack:
        try:
            sockets = [stack.enter_context(sock) for sock in listen(bind)] if bind else []
        except BindError as error:
            raise BindError(str(error).replace("SSO_BIND", setting)) from None
        file = None if path is None else _identity(path)
        try:
            yield sockets
        finally:
            with suppress(FileNotFoundError):
                if path is not None and _identity(path) == file:
                    Path(path).unlink()


def _identity(path: str) -> tuple[int, int]:
    status = Path(path).lstat()
    return status.st_ino, status.st_mtime_ns  # a removed file's number is soon used again


def listen(bind: str) -> list[socket.socket]:
    """Return the listening sockets for a value of SSO_BIND: two sockets for `localhost` if the machine has IPv6, else a single socket.

    Raises: BindError.
    """
    path = unix_path(bind)
    if path is not None:
        return [_listen_at_path(Path(path))]
    if bind == SYSTEMD:
        return [_take_from_systemd()]
    try:
        host, port = parse_bind(bind)
    except ValueError as error:
        raise BindError(f"{bind!r} is not an address to listen on: it {error}.") from None
    return _listen_on_loopback(port) if host == LOCALHOST else [_listen_at_address(host, port)]


def _listen_on_loopback(port: int) -> list[socket.socket]:
    """Listen on the IPv4 and the IPv6 loopback address at a single port, or only on 127.0.0.1 if the machine has no IPv6."""
    ipv4, ipv6 = map(str, LOOPBACK_ADDRESSES)
    for attempt in range(1, PORT_ATTEMPTS + 1):
        first = _listen_at_address(ipv4, port)
        try:
            return [first, _listen_at_address(ipv6, first.getsockname()[1])]
        except AddressMissing:
            return [first]
        except BindError:
            first.close()
            # The kernel chose a port that is free on 127.0.0.1. Another program can have it on ::1.
            if port != 0 or attempt == PORT_ATTEMPTS:
                raise
    raise AssertionError("the last attempt returns or raises")


def _listen_at_address(host: str, port: int) -> socket.socket:
    try:
        addresses = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise AddressMissing(
            f"The host {host!r} to listen on has no address on this machine. Choose another address with SSO_BIND."
        ) from None
    family, _, _, _, address = addresses[0]
    try:
        with ExitStack() as opened:
            sock = opened.enter_context(socket.socket(family, socket.SOCK_STREAM))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # lets a restart bind while old connections are in TIME_WAIT
            if family == socket.AF_INET6 and address[0] == "::":
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            sock.bind(address)
            _start(sock)
            opened.pop_all()
            return sock
    except OSError as error:
        missing = "is not an address of this machine; choose another address with SSO_BIND"
        reason = {
            errno.EADDRINUSE: "is already in use; stop the other program, or choose another address with SSO_BIND",
            errno.EACCES: "requires root or CAP_NET_BIND_SERVICE (docs/operating/tls.md); or choose a port from 1024 up with SSO_BIND",
            errno.EADDRNOTAVAIL: missing,
            errno.EAFNOSUPPORT: missing,
        }.get(error.errno or 0, f"cannot be used for listening: {os.strerror(error.errno or 0)}")
        kind = AddressMissing if reason == missing else BindError
        raise kind(f"{f'[{host}]' if ':' in host else host}:{port} {reason}.") from None


def _start(sock: socket.socket) -> None:
    if sock.family != socket.AF_UNIX:
        # On Linux, accepted sockets inherit these two options, which saves system calls.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_WITHIN)
    sock.listen(BACKLOG)
    sock.setblocking(False)


def _listen_at_path(path: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(UMASK_OF_SOCKET)
    try:
        with _locked(path.parent):
            _remove_stale(path)
            sock.bind(str(path))
            _start(sock)
    except OSError as error:
        sock.close()
        raise BindError(
            f"{path} cannot be used for listening: {error.strerror}. Choose a path in a directory of the service's user with SSO_BIND."
        ) from None
    except BaseException:
        sock.close()
        raise
    finally:
        os.umask(mask)
    return sock


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Lock the directory. If two services start at once, the second service then finds the first service's socket."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _remove_stale(path: Path) -> None:
    """Remove a socket at which no program listens. Raises: BindError if a program does, or if it is not a socket; OSError."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise BindError(f"{path} exists and is not a socket. Choose another path with SSO_BIND.")
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except BlockingIOError:  # a program listens, and its queue is full
            pass
    raise BindError(f"{path} is already in use; stop the other program, or choose another path with SSO_BIND.")


def _take_from_systemd() -> socket.socket:
    names = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")
    process, count, _ = (os.environ.pop(name, None) for name in names)  # not for our child processes
    if process != str(os.getpid()) or count != "1":
        raise BindError("SSO_BIND is systemd, but systemd passed no socket, or several. Start gatehouse.socket, with one ListenStream.")
    try:
        sock = socket.socket(fileno=FIRST_PASSED)
        if not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            raise BindError("The socket that systemd passed does not listen. Use ListenStream, with Accept=no.")
    except OSError as error:
        raise BindError(f"The descriptor that systemd passed is no socket: {error.strerror}.") from None
    sock.set_inheritable(False)
    _start(sock)
    return sock
