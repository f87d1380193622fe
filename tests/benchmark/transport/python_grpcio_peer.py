"""Peer: attention over gRPC as one writes it in an afternoon of Python.

grpcio, raw bytes instead of a generated message (which only helps it), and
PyTorch's scaled_dot_product_attention on the GPU, or on the CPU where there is
none; without PyTorch plain numpy, so that the script itself can be tested.
Command line: peer.py.
"""

import struct
from concurrent import futures

import grpc
import numpy as np

import peer

OPTIONS = [("grpc.max_receive_message_length", -1),
           ("grpc.max_send_message_length", -1)]
HEADER = struct.Struct("<5i")


def identity(message):
    return message


def attend_numpy(tensors, causal):
    """[b, s, h, d] each; float32 inside."""
    q, k, v = (t.astype(np.float32).transpose(0, 2, 1, 3) for t in tensors)
    scores = q @ k.transpose(0, 1, 3, 2) * q.shape[-1] ** -0.5
    if causal:
        scores += np.triu(np.full(scores.shape[-2:], -np.inf), 1)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    out = weights @ v / weights.sum(-1, keepdims=True)
    return out.transpose(0, 2, 1, 3).astype(np.float16).tobytes()


def attend_torch(torch, message, shape):
    batch, seqlen, heads, head_dim, causal = shape
    elements = batch * seqlen * heads * head_dim
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tensors = [
        torch.frombuffer(message, dtype=torch.float16, count=elements,
                         offset=HEADER.size + 2 * elements * i)
        .view(batch, seqlen, heads, head_dim).to(device).transpose(1, 2)
        for i in range(3)]
    out = torch.nn.functional.scaled_dot_product_attention(
        *tensors, is_causal=bool(causal))
    return out.transpose(1, 2).contiguous().cpu().numpy().tobytes()


def import_torch():
    """The module or None; clients do without its seconds."""
    try:
        import torch
    except ImportError:
        return None
    if torch.cuda.is_available():
        torch.zeros(1, device="cuda")  # the context, before anyone waits for it
    return torch


class Handler(grpc.GenericRpcHandler):
    """The only method there is, whatever its name."""

    def __init__(self, torch):
        self._torch = torch

    def service(self, handler_call_details):
        return grpc.unary_unary_rpc_method_handler(self.attend, identity,
                                                   identity)

    def attend(self, message, context):
        shape = HEADER.unpack_from(message)
        if self._torch is not None:
            return attend_torch(self._torch, message, shape)
        tensors = np.frombuffer(message, np.float16, offset=HEADER.size)
        return attend_numpy(tensors.reshape(3, *shape[:4]), shape[4])


def serve(ready):
    handler = Handler(import_torch())
    server = grpc.server(futures.ThreadPoolExecutor(8), handlers=[handler],
                         options=OPTIONS)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    ready(port)
    server.wait_for_termination()


def make_call(target, shape):
    channel = grpc.insecure_channel(target, options=OPTIONS)
    method = channel.unary_unary("/peer/Attend", identity, identity)
    random = np.random.default_rng(1)
    tensors = random.standard_normal((3, *shape[:4]), np.float32)
    message = HEADER.pack(*shape) + tensors.astype(np.float16).tobytes()

    def call():
        if len(method(message)) != shape.tensor_bytes():
            raise ValueError("bytes are missing")

    return call


if __name__ == "__main__":
    peer.main(serve, make_call)
