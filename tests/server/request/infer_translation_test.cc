// The Open Inference door's codec and translation, without a server.
#include "server/request/infer_translation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "server/request/errors.h"
#include "server/request/infer_codec.h"
#include "tests/testing/wire_bytes.h"

namespace attendant::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::OneSlice;

void AddInput(const std::string& name, const std::string& datatype,
              const std::vector<int64_t>& shape, const std::string& raw,
              inference::ModelInferRequest* request) {
  auto* input = request->add_inputs();
  input->set_name(name);
  input->set_datatype(datatype);
  input->mutable_shape()->Assign(shape.begin(), shape.end());
  request->add_raw_input_contents(raw);
}

template <typename Value>
std::string Raw(const std::vector<Value>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()),
                     values.size() * sizeof(Value));
}

inference::ModelInferRequest Good() {
  inference::ModelInferRequest request;
  request.set_model_name("attention");
  request.set_id("job");
  for (const char* name : {"q", "k", "v"}) {
    AddInput(name, "FP32", {1, 2, 1, 2}, std::string(16, *name), &request);
  }
  return request;
}

absl::StatusOr<TranslatedInfer> Translate(
    const inference::ModelInferRequest& request) {
  const grpc::ByteBuffer message = OneSlice(request.SerializeAsString());
  const auto parsed = ParseModelInfer(message);
  if (!parsed.ok()) return parsed.status();
  return TranslateInfer(*parsed, message);
}

TEST(InferTranslationTest, TensorsStayWhereTheyAreInTheMessage) {
  const std::string bytes = Good().SerializeAsString();
  const auto translated = Translate(Good());
  ASSERT_TRUE(translated.ok()) << translated.status();
  const v1::AttendRequest& header = translated->request.header;
  EXPECT_EQ(header.request_id(), "job");
  EXPECT_EQ(header.q().layout(), v1::LAYOUT_BSHD);
  EXPECT_EQ(header.v().dtype(), v1::DATA_TYPE_FP32);
  const auto& v = translated->request.tensors[2];
  EXPECT_EQ(bytes.substr(v.offset, v.bytes), std::string(16, 'v'));
  EXPECT_THAT(translated->reply.outputs, ElementsAre("output"));
}

TEST(InferTranslationTest, ParametersMeanWhatTheFieldsOfTheirNamesMean) {
  inference::ModelInferRequest request = Good();
  auto& p = *request.mutable_parameters();
  p["softmax_scale"].set_string_param("0.25");
  p["softcap"].set_double_param(30);
  p["causal"].set_bool_param(true);
  p["alignment"].set_string_param("bottom_right");
  p["window_left"].set_int64_param(7);
  p["layout"].set_string_param("BHSD");
  p["output_dtype"].set_string_param("FP32");
  p["ordering_key"].set_string_param("line");
  p["timeout"].set_uint64_param(2500);
  p["return_lse"].set_string_param("true");
  const auto translated = Translate(request);
  ASSERT_TRUE(translated.ok()) << translated.status();
  const v1::AttendRequest& header = translated->request.header;
  EXPECT_EQ(header.softmax_scale(), 0.25f);
  EXPECT_EQ(header.softcap(), 30);
  EXPECT_TRUE(header.causal());
  EXPECT_EQ(header.alignment(), v1::CAUSAL_ALIGNMENT_BOTTOM_RIGHT);
  EXPECT_EQ(header.window_left(), 7);
  EXPECT_FALSE(header.has_window_right());
  EXPECT_EQ(header.k().layout(), v1::LAYOUT_BHSD);
  EXPECT_EQ(header.output_dtype(), v1::DATA_TYPE_FP32);
  EXPECT_EQ(header.ordering_key(), "line");
  EXPECT_EQ(translated->timeout, std::chrono::microseconds(2500));
  EXPECT_THAT(translated->reply.outputs, ElementsAre("output", "lse"));
}

