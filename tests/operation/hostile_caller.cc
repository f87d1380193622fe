#include "tests/operation/hostile_caller.h"

#include <algorithm>
#include <limits>

#include "inference/open_inference.pb.h"
#include "tests/operation/raw_connection.h"
#include "tests/testing/malformed_requests.h"
#include "tests/testing/stream_call.h"

namespace attendant::testing {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr char kAttend[] = "/attendant.v1.AttentionService/Attend";
constexpr char kAttendStream[] = "/attendant.v1.AttentionService/AttendStream";
constexpr char kInfer[] = "/inference.GRPCInferenceService/ModelInfer";

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(),
                                   arguments);
}

std::string InferMessage() {
  inference::ModelInferRequest request;
  request.set_model_name("attention");
  for (const char* name : {"q", "k", "v"}) {
    auto* input = request.add_inputs();
    input->set_name(name);
    input->set_datatype("FP32");
    for (const int64_t size : {1, 2, 1, 2}) input->add_shape(size);
    request.add_raw_input_contents(std::string(16, '\0'));
  }
  (*request.mutable_parameters())["causal"].set_bool_param(true);
  return request.SerializeAsString();
}

void SetDeadline(grpc::ClientContext* context) {
  context->set_wait_for_ready(true);
  context->set_deadline(std::chrono::system_clock::now() +
                        std::chrono::seconds(20));
}

}  // namespace

const char* const kHostilityNames[kNumHostilities] = {
    "wire", "stream", "infer", "metadata", "regions", "methods", "half"};

HostileCaller::HostileCaller(const std::string& address, unsigned seed)
    : address_(address),
      random_(seed),
      channel_(MakeChannel(address)),
      stub_(channel_),
      regions_(v1::RegionService::NewStub(channel_)),
      infer_({InferMessage()}) {
  for (const auto& request : {GoodRequest(), GoodPackedRequest(),
                              GoodQkvRequest(), GoodGroupedQkvRequest()}) {
    good_.push_back(request.SerializeAsString());
    parts_.push_back(HeaderOf(request).SerializeAsString());
    for (const auto& chunk : ChunksOf(request, 64)) {
      parts_.push_back(chunk.SerializeAsString());
    }
  }
  v1::AttendStreamRequest join;
  join.mutable_join()->set_upload_id("somebody else's");
  parts_.push_back(join.SerializeAsString());
  for (const MalformedRequest& malformed : MalformedRequests()) {
    v1::AttendRequest request = GoodRequest();
    malformed.mutate(request);
    bad_.push_back(request.SerializeAsString());
  }
}

HostileCaller::Result HostileCaller::Next() {
  const size_t draw = Below(100);
  if (draw < 45) return {Hostility::kWire, Wire()};
  if (draw < 65) return {Hostility::kStream, Stream()};
  if (draw < 77) return {Hostility::kInfer, Infer()};
  if (draw < 82) return {Hostility::kMetadata, Metadata()};
  if (draw < 90) return {Hostility::kRegions, Regions()};
  if (draw < 95) return {Hostility::kMethods, Methods()};
  Half();
  return {Hostility::kHalf, grpc::Status::OK};
}

size_t HostileCaller::Below(size_t bound) {
  return std::uniform_int_distribution<size_t>(0, bound - 1)(random_);
}

std::string HostileCaller::Noise(size_t most) {
  std::string noise(Below(most), '\0');
  for (char& byte : noise) byte = static_cast<char>(Below(256));
  return noise;
}

std::string HostileCaller::Turned(std::string bytes) {
  for (size_t steps = 1 + Below(4); steps > 0; --steps) {
    const size_t at = Below(bytes.size() + 1);
    switch (Below(4)) {
      case 0:
        bytes.resize(at);
        break;
      case 1:
        bytes.insert(at, Noise(32));
        break;
      case 2:
        bytes.insert(at, bytes.substr(0, Below(bytes.size() + 1)));
        break;
      default:
        if (at < bytes.size()) bytes[at] = static_cast<char>(Below(256));
    }
  }
  return bytes;
}

