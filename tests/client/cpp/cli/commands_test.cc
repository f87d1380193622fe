#include "client/cpp/cli/commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "client/cpp/formats/tensor_file.h"
#include "tests/client/cpp/fake_server.h"

namespace attendant::client::cli {
namespace {

using formats::ElementType;
using formats::FileTensor;
using ::testing::HasSubstr;

struct Options {
  float spoil = 0;  // added to the answer's last element
};

// fp32 BSHD attention, one query head per KV head, causal if lengths agree.
FakeServer::Answer PlainAnswer(Options options = {}) {
  return [=](grpc::ServerContext*, const v1::AttendRequest& request,
             v1::AttendResponse* response) {
    const auto& shape = request.q().shape();
    const int64_t b = shape[0], rows = shape[1], heads = shape[2],
                  dim = shape[3], keys = request.k().shape(1);
    const auto* q = reinterpret_cast<const float*>(request.q_data().data());
    const auto* k = reinterpret_cast<const float*>(request.k_data().data());
    const auto* v = reinterpret_cast<const float*>(request.v_data().data());
    std::vector<float> out(b * rows * heads * dim), lse(b * heads * rows);
    for (int64_t n = 0; n < b * rows * heads; ++n) {
      const int64_t h = n % heads, i = n / heads % rows, e = n / heads / rows;
      std::vector<double> sum(dim);
      double total = 0;
      for (int64_t j = 0; j < (request.causal() ? i + 1 : keys); ++j) {
        double dot = 0;
        const int64_t key = ((e * keys + j) * heads + h) * dim;
        for (int64_t d = 0; d < dim; ++d) dot += q[n * dim + d] * k[key + d];
        const double p = std::exp(dot / std::sqrt(dim));
        total += p;
        for (int64_t d = 0; d < dim; ++d) sum[d] += p * v[key + d];
      }
      for (int64_t d = 0; d < dim; ++d) {
        out[n * dim + d] = static_cast<float>(total > 0 ? sum[d] / total : 0);
      }
      lse[(e * heads + h) * rows + i] = static_cast<float>(std::log(total));
    }
    if (!out.empty()) out.back() += options.spoil;
    EchoQ(nullptr, request, response);
    response->set_output_data(out.data(), out.size() * sizeof(float));
    if (request.return_lse()) {
      response->set_lse_data(lse.data(), lse.size() * sizeof(float));
    }
    return grpc::Status::OK;
  };
}

struct Outcome {
  int code;
  std::string out, err;
};
Outcome RunWith(std::vector<std::string> arguments) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const int code = RunCommandLine(arguments);
  return {code, testing::internal::GetCapturedStdout(),
          testing::internal::GetCapturedStderr()};
}

std::string Temporary(const std::string& name) {
  return (std::filesystem::path(testing::TempDir()) / name).string();
}

TEST(Commands, CheckPassesARightAnswer) {
  FakeServer server(PlainAnswer());
  for (const char* shape :
       {"2,5,7,3,3,8", "1,0,4,2,2,8", "1,3,0,2,2,8", "0,3,3,1,1,4"}) {
    const Outcome run = RunWith({"check", "--server=" + server.target(),
                                 std::string("--random=") + shape});
    EXPECT_EQ(run.code, kOk) << shape << run.out << run.err;
    EXPECT_THAT(run.out, HasSubstr("PASS"));
    EXPECT_THAT(run.out, HasSubstr("allowed"));
  }
  EXPECT_EQ(RunWith({"check", "--server", server.target(), "--causal",
                     "--random=1,9,9,2,2,16"})
                .code,
            kOk);
}

TEST(Commands, CheckFailsAWrongAnswerAndSaysWhere) {
  for (const float spoil : {1e-3f, std::numeric_limits<float>::quiet_NaN(),
                            std::numeric_limits<float>::infinity()}) {
    FakeServer server(PlainAnswer({.spoil = spoil}));
    const Outcome run = RunWith(
        {"check", "--server=" + server.target(), "--random=2,5,7,3,3,8"});
    EXPECT_EQ(run.code, kCheckFailed) << spoil << run.out;
    EXPECT_THAT(run.out, HasSubstr("batch 1, row 4, head 2, column 7"));
    EXPECT_THAT(run.out, HasSubstr("FAIL"));
  }
}

TEST(Commands, AttendReadsAndWritesEveryFormat) {
  FakeServer server(PlainAnswer());
  std::vector<FileTensor> tensors;
  for (const char* name : {"q", "k", "v"}) {
    FileTensor& tensor = tensors.emplace_back();
    tensor.name = name;
    tensor.shape = {1, 2, 1, 1};
    tensor.bytes.resize(8);
    const float values[2] = {0, name[0] == 'v' ? 4.0f : 0.0f};
    std::memcpy(tensor.bytes.data(), values, sizeof(values));
  }
  for (const char* ending : {".npz", ".safetensors"}) {
    const std::string in = Temporary(std::string("in") + ending);
    const std::string out = Temporary(std::string("out") + ending);
    ASSERT_TRUE(formats::WriteTensorFile(in, tensors).ok());
    const Outcome run = RunWith({"attend", "--server=" + server.target(),
                                 "--lse", in, "--out=" + out, "--json"});
    ASSERT_EQ(run.code, kOk) << run.err;
    const auto json = nlohmann::json::parse(run.out);
    EXPECT_EQ(json["served_by"]["kernel"], "fake");
    EXPECT_EQ(json["exposed"]["kernel_ns"], 7);
    const auto answer = formats::ReadTensorFile(out);
    ASSERT_TRUE(answer.ok()) << answer.status();
    ASSERT_EQ(answer->size(), 2);
    EXPECT_EQ((*answer)[0].name, "out");
    float value;
    std::memcpy(&value, (*answer)[0].bytes.data() + 4, 4);
    EXPECT_EQ(value, 2);
    std::memcpy(&value, (*answer)[1].bytes.data(), 4);
    EXPECT_FLOAT_EQ(value, std::log(2.0f));
  }
  const std::string npz = Temporary("in.npz");
  const Outcome run = RunWith({"attend", "--server=" + server.target(),
                               "--q=" + npz + ":k", "--k=" + npz + ":q",
                               "--v=" + npz, "--out=" + Temporary("out.npy")});
  EXPECT_EQ(run.code, kOk) << run.err;
  EXPECT_THAT(run.out, HasSubstr("stages"));
}

TEST(Commands, SaysFieldValueAndBoundOfErrors) {
  const Outcome usage = RunWith({"attend", "--random=1,2"});
  EXPECT_EQ(usage.code, kUsage);
  EXPECT_THAT(usage.err, HasSubstr("field  --random"));
  EXPECT_THAT(usage.err, HasSubstr("value  1,2"));
  EXPECT_THAT(usage.err, HasSubstr("bound  B,SQ,SK"));
  EXPECT_EQ(RunWith({"attend"}).code, kUsage);
  EXPECT_EQ(RunWith({"attend", "--bad"}).code, kUsage);
  EXPECT_EQ(RunWith({"attend", "/nowhere.npy"}).code, kUsage);
  EXPECT_EQ(RunWith({"attend", "--timeout=0", "--random=1,1,1,1,1,1"}).code,
            kUsage);
  EXPECT_EQ(RunWith({"attend", "--layout=sbhd", "--random=1,1,1,1,1,1"}).code,
            kUsage);
  EXPECT_EQ(RunWith({}).code, kUsage);
  EXPECT_EQ(RunWith({"--help"}).code, kOk);
  EXPECT_THAT(RunWith({"check", "--help"}).out, HasSubstr("--softcap=X"));
}

TEST(Commands, GoesThroughTheDoorAskedFor) {
  FakeServer server(PlainAnswer());
  for (const char* door : {"auto", "unary"}) {
    EXPECT_EQ(RunWith({"check", "--server=" + server.target(),
                       std::string("--door=") + door, "--random=1,3,3,1,1,4"})
                  .code,
              kOk);
  }
  const Outcome run = RunWith({"attend", "--server=" + server.target(),
                               "--door=back", "--random=1,3,3,1,1,4"});
  EXPECT_EQ(run.code, kUsage);
  EXPECT_THAT(run.err, HasSubstr("field  --door"));
}

TEST(Commands, TellsRefusedFromUnavailable) {
  const auto code_of = [](grpc::StatusCode code) {
    FakeServer server(
        [=](grpc::ServerContext*, const v1::AttendRequest&,
            v1::AttendResponse*) { return grpc::Status(code, "no"); });
    return RunWith({"attend", "--server=" + server.target(), "--max-attempts=1",
                    "--random=1,1,1,1,1,1"})
        .code;
  };
  EXPECT_EQ(code_of(grpc::INVALID_ARGUMENT), kRefused);
  EXPECT_EQ(code_of(grpc::UNIMPLEMENTED), kRefused);
  EXPECT_EQ(code_of(grpc::RESOURCE_EXHAUSTED), kUnavailable);
  EXPECT_EQ(code_of(grpc::DEADLINE_EXCEEDED), kUnavailable);
  EXPECT_EQ(code_of(grpc::INTERNAL), kInternalError);
}

TEST(Commands, VersionIsTheProjectsAndAnUnknownCommandIsNamed) {
  const Outcome version = RunWith({"--version"});
  EXPECT_EQ(version.code, kOk);
  EXPECT_THAT(version.out, testing::MatchesRegex("attendant [0-9]+.[0-9.]+\n"));
  const Outcome unknown = RunWith({"atend"});
  EXPECT_EQ(unknown.code, kUsage);
  EXPECT_THAT(unknown.err, HasSubstr("there is no command 'atend'"));
  EXPECT_THAT(unknown.err, HasSubstr("attendant attend"));
}

TEST(Commands, InfoShowsTheTableAndTheBounds) {
  FakeServer server(EchoQ);
  const Outcome text = RunWith({"info", "--server=" + server.target()});
  EXPECT_EQ(text.code, kOk) << text.err;
  EXPECT_THAT(text.out, HasSubstr("max_head_dim           256"));
  const Outcome json =
      RunWith({"info", "--json", "--server=" + server.target()});
  EXPECT_EQ(nlohmann::json::parse(json.out)["capabilities"][0]["softcap"],
            true);
}

}  // namespace
}  // namespace attendant::client::cli
