#include "server/selftest/door_checks.h"

#include <arpa/inet.h>
#include <grpcpp/grpcpp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "absl/strings/str_cat.h"
#include "attendant/v1/attention.grpc.pb.h"
#include "kernels/base/status_macros.h"
#include "server/connections/unique_fd.h"
#include "server/selftest/direct_call.h"

namespace attendant::server {
namespace {

constexpr size_t kChunkBytes = 64 << 10;

void Prepare(grpc::ClientContext* context) {
  context->set_wait_for_ready(true);
  context->set_deadline(std::chrono::system_clock::now() + kSelftestPatience);
}

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("code ", status.error_code(), ": ", status.error_message()));
}

grpc::Status Attend(const std::shared_ptr<grpc::Channel>& channel,
                    const v1::AttendRequest& request,
                    v1::AttendResponse* reply) {
  grpc::ClientContext context;
  Prepare(&context);
  return v1::AttentionService::NewStub(channel)->Attend(&context, request,
                                                        reply);
}

void AddChunks(v1::StreamTensor tensor, const std::string& data,
               std::vector<v1::AttendStreamRequest>* messages) {
  for (size_t at = 0; at < data.size(); at += kChunkBytes) {
    v1::TensorChunk* chunk = messages->emplace_back().mutable_chunk();
    chunk->set_tensor(tensor);
    chunk->set_byte_offset(static_cast<int64_t>(at));
    chunk->set_data(data.substr(at, kChunkBytes));
  }
}

// Header, then q, k and v.
std::vector<v1::AttendStreamRequest> StreamOf(
    const v1::AttendRequest& request) {
  std::vector<v1::AttendStreamRequest> messages(1);
  v1::AttendRequest* header = messages[0].mutable_header();
  *header = request;
  header->clear_q_data();
  header->clear_k_data();
  header->clear_v_data();
  AddChunks(v1::STREAM_TENSOR_Q, request.q_data(), &messages);
  AddChunks(v1::STREAM_TENSOR_K, request.k_data(), &messages);
  AddChunks(v1::STREAM_TENSOR_V, request.v_data(), &messages);
  return messages;
}

// Status line and body of GET `path`; empty if nobody answers.
std::string Get(const std::string& address, const std::string& path) {
  const size_t colon = address.rfind(':');
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port =
      htons(static_cast<uint16_t>(std::atoi(address.c_str() + colon + 1)));
  inet_pton(AF_INET, address.substr(0, colon).c_str(), &to.sin_addr);
  const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  std::string answer;
  const std::string text =
      "GET " + path +
      " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)) != 0 ||
      send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL) < 0) {
    return answer;
  }
  char buffer[16'384];
  for (ssize_t n; (n = recv(fd.get(), buffer, sizeof(buffer), 0)) > 0;) {
    answer.append(buffer, static_cast<size_t>(n));
  }
  return answer;
}

}  // namespace

absl::Status CheckAnswer(const DoorProbe& probe, const std::string& output,
                         const std::string& lse) {
  if (output == probe.output_data && lse == probe.lse_data) {
    return absl::OkStatus();
  }
  return absl::InternalError(
      absl::StrCat(output == probe.output_data ? "LSE" : "O",
                   " is not what the engine answers (", output.size(), " and ",
                   lse.size(), " bytes)"));
}

absl::StatusOr<std::string> CheckUnary(
    const std::shared_ptr<grpc::Channel>& channel, const DoorProbe& probe) {
  v1::AttendResponse reply;
  RETURN_IF_ERROR(FromGrpc(Attend(channel, probe.request, &reply)));
  RETURN_IF_ERROR(CheckAnswer(probe, reply.output_data(), reply.lse_data()));
  return absl::StrCat("bitwise the engine's answer, by ",
                      reply.served_by().kernel());
}

absl::StatusOr<std::string> CheckStream(
    const std::shared_ptr<grpc::Channel>& channel, const DoorProbe& probe) {
  grpc::ClientContext context;
  Prepare(&context);
  const auto stub = v1::AttentionService::NewStub(channel);
  const auto stream = stub->AttendStream(&context);
  const auto messages = StreamOf(probe.request);
  std::thread writer([&] {
    for (const v1::AttendStreamRequest& message : messages) {
      if (!stream->Write(message)) break;
    }
    stream->WritesDone();
  });
  std::string output(probe.output_data.size(), '\0');
  std::string lse(probe.lse_data.size(), '\0');
  int chunks = 0;
  v1::AttendStreamResponse message;
  while (stream->Read(&message)) {
    if (!message.has_chunk()) continue;
    const v1::TensorChunk& chunk = message.chunk();
    std::string& into = chunk.tensor() == v1::STREAM_TENSOR_LSE ? lse : output;
    const auto at = static_cast<size_t>(chunk.byte_offset());
    if (at + chunk.data().size() <= into.size()) {
      into.replace(at, chunk.data().size(), chunk.data());
    }
    ++chunks;
  }
  writer.join();
  RETURN_IF_ERROR(FromGrpc(stream->Finish()));
  RETURN_IF_ERROR(CheckAnswer(probe, output, lse));
  return absl::StrCat("bitwise, ", messages.size() - 1, " chunks in, ", chunks,
                      " out");
}

absl::StatusOr<std::string> CheckRefusal(
    const std::shared_ptr<grpc::Channel>& channel, const DoorProbe& probe) {
  v1::AttendRequest bad = probe.request;
  bad.mutable_q()->set_shape(3, bad.q().shape(3) + 1);
  v1::AttendResponse reply;
  const grpc::Status status = Attend(channel, bad, &reply);
  if (status.error_code() != grpc::StatusCode::INVALID_ARGUMENT ||
      status.error_details().empty()) {
    return absl::InternalError(
        absl::StrCat("a q of another head_dim got code ", status.error_code()));
  }
  RETURN_IF_ERROR(CheckUnary(channel, probe).status());
  return "refused by name, the next request is right";
}

absl::StatusOr<std::string> CheckHttp(const std::string& address) {
  for (const char* path : {"/healthz", "/readyz", "/metrics"}) {
    const std::string answer = Get(address, path);
    if (answer.rfind("HTTP/1.1 200", 0) != 0) {
      return absl::InternalError(absl::StrCat(
          path, " answers '", answer.substr(0, answer.find('\r')), "'"));
    }
  }
  return "healthz, readyz and metrics answer 200";
}

}  // namespace attendant::server
