"""Bytes of a reply -> what a caller gets."""

from __future__ import annotations

from google.protobuf.message import DecodeError

from attendant.errors import AttendantError, StatusCode
from attendant.options import DTYPE_NAMES
from attendant.results import (
    AttendResult,
    Capability,
    Device,
    ResultDetails,
    ServedBy,
    ServerInfo,
    StageTimes,
)
from attendant.tensor import decode
from attendant.v1 import attention_pb2 as pb

_BACKENDS = {pb.BACKEND_CPU: "cpu", pb.BACKEND_CUDA: "cuda"}
_FIRST_TENSOR_FIELD = pb.AttendResponse.OUTPUT_DATA_FIELD_NUMBER


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 64, 7):
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("a varint is too long")


def split(message: memoryview) -> tuple[bytes, dict[int, memoryview]]:
    """Sets the tensor fields apart: protobuf would copy them once more.

    ValueError or IndexError for bytes that are no protobuf message.
    """
    rest = bytearray()
    tensors: dict[int, memoryview] = {}
    at = 0
    while at < len(message):
        begin = at
        tag, at = _varint(message, at)
        wire_type = tag & 7
        value = at
        if wire_type == 0:
            _, at = _varint(message, at)
        elif wire_type == 2:
            length, value = _varint(message, at)
            at = value + length
        elif wire_type in (1, 5):
            at += 8 if wire_type == 1 else 4
        else:
            raise ValueError(f"wire type {wire_type}")
        if at > len(message):
            raise ValueError("a field is cut off")
        if tag >> 3 >= _FIRST_TENSOR_FIELD and wire_type == 2:
            tensors[tag >> 3] = message[value:at]
        else:
            rest += message[begin:at]
    return bytes(rest), tensors


def _times(times: pb.StageTimes) -> StageTimes:
    return StageTimes(
        receive_ns=times.receive_ns,
        queue_ns=times.queue_ns,
        upload_ns=times.upload_ns,
        kernel_ns=times.kernel_ns,
        download_ns=times.download_ns,
        send_ns=times.send_ns,
        total_ns=times.total_ns,
    )


def _broken(why: object) -> AttendantError:
    return AttendantError(
        StatusCode.INTERNAL, f"the server's reply breaks the contract: {why}"
    )


def decode_response(message: bytes, attempts: int) -> AttendResult:
    """INTERNAL for a reply that breaks the contract."""
    none = memoryview(b"")
    try:
        rest, tensors = split(memoryview(message))
        response = pb.AttendResponse.FromString(rest)
        data = tensors.get(pb.AttendResponse.OUTPUT_DATA_FIELD_NUMBER, none)
        out = decode("out", response.output, data)
        lse = None
        if response.HasField("lse"):
            data = tensors.get(pb.AttendResponse.LSE_DATA_FIELD_NUMBER, none)
            lse = decode("lse", response.lse, data)
    except (ValueError, IndexError, DecodeError) as error:
        raise _broken(error) from error
    by = response.served_by
    details = ResultDetails(
        request_id=response.request_id,
        served_by=ServedBy(
            backend=_BACKENDS.get(by.backend, "?"),
            device_index=by.device_index,
            device_uuid=by.device_uuid,
            kernel=by.kernel,
            compute_dtype=DTYPE_NAMES.get(by.compute_dtype, "?"),
        ),
        stages=_times(response.exposed),
        busy=_times(response.busy),
        batch_requests=response.batch.requests,
        batch_tokens=response.batch.tokens,
        workspace_bytes=response.memory.workspace_bytes,
        input_bytes=response.memory.input_bytes,
        output_bytes=response.memory.output_bytes,
        attempts=attempts,
    )
    return AttendResult(out, lse, lambda: details)


def _capability(row: pb.Capability) -> Capability:
    return Capability(
        kernel=row.kernel,
        backend=_BACKENDS.get(row.backend, "?"),
        op=row.op,
        min_compute_capability=row.min_compute_capability,
        max_compute_capability=row.max_compute_capability,
        input_dtypes=tuple(DTYPE_NAMES.get(d, "?") for d in row.input_dtypes),
        output_dtypes=tuple(DTYPE_NAMES.get(d, "?") for d in row.output_dtypes),
        max_head_dim=row.max_head_dim,
        boolean_mask=row.boolean_mask,
        additive_mask=row.additive_mask,
        alibi=row.alibi,
        softcap=row.softcap,
        sinks=row.sinks,
        window=row.window,
    )


def decode_server_info(message: bytes) -> ServerInfo:
    """INTERNAL for a reply that breaks the contract."""
    try:
        info = pb.GetServerInfoResponse.FromString(message)
    except DecodeError as error:
        raise _broken(error) from error
    return ServerInfo(
        version=info.version,
        build=info.build,
        uptime_ns=info.uptime_ns,
        devices=tuple(
            Device(
                index=device.index,
                uuid=device.uuid,
                name=device.name,
                backend=_BACKENDS.get(device.backend, "?"),
                memory_bytes=device.memory_bytes,
                compute_capability=device.compute_capability,
                num_sms=device.num_sms,
                instruction_set=device.instruction_set,
            )
            for device in info.devices
        ),
        bounds={
            field.name: getattr(info.bounds, field.name)
            for field in pb.Bounds.DESCRIPTOR.fields
        },
        capabilities=tuple(_capability(row) for row in info.capabilities),
    )
