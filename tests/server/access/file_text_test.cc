#include "server/access/file_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "server/access/caller_access.h"
#include "server/access/transport_security.h"

namespace attendant::server {
namespace {

using ::testing::HasSubstr;

TEST(FileTextTest, EveryByteIsRead) {
  const std::string path = ::testing::TempDir() + "file_text_test";
  for (const size_t size : {0, 1, 4095, 4096, 4097, 10'000}) {
    std::string text(size, 'x');
    if (size > 1) text[size / 2] = 0;
    std::ofstream(path, std::ios::binary) << text;
    EXPECT_EQ(FileText(path), text) << size;
  }
  std::filesystem::remove(path);
  EXPECT_EQ(FileText(path), std::nullopt);
}

TEST(FileTextTest, ADirectoryIsNoFile) {
  const std::string folder = ::testing::TempDir();
  EXPECT_EQ(FileText(folder), std::nullopt);
  EXPECT_THAT(std::string(CallerAccess::Create(folder).status().message()),
              HasSubstr("must be a readable file"));
  TlsOptions tls;
  tls.certificate = tls.key = folder;
  EXPECT_THAT(std::string(MakeTlsCredentials(tls).status().message()),
              HasSubstr("must be a readable PEM file"));
}

}  // namespace
}  // namespace attendant::server
