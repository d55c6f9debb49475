// SPDX-License-Identifier: Apache-2.0
#include "sim_jobs.hpp"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "base/log.hpp"
#include "sim/run.hpp"

namespace orbite::tool {
namespace {

using Json = nlohmann::json;

/// Of so many seeds one is run twice.
constexpr std::uint64_t kTwiceEvery = 32;
constexpr std::chrono::milliseconds kLook{20};

/// One for each process, shared with the parent. All relaxed: the end of the process publishes.
struct Slot {
  std::atomic<std::uint64_t> seed{0};  ///< under way
  std::atomic<std::uint64_t> done{0};
  std::atomic<std::uint64_t> executions{0};
  std::atomic<std::uint64_t> faults{0};
  std::atomic<std::uint64_t> restarts{0};
  std::atomic<std::uint64_t> twice{0};
  std::array<std::atomic<std::uint64_t>, policy::kTransportKinds> executions_by{};
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

void add(std::atomic<std::uint64_t>& count, std::uint64_t amount) {
  count.fetch_add(amount, std::memory_order_relaxed);
}

std::uint64_t value(const std::atomic<std::uint64_t>& count) {
  return count.load(std::memory_order_relaxed);
}

/// Slots in memory that processes share.
class Slots {
 public:
  explicit Slots(std::uint32_t count)
      : bytes_(count * sizeof(Slot)),
        memory_(
            ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    for (std::uint32_t i = 0; valid() && i < count; ++i) {
      new (&at(i)) Slot();
    }
  }
  Slots(const Slots&) = delete;
  Slots& operator=(const Slots&) = delete;
  ~Slots() {
    if (valid()) {
      ::munmap(memory_, bytes_);
    }
  }
  [[nodiscard]] bool valid() const { return memory_ != MAP_FAILED; }
  [[nodiscard]] Slot& at(std::uint32_t index) { return static_cast<Slot*>(memory_)[index]; }

