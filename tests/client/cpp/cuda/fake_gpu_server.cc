#include "tests/client/cpp/cuda/fake_gpu_server.h"

#include <algorithm>
#include <cstring>

namespace attendant::client {

FakeGpuServer::FakeGpuServer(const cuda::FakeCuda& gpu) : gpu_(gpu) {
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                           &port_);
  builder.RegisterService(static_cast<v1::AttentionService::Service*>(this));
  builder.RegisterService(static_cast<v1::RegionService::Service*>(this));
  server_ = builder.BuildAndStart();
}

FakeGpuServer::~FakeGpuServer() {
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
}

v1::AttendRequest FakeGpuServer::last_request() const {
  const std::lock_guard lock(mutex_);
  return last_request_;
}

size_t FakeGpuServer::regions() const {
  const std::lock_guard lock(mutex_);
  return handles_.size();
}

void FakeGpuServer::ForgetRegions() {
  const std::lock_guard lock(mutex_);
  handles_.clear();
}

std::byte* FakeGpuServer::Find(const v1::Region& region) {
  const std::lock_guard lock(mutex_);
  const auto found = handles_.find(region.name());
  if (found == handles_.end()) return nullptr;
  std::byte* base = gpu_.Open(found->second);
  return base == nullptr ? nullptr : base + region.byte_offset();
}

grpc::Status FakeGpuServer::Attend(grpc::ServerContext*,
                                   const v1::AttendRequest* request,
                                   v1::AttendResponse* response) {
  {
    const std::lock_guard lock(mutex_);
    last_request_ = *request;
  }
  if (fail) return fail();
  *response->mutable_output() = request->q();
  response->mutable_output()->clear_region();
  std::string q = request->q_data();
  if (request->q().has_region()) {
    const v1::Region& region = request->q().region();
    const std::byte* bytes = Find(region);
    if (bytes == nullptr) return {grpc::StatusCode::NOT_FOUND, "no region"};
    q.assign(reinterpret_cast<const char*>(bytes),
             static_cast<size_t>(region.byte_length()));
  }
  if (!request->has_output_region()) {
    response->set_output_data(q);
    return grpc::Status::OK;
  }
  std::byte* out = Find(request->output_region());
  if (out == nullptr) return {grpc::StatusCode::NOT_FOUND, "no region"};
  std::memcpy(out, q.data(), q.size());
  *response->mutable_output()->mutable_region() = request->output_region();
  return grpc::Status::OK;
}

grpc::Status FakeGpuServer::GetServerInfo(grpc::ServerContext*,
                                          const v1::GetServerInfoRequest*,
                                          v1::GetServerInfoResponse* response) {
  v1::Device* device = response->add_devices();
  device->set_backend(v1::BACKEND_CUDA);
  device->set_uuid(cuda::FakeCuda::kUuid);
  response->add_region_kinds("cuda_ipc");
  return grpc::Status::OK;
}

grpc::Status FakeGpuServer::RegisterCudaIpc(
    grpc::ServerContext*, const v1::RegisterCudaIpcRequest* request,
    v1::RegionStatus* region) {
  if (gpu_.Open(request->handle()) == nullptr ||
      request->device_uuid() != cuda::FakeCuda::kUuid) {
    return {grpc::StatusCode::INVALID_ARGUMENT, "handle"};
  }
  const std::lock_guard lock(mutex_);
  region->set_name("region " + std::to_string(++registered_));
  handles_[region->name()] = request->handle();
  return grpc::Status::OK;
}

grpc::Status FakeGpuServer::Release(grpc::ServerContext*,
                                    const v1::ReleaseRequest* request,
                                    v1::ReleaseResponse*) {
  const std::lock_guard lock(mutex_);
  if (handles_.erase(request->name()) == 0) {
    return {grpc::StatusCode::NOT_FOUND, "no region"};
  }
  ++released_;
  return grpc::Status::OK;
}

grpc::Status FakeGpuServer::List(grpc::ServerContext*, const v1::ListRequest*,
                                 v1::ListResponse* response) {
  const bool busy = busy_lists > 0;
  if (busy) --busy_lists;
  const std::lock_guard lock(mutex_);
  for (const auto& [name, handle] : handles_) {
    v1::RegionStatus* region = response->add_regions();
    region->set_name(name);
    region->set_uses(busy ? 1 : 0);
  }
  return grpc::Status::OK;
}

}  // namespace attendant::client
