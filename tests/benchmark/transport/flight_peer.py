"""Peer: Arrow Flight (pyarrow, its C++ inside) moving one call's bytes.

DoExchange in record batches of up to 4 MiB: q, k and v in, as many bytes as the
output has back; nothing is computed. Command line: peer.py.
"""

import json

import numpy as np
import pyarrow as pa
import pyarrow.flight as flight

import peer

CHUNK = 4 << 20
SCHEMA = pa.schema([("bytes", pa.uint8())])


def batches(total):
    """Record batches of `total` bytes in all."""
    while total > 0:
        size = min(total, CHUNK)
        array = pa.array(np.zeros(size, np.uint8))
        yield pa.record_batch([array], schema=SCHEMA)
        total -= size


def drain(reader):
    """Reads to the end; the bytes that came."""
    received = 0
    while True:
        try:
            received += reader.read_chunk().data.column(0).nbytes
        except StopIteration:
            return received


class Server(flight.FlightServerBase):
    """Answers with as many bytes as the command asks for."""

    def __init__(self):
        super().__init__("grpc://127.0.0.1:0")
        self.replies = {}

    def do_exchange(self, context, descriptor, reader, writer):
        wanted = json.loads(descriptor.command)
        if drain(reader) != wanted["in"]:
            raise ValueError("bytes are missing")
        reply = self.replies.setdefault(wanted["out"],
                                        list(batches(wanted["out"])))
        writer.begin(SCHEMA)
        for batch in reply:
            writer.write_batch(batch)


def serve(ready):
    server = Server()
    ready(server.port)
    server.serve()


def make_call(target, shape):
    client = flight.connect(f"grpc://{target}")
    wanted = {"in": 3 * shape.tensor_bytes(), "out": shape.tensor_bytes()}
    descriptor = flight.FlightDescriptor.for_command(json.dumps(wanted))
    request = list(batches(wanted["in"]))

    def call():
        writer, reader = client.do_exchange(descriptor)
        writer.begin(SCHEMA)
        for batch in request:
            writer.write_batch(batch)
        writer.done_writing()
        if drain(reader) != wanted["out"]:
            raise ValueError("bytes are missing")
        writer.close()

    return call


if __name__ == "__main__":
    peer.main(serve, make_call)
