// The client's answers -> what a C caller reads.
#pragma once

#include <string>

#include "client/cpp/attend_args.h"
#include "client/cpp/c_api/attendant_client_c.h"
#include "client/cpp/server_info.h"

namespace attendant::client {

// Freed by attendant_result_free.
attendant_result* MakeResult(AttendResult result);

// Freed by attendant_server_info_free.
attendant_server_info* MakeServerInfo(ServerInfo info);

}  // namespace attendant::client
