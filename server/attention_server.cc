#include "server/attention_server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include <mutex>
#include <thread>
#include <utility>

#include "kernels/base/status_macros.h"
#include "server/calls/attention_service.h"
#include "server/calls/inference_service.h"
#include "server/connections/connection_metrics.h"
#include "server/connections/connection_window.h"
#include "server/connections/grpc_listeners.h"
#include "server/connections/receive_watch.h"
#include "server/connections/socket_queues.h"
#include "server/health.h"
#include "server/log/log.h"
#include "server/monitoring/admin_http.h"
#include "server/monitoring/gpu_metrics.h"
#include "server/monitoring/log_metrics.h"
#include "server/monitoring/metrics.h"
#include "server/monitoring/process_metrics.h"
#include "server/monitoring/status_assets.h"
#include "server/monitoring/status_report.h"
#include "server/regions/region_door.h"
#include "server/regions/region_makers.h"
#include "server/regions/region_metrics.h"
#include "server/regions/region_service.h"
#include "server/server_info.h"
#include "server/tracing/trace_metrics.h"

namespace attendant::server {
namespace {

using std::chrono::milliseconds;

void InitPlugins(bool reflection) {
  grpc::EnableDefaultHealthCheckService(true);
  static std::once_flag once;
  if (reflection) {
    std::call_once(once,
                   grpc::reflection::InitProtoReflectionServerBuilderPlugin);
  }
}

// Messages of ordinary methods (GetServerInfo, health, reflection, regions)
// come whole before anybody can refuse them, and need no place
// (calls/upload_slots). Beyond this gRPC resets streams, with
// RESOURCE_EXHAUSTED. Half of what the watch lets pass is left for what gRPC
// does not count.
void BoundMessages(const ServerOptions& options, grpc::ServerBuilder* builder) {
  grpc::ResourceQuota quota("messages");
  quota.Resize(static_cast<size_t>(options.MessageMemoryBound() -
                                   options.max_uploads *
                                       (ReceiveWatch::kSlackBytes / 2)));
  builder->SetResourceQuota(quota);
}

void AddChannelArguments(const ServerOptions& options,
                         grpc::ServerBuilder* builder) {
  // gRPC checks its limit only when a message is whole in memory, and answers
  // with the wrong code: the call itself refuses what is too large.
  builder->SetMaxReceiveMessageSize(-1);
  builder->SetMaxSendMessageSize(-1);
  // Tensors do not compress, and a small compressed message may be a large one.
  builder->SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder->SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  const auto set = [&](const char* name, int64_t value) {
    builder->AddChannelArgument(name, static_cast<int>(value));
  };
  // A forgotten server must not take half of the new one's traffic.
  set(GRPC_ARG_ALLOW_REUSEPORT, 0);
  set(GRPC_ARG_MAX_METADATA_SIZE, options.max_metadata_bytes);
  set(GRPC_ARG_KEEPALIVE_TIME_MS, options.keepalive_seconds * 1000);
  set(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, options.keepalive_timeout_seconds * 1000);
  set(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
      options.min_ping_interval_seconds * 1000);
  set(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  if (options.http2_window_bytes > 0) {
    // Without the tuner frames stay at 16 KiB unless told otherwise.
    set(GRPC_ARG_HTTP2_BDP_PROBE,
        FixConnectionWindow(options.http2_window_bytes) ? 1 : 0);
    set(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, options.http2_window_bytes);
    set(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, 1 << 20);
  }
  if (options.max_streams_per_connection > 0) {
    set(GRPC_ARG_MAX_CONCURRENT_STREAMS, options.max_streams_per_connection);
  }
  set(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, options.handshake_seconds * 1000);
  if (options.max_connection_idle_seconds > 0) {
    set(GRPC_ARG_MAX_CONNECTION_IDLE_MS,
        options.max_connection_idle_seconds * 1000);
  }
  if (options.max_connection_age_seconds > 0) {
    set(GRPC_ARG_MAX_CONNECTION_AGE_MS,
        options.max_connection_age_seconds * 1000);
    set(GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS,
        options.max_connection_age_grace_seconds * 1000);
  }
}

bool IsUnixSocket(const std::string& address) {
  return address.rfind("unix:", 0) == 0;
}

std::string WithPort(const std::string& address, int port) {
  if (IsUnixSocket(address)) return address;
  return address.substr(0, address.rfind(':') + 1) + std::to_string(port);
}

Bounds BoundsOf(const ServerOptions& options, const AttentionEngine& engine) {
  const EngineSnapshot snapshot = engine.Snapshot();
  Bounds bounds = options.bounds;
  options.regions.ApplyTo(&bounds);
  bounds.host_pool_bytes = snapshot.host_pool_capacity_bytes;
  bounds.device_pool_bytes = snapshot.device_reserved_bytes;
  bounds.max_uploads = options.max_uploads;
  bounds.host_memory_bound_bytes = options.HostMemoryBound();
  return bounds;
}

template <typename Condition>
bool WaitUntil(Clock::time_point deadline, const Condition& condition) {
  while (!condition()) {
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(milliseconds(1));
  }
  return true;
}

}  // namespace

class AttentionServer::Impl {
 public:
  Impl(const ServerOptions& options, std::unique_ptr<AttentionEngine> engine)
      : options_(options),
        engine_(std::move(engine)),
        gpu_(engine_->device().is_cuda ? engine_->device().uuid : ""),
        metrics_({ServerVersion(), ServerBuild()}),
        environment_(engine_.get(), &metrics_, BoundsOf(options, *engine_),
                     options.max_uploads, options.http2_window_bytes),
        service_(&environment_),
        named_service_(MakeNamedService(&environment_)),
        inference_service_(MakeInferenceService(&environment_, &health_)),
        region_makers_(options.regions, engine_.get(), &environment_.regions) {
    environment_.region_options = options.regions;
    environment_.slow_request_ns = options.slow_request_ms * 1'000'000;
  }

