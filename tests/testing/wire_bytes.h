// Bytes of messages in tests: golden files, buffers of odd slices, parsing.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "attendant/v1/attention.pb.h"
#include "server/request/host_memory.h"
#include "server/request/wire_codec.h"

namespace attendant::testing {

// tests/golden/`name`: hexadecimal bytes, lines from # on are comments.
std::string GoldenBytes(const std::string& name);

// The message that tests/golden/attend_request.hex holds.
v1::AttendRequest GoldenRequest();

// One slice; slices of the given sizes, the last one taking the rest; slices of
// random sizes, empty ones among them.
grpc::ByteBuffer OneSlice(const std::string& bytes);
grpc::ByteBuffer Slices(const std::string& bytes,
                        const std::vector<size_t>& sizes);
grpc::ByteBuffer RandomSlices(const std::string& bytes, std::mt19937* random);

std::string BytesOf(const grpc::ByteBuffer& buffer);

// ParseAttendRequest of the serialised request.
absl::StatusOr<server::ParsedRequest> Parse(const v1::AttendRequest& request);

// Plain memory; `used_bytes` shows what was not given back.
class PlainPool final : public server::HostMemoryPool {
 public:
  absl::StatusOr<server::HostBlock> Allocate(int64_t bytes) override;
  int64_t capacity_bytes() const override { return int64_t{1} << 40; }
  int64_t used_bytes() const override { return used_bytes_; }

 private:
  void Release(std::byte* data, int64_t bytes) override;
  int64_t used_bytes_ = 0;
};

}  // namespace attendant::testing