TEST(InferTranslationTest, ListsAreReadInBothWidths) {
  inference::ModelInferRequest request = Good();
  AddInput("seqlens_q", "INT64", {1}, Raw<int64_t>({2}), &request);
  AddInput("seqlens_k", "INT32", {1}, Raw<int32_t>({1}), &request);
  AddInput("sinks", "FP32", {1}, Raw<float>({0.5f}), &request);
  request.add_outputs()->set_name("lse");
  const auto translated = Translate(request);
  ASSERT_TRUE(translated.ok()) << translated.status();
  const v1::AttendRequest& header = translated->request.header;
  EXPECT_THAT(header.seqlens_q(), ElementsAre(2));
  EXPECT_THAT(header.seqlens_k(), ElementsAre(1));
  EXPECT_THAT(header.sinks(), ElementsAre(0.5f));
  EXPECT_TRUE(header.return_lse());
  EXPECT_THAT(translated->reply.outputs, ElementsAre("lse"));
}

TEST(InferTranslationTest, ThreeDimensionsArePackedTokens) {
  inference::ModelInferRequest request;
  request.set_model_name("attention");
  for (const char* name : {"q", "k", "v"}) {
    AddInput(name, "BF16", {4, 1, 2}, std::string(16, *name), &request);
  }
  AddInput("cu_seqlens_q", "INT32", {3}, Raw<int32_t>({0, 1, 4}), &request);
  const auto translated = Translate(request);
  ASSERT_TRUE(translated.ok()) << translated.status();
  EXPECT_EQ(translated->request.header.q().layout(), v1::LAYOUT_THD);
  EXPECT_THAT(translated->request.header.cu_seqlens_q(), ElementsAre(0, 1, 4));
}

struct Refusal {
  const char* name;
  std::function<void(inference::ModelInferRequest&)> mutate;
  absl::StatusCode code;
  const char* field;
};

TEST(InferTranslationTest, WhatIsNotServedIsRefusedByName) {
  using Request = inference::ModelInferRequest;
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  constexpr auto kUnimplemented = absl::StatusCode::kUnimplemented;
  constexpr auto kNotFound = absl::StatusCode::kNotFound;
  const auto set = [](const char* name, auto setter) {
    return [=](Request& r) { setter((*r.mutable_parameters())[name]); };
  };
  const std::vector<Refusal> refusals = {
      {"model", [](Request& r) { r.set_model_name("llama"); }, kNotFound,
       "model_name"},
      {"version", [](Request& r) { r.set_model_version("2"); }, kNotFound,
       "model_version"},
      {"parameter", set("priority", [](auto& p) { p.set_int64_param(1); }),
       kUnimplemented, "parameters[priority]"},
      {"not a number",
       set("softmax_scale", [](auto& p) { p.set_string_param("big"); }),
       kInvalid, "parameters[softmax_scale]"},
      {"a bool is no number",
       set("softcap", [](auto& p) { p.set_bool_param(true); }), kInvalid,
       "parameters[softcap]"},
      {"not whole",
       set("window_left", [](auto& p) { p.set_double_param(1.5); }), kInvalid,
       "parameters[window_left]"},
      {"not a bool", set("causal", [](auto& p) { p.set_int64_param(1); }),
       kInvalid, "parameters[causal]"},
      {"unset", set("causal", [](auto&) {}), kInvalid, "parameters[causal]"},
      {"word", set("alignment", [](auto& p) { p.set_string_param("left"); }),
       kInvalid, "parameters[alignment]"},
      {"timeout", set("timeout", [](auto& p) { p.set_int64_param(0); }),
       kInvalid, "parameters[timeout]"},
      {"input", [](Request& r) { AddInput("bias", "FP32", {1}, "....", &r); },
       kUnimplemented, "inputs"},
      {"input twice", [](Request& r) { r.mutable_inputs(1)->set_name("q"); },
       kInvalid, "inputs"},
      {"datatype",
       [](Request& r) { r.mutable_inputs(0)->set_datatype("INT8"); }, kInvalid,
       "q.datatype"},
      {"typed contents",
       [](Request& r) {
         r.mutable_inputs(0)->mutable_contents()->add_fp32_contents(1);
       },
       kUnimplemented, "q.contents"},
      {"raw missing", [](Request& r) { r.clear_raw_input_contents(); },
       kInvalid, "raw_input_contents"},
      {"shared memory",
       [](Request& r) {
         (*r.mutable_inputs(2)->mutable_parameters())["shared_memory_region"]
             .set_string_param("x");
       },
       kUnimplemented, "v.parameters[shared_memory_region]"},
      {"list size",
       [](Request& r) { AddInput("sinks", "FP32", {2}, "....", &r); }, kInvalid,
       "sinks in raw_input_contents"},
      {"list shape",
       [](Request& r) { AddInput("sinks", "FP32", {-1}, "....", &r); },
       kInvalid, "sinks.shape"},
      {"list type",
       [](Request& r) { AddInput("cu_seqlens_q", "INT64", {0}, "", &r); },
       kInvalid, "cu_seqlens_q.datatype"},
      {"output", [](Request& r) { r.add_outputs()->set_name("o"); },
       kUnimplemented, "outputs"},
      {"output twice",
       [](Request& r) {
         r.add_outputs()->set_name("lse");
         r.add_outputs()->set_name("lse");
       },
       kInvalid, "outputs"},
      {"classification",
       [](Request& r) {
         auto* output = r.add_outputs();
         output->set_name("output");
         (*output->mutable_parameters())["classification"].set_int64_param(3);
       },
       kUnimplemented, "outputs.parameters[classification]"},
  };
  for (const Refusal& refusal : refusals) {
    SCOPED_TRACE(refusal.name);
    Request request = Good();
    refusal.mutate(request);
    const absl::Status status = Translate(request).status();
    EXPECT_EQ(status.code(), refusal.code) << status;
    const auto detail = DetailOf(status);
    ASSERT_TRUE(detail.has_value());
    EXPECT_EQ(detail->field(), refusal.field);
    EXPECT_FALSE(detail->bound().empty());
  }
}

