#include "server/options/server_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "server/options/option_table.h"

namespace attendant::server {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string ErrorOf(const std::vector<std::string>& arguments) {
  const auto line = ParseCommandLine(arguments);
  return line.ok() ? "no error" : std::string(line.status().message());
}

class ConfigFile {
 public:
  explicit ConfigFile(const std::string& text)
      : path_(::testing::TempDir() + "/attendant_options_test.conf") {
    std::ofstream(path_) << text;
  }
  ~ConfigFile() { std::filesystem::remove(path_); }
  std::string flag() const { return "--config=" + path_; }

 private:
  std::string path_;
};

TEST(ServerOptions, DefaultsListenOnLoopbackOnly) {
  const auto line = ParseCommandLine({});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(line->options.listen, "127.0.0.1:50051");
  EXPECT_TRUE(IsLoopback(line->options.listen));
  EXPECT_TRUE(IsLoopback(line->options.http));
}

TEST(ServerOptions, FlagsTakeBothForms) {
  const auto line =
      ParseCommandLine({"--listen=0.0.0.0:0", "--backend", "cpu",
                        "--host_pool_bytes=6G", "--max_queued_requests", "7"});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(line->options.listen, "0.0.0.0:0");
  EXPECT_EQ(line->options.engine.backend, EngineOptions::Backend::kCpu);
  EXPECT_EQ(line->options.engine.host_pool_bytes, int64_t{6} << 30);
  EXPECT_EQ(line->options.engine.max_queued_requests, 7);
  EXPECT_EQ(line->options.bounds.max_queued_requests, 7);
}

TEST(ServerOptions, FlagsWinOverTheFileInAnyOrder) {
  const ConfigFile file(
      "# a comment\n\n  listen = 127.0.0.1:1234  # here\ndrain_seconds=5\n");
  for (const auto& arguments :
       {std::vector<std::string>{file.flag(), "--drain_seconds=9"},
        std::vector<std::string>{"--drain_seconds=9", file.flag()}}) {
    const auto line = ParseCommandLine(arguments);
    ASSERT_TRUE(line.ok()) << line.status();
    EXPECT_EQ(line->options.listen, "127.0.0.1:1234");
    EXPECT_EQ(line->options.drain_seconds, 9);
  }
}

TEST(ServerOptions, FileErrorsNameTheLine) {
  const ConfigFile unknown("\nlissten = 127.0.0.1:1\n");
  EXPECT_THAT(ErrorOf({unknown.flag()}),
              AllOf(HasSubstr(":2: "), HasSubstr("--lissten is not a flag")));
  const ConfigFile no_value("drain_seconds 5\n");
  EXPECT_THAT(ErrorOf({no_value.flag()}), HasSubstr("must be 'name = value'"));
  for (const std::string& path :
       {std::string("/does/not/exist"), ::testing::TempDir()}) {
    EXPECT_THAT(ErrorOf({"--config=" + path}),
                HasSubstr("must be a readable file"));
  }
}

TEST(ServerOptions, ErrorsNameFlagValueAndBound) {
  EXPECT_EQ(ErrorOf({"--max_head_dim=300"}),
            "--max_head_dim is '300', must be an integer, 1..256");
  EXPECT_EQ(ErrorOf({"--backend=tpu"}),
            "--backend is 'tpu', must be one of auto|cuda|cpu");
  EXPECT_EQ(ErrorOf({"--listen=here"}),
            "--listen is 'here', must be HOST:PORT");
  EXPECT_THAT(ErrorOf({"--host_pool_bytes=9999999999G"}),
              HasSubstr("--host_pool_bytes is '9999999999G', must be bytes"));
  EXPECT_THAT(ErrorOf({"--max_work_flops=nan"}),
              HasSubstr("a finite number > 0"));
  EXPECT_THAT(ErrorOf({"--drain_seconds"}), HasSubstr("has no value"));
  EXPECT_THAT(ErrorOf({"serve"}), HasSubstr("'serve' is not a flag"));
  EXPECT_THAT(ErrorOf({"--host_pool_bytes=1G", "--max_queued_bytes=4G"}),
              HasSubstr("--max_queued_bytes is 4294967296, must be at most "
                        "--host_pool_bytes, 1073741824"));
}

TEST(ServerOptions, TheQueueHoldsWhatThePoolHoldsUnlessTold) {
  const auto line =
      ParseCommandLine({"--host_pool_bytes=1G", "--max_queued_flops=1e15"});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(line->options.bounds.max_queued_bytes, int64_t{1} << 30);
  EXPECT_EQ(line->options.engine.max_queued_bytes, int64_t{1} << 30);
  EXPECT_EQ(line->options.engine.max_queued_flops, 1e15);
}

TEST(ServerOptions, EveryFlagIsInHelpAndAcceptsItsDefault) {
  const std::string help = HelpText();
  ServerOptions options;
  for (const Option& option : OptionTable(&options)) {
    EXPECT_THAT(help, HasSubstr("--" + option.name + " "));
    EXPECT_FALSE(option.help.empty()) << option.name;
    EXPECT_TRUE(option.set(option.initial).ok())
        << option.name << " refuses its own default " << option.initial;
  }
}

TEST(ServerOptions, HelpAndVersionAreSeen) {
  EXPECT_TRUE(ParseCommandLine({"--help"})->help);
  EXPECT_TRUE(ParseCommandLine({"--version"})->version);
}

TEST(ServerOptions, SeveralAddressesAreSplit) {
  ServerOptions options;
  options.listen = "127.0.0.1:1, unix:/tmp/a.sock,[::1]:2";
  EXPECT_THAT(options.ListenAddresses(),
              ElementsAre("127.0.0.1:1", "unix:/tmp/a.sock", "[::1]:2"));
}

TEST(ServerOptions, FlagsAreShownWithTheirDefaults) {
  const auto line = ParseCommandLine({"--drain_seconds=7"});
  ASSERT_TRUE(line.ok());
  const std::vector<ShownFlag> flags = ShownFlags(line->options);
  ServerOptions defaults;
  EXPECT_EQ(flags.size(), OptionTable(&defaults).size());
  for (const ShownFlag& flag : flags) {
    if (flag.name == "max_queued_bytes") continue;  // follows the pool
    const bool set = flag.name == "drain_seconds";
    EXPECT_EQ(flag.value == flag.initial, !set) << flag.name;
    if (set) {
      EXPECT_EQ(flag.value, "7");
    }
  }
}

TEST(ServerOptions, SecretsAreKnownByName) {
  for (const char* secret : {"auth_token", "auth_tokens", "tls_key", "password",
                             "client_secret", "key_passphrase"}) {
    EXPECT_TRUE(IsSecretFlag(secret)) << secret;
  }
  for (const char* open :
       {"listen", "keepalive_seconds", "tls_key_file", "auth_token_file"}) {
    EXPECT_FALSE(IsSecretFlag(open)) << open;
  }
}

TEST(ServerOptions, OnlyLoopbackIsLoopback) {
  EXPECT_TRUE(IsLoopback("localhost:1"));
  EXPECT_TRUE(IsLoopback("[::1]:1"));
  EXPECT_TRUE(IsLoopback("unix:/run/a.sock"));
  EXPECT_FALSE(IsLoopback("0.0.0.0:1"));
  EXPECT_FALSE(IsLoopback("[::]:1"));
  EXPECT_FALSE(IsLoopback("10.1.2.3:1"));
}

TEST(ServerOptions, MemoryBoundIsPoolPlusUploads) {
  ServerOptions options;
  options.engine.host_pool_bytes = 1000;
  options.max_uploads = 3;
  options.bounds.max_request_bytes = int64_t{64} << 20;
  options.http2_window_bytes = 10;
  EXPECT_EQ(options.HostMemoryBound(),
            1000 + 3 * ((int64_t{80} << 20) + 10));  // with the watch's slack
}

}  // namespace
}  // namespace attendant::server
