#include "server/access/file_text.h"

#include <fstream>

namespace attendant::server {

std::optional<std::string> FileText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::string text;
  char piece[4096];
  // An iterator over the buffer would throw where read() sets a bit.
  while (file.read(piece, sizeof(piece)) || file.gcount() > 0) {
    text.append(piece, static_cast<size_t>(file.gcount()));
  }
  if (file.bad()) return std::nullopt;
  return text;
}

}  // namespace attendant::server
