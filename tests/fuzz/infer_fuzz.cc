// Bytes of any kind to the Open Inference door's codec, translation and
// validator: see README.md.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <random>
#include <string>

#include "server/request/errors.h"
#include "server/request/infer_translation.h"
#include "server/request/problem_validator.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/testing/request_invariants.h"
#include "tests/testing/wire_bytes.h"

namespace attendant {
namespace {

using fuzz::Require;

void RequireDetail(const absl::Status& status) {
  Require(server::DetailOf(status).has_value() || absl::IsNotFound(status),
          "detail of " + status.ToString());
}

void CheckAsOne(const std::string& bytes, const grpc::ByteBuffer& message) {
  const auto infer = server::ParseModelInfer(message);
  if (!infer.ok()) return RequireDetail(infer.status());
  inference::ModelInferRequest expected;
  Require(expected.ParseFromString(bytes), "protobuf parses it too");
  Require(
      expected.raw_input_contents_size() == static_cast<int>(infer->raw.size()),
      "raw contents");
  for (int i = 0; i < expected.raw_input_contents_size(); ++i) {
    const auto& extent = infer->raw[static_cast<size_t>(i)];
    Require(bytes.substr(static_cast<size_t>(extent.offset),
                         static_cast<size_t>(extent.bytes)) ==
                expected.raw_input_contents(i),
            "bytes of a raw content");
  }
  expected.clear_raw_input_contents();
  Require(infer->header.SerializeAsString().size() ==
              expected.SerializeAsString().size(),
          "header");
  const auto translated = server::TranslateInfer(*infer, message);
  if (!translated.ok()) return RequireDetail(translated.status());
  const auto validated =
      server::ValidateRequest(translated->request, server::Bounds(), {});
  if (!validated.ok()) return RequireDetail(validated.status());
  const std::string bad = testing::InvariantViolation(**validated);
  Require(bad.empty(), bad);
}

inference::ModelInferRequest Good() {
  inference::ModelInferRequest request;
  request.set_model_name("attention");
  request.set_id("job");
  for (const char* name : {"q", "k", "v"}) {
    auto* input = request.add_inputs();
    input->set_name(name);
    input->set_datatype("FP32");
    for (const int64_t size : {1, 2, 1, 2}) input->add_shape(size);
    request.add_raw_input_contents(std::string(16, *name));
  }
  return request;
}

int WriteSeeds(const std::string& folder) {
  auto write = [&, count =
                       0](const inference::ModelInferRequest& request) mutable {
    std::ofstream(folder + "/infer" + std::to_string(count++))
        << request.SerializeAsString();
  };
  write(Good());
  inference::ModelInferRequest request = Good();
  auto& parameters = *request.mutable_parameters();
  parameters["softmax_scale"].set_string_param("0.25");
  parameters["causal"].set_bool_param(true);
  parameters["softcap"].set_double_param(30);
  parameters["window_left"].set_int64_param(7);
  parameters["timeout"].set_uint64_param(2500);
  write(request);
  request = Good();
  auto* mask = request.add_inputs();
  mask->set_name("mask");
  mask->set_datatype("BOOL");
  for (const int64_t size : {1, 1, 2, 2}) mask->add_shape(size);
  request.add_raw_input_contents(std::string("\1\0\1\1", 4));
  write(request);
  return 0;
}

}  // namespace
}  // namespace attendant

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  google::protobuf::SetLogHandler(nullptr);
  return attendant::fuzz::Start(*argc, *argv, attendant::WriteSeeds);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  std::mt19937 random(static_cast<unsigned>(size));
  attendant::CheckAsOne(bytes,
                        attendant::testing::RandomSlices(bytes, &random));
  return 0;
}
