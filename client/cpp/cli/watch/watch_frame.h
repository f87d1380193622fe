// What `attendant watch` shows: a server between two scrapes.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "client/cpp/cli/watch/metric_samples.h"
#include "client/cpp/server_info.h"

namespace attendant::client::cli {

// Rates are a second; times in ms; bytes. Quantiles and rates are of the time
// between the scrapes, null where nothing came; the rest is of the second one.
// "gpu" is there if the server exports it.
nlohmann::ordered_json WatchFrame(const ServerInfo& info,
                                  const MetricSamples& before,
                                  const MetricSamples& after, double seconds);

// The same for people: a screen of at most 80 columns and 24 lines.
std::string WatchText(const nlohmann::ordered_json& frame);

}  // namespace attendant::client::cli
