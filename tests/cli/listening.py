"""Every socket at which some process, or one that it started, waits for others; from /proc alone."""

from __future__ import annotations

import ipaddress
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Listener", "family", "listeners"]

_LISTENING = "0A"  # the state of a TCP socket
_ACCEPTS = 0x10000  # the flag of a Unix socket


@dataclass(frozen=True)
class Listener:
    """A socket that takes connections (or packets), and whose it is."""

    kind: str  # "tcp", "udp" or "unix"
    address: str  # of a Unix socket its path, which begins with @ if it is in no folder
    port: int
    process: str

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return self.kind == "unix" or _plain(self.address).is_loopback


def _plain(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """An address; one of the old kind as such, also where the new kind's socket has it."""
    found = ipaddress.ip_address(address)
    return getattr(found, "ipv4_mapped", None) or found


def family(process: int) -> set[int]:
    """A process and all that it, or one of these, started."""
    parents = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name, in brackets, may hold anything.
            parents[int(status.parent.name)] = int(status.read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has ended
            continue
    found, before = {process}, set[int]()
    while found != before:
        before = set(found)
        found |= {child for child, parent in parents.items() if parent in found}
    return found


def listeners(process: int) -> set[Listener]:
    """Where a process and its family wait for others, just now."""
    owners = {inode: name for member in family(process) for inode, name in _sockets(member)}
    return {listener for inode, listener in _listening(owners) if inode in owners}


def _sockets(process: int) -> Iterator[tuple[str, str]]:
    home = Path(f"/proc/{process}")
    try:
        name = (home / "comm").read_text().strip()
        for descriptor in (home / "fd").iterdir():
            target = str(descriptor.readlink())
            if target.startswith("socket:["):
                yield target[8:-1], name
    except OSError:  # it has ended, or closed one meanwhile
        return


def _listening(owners: dict[str, str]) -> Iterator[tuple[str, Listener]]:
    for table in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == _LISTENING or table.startswith("udp"):
                host, _, port = words[1].partition(":")
                listener = Listener(table[:3], _address(host), int(port, 16), owners.get(words[9], ""))
                yield words[9], listener
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        words = line.split(maxsplit=7)
        if int(words[3], 16) & _ACCEPTS:
            yield words[6], Listener("unix", words[7] if len(words) > 7 else "", 0, owners.get(words[6], ""))


def _address(host: str) -> str:
    # Each 32 bits in this machine's order.
    packed = b"".join(struct.pack("=I", int(host[start : start + 8], 16)) for start in range(0, len(host), 8))
    return socket.inet_ntop(socket.AF_INET if len(packed) == 4 else socket.AF_INET6, packed)
