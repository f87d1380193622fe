// Prometheus text, as far as `attendant watch` reads it.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace attendant::client::cli {

using MetricLabels = std::map<std::string, std::string>;

struct MetricSample {
  std::string name;
  MetricLabels labels;
  double value = 0;
};

// One scrape. Lines that are no samples are left out.
class MetricSamples {
 public:
  MetricSamples() = default;
  explicit MetricSamples(const std::string& text);

  // Sum over the samples of this name that have all of `labels`; 0 if none.
  double Sum(const std::string& name, const MetricLabels& labels = {}) const;
  bool Has(const std::string& name) const;

  // (upper bound, count up to it) of a histogram, ascending; +Inf last.
  std::vector<std::pair<double, double>> Buckets(
      const std::string& name, const MetricLabels& labels) const;
  // The distinct values of a label.
  std::vector<std::string> LabelValues(const std::string& name,
                                       const std::string& label) const;

 private:
  std::vector<MetricSample> samples_;
};

// The quantile of what came between two scrapes of one histogram, interpolated
// within its bucket as Prometheus does; NaN if nothing came.
double QuantileBetween(const std::vector<std::pair<double, double>>& before,
                       const std::vector<std::pair<double, double>>& after,
                       double share);

}  // namespace attendant::client::cli
