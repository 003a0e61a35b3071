"""Finding peers in the local network, and being found: multicast DNS, `serve --discover`.

What is announced is the id, and where the node listens beyond loopback; nothing of its logs. It is
DNS-SD (RFC 6763): service `_bamboo-p2p._tcp.local.`, the id's first 16 digits as the instance, and
TXT has `v=1` and `id=` with all 64 of them.

The library (zeroconf) has a thread of its own. What it says comes in by name alone, a name once
however often it is said, and is asked for from here, one at a time: so a flood of announcements
makes this node slow to find others, and nothing else of it.
"""

import logging
import socket
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

import trio

from .addresses import Address, PeerAddress
from .neighbours import Neighbours

if TYPE_CHECKING:
    from types import ModuleType

    from zeroconf import ServiceInfo, Zeroconf

    from .entrance import Entrance
    from .roster import Member

log = logging.getLogger(__name__)

SERVICE: Final = "_bamboo-p2p._tcp.local."
INSTANCE_DIGITS: Final = 16
NAMES_MAX: Final = 256
"""Names that wait to be asked for. Of more the first ones are forgotten."""
ANSWER_S: Final = 3.0
LOOK_S: Final = 5.0
"""How often it is looked whether a peer is still connected, while somebody is there."""
_ID_DIGITS: Final = 64


class MissingZeroconfError(Exception):
    """The library is not installed; the text is one line for people."""


class Caller(Protocol):
    """What of a node it takes to call peers."""

    entrance: "Entrance"
    addresses: list[Address]
    want_watchers: set[Callable[[], None]]

    @property
    def members(self) -> Sequence["Member"]:
        """The connections that are open."""

    @property
    def called(self) -> Sequence[PeerAddress]:
        """Who is called again and again."""

    def connect(self, target: PeerAddress) -> object:
        """Calls a peer again and again. Raises ValueError where somebody else is called."""

    def hang_up(self, name: str) -> None:
        """Calls no more."""


def library() -> "ModuleType":
    """zeroconf. Raises MissingZeroconfError."""
    try:
        import zeroconf
    except ImportError as error:
        raise MissingZeroconfError(
            f"zeroconf is needed to find peers in the network, and cannot be loaded ({error}):"
            " install it with: pip install 'bamboo-peer[discover]'"
        ) from None
    return zeroconf


