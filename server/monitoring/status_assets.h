// The files of server/statusz/, built into the program.
#pragma once

#include <string_view>
#include <vector>

namespace attendant::server {

struct StatusAsset {
  std::string_view name;  // "page.html"
  std::string_view text;
};

const std::vector<StatusAsset>& StatusAssets();

}  // namespace attendant::server
