#include "server/log/grpc_log.h"

#include <grpc/support/log.h>

#include <cstring>

#include "server/log/log.h"

namespace attendant::server {
namespace {

LogLevel LevelOf(gpr_log_severity severity) {
  // What gRPC calls an error is mostly some caller's: a handshake that failed.
  switch (severity) {
    case GPR_LOG_SEVERITY_DEBUG:
      return LogLevel::kDebug;
    case GPR_LOG_SEVERITY_INFO:
      return LogLevel::kInfo;
    case GPR_LOG_SEVERITY_ERROR:
      break;
  }
  return LogLevel::kWarning;
}

void WriteLine(gpr_log_func_args* args) {
  const LogLevel level = LevelOf(args->severity);
  if (!LogEnabled(level)) return;
  const char* slash = std::strrchr(args->file, '/');
  Log(level, args->message,
      {{"source", "grpc"},
       {"file", slash != nullptr ? slash + 1 : args->file},
       {"line", args->line}});
}

}  // namespace

void TakeGrpcLog() { gpr_set_log_function(WriteLine); }

}  // namespace attendant::server