grpc::Status HostileCaller::Unary(const std::string& method,
                                  const std::string& message,
                                  grpc::ClientContext* context) {
  SetDeadline(context);
  const grpc::Slice slice(message);
  const grpc::ByteBuffer request(&slice, 1);
  grpc::ByteBuffer reply;
  grpc::Status status;
  grpc::CompletionQueue queue;
  const auto call = stub_.PrepareUnaryCall(context, method, request, &queue);
  call->StartCall();
  call->Finish(&reply, &status, nullptr);
  void* tag;
  bool ok;
  queue.Next(&tag, &ok);
  return status;
}

grpc::Status HostileCaller::Wire() {
  grpc::ClientContext context;
  const size_t kind = Below(4);
  if (kind == 0) return Unary(kAttend, bad_[Below(bad_.size())], &context);
  if (kind == 1) return Unary(kAttend, Noise(2048), &context);
  const auto& from = kind == 2 ? good_ : bad_;
  return Unary(kAttend, Turned(from[Below(from.size())]), &context);
}

std::string HostileCaller::StreamMessage() {
  std::string message = parts_[Below(parts_.size())];
  const size_t kind = Below(8);
  if (kind == 0) return Turned(std::move(message));
  if (kind > 1) return message;
  v1::AttendStreamRequest lie;
  lie.mutable_chunk()->set_tensor(static_cast<v1::StreamTensor>(Below(9)));
  const int64_t offsets[] = {-1, kMax, kMax - 8, 0, 64};
  lie.mutable_chunk()->set_byte_offset(offsets[Below(std::size(offsets))]);
  lie.mutable_chunk()->set_data(Noise(256));
  return lie.SerializeAsString();
}

grpc::Status HostileCaller::Stream() {
  grpc::ClientContext context;
  SetDeadline(&context);
  grpc::CompletionQueue queue;
  const auto next = [&queue] {
    void* tag;
    bool ok = false;
    queue.Next(&tag, &ok);
    return ok;
  };
  const auto call = stub_.PrepareCall(&context, kAttendStream, &queue);
  call->StartCall(nullptr);
  next();
  for (size_t left = Below(10); left > 0; --left) {
    const grpc::Slice slice(StreamMessage());
    call->Write(grpc::ByteBuffer(&slice, 1), nullptr);
    if (!next()) break;
  }
  if (Below(4) == 0) context.TryCancel();
  call->WritesDone(nullptr);
  next();
  grpc::ByteBuffer reply;
  do {
    call->Read(&reply, nullptr);
  } while (next());
  grpc::Status status;
  call->Finish(&status, nullptr);
  next();
  return status;
}

grpc::Status HostileCaller::Infer() {
  grpc::ClientContext context;
  return Unary(kInfer, Below(3) == 0 ? Noise(1024) : Turned(infer_[0]),
               &context);
}

