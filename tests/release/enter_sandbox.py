"""Change the root directory and run a command there as Gatehouse's unit does, without systemd.

python3 enter_sandbox.py ROOT ALLOWED_CALLS USER_ID COMMAND...

It sets ProcSubset=pid, ProtectProc=invisible, PrivateUsers, NoNewPrivileges, MemoryDenyWriteExecute and SystemCallFilter. It imports all
that it needs first, because the new root directory has different libraries.
"""

import ctypes
import errno
import json
import os
import sys
from typing import Any, Final

_NEW_MOUNTS, _NEW_USERS, _MOVE = 0x00020000, 0x10000000, 0x2000
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM
_NO_NEW_PRIVILEGES, _SET_MDWE = 38, 65  # prctl(2)
_MASKED_EQUAL = 7
_EXECUTABLE_MEMORY: Final = (("mmap", 2, 6), ("mprotect", 2, 4), ("pkey_mprotect", 2, 4), ("shmat", 2, 0o100000))  # name, argument, bits

libc = ctypes.CDLL(None, use_errno=True)
seccomp = ctypes.CDLL("libseccomp.so.2")
seccomp.seccomp_init.restype = ctypes.c_void_p


class _Comparison(ctypes.Structure):
    _fields_ = (("argument", ctypes.c_uint), ("operator", ctypes.c_int), ("mask", ctypes.c_uint64), ("value", ctypes.c_uint64))


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno() or -result
        raise OSError(number, os.strerror(number))


def _change_root(root: str) -> None:
    """Make this the root directory in a new mount namespace. A process that chroot(2) has moved can make no users."""
    _check(libc.unshare(_NEW_MOUNTS))
    _check(libc.mount(b"proc", f"{root}/proc".encode(), b"proc", 0, b"subset=pid,hidepid=invisible"))
    os.chdir(root)
    _check(libc.mount(b".", b"/", None, _MOVE, None))
    os.chroot(".")
    os.chdir("/")


def _become(user: int) -> None:
    """Become this user, in a namespace in which there are only this user and root. A process outside writes its maps."""
    ready, begin = os.pipe()
    helper = os.fork()
    if helper == 0:
        os.close(begin)
        if os.read(ready, 1):
            for kind in ("uid", "gid"):
                with open(f"/proc/{os.getppid()}/{kind}_map", "w") as file:
                    file.write(f"0 0 1\n{user} {user} 1\n")
        os._exit(0)
    _check(libc.unshare(_NEW_USERS))
    os.write(begin, b"x")
    os.waitpid(helper, 0)
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def _filter_calls(default: int, rules: list[tuple[int, str, Any]]) -> None:
    """Load a system call filter. A rule has an action, a name, and an argument's number and bits, or None."""
    context = ctypes.c_void_p(seccomp.seccomp_init(ctypes.c_uint32(default)))
    for action, name, argument in rules:
        number = seccomp.seccomp_syscall_resolve_name(name.encode())
        if number >= 0:
            compared = () if argument is None else (_Comparison(argument[0], _MASKED_EQUAL, argument[1], argument[1]),)
            array = (_Comparison * 1)(*compared)
            _check(seccomp.seccomp_rule_add_array(context, ctypes.c_uint32(action), number, len(compared), array))
    _check(seccomp.seccomp_load(context))


def main(root: str, calls: str, user: str, *command: str) -> None:
    _change_root(root)
    _become(int(user))
    _check(libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
    libc.prctl(_SET_MDWE, 1, 0, 0, 0)  # since Linux 6.3; systemd uses it beside its filter
    _filter_calls(_ALLOW, [(_REFUSE, name, (argument, bits)) for name, argument, bits in _EXECUTABLE_MEMORY])
    _filter_calls(_REFUSE, [(_ALLOW, name, None) for name in json.loads(calls)])
    os.execvp(command[0], command)  # noqa: S606 - the command of the test


main(*sys.argv[1:])
