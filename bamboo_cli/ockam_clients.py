"""`ockam create`, `push`, `pull` and `position`: clients of any hub, without a store."""

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from peer import json_number

from .errors import DONE, Problem, WrongUsage
from .lines import LineBytes, check_is_stdin, line_batches
from .online import run_trio, while_read

if TYPE_CHECKING:
    from argparse import Namespace

    from gateways.ockam import Message
    from gateways.ockam.codec import Address

    from .terminal import Terminal

TIMEOUT_S: Final = 60.0
_PULL_MAX: Final = 100


def _hub(args: "Namespace") -> Any:  # noqa: ANN401 - an address, whose module loads Trio
    from gateways.ockam import hub_address

    try:
        return hub_address(args.words[0])
    except ValueError as error:
        raise WrongUsage(f"ockam {args.verb}: {error}") from None


def _timeout_s(args: "Namespace") -> float:
    return TIMEOUT_S if args.timeout is None else float(args.timeout)


def run_create(args: "Namespace", terminal: "Terminal") -> int:
    from gateways.ockam import create_stream

    hub, name = _hub(args), args.words[1]
    create = partial(
        create_stream, hub, name, partitions=args.partitions, timeout_s=_timeout_s(args)
    )
    for partition, address in run_trio(create):
        fields = {"stream": name, "partition": partition, "address": address}
        terminal.result(fields, address)
    return DONE


def run_position(args: "Namespace", terminal: "Terminal") -> int:
    from gateways.ockam import ask_position

    hub, name, partition = _hub(args), args.words[1], args.partition or 0
    ask = partial(
        ask_position,
        hub,
        name,
        args.client,
        partition=partition,
        save=args.save,
        timeout_s=_timeout_s(args),
    )
    index = run_trio(ask)
    fields = {"stream": name, "partition": partition, "client": args.client}
    fields["index"] = None if index is None else json_number(index)
    terminal.result(fields, "-" if index is None else str(index))
    return DONE


# Pushing


def run_push(args: "Namespace", terminal: "Terminal") -> int:
    files: list[str] = args.words[2:] or ["-"]
    if args.lines:
        check_is_stdin("ockam push", files, args.words[:2])
    if files.count("-") > 1:
        raise WrongUsage("ockam push: standard input (-) can be one message only")
    hub = _hub(args)
    source = _lines(terminal.input) if args.lines else _files(files, terminal)
    run_trio(partial(_push, hub, args, source, terminal))
    return DONE


def _lines(stream: BinaryIO) -> Iterator[list[LineBytes]]:
    yield from line_batches(stream)  # type: ignore[arg-type]


def _files(names: list[str], terminal: "Terminal") -> Iterator[list[LineBytes]]:
    from gateways.ockam.codec import DATA_BYTES_MAX

    for name in names:
        if name == "-":
            yield [terminal.input.read(DATA_BYTES_MAX + 1)]
        else:
            with Path(name).open("rb") as file:
                yield [file.read(DATA_BYTES_MAX + 1)]


async def _push(
    hub: Any,  # noqa: ANN401 - an address
    args: "Namespace",
    source: Iterator[list[LineBytes]],
    terminal: "Terminal",
) -> None:
    import trio

    from gateways.ockam import Publisher, Receipt

    name, partition = args.words[1], args.partition or 0
    publisher = Publisher(hub, name, partition=partition, timeout_s=_timeout_s(args))
    async with publisher, trio.open_nursery() as nursery:
        give, take = trio.open_memory_channel[Receipt](100_000)
        nursery.start_soon(_print_indexes, take, name, partition, terminal)
        async with give:
            number = 0
            # Ctrl-C is heard while a pipe or a terminal says nothing.
            while (
                batch := await trio.to_thread.run_sync(next, source, None, abandon_on_cancel=True)
            ) is not None:
                for line in batch:
                    number += 1
                    data = _data(line, args.to, number)
                    await give.send(await publisher.submit(data))


def _data(line: LineBytes, worker: str | None, number: int) -> bytes:
    from gateways.ockam.codec import DATA_BYTES_MAX, wrap_for

    data = line if isinstance(line, bytes) else line.read(DATA_BYTES_MAX + 1)
    if worker is not None and len(data) <= DATA_BYTES_MAX:
        data = wrap_for(worker, data)
    if len(data) > DATA_BYTES_MAX:
        raise Problem(
            f"message {number}: longer than {DATA_BYTES_MAX} bytes, which is the limit; those"
            " before it may have been pushed: their indexes are printed"
        )
    return data


async def _print_indexes(take: Any, name: str, partition: int, terminal: "Terminal") -> None:  # noqa: ANN401 - a channel of Trio
    """Prints an index for each message in order, once it is confirmed."""
    async with take:
        async for receipt in take:
            if receipt.index is None:
                terminal.flush()
            index: int = await receipt.wait()
            fields = {"stream": name, "partition": partition, "index": json_number(index)}
            terminal.result(fields, str(index))
    terminal.flush()


# Pulling


def run_pull(args: "Namespace", terminal: "Terminal") -> int:
    if args.from_ is not None and args.client is not None:
        raise WrongUsage("ockam pull: --from and --client exclude another")
    pull: Callable[[], Awaitable[None]] = partial(_pull, _hub(args), args, terminal)
    run_trio(partial(while_read, terminal, pull))
    return DONE


async def _pull(hub: Any, args: "Namespace", terminal: "Terminal") -> None:  # noqa: ANN401 - an address
    from gateways.ockam import Consumer

    name, partition = args.words[1], args.partition or 0
    left: int | None = args.limit
    if left == 0:
        return
    consumer = Consumer(
        hub,
        name,
        partition=partition,
        client=args.client,
        start=args.from_,
        follow=bool(args.follow),
        pull_limit=_PULL_MAX if left is None else min(left, _PULL_MAX),
        timeout_s=_timeout_s(args),
    )
    must_flush = args.client is not None or args.follow
    async with consumer:
        async for message in consumer:
            _print_message(message, name, partition, args, terminal)
            if must_flush:
                # Out before the position says that it is.
                terminal.flush()
            left = None if left is None else left - 1
            if left == 0:
                consumer.done()
                break


def _print_message(
    message: "Message", name: str, partition: int, args: "Namespace", terminal: "Terminal"
) -> None:
    from gateways.ockam.codec import decode_content

    fields: dict[str, object] = {
        "stream": name,
        "partition": partition,
        "index": json_number(message.index),
        "data": message.data.hex(),
    }
    text = message.data
    if args.routing:
        content = decode_content(message.data)
        inner = content.message
        fields |= {
            "form": str(content.form),
            "onward": None if inner is None else _route(inner.onward),
            "return": None if inner is None else _route(inner.back),
            "return_stream": content.return_stream,
            "message": None if inner is None else inner.payload.hex(),
        }
        text = text if inner is None else inner.payload
    if terminal.as_json:
        terminal.record(fields)
    else:
        terminal.data(text + b"\n")


def _route(route: "tuple[Address, ...]") -> list[str]:
    """Each address as upstream writes it: type, `#` and the value, in hex if it is no text."""
    return [f"{type_}#{_text(value)}" for type_, value in route]


def _text(value: bytes) -> str:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return value.hex()
    return text if text.isprintable() else value.hex()
