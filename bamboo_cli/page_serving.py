"""`serve --page`: the local API and its page, beside the node."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from logstore import from_os_error

from .errors import WrongUsage

if TYPE_CHECKING:
    from argparse import Namespace

    from local_api import ApiServer
    from peer.api import Peer
    from peer.node import Address, Meter, Observer

    from .settings import Parser
    from .terminal import Terminal


def page_arguments(parser: "Parser") -> None:
    """`--page` and `--page-host`."""
    parser.add_argument(
        "--page",
        metavar="ADDRESS",
        type=_address,
        help="where to serve a page for people, and the local API for programs, over HTTP: PORT,"
        " HOST:PORT or unix:PATH (HOST: 127.0.0.1 unless given; default: nowhere)",
    )
    parser.add_argument(
        "--page-host",
        metavar="NAME",
        action="append",
        default=[],
        help="another name by which the page is looked at, as behind a proxy; repeatable",
    )


def _address(text: str) -> "Address":
    """Raises ValueError."""
    from peer.node import Address, metrics_address  # loads Trio, which `--help` can do without

    return Address.parse(text, unix=True) if text.startswith("unix:") else metrics_address(text)


def check_page(args: "Namespace") -> None:
    """Raises WrongUsage for a page that others than this machine would reach, without a word."""
    if args.page_host and args.page is None:
        raise WrongUsage("--page-host is about --page: name an address")
    if args.page is not None and not args.page.is_loopback and not args.insecure:
        raise WrongUsage(
            f"--page {args.page}: beyond this machine it would be served without encryption;"
            " --insecure says that this is meant, or let a proxy with TLS serve a loopback address"
        )


def shares_metrics(args: "Namespace") -> bool:
    """Whether metrics are asked for where the page is, so that one server has both."""
    return args.page is not None and args.metrics == args.page


class PageEvents:
    """Gives events to the server, once there is one: it is made when the node runs already."""

    def __init__(self) -> None:
        self.server: ApiServer | None = None

    def take(self, event: Mapping[str, object]) -> None:
        """An event of the node."""
        if self.server is not None:
            self.server.observe(event)


@asynccontextmanager
async def serving_page(
    peer: "Peer",
    args: "Namespace",
    terminal: "Terminal",
    events: PageEvents,
    meter: "Meter | None",
    tell: "Observer",
) -> AsyncIterator[None]:
    """Serves inside the block what `--page` asks for. Raises CannotListenError, StoreError."""
    if args.page is None:
        yield
        return
    import trio

    from local_api import ApiServer, load_token, serving_api
    from peer.node import MetricsServer

    folder = peer.store.path
    assert folder is not None
    try:
        token = await trio.to_thread.run_sync(load_token, folder)
    except OSError as error:
        raise from_os_error(error, folder) from None
    overview = await peer.overview()
    metrics = None if meter is None else MetricsServer(peer.node, overview, meter)
    server = ApiServer(peer, overview, metrics)
    events.server = server
    if not args.page.is_loopback:
        terminal.note(
            f"warning: the page at {args.page} is served without encryption: everybody on the way"
            " can read it, and the token that lets in"
        )
    async with serving_api(server, args.page, token, tell, args.page_host):
        yield