  ~Impl() {
    admin_.reset();
    health_.Attach(nullptr);
    listeners_.reset();
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
    server_.reset();
    region_door_.reset();
    environment_.regions.Clear();
    // Jobs that are left end now, and their calls still count in `metrics_`.
    engine_.reset();
  }

  absl::Status Serve() {
    RETURN_IF_ERROR(StartTracing());
    ASSIGN_OR_RETURN(access_, CallerAccess::Create(options_.policy));
    environment_.access = access_.get();
    environment_.uploads.SetIdentities(access_->Identities());
    std::shared_ptr<grpc::ServerCredentials> network =
        grpc::InsecureServerCredentials();
    if (options_.tls.enabled()) {
      ASSIGN_OR_RETURN(network, MakeTlsCredentials(options_.tls));
    }
    InitPlugins(options_.reflection);
    grpc::ServerBuilder builder;
    AddChannelArguments(options_, &builder);
    BoundMessages(options_, &builder);
    builder.RegisterCallbackGenericService(&service_);
    builder.RegisterService(named_service_.get());
    builder.RegisterService(inference_service_.get());
    if (options_.regions.served()) {
      region_service_ = MakeRegionService(options_.regions, &environment_);
      builder.RegisterService(region_service_.get());
    }
    listeners_ = std::make_unique<GrpcListeners>(
        GrpcListeners::Options{.addresses = options_.ListenAddresses(),
                               .network = network,
                               .unix_socket_mode = options_.unix_socket_mode,
                               .limits = options_.connections});
    ASSIGN_OR_RETURN(server_, listeners_->Start(&builder));
    if (!options_.regions.socket.empty()) RETURN_IF_ERROR(OpenRegionDoor());
    health_.SetReady("");
    health_.Attach(server_->GetHealthCheckService());
    return options_.http.empty() ? absl::OkStatus() : ServeHttp();
  }

