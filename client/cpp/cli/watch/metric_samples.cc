#include "client/cpp/cli/watch/metric_samples.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>

namespace attendant::client::cli {
namespace {

// name="value",... up to the closing brace; values with \" \\ \n. Where the
// labels end, or npos.
size_t ReadLabels(const std::string& line, size_t at, MetricLabels* labels) {
  while (at < line.size() && line[at] != '}') {
    const size_t equals = line.find("=\"", at);
    if (equals == std::string::npos) return std::string::npos;
    const std::string name = line.substr(at, equals - at);
    std::string value;
    for (at = equals + 2; at < line.size() && line[at] != '"'; ++at) {
      if (line[at] == '\\' && at + 1 < line.size()) ++at;
      value += line[at];
    }
    (*labels)[name] = value;
    ++at;
    if (at < line.size() && line[at] == ',') ++at;
  }
  return at < line.size() ? at + 1 : std::string::npos;
}

bool ReadSample(const std::string& line, MetricSample* sample) {
  if (line.empty() || line[0] == '#') return false;
  size_t at = line.find_first_of("{ ");
  if (at == std::string::npos || at == 0) return false;
  sample->name = line.substr(0, at);
  if (line[at] == '{') {
    at = ReadLabels(line, at + 1, &sample->labels);
    if (at == std::string::npos) return false;
  }
  char* end = nullptr;
  sample->value = std::strtod(line.c_str() + at, &end);
  return end != line.c_str() + at;
}

bool Matches(const MetricSample& sample, const std::string& name,
             const MetricLabels& labels) {
  return sample.name == name &&
         std::all_of(labels.begin(), labels.end(), [&](const auto& label) {
           const auto found = sample.labels.find(label.first);
           return found != sample.labels.end() && found->second == label.second;
         });
}

}  // namespace

MetricSamples::MetricSamples(const std::string& text) {
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    MetricSample sample;
    if (ReadSample(text.substr(begin, end - begin), &sample)) {
      samples_.push_back(std::move(sample));
    }
    begin = end + 1;
  }
}

double MetricSamples::Sum(const std::string& name,
                          const MetricLabels& labels) const {
  double sum = 0;
  for (const MetricSample& sample : samples_) {
    if (Matches(sample, name, labels)) sum += sample.value;
  }
  return sum;
}

bool MetricSamples::Has(const std::string& name) const {
  return std::any_of(
      samples_.begin(), samples_.end(),
      [&](const MetricSample& sample) { return sample.name == name; });
}

std::vector<std::pair<double, double>> MetricSamples::Buckets(
    const std::string& name, const MetricLabels& labels) const {
  std::map<double, double> buckets;
  for (const MetricSample& sample : samples_) {
    if (!Matches(sample, name + "_bucket", labels)) continue;
    const auto edge = sample.labels.find("le");
    if (edge == sample.labels.end()) continue;
    buckets[std::strtod(edge->second.c_str(), nullptr)] += sample.value;
  }
  return {buckets.begin(), buckets.end()};
}

std::vector<std::string> MetricSamples::LabelValues(
    const std::string& name, const std::string& label) const {
  std::set<std::string> values;
  for (const MetricSample& sample : samples_) {
    const auto found = sample.labels.find(label);
    if (sample.name == name && found != sample.labels.end()) {
      values.insert(found->second);
    }
  }
  return {values.begin(), values.end()};
}

double QuantileBetween(const std::vector<std::pair<double, double>>& before,
                       const std::vector<std::pair<double, double>>& after,
                       double share) {
  std::vector<double> counts;
  for (size_t b = 0; b < after.size(); ++b) {
    const double earlier = before.size() == after.size() ? before[b].second : 0;
    counts.push_back(after[b].second - earlier);
  }
  if (counts.empty() || !(counts.back() > 0)) return std::nan("");
  const double rank = share * counts.back();
  size_t b = 0;
  while (b + 1 < counts.size() && counts[b] < rank) ++b;
  // Above the last finite edge nothing is known but that edge.
  if (std::isinf(after[b].first)) return b > 0 ? after[b - 1].first : 0;
  const double low = b > 0 ? after[b - 1].first : 0;
  const double below = b > 0 ? counts[b - 1] : 0;
  const double within = counts[b] - below;
  if (!(within > 0)) return after[b].first;
  return low + (after[b].first - low) * (rank - below) / within;
}

}  // namespace attendant::client::cli
