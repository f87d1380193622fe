// GetServerInfo: what this server is, what it can do, its bounds.
#pragma once

#include <string>

#include "attendant/v1/attention.pb.h"
#include "server/engine/attention_engine.h"
#include "server/request/bounds.h"

namespace attendant::server {

// Everything but uptime_ns, which the caller sets per answer. Capability rows
// are those of this build that `device` can run.
v1::GetServerInfoResponse DescribeServer(const DeviceDescription& device,
                                         const Bounds& bounds);

// "0.1.0", and "gcc 12.2.0, cuda 13.0" or "gcc 12.2.0, no cuda".
std::string ServerVersion();
std::string ServerBuild();

}  // namespace attendant::server
