// Builders of prometheus-cpp's sample types from plain numbers.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "prometheus/metric_family.h"

namespace attendant::server {

using MetricLabels = std::vector<std::pair<std::string, std::string>>;

// Appends an empty family and returns it.
inline prometheus::MetricFamily& AddFamily(
    std::vector<prometheus::MetricFamily>* families, std::string name,
    std::string help, prometheus::MetricType type) {
  prometheus::MetricFamily& family = families->emplace_back();
  family.name = std::move(name);
  family.help = std::move(help);
  family.type = type;
  return family;
}

inline prometheus::ClientMetric& AddChild(prometheus::MetricFamily* family,
                                          const MetricLabels& labels) {
  prometheus::ClientMetric& metric = family->metric.emplace_back();
  for (const auto& [name, value] : labels)
    metric.label.push_back({name, value});
  return metric;
}

inline void AddSample(prometheus::MetricFamily* family,
                      const MetricLabels& labels, double value) {
  prometheus::ClientMetric& metric = AddChild(family, labels);
  if (family->type == prometheus::MetricType::Counter) {
    metric.counter.value = value;
  } else {
    metric.gauge.value = value;
  }
}

inline void AddCounter(std::vector<prometheus::MetricFamily>* families,
                       std::string name, std::string help, double value,
                       const MetricLabels& labels = {}) {
  AddSample(&AddFamily(families, std::move(name), std::move(help),
                       prometheus::MetricType::Counter),
            labels, value);
}

inline void AddGauge(std::vector<prometheus::MetricFamily>* families,
                     std::string name, std::string help, double value,
                     const MetricLabels& labels = {}) {
  AddSample(&AddFamily(families, std::move(name), std::move(help),
                       prometheus::MetricType::Gauge),
            labels, value);
}

}  // namespace attendant::server
