#include "server/options/option_table.h"

#include "server/options/option_kinds.h"

namespace attendant::server {
namespace {

void AddServing(ServerOptions* o, std::vector<Option>* table) {
  table->insert(
      table->end(),
      {AddressOption("listen", &o->listen, false,
                     "gRPC address: HOST:PORT (port 0 = any, printed) or "
                     "unix:/path; several by commas"),
       AddressOption(
           "http", &o->http, true,
           "address of /metrics, /healthz, /readyz and /statusz; empty = none"),
       ChoiceOption<LogLevel>("log_level", &o->log_level,
                              {{"debug", LogLevel::kDebug},
                               {"info", LogLevel::kInfo},
                               {"warning", LogLevel::kWarning},
                               {"error", LogLevel::kError}},
                              "least severe log line to write"),
       BytesOption("log_buffer_bytes", &o->log_buffer_bytes, 16 << 10,
                   "log lines that wait for a slow reader of stderr; what "
                   "finds no room is lost and counted: no call waits for the "
                   "log"),
       IntegerOption("slow_request_ms", &o->slow_request_ms, {0, 86'400'000},
                     "an answer that took so long has a line of its own in the "
                     "log, with its stages; 0 = none has"),
       IntegerOption("drain_seconds", &o->drain_seconds, {0, 86'400},
                     "time that running requests get after SIGTERM"),
       IntegerOption("lame_duck_seconds", &o->lame_duck_seconds, {0, 3'600},
                     "time from 'not ready' to refusing new requests, for load "
                     "balancers to notice; a second signal ends it"),
       TextOption("otlp_endpoint", "URL", &o->otlp_endpoint,
                  "collector that spans of traced calls are sent to (OTLP over "
                  "HTTP, JSON): http://HOST[:4318][/v1/traces]; empty = none"),
       ShareOption("trace_share", &o->trace_share,
                   "share of the calls without a traceparent that are traced "
                   "nevertheless"),
       ChoiceOption<bool>("reflection", &o->reflection,
                          {{"true", true}, {"false", false}},
                          "gRPC server reflection (grpcurl)")});
}

void AddSecurity(ServerOptions* o, std::vector<Option>* table) {
  table->insert(
      table->end(),
      {TextOption("tls_cert", "FILE", &o->tls.certificate,
                  "PEM certificate chain: TLS on every HOST:PORT of --listen "
                  "(unix sockets stay plain)"),
       TextOption("tls_key", "FILE", &o->tls.key, "its PEM key, unencrypted"),
       TextOption("tls_client_ca", "FILE", &o->tls.client_ca,
                  "mutual TLS: clients must show a certificate of this PEM "
                  "authority"),
       IntegerOption("tls_refresh_seconds", &o->tls.refresh_seconds,
                     {1, 86'400},
                     "how often these files are looked at: new connections "
                     "use what they hold"),
       TextOption("policy", "FILE", &o->policy,
                  "JSON file that says who may call what (see "
                  "deploy/guides/security.md), read again on SIGHUP; empty = "
                  "everybody everything"),
       ModeOption("unix_socket_mode", &o->unix_socket_mode,
                  "file mode of unix sockets, octal")});
}

void AddEngine(ServerOptions* o, std::vector<Option>* table) {
  EngineOptions* e = &o->engine;
  using Backend = EngineOptions::Backend;
  table->insert(
      table->end(),
      {ChoiceOption<Backend>("backend", &e->backend,
                             {{"auto", Backend::kAuto},
                              {"cuda", Backend::kCuda},
                              {"cpu", Backend::kCpu}},
                             "cuda fails without a usable GPU; auto takes the "
                             "CPU then, and says so"),
       TextOption("cuda_device", "INDEX|UUID", &e->cuda_device,
                  "GPU to use; empty = the first usable one"),
       IntegerOption("cpu_threads", &e->cpu_threads, {0, 4'096},
                     "worker threads of the CPU backend; 0 = all cores"),
       IntegerOption("copy_threads", &e->copy_threads, {0, 256},
                     "threads that copy tensor bytes into the host pool; 0 = a "
                     "quarter of the cores"),
       BytesOption("host_pool_bytes", &e->host_pool_bytes, 1 << 20,
                   "host memory for tensors in flight (pinned for a GPU)"),
       ChoiceOption<bool>("scrub_host_pool", &e->scrub_host_pool,
                          {{"true", true}, {"false", false}},
                          "zero a request's tensors in the host pool when it "
                          "is answered (a pass over memory per request); no "
                          "caller sees another's bytes either way"),
       BytesOption("device_pool_bytes", &e->device_pool_bytes, 1 << 20,
                   "GPU memory for tensors and scratch"),
       SecondsOption("stuck_seconds", &e->stuck_after,
                     "a batch that takes so long beyond four times what was "
                     "expected means that the GPU is lost: the server is no "
                     "longer live and ends with exit code 3; 0 = wait on"),
       ShareOption("self_check_share", &e->self_check_share,
                   "share of the requests whose answers are checked when the "
                   "device is idle (some rows, in double, on the host); 0 = "
                   "none"),
       BytesOption("self_check_bytes", &e->self_check_bytes, 0,
                   "input and output of the largest request that is checked; "
                   "of one at a time a head is copied"),
       BytesOption("work_item_bytes", &e->work_item_bytes, 1 << 16,
                   "larger requests are cut into items of about this size"),
       BytesOption("max_batch_bytes", &e->max_batch_bytes, 1 << 16,
                   "most bytes of one launch"),
       FlopsOption("work_item_flops", &e->work_item_flops,
                   "and of about this work; 0 = fit for the device", true),
       FlopsOption("max_batch_flops", &e->max_batch_flops,
                   "most work of one launch; while several identities use the "
                   "device, --work_item_flops; 0 = fit for the device",
                   true)});
}

void AddBounds(ServerOptions* o, std::vector<Option>* table) {
  Bounds* b = &o->bounds;
  table->insert(
      table->end(),
      {BytesOption("max_request_bytes", &b->max_request_bytes, 1'024,
                   "largest request message"),
       BytesOption("max_response_bytes", &b->max_response_bytes, 1'024,
                   "largest output with its LSE"),
       IntegerOption("max_head_dim", &b->max_head_dim, {1, 256},
                     "largest head_dim of q, k or v"),
       IntegerOption("max_batch", &b->max_batch, {1, kMaxInt},
                     "most sequences of a request"),
       IntegerOption("max_heads", &b->max_heads, {1, kMaxInt},
                     "most query heads of a request"),
       IntegerOption("max_seqlen", &b->max_seqlen, {1, kMaxInt},
                     "longest sequence"),
       FlopsOption("max_work_flops", &b->max_work_flops,
                   "most work of one request"),
       IntegerOption("max_queued_requests", &b->max_queued_requests,
                     {1, kMaxInt},
                     "requests that may wait; one more is refused"),
       BytesOption("max_queued_bytes", &b->max_queued_bytes, 0,
                   "input and output bytes that may wait; 0 = as many as the "
                   "host pool holds"),
       FlopsOption("max_queued_flops", &b->max_queued_flops,
                   "work that may wait"),
       IntegerOption("max_request_id_chars", &b->max_request_id_chars, {1, 128},
                     "longest request_id and ordering_key"),
       IntegerOption("default_deadline_ms", &b->default_deadline_ms,
                     {1, 86'400'000},
                     "a request never takes longer; its caller's deadline may "
                     "be earlier"),
       IntegerOption("max_uploads", &o->max_uploads, {1, 1'000'000},
                     "calls whose body may be arriving at once; one more is "
                     "refused before its body is read. Half are kept for the "
                     "identities of the policy, by weight and one at least: "
                     "none of them can fill what others are due")});
}

void AddRegions(ServerOptions* o, std::vector<Option>* table) {
  RegionOptions* r = &o->regions;
  table->insert(
      table->end(),
      {RegionKindsOption(r),
       TextOption("region_socket", "PATH", &r->socket,
                  "unix socket over which callers pass memory as file "
                  "descriptors (memfd, CUDA VMM); empty = none"),
       UsersOption("region_users", &r->users,
                   "who may use it, beside root and the server's own user"),
       IntegerOption("max_regions", &r->max_regions, {1, 1'000'000},
                     "regions of all owners together"),
       IntegerOption("max_regions_per_owner", &r->max_regions_per_owner,
                     {1, 1'000'000}, "regions of one owner"),
       BytesOption("region_bytes", &r->max_bytes, 1 << 12,
                   "bytes in regions of all owners together"),
       BytesOption("region_bytes_per_owner", &r->max_bytes_per_owner, 0,
                   "bytes in regions of one owner; 0 = as region_bytes"),
       IntegerOption("region_idle_seconds", &r->idle_seconds, {1, 864'000},
                     "a region made by RPC that nobody used for so long is "
                     "released")});
}

void AddTransport(ServerOptions* o, std::vector<Option>* table) {
  table->insert(
      table->end(),
      {IntegerOption("http2_window_bytes", &o->http2_window_bytes, {0, 1 << 30},
                     "what a stream, and all of a connection, may send ahead; "
                     "0 = gRPC tunes it",
                     true),
       IntegerOption("busy_poll_us", &o->busy_poll_us, {0, 1'000'000},
                     "how long one thread looks for the next call before it "
                     "sleeps, on machines with 8 cores and more; 0 = not at "
                     "all"),
       IntegerOption("max_streams_per_connection",
                     &o->max_streams_per_connection, {0, 1'000'000},
                     "calls at once on one connection; 0 = no limit"),
       IntegerOption("max_connections", &o->connections.all, {0, 1'000'000},
                     "gRPC connections at once; one more is reset; 0 = no "
                     "limit"),
       IntegerOption("max_connections_per_peer", &o->connections.per_peer,
                     {0, 1'000'000},
                     "of one IP address, or one user of a unix socket; 0 = no "
                     "limit"),
       IntegerOption("handshake_seconds", &o->handshake_seconds, {1, 3'600},
                     "time a new connection has to say that it speaks HTTP/2 "
                     "(and TLS)"),
       IntegerOption("max_connection_idle_seconds",
                     &o->max_connection_idle_seconds, {0, 864'000},
                     "connections without a call for so long are closed; 0 = "
                     "never"),
       IntegerOption("max_connection_age_seconds",
                     &o->max_connection_age_seconds, {0, 864'000},
                     "connections are closed (gracefully) at this age, so that "
                     "clients look for new servers; 0 = never"),
       IntegerOption("max_connection_age_grace_seconds",
                     &o->max_connection_age_grace_seconds, {0, 86'400},
                     "time that calls of an aged connection may still take"),
       IntegerOption("keepalive_seconds", &o->keepalive_seconds, {1, 86'400},
                     "a silent connection is probed after this time"),
       IntegerOption("keepalive_timeout_seconds", &o->keepalive_timeout_seconds,
                     {1, 3'600}, "and closed this long after the probe"),
       IntegerOption("min_ping_interval_seconds", &o->min_ping_interval_seconds,
                     {0, 3'600},
                     "clients that ping more often are told to go away"),
       IntegerOption("max_metadata_bytes", &o->max_metadata_bytes,
                     {1'024, 1 << 20}, "most metadata of a call", true)});
}

}  // namespace

std::vector<Option> OptionTable(ServerOptions* options) {
  std::vector<Option> table;
  AddServing(options, &table);
  AddSecurity(options, &table);
  AddEngine(options, &table);
  AddBounds(options, &table);
  AddTransport(options, &table);
  AddRegions(options, &table);
  return table;
}

}  // namespace attendant::server
