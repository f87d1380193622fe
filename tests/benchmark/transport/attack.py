"""Clients that send a server more than it allows, all at once.

    attack.py HOST:PORT unary CLIENTS BYTES     one Attend message each
    attack.py HOST:PORT stream CLIENTS BYTES    one AttendStream message each

Each client has a connection and a thread of its own and repeats for SECONDS.
Prints how often each code came.
"""

import collections
import json
import sys
import threading
import time

import grpc

SECONDS = 2
OPTIONS = [("grpc.max_send_message_length", -1),
           ("grpc.use_local_subchannel_pool", 1)]


def identity(message):
    return message


def attack(target, kind, message, until, codes):
    with grpc.insecure_channel(target, options=OPTIONS) as channel:
        while time.monotonic() < until:
            try:
                if kind == "unary":
                    channel.unary_unary("/attendant.v1.AttentionService/Attend",
                                        identity, identity)(message, timeout=20)
                else:
                    stream = channel.stream_stream(
                        "/attendant.v1.AttentionService/AttendStream",
                        identity, identity)
                    list(stream(iter([message]), timeout=20))
                codes["OK"] += 1
            except grpc.RpcError as error:
                codes[error.code().name] += 1
                codes.setdefault("text", str(error.details())[:200])


def main():
    target, kind, clients, size = sys.argv[1:]
    message = bytes(int(size))
    codes = collections.Counter()
    until = time.monotonic() + SECONDS
    threads = [threading.Thread(target=attack,
                                args=(target, kind, message, until, codes))
               for _ in range(int(clients))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps(codes))


if __name__ == "__main__":
    main()