TEST(InferCodecTest, BytesThatAreNoMessageAreRefused) {
  const auto code = [](const std::string& bytes) {
    return ParseModelInfer(OneSlice(bytes)).status().code();
  };
  EXPECT_EQ(code("\x3a\x05"
                 "abc"),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code("\x38\x05"), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code("\x2a\x02\xff\xff"), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(std::string("\x42\x01x", 3)),  // field 8
            absl::StatusCode::kUnimplemented);
  EXPECT_TRUE(ParseModelInfer(OneSlice("")).ok());
  const auto status = ParseModelInfer(OneSlice("\x0a\x80\x80\x80\x18" +
                                               std::string(48 << 20, 'a')))
                          .status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("max_header_bytes"));
}

TEST(InferCodecTest, TheReplyHoldsWhatWasAskedInThatOrder) {
  testing::PlainPool pool;
  auto block = std::make_shared<HostBlock>(*pool.Allocate(512));
  std::memset(block->data(), 'o', 256);
  std::memset(block->data() + 256, 'l', 256);
  v1::AttendResponse header;
  header.mutable_output()->set_dtype(v1::DATA_TYPE_FP16);
  header.mutable_output()->add_shape(4);
  header.mutable_lse()->set_dtype(v1::DATA_TYPE_FP32);
  header.mutable_served_by()->set_kernel("sm90");
  const grpc::ByteBuffer message =
      EncodeModelInfer({"job", {"lse", "output"}}, header, block, 8, 256, 12);
  block.reset();
  EXPECT_EQ(pool.used_bytes(), 512);  // the message's
  inference::ModelInferResponse reply;
  ASSERT_TRUE(reply.ParseFromString(testing::BytesOf(message)));
  EXPECT_EQ(reply.id(), "job");
  EXPECT_EQ(reply.parameters().at("kernel").string_param(), "sm90");
  EXPECT_EQ(reply.outputs(0).name(), "lse");
  EXPECT_EQ(reply.outputs(1).datatype(), "FP16");
  EXPECT_THAT(reply.raw_output_contents(),
              ElementsAre(std::string(12, 'l'), std::string(8, 'o')));
}

TEST(InferCodecTest, AnEmptyOutputStillHasItsPlace) {
  v1::AttendResponse header;
  const grpc::ByteBuffer message =
      EncodeModelInfer({"", {"output"}}, header, nullptr, 0, 0, 0);
  inference::ModelInferResponse reply;
  ASSERT_TRUE(reply.ParseFromString(testing::BytesOf(message)));
  EXPECT_THAT(reply.raw_output_contents(), ElementsAre(""));
}

}  // namespace
}  // namespace attendant::server