  absl::Status StartTracing() {
    if (options_.otlp_endpoint.empty()) return absl::OkStatus();
    ASSIGN_OR_RETURN(HttpUrl url, OtlpUrl(options_.otlp_endpoint));
    const DeviceDescription& device = engine_->device();
    exporter_ = std::make_unique<SpanExporter>(SpanExporter::Options{
        .url = std::move(url),
        .resource = {{"service.name", "attendant-server"},
                     {"service.version", ServerVersion()},
                     {"service.instance.id", NewSpanId()},
                     {"attendant.device", device.name},
                     {"attendant.device_uuid", device.uuid}}});
    environment_.tracer = {exporter_.get(), options_.trace_share};
    return absl::OkStatus();
  }

  absl::Status OpenRegionDoor() {
    ASSIGN_OR_RETURN(region_door_,
                     RegionDoor::Start(options_.regions, &region_makers_,
                                       &environment_.regions,
                                       [this](const RegionEntry& entry) {
                                         return DescribeRegion(
                                             entry, engine_->device());
                                       }));
    return absl::OkStatus();
  }

  absl::Status ServeHttp() {
    auto admin = AdminHttp::Start(
        options_.http,
        {.metrics = [this] { return MetricsText(); },
         .why_not_live = [this] { return health_.why_not_live(); },
         .why_not_ready = [this] { return health_.why_not_ready(); },
         .pages = StatusPages()});
    if (!admin.ok()) return admin.status();
    admin_ = std::move(admin).value();
    http_address_ = WithPort(options_.http, admin_->port());
    return absl::OkStatus();
  }

  // /statusz, the files it needs, and the numbers it shows.
  std::vector<AdminHttp::Page> StatusPages() const {
    std::vector<AdminHttp::Page> pages = {
        {"/statusz.json", "application/json", [this] { return StatusJson(); }}};
    for (const auto& [name, text] : StatusAssets()) {
      const std::string file(name);
      const std::string extension = file.substr(file.rfind('.') + 1);
      pages.push_back({extension == "html" ? "/statusz" : "/statusz/" + file,
                       "text/" +
                           (extension == "js" ? "javascript" : extension) +
                           "; charset=utf-8",
                       [text = text] { return std::string(text); }});
    }
    return pages;
  }

  std::string StatusJson() const {
    return RenderStatusJson({.time = std::chrono::system_clock::now(),
                             .version = ServerVersion(),
                             .build = ServerBuild(),
                             .why_not_live = health_.why_not_live(),
                             .why_not_ready = health_.why_not_ready(),
                             .device = engine_->device(),
                             .flags = ShownFlags(options_),
                             .errors = environment_.errors.NewestFirst(),
                             .families = CollectFamilies()});
  }

  std::string MetricsText() const {
    return RenderPrometheusText(CollectFamilies());
  }

  // The one snapshot that /metrics and /statusz.json show.
  std::vector<prometheus::MetricFamily> CollectFamilies() const {
    std::vector<prometheus::MetricFamily> families =
        metrics_.Collect(engine_->Snapshot(), engine_->device(),
                         health_.why_not_ready().empty());
    gpu_.Append("cuda:" + std::to_string(engine_->device().index), &families);
    AppendRegionMetrics(environment_.regions.Counts(), &families);
    AppendConnectionMetrics(listeners_->gate(), &families);
    AppendTraceMetrics(exporter_.get(), &families);
    AppendLogMetrics(&families);
    AppendProcessMetrics(&families);
    return families;
  }

  bool CheckHealth() {
    const EngineSnapshot snapshot = engine_->Snapshot();
    if (snapshot.healthy) return true;
    environment_.draining = true;
    health_.SetLive("unhealthy: " + snapshot.unhealthy_reason);
    return false;
  }

