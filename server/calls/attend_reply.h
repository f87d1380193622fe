// What an answered Attend call says of itself: stage times, device, batch.
#pragma once

#include "attendant/v1/attention.pb.h"
#include "server/engine/attention_engine.h"
#include "server/monitoring/metrics.h"
#include "server/request/problem_validator.h"

namespace attendant::server {

// Times of a call that began at `started`, was handed to the engine at
// `submitted` and is being answered `now`. The exposed stages add up to
// total_ns: receive is what came before the engine, send what came after.
AttendOutcome OutcomeOfAnswer(const JobResult& result,
                              Clock::time_point started,
                              Clock::time_point submitted,
                              Clock::time_point now);

// The reply but for its tensor bytes.
v1::AttendResponse DescribeAnswer(const ValidatedRequest& request,
                                  const JobResult& result,
                                  const AttendOutcome& outcome,
                                  const DeviceDescription& device);

// One line: at level debug, or, if it took `slow_ns` (0 = never slow) or more,
// a warning with its stages.
void LogAnswer(const v1::AttendResponse& reply, const AttendOutcome& outcome,
               const std::string& trace_id, int64_t slow_ns);

}  // namespace attendant::server
