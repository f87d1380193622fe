// One Attend call's life: metadata seen -> body read -> parse -> validate ->
// admit -> copy tensors -> submit -> done -> encode -> finish.
#pragma once

#include <grpcpp/generic/async_generic_service.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "server/access/caller_access.h"
#include "server/calls/upload_slots.h"
#include "server/calls/upload_table.h"
#include "server/connections/receive_watch.h"
#include "server/engine/attention_engine.h"
#include "server/monitoring/metrics.h"
#include "server/monitoring/recent_errors.h"
#include "server/regions/event_waits.h"
#include "server/regions/region_options.h"
#include "server/regions/region_registry.h"
#include "server/request/bounds.h"
#include "server/request/wire_codec.h"
#include "server/tracing/call_trace.h"

namespace attendant::server {

// What all calls share. Outlives them.
struct CallEnvironment {
  CallEnvironment(AttentionEngine* engine, Metrics* metrics,
                  const Bounds& bounds, int64_t max_uploads,
                  int64_t window_bytes)
      : engine(engine),
        metrics(metrics),
        bounds(bounds),
        window_bytes(window_bytes),
        regions(bounds),
        event_waits(engine->region_device()),
        uploads(max_uploads),
        watch(window_bytes) {}

  AttentionEngine* const engine;
  Metrics* const metrics;
  const Bounds bounds;
  const int64_t window_bytes;  // of a stream; 0 = gRPC's choice
  RegionRegistry regions;
  RegionOptions region_options;  // set before the first call
  EventWaits event_waits;

  Tracer tracer;                // set before the first call
  int64_t slow_request_ns = 0;  // likewise; 0 = none is slow
  // Null = open to everybody. Outlives the calls.
  const CallerAccess* access = nullptr;

  RecentErrors errors;
  std::atomic<bool> draining{false};
  // Held by calls whose request message may be in memory or on its way.
  UploadSlots uploads;
  // Calls let in whose reply gRPC has not yet written.
  std::atomic<int64_t> open_calls{0};
  UploadTable upload_table;
  ReceiveWatch watch;
};

// OK with null where access is open to everybody.
inline absl::StatusOr<std::shared_ptr<const Identity>> CheckAccess(
    const CallEnvironment& environment, const grpc::ServerContextBase& context,
    const std::string& full_method) {
  if (environment.access == nullptr) return nullptr;
  return environment.access->Check(context, full_method);
}

// The caller's place in the queue, and no more priority than it may ask for.
inline void ApplyIdentity(const Identity& identity, ValidatedRequest* request) {
  request->priority = std::min(request->priority, identity.max_priority);
  request->caller = {identity.name, identity.weight, identity.queue_share};
}

// A request message as a door understands it, and its way to answer.
struct DecodedCall {
  ParsedRequest request;
  // Ends the call so long after its start, if that is the earliest deadline.
  std::optional<std::chrono::microseconds> timeout;
  // Arguments and result are those of EncodeAttendResponse.
  std::function<grpc::ByteBuffer(
      const v1::AttendResponse& header, std::shared_ptr<HostBlock> block,
      int64_t output_bytes, int64_t lse_offset, int64_t lse_bytes)>
      encode;
};

// One method that takes a request in one message and answers in one.
struct UnaryDoor {
  Method method;
  absl::StatusOr<DecodedCall> (*decode)(const grpc::ByteBuffer& message);
};

extern const UnaryDoor kAttendDoor;  // AttentionService.Attend
extern const UnaryDoor kInferDoor;   // GRPCInferenceService.ModelInfer

// The reactor of a call whose metadata has come and whose body has not. It
// deletes itself. Refuses at once, without reading the body, when draining
// (UNAVAILABLE) or when too many bodies are on their way (RESOURCE_EXHAUSTED).
//
// `identity` is who calls (null = nobody asked). Its rights were checked.
//
// Threads: gRPC's parse, validate and copy what is small; the engine's copy
// what is large and send the reply; none of them waits.
grpc::ServerGenericBidiReactor* StartAttendCall(
    CallEnvironment* environment, grpc::GenericCallbackServerContext* context,
    const UnaryDoor& door = kAttendDoor,
    std::shared_ptr<const Identity> identity = nullptr);

}  // namespace attendant::server