  bool Drain(Clock::time_point deadline) {
    health_.SetReady("draining");
    environment_.draining = true;
    // Calls that were let in before may still bring their bodies.
    bool all =
        WaitUntil(deadline, [&] { return environment_.uploads.taken() == 0; });
    engine_->Drain(deadline);
    // Then gRPC writes the last replies to its sockets and gives their memory
    // back, and then the kernel delivers them.
    all &= WaitUntil(deadline, [&] {
      return environment_.open_calls == 0 &&
             engine_->Snapshot().host_pool_used_bytes == 0;
    });
    all = all &&
          WaitUntil(deadline, [] { return UndeliveredSocketBytes() == 0; });
    // What it still has to tell is not worth more of the supervisor's patience.
    if (exporter_ != nullptr) exporter_->Flush(milliseconds(2'000));
    return all;
  }

  const ServerOptions options_;
  std::unique_ptr<AttentionEngine> engine_;
  GpuMetrics gpu_;
  Metrics metrics_;
  std::unique_ptr<SpanExporter> exporter_;  // null = none; outlives the calls
  Health health_;
  std::unique_ptr<CallerAccess> access_;
  CallEnvironment environment_;
  AttentionService service_;
  std::unique_ptr<grpc::Service> named_service_;
  std::unique_ptr<grpc::Service> inference_service_;
  const RegionMakers region_makers_;
  std::unique_ptr<grpc::Service> region_service_;  // null = no regions
  std::unique_ptr<RegionDoor> region_door_;        // null = no socket
  std::unique_ptr<GrpcListeners> listeners_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<AdminHttp> admin_;
  std::string http_address_;
};

AttentionServer::AttentionServer(std::unique_ptr<Impl> impl)
    : impl_(std::move(impl)) {}
AttentionServer::~AttentionServer() = default;

absl::StatusOr<std::unique_ptr<AttentionServer>> AttentionServer::Start(
    const ServerOptions& options, std::unique_ptr<AttentionEngine> engine) {
  auto impl = std::make_unique<Impl>(options, std::move(engine));
  if (absl::Status status = impl->Serve(); !status.ok()) return status;
  return std::unique_ptr<AttentionServer>(new AttentionServer(std::move(impl)));
}

const std::vector<std::string>& AttentionServer::grpc_addresses() const {
  return impl_->listeners_->addresses();
}
const std::string& AttentionServer::http_address() const {
  return impl_->http_address_;
}
AttentionEngine& AttentionServer::engine() { return *impl_->engine_; }
Health& AttentionServer::health() { return impl_->health_; }
std::string AttentionServer::MetricsText() const {
  return impl_->MetricsText();
}
int64_t AttentionServer::Begun() const {
  return impl_->metrics_.started(Method::kAttend) +
         impl_->metrics_.started(Method::kAttendStream) +
         impl_->metrics_.started(Method::kModelInfer);
}
int64_t AttentionServer::Answered() const {
  constexpr int kOk = grpc::StatusCode::OK;
  return impl_->metrics_.finished(Method::kAttend, kOk) +
         impl_->metrics_.finished(Method::kAttendStream, kOk) +
         impl_->metrics_.finished(Method::kModelInfer, kOk);
}
int64_t AttentionServer::Open() const { return impl_->environment_.open_calls; }
int64_t AttentionServer::Uploads() const {
  return impl_->environment_.uploads.taken();
}
absl::Status AttentionServer::ReloadPolicy() {
  RETURN_IF_ERROR(impl_->access_->Reload());
  impl_->environment_.uploads.SetIdentities(impl_->access_->Identities());
  return absl::OkStatus();
}
bool AttentionServer::CheckHealth() { return impl_->CheckHealth(); }
void AttentionServer::StopBeingReady() { impl_->health_.SetReady("draining"); }
bool AttentionServer::Drain(Clock::time_point deadline) {
  return impl_->Drain(deadline);
}

}  // namespace attendant::server
