#include "client/cpp/c_api/attendant_client_c.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <cstdint>
#include <limits>
#include <mutex>
#include <numeric>
#include <thread>
#include <vector>

#include "tests/client/cpp/fake_server.h"
#include "tests/client/cpp/no_more_threads.h"

namespace attendant::client {
namespace {

constexpr int64_t kPatient = 30'000'000'000;

// [1, 4, 1, 2] for a server that echoes q.
struct Args : attendant_attend_args {
  int64_t shape[4] = {1, 4, 1, 2};
  std::vector<float> values = std::vector<float>(8);

  Args() : attendant_attend_args{} {
    struct_size = sizeof(attendant_attend_args);
    std::iota(values.begin(), values.end(), 0.5f);
    q.data = values.data();
    q.shape = shape;
    q.rank = 4;
    q.dtype = ATTENDANT_FP32;
    k = v = q;
  }
};

// Answers only once it is released.
struct Gate {
  std::mutex mutex;
  std::condition_variable changed;
  int waiting = 0;
  bool open = false;

  grpc::Status Pass(grpc::ServerContext* context, const v1::AttendRequest& q,
                    v1::AttendResponse* response) {
    std::unique_lock lock(mutex);
    ++waiting;
    changed.notify_all();
    changed.wait(lock, [&] { return open; });
    return EchoQ(context, q, response);
  }
  void AwaitCaller() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return waiting > 0; });
  }
  void Open() {
    std::lock_guard lock(mutex);
    open = true;
    changed.notify_all();
  }
};

class CClientTest : public testing::Test {
 protected:
  ~CClientTest() override { attendant_client_free(client_); }

  void Connect(const FakeServer& server) {
    ASSERT_EQ(
        attendant_client_create(server.target().c_str(), nullptr, &client_),
        nullptr);
  }

  attendant_client* client_ = nullptr;
};

FakeServer::Answer Through(Gate* gate) {
  return [gate](auto* context, const auto& request, auto* response) {
    return gate->Pass(context, request, response);
  };
}

