#include "tests/integration/region_road.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "server/regions/region_registry.h"

namespace attendant::testing {
namespace {

int64_t Aligned(int64_t bytes) { return (bytes + 255) / 256 * 256; }

void WriteTo(v1::RegionService::Stub& regions, const std::string& owner,
             const std::string& name, int64_t offset,
             const std::string& bytes) {
  constexpr size_t kChunk = 1 << 16;
  grpc::ClientContext context;
  context.AddMetadata(server::kRegionOwnerMetadata, owner);
  v1::WriteResponse reply;
  const auto writer = regions.Write(&context, &reply);
  v1::WriteRequest chunk;
  chunk.set_name(name);
  chunk.set_byte_offset(offset);
  for (size_t done = 0; done < bytes.size(); done += kChunk) {
    chunk.set_data(bytes.substr(done, kChunk));
    if (!writer->Write(chunk)) break;
    chunk.Clear();
  }
  writer->WritesDone();
  const grpc::Status status = writer->Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(reply.bytes_written(), static_cast<int64_t>(bytes.size()));
}

}  // namespace

std::string RoadSocket() {
  return ::testing::TempDir() + "/attendant_regions." +
         std::to_string(getpid());
}

const char* RoadName(Road road) {
  switch (road) {
    case Road::kHostBuffer:
      return "host_buffer";
    case Road::kDeviceBuffer:
      return "device_buffer";
    case Road::kMemfd:
      return "memfd";
    case Road::kPosix:
      return "posix";
  }
  return "?";
}

RegionRoad::RegionRoad(RealServer* server, Road road, int64_t bytes)
    : server_(server),
      road_(road),
      owner_(server::RandomRegionName()),
      regions_(
          v1::RegionService::NewStub(ConnectedChannel(server->address()))) {
  Make(bytes);
}

RegionRoad::~RegionRoad() {
  if (!shm_name_.empty()) {
    munmap(mapped_, mapped_bytes_);
    shm_unlink(shm_name_.c_str());
  }
  if (road_ == Road::kMemfd) return;  // goes with its connection
  if (name().empty()) return;
  grpc::ClientContext context;
  Begin(&context);
  v1::ReleaseRequest request;
  request.set_name(name());
  v1::ReleaseResponse reply;
  const grpc::Status status = regions_->Release(&context, request, &reply);
  EXPECT_TRUE(status.ok()) << status.error_message();
}

void RegionRoad::Begin(grpc::ClientContext* context) const {
  context->AddMetadata(server::kRegionOwnerMetadata, owner_);
}

void RegionRoad::MakeMemfd(int64_t bytes) {
  auto shared = client::SharedTensors::Create(RoadSocket(), owner_, bytes);
  ASSERT_TRUE(shared.ok()) << shared.status();
  memfd_ = *std::move(shared);
  mapped_ = memfd_->range().data;
  region_.set_name(memfd_->range().name);
  region_.set_byte_length(bytes);
}

void RegionRoad::MakePosix(int64_t bytes) {
  shm_name_ = "/attendant-" + server::RandomRegionName();
  const int fd = shm_open(shm_name_.c_str(), O_CREAT | O_EXCL | O_RDWR, 0600);
  ASSERT_EQ(ftruncate(fd, bytes), 0);
  mapped_ =
      static_cast<std::byte*>(mmap(nullptr, static_cast<size_t>(bytes),
                                   PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  mapped_bytes_ = static_cast<size_t>(bytes);
  close(fd);
  grpc::ClientContext context;
  Begin(&context);
  v1::RegisterPosixRequest request;
  request.set_shm_name(shm_name_);
  request.set_byte_length(bytes);
  const grpc::Status status =
      regions_->RegisterPosix(&context, request, &region_);
  ASSERT_TRUE(status.ok()) << status.error_message();
}

void RegionRoad::Make(int64_t bytes) {
  if (road_ == Road::kMemfd) return MakeMemfd(bytes);
  if (road_ == Road::kPosix) return MakePosix(bytes);
  grpc::ClientContext context;
  Begin(&context);
  v1::AllocateBufferRequest request;
  request.set_byte_length(bytes);
  request.set_memory(road_ == Road::kHostBuffer
                         ? v1::AllocateBufferRequest::MEMORY_HOST
                         : v1::AllocateBufferRequest::MEMORY_DEVICE);
  const grpc::Status status =
      regions_->AllocateBuffer(&context, request, &region_);
  ASSERT_TRUE(status.ok()) << status.error_message();
}

void RegionRoad::Write(int64_t offset, const std::string& bytes) {
  if (mapped_ != nullptr) {
    std::memcpy(mapped_ + offset, bytes.data(), bytes.size());
  } else {
    WriteTo(*regions_, owner_, name(), offset, bytes);
  }
}

void RegionRoad::Write(const std::string& address, const std::string& owner,
                       const std::string& name, int64_t offset,
                       const std::string& bytes) {
  WriteTo(*v1::RegionService::NewStub(ConnectedChannel(address)), owner, name,
          offset, bytes);
}

std::string RegionRoad::Read(int64_t offset, int64_t bytes) {
  if (mapped_ != nullptr) {
    return {reinterpret_cast<const char*>(mapped_ + offset),
            static_cast<size_t>(bytes)};
  }
  grpc::ClientContext context;
  Begin(&context);
  v1::ReadRequest request;
  request.set_name(name());
  request.set_byte_offset(offset);
  request.set_byte_length(bytes);
  const auto reader = regions_->Read(&context, request);
  std::string all;
  v1::ReadResponse chunk;
  while (reader->Read(&chunk)) {
    EXPECT_EQ(chunk.byte_offset(), offset + static_cast<int64_t>(all.size()));
    all += chunk.data();
  }
  const grpc::Status status = reader->Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
  return all;
}

v1::AttendRequest RegionRoad::Moved(const v1::AttendRequest& request) {
  v1::AttendRequest moved = request;
  next_offset_ = 0;
  const auto move = [&](bool has, const auto& spec, std::string* data) {
    if (!has) return;
    const auto bytes = static_cast<int64_t>(data->size());
    v1::Region* region = spec()->mutable_region();
    region->set_name(name());
    region->set_byte_offset(next_offset_);
    region->set_byte_length(bytes);
    Write(next_offset_, *data);
    data->clear();
    next_offset_ += Aligned(bytes);
  };
  const auto q = [&] { return moved.mutable_q(); };
  const auto k = [&] { return moved.mutable_k(); };
  const auto v = [&] { return moved.mutable_v(); };
  const auto qkv = [&] { return moved.mutable_qkv(); };
  const auto mask = [&] { return moved.mutable_mask(); };
  move(moved.has_q(), q, moved.mutable_q_data());
  move(moved.has_k(), k, moved.mutable_k_data());
  move(moved.has_v(), v, moved.mutable_v_data());
  move(moved.has_qkv(), qkv, moved.mutable_qkv_data());
  move(moved.has_mask(), mask, moved.mutable_mask_data());
  return moved;
}

grpc::Status RegionRoad::AttendRaw(const v1::AttendRequest& request,
                                   v1::AttendResponse* reply) {
  grpc::ClientContext context;
  Begin(&context);
  return server_->stub().Attend(&context, request, reply);
}

grpc::Status RegionRoad::Attend(const v1::AttendRequest& request,
                                v1::AttendResponse* reply) {
  v1::AttendResponse expected;
  if (const grpc::Status status = server_->Attend(request, &expected);
      !status.ok()) {
    return status;
  }
  v1::AttendRequest moved = Moved(request);
  const auto place = [&](size_t bytes, v1::Region* region) {
    region->set_name(name());
    region->set_byte_offset(next_offset_);
    region->set_byte_length(static_cast<int64_t>(bytes));
    // What is not written shows.
    Write(next_offset_, std::string(bytes, '\x5a'));
    next_offset_ += Aligned(static_cast<int64_t>(bytes));
  };
  place(expected.output_data().size(), moved.mutable_output_region());
  if (request.return_lse()) {
    place(expected.lse_data().size(), moved.mutable_lse_region());
  }
  EXPECT_LE(next_offset_, region_.byte_length()) << "the region is too small";
  const grpc::Status status = AttendRaw(moved, reply);
  if (!status.ok()) return status;
  EXPECT_TRUE(reply->output_data().empty() && reply->lse_data().empty());
  EXPECT_EQ(reply->output().region().name(), name());
  const auto fetch = [&](const v1::Region& region) {
    return Read(region.byte_offset(), region.byte_length());
  };
  reply->set_output_data(fetch(moved.output_region()));
  if (request.return_lse()) reply->set_lse_data(fetch(moved.lse_region()));
  EXPECT_TRUE(reply->output_data() == expected.output_data())
      << "O differs from the inline answer's";
  EXPECT_TRUE(reply->lse_data() == expected.lse_data())
      << "LSE differs from the inline answer's";
  EXPECT_EQ(reply->served_by().kernel(), expected.served_by().kernel());
  reply->mutable_output()->clear_region();
  reply->mutable_lse()->clear_region();
  if (!request.return_lse()) reply->clear_lse();
  return status;
}

}  // namespace attendant::testing
