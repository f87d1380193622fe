// A caller that means harm: every call breaks something else.
#pragma once

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "attendant/v1/region.grpc.pb.h"

namespace attendant::testing {

enum class Hostility : int {
  kWire,      // malformed requests, their bytes turned, sizes that lie
  kStream,    // AttendStream out of every order
  kInfer,     // the Open Inference door's messages, their bytes turned
  kMetadata,  // headers that are absurd
  kRegions,   // other people's names, ranges that wrap
  kMethods,   // what is not served
  kHalf,      // connections that end anywhere
};
inline constexpr int kNumHostilities = 7;
extern const char* const kHostilityNames[kNumHostilities];

// One thread's; the requests are a function of the seed.
class HostileCaller {
 public:
  HostileCaller(const std::string& address, unsigned seed);

  struct Result {
    Hostility kind = Hostility::kWire;
    grpc::Status status;  // OK for kHalf, which has none
  };
  Result Next();

 private:
  size_t Below(size_t bound);
  std::string Noise(size_t most);
  // Some bytes of a message changed, cut or repeated.
  std::string Turned(std::string bytes);
  std::string StreamMessage();

  grpc::Status Unary(const std::string& method, const std::string& message,
                     grpc::ClientContext* context);
  grpc::Status Wire();
  grpc::Status Stream();
  grpc::Status Infer();
  grpc::Status Metadata();
  grpc::Status Regions();
  grpc::Status Methods();
  void Half();

  const std::string address_;
  std::mt19937 random_;
  std::shared_ptr<grpc::Channel> channel_;
  grpc::GenericStub stub_;
  std::unique_ptr<v1::RegionService::Stub> regions_;
  std::vector<std::string> good_, bad_, infer_, parts_;  // serialized
};

}  // namespace attendant::testing