TEST_F(CClientTest, WritesTheAnswerIntoTheCallersMemory) {
  FakeServer server(EchoQ);
  Connect(server);
  Args args;
  std::vector<float> out(8), lse(4);
  args.out = {out.data(), 32};
  args.lse = {lse.data(), 16};
  args.return_lse = 1;
  args.request_id = "mine";
  attendant_result* result = nullptr;
  ASSERT_EQ(attendant_attend(client_, &args, kPatient, nullptr, &result),
            nullptr);
  const attendant_reply& reply = *attendant_result_reply(result);
  EXPECT_EQ(out, args.values);
  EXPECT_EQ(lse, (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(reply.out.data, out.data());
  EXPECT_EQ(reply.out.rank, 4);
  EXPECT_EQ(reply.out.shape[1], 4);
  EXPECT_STREQ(reply.request_id, "mine");
  EXPECT_STREQ(reply.kernel, "fake");
  EXPECT_STREQ(reply.door, "unary");
  EXPECT_EQ(reply.attempts, 1);
  attendant_result_free(result);
}

TEST_F(CClientTest, PassesOptionsOfEveryKind) {
  v1::AttendRequest seen;
  FakeServer server([&](auto* context, const auto& request, auto* response) {
    seen = request;
    return EchoQ(context, request, response);
  });
  Connect(server);
  Args args;
  const int64_t lengths[] = {3};
  const float slopes[] = {0.25f};
  args.seqlens_k = lengths;
  args.num_seqlens_k = 1;
  args.alibi_slopes = slopes;
  args.num_alibi_slopes = 1;
  args.present = ATTENDANT_HAS_SOFTMAX_SCALE | ATTENDANT_HAS_WINDOW_RIGHT;
  args.softcap = 3;  // not present
  args.causal = 1;
  args.alignment = ATTENDANT_TOP_LEFT;
  args.layout = ATTENDANT_BHSD;
  attendant_result* result = nullptr;
  ASSERT_EQ(attendant_attend(client_, &args, kPatient, nullptr, &result),
            nullptr);
  attendant_result_free(result);
  EXPECT_EQ(seen.seqlens_k(0), 3);
  EXPECT_EQ(seen.alibi_slopes(0), 0.25f);
  EXPECT_TRUE(seen.has_softmax_scale() && seen.softmax_scale() == 0);
  EXPECT_TRUE(seen.has_window_right() && !seen.has_window_left());
  EXPECT_FALSE(seen.has_softcap());
  EXPECT_TRUE(seen.causal());
  EXPECT_EQ(seen.alignment(), v1::CAUSAL_ALIGNMENT_TOP_LEFT);
  EXPECT_EQ(seen.q().layout(), v1::LAYOUT_BHSD);
}

TEST_F(CClientTest, ReadsNothingBeyondTheCallersStruct) {
  FakeServer server(EchoQ);
  Connect(server);
  Args args;
  args.struct_size = offsetof(attendant_attend_args, priority);
  args.priority = 1000;  // a later version's field: not sent
  attendant_result* result = nullptr;
  ASSERT_EQ(attendant_attend(client_, &args, kPatient, nullptr, &result),
            nullptr);
  attendant_result_free(result);
  args.struct_size = 0;
  attendant_error* error =
      attendant_attend(client_, &args, kPatient, nullptr, &result);
  ASSERT_NE(error, nullptr);
  EXPECT_STREQ(error->field, "args.struct_size");
  attendant_error_free(error);
}

TEST_F(CClientTest, ErrorsNameFieldValueAndBound) {
  FakeServer server(EchoQ);
  Connect(server);
  Args args;
  args.q.device_type = ATTENDANT_CUDA;
  attendant_result* result = nullptr;
  attendant_error* error =
      attendant_attend(client_, &args, kPatient, nullptr, &result);
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->code, 3);
  EXPECT_STREQ(error->field, "q.device_type");
  EXPECT_STREQ(error->value, "2");
  EXPECT_NE(std::string(error->bound), "");
  EXPECT_EQ(result, nullptr);
  attendant_error_free(error);

  attendant_client_options options{};
  options.struct_size = sizeof options;
  options.door = "window";
  attendant_client* none = nullptr;
  error = attendant_client_create("localhost:1", &options, &none);
  ASSERT_NE(error, nullptr);
  EXPECT_STREQ(error->field, "door");
  EXPECT_EQ(none, nullptr);
  attendant_error_free(error);
}

TEST_F(CClientTest, APreparedCallReadsItsMemoryAnewEachTime) {
  FakeServer server(EchoQ);
  Connect(server);
  Args args;
  std::vector<float> out(8);
  attendant_prepared* prepared = nullptr;
  attendant_error* error = attendant_prepare(client_, &args, &prepared);
  ASSERT_NE(error, nullptr) << "no memory for the answer";
  EXPECT_STREQ(error->field, "out");
  attendant_error_free(error);
  args.out = {out.data(), 32};
  ASSERT_EQ(attendant_prepare(client_, &args, &prepared), nullptr);
  const attendant_placed& placed = *attendant_prepared_memory(prepared);
  EXPECT_EQ(placed.q, args.values.data()) << "unary moves nothing";
  EXPECT_EQ(placed.mask, nullptr);
  for (float value : {3.0f, 4.0f}) {
    static_cast<float*>(placed.q)[5] = value;
    attendant_result* result = nullptr;
    ASSERT_EQ(attendant_attend_prepared(client_, prepared, kPatient, nullptr,
                                        &result),
              nullptr);
    EXPECT_EQ(static_cast<float*>(placed.out)[5], value);
    attendant_result_free(result);
  }
  attendant_prepared_free(prepared);
}

TEST_F(CClientTest, CancelEndsABlockingCall) {
  Gate gate;
  FakeServer server(Through(&gate));
  Connect(server);
  Args args;
  attendant_cancel* cancel = attendant_cancel_create();
  std::thread canceller([&] {
    gate.AwaitCaller();
    attendant_cancel_request(cancel);
  });
  attendant_result* result = nullptr;
  attendant_error* error =
      attendant_attend(client_, &args, kPatient, cancel, &result);
  canceller.join();
  gate.Open();
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->code, 1);
  attendant_error_free(error);
  error = attendant_attend(client_, &args, kPatient, cancel, &result);
  ASSERT_NE(error, nullptr) << "cancelled before it began";
  EXPECT_EQ(error->code, 1);
  attendant_error_free(error);
  attendant_cancel_free(cancel);
}

TEST_F(CClientTest, AsynchronousCallsAreWaitedForAndTakenOnce) {
  FakeServer server(EchoQ);
  Connect(server);
  Args args;
  std::vector<attendant_call*> calls(20);
  for (attendant_call*& call : calls) {
    ASSERT_EQ(attendant_attend_start(client_, &args, kPatient, nullptr, nullptr,
                                     &call),
              nullptr);
  }
  for (attendant_call* call : calls) {
    EXPECT_EQ(attendant_call_wait(call, -1), 1);
    attendant_result* result = nullptr;
    ASSERT_EQ(attendant_call_take(call, &result), nullptr);
    EXPECT_EQ(
        static_cast<const float*>(attendant_result_reply(result)->out.data)[7],
        7.5f);
    attendant_result_free(result);
    attendant_error* error = attendant_call_take(call, &result);
    ASSERT_NE(error, nullptr);
    EXPECT_EQ(error->code, 9);
    attendant_error_free(error);
    attendant_call_free(call);
  }
}

