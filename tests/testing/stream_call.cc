#include "tests/testing/stream_call.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <latch>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>

namespace attendant::testing {
namespace {

using Stub = v1::AttentionService::StubInterface;
using ReaderWriter =
    grpc::ClientReaderWriterInterface<v1::AttendStreamRequest,
                                      v1::AttendStreamResponse>;

// An answer that never comes is a failure, not a test that hangs.
constexpr std::chrono::seconds kPatience{120};

// The bytes of O and LSE as their chunks come, from any thread.
class Gathered {
 public:
  // False if a chunk came twice or belongs to neither.
  bool Take(const v1::TensorChunk& chunk) {
    std::lock_guard lock(mutex_);
    const bool lse = chunk.tensor() == v1::STREAM_TENSOR_LSE;
    if (!lse && chunk.tensor() != v1::STREAM_TENSOR_OUTPUT) return false;
    std::string& bytes = bytes_[lse];
    std::string& seen = seen_[lse];
    const size_t end =
        static_cast<size_t>(chunk.byte_offset()) + chunk.data().size();
    if (bytes.size() < end) {
      bytes.resize(end);
      seen.resize(end, '\0');
    }
    const auto at = static_cast<size_t>(chunk.byte_offset());
    if (seen.find('\1', at) < end) return false;
    seen.replace(at, chunk.data().size(), chunk.data().size(), '\1');
    bytes.replace(at, chunk.data().size(), chunk.data());
    return true;
  }
  bool Fill(v1::AttendResponse* reply) const {
    reply->set_output_data(bytes_[0]);
    reply->set_lse_data(bytes_[1]);
    return seen_[0].find('\0') == std::string::npos &&
           seen_[1].find('\0') == std::string::npos;
  }

 private:
  std::mutex mutex_;
  std::string bytes_[2], seen_[2];
};

// Reads to the end; false if something broke the contract.
bool ReadAll(ReaderWriter* stream, Gathered* gathered,
             v1::AttendResponse* reply) {
  bool good = true;
  v1::AttendStreamResponse response;
  while (stream->Read(&response)) {
    if (response.has_chunk()) good &= gathered->Take(response.chunk());
    if (response.has_final()) *reply = response.final();
  }
  return good;
}

// Every `step`-th chunk from `first` on, while another thread reads.
// Half-closes when everybody has `joined`.
bool Exchange(ReaderWriter* stream,
              const std::vector<v1::AttendStreamRequest>& chunks, size_t first,
              size_t step, std::latch* joined, Gathered* gathered,
              v1::AttendResponse* reply) {
  std::thread writer([&] {
    for (size_t c = first; c < chunks.size(); c += step) {
      if (!stream->Write(chunks[c])) break;
    }
    joined->wait();
    stream->WritesDone();
  });
  const bool good = ReadAll(stream, gathered, reply);
  writer.join();
  return good;
}

// A stream that joins `id` and carries its share.
bool CarryShare(Stub* stub, const std::string& id,
                const std::vector<v1::AttendStreamRequest>& chunks,
                size_t first, size_t step, std::latch* joined,
                Gathered* gathered) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  const auto stream = stub->AttendStream(&context);
  v1::AttendStreamRequest join;
  join.mutable_join()->set_upload_id(id);
  v1::AttendStreamResponse accepted;
  stream->Write(join);
  v1::AttendResponse none;
  const bool open = stream->Read(&accepted) && accepted.has_accepted();
  joined->count_down();
  const bool good = open && Exchange(stream.get(), chunks, first, step, joined,
                                     gathered, &none);
  const grpc::Status status = stream->Finish();
  // Others had sent it all and the answer was on its way: nothing to carry.
  if (!open && status.error_code() == grpc::NOT_FOUND) return true;
  return status.ok() && good;
}

}  // namespace

v1::AttendStreamRequest HeaderOf(const v1::AttendRequest& request) {
  v1::AttendStreamRequest message;
  v1::AttendRequest* header = message.mutable_header();
  *header = request;
  header->clear_q_data();
  header->clear_k_data();
  header->clear_v_data();
  header->clear_qkv_data();
  header->clear_mask_data();
  return message;
}

std::vector<v1::AttendStreamRequest> ChunksOf(const v1::AttendRequest& request,
                                              int64_t chunk_bytes) {
  const std::string* tensors[] = {&request.q_data(), &request.k_data(),
                                  &request.v_data(), &request.qkv_data(),
                                  &request.mask_data()};
  std::vector<v1::AttendStreamRequest> chunks;
  for (int t = 0; t < 5; ++t) {
    for (size_t at = 0; at < tensors[t]->size();
         at += static_cast<size_t>(chunk_bytes)) {
      v1::TensorChunk* chunk = chunks.emplace_back().mutable_chunk();
      chunk->set_tensor(static_cast<v1::StreamTensor>(v1::STREAM_TENSOR_Q + t));
      chunk->set_byte_offset(static_cast<int64_t>(at));
      chunk->set_data(tensors[t]->substr(at, static_cast<size_t>(chunk_bytes)));
    }
  }
  return chunks;
}

grpc::Status AttendByStreams(const std::vector<Stub*>& stubs,
                             const v1::AttendRequest& request,
                             const StreamOptions& options,
                             v1::AttendResponse* reply) {
  auto chunks = ChunksOf(request, options.chunk_bytes);
  if (options.seed != 0) {
    std::mt19937 random(options.seed);
    std::shuffle(chunks.begin(), chunks.end(), random);
  }
  reply->Clear();
  Gathered gathered;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  if (!options.owner.empty()) {
    context.AddMetadata("attendant-owner", options.owner);
  }
  const auto stream = stubs[0]->AttendStream(&context);
  stream->Write(HeaderOf(request));
  v1::AttendStreamResponse accepted;
  if (!stream->Read(&accepted)) return stream->Finish();
  bool good = accepted.has_accepted();
  std::vector<std::thread> others;
  std::latch joined(static_cast<std::ptrdiff_t>(stubs.size()) - 1);
  std::vector<char> ends(stubs.size(), 1);
  for (size_t s = 1; s < stubs.size(); ++s) {
    others.emplace_back([&, s] {
      ends[s] = CarryShare(stubs[s], accepted.accepted().upload_id(), chunks, s,
                           stubs.size(), &joined, &gathered);
    });
  }
  good &= Exchange(stream.get(), chunks, 0, stubs.size(), &joined, &gathered,
                   reply);
  for (std::thread& other : others) other.join();
  const grpc::Status status = stream->Finish();
  if (!status.ok()) return status;
  good &= gathered.Fill(reply);
  good &= std::count(ends.begin(), ends.end(), 0) == 0;
  return good ? grpc::Status::OK
              : grpc::Status(grpc::INTERNAL, "the stream breaks the contract");
}

}  // namespace attendant::testing