class Discovery:
    """Announces a node, and calls whom it finds and has allowed, while `run` runs.

    `interfaces`: addresses of those that are used; None: all. Loopback is announced to loopback.
    """

    def __init__(self, node: Caller, interfaces: Sequence[str] | None = None) -> None:
        self._zeroconf = library()
        self._node = node
        self._interfaces = interfaces
        own_id = node.entrance.admission.own_id
        self._instance = f"{own_id.hex()[:INSTANCE_DIGITS]}.{SERVICE}"
        self._id = own_id.hex()
        self._neighbours = Neighbours(own_id)
        self._names: dict[str, bool] = {}
        """What the library has said since: whether it is there, by the name."""
        self._news = trio.Event()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Until cancelled."""
        token = trio.lowlevel.current_trio_token()
        try:
            zeroconf = await trio.to_thread.run_sync(self._open)
        except OSError as error:
            log.warning("nobody is looked for in the local network: %s", error)
            task_status.started()
            return
        node = self._node
        node.want_watchers.add(self._stir)
        try:
            self._zeroconf.ServiceBrowser(zeroconf, SERVICE, _Listener(self, token))
            task_status.started()
            await self._announce(zeroconf)
            while True:
                await self._take_news(zeroconf)
                again_s = self._act()
                with trio.move_on_at(min(again_s, trio.current_time() + LOOK_S)):
                    await self._news.wait()
        finally:
            node.want_watchers.discard(self._stir)
            node.entrance.neighbours = []
            with trio.CancelScope(shield=True):
                # It says good-bye, which takes a moment.
                await trio.to_thread.run_sync(zeroconf.close)

    def _open(self) -> "Zeroconf":
        if self._interfaces is None:
            return self._zeroconf.Zeroconf()  # type: ignore[no-any-return]
        return self._zeroconf.Zeroconf(interfaces=list(self._interfaces))  # type: ignore[no-any-return]

    async def _announce(self, zeroconf: "Zeroconf") -> None:
        info = self._info()
        if info is None:
            log.info("nothing is announced: this node listens nowhere beyond loopback")
            return
        try:
            await trio.to_thread.run_sync(zeroconf.register_service, info)
        except self._zeroconf.NonUniqueNameException:
            log.warning("somebody else announces this node's id: it is not announced from here")
        except OSError as error:
            log.warning("this node cannot be announced in the network: %s", error)

    def _info(self) -> "ServiceInfo | None":
        """What is announced: the first address beyond loopback, with its port."""
        listening = [each for each in self._node.addresses if not each.path]
        if self._interfaces is None:
            listening = [each for each in listening if not each.is_loopback]
        if not listening:
            return None
        port = listening[0].port
        hosts = {each.host for each in listening if each.port == port}
        packed = [_packed(each) for each in sorted(self._numbers(hosts))]
        return self._zeroconf.ServiceInfo(  # type: ignore[no-any-return]
            SERVICE,
            self._instance,
            addresses=[each for each in packed if each is not None],
            port=port,
            properties={"v": "1", "id": self._id},
            server=f"{self._instance.removesuffix(f'.{SERVICE}')}.local.",
        )

    def _numbers(self, hosts: Iterable[str]) -> set[str]:
        """Addresses by number; in place of all, those of the interfaces."""
        found: set[str] = set()
        for host in hosts:
            if host in {"0.0.0.0", "::"}:  # noqa: S104 - which stand for all
                import ifaddr

                adapters = [ip.ip for adapter in ifaddr.get_adapters() for ip in adapter.ips]
                named = [ip if isinstance(ip, str) else ip[0] for ip in adapters]
                of_kind = [ip for ip in named if (":" in ip) == (host == "::") or host == "::"]
                found.update(ip for ip in of_kind if not Address(ip, 1).is_loopback)
            else:
                found.add(host)
        return found

    # What the library says

    def said(self, name: str, *, is_there: bool) -> None:
        """Something is announced, or no more; to be called in the event loop."""
        self._names.pop(name, None)
        if len(self._names) >= NAMES_MAX:
            del self._names[next(iter(self._names))]
        self._names[name] = is_there
        self._stir()

    def _stir(self) -> None:
        self._news.set()

    async def _take_news(self, zeroconf: "Zeroconf") -> None:
        self._news = trio.Event()
        while self._names:
            name = next(iter(self._names))
            if not self._names.pop(name):
                self._neighbours.withdrawn(name)
                continue
            info = await trio.to_thread.run_sync(
                zeroconf.get_service_info, SERVICE, name, int(ANSWER_S * 1000)
            )
            found = None if info is None else read_info(info)
            if found is None:
                log.info("what is announced as %.80r says no id and address", name)
                self._neighbours.withdrawn(name)
                continue
            peer_id, address = found
            allowed = self._is_allowed(peer_id)
            now = trio.current_time()
            self._neighbours.announced(name, peer_id, address, now, allowed=allowed)

    def _is_allowed(self, peer_id: bytes) -> bool:
        admission = self._node.entrance.admission
        return admission.knows(peer_id) and peer_id != admission.own_id

    def _act(self) -> float:
        node = self._node
        connected = {member.peer_id for member in node.members}
        called = {target.peer for target in node.called}
        step = self._neighbours.step(
            trio.current_time(),
            self._is_allowed,
            connected.__contains__,
            lambda peer_id: peer_id.hex() in called,
        )
        for name in step.hang_up:
            node.hang_up(name)
        for target in step.call:
            try:
                node.connect(target)
            except ValueError:
                self._neighbours.not_called(target)
        node.entrance.neighbours = self._neighbours.found
        return float("inf") if step.again_s is None else step.again_s


class _Listener:
    """Hands on what the library says, which it does in its own thread."""

    def __init__(self, discovery: Discovery, token: trio.lowlevel.TrioToken) -> None:
        self._discovery = discovery
        self._token = token

    def add_service(self, _: object, __: str, name: str) -> None:
        self._tell(name, is_there=True)

    update_service = add_service

    def remove_service(self, _: object, __: str, name: str) -> None:
        self._tell(name, is_there=False)

    def _tell(self, name: str, *, is_there: bool) -> None:
        def tell() -> None:
            self._discovery.said(name, is_there=is_there)

        try:
            # A name that was said already is not said twice to a loop that has not come to it.
            self._token.run_sync_soon(tell)
        except trio.RunFinishedError:
            return


def read_info(info: "ServiceInfo") -> tuple[bytes, Address] | None:
    """The id and an address of what is announced; None for what is none of ours."""
    text = info.properties.get(b"id") or b""
    if info.properties.get(b"v") != b"1" or len(text) != _ID_DIGITS:
        return None
    try:
        peer_id = bytes.fromhex(text.decode("ascii"))
    except ValueError:
        return None
    hosts = sorted(info.parsed_scoped_addresses(), key=lambda host: (":" in host, "%" in host))
    if not hosts or not info.port:
        return None
    return peer_id, Address(hosts[0], info.port)


def _packed(host: str) -> bytes | None:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            return socket.inet_pton(family, host)
        except OSError:
            continue
    return None
