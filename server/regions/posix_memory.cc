#include "server/regions/posix_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/connections/unique_fd.h"
#include "server/request/errors.h"

namespace attendant::server {
namespace {

constexpr char kPrefix[] = "/attendant-";
constexpr size_t kLeastSecret = 16, kMostSecret = 200;

absl::Status CutShort(int64_t size) {
  return WithDetail(
      absl::FailedPreconditionError(
          absl::StrCat("the shared memory object was cut to ", size, " bytes")),
      "byte_length", absl::StrCat(size), "as when it was registered");
}

class PosixMemory final : public RegionMemory {
 public:
  PosixMemory(UniqueFd fd, int64_t bytes, bool writable, std::string identity)
      : fd_(std::move(fd)),
        bytes_(bytes),
        writable_(writable),
        identity_(std::move(identity)) {}

  int64_t bytes() const override { return bytes_; }
  bool writable() const override { return writable_; }
  std::string identity() const override { return identity_; }

  absl::Status Read(int64_t offset, int64_t bytes, std::byte* to) override {
    while (bytes > 0) {
      const ssize_t count =
          pread(fd_.get(), to, static_cast<size_t>(bytes), offset);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return CutShort(Size());
      offset += count;
      to += count;
      bytes -= count;
    }
    return absl::OkStatus();
  }

  // Not beyond the end, which would make the object longer.
  absl::Status Write(int64_t offset, int64_t bytes,
                     const std::byte* from) override {
    while (bytes > 0) {
      if (Size() < offset + bytes) return CutShort(Size());
      const ssize_t count =
          pwrite(fd_.get(), from, static_cast<size_t>(bytes), offset);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) {
        return absl::ResourceExhaustedError(absl::StrCat(
            "shared memory can't be written: ", std::strerror(errno)));
      }
      offset += count;
      from += count;
      bytes -= count;
    }
    return absl::OkStatus();
  }

 private:
  int64_t Size() const {
    struct stat file {};
    return fstat(fd_.get(), &file) == 0 ? file.st_size : 0;
  }

  const UniqueFd fd_;
  const int64_t bytes_;
  const bool writable_;
  const std::string identity_;
};

bool IsAllowed(const std::string& name) {
  if (name.rfind(kPrefix, 0) != 0) return false;
  const std::string secret = name.substr(sizeof(kPrefix) - 1);
  return secret.size() >= kLeastSecret && secret.size() <= kMostSecret &&
         std::all_of(secret.begin(), secret.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                  (c >= '0' && c <= '9') || c == '-' || c == '_';
         });
}

}  // namespace

absl::StatusOr<std::unique_ptr<RegionMemory>> OpenPosixMemory(
    const std::string& shm_name, int64_t bytes, bool read_only) {
  if (!IsAllowed(shm_name)) {
    return InvalidField("shm_name",
                        absl::StrCat(shm_name.size(), " characters"),
                        "\"/attendant-\" and 16 to 200 of A-Z a-z 0-9 - _");
  }
  // The system's own call adds O_NOFOLLOW and O_CLOEXEC. O_NONBLOCK: what its
  // owner put there may be a pipe, or leased, and to open it would take until
  // he likes.
  UniqueFd fd(shm_open(shm_name.c_str(),
                       (read_only ? O_RDONLY : O_RDWR) | O_NONBLOCK, 0));
  if (!fd.valid()) {
    return InvalidField("shm_name", std::strerror(errno),
                        "an object that this server can open");
  }
  struct stat file {};
  if (fstat(fd.get(), &file) != 0 || !S_ISREG(file.st_mode)) {
    return InvalidField("shm_name", "no regular object", "shared memory");
  }
  if (bytes <= 0 || bytes > file.st_size) {
    return InvalidField(
        "byte_length", absl::StrCat(bytes),
        absl::StrCat("1..", file.st_size, ", the object's size"));
  }
  std::string identity = absl::StrCat("file ", file.st_dev, ":", file.st_ino);
  return std::make_unique<PosixMemory>(std::move(fd), bytes, !read_only,
                                       std::move(identity));
}

}  // namespace attendant::server
