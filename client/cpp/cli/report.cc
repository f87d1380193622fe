#include "client/cpp/cli/report.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cpp/client_error.h"

namespace attendant::client::cli {
namespace {

using nlohmann::ordered_json;

std::string Text(const Tensor& tensor) {
  return absl::StrCat("[", absl::StrJoin(tensor.shape, ", "), "] ",
                      Name(tensor.dtype));
}

std::string Names(const std::vector<DataType>& dtypes) {
  return absl::StrJoin(dtypes, " ", [](std::string* text, DataType dtype) {
    text->append(Name(dtype));
  });
}

std::vector<std::string> NameList(const std::vector<DataType>& dtypes) {
  std::vector<std::string> names;
  for (const DataType dtype : dtypes) names.push_back(Name(dtype));
  return names;
}

std::string StageRow(const char* name, int64_t exposed, int64_t busy) {
  return absl::StrFormat("    %-10s %12.1f %12.1f\n", name, exposed * 1e-3,
                         busy * 1e-3);
}

ordered_json TimesJson(const StageTimes& times) {
  return {{"receive_ns", times.receive_ns},   {"queue_ns", times.queue_ns},
          {"upload_ns", times.upload_ns},     {"kernel_ns", times.kernel_ns},
          {"download_ns", times.download_ns}, {"send_ns", times.send_ns},
          {"total_ns", times.total_ns}};
}

ordered_json TensorJson(const Tensor& tensor) {
  return {{"dtype", Name(tensor.dtype)}, {"shape", tensor.shape}};
}

ordered_json ResultObject(const AttendResult& result) {
  ordered_json json = {
      {"request_id", result.request_id},
      {"output", TensorJson(result.out)},
      {"served_by",
       {{"backend", Name(result.served_by.backend)},
        {"device_index", result.served_by.device_index},
        {"device_uuid", result.served_by.device_uuid},
        {"kernel", result.served_by.kernel},
        {"compute_dtype", Name(result.served_by.compute_dtype)}}},
      {"exposed", TimesJson(result.exposed)},
      {"busy", TimesJson(result.busy)},
      {"batch",
       {{"requests", result.batch_requests}, {"tokens", result.batch_tokens}}},
      {"memory",
       {{"workspace_bytes", result.workspace_bytes},
        {"input_bytes", result.input_bytes},
        {"output_bytes", result.output_bytes}}},
      {"attempts", result.attempts},
      {"client_ns", result.client_ns}};
  if (result.lse.data != nullptr) json["lse"] = TensorJson(result.lse);
  return json;
}

std::string CapabilityRow(const Capability& row) {
  std::string device = row.backend == Backend::kCuda
                           ? absl::StrFormat("cuda %.1f..%.1f",
                                             row.min_compute_capability / 10.0,
                                             row.max_compute_capability / 10.0)
                           : Name(row.backend);
  std::string features;
  const std::pair<const char*, bool> flags[] = {
      {"boolean-mask", row.boolean_mask},
      {"additive-mask", row.additive_mask},
      {"alibi", row.alibi},
      {"softcap", row.softcap},
      {"sinks", row.sinks},
      {"window", row.window}};
  for (const auto& [name, has] : flags) {
    if (has) absl::StrAppend(&features, " ", name);
  }
  return absl::StrFormat("  %-6s %-8s %-16s %s, head_dim 1..%d,%s\n",
                         row.kernel, row.op, device, Names(row.input_dtypes),
                         row.max_head_dim, features);
}

ordered_json CapabilityJson(const Capability& row) {
  return {{"kernel", row.kernel},
          {"backend", Name(row.backend)},
          {"op", row.op},
          {"min_compute_capability", row.min_compute_capability},
          {"max_compute_capability", row.max_compute_capability},
          {"input_dtypes", NameList(row.input_dtypes)},
          {"output_dtypes", NameList(row.output_dtypes)},
          {"max_head_dim", row.max_head_dim},
          {"boolean_mask", row.boolean_mask},
          {"additive_mask", row.additive_mask},
          {"alibi", row.alibi},
          {"softcap", row.softcap},
          {"sinks", row.sinks},
          {"window", row.window}};
}

// Bytes of a server's text that are no UTF-8 are replaced, not thrown at.
std::string Dump(const ordered_json& json) {
  return json.dump(2, ' ', false, ordered_json::error_handler_t::replace) +
         "\n";
}

}  // namespace

std::string ResultText(const AttendResult& result) {
  const ServedBy& by = result.served_by;
  std::string text = absl::StrCat(
      "answer     ", Text(result.out), "\n",
      result.lse.data != nullptr
          ? absl::StrCat("lse        ", Text(result.lse), "\n")
          : "",
      "served by  kernel ", by.kernel, " in ", Name(by.compute_dtype), " on ",
      Name(by.backend), " ", by.device_index,
      by.device_uuid.empty() ? "" : " " + by.device_uuid, "\n", "batch      ",
      result.batch_requests, " request(s), ", result.batch_tokens,
      " query token(s)\n", "memory     workspace ", result.workspace_bytes,
      " B, in ", result.input_bytes, " B, out ", result.output_bytes, " B\n");
  const StageTimes& e = result.exposed;
  const StageTimes& b = result.busy;
  absl::StrAppend(&text, "stages     exposed us      busy us\n",
                  StageRow("receive", e.receive_ns, b.receive_ns),
                  StageRow("queue", e.queue_ns, b.queue_ns),
                  StageRow("upload", e.upload_ns, b.upload_ns),
                  StageRow("kernel", e.kernel_ns, b.kernel_ns),
                  StageRow("download", e.download_ns, b.download_ns),
                  StageRow("send", e.send_ns, b.send_ns),
                  StageRow("total", e.total_ns, b.total_ns));
  absl::StrAppendFormat(&text, "client     %.1f us, %d attempt(s)\n",
                        result.client_ns * 1e-3, result.attempts);
  return text;
}

std::string ResultJson(const AttendResult& result) {
  return Dump(ResultObject(result));
}

std::string CheckText(const AttendResult& result, const CheckReport& report) {
  std::string text = ResultText(result);
  absl::StrAppendFormat(
      &text,
      "oracle     max |O - O64| %.3e, allowed %.3e (plain same-precision "
      "%.3e), %d elements\n"
      "worst      %s\n",
      report.out_error, report.out_bound, report.plain_error, report.elements,
      report.worst);
  if (report.lse_checked) {
    absl::StrAppendFormat(&text,
                          "           |LSE - LSE64| %.3e, allowed %.3e\n",
                          report.lse_error, report.lse_bound);
  }
  if (report.misplaced > 0) {
    absl::StrAppendFormat(&text, "           %d NaN or inf misplaced\n",
                          report.misplaced);
  }
  absl::StrAppend(&text, report.passed() ? "PASS\n" : "FAIL\n");
  return text;
}

std::string CheckJson(const AttendResult& result, const CheckReport& report) {
  ordered_json json = ResultObject(result);
  json["check"] = {
      {"passed", report.passed()},     {"out_error", report.out_error},
      {"out_bound", report.out_bound}, {"plain_error", report.plain_error},
      {"elements", report.elements},   {"misplaced", report.misplaced},
      {"worst", report.worst}};
  if (report.lse_checked) {
    json["check"]["lse_error"] = report.lse_error;
    json["check"]["lse_bound"] = report.lse_bound;
  }
  return Dump(json);
}

std::string InfoText(const ServerInfo& info) {
  std::string text =
      absl::StrFormat("attendant  %s (%s), up %.1f s\ndevices\n", info.version,
                      info.build, info.uptime_ns * 1e-9);
  for (const Device& device : info.devices) {
    absl::StrAppendFormat(
        &text, "  %s %d  %s%s%s, %.1f GiB, %s\n", Name(device.backend),
        device.index, device.name, device.uuid.empty() ? "" : " ", device.uuid,
        static_cast<double>(device.memory_bytes) / (1 << 30),
        device.backend == Backend::kCuda
            ? absl::StrFormat("compute capability %.1f, %d SMs",
                              device.compute_capability / 10.0, device.num_sms)
            : absl::StrFormat("%s, %d threads", device.instruction_set,
                              device.num_sms));
  }
  text += "kernels, best first\n";
  for (const Capability& row : info.capabilities) text += CapabilityRow(row);
  text += "bounds\n";
  for (const BoundField& field : BoundFields()) {
    absl::StrAppendFormat(&text, "  %-22s %d\n", field.name,
                          info.bounds.*field.value);
  }
  return text;
}

std::string InfoJson(const ServerInfo& info) {
  ordered_json json = {{"version", info.version},
                       {"build", info.build},
                       {"uptime_ns", info.uptime_ns},
                       {"devices", ordered_json::array()},
                       {"bounds", ordered_json::object()},
                       {"capabilities", ordered_json::array()}};
  for (const Device& device : info.devices) {
    json["devices"].push_back(
        {{"index", device.index},
         {"uuid", device.uuid},
         {"name", device.name},
         {"backend", Name(device.backend)},
         {"memory_bytes", device.memory_bytes},
         {"compute_capability", device.compute_capability},
         {"num_sms", device.num_sms},
         {"instruction_set", device.instruction_set}});
  }
  for (const BoundField& field : BoundFields()) {
    json["bounds"][field.name] = info.bounds.*field.value;
  }
  for (const Capability& row : info.capabilities) {
    json["capabilities"].push_back(CapabilityJson(row));
  }
  return Dump(json);
}

std::string ErrorText(const absl::Status& status) {
  std::string text =
      absl::StrCat("attendant: ", absl::StatusCodeToString(status.code()), ": ",
                   status.message(), "\n");
  const std::optional<ErrorDetail> detail = GetErrorDetail(status);
  if (!detail.has_value()) return text;
  absl::StrAppend(&text, "  field  ", detail->field, "\n  value  ",
                  detail->value, "\n  bound  ", detail->bound, "\n");
  return text;
}

}  // namespace attendant::client::cli