grpc::Status HostileCaller::Metadata() {
  grpc::ClientContext context;
  switch (Below(4)) {
    case 0:
      for (int i = 0; i < 100; ++i) {
        context.AddMetadata("x" + std::to_string(i), std::string(60, 'y'));
      }
      break;
    case 1:
      context.AddMetadata("x-bin", Noise(4000));
      break;
    case 2:
      context.AddMetadata("authorization", std::string(Below(5000), 'B'));
      context.AddMetadata("traceparent", std::string(Below(200), '-'));
      break;
    default:
      context.AddMetadata("x", std::string(Below(20'000), 'z'));
      context.AddMetadata("attendant-owner", std::string(Below(300), 'o'));
  }
  return Unary(kAttend, good_[Below(good_.size())], &context);
}

grpc::Status HostileCaller::Regions() {
  grpc::ClientContext context;
  SetDeadline(&context);
  context.AddMetadata("attendant-owner", Below(2) == 0
                                             ? std::string(32, 'h')
                                             : std::string(Below(200), 'p'));
  const int64_t sizes[] = {-1, 0, 1, 4096, kMax, kMax - 4096};
  const auto size = [&] { return sizes[Below(std::size(sizes))]; };
  const char* const names[] = {"", "/", "../../etc/passwd", "/attendant", "x"};
  const std::string name = names[Below(std::size(names))];
  switch (Below(6)) {
    case 0: {
      v1::RegionStatus status;
      v1::AllocateBufferRequest request;
      request.set_byte_length(size());
      return regions_->AllocateBuffer(&context, request, &status);
    }
    case 1: {
      v1::RegionStatus status;
      v1::RegisterPosixRequest request;
      request.set_shm_name(name);
      request.set_byte_length(size());
      return regions_->RegisterPosix(&context, request, &status);
    }
    case 2: {
      v1::RegionStatus status;
      v1::RegisterCudaIpcRequest request;
      request.set_handle(Noise(100));
      request.set_byte_offset(size());
      request.set_byte_length(size());
      return regions_->RegisterCudaIpc(&context, request, &status);
    }
    case 3: {
      v1::ReleaseResponse reply;
      v1::ReleaseRequest request;
      request.set_name(name);
      return regions_->Release(&context, request, &reply);
    }
    case 4: {
      v1::WriteResponse reply;
      const auto writer = regions_->Write(&context, &reply);
      v1::WriteRequest request;
      request.set_name(name);
      request.set_byte_offset(size());
      request.set_data(Noise(512));
      while (writer->Write(request) && Below(3) > 0) {
      }
      writer->WritesDone();
      return writer->Finish();
    }
    default: {
      v1::AttendRequest request = GoodRequest();
      request.clear_q_data();
      auto* region = request.mutable_q()->mutable_region();
      region->set_name(name);
      region->set_byte_offset(size());
      region->set_byte_length(size());
      grpc::ClientContext own;
      own.AddMetadata("attendant-owner", std::string(32, 'h'));
      return Unary(kAttend, request.SerializeAsString(), &own);
    }
  }
}

grpc::Status HostileCaller::Methods() {
  const char* const methods[] = {"/", "/attendant.v1.AttentionService/",
                                 "/attendant.v1.AttentionService/Attend2",
                                 "/no.Such/Service", "no slash"};
  grpc::ClientContext context;
  return Unary(methods[Below(std::size(methods))], Noise(4096), &context);
}

void HostileCaller::Half() {
  const RawConnection connection(address_);
  if (!connection.connected()) return;
  std::string bytes = Http2Start() + GrpcHeaders(1, kAttend);
  std::string body(5, '\0');
  body[4] = static_cast<char>(200);  // more than comes
  body += good_[0].substr(0, Below(150));
  bytes += Http2Frame(kHttp2Data, 0, 1, body);
  switch (Below(4)) {
    case 0:  // the end anywhere
      bytes.resize(Below(bytes.size()));
      break;
    case 1:  // frames of every kind
      for (size_t left = Below(20); left > 0; --left) {
        bytes += Http2Frame(static_cast<uint8_t>(Below(12)),
                            static_cast<uint8_t>(Below(256)),
                            static_cast<uint32_t>(Below(4)), Noise(64));
      }
      break;
    case 2:  // reset, and again (rapid reset)
      for (uint32_t stream = 3; stream < 43; stream += 2) {
        bytes +=
            GrpcHeaders(stream, kAttend) +
            Http2Frame(kHttp2RstStream, 0, stream, std::string("\0\0\0\x8", 4));
      }
      break;
    default:
      bytes = Noise(1024);
  }
  connection.Send(bytes);
  bool closed = false;
  if (Below(2) == 0) connection.Receive(20, &closed);
}

}  // namespace attendant::testing
