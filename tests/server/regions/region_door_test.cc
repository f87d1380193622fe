#include "server/regions/region_door.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>
#include <thread>

#include "tests/server/fake_attention_engine.h"

namespace attendant::testing {
namespace {

using server::UniqueFd;
using ::testing::HasSubstr;

const std::string kOwner(32, 'o');
constexpr int64_t kBytes = 1 << 16;

int64_t OpenDescriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return std::distance(begin(all), end(all));
}

UniqueFd Memfd(int64_t bytes, int seals) {
  UniqueFd fd(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(ftruncate(fd.get(), bytes), 0);
  EXPECT_EQ(fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  return fd;
}
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;

v1::RegionDoorRequest MemfdRequest(int64_t bytes, bool read_only = false) {
  v1::RegionDoorRequest request;
  request.mutable_register_memfd()->set_byte_length(bytes);
  request.mutable_register_memfd()->set_read_only(read_only);
  return request;
}

class Caller {
 public:
  explicit Caller(const std::string& path, const std::string& owner = kOwner)
      : fd_(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, path.c_str());
    EXPECT_EQ(connect(fd_.get(), reinterpret_cast<sockaddr*>(&address),
                      sizeof(address)),
              0);
    if (owner.empty()) return;
    v1::RegionDoorRequest open;
    open.mutable_open()->set_owner(owner);
    EXPECT_EQ(Ask(open, {}).code(), 0);
  }

  v1::RegionDoorReply Ask(const v1::RegionDoorRequest& request,
                          const std::vector<int>& descriptors) {
    return AskBytes(request.SerializeAsString(), descriptors);
  }
  v1::RegionDoorReply AskBytes(std::string bytes,
                               const std::vector<int>& descriptors) {
    iovec data{bytes.data(), bytes.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * 8)] = {};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    if (!descriptors.empty()) {
      message.msg_control = control;
      message.msg_controllen = CMSG_SPACE(sizeof(int) * descriptors.size());
      cmsghdr* part = CMSG_FIRSTHDR(&message);
      part->cmsg_level = SOL_SOCKET;
      part->cmsg_type = SCM_RIGHTS;
      part->cmsg_len = CMSG_LEN(sizeof(int) * descriptors.size());
      std::memcpy(CMSG_DATA(part), descriptors.data(),
                  sizeof(int) * descriptors.size());
    }
    EXPECT_GT(sendmsg(fd_.get(), &message, MSG_NOSIGNAL), 0);
    char reply_bytes[4096];
    const ssize_t count = recv(fd_.get(), reply_bytes, sizeof(reply_bytes), 0);
    v1::RegionDoorReply reply;
    EXPECT_GT(count, 0);
    EXPECT_TRUE(reply.ParseFromArray(reply_bytes, static_cast<int>(count)));
    return reply;
  }
  void HangUp() { fd_ = UniqueFd(); }

 private:
  UniqueFd fd_;
};

class RegionDoorTest : public ::testing::Test {
 protected:
  RegionDoorTest() {
    options_.socket = ::testing::TempDir() + "/attendant_region_door_test." +
                      std::to_string(getpid());
    server::Bounds bounds;
    options_.ApplyTo(&bounds);
    registry_ = std::make_unique<server::RegionRegistry>(bounds);
    makers_ = std::make_unique<server::RegionMakers>(options_, &engine_,
                                                     registry_.get());
    auto door =
        server::RegionDoor::Start(options_, makers_.get(), registry_.get(),
                                  [](const server::RegionEntry& entry) {
                                    v1::RegionStatus status;
                                    status.set_name(entry.name);
                                    return status;
                                  });
    EXPECT_TRUE(door.ok()) << door.status();
    door_ = *std::move(door);
  }

  // The door's thread notices a closed connection in its own time.
  void AwaitRegions(int64_t count) {
    const auto held = [&] {
      return registry_->Counts()
          .regions[static_cast<int>(server::RegionKind::kMemfd)];
    };
    const auto end = server::Clock::now() + std::chrono::seconds(60);
    while (held() != count && server::Clock::now() < end) {
      std::this_thread::yield();
    }
    EXPECT_EQ(held(), count);
  }

