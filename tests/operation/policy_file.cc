#include "tests/operation/policy_file.h"

#include <openssl/evp.h>
#include <unistd.h>

#include <fstream>

namespace attendant::testing {
namespace {

std::string HexSha256(const std::string& text) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  EVP_Digest(text.data(), text.size(), digest, &size, EVP_sha256(), nullptr);
  std::string hex;
  for (unsigned int i = 0; i < size; ++i) {
    constexpr char kDigits[] = "0123456789abcdef";
    hex += {kDigits[digest[i] >> 4], kDigits[digest[i] & 15]};
  }
  return hex;
}

}  // namespace

PolicyFile::PolicyFile(const std::vector<PolicyIdentity>& identities, bool open)
    : path_(std::filesystem::temp_directory_path() /
            ("attendant-policy-" + std::to_string(::getpid()))) {
  std::ofstream file(path_);
  file << "{";
  if (open) file << R"("anonymous": {"methods": ["*"]}, )";
  file << R"("identities": [)";
  const char* comma = "";
  for (const auto& [name, queue_share] : identities) {
    file << comma << R"({"name": ")" << name << R"(", "token_sha256": ")"
         << HexSha256(name) << R"(", "methods": ["*"], "queue_share": )"
         << queue_share << "}";
    comma = ", ";
  }
  file << "]}";
}

PolicyFile::~PolicyFile() { std::filesystem::remove(path_); }

}  // namespace attendant::testing
