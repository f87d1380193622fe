#include "server/access/access_policy.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/request/errors.h"

namespace attendant::server {
namespace {

using nlohmann::json;

constexpr size_t kDigestChars = 64;
constexpr size_t kMaxNameChars = 64;

// In hexadecimal, lower case; empty if OpenSSL fails.
std::string Sha256(const std::string& text) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  if (EVP_Digest(text.data(), text.size(), digest, &size, EVP_sha256(),
                 nullptr) != 1) {
    return "";
  }
  return absl::BytesToHexString(
      std::string(reinterpret_cast<char*>(digest), size));
}

// Takes the same time wherever two digests differ.
bool SameDigest(const std::string& a, const std::string& b) {
  return a.size() == kDigestChars && b.size() == kDigestChars &&
         CRYPTO_memcmp(a.data(), b.data(), kDigestChars) == 0;
}

class Parser {
 public:
  explicit Parser(std::string place) : place_(std::move(place)) {}

  absl::Status Bad(const std::string& field, const std::string& value,
                   const std::string& bound) const {
    return InvalidField(absl::StrCat(place_, ": ", field), value, bound);
  }

  absl::Status CheckKeys(const json& object, const std::string& field,
                         const std::set<std::string>& keys) const {
    if (!object.is_object()) return Bad(field, object.dump(), "an object");
    for (const auto& [key, value] : object.items()) {
      if (keys.count(key) > 0) continue;
      return Bad(absl::StrCat(field, ".", key), value.dump(),
                 "absent: there is no such key");
    }
    return absl::OkStatus();
  }

  // What anonymous and named identities have in common.
  absl::Status TakeRights(const json& object, const std::string& field,
                          Identity* identity) const {
    const json methods = object.value("methods", json::array());
    if (!methods.is_array() || methods.empty()) {
      return Bad(absl::StrCat(field, ".methods"), methods.dump(),
                 "a list of method names, or [\"*\"]");
    }
    for (const json& method : methods) {
      if (!method.is_string()) {
        return Bad(absl::StrCat(field, ".methods"), method.dump(), "text");
      }
      identity->methods.push_back(method.get<std::string>());
    }
    const json priority = object.value("max_priority", json(100));
    // Compared with a signed number, one of 2^64 - 1 would be -1.
    if (!priority.is_number_integer() ||
        (priority.is_number_unsigned() ? priority > 100u : priority < -100)) {
      return Bad(absl::StrCat(field, ".max_priority"), priority.dump(),
                 "an integer, -100..100");
    }
    identity->max_priority = priority.get<int>();
    const json weight = object.value("weight", json(1));
    // FairQueue adds up seconds by it, and must not lose the others' in that.
    if (!weight.is_number() || !(weight >= 0.001) || weight > 1000) {
      return Bad(absl::StrCat(field, ".weight"), weight.dump(),
                 "a number, 0.001..1000");
    }
    identity->weight = weight.get<double>();
    const json share = object.value("queue_share", json(1));
    if (!share.is_number() || !(share > 0) || share > 1) {
      return Bad(absl::StrCat(field, ".queue_share"), share.dump(),
                 "a number above 0, at most 1");
    }
    identity->queue_share = share.get<double>();
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> Text(const json& object, const std::string& field,
                                   const char* key) const {
    const json text = object.value(key, json(""));
    if (text.is_string()) return text.get<std::string>();
    return Bad(absl::StrCat(field, ".", key), text.dump(), "text");
  }

 private:
  const std::string place_;
};

bool IsLabel(const std::string& name) {
  return !name.empty() && name.size() <= kMaxNameChars &&
         std::all_of(name.begin(), name.end(),
                     [](char c) { return c > ' ' && c < 127 && c != '"'; });
}

}  // namespace

bool Identity::May(const std::string& method) const {
  return std::any_of(methods.begin(), methods.end(),
                     [&](const std::string& allowed) {
                       return allowed == "*" || allowed == method;
                     });
}

std::shared_ptr<const AccessPolicy> AccessPolicy::Open() {
  auto policy = std::make_shared<AccessPolicy>();
  auto anonymous = std::make_shared<Identity>();
  anonymous->name = "anonymous";
  anonymous->methods = {"*"};
  policy->anonymous_ = std::move(anonymous);
  return policy;
}

absl::StatusOr<std::shared_ptr<const AccessPolicy>> AccessPolicy::Parse(
    const std::string& text, const std::string& place) {
  const Parser parser(place);
  const json file = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (file.is_discarded()) return parser.Bad("the file", "no JSON", "JSON");
  RETURN_IF_ERROR(
      parser.CheckKeys(file, "policy", {"anonymous", "identities"}));
  auto policy = std::make_shared<AccessPolicy>();
  if (file.contains("anonymous")) {
    const json& object = file["anonymous"];
    RETURN_IF_ERROR(
        parser.CheckKeys(object, "anonymous",
                         {"methods", "max_priority", "weight", "queue_share"}));
    auto identity = std::make_shared<Identity>();
    identity->name = "anonymous";
    RETURN_IF_ERROR(parser.TakeRights(object, "anonymous", identity.get()));
    policy->anonymous_ = std::move(identity);
  }
  const json list = file.value("identities", json::array());
  if (!list.is_array() || list.size() > kMaxIdentities) {
    return parser.Bad("identities", absl::StrCat(list.size(), " entries"),
                      absl::StrCat("a list of at most ", kMaxIdentities));
  }
  std::set<std::string> names = {"anonymous"}, tokens, certificates;
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string field = absl::StrCat("identities[", i, "]");
    RETURN_IF_ERROR(
        parser.CheckKeys(list[i], field,
                         {"name", "token_sha256", "certificate_name", "methods",
                          "max_priority", "weight", "queue_share"}));
    auto identity = std::make_shared<Identity>();
    Known known;
    ASSIGN_OR_RETURN(identity->name, parser.Text(list[i], field, "name"));
    if (!IsLabel(identity->name) || !names.insert(identity->name).second) {
      return parser.Bad(absl::StrCat(field, ".name"), identity->name,
                        "1 to 64 printable characters that no other has");
    }
    ASSIGN_OR_RETURN(const std::string hex,
                     parser.Text(list[i], field, "token_sha256"));
    ASSIGN_OR_RETURN(known.certificate_name,
                     parser.Text(list[i], field, "certificate_name"));
    const bool is_hex =
        hex.size() == kDigestChars &&
        hex.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos;
    if (!hex.empty() && !is_hex) {
      return parser.Bad(absl::StrCat(field, ".token_sha256"),
                        absl::StrCat(hex.size(), " characters"),
                        "64 hexadecimal digits");
    }
    if (hex.empty() && known.certificate_name.empty()) {
      return parser.Bad(field, "without credentials",
                        "known by token_sha256 or certificate_name");
    }
    known.token_sha256 = absl::AsciiStrToLower(hex);
    // Else it would depend on their order who its sender is.
    if (!hex.empty() && !tokens.insert(known.token_sha256).second) {
      return parser.Bad(absl::StrCat(field, ".token_sha256"), "given twice",
                        "one that no other has");
    }
    if (!known.certificate_name.empty() &&
        !certificates.insert(known.certificate_name).second) {
      return parser.Bad(absl::StrCat(field, ".certificate_name"),
                        known.certificate_name, "one that no other has");
    }
    RETURN_IF_ERROR(parser.TakeRights(list[i], field, identity.get()));
    known.identity = std::move(identity);
    policy->known_.push_back(std::move(known));
  }
  return policy;
}

