// Callers that send far more than a message may have, against the real binary:
// its memory stays below the bound that it printed, and others are served.
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "tests/integration/real_server.h"
#include "tests/integration/server_process.h"
#include "tests/testing/malformed_requests.h"
#include "tests/testing/stream_call.h"

namespace attendant::testing {
namespace {

constexpr int kAttackers = 20;
constexpr size_t kAttackBytes = size_t{200} << 20;

// A message of 200 MiB that takes 1 MiB here.
grpc::ByteBuffer HugeMessage(const std::string& begin) {
  static const std::string zeros(size_t{1} << 20, '\0');
  std::vector<grpc::Slice> slices = {grpc::Slice(begin)};
  for (size_t sent = 0; sent < kAttackBytes; sent += zeros.size()) {
    slices.emplace_back(zeros.data(), zeros.size(), grpc::Slice::STATIC_SLICE);
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

// Sends the messages on a connection of its own; the call's end.
grpc::StatusCode Attack(const std::string& address, const std::string& method,
                        const std::vector<grpc::ByteBuffer>& messages) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxSendMessageSize(-1);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  grpc::GenericStub stub(grpc::CreateCustomChannel(
      address, grpc::InsecureChannelCredentials(), arguments));
  grpc::ClientContext context;
  SetPatience(&context);
  grpc::CompletionQueue queue;
  void* tag = nullptr;
  bool ok = false;
  const auto call = stub.PrepareCall(
      &context, "/attendant.v1.AttentionService/" + method, &queue);
  call->StartCall(nullptr);
  queue.Next(&tag, &ok);
  for (const grpc::ByteBuffer& message : messages) {
    if (!ok) break;
    call->Write(message, nullptr);
    queue.Next(&tag, &ok);
  }
  // The status comes behind every message.
  grpc::ByteBuffer reply;
  do {
    call->Read(&reply, nullptr);
    queue.Next(&tag, &ok);
  } while (ok);
  grpc::Status status;
  call->Finish(&status, nullptr);
  queue.Next(&tag, &ok);
  return status.error_code();
}

bool IsRetryable(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED ||
         status.error_code() == grpc::StatusCode::UNAVAILABLE;
}

// The bound printed at the start, from its flags.
int64_t BoundOf(const server::ServerOptions& options) {
  return options.HostMemoryBound();
}

class MemoryAttackTest : public ::testing::Test {
 protected:
  MemoryAttackTest()
      : server_({"--backend=cpu", "--cpu_threads=2", "--host_pool_bytes=32M",
                 "--max_request_bytes=4M", "--max_uploads=24"}) {
    options_.engine.host_pool_bytes = int64_t{32} << 20;
    options_.bounds.max_request_bytes = int64_t{4} << 20;
    options_.max_uploads = 24;
  }

  // All attackers at once, while another caller is served.
  void Run(const std::string& method,
           const std::vector<grpc::ByteBuffer>& messages) {
    std::atomic<bool> over{false};
    std::atomic<int64_t> served{0}, refused{0};
    std::thread caller([&] {
      const auto stub = ConnectTo(server_.grpc_address());
      while (!over) {
        grpc::ClientContext context;
        SetPatience(&context);
        v1::AttendResponse reply;
        const auto status = stub->Attend(&context, GoodRequest(), &reply);
        EXPECT_TRUE(status.ok() || (others_try_again_ && IsRetryable(status)))
            << status.error_message();
        served += status.ok();
      }
    });
    std::thread observer([&] {
      while (!over) {
        peak_ = std::max(peak_, server_.ResidentBytes());
        std::this_thread::yield();
      }
    });
    std::vector<std::thread> attackers;
    for (int a = 0; a < kAttackers; ++a) {
      attackers.emplace_back([&] {
        const auto code = Attack(server_.grpc_address(), method, messages);
        refused += code == grpc::StatusCode::INVALID_ARGUMENT ||
                   code == grpc::StatusCode::RESOURCE_EXHAUSTED;
      });
    }
    for (std::thread& attacker : attackers) attacker.join();
    over = true;
    caller.join();
    observer.join();
    EXPECT_EQ(refused, kAttackers);
    EXPECT_GT(served, 0);
    EXPECT_LT(peak_, BoundOf(options_));
    RecordProperty("peak_mib", static_cast<int>(peak_ >> 20));
  }

  server::ServerOptions options_;
  ServerProcess server_;
  int64_t peak_ = 0;
  bool others_try_again_ = false;
};

TEST_F(MemoryAttackTest, TwentyRequestsOf200MegabytesAtALimitOfFour) {
  std::string tag = "\xca\x3e";  // q_data, 200 MiB long
  for (size_t left = kAttackBytes; left > 0; left >>= 7) {
    tag.push_back(static_cast<char>((left & 0x7f) | (left > 0x7f ? 0x80 : 0)));
  }
  Run("Attend", {HugeMessage(tag)});
}

TEST_F(MemoryAttackTest, TwentyStreamsWithAnOversizedMessage) {
  const std::string header = HeaderOf(GoodRequest()).SerializeAsString();
  const grpc::Slice slice(header);
  Run("AttendStream", {grpc::ByteBuffer(&slice, 1), HugeMessage("\x1a")});
}

// Methods that gRPC hands over only when their message is whole in memory: at
// the bound it resets whose stream it likes and sends idle connections away, in
// words that say to try again.
TEST_F(MemoryAttackTest, TwentyOrdinaryCallsOf200Megabytes) {
  others_try_again_ = true;
  Run("GetServerInfo", {HugeMessage("")});
}

}  // namespace
}  // namespace attendant::testing
