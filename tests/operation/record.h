// What a run measured, as a file beside the other results.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace attendant::testing {

// True if ATTENDANT_RECORD_DIR is set: then suites run long and measure; else
// they are short and look at outcomes alone.
bool IsRecording();

// NAME.json in ATTENDANT_RECORD_DIR with machine, date, commit
// (ATTENDANT_COMMIT) and command; written by the destructor, if IsRecording. A
// suite of several tests writes one file: each adds its own section to it.
class Record {
 public:
  Record(std::string name, std::string section);
  ~Record();
  Record(const Record&) = delete;
  Record& operator=(const Record&) = delete;

  // Figures without a bar.
  template <typename Value>
  void Set(const std::string& key, const Value& value) {
    section_[key] = value;
  }
  // A figure that must be at most, or at least, a bound.
  void AtMost(const std::string& key, double value, double bound);
  void AtLeast(const std::string& key, double value, double bound);

 private:
  void Bar(const std::string& key, double value, const char* sign, double bound,
           bool held);

  const std::string name_;
  const std::string name_of_section_;
  nlohmann::ordered_json section_;
};

}  // namespace attendant::testing
