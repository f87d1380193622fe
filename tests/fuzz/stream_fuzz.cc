// Streams of messages of any kind to the stream door's parser and to an upload,
// against a model that keeps a bit for every byte: see README.md.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "server/calls/upload.h"
#include "server/request/bounds.h"
#include "server/request/errors.h"
#include "server/request/problem_validator.h"
#include "server/request/stream_message.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/testing/malformed_requests.h"
#include "tests/testing/stream_call.h"
#include "tests/testing/wire_bytes.h"

namespace attendant {
namespace {

using fuzz::Require;

// Memory of its own, and an answer of zeros as soon as a job is submitted.
class InstantEngine final : public server::AttentionEngine {
 public:
  const server::DeviceDescription& device() const override { return device_; }
  absl::StatusOr<std::shared_ptr<server::AttentionJob>> Admit(
      std::unique_ptr<server::ValidatedRequest> request,
      server::Clock::time_point) override {
    constexpr int64_t kMostBytes = 1 << 20;
    if (request->input_bytes > kMostBytes ||
        request->output_block_bytes() > kMostBytes) {
      return server::Overloaded("memory", "none", "less", 1);
    }
    auto job = std::make_shared<server::AttentionJob>();
    job->input = *pool_.Allocate(request->input_bytes);
    std::memset(job->input.data(), 0, static_cast<size_t>(job->input.bytes()));
    job->output = std::make_shared<server::HostBlock>(
        *pool_.Allocate(request->output_block_bytes()));
    job->request = std::move(request);
    return job;
  }
  void CopyAsync(int, std::function<void(int)>,
                 std::function<void()>) override {}
  void Submit(std::shared_ptr<server::AttentionJob> job) override {
    ++submitted_;
    const auto done = std::move(job->done);
    done({});
  }
  void InputArrived(const std::shared_ptr<server::AttentionJob>&,
                    size_t) override {}
  void Cancel(const std::shared_ptr<server::AttentionJob>&) override {}
  void Drain(server::Clock::time_point) override {}
  server::EngineSnapshot Snapshot() const override { return {}; }

  int submitted() const { return submitted_; }
  int64_t used_bytes() const { return pool_.used_bytes(); }

 private:
  server::DeviceDescription device_;
  testing::PlainPool pool_;
  int submitted_ = 0;
};

struct SilentStream final : server::UploadStream {
  void Wake() override {}
};

// One stream, and what it should have become by now.
class ModelledStream {
 public:
  explicit ModelledStream(InstantEngine* engine) : engine_(engine) {}

  // False when the stream has ended.
  bool Take(const grpc::ByteBuffer& message) {
    auto part = server::ParseStreamRequest(message);
    if (!part.ok()) return Refused(part.status());
    if (auto* header = std::get_if<server::StreamHeader>(&*part)) {
      return upload_ == nullptr && Open(header->request);
    }
    const auto* chunk = std::get_if<server::StreamChunk>(&*part);
    return chunk != nullptr && upload_ != nullptr && Add(message, *chunk);
  }

  void End() {
    if (upload_ == nullptr) return;
    bool complete = true;
    for (const auto& [tensor, bits] : sent_) {
      for (const bool bit : bits) complete &= bit;
    }
    upload_->NoMoreChunks();
    Require(complete == upload_->status().ok(), "complete or failed");
    Require((engine_->submitted() == 1) == complete, "submitted when complete");
    if (!complete) return;
    int64_t bytes = 0;
    for (auto next = upload_->Next(true);
         next.kind == server::UploadOutput::Kind::kChunk;
         next = upload_->Next(true)) {
      bytes += next.bytes;
    }
    Require(
        bytes == upload_->request().output_bytes + upload_->request().lse_bytes,
        "all of the answer");
  }

 private:
  static bool Refused(const absl::Status& status) {
    Require(server::DetailOf(status).has_value(), "detail");
    return false;
  }

  bool Open(const server::ParsedRequest& parsed) {
    auto request = server::ValidateRequest(parsed, server::Bounds(), {});
    if (!request.ok()) return Refused(request.status());
    auto job = engine_->Admit(*std::move(request), {});
    if (!job.ok()) return false;
    upload_ =
        server::Upload::Start(engine_, *std::move(job), "id", "", stream_);
    for (const auto& image : upload_->request().images) {
      sent_[static_cast<int>(image.field) + v1::STREAM_TENSOR_Q].resize(
          static_cast<size_t>(image.wire_bytes));
    }
    return true;
  }

  bool Add(const grpc::ByteBuffer& message, const server::StreamChunk& chunk) {
    const auto place = upload_->Reserve(chunk);
    const auto bits = sent_.find(chunk.tensor);
    bool good = bits != sent_.end() && chunk.byte_offset >= 0 &&
                chunk.byte_offset <=
                    static_cast<int64_t>(bits->second.size()) - chunk.bytes;
    for (int64_t i = 0; good && i < chunk.bytes; ++i) {
      good = !bits->second[static_cast<size_t>(chunk.byte_offset + i)];
    }
    if (!place.ok()) {
      // Or it was not of whole elements.
      Require(!good || chunk.bytes % 4 != 0 || chunk.byte_offset % 4 != 0,
              "refused for a reason");
      upload_->Fail(place.status(), server::Stage::kReceive);
      return Refused(place.status());
    }
    Require(good, "accepted what is new and within");
    upload_->Fill(message, chunk, *place);
    for (int64_t i = 0; i < chunk.bytes; ++i) {
      bits->second[static_cast<size_t>(chunk.byte_offset + i)] = true;
    }
    return true;
  }

  InstantEngine* const engine_;
  std::shared_ptr<SilentStream> stream_ = std::make_shared<SilentStream>();
  std::shared_ptr<server::Upload> upload_;
  std::map<int, std::vector<bool>> sent_;  // by StreamTensor
};

// A message: its length in two bytes, then its bytes.
std::string Framed(const std::string& message) {
  const size_t size = std::min<size_t>(message.size(), 65535);
  return std::string{static_cast<char>(size & 255),
                     static_cast<char>(size >> 8)} +
         message.substr(0, size);
}

int WriteSeeds(const std::string& folder) {
  int count = 0;
  for (const auto& request :
       {testing::GoodRequest(), testing::GoodPackedRequest(),
        testing::GoodQkvRequest(), testing::GoodGroupedQkvRequest()}) {
    for (const int64_t chunk_bytes : {64, 256, 4096}) {
      std::string all = Framed(testing::HeaderOf(request).SerializeAsString());
      for (const auto& chunk : testing::ChunksOf(request, chunk_bytes)) {
        all += Framed(chunk.SerializeAsString());
      }
      std::ofstream(folder + "/stream" + std::to_string(count++)) << all;
    }
  }
  std::printf("%d seeds\n", count);
  return 0;
}

}  // namespace
}  // namespace attendant

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  google::protobuf::SetLogHandler(nullptr);
  return attendant::fuzz::Start(*argc, *argv, attendant::WriteSeeds);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::mt19937 random(static_cast<unsigned>(size));
  attendant::InstantEngine engine;
  {
    attendant::ModelledStream stream(&engine);
    bool open = true;
    size_t at = 0;
    while (open && at + 2 <= size) {
      const size_t length =
          std::min<size_t>(size - at - 2, data[at] | data[at + 1] << 8);
      const std::string bytes(reinterpret_cast<const char*>(data + at + 2),
                              length);
      open = stream.Take(attendant::testing::RandomSlices(bytes, &random));
      at += 2 + length;
    }
    if (open) stream.End();
  }
  attendant::fuzz::Require(engine.used_bytes() == 0, "memory given back");
  return 0;
}
