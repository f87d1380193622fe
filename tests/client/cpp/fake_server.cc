#include "tests/client/cpp/fake_server.h"

#include <utility>
#include <vector>

namespace attendant::client {

FakeServer::FakeServer(Answer answer, int port,
                       std::shared_ptr<grpc::ServerCredentials> credentials)
    : answer_(std::move(answer)) {
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:" + std::to_string(port),
                           std::move(credentials), &port_);
  builder.SetMaxReceiveMessageSize(-1);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.RegisterService(this);
  server_ = builder.BuildAndStart();
}

FakeServer::~FakeServer() {
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
}

std::string FakeServer::target() const {
  return "127.0.0.1:" + std::to_string(port_);
}

grpc::Status FakeServer::Attend(grpc::ServerContext* context,
                                const v1::AttendRequest* request,
                                v1::AttendResponse* response) {
  ++calls_;
  return answer_(context, *request, response);
}

grpc::Status FakeServer::GetServerInfo(grpc::ServerContext*,
                                       const v1::GetServerInfoRequest*,
                                       v1::GetServerInfoResponse* response) {
  response->set_version("1.2.3");
  response->mutable_bounds()->set_max_head_dim(256);
  v1::Device* device = response->add_devices();
  device->set_backend(v1::BACKEND_CPU);
  device->set_name("fake");
  v1::Capability* capability = response->add_capabilities();
  capability->set_kernel("cpu");
  capability->set_backend(v1::BACKEND_CPU);
  capability->add_input_dtypes(v1::DATA_TYPE_BF16);
  capability->set_softcap(true);
  return grpc::Status::OK;
}

grpc::Status EchoQ(grpc::ServerContext*, const v1::AttendRequest& request,
                   v1::AttendResponse* response) {
  response->set_request_id(request.request_id());
  response->mutable_served_by()->set_kernel("fake");
  response->mutable_served_by()->set_backend(v1::BACKEND_CPU);
  response->mutable_exposed()->set_kernel_ns(7);
  *response->mutable_output() = request.q();
  response->set_output_data(request.q_data());
  if (!request.return_lse()) return grpc::Status::OK;
  int64_t rows = 1;
  v1::TensorSpec* lse = response->mutable_lse();
  lse->set_dtype(v1::DATA_TYPE_FP32);
  for (const int d : {0, 2, 1}) {  // of BSHD
    lse->add_shape(request.q().shape(d));
    rows *= request.q().shape(d);
  }
  std::vector<float> values;
  for (int64_t r = 0; r < rows; ++r)
    values.push_back(static_cast<float>(r + 1));
  response->set_lse_data(values.data(), values.size() * sizeof(float));
  return grpc::Status::OK;
}

}  // namespace attendant::client
