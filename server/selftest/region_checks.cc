#include "server/selftest/region_checks.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "attendant/v1/attention.grpc.pb.h"
#include "attendant/v1/region.grpc.pb.h"
#include "kernels/base/status_macros.h"
#include "server/regions/region_registry.h"
#include "server/selftest/direct_call.h"
#include "server/selftest/memfd_caller.h"

namespace attendant::server {
namespace {

class RegionCaller {
 public:
  explicit RegionCaller(const std::shared_ptr<grpc::Channel>& channel)
      : attention_(v1::AttentionService::NewStub(channel)),
        regions_(v1::RegionService::NewStub(channel)) {}

  void Prepare(grpc::ClientContext* context) const {
    context->AddMetadata(kRegionOwnerMetadata, owner_);
    context->set_wait_for_ready(true);
    context->set_deadline(std::chrono::system_clock::now() + kSelftestPatience);
  }
  v1::AttentionService::Stub& attention() { return *attention_; }
  v1::RegionService::Stub& regions() { return *regions_; }
  const std::string& owner() const { return owner_; }

 private:
  const std::string owner_ = RandomRegionName();
  const std::unique_ptr<v1::AttentionService::Stub> attention_;
  const std::unique_ptr<v1::RegionService::Stub> regions_;
};

absl::Status FromGrpc(const char* what, const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      absl::StrCat(what, ": ", status.error_message()));
}

// The probe with its tensors in a region, one behind the other.
struct Moved {
  v1::AttendRequest request;
  std::string inputs;  // of the region's first bytes
  int64_t output_offset = 0, lse_offset = 0, bytes = 0;
};

Moved Move(const DoorProbe& probe, const std::string& region_name) {
  Moved moved;
  moved.request = probe.request;
  const auto place = [&](v1::Region* region, size_t bytes) {
    region->set_name(region_name);
    region->set_byte_offset(moved.bytes);
    region->set_byte_length(static_cast<int64_t>(bytes));
    const int64_t at = moved.bytes;
    moved.bytes = AlignedToBlock(at + static_cast<int64_t>(bytes));
    return at;
  };
  const auto move = [&](v1::TensorSpec* spec, std::string* data) {
    place(spec->mutable_region(), data->size());
    moved.inputs += *data;
    moved.inputs.resize(static_cast<size_t>(moved.bytes), '\0');
    data->clear();
  };
  move(moved.request.mutable_q(), moved.request.mutable_q_data());
  move(moved.request.mutable_k(), moved.request.mutable_k_data());
  move(moved.request.mutable_v(), moved.request.mutable_v_data());
  moved.output_offset =
      place(moved.request.mutable_output_region(), probe.output_data.size());
  moved.lse_offset =
      place(moved.request.mutable_lse_region(), probe.lse_data.size());
  return moved;
}

absl::Status Attend(RegionCaller& caller, const v1::AttendRequest& request) {
  grpc::ClientContext context;
  caller.Prepare(&context);
  v1::AttendResponse reply;
  return FromGrpc("Attend",
                  caller.attention().Attend(&context, request, &reply));
}

absl::Status Write(RegionCaller& caller, const std::string& name,
                   const std::string& bytes) {
  grpc::ClientContext context;
  caller.Prepare(&context);
  v1::WriteResponse reply;
  const auto writer = caller.regions().Write(&context, &reply);
  v1::WriteRequest chunk;
  chunk.set_name(name);
  chunk.set_data(bytes);
  writer->Write(chunk);
  writer->WritesDone();
  return FromGrpc("Write", writer->Finish());
}

absl::StatusOr<std::string> Read(RegionCaller& caller, const std::string& name,
                                 int64_t offset, size_t bytes) {
  grpc::ClientContext context;
  caller.Prepare(&context);
  v1::ReadRequest request;
  request.set_name(name);
  request.set_byte_offset(offset);
  request.set_byte_length(static_cast<int64_t>(bytes));
  const auto reader = caller.regions().Read(&context, request);
  std::string all;
  v1::ReadResponse chunk;
  while (reader->Read(&chunk)) all += chunk.data();
  RETURN_IF_ERROR(FromGrpc("Read", reader->Finish()));
  return all;
}

}  // namespace

absl::StatusOr<std::string> CheckSharedMemory(
    const std::shared_ptr<grpc::Channel>& channel, const std::string& socket,
    const DoorProbe& probe) {
  RegionCaller caller(channel);
  const int64_t bytes = Move(probe, "").bytes;
  ASSIGN_OR_RETURN(const std::unique_ptr<MemfdCaller> memory,
                   MemfdCaller::Create(socket, caller.owner(), bytes));
  const Moved moved = Move(probe, memory->region_name());
  std::memcpy(memory->data(), moved.inputs.data(), moved.inputs.size());
  RETURN_IF_ERROR(Attend(caller, moved.request));
  const auto at = [&](int64_t offset, size_t size) {
    return std::string(reinterpret_cast<const char*>(memory->data()) + offset,
                       size);
  };
  RETURN_IF_ERROR(CheckAnswer(probe,
                              at(moved.output_offset, probe.output_data.size()),
                              at(moved.lse_offset, probe.lse_data.size())));
  return absl::StrCat("bitwise, ", bytes >> 10, " KiB by descriptor");
}

absl::StatusOr<std::string> CheckBuffer(
    const std::shared_ptr<grpc::Channel>& channel, bool on_device,
    const DoorProbe& probe) {
  RegionCaller caller(channel);
  v1::AllocateBufferRequest allocate;
  allocate.set_byte_length(Move(probe, "").bytes);
  allocate.set_memory(on_device ? v1::AllocateBufferRequest::MEMORY_DEVICE
                                : v1::AllocateBufferRequest::MEMORY_HOST);
  v1::RegionStatus region;
  {
    grpc::ClientContext context;
    caller.Prepare(&context);
    RETURN_IF_ERROR(
        FromGrpc("AllocateBuffer",
                 caller.regions().AllocateBuffer(&context, allocate, &region)));
  }
  const Moved moved = Move(probe, region.name());
  RETURN_IF_ERROR(Write(caller, region.name(), moved.inputs));
  RETURN_IF_ERROR(Attend(caller, moved.request));
  ASSIGN_OR_RETURN(const std::string output,
                   Read(caller, region.name(), moved.output_offset,
                        probe.output_data.size()));
  ASSIGN_OR_RETURN(
      const std::string lse,
      Read(caller, region.name(), moved.lse_offset, probe.lse_data.size()));
  RETURN_IF_ERROR(CheckAnswer(probe, output, lse));
  grpc::ClientContext context;
  caller.Prepare(&context);
  v1::ReleaseRequest release;
  release.set_name(region.name());
  v1::ReleaseResponse released;
  RETURN_IF_ERROR(FromGrpc(
      "Release", caller.regions().Release(&context, release, &released)));
  return "written, used, read and released, bitwise";
}

}  // namespace attendant::server
