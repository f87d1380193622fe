// What the command prints: for people, or as one JSON object.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "client/cpp/attend_args.h"
#include "client/cpp/cli/oracle_check.h"
#include "client/cpp/server_info.h"

namespace attendant::client::cli {

std::string ResultText(const AttendResult& result);
std::string ResultJson(const AttendResult& result);
std::string CheckText(const AttendResult& result, const CheckReport& report);
std::string CheckJson(const AttendResult& result, const CheckReport& report);
std::string InfoText(const ServerInfo& info);
std::string InfoJson(const ServerInfo& info);

// "CODE: text", and field, value and bound on lines of their own.
std::string ErrorText(const absl::Status& status);

}  // namespace attendant::client::cli