// A call that has reached the server, which holds it.
class HeldCallTest : public CClientTest {
 protected:
  void SetUp() override {
    Connect(server_);
    ASSERT_EQ(attendant_attend_start(client_, &args_, kPatient, nullptr,
                                     nullptr, &call_),
              nullptr);
    gate_.AwaitCaller();
  }
  ~HeldCallTest() override {
    gate_.Open();
    attendant_call_free(call_);
  }

  Gate gate_;
  FakeServer server_{Through(&gate_)};
  Args args_;
  attendant_call* call_ = nullptr;
};

TEST_F(HeldCallTest, TheLongestWaitLastsUntilTheCallHasEnded) {
  std::thread opener([&] { gate_.Open(); });
  EXPECT_EQ(attendant_call_wait(call_, std::numeric_limits<int64_t>::max()), 1);
  opener.join();
}

TEST_F(HeldCallTest, AsynchronousCallsAreCancelled) {
  EXPECT_EQ(attendant_call_wait(call_, 0), 0);
  attendant_call_cancel(call_);
  attendant_result* result = nullptr;
  attendant_error* error = attendant_call_take(call_, &result);
  gate_.Open();
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->code, 1);
  attendant_error_free(error);
}

struct Told {
  std::mutex mutex;
  int results = 0;
  int errors = 0;
};

void Tell(void* user_data, attendant_error* error, attendant_result* result) {
  Told* told = static_cast<Told*>(user_data);
  std::lock_guard lock(told->mutex);
  ++(error == nullptr ? told->results : told->errors);
  attendant_error_free(error);
  attendant_result_free(result);
}

TEST_F(CClientTest, FreeingTheClientCancelsAndTellsEveryCallback) {
  Gate gate;
  FakeServer server(Through(&gate));
  attendant_client_options options{};
  options.struct_size = sizeof options;
  options.max_async_calls = 1;
  ASSERT_EQ(
      attendant_client_create(server.target().c_str(), &options, &client_),
      nullptr);
  Args args;
  Told told;
  for (int c = 0; c < 3; ++c) {
    ASSERT_EQ(
        attendant_attend_start(client_, &args, kPatient, Tell, &told, nullptr),
        nullptr);
  }
  gate.AwaitCaller();
  attendant_client_free(std::exchange(client_, nullptr));
  gate.Open();
  EXPECT_EQ(told.errors, 3);
  EXPECT_EQ(told.results, 0);
}

TEST_F(CClientTest, ACallThatNoThreadCanRunIsAnErrorAtOnce) {
  FakeServer server(EchoQ);
  Connect(server);
  Args args;
  Told told;
  attendant_call* call = nullptr;
  {
    const NoMoreThreads scarce;
    attendant_error* error =
        attendant_attend_start(client_, &args, kPatient, Tell, &told, &call);
    ASSERT_NE(error, nullptr);
    EXPECT_EQ(error->code, 8);
    attendant_error_free(error);
  }
  EXPECT_EQ(call, nullptr);
  ASSERT_EQ(
      attendant_attend_start(client_, &args, kPatient, Tell, &told, &call),
      nullptr);
  EXPECT_EQ(attendant_call_wait(call, -1), 1);
  attendant_call_free(call);
  EXPECT_EQ(told.results, 1);
  EXPECT_EQ(told.errors, 0);
}

TEST_F(CClientTest, SeveralServersTakeCallsInTurn) {
  FakeServer first(EchoQ), second(EchoQ);
  attendant_client_options options{};
  options.struct_size = sizeof options;
  options.balance = 1;
  const std::string both = "ipv4:" + first.target() + "," + second.target();
  ASSERT_EQ(attendant_client_create(both.c_str(), &options, &client_), nullptr);
  const Args args;
  while (first.calls() == 0 || second.calls() == 0) {
    attendant_result* result = nullptr;
    ASSERT_EQ(attendant_attend(client_, &args, kPatient, nullptr, &result),
              nullptr);
    attendant_result_free(result);
  }
  // What has to reach one server is refused.
  options.door = "shm";
  attendant_client* none = nullptr;
  attendant_error* error =
      attendant_client_create(both.c_str(), &options, &none);
  ASSERT_NE(error, nullptr);
  EXPECT_STREQ(error->field, "door");
  attendant_error_free(error);
}

TEST_F(CClientTest, NullsAreRefused) {
  attendant_result* result = nullptr;
  attendant_error* error =
      attendant_attend(nullptr, nullptr, kPatient, nullptr, &result);
  ASSERT_NE(error, nullptr);
  EXPECT_STREQ(error->field, "client");
  attendant_error_free(error);
  attendant_client_free(nullptr);
  attendant_call_free(nullptr);
  attendant_cancel_free(nullptr);
  EXPECT_EQ(attendant_abi_version(), ATTENDANT_ABI_VERSION);
}

}  // namespace
}  // namespace attendant::client
