"""Hosts with addresses of their own: network namespaces on one bridge, whose links a test cuts, slows and mends.

All of it is in namespaces that processes of this one hold, for an hour at most: the machine's own interfaces, routes
and files are not touched, and nothing is left once the last process in them has ended.
"""

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterable
from pathlib import Path

_LONGEST_S = 3600
_TOOLS = ("ip", "bridge", "tc", "unshare", "nsenter", "setpriv", "mount")
_PROBE = """ip link add probe type bridge && ip link add one type veth peer name two && ip link set one master probe &&
    tc qdisc add dev one root tbf rate 64kbit burst 4kb latency 50ms"""
# Nobody has it: what is sent there is lost, and nobody says so.
_NOBODY = "02:00:00:00:00:01"


def why_not() -> str:
    """Why this machine can make no hosts; "" if it can."""
    if missing := [tool for tool in _TOOLS if shutil.which(tool) is None]:
        return f"{', '.join(missing)} missing (iproute2, util-linux)"
    probed = subprocess.run(["unshare", "--net", "--mount", "sh", "-c", _PROBE], capture_output=True, text=True)
    return f"no network namespaces here: {probed.stderr.strip()}" if probed.returncode else ""


class Hosts:
    """So many hosts on one bridge; each knows all by their names. Use as a context manager.

    folder: for the hosts' files of names. Links have no loss and no delay until a method changes that.
    """

    def __init__(self, folder: Path, names: Iterable[str]) -> None:
        self._folder = folder
        self._held: dict[str, subprocess.Popen] = {}
        self.addresses = {name: f"10.213.0.{number}" for number, name in enumerate(names, 1)}
        self._given = len(self.addresses)
        self._muted: set[tuple[str, str]] = set()

    def __enter__(self) -> "Hosts":
        try:
            self._hold("switch")
            self._in("switch", "ip", "link", "add", "switch", "type", "bridge")
            self._in("switch", "ip", "link", "set", "switch", "up")
            for number, (name, address) in enumerate(self.addresses.items()):
                peer = str(self._hold(name).pid)
                port = f"port{number}"
                self._in("switch", "ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", peer)
                self._in("switch", "ip", "link", "set", port, "master", "switch", "up")
                for words in (
                    f"ip address add {address}/16 dev eth0",
                    "ip link set eth0 up",
                    "ip link set lo up",
                    # Names are in a file that this host alone sees, and nobody else is asked.
                    f"mount --bind {self._names(name)} /etc/hosts",
                    f"mount --bind {os.devnull} /etc/resolv.conf",
                ):
                    self._in(name, *words.split())
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        """Ends every process that is still in these namespaces, and so them."""
        for held in self._held.values():
            for process in _within(held.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            held.kill()
            held.wait()
        self._held.clear()

    def command(self, name: str, *words: str) -> list[str]:
        """The command that runs these words at a host, as the process that is started, in this one's folder."""
        return ["nsenter", "--target", str(self._held[name].pid), "--net", "--mount", "--wd", *words]

    def cut(self, *names: str) -> None:
        """Nothing gets through to these hosts or from them; neither end is told."""
        for name in names:
            self._in("switch", "bridge", "link", "set", "dev", self._port(name), "state", "disabled")

    def mute(self, name: str) -> None:
        """What the host sends is lost; what is sent to it arrives."""
        for other in self.addresses.keys() - {name}:
            words = f"ip neighbour replace {self.addresses[other]} lladdr {_NOBODY} dev eth0 nud permanent"
            self._in(name, *words.split())
            self._muted.add((name, self.addresses[other]))

    def slow(self, name: str, kbit: int) -> None:
        """The host sends and receives so many kbit/s."""
        for at, device in ((name, "eth0"), ("switch", self._port(name))):
            words = f"tc qdisc replace dev {device} root tbf rate {kbit}kbit burst 4kb latency 2s"
            self._in(at, *words.split())

    def mend(self, *names: str) -> None:
        """The hosts' links are as at the beginning."""
        for name in names:
            self._in("switch", "bridge", "link", "set", "dev", self._port(name), "state", "forwarding")
            for host, other in [each for each in self._muted if each[0] == name]:
                self._in(name, "ip", "neighbour", "del", other, "dev", "eth0")
                self._muted.remove((host, other))
            for at, device in ((name, "eth0"), ("switch", self._port(name))):
                self._in(at, "tc", "qdisc", "replace", "dev", device, "root", "noqueue")

    def move(self, name: str) -> None:
        """The host gets another address, and its name stands for that: connections of the old one hear nothing more."""
        old, self._given = self.addresses[name], self._given + 1
        self.addresses[name] = f"10.213.0.{self._given}"
        self._in(name, "ip", "address", "del", f"{old}/16", "dev", "eth0")
        self._in(name, "ip", "address", "add", f"{self.addresses[name]}/16", "dev", "eth0")
        for host in self.addresses:
            self._names(host)

    def forget(self, name: str, of: str) -> None:
        """At host `of` the name does not resolve, until a host moves."""
        self._names(of, but=name)

    def _names(self, host: str, *, but: str = "") -> Path:
        """Writes the file of names that a host sees."""
        known = {"localhost": "127.0.0.1", **self.addresses}
        path = self._folder / f"{host}.hosts"
        path.write_text("".join(f"{address} {name}\n" for name, address in known.items() if name != but))
        return path

    def _port(self, name: str) -> str:
        return f"port{list(self.addresses).index(name)}"

    def _hold(self, name: str) -> subprocess.Popen:
        """A process in new namespaces, which ends with this one."""
        words = ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--mount"]
        held = subprocess.Popen([*words, "sh", "-c", f"echo; exec sleep {_LONGEST_S}"], stdout=subprocess.PIPE)
        self._held[name] = held
        assert held.stdout.readline() == b"\n", "no namespace was made"
        held.stdout.close()
        return held

    def _in(self, name: str, *words: str) -> None:
        done = subprocess.run(self.command(name, *words), capture_output=True, text=True)
        assert not done.returncode, f"{' '.join(words)}: {done.stderr}"


def _within(holder: int) -> list[int]:
    """The processes in the network namespace of one of ours."""
    found = []
    for process in (int(each) for each in os.listdir("/proc") if each.isdigit()):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/{process}/ns/net") == os.readlink(f"/proc/{holder}/ns/net"):
                found.append(process)
    return found
