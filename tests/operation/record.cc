#include "tests/operation/record.h"

#include <sys/utsname.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <thread>
#include <utility>

namespace attendant::testing {
namespace {

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string Now() {
  const std::time_t now = std::time(nullptr);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  return text;
}

std::string Machine() {
  std::ifstream file("/proc/cpuinfo");
  std::string model = "unknown CPU";
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    model = line.substr(line.find(':') + 2);
    break;
  }
  utsname system{};
  uname(&system);
  return model + ", " + std::to_string(std::thread::hardware_concurrency()) +
         " cores, Linux " + system.release;
}

// The program's name without its folder, and its arguments.
std::string Command() {
  std::ifstream file("/proc/self/cmdline");
  std::string line((std::istreambuf_iterator<char>(file)), {});
  if (!line.empty()) line.pop_back();
  std::replace(line.begin(), line.end(), '\0', ' ');
  const size_t end = std::min(line.find(' '), line.size());
  const size_t slash = line.rfind('/', end);
  return slash == std::string::npos ? line : line.substr(slash + 1);
}

}  // namespace

bool IsRecording() { return !Variable("ATTENDANT_RECORD_DIR").empty(); }

Record::Record(std::string name, std::string section)
    : name_(std::move(name)), name_of_section_(std::move(section)) {}

Record::~Record() {
  if (!IsRecording()) return;
  const std::string path =
      Variable("ATTENDANT_RECORD_DIR") + "/" + name_ + ".json";
  nlohmann::ordered_json file;
  if (std::ifstream before(path); before) {
    file = nlohmann::ordered_json::parse(before, nullptr, false);
    if (file.is_discarded()) file = {};
  }
  section_["machine"] = Machine();
  section_["date"] = Now();
  section_["commit"] = Variable("ATTENDANT_COMMIT");
  section_["command"] =
      "tests/operation/record.sh " + name_ + " (" + Command() + ")";
  file[name_of_section_] = section_;
  std::ofstream(path) << file.dump(1) << "\n";
}

void Record::AtMost(const std::string& key, double value, double bound) {
  Bar(key, value, "at most", bound, value <= bound);
}

void Record::AtLeast(const std::string& key, double value, double bound) {
  Bar(key, value, "at least", bound, value >= bound);
}

void Record::Bar(const std::string& key, double value, const char* sign,
                 double bound, bool held) {
  if (std::isfinite(value)) {
    section_[key] = {{"value", value}, {sign, bound}, {"held", held}};
  }
  if (!IsRecording()) return;
  std::printf("%s %s: %g, %s %g: %s\n", name_of_section_.c_str(), key.c_str(),
              value, sign, bound, held ? "held" : "MISSED");
}

}  // namespace attendant::testing
