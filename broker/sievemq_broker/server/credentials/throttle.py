"""Limits wrong passwords: a delay that doubles with each wrong password, per address and per user.

An attempt is *charged* before its password is checked and refunded if it was right, so that a thousand simultaneous
attempts are not free. Memory is bounded: the least recently seen addresses are forgotten; of addresses from which users
have signed in, those of the user with the most.

Guessing one user's password from many addresses delays that user for every caller. But an address from which the user
has signed in before counts separately, so that an attacker cannot lock out running applications.

Pure: the time is an argument, in seconds of a monotonic clock."""

from __future__ import annotations

from collections import OrderedDict
from ipaddress import IPv6Address, ip_address
from typing import Final

from sievemq_broker.domain.shares import Shares

#: Wrong passwords before the first delay. One address may be a whole office, or a fleet behind one gateway.
FREE_PER_ADDRESS: Final = 20
FREE_PER_USER: Final = 5

#: Seconds: the first delay, the longest, and the time without a wrong password after which all is forgotten.
FIRST_DELAY: Final = 1.0
MAX_DELAY: Final = 300.0
FORGET: Final = 900.0

#: The most entries of each kind.
CAPACITY: Final = 10_000


class _Tally:
    __slots__ = ("failures", "last", "until")

    def __init__(self) -> None:
        self.failures = 0
        self.last = self.until = 0.0

    def charge(self, now: float, free: int) -> None:
        if now - self.last > FORGET:
            self.failures = 0
        self.last = now
        self.failures += 1
        beyond = self.failures - free
        if beyond > 0:
            self.until = now + min(FIRST_DELAY * 2 ** min(beyond - 1, 16), MAX_DELAY)

    def refund(self) -> bool:
        """True if nothing is left to forget."""
        self.failures = max(self.failures - 1, 0)
        self.until = 0.0
        return not self.failures


class _Tallies:
    """Wrong passwords by key.

    Args:
        free: how many cost nothing.
        capacity: keys kept.
    """

    __slots__ = ("_capacity", "_free", "_tallies")

    def __init__(self, free: int, capacity: int) -> None:
        self._free = free
        self._capacity = capacity
        self._tallies: OrderedDict[str, _Tally] = OrderedDict()

    def __len__(self) -> int:
        return len(self._tallies)

    def wait(self, key: str, now: float) -> float:
        tally = self._tallies.get(key)
        return max(tally.until - now, 0.0) if tally is not None else 0.0

    def charge(self, key: str, now: float) -> None:
        tally = self._tallies.get(key)
        if tally is None:
            if len(self._tallies) >= self._capacity:
                self._tallies.popitem(last=False)
            tally = self._tallies[key] = _Tally()
        self._tallies.move_to_end(key)
        tally.charge(now, self._free)

    def refund(self, key: str) -> None:
        tally = self._tallies.get(key)
        if tally is not None and tally.refund():
            del self._tallies[key]


class Throttle:
    """Delays before the next attempt, by user and address.

    Args:
        capacity: addresses, users, and pairs of both that are remembered.
    """

    __slots__ = ("_addresses", "_capacity", "_known", "_known_of", "_pairs", "_users")

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._addresses = _Tallies(FREE_PER_ADDRESS, capacity)
        self._users = _Tallies(FREE_PER_USER, capacity)
        self._pairs = _Tallies(FREE_PER_USER, capacity)
        #: Pairs of user and address with a successful sign-in.
        self._known: set[str] = set()
        self._known_of: Shares[str] = Shares()

    def __len__(self) -> int:
        return len(self._addresses) + len(self._users) + len(self._pairs) + len(self._known)

    def wait(self, address: str, user: str, now: float) -> float:
        """Seconds until the next attempt is checked; 0 for now.

        Args:
            address: where from; an IP address, or whatever names the other end.
            user: the given name, whether there is such a user or not.
            now: seconds.
        """
        tallies, key = self._of(address, user)
        return max(self._addresses.wait(network(address), now), tallies.wait(key, now))

    def charge(self, address: str, user: str, now: float) -> None:
        """An attempt begins: count it as wrong until :meth:`refund`."""
        tallies, key = self._of(address, user)
        tallies.charge(key, now)
        self._addresses.charge(network(address), now)

    def refund(self, address: str, user: str) -> None:
        """The attempt was successful."""
        tallies, key = self._of(address, user)
        tallies.refund(key)
        self._addresses.refund(network(address))
        self.know(address, user)

    def know(self, address: str, user: str) -> None:
        """The user has signed in from this address."""
        pair = _pair(address, user)
        self._known.add(pair)
        self._known_of.add(user, pair)
        if len(self._known) > self._capacity:
            oldest = self._known_of.first_to_go()
            self._known_of.discard(*oldest)
            self._known.discard(oldest[1])

    def _of(self, address: str, user: str) -> tuple[_Tallies, str]:
        pair = _pair(address, user)
        return (self._pairs, pair) if pair in self._known else (self._users, user)


def network(address: str) -> str:
    """The network that counts as one address: for IPv6 64 bits, since the owner of one address has them all."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, IPv6Address):
        mapped = found.ipv4_mapped
        return str(mapped) if mapped is not None else str(IPv6Address(int(found) >> 64 << 64))
    return str(found)


def _pair(address: str, user: str) -> str:
    return f"{network(address)} {user}"
