// A whole file as text.
#pragma once

#include <optional>
#include <string>

namespace attendant::server {

// Nothing if the file at `path` cannot be opened or read to its end, as a
// directory cannot.
std::optional<std::string> FileText(const std::string& path);

}  // namespace attendant::server
