// An inline request sent by a region: its tensors lie there, its answer comes
// there.
#pragma once

#include <memory>
#include <string>

#include "attendant/v1/region.grpc.pb.h"
#include "client/cpp/shared_tensors.h"
#include "tests/integration/real_server.h"

namespace attendant::testing {

enum class Road { kHostBuffer, kDeviceBuffer, kMemfd, kPosix };
const char* RoadName(Road road);
// A path for the server's region socket, of this process.
std::string RoadSocket();

// One region of one owner, for calls one after the other.
class RegionRoad {
 public:
  // `bytes`: room for inputs and outputs. kMemfd needs RoadSocket() as the
  // server's socket.
  RegionRoad(RealServer* server, Road road, int64_t bytes);
  ~RegionRoad();

  // Sends `request` inline, then by the region, and checks that both answers
  // are bitwise the same. `reply` is the second, its bytes filled in.
  grpc::Status Attend(const v1::AttendRequest& request,
                      v1::AttendResponse* reply);

  // All tensors of `request` moved into the region.
  v1::AttendRequest Moved(const v1::AttendRequest& request);
  const std::string& name() const { return region_.name(); }
  const std::string& owner() const { return owner_; }
  v1::RegionService::Stub& regions() { return *regions_; }

  grpc::Status AttendRaw(const v1::AttendRequest& request,
                         v1::AttendResponse* reply);
  // The region was released already.
  void Forget() { region_.Clear(); }

  void Write(int64_t offset, const std::string& bytes);
  // By a connection of its own.
  static void Write(const std::string& address, const std::string& owner,
                    const std::string& name, int64_t offset,
                    const std::string& bytes);
  std::string Read(int64_t offset, int64_t bytes);

 private:
  void Begin(grpc::ClientContext* context) const;
  void Make(int64_t bytes);
  void MakeMemfd(int64_t bytes);
  void MakePosix(int64_t bytes);

  RealServer* const server_;
  const Road road_;
  const std::string owner_;
  const std::unique_ptr<v1::RegionService::Stub> regions_;
  v1::RegionStatus region_;
  std::unique_ptr<client::SharedTensors> memfd_;  // kMemfd
  std::string shm_name_;                          // kPosix
  std::byte* mapped_ = nullptr;                   // kMemfd, kPosix
  size_t mapped_bytes_ = 0;                       // kPosix
  int64_t next_offset_ = 0;
};

}  // namespace attendant::testing
