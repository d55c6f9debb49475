// SPDX-License-Identifier: Apache-2.0
#include "base/log.hpp"

#include <spdlog/details/null_mutex.h>
#include <spdlog/details/os.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/base_sink.h>

#include <algorithm>
#include <atomic>
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

/// Standard error. Its lock is its own: that of spdlog's sinks is one of the process, which a child
/// of fork() finds locked if another thread was writing.
class ErrorSink final : public spdlog::sinks::base_sink<std::mutex> {
 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    std::fwrite(line.data(), 1, line.size(), stderr);
  }
  void flush_() override { std::fflush(stderr); }
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
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e orbite[%P] %l: %v");
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
  const std::lock_guard lock(state().mutex);
  state().logger = std::move(logger);
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
