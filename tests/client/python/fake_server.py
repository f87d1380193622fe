"""A server whose answers a test writes itself."""

from concurrent import futures

import grpc

from attendant.v1 import attention_pb2 as pb
from attendant.v1 import error_pb2


class FakeServer:
    """answer(request, context) -> AttendResponse, on a port of its own."""

    def __init__(self, answer, port=0, credentials=None):
        self.calls = 0
        self.metadata = {}
        self._answer = answer
        self._server = grpc.server(
            futures.ThreadPoolExecutor(4),
            options=[
                ("grpc.so_reuseport", 0),
                ("grpc.max_receive_message_length", -1),
            ],
        )
        handler = grpc.unary_unary_rpc_method_handler(
            self._attend,
            request_deserializer=pb.AttendRequest.FromString,
            response_serializer=lambda reply: (
                reply if isinstance(reply, bytes) else reply.SerializeToString()
            ),
        )
        self._server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(
                    "attendant.v1.AttentionService", {"Attend": handler}
                ),
            )
        )
        address = f"127.0.0.1:{port}"
        self.port = (
            self._server.add_secure_port(address, credentials)
            if credentials
            else self._server.add_insecure_port(address)
        )
        self.target = f"127.0.0.1:{self.port}"
        self._server.start()

    def _attend(self, request, context):
        self.calls += 1
        self.metadata = dict(context.invocation_metadata())
        return self._answer(request, context)

    def stop(self):
        """Ends it at once."""
        self._server.stop(None).wait()


def echo_q(request, context):
    """O = q, served by "fake"."""
    del context
    return pb.AttendResponse(
        request_id=request.request_id,
        output=request.q,
        served_by=pb.ServedBy(backend=pb.BACKEND_CPU, kernel="fake"),
        exposed=pb.StageTimes(kernel_ns=7),
        output_data=request.q_data,
    )


def fail_first(failures, code, pushback=None):
    """An answer that fails so many times, then echoes q."""
    left = [failures]

    def answer(request, context):
        left[0] -= 1
        if left[0] < 0:
            return echo_q(request, context)
        if pushback is not None:
            context.set_trailing_metadata((("grpc-retry-pushback-ms", pushback),))
        context.abort(code, "not now")
        return None

    return answer


def refuse_with_detail(request, context):
    """INVALID_ARGUMENT with an ErrorDetail."""
    del request
    status = error_pb2.RpcStatus(code=3, message="too large")
    detail = error_pb2.ErrorDetail(field="q.shape[3]", value="257", bound="1..256")
    status.details.add().Pack(detail)
    context.set_trailing_metadata(
        (("grpc-status-details-bin", status.SerializeToString()),)
    )
    context.abort(grpc.StatusCode.INVALID_ARGUMENT, "too large")
