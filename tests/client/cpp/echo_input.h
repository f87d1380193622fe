// A small request for a server that echoes q, and a client to send it.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "client/cpp/attendant_client.h"

namespace attendant::client {

inline constexpr auto kPatient = std::chrono::seconds(30);

struct Input {
  std::vector<float> values;
  AttendArgs args;

  explicit Input(size_t rows = 4) : values(rows * 2) {
    for (size_t e = 0; e < values.size(); ++e) values[e] = float(e) + 0.5f;
    args.q = {values.data(),
              DataType::kFloat32,
              {1, static_cast<int64_t>(rows), 1, 2},
              {}};
    args.k = args.v = args.q;
  }
};

inline Client Connect(const std::string& target, ClientOptions options = {}) {
  absl::StatusOr<Client> client = Client::Create(target, std::move(options));
  EXPECT_TRUE(client.ok()) << client.status();
  return *std::move(client);
}

}  // namespace attendant::client
