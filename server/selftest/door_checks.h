// The ways in, through a server on loopback: each answers bitwise as the engine
// does.
#pragma once

#include <grpcpp/channel.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "attendant/v1/attention.pb.h"

namespace attendant::server {

// A request and the bytes that answer it.
struct DoorProbe {
  v1::AttendRequest request;
  std::string output_data, lse_data;
};

// INTERNAL if `reply` does not carry the probe's answer.
absl::Status CheckAnswer(const DoorProbe& probe, const std::string& output,
                         const std::string& lse);

absl::StatusOr<std::string> CheckUnary(
    const std::shared_ptr<grpc::Channel>& channel, const DoorProbe& probe);
// Header first, then chunks of 64 KiB.
absl::StatusOr<std::string> CheckStream(
    const std::shared_ptr<grpc::Channel>& channel, const DoorProbe& probe);
// A request that the contract forbids is refused by name, and the next is
// right.
absl::StatusOr<std::string> CheckRefusal(
    const std::shared_ptr<grpc::Channel>& channel, const DoorProbe& probe);
// /healthz, /readyz and /metrics of HOST:PORT.
absl::StatusOr<std::string> CheckHttp(const std::string& address);

}  // namespace attendant::server
