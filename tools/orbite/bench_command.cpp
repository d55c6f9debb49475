// SPDX-License-Identifier: Apache-2.0
#include "bench/initiator.hpp"
#include "bench/server.hpp"
#include "commands.hpp"
#include "progress.hpp"

namespace orbite::tool {
namespace {

int failed(const Error& error) {
  write_error(error.message());
  return kExitFailed;
}

int exit_code(const Result<void>& result) { return result ? kExitOk : failed(result.error()); }

int run_measurement(const bench::Options& options) {
  const Result<bench::Report> report = [&] {
    Progress progress("rounds", bench::round_count(options));
    return bench::run_initiator(options, [&](std::uint64_t done) { progress.update(done); });
  }();
  if (!report) {
    return failed(report.error());
  }
  int code = write_output(options.json ? bench::json_of(options, *report)
                                       : bench::text_of(options, *report));
  for (const bench::OperationReport& operation : report->operations) {
    if (const std::string wrong = bench::mismatch_text(operation); !wrong.empty()) {
      write_error(wrong);
      code = kExitFailed;
    }
  }
  return code;
}

}  // namespace

int run_bench(const bench::Arguments& arguments) {
  const Result<bench::Options> options = bench::parse_options(arguments);
  if (!options) {
    write_error(options.error().message());
    return kExitUsage;
  }
  switch (options->role) {
    case bench::Role::kServe:
      return exit_code(bench::run_server(*options, write_error));
    case bench::Role::kServed:
      return exit_code(bench::run_served(*options));
    default:
      return run_measurement(*options);
  }
}

}  // namespace orbite::tool
