// Peer: Arrow Flight's C++ client and server moving one call's bytes by
// DoExchange, in record batches of up to 4 MiB; nothing is computed.
//
//   transport_flight_peer serve                     prints "ready HOST:PORT"
//   transport_flight_peer call HOST:PORT B S H D CAUSAL STREAMS CALLS
//
// The same command line and answer as peer.py's peers; clients are threads with
// a connection each.
#include <arrow/api.h>
#include <arrow/flight/api.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace attendant::benchmark {
namespace {

namespace flight = arrow::flight;
using Batches = std::vector<std::shared_ptr<arrow::RecordBatch>>;
using std::chrono::steady_clock;

constexpr int64_t kChunk = int64_t{4} << 20;

std::shared_ptr<arrow::Schema> TheSchema() {
  return arrow::schema({arrow::field("bytes", arrow::uint8())});
}

Batches BatchesOf(int64_t total) {
  Batches batches;
  for (; total > 0; total -= kChunk) {
    const int64_t size = std::min(total, kChunk);
    std::shared_ptr<arrow::Buffer> bytes =
        arrow::AllocateBuffer(size).ValueOrDie();
    std::memset(bytes->mutable_data(), 0, static_cast<size_t>(size));
    batches.push_back(arrow::RecordBatch::Make(
        TheSchema(), size,
        {std::make_shared<arrow::UInt8Array>(size, std::move(bytes))}));
  }
  return batches;
}

template <typename Reader>
arrow::Result<int64_t> Drain(Reader& reader) {
  int64_t received = 0;
  while (true) {
    ARROW_ASSIGN_OR_RAISE(const flight::FlightStreamChunk chunk, reader.Next());
    if (chunk.data == nullptr) return received;
    received += chunk.data->num_rows();
  }
}

template <typename Writer>
arrow::Status Send(Writer& writer, const Batches& batches) {
  ARROW_RETURN_NOT_OK(writer.Begin(TheSchema()));
  for (const auto& batch : batches) {
    ARROW_RETURN_NOT_OK(writer.WriteRecordBatch(*batch));
  }
  return arrow::Status::OK();
}

// The descriptor's command is the answer's number of bytes in decimal.
class Server : public flight::FlightServerBase {
 public:
  arrow::Status DoExchange(
      const flight::ServerCallContext&,
      std::unique_ptr<flight::FlightMessageReader> reader,
      std::unique_ptr<flight::FlightMessageWriter> writer) override {
    const int64_t wanted = std::atoll(reader->descriptor().cmd.c_str());
    ARROW_RETURN_NOT_OK(Drain(*reader).status());
    // One buffer for all answers of a size, as a server with pools would.
    thread_local std::pair<int64_t, Batches> last;
    if (last.first != wanted) last = {wanted, BatchesOf(wanted)};
    return Send(*writer, last.second);
  }
};

arrow::Status Call(flight::FlightClient& client, const Batches& request,
                   int64_t answer_bytes) {
  ARROW_ASSIGN_OR_RAISE(flight::FlightClient::DoExchangeResult call,
                        client.DoExchange(flight::FlightCallOptions(),
                                          flight::FlightDescriptor::Command(
                                              std::to_string(answer_bytes))));
  ARROW_RETURN_NOT_OK(Send(*call.writer, request));
  ARROW_RETURN_NOT_OK(call.writer->DoneWriting());
  ARROW_ASSIGN_OR_RAISE(const int64_t received, Drain(*call.reader));
  if (received != answer_bytes) return arrow::Status::IOError("bytes missing");
  return call.writer->Close();
}

arrow::Status Serve() {
  ARROW_ASSIGN_OR_RAISE(const flight::Location location,
                        flight::Location::ForGrpcTcp("127.0.0.1", 0));
  Server server;
  ARROW_RETURN_NOT_OK(server.Init(flight::FlightServerOptions(location)));
  std::printf("ready 127.0.0.1:%d\n", server.port());
  std::fflush(stdout);
  return server.Serve();
}

struct Sizes {
  int64_t tensor_bytes;
  int streams;
  int calls;
};

// When all clients were ready.
struct StartClock {
  steady_clock::time_point* begin;
  void operator()() noexcept { *begin = steady_clock::now(); }
};
using Start = std::barrier<StartClock>;

// Times of one client's calls in ms.
arrow::Result<std::vector<double>> RunClient(const std::string& target,
                                             const Sizes& sizes, Start& start) {
  ARROW_ASSIGN_OR_RAISE(const flight::Location location,
                        flight::Location::Parse("grpc://" + target));
  ARROW_ASSIGN_OR_RAISE(const std::unique_ptr<flight::FlightClient> client,
                        flight::FlightClient::Connect(location));
  const Batches request = BatchesOf(3 * sizes.tensor_bytes);
  for (int i = 0; i < 2; ++i) {
    ARROW_RETURN_NOT_OK(Call(*client, request, sizes.tensor_bytes));
  }
  start.arrive_and_wait();
  std::vector<double> times;
  for (int i = 0; i < sizes.calls; ++i) {
    const steady_clock::time_point begin = steady_clock::now();
    ARROW_RETURN_NOT_OK(Call(*client, request, sizes.tensor_bytes));
    const std::chrono::duration<double, std::milli> time =
        steady_clock::now() - begin;
    times.push_back(time.count());
  }
  return times;
}

void Print(std::vector<double> times, double wall_s, const Sizes& sizes) {
  std::sort(times.begin(), times.end());
  const auto rank = [&](size_t percent) {
    return times[std::max<size_t>(1, (times.size() * percent + 99) / 100) - 1];
  };
  const double moved = 4.0 * static_cast<double>(sizes.tensor_bytes) *
                       static_cast<double>(times.size());
  std::printf(
      "{\"p50_ms\": %.6f, \"p99_ms\": %.6f, \"gbps\": %.6f, "
      "\"answered\": %zu, \"connections\": %d, \"concurrency\": %d}\n",
      rank(50), rank(99), moved / wall_s * 1e-9, times.size(), sizes.streams,
      sizes.streams);
}

int RunClients(const std::string& target, const Sizes& sizes) {
  steady_clock::time_point begin;
  Start start(sizes.streams, StartClock{&begin});
  std::vector<std::vector<double>> times(sizes.streams);
  {
    std::vector<std::jthread> clients;
    for (int s = 0; s < sizes.streams; ++s) {
      clients.emplace_back([&, s] {
        auto result = RunClient(target, sizes, start);
        if (!result.ok()) {
          std::fprintf(stderr, "%s\n", result.status().ToString().c_str());
          std::_Exit(1);
        }
        times[s] = *std::move(result);
      });
    }
  }
  const std::chrono::duration<double> wall = steady_clock::now() - begin;
  std::vector<double> all;
  for (const auto& some : times)
    all.insert(all.end(), some.begin(), some.end());
  Print(std::move(all), wall.count(), sizes);
  return 0;
}

int Main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "serve") == 0) {
    const arrow::Status status = Serve();
    if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
    return status.ok() ? 0 : 1;
  }
  if (argc != 10 || std::strcmp(argv[1], "call") != 0) return 2;
  constexpr int64_t kElementBytes = 2;  // fp16
  int64_t bytes = kElementBytes;
  for (int a = 3; a < 7; ++a) bytes *= std::atoll(argv[a]);
  return RunClients(argv[2], {bytes, std::atoi(argv[8]), std::atoi(argv[9])});
}

}  // namespace
}  // namespace attendant::benchmark

int main(int argc, char** argv) {
  return attendant::benchmark::Main(argc, argv);
}