 private:
  std::size_t bytes_;
  void* memory_;
};

/// In the child: every seed of its share. 1: the one in the slot failed.
int run_share(const Campaign& campaign, std::uint32_t job, Slot& slot) {
  base::set_log_level(base::LogLevel::kOff);
  for (std::uint64_t i = job; i < campaign.seeds; i += campaign.jobs) {
    const std::uint64_t seed = campaign.first_seed + i;
    slot.seed.store(seed, std::memory_order_relaxed);
    const sim::Report report = sim::run(seed, campaign.options);
    if (!report.violations.empty()) {
      return 1;
    }
    if (i % kTwiceEvery == 0) {
      if (sim::run(seed, campaign.options).trace != report.trace) {
        return 1;
      }
      add(slot.twice, 1);
    }
    add(slot.done, 1);
    add(slot.executions, report.stats.executions);
    add(slot.faults, report.stats.faults);
    add(slot.restarts, report.stats.restarts);
    for (std::size_t kind = 0; kind < slot.executions_by.size(); ++kind) {
      add(slot.executions_by[kind], report.stats.executions_by[kind]);
    }
  }
  return 0;
}

Json to_json(const sim::Report& report) {
  Json violations = Json::array();
  for (const sim::Violation& violation : report.violations) {
    violations.push_back({{"invariant", violation.invariant},
                          {"text", violation.text},
                          {"host", violation.host},
                          {"execution", violation.execution},
                          {"when_ns", violation.when_ns}});
  }
  return {{"violations", violations},
          {"log", report.log},
          {"trace", report.trace},
          {"executions", report.stats.executions}};
}

sim::Report from_json(const Json& json) {
  sim::Report report;
  for (const Json& entry : json.at("violations")) {
    report.violations.push_back({entry.at("invariant"), entry.at("text"), entry.at("host"),
                                 entry.at("execution"), entry.at("when_ns")});
  }
  report.log = json.at("log").get<std::vector<std::string>>();
  report.trace = json.at("trace");
  report.stats.executions = json.at("executions");
  return report;
}

void write_all(int fd, const std::string& text) {
  std::size_t written = 0;
  while (written < text.size()) {
    const ssize_t step = ::write(fd, text.data() + written, text.size() - written);
    if (step <= 0) {
      return;
    }
    written += static_cast<std::size_t>(step);
  }
}

std::string read_all(int fd) {
  std::string text;
  char buffer[65'536];
  ssize_t step = 0;
  while ((step = ::read(fd, buffer, sizeof(buffer))) > 0 || (step < 0 && errno == EINTR)) {
    text.append(buffer, step > 0 ? static_cast<std::size_t>(step) : 0);
  }
  return text;
}

/// In the child.
[[noreturn]] void tell_case(int fd, std::uint64_t seed, const sim::Options& options) {
  base::set_log_level(base::LogLevel::kOff);
  sim::Report report = sim::run(seed, options);
  if (sim::run(seed, options).trace != report.trace) {
    report.violations.push_back({"trace", "the same seed gave another run", 0, 0, 0});
  }
  write_all(fd, to_json(report).dump(-1, ' ', false, Json::error_handler_t::replace));
  ::_exit(0);
}

Error system_error(const char* what) {
  return Error::make_native(ErrorCode::kSystem, errno, "%s", what);
}

}  // namespace

std::string CaseResult::kind() const {
  if (signal != 0) {
    return "signal " + std::to_string(signal);
  }
  return report.violations.empty() ? "" : report.violations.front().invariant;
}

Result<CaseResult> run_case(std::uint64_t seed, const sim::Options& options) {
  int ends[2];
  if (::pipe(ends) != 0) {
    return fail(system_error("no pipe"));
  }
  const pid_t child = ::fork();
  if (child < 0) {
    return fail(system_error("no process"));
  }
  if (child == 0) {
    ::close(ends[0]);
    tell_case(ends[1], seed, options);
  }
  ::close(ends[1]);
  const std::string text = read_all(ends[0]);
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  CaseResult result;
  if (WIFSIGNALED(status)) {
    result.signal = WTERMSIG(status);
    return result;
  }
  const Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) {
    return fail(ErrorCode::kInternal, "seed %llu: its process told nothing",
                static_cast<unsigned long long>(seed));
  }
  result.report = from_json(json);
  return result;
}

Result<CampaignResult> run_campaign(const Campaign& campaign,
                                    const std::function<void(std::uint64_t)>& progress) {
  Slots slots(campaign.jobs);
  if (!slots.valid()) {
    return fail(system_error("no shared memory"));
  }
  std::vector<pid_t> children(campaign.jobs, -1);
  for (std::uint32_t job = 0; job < campaign.jobs; ++job) {
    children[job] = ::fork();
    if (children[job] == 0) {
      ::_exit(run_share(campaign, job, slots.at(job)));
    }
  }
  CampaignResult result;
  std::size_t running = 0;
  do {
    running = 0;
    result.done = 0;
    for (std::uint32_t job = 0; job < campaign.jobs; ++job) {
      result.done += value(slots.at(job).done);
      if (children[job] < 0) {
        continue;
      }
      int status = 0;
      if (::waitpid(children[job], &status, WNOHANG) == 0) {
        ++running;
        if (result.failing_seed) {
          ::kill(children[job], SIGKILL);
        }
        continue;
      }
      children[job] = -1;
      if (status != 0 && !result.failing_seed) {
        result.failing_seed = value(slots.at(job).seed);
      }
    }
    progress(result.done);
    if (running > 0) {
      std::this_thread::sleep_for(kLook);
    }
  } while (running > 0);
  for (std::uint32_t job = 0; job < campaign.jobs; ++job) {
    const Slot& slot = slots.at(job);
    result.executions += value(slot.executions);
    result.faults += value(slot.faults);
    result.restarts += value(slot.restarts);
    result.twice += value(slot.twice);
    for (std::size_t kind = 0; kind < slot.executions_by.size(); ++kind) {
      result.executions_by[kind] += value(slot.executions_by[kind]);
    }
  }
  return result;
}

}  // namespace orbite::tool
