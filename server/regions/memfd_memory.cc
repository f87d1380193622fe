#include "server/regions/memfd_memory.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/regions/mapped_memory.h"
#include "server/request/errors.h"

namespace attendant::server {
namespace {

absl::Status CheckSeals(int fd, bool read_only) {
  const int seals = fcntl(fd, F_GET_SEALS);
  struct statfs system {};
  // A hugetlb file can fail a page fault for want of pages: SIGBUS.
  if (seals < 0 || fstatfs(fd, &system) != 0 || system.f_type != TMPFS_MAGIC) {
    return InvalidField("descriptor", "no memfd of ordinary pages",
                        "from memfd_create with MFD_ALLOW_SEALING");
  }
  if ((seals & F_SEAL_SHRINK) == 0 || (seals & F_SEAL_GROW) == 0) {
    return InvalidField("seals", absl::StrCat(seals),
                        "F_SEAL_SHRINK | F_SEAL_GROW at least");
  }
  if (read_only) return absl::OkStatus();
  const int flags = fcntl(fd, F_GETFL);
  if ((seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) != 0 || flags < 0 ||
      (flags & O_ACCMODE) != O_RDWR) {
    return InvalidField("read_only", "false",
                        "true: the file can't be written");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<RegionMemory>> MapMemfd(UniqueFd fd,
                                                       int64_t bytes,
                                                       bool read_only,
                                                       RegionDevice* device) {
  RETURN_IF_ERROR(CheckSeals(fd.get(), read_only));
  struct stat file {};
  if (fstat(fd.get(), &file) != 0 || bytes <= 0 || bytes > file.st_size) {
    return InvalidField("byte_length", absl::StrCat(bytes),
                        absl::StrCat("1..", file.st_size, ", the file's size"));
  }
  const int protection = read_only ? PROT_READ : PROT_READ | PROT_WRITE;
  void* pages = mmap(nullptr, static_cast<size_t>(bytes), protection,
                     MAP_SHARED, fd.get(), 0);
  if (pages == MAP_FAILED) {
    return InvalidField("descriptor", std::strerror(errno), "mappable");
  }
  auto memory = std::make_unique<MappedMemory>(
      static_cast<std::byte*>(pages), bytes, !read_only,
      absl::StrCat("file ", file.st_dev, ":", file.st_ino));
  if (device != nullptr) RETURN_IF_ERROR(memory->Pin(device));
  return memory;
}

}  // namespace attendant::server
