// Bytes of any kind to the wire codec and the validator: see README.md.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <random>
#include <string>

#include "server/request/errors.h"
#include "server/request/wire_codec.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/testing/malformed_requests.h"
#include "tests/testing/request_invariants.h"
#include "tests/testing/wire_bytes.h"

namespace attendant {
namespace {

using fuzz::Require;

// Our parser on slices of odd sizes against protobuf's.
void CheckParse(const std::string& bytes, std::mt19937* random) {
  const grpc::ByteBuffer message = testing::RandomSlices(bytes, random);
  const auto parsed = server::ParseAttendRequest(message);
  if (!parsed.ok()) {
    Require(server::DetailOf(parsed.status()).has_value(), "detail");
    return;
  }
  v1::AttendRequest expected;
  Require(expected.ParseFromString(bytes), "protobuf parses it too");
  Require(server::CheckNoUnknownFields(expected).ok(), "no unknown field");
  const std::string q = expected.q_data();
  const auto& extent = parsed->tensors[0];
  Require(std::max<int64_t>(extent.bytes, 0) == static_cast<int64_t>(q.size()),
          "bytes of q");
  std::string copy(q.size(), '\0');
  Require(server::CopyTensorBytes(
              message, extent.offset, static_cast<int64_t>(q.size()),
              kernels::DataType::kFloat32, kernels::DataType::kFloat32,
              reinterpret_cast<std::byte*>(copy.data()))
              .ok(),
          "copy");
  Require(copy == q, "q");
  for (std::string* data :
       {expected.mutable_q_data(), expected.mutable_k_data(),
        expected.mutable_v_data(), expected.mutable_qkv_data(),
        expected.mutable_mask_data()}) {
    data->clear();
  }
  Require(parsed->header.SerializeAsString() == expected.SerializeAsString(),
          "header");
}

int WriteSeeds(const std::string& folder) {
  int count = 0;
  const auto write = [&](const v1::AttendRequest& request) {
    std::ofstream(folder + "/seed" + std::to_string(count++))
        << request.SerializeAsString();
  };
  write(testing::GoodRequest());
  write(testing::GoodPackedRequest());
  write(testing::GoodQkvRequest());
  write(testing::GoodGroupedQkvRequest());
  for (const testing::MalformedRequest& malformed :
       testing::MalformedRequests()) {
    v1::AttendRequest request = testing::GoodRequest();
    malformed.mutate(request);
    if (request.ByteSizeLong() < 4096) write(request);
  }
  std::printf("%d seeds\n", count);
  return 0;
}

}  // namespace
}  // namespace attendant

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  // Not about invalid UTF-8, which we refuse ourselves.
  google::protobuf::SetLogHandler(nullptr);
  return attendant::fuzz::Start(*argc, *argv, attendant::WriteSeeds);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  std::mt19937 random(static_cast<unsigned>(size));
  attendant::CheckParse(bytes, &random);
  attendant::v1::AttendRequest request;
  if (!request.ParseFromString(bytes)) return 0;
  constexpr size_t kMaxBytes = 1 << 16;
  const auto validated = attendant::testing::ValidateFitted(request, kMaxBytes);
  if (validated.ok()) {
    const std::string bad = attendant::testing::InvariantViolation(**validated);
    attendant::fuzz::Require(bad.empty(), bad);
  } else {
    attendant::fuzz::Require(
        attendant::server::DetailOf(validated.status()).has_value(), "detail");
  }
  return 0;
}
