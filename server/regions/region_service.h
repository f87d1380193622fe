// attendant.v1.RegionService: register, fill, read, release, list. Thin: what
// it means lies in region_registry.h and the makers of memory.
#pragma once

#include <grpcpp/server_context.h>

#include <memory>
#include <string>

#include "attendant/v1/region.pb.h"
#include "server/calls/attend_call.h"
#include "server/regions/region_device.h"
#include "server/regions/region_options.h"

namespace grpc {
class Service;
}  // namespace grpc

namespace attendant::server {

// The metadata `attendant-owner`; empty if it is not there exactly once.
std::string RegionOwner(const grpc::CallbackServerContext& context);

v1::RegionStatus DescribeRegion(const RegionEntry& entry,
                                const DeviceDescription& device);

// Register it only if options.served(). What makes memory runs on the engine's
// copy threads, as registering with a device takes milliseconds.
std::unique_ptr<grpc::Service> MakeRegionService(const RegionOptions& options,
                                                 CallEnvironment* environment);

}  // namespace attendant::server
