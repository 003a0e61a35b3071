"""docs/operations.md works as it stands: commands are run, and what it lists is what there is."""

import re

import trio
from prometheus_client.parser import text_string_to_metric_families

from logstore import Store
from peer.api import Address, NodeConfig, Peer
from tests.docs.pages import page, table

TEXT = page("docs/operations.md")
PATIENCE_S = 30


async def metrics() -> str:
    """Of a node that has nothing to do."""
    where: list[str] = []
    with trio.fail_after(PATIENCE_S), Store.memory() as store:
        config = NodeConfig(workers=0)
        tell = lambda event: where.append(str(event["address"]))  # noqa: E731
        async with Peer(store, config=config, observer=tell, metrics="0"):
            address = Address.parse(where[0])
            stream = await trio.open_tcp_stream(address.host, address.port)
            await stream.send_all(b"GET /metrics HTTP/1.1\r\n\r\n")
            received = b""
            while data := await stream.receive_some():
                received += data
            await stream.aclose()
    return received.partition(b"\r\n\r\n")[2].decode()


async def test_every_metric_is_listed_with_its_labels() -> None:
    listed = {
        name: set(re.findall(r"`(\w+)`", row[1]))
        for row in table(TEXT, "metric").rows
        for name in re.findall(r"`(bamboo_peer_\w+)`", row[0])
    }
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(await metrics()):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        found[name] = set().union(*(sample.labels for sample in family.samples))
    # A store in memory is on no disk.
    assert listed.keys() == found.keys() | {"bamboo_peer_disk_free_bytes"}
    for name, labels in found.items():
        assert labels <= listed[name]
