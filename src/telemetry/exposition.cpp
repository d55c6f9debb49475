// SPDX-License-Identifier: Apache-2.0
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "orbite/telemetry.hpp"

namespace orbite {
namespace {

struct Label {
  std::string_view name;
  std::string_view value;
};

/// Label values may hold any bytes, which the names of engines are: what is not UTF-8 would make
/// the whole page unreadable, so bytes beyond ASCII are escaped by number.
void append_escaped(std::string& text, std::string_view value) {
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\\' || c == '"') {
      text += '\\';
      text += c;
    } else if (c == '\n') {
      text += "\\n";
    } else if (byte < 0x20 || byte > 0x7E) {
      char number[8];
      std::snprintf(number, sizeof(number), "\\\\x%02x", unsigned{byte});
      text += number;
    } else {
      text += c;
    }
  }
}

/// Exact: nanoseconds have nine digits behind the point.
std::string in_seconds(std::uint64_t ns) {
  char text[40];
  std::snprintf(text, sizeof(text), "%" PRIu64 ".%09" PRIu64, ns / 1'000'000'000,
                ns % 1'000'000'000);
  std::string seconds(text);
  seconds.erase(seconds.find_last_not_of('0') + 1);
  if (seconds.back() == '.') {
    seconds.pop_back();
  }
  return seconds;
}

enum class Kind : std::uint8_t { kCounter, kGauge, kHistogram };

constexpr std::string_view kind_name(Kind kind) {
  switch (kind) {
    case Kind::kCounter:
      return "counter";
    case Kind::kGauge:
      return "gauge";
    case Kind::kHistogram:
      return "histogram";
  }
  return "";
}

/// Writes one metric: its head, then a sample for each set of labels.
class Page {
 public:
  explicit Page(const Telemetry& telemetry) : telemetry_(telemetry) {}

  void begin(std::string_view name, Kind kind, std::string_view meaning) {
    name_ = name;
    text_ += "# HELP ";
    text_ += name;
    text_ += ' ';
    text_ += meaning;
    text_ += "\n# TYPE ";
    text_ += name;
    text_ += ' ';
    text_ += kind_name(kind);
    text_ += '\n';
  }
  void sample(std::initializer_list<Label> labels, std::string_view value,
              std::string_view suffix = "") {
    text_ += name_;
    text_ += suffix;
    text_ += "{engine=\"";
    append_escaped(text_, telemetry_.engine);
    text_ += '"';
    for (const Label& label : labels) {
      text_ += ',';
      text_ += label.name;
      text_ += "=\"";
      append_escaped(text_, label.value);
      text_ += '"';
    }
    text_ += "} ";
    text_ += value;
    text_ += '\n';
  }
  void sample(std::initializer_list<Label> labels, std::uint64_t value,
              std::string_view suffix = "") {
    sample(labels, std::to_string(value), suffix);
  }

  [[nodiscard]] const Telemetry& telemetry() const noexcept { return telemetry_; }
  [[nodiscard]] std::string take() { return std::move(text_); }

 private:
  const Telemetry& telemetry_;
  std::string text_;
  std::string_view name_;
};

constexpr std::string_view operation_name(Operation operation) {
  return operation == Operation::kRead ? "read" : "write";
}

void write_build(Page& page) { page.sample({{"version", ORBITE_VERSION}}, 1); }

template <auto Member>
void write_routes(Page& page) {
  for (const RouteTelemetry& route : page.telemetry().routes) {
    page.sample({{"transport", route.transport},
                 {"operation", operation_name(route.operation)},
                 {"class", route.qos}},
                route.*Member);
  }
}

void write_retired(Page& page) {
  for (const RouteTelemetry& route : page.telemetry().routes) {
    const auto sample = [&](std::string_view outcome, std::uint64_t value) {
      page.sample({{"transport", route.transport},
                   {"operation", operation_name(route.operation)},
                   {"class", route.qos},
                   {"outcome", outcome}},
                  value);
    };
    sample("success", route.succeeded);
    sample("canceled", route.canceled);
    sample("failed", route.failed);
  }
}

void write_failures(Page& page) {
  for (const RouteTelemetry& route : page.telemetry().routes) {
    for (const auto& [code, count] : route.failures) {
      page.sample({{"transport", route.transport},
                   {"operation", operation_name(route.operation)},
                   {"class", route.qos},
                   {"code", error_name(code)}},
                  count);
    }
  }
}

void write_latency(Page& page) {
  for (const RouteTelemetry& route : page.telemetry().routes) {
    const std::string_view operation = operation_name(route.operation);
    std::uint64_t count = 0;
    for (std::size_t i = 0; i < route.latency.size(); ++i) {
      count += route.latency[i];
      const std::string bound =
          i < kLatencyBounds ? in_seconds(latency_bound_ns(i)) : std::string("+Inf");
      page.sample({{"transport", route.transport},
                   {"operation", operation},
                   {"class", route.qos},
                   {"le", bound}},
                  count, "_bucket");
    }
    page.sample({{"transport", route.transport}, {"operation", operation}, {"class", route.qos}},
                in_seconds(route.latency_sum_ns), "_sum");
    page.sample({{"transport", route.transport}, {"operation", operation}, {"class", route.qos}},
                count, "_count");
  }
}

template <auto Member>
void write_budgets(Page& page) {
  for (const BudgetTelemetry& budget : page.telemetry().budgets) {
    page.sample({{"budget", budget.name}, {"key", budget.key}}, budget.*Member);
  }
}

template <auto Member>
void write_counter(Page& page) {
  page.sample({}, page.telemetry().counters.*Member);
}

template <auto Member>
void write_gauge(Page& page) {
  page.sample({}, page.telemetry().gauges.*Member);
}

/// One row of the only list of metrics: the page and its documentation come from it.
struct Metric {
  std::string_view name;
  Kind kind;
  std::string_view labels;  ///< beside `engine`
  std::string_view meaning;
  void (*write)(Page&);
};

constexpr std::string_view kRouteLabels = "transport, operation, class";

constexpr Metric kMetrics[] = {
    {"orbite_build_info", Kind::kGauge, "version", "always 1; the version is a label", write_build},
    {"orbite_executions_posted_total", Kind::kCounter, kRouteLabels, "executions admitted",
     write_routes<&RouteTelemetry::posted>},
    {"orbite_executions_retired_total", Kind::kCounter, "transport, operation, class, outcome",
     "executions that ended, nothing touching their buffers any more", write_retired},
    {"orbite_executions_failed_total", Kind::kCounter, "transport, operation, class, code",
     "executions that ended in failure, by the code of the error; codes that occurred",
     write_failures},
    {"orbite_execution_bytes_total", Kind::kCounter, kRouteLabels,
     "bytes of executions that ended in success", write_routes<&RouteTelemetry::bytes>},
    {"orbite_execution_seconds", Kind::kHistogram, "transport, operation, class, le",
     "time of successes from admission to retirement", write_latency},
    {"orbite_executions_active", Kind::kGauge, kRouteLabels, "executions that have not ended",
     write_routes<&RouteTelemetry::active>},
    {"orbite_executions_unquiesced", Kind::kGauge, kRouteLabels,
     "of these, those whose outcome is known while something may still touch their buffers",
     write_routes<&RouteTelemetry::unquiesced>},
    {"orbite_unquiesced_bytes", Kind::kGauge, kRouteLabels,
     "bytes of the requests of unquiesced executions",
     write_routes<&RouteTelemetry::unquiesced_bytes>},
    {"orbite_budget_used", Kind::kGauge, "budget, key", "of a budget, what is in use",
     write_budgets<&BudgetTelemetry::used>},
    {"orbite_budget_max", Kind::kGauge, "budget, key",
     "of a budget, what there is, as the key of the configuration sets it",
     write_budgets<&BudgetTelemetry::max>},
    {"orbite_budget_refused_total", Kind::kCounter, "budget, key", "what a budget had no room for",
     write_budgets<&BudgetTelemetry::refused>},
#define ORBITE_COUNTER(name, meaning)                     \
  {"orbite_" #name "_total", Kind::kCounter, "", meaning, \
   write_counter<&Telemetry::Counters::name>},
#define ORBITE_GAUGE(name, meaning) \
  {"orbite_" #name, Kind::kGauge, "", meaning, write_gauge<&Telemetry::Gauges::name>},
#include "orbite/telemetry.def"
#undef ORBITE_COUNTER
#undef ORBITE_GAUGE
};

constexpr std::string_view kMarkdownHead =
    R"(<!-- Written by `orbite telemetry --markdown`. -->
# Telemetry

What an engine counts. A program reads it with `TransferEngine::telemetry()` or
`orbite_nixl_telemetry_read`, and as Prometheus text exposition with `telemetry_text()` or
`orbite_nixl_telemetry_text`; the engine itself opens no port for it. Counting takes a few relaxed
additions for each execution and nothing for each descriptor.

Every sample has the label `engine`, the name of the engine, beside those of the table. A route is
what `transport`, `operation` (`read`, `write`) and `class` (`latency`, `bulk`) name together.
Notifications that are sent on their own are counted by `orbite_notifications_*`, not as executions.
Label values are printable ASCII and ends of lines; other bytes of a name stand as `\xNN`.

| metric | type | labels | meaning |
|---|---|---|---|
)";

}  // namespace

std::string telemetry_text(const Telemetry& telemetry) {
  Page page(telemetry);
  for (const Metric& metric : kMetrics) {
    page.begin(metric.name, metric.kind, metric.meaning);
    metric.write(page);
  }
  return page.take();
}

std::string telemetry_markdown() {
  std::string text(kMarkdownHead);
  for (const Metric& metric : kMetrics) {
    text += "| `";
    text += metric.name;
    text += "` | ";
    text += kind_name(metric.kind);
    text += " | ";
    text += metric.labels;
    text += " | ";
    text += metric.meaning;
    text += " |\n";
  }
  return text;
}

}  // namespace orbite
