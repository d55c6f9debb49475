// SPDX-License-Identifier: Apache-2.0
#include "bench/report.hpp"

#include <array>
#include <cinttypes>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "bench/routes.hpp"
#include "format.hpp"

namespace orbite::tool::bench {
namespace {

using Json = nlohmann::ordered_json;

/// In parts of 1000.
constexpr std::array<std::pair<const char*, std::uint64_t>, 4> kQuantiles = {
    {{"p50", 500}, {"p90", 900}, {"p99", 990}, {"p99.9", 999}}};

double microseconds(std::uint64_t ns) { return static_cast<double>(ns) / 1e3; }

double cpu_per_gb(const OperationReport& report, std::uint64_t cpu_ns) {
  const auto bytes = static_cast<double>(report.sum.transfers * report.payload);
  return bytes > 0 ? static_cast<double>(cpu_ns) / bytes : 0;
}

/// WRITE, READ.
std::string title_of(Operation operation) {
  return operation == Operation::kWrite ? "WRITE" : "READ";
}

std::string threads_text(const Options& options) {
  return format("%u %s, depth %u", options.threads, options.threads == 1 ? "thread" : "threads",
                options.depth);
}

std::string latency_line(const char* name, const Histogram& histogram) {
  std::string line = format("  %-14s", name);
  for (const auto& [text, per_mille] : kQuantiles) {
    line += format("%11.2f", microseconds(histogram.quantile(per_mille)));
  }
  return line + format("%11.2f%10" PRIu64 "\n", microseconds(histogram.max()), histogram.count());
}

std::string latency_table(const OperationReport& report) {
  std::string text = format("  %-14s", "latency, us");
  for (const auto& [name, per_mille] : kQuantiles) {
    text += format("%11s", name);
  }
  text += format("%11s%10s\n", "max", "samples");
  text += latency_line("  prepare", report.prepare);
  text += latency_line("  post", report.sum.post);
  return text + latency_line("  total", report.sum.total);
}

std::string text_of(const OperationReport& report) {
  std::string text =
      format("%s: %.3f GB/s, median of %zu rounds; %" PRIu64 " transfers in %.2f s, route %s\n",
             title_of(report.operation).c_str(), median(report.rounds_gbps),
             report.rounds_gbps.size(), report.sum.transfers,
             static_cast<double>(report.sum.wall_ns) / 1e9, routes_text(report.sum.routes).c_str());
  text += latency_table(report);
  text += format(
      "  first          connect %.1f us, then the first transfer %.1f us (medians of %zu "
      "new engines)\n",
      median(report.connect_us), median(report.first_transfer_us), report.connect_us.size());
  text += format("  CPU            %.3f s/GB here", cpu_per_gb(report, report.initiator_cpu_ns));
  text += report.target_cpu_ns
              ? format(", %.3f s/GB at the target\n", cpu_per_gb(report, *report.target_cpu_ns))
              : ", both sides\n";
  for (const LimitReport& limit : report.limits) {
    text += format("  limit          %s: %.3f GB/s; ours is %.3g of it\n", limit.name.c_str(),
                   median(limit.rounds_gbps), median(limit.ratios));
  }
  if (!report.mismatch) {
    return text + "  verified       no, as asked\n";
  }
  const std::string wrong = mismatch_text(report);
  return text + "  verified       " +
         (wrong.empty() ? format("%" PRIu64 " bytes and guards", report.bytes_compared) : wrong) +
         '\n';
}

Json json_of(const Histogram& histogram) {
  Json json;
  for (const auto& [name, per_mille] : kQuantiles) {
    json[name] = histogram.quantile(per_mille);
  }
  json["max"] = histogram.max();
  json["samples"] = histogram.count();
  return json;
}

Json json_of(const OperationReport& report) {
  Json json = {{"operation", operation_name(report.operation)},
               {"gb_per_s", median(report.rounds_gbps)},
               {"rounds_gb_per_s", report.rounds_gbps},
               {"transfers", report.sum.transfers},
               {"wall_ns", report.sum.wall_ns},
               {"route", routes_text(report.sum.routes)},
               {"prepare_ns", json_of(report.prepare)},
               {"post_ns", json_of(report.sum.post)},
               {"total_ns", json_of(report.sum.total)},
               {"connect_us", median(report.connect_us)},
               {"first_transfer_us", median(report.first_transfer_us)},
               {"cpu_s_per_gb", cpu_per_gb(report, report.initiator_cpu_ns)},
               {"target_cpu_s_per_gb", nullptr}};
  if (report.target_cpu_ns) {
    json["target_cpu_s_per_gb"] = cpu_per_gb(report, *report.target_cpu_ns);
  }
  json["limits"] = Json::array();
  for (const LimitReport& limit : report.limits) {
    json["limits"].push_back({{"name", limit.name},
                              {"gb_per_s", median(limit.rounds_gbps)},
                              {"rounds_gb_per_s", limit.rounds_gbps},
                              {"ratio", median(limit.ratios)}});
  }
  json["verified"] = nullptr;
  if (report.mismatch) {
    json["verified"] = {{"ok", !report.mismatch->any()},
                        {"bytes_compared", report.bytes_compared},
                        {"bytes_wrong", report.mismatch->bytes_wrong},
                        {"guards_wrong", report.mismatch->guards_wrong},
                        {"first_wrong_offset", nullptr}};
    if (report.mismatch->any()) {
      json["verified"]["first_wrong_offset"] = report.mismatch->first_wrong;
    }
  }
  return json;
}

}  // namespace

std::string mismatch_text(const OperationReport& report) {
  if (!report.mismatch || !report.mismatch->any()) {
    return "";
  }
  return format("%" PRIu64 " bytes and %" PRIu64
                " bytes of guards are WRONG after %s, the first at "
                "offset %" PRIu64,
                report.mismatch->bytes_wrong, report.mismatch->guards_wrong,
                title_of(report.operation).c_str(), report.mismatch->first_wrong);
}

std::string text_of(const Options& options, const Report& report) {
  std::string text = layout_text(options.layout) + ", " + threads_text(options) + ", " +
                     report.between + format(", transport %s\n", transport_name(options.transport));
  for (const OperationReport& operation : report.operations) {
    text += text_of(operation);
  }
  return text;
}

std::string json_of(const Options& options, const Report& report) {
  const Layout& layout = options.layout;
  Json json = {{"version", ORBITE_VERSION},
               {"build", ORBITE_BUILD_TYPE},
               {"between", report.between},
               {"transport", transport_name(options.transport)},
               {"layout",
                {{"runs", layout.runs},
                 {"blocks", layout.blocks},
                 {"size", layout.size},
                 {"gap", layout.gap},
                 {"run_gap", layout.run_gap},
                 {"adjacent_percent", layout.adjacent_percent},
                 {"payload", layout.payload()}}},
               {"threads", options.threads},
               {"depth", options.depth}};
  json["operations"] = Json::array();
  for (const OperationReport& operation : report.operations) {
    json["operations"].push_back(json_of(operation));
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
}

}  // namespace orbite::tool::bench
