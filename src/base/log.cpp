// SPDX-License-Identifier: Apache-2.0
#include "base/log.hpp"

#include <spdlog/details/null_mutex.h>
#include <spdlog/details/os.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/base_sink.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <memory>
#include <mutex>
#include <new>

namespace orbite::base {
namespace {

constexpr std::size_t kLineBytesMax = 1024;

spdlog::level::level_enum native_level(LogLevel level) {
  return static_cast<spdlog::level::level_enum>(level);
}

/// Without a lock: one thread inside of the host's sink would stop all others that log, with
/// whatever locks they hold.
class HostSink final : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
 public:
  explicit HostSink(LogSink host) : host_(std::move(host)) {}

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    host_(static_cast<LogLevel>(message.level),
          std::string_view(message.payload.data(), message.payload.size()));
  }
  void flush_() override {}

 private:
  LogSink host_;
};

/// Standard error, with the time of day in UTC. It takes no lock but that of the stream: those of
/// spdlog's sinks and of the C library's calendar are of the process, and a child of fork() finds
/// them locked for ever if another thread of its parent was inside.
class ErrorSink final : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    const auto time = std::chrono::floor<std::chrono::milliseconds>(message.time);
    const auto midnight = std::chrono::floor<std::chrono::days>(time);
    const std::chrono::year_month_day date(midnight);
    const std::chrono::hh_mm_ss clock(time - midnight);
    const spdlog::string_view_t level = spdlog::level::to_string_view(message.level);
    // One call, so that lines of several threads do not mix.
    std::fprintf(stderr, "%04d-%02u-%02uT%02d:%02d:%02d.%03dZ orbite[%d] %.*s: %.*s\n",
                 static_cast<int>(date.year()), static_cast<unsigned>(date.month()),
                 static_cast<unsigned>(date.day()), static_cast<int>(clock.hours().count()),
                 static_cast<int>(clock.minutes().count()),
                 static_cast<int>(clock.seconds().count()),
                 static_cast<int>(clock.subseconds().count()), spdlog::details::os::pid(),
                 static_cast<int>(level.size()), level.data(),
                 static_cast<int>(message.payload.size()), message.payload.data());
  }
  void flush_() override {}
};

std::shared_ptr<spdlog::logger> make_logger(LogSink sink) {
  spdlog::sink_ptr target;
  if (sink) {
    target = std::make_shared<HostSink>(std::move(sink));
  } else {
    target = std::make_shared<ErrorSink>();
  }
  // A private logger: spdlog's global registry belongs to whoever else in the process uses spdlog.
  auto logger = std::make_shared<spdlog::logger>("orbite", std::move(target));
  logger->set_level(spdlog::level::trace);
  return logger;
}

// A filter that orders nothing: relaxed throughout.
constinit std::atomic<LogLevel> level_shown{LogLevel::kWarn};

struct State {
  std::mutex mutex;
  std::shared_ptr<spdlog::logger> logger = make_logger(nullptr);
};

/// Never destroyed: worker threads of engines that outlive static destruction may still log. A
/// child of fork() makes one of its own: threads that it does not have may hold the locks of its
/// parent's.
constinit std::atomic<State*> current{nullptr};

/// The outermost of this thread.
constinit thread_local LogLater* later = nullptr;

State& state() {
  // Release and acquire: whoever finds it sees it whole.
  State* found = current.load(std::memory_order_acquire);
  if (found == nullptr) {
    auto fresh = std::make_unique<State>();
    if (current.compare_exchange_strong(found, fresh.get(), std::memory_order_acq_rel,
                                        std::memory_order_acquire)) {
      found = fresh.release();
    }
  }
  return *found;
}

void write(LogLevel level, std::chrono::system_clock::time_point time,
           std::string_view line) noexcept {
  try {
    std::shared_ptr<spdlog::logger> logger;
    {
      const std::lock_guard lock(state().mutex);
      logger = state().logger;
    }
    logger->log(time, spdlog::source_loc(), native_level(level),
                spdlog::string_view_t(line.data(), line.size()));
  } catch (...) {
    std::fputs("orbite: a log sink threw, or there is no memory; the line is lost\n", stderr);
  }
}

}  // namespace

void set_log_sink(LogSink sink) {
  auto logger = make_logger(std::move(sink));
  State& its = state();
  const std::lock_guard lock(its.mutex);
  its.logger.swap(logger);
}

void forget_log() noexcept { current.store(nullptr, std::memory_order_relaxed); }

void set_log_level(LogLevel level) noexcept { level_shown.store(level, std::memory_order_relaxed); }

bool log_enabled(LogLevel level) noexcept {
  return level >= level_shown.load(std::memory_order_relaxed);
}

bool parse_log_level(std::string_view text, LogLevel& level) noexcept {
  constexpr std::string_view kNames[] = {"trace", "debug", "info", "warn", "error", "off"};
  for (std::size_t i = 0; i < std::size(kNames); ++i) {
    if (text == kNames[i]) {
      level = static_cast<LogLevel>(i);
      return true;
    }
  }
  return false;
}

void log(LogLevel level, const char* format, ...) noexcept {
  if (!log_enabled(level)) {
    return;
  }
  char line[kLineBytesMax];
  std::va_list arguments;
  va_start(arguments, format);
  const int written = std::vsnprintf(line, sizeof(line), format, arguments);
  va_end(arguments);
  if (written < 0) {
    return;
  }
  const std::size_t length = std::min(static_cast<std::size_t>(written), sizeof(line) - 1);
  // Names come from peers: none of them begins a line of its own, or drives a terminal.
  std::replace_if(
      line, line + length, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; },
      '?');
  if (later != nullptr) {
    later->keep(level, {line, length});
  } else {
    write(level, spdlog::details::os::now(), {line, length});
  }
}

LogLater::LogLater() noexcept {
  if (later == nullptr) {
    later = this;
  }
}

LogLater::~LogLater() {
  if (later != this) {
    return;
  }
  later = nullptr;
  for (const Line& line : lines_) {
    write(line.level, line.time, line.text);
  }
  if (lost_ > 0) {
    log(LogLevel::kWarn, "%llu further lines are lost", static_cast<unsigned long long>(lost_));
  }
}

void LogLater::keep(LogLevel level, std::string_view text) noexcept {
  try {
    if (lines_.size() < kLinesMax) {
      lines_.push_back({level, spdlog::details::os::now(), std::string(text)});
    } else {
      ++lost_;
    }
  } catch (const std::bad_alloc&) {
    ++lost_;
  }
}

}  // namespace orbite::base
