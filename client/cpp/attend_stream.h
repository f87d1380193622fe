// One attempt of one Attend over the stream door: the tensors in chunks, over
// one connection or several at once.
#pragma once

#include <optional>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "client/cpp/attend_args.h"
#include "client/cpp/connection_set.h"
#include "client/cpp/request_encoder.h"

namespace attendant::client {

struct StreamOutcome {
  absl::Status status;  // with its ErrorDetail, if the server gave one
  AttendResult result;  // if the status is OK
  std::optional<std::string> pushback;
};

// Blocks until the call has ended. `streams` (1 to the server's max_streams) is
// how many connections of `connections` share the work: more than the first
// join when the server has accepted the request, and one that cannot join is
// done without. A further stream runs on a thread of its own, the first on the
// caller's. `header` and the memory of `args` stay until this returns, and then
// nobody reads them any more.
StreamOutcome AttendOverStreams(ConnectionSet& connections, int streams,
                                const AttendArgs& args,
                                const EncodedHeader& header,
                                SteadyTime deadline,
                                const std::stop_token& stop);

}  // namespace attendant::client