  FakeAttentionEngine engine_;
  server::RegionOptions options_;
  std::unique_ptr<server::RegionRegistry> registry_;
  std::unique_ptr<server::RegionMakers> makers_;
  std::unique_ptr<server::RegionDoor> door_;
};

TEST_F(RegionDoorTest, ASealedMemfdIsSharedAndCannotBeCut) {
  Caller caller(options_.socket);
  const UniqueFd memfd = Memfd(kBytes, kSeals);
  const auto reply = caller.Ask(MemfdRequest(kBytes), {memfd.get()});
  ASSERT_EQ(reply.code(), 0) << reply.message();
  EXPECT_EQ(ftruncate(memfd.get(), 0), -1);
  const auto entry = registry_->Find(kOwner, reply.region().name(), "");
  ASSERT_TRUE(entry.ok());
  EXPECT_EQ(pwrite(memfd.get(), "x", 1, kBytes - 1), 1);
  EXPECT_EQ(entry->memory->host()[kBytes - 1], std::byte{'x'});
  entry->memory->host()[0] = std::byte{'y'};
  char read = 0;
  EXPECT_EQ(pread(memfd.get(), &read, 1, 0), 1);
  EXPECT_EQ(read, 'y');
}

TEST_F(RegionDoorTest, RegionsDieWithTheirConnectionButNotUnderAUser) {
  auto caller = std::make_unique<Caller>(options_.socket);
  const UniqueFd memfd = Memfd(kBytes, kSeals);
  const auto reply = caller->Ask(MemfdRequest(kBytes), {memfd.get()});
  {
    const auto user = registry_->Find(kOwner, reply.region().name(), "");
    ASSERT_TRUE(user.ok());
    caller->HangUp();
    while (registry_->Find(kOwner, reply.region().name(), "").ok()) {
      std::this_thread::yield();
    }
    EXPECT_EQ(user->memory->host()[0], std::byte{0}) << "still mapped";
    AwaitRegions(1);
  }
  AwaitRegions(0);
}

TEST_F(RegionDoorTest, ReleasesOnceAndOnlyItsOwn) {
  Caller caller(options_.socket);
  const UniqueFd memfd = Memfd(kBytes, kSeals);
  v1::RegionDoorRequest release;
  release.mutable_release()->set_name(
      caller.Ask(MemfdRequest(kBytes), {memfd.get()}).region().name());
  Caller same_owner(options_.socket);
  EXPECT_EQ(same_owner.Ask(release, {}).code(),
            static_cast<int>(absl::StatusCode::kNotFound));
  EXPECT_EQ(caller.Ask(release, {}).code(), 0);
  EXPECT_EQ(caller.Ask(release, {}).code(),
            static_cast<int>(absl::StatusCode::kNotFound));
  AwaitRegions(0);
}

TEST_F(RegionDoorTest, EveryAbuseIsNamedAndLeavesNoDescriptor) {
  Caller caller(options_.socket);
  const UniqueFd good = Memfd(kBytes, kSeals);
  const UniqueFd unsealed = Memfd(kBytes, 0);
  const UniqueFd may_grow = Memfd(kBytes, F_SEAL_SHRINK);
  const UniqueFd may_shrink = Memfd(kBytes, F_SEAL_GROW);
  const UniqueFd unwritable = Memfd(kBytes, kSeals | F_SEAL_WRITE);
  const UniqueFd zero(open("/dev/zero", O_RDWR | O_CLOEXEC));
  const UniqueFd file(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  const int64_t before = OpenDescriptors();
  struct Abuse {
    v1::RegionDoorRequest request;
    std::vector<int> descriptors;
    const char* message;
  };
  v1::RegionDoorRequest vmm;
  vmm.mutable_register_cuda_vmm()->set_byte_length(kBytes);
  v1::RegionDoorRequest open;
  open.mutable_open()->set_owner(kOwner);
  const std::vector<Abuse> abuses = {
      {MemfdRequest(kBytes), {unsealed.get()}, "F_SEAL_SHRINK"},
      {MemfdRequest(kBytes), {may_grow.get()}, "F_SEAL_GROW"},
      {MemfdRequest(kBytes), {may_shrink.get()}, "F_SEAL_SHRINK"},
      {MemfdRequest(kBytes), {unwritable.get()}, "can't be written"},
      {MemfdRequest(kBytes), {zero.get()}, "memfd_create"},
      {MemfdRequest(kBytes), {file.get()}, "memfd_create"},
      {MemfdRequest(kBytes + 1), {good.get()}, "1..65536"},
      {MemfdRequest(0), {good.get()}, "byte_length is 0"},
      {MemfdRequest(-4096), {good.get()}, "byte_length is -4096"},
      {MemfdRequest(std::numeric_limits<int64_t>::max()),
       {good.get()},
       "byte_length"},
      {MemfdRequest(kBytes), {}, "descriptors is 0, must be 1"},
      {MemfdRequest(kBytes), {good.get(), good.get()}, "descriptors is 2"},
      {open, {good.get()}, "must be 0"},
      {open, {}, "sent twice"},
      {vmm, {good.get()}, "CPU"},
  };
  for (const Abuse& abuse : abuses) {
    const auto reply = caller.Ask(abuse.request, abuse.descriptors);
    EXPECT_NE(reply.code(), 0) << abuse.message;
    EXPECT_THAT(reply.message(), HasSubstr(abuse.message));
  }
  EXPECT_NE(caller.AskBytes("garbage", {good.get()}).code(), 0);
  EXPECT_NE(caller.AskBytes(std::string(5000, 'x'), {}).code(), 0);
  EXPECT_NE(caller.AskBytes("x", std::vector<int>(8, good.get())).code(), 0);
  EXPECT_EQ(OpenDescriptors(), before);
  // And the next one is served.
  EXPECT_EQ(caller.Ask(MemfdRequest(kBytes, true), {unwritable.get()}).code(),
            0);
  EXPECT_EQ(OpenDescriptors(), before) << "a mapping needs no descriptor";
}

TEST_F(RegionDoorTest, NothingIsServedBeforeAnOwnerIsNamed) {
  Caller caller(options_.socket, "");
  const UniqueFd memfd = Memfd(kBytes, kSeals);
  EXPECT_THAT(caller.Ask(MemfdRequest(kBytes), {memfd.get()}).message(),
              HasSubstr("open"));
  v1::RegionDoorRequest open;
  open.mutable_open()->set_owner("short");
  EXPECT_NE(caller.Ask(open, {}).code(), 0);
}

TEST_F(RegionDoorTest, EightCallersComeAndGo) {
  std::vector<std::jthread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([this] {
      for (int i = 0; i < 20; ++i) {
        Caller caller(options_.socket);
        const UniqueFd memfd = Memfd(kBytes, kSeals);
        EXPECT_EQ(caller.Ask(MemfdRequest(kBytes), {memfd.get()}).code(), 0);
      }
    });
  }
  threads.clear();
  AwaitRegions(0);
}

TEST_F(RegionDoorTest, TheSocketGoesWithTheServerAndAStaleOneIsReplaced) {
  door_.reset();
  EXPECT_FALSE(std::filesystem::exists(options_.socket));
  {
    // What a killed server leaves.
    const UniqueFd dead(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, options_.socket.c_str());
    ASSERT_EQ(bind(dead.get(), reinterpret_cast<sockaddr*>(&address),
                   sizeof(address)),
              0);
  }
  const auto describe = [](const server::RegionEntry&) {
    return v1::RegionStatus();
  };
  auto again = server::RegionDoor::Start(options_, makers_.get(),
                                         registry_.get(), describe);
  EXPECT_TRUE(again.ok()) << again.status();
  EXPECT_FALSE(server::RegionDoor::Start(options_, makers_.get(),
                                         registry_.get(), describe)
                   .ok())
      << "a living one is not";
}

}  // namespace
}  // namespace attendant::testing