std::shared_ptr<const Identity> AccessPolicy::Find(
    const Credentials& credentials) const {
  // A certificate was verified by TLS; a token only matters without one that
  // is known.
  for (const Known& known : known_) {
    if (known.certificate_name.empty()) continue;
    if (std::find(credentials.names.begin(), credentials.names.end(),
                  known.certificate_name) != credentials.names.end()) {
      return known.identity;
    }
  }
  if (credentials.token.empty()) return nullptr;
  const std::string digest = Sha256(credentials.token);
  std::shared_ptr<const Identity> found;
  for (const Known& known : known_) {
    if (SameDigest(known.token_sha256, digest)) found = known.identity;
  }
  return found;
}

std::vector<std::shared_ptr<const Identity>> AccessPolicy::Identities() const {
  std::vector<std::shared_ptr<const Identity>> all;
  for (const Known& known : known_) all.push_back(known.identity);
  if (anonymous_ != nullptr) all.push_back(anonymous_);
  return all;
}

absl::StatusOr<std::shared_ptr<const Identity>> AccessPolicy::Decide(
    const Credentials& credentials, const std::string& method) const {
  std::shared_ptr<const Identity> identity = Find(credentials);
  if (identity == nullptr) {
    // A wrong token is refused even where none would do: its sender believes
    // to be somebody. (A certificate may serve the transport alone.)
    if (!credentials.token.empty() && !known_.empty()) {
      return WithDetail(absl::UnauthenticatedError("the token is not known"),
                        "authorization", "a token", "one that is in force");
    }
    identity = anonymous_;
  }
  if (identity == nullptr) {
    return WithDetail(
        absl::UnauthenticatedError("this server needs a token or certificate"),
        "authorization", "absent", "a bearer token or a client certificate");
  }
  if (identity->May(method)) return identity;
  return WithDetail(absl::PermissionDeniedError(absl::StrCat(
                        "'", identity->name, "' may not call ", method)),
                    "method", method,
                    "one that the caller's identity may call");
}

}  // namespace attendant::server
