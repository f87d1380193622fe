#include "server/regions/posix_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <limits>

#include "server/connections/unique_fd.h"
#include "server/regions/region_registry.h"

namespace attendant::testing {
namespace {

using server::OpenPosixMemory;

// An object of the test's own, gone when the test is over.
class PosixMemoryTest : public ::testing::Test {
 protected:
  PosixMemoryTest() {
    fd_ = server::UniqueFd(
        shm_open(name_.c_str(), O_CREAT | O_EXCL | O_RDWR, 0600));
    EXPECT_TRUE(fd_.valid());
    Resize(8192);
  }
  ~PosixMemoryTest() override { shm_unlink(name_.c_str()); }
  void Resize(int64_t bytes) { EXPECT_EQ(ftruncate(fd_.get(), bytes), 0); }
  int64_t Size() const { return lseek(fd_.get(), 0, SEEK_END); }

  const std::string name_ = "/attendant-" + server::RandomRegionName();
  server::UniqueFd fd_;
};

TEST_F(PosixMemoryTest, ReadsAndWritesTheObject) {
  const auto memory = OpenPosixMemory(name_, 8192, false);
  ASSERT_TRUE(memory.ok()) << memory.status();
  const std::byte sent[3] = {std::byte{1}, std::byte{2}, std::byte{3}};
  ASSERT_TRUE((*memory)->Write(8189, 3, sent).ok());
  std::byte got[3] = {};
  EXPECT_EQ(pread(fd_.get(), got, 3, 8189), 3);
  EXPECT_EQ(got[2], std::byte{3});
  ASSERT_TRUE((*memory)->Read(8190, 2, got).ok());
  EXPECT_EQ(got[0], std::byte{2});
  EXPECT_EQ((*memory)->host(), nullptr) << "it is never mapped";
}

TEST_F(PosixMemoryTest, CutShortItIsAnErrorAndNotMadeLongerAgain) {
  const auto memory = OpenPosixMemory(name_, 8192, false);
  ASSERT_TRUE(memory.ok());
  Resize(100);
  std::byte bytes[200] = {};
  EXPECT_EQ((*memory)->Read(0, 200, bytes).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ((*memory)->Write(0, 200, bytes).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Size(), 100);
  Resize(0);
  EXPECT_EQ((*memory)->Read(0, 1, bytes).code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(PosixMemoryTest, OtherNamesAreNoneOfTheServers) {
  const std::string secret(32, 'x');
  for (const std::string& name :
       {std::string(), std::string("/"), "/" + secret, "//attendant-" + secret,
        "attendant-" + secret, std::string("/attendant-short"),
        "/attendant-../" + secret, "/attendant-" + secret + "/x",
        "/attendant-" + secret + ".", "/attendant-" + std::string(201, 'x'),
        "../attendant-" + secret,
        "/attendant-" + secret + std::string(1, '\0')}) {
    EXPECT_EQ(OpenPosixMemory(name, 1, false).status().code(),
              absl::StatusCode::kInvalidArgument)
        << name;
  }
}

TEST_F(PosixMemoryTest, LengthsAreHeldAgainstTheObject) {
  for (const int64_t bytes : {int64_t{0}, int64_t{-1}, int64_t{8193},
                              std::numeric_limits<int64_t>::max()}) {
    EXPECT_EQ(OpenPosixMemory(name_, bytes, false).status().code(),
              absl::StatusCode::kInvalidArgument)
        << bytes;
  }
}

// Whoever opens a pipe to read waits for a writer: here a copy thread would.
TEST_F(PosixMemoryTest, APipeOfThatNameHoldsNobodyUp) {
  const std::string name = "/attendant-" + server::RandomRegionName();
  const std::string path = "/dev/shm" + name;
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  std::future<absl::Status> opened = std::async(std::launch::async, [&] {
    return OpenPosixMemory(name, 1, /*read_only=*/true).status();
  });
  const bool in_time =
      opened.wait_for(std::chrono::seconds(10)) == std::future_status::ready;
  EXPECT_TRUE(in_time);
  // Lets go whoever still waits.
  const server::UniqueFd writer(open(path.c_str(), O_RDWR | O_NONBLOCK));
  EXPECT_EQ(opened.get().code(), absl::StatusCode::kInvalidArgument);
  unlink(path.c_str());
}

}  // namespace
}  // namespace attendant::testing
