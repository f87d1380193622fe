// A policy of identities that are known by tokens which are their names.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace attendant::testing {

struct PolicyIdentity {
  std::string name;
  double queue_share = 1;
};

// Removed with this object.
class PolicyFile {
 public:
  // Everybody may call everything; who shows nothing too, if `open`.
  PolicyFile(const std::vector<PolicyIdentity>& identities, bool open);
  ~PolicyFile();
  PolicyFile(const PolicyFile&) = delete;
  PolicyFile& operator=(const PolicyFile&) = delete;

  std::string flag() const { return "--policy=" + path_.string(); }

 private:
  const std::filesystem::path path_;
};

}  // namespace attendant::testing
