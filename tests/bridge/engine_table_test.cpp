// SPDX-License-Identifier: Apache-2.0
// Engine handles: where the configuration comes from, how many there are, what a release does to
// calls under way in other threads, and what is left of them in a forked child.

#include "engine_table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "base/log.hpp"
#include "bridge/entries.hpp"
#include "bridge/fake_engine.hpp"

namespace orbite::testing {
namespace {

using ::testing::HasSubstr;

orbite_nixl_engine_t create_engine(const char* config = "{}") {
  Arguments arguments;
  arguments.options_record.config = config;
  arguments.options_record.config_bytes = std::strlen(config);
  EXPECT_EQ(orbite_nixl_engine_create(arguments.options, &arguments.engine, arguments.error),
            ORBITE_NIXL_OK)
      << arguments.error_record.message;
  return arguments.engine;
}

orbite_nixl_status_t cancel(orbite_nixl_engine_t engine) {
  return orbite_nixl_request_cancel(engine, 1, nullptr);
}

// A condition that one thread sets and others wait for.
class Latch {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    opened_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    opened_.wait(lock, [this] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool open_ = false;
};

class EngineTable : public ::testing::Test {
 protected:
  EngineTable() { reset_fake_engine(); }
  ~EngineTable() override {
    reset_fake_engine();
    EXPECT_EQ(fake_engine().alive, 0);
  }
};

class EngineConfig : public EngineTable {
 protected:
  EngineConfig() { clear(); }
  ~EngineConfig() override {
    clear();
    base::set_log_level(base::LogLevel::kWarn);
    std::filesystem::remove(file_);
  }
  static void clear() {
    ::unsetenv("ORBITE_CONFIG");
    ::unsetenv("ORBITE_LOG");
  }
  // Creates with `config` (NULL allowed) and releases again.
  orbite_nixl_status_t create(const char* config) {
    Arguments arguments;
    arguments.options_record.config = config;
    arguments.options_record.config_bytes = config == nullptr ? 0 : std::strlen(config);
    const orbite_nixl_status_t status =
        orbite_nixl_engine_create(arguments.options, &arguments.engine, arguments.error);
    message_ = arguments.error_record.message;
    if (status == ORBITE_NIXL_OK) {
      EXPECT_EQ(orbite_nixl_engine_release(arguments.engine, nullptr), ORBITE_NIXL_OK);
    } else {
      EXPECT_EQ(arguments.engine, 0U);
    }
    return status;
  }
  void write_file(const char* text) {
    std::ofstream(file_) << text;
    ::setenv("ORBITE_CONFIG", file_.c_str(), 1);
  }

  std::filesystem::path file_ = std::filesystem::temp_directory_path() /
                                ("orbite-bridge-" + std::to_string(::getpid()) + ".json");
  std::string message_;
};

TEST_F(EngineConfig, IsThatOfTheOptionsFirst) {
  write_file(R"({"close": {"timeout_ms": 11}})");
  EXPECT_EQ(create(R"({"close": {"timeout_ms": 22}})"), ORBITE_NIXL_OK);
  EXPECT_EQ(fake_engine().config.close.timeout_ms, 22U);
  EXPECT_EQ(fake_engine().name, "agent");
}

TEST_F(EngineConfig, IsThatOfTheNamedFileWithoutOptions) {
  write_file(R"({"close": {"timeout_ms": 11}})");
  EXPECT_EQ(create(nullptr), ORBITE_NIXL_OK);
  EXPECT_EQ(fake_engine().config.close.timeout_ms, 11U);
}

TEST_F(EngineConfig, IsTheDefaultWithoutEither) {
  EXPECT_EQ(create(nullptr), ORBITE_NIXL_OK);
  EXPECT_EQ(fake_engine().config, Config{});
  ::setenv("ORBITE_CONFIG", "", 1);
  EXPECT_EQ(create(nullptr), ORBITE_NIXL_OK);
  EXPECT_EQ(fake_engine().config, Config{});
}

TEST_F(EngineConfig, IsRefusedBeforeAnEngineIsMade) {
  const int before = fake_engine().calls;
  EXPECT_EQ(create(R"({"close": {"timeout_ms": "soon"}})"), ORBITE_NIXL_ERR_BAD_CONFIG);
  EXPECT_THAT(message_, HasSubstr("close.timeout_ms"));
  EXPECT_EQ(create(""), ORBITE_NIXL_ERR_BAD_CONFIG);
  write_file("[]");
  EXPECT_EQ(create(nullptr), ORBITE_NIXL_ERR_BAD_CONFIG);
  EXPECT_THAT(message_, HasSubstr(file_.string()));
  ::setenv("ORBITE_CONFIG", "/nonexistent/orbite.json", 1);
  EXPECT_EQ(create(nullptr), ORBITE_NIXL_ERR_BAD_CONFIG);
  EXPECT_THAT(message_, HasSubstr("/nonexistent/orbite.json"));
  EXPECT_EQ(fake_engine().calls, before);
}

TEST_F(EngineConfig, TakesTheLogLevelOfTheEnvironmentFirst) {
  EXPECT_EQ(create(R"({"log": {"level": "info"}})"), ORBITE_NIXL_OK);
  EXPECT_TRUE(base::log_enabled(base::LogLevel::kInfo));
  EXPECT_FALSE(base::log_enabled(base::LogLevel::kDebug));
  ::setenv("ORBITE_LOG", "error", 1);
  EXPECT_EQ(create(R"({"log": {"level": "info"}})"), ORBITE_NIXL_OK);
  EXPECT_EQ(fake_engine().config.log.level, "error");
  EXPECT_FALSE(base::log_enabled(base::LogLevel::kWarn));
  ::setenv("ORBITE_LOG", "loud", 1);
  EXPECT_EQ(create("{}"), ORBITE_NIXL_ERR_BAD_CONFIG);
  EXPECT_THAT(message_, HasSubstr("ORBITE_LOG is 'loud'; allowed: trace, debug"));
}

TEST_F(EngineTable, IsBoundedAndUsableAgain) {
  std::vector<orbite_nixl_engine_t> engines;
  for (std::uint32_t i = 0; i < bridge::kEnginesMax; ++i) {
    engines.push_back(create_engine());
  }
  Arguments arguments;
  const int before = fake_engine().calls;
  EXPECT_EQ(orbite_nixl_engine_create(arguments.options, arguments.output, arguments.error),
            ORBITE_NIXL_ERR_BUDGET_EXHAUSTED);
  EXPECT_THAT(arguments.error_record.message, HasSubstr("1024"));
  EXPECT_EQ(fake_engine().calls, before);
  for (const orbite_nixl_engine_t engine : engines) {
    EXPECT_EQ(orbite_nixl_engine_release(engine, nullptr), ORBITE_NIXL_OK);
  }
  EXPECT_EQ(fake_engine().alive, 0);
  EXPECT_EQ(orbite_nixl_engine_release(create_engine(), nullptr), ORBITE_NIXL_OK);
}

TEST_F(EngineTable, AFailedCreationFreesItsSlot) {
  fake_engine().failure = Error(ErrorCode::kAddressInUse);
  Arguments arguments;
  for (std::uint32_t i = 0; i < 2 * bridge::kEnginesMax; ++i) {
    ASSERT_EQ(orbite_nixl_engine_create(arguments.options, arguments.output, arguments.error),
              ORBITE_NIXL_ERR_ADDRESS_IN_USE);
  }
  fake_engine().failure.reset();
  EXPECT_EQ(orbite_nixl_engine_release(create_engine(), nullptr), ORBITE_NIXL_OK);
}

TEST_F(EngineTable, ASlotUsedAgainHasAnotherHandle) {
  const orbite_nixl_engine_t first = create_engine();
  EXPECT_EQ(orbite_nixl_engine_release(first, nullptr), ORBITE_NIXL_OK);
  const orbite_nixl_engine_t second = create_engine();
  EXPECT_EQ(first & 0xFFFF'FFFF, second & 0xFFFF'FFFF);
  EXPECT_NE(first, second);
  EXPECT_EQ(cancel(first), ORBITE_NIXL_ERR_STALE_HANDLE);
  EXPECT_EQ(cancel(second), ORBITE_NIXL_OK);
  EXPECT_EQ(orbite_nixl_engine_release(second, nullptr), ORBITE_NIXL_OK);
}

TEST_F(EngineTable, ReleaseWaitsForTheCallsInside) {
  Latch inside;
  Latch fenced;
  fake_engine().on_call = [&](std::string_view call) {
    if (call == "check") {
      inside.open();
      fenced.wait();
      EXPECT_EQ(fake_engine().alive, 1);
    } else if (call == "close") {
      fenced.open();
    }
  };
  const orbite_nixl_engine_t engine = create_engine(R"({"close": {"timeout_ms": 60000}})");
  std::thread caller([engine] {
    Arguments arguments;
    EXPECT_EQ(orbite_nixl_request_check(engine, 1, arguments.result, nullptr), ORBITE_NIXL_OK);
  });
  inside.wait();
  EXPECT_EQ(orbite_nixl_engine_release(engine, nullptr), ORBITE_NIXL_OK);
  EXPECT_EQ(fake_engine().alive, 0);
  EXPECT_EQ(cancel(engine), ORBITE_NIXL_ERR_STALE_HANDLE);
  caller.join();
}

TEST_F(EngineTable, ACallThatStaysLongerDestroysTheEngine) {
  Latch inside;
  Latch go_on;
  fake_engine().on_call = [&](std::string_view call) {
    if (call == "check") {
      inside.open();
      go_on.wait();
    }
  };
  const orbite_nixl_engine_t engine = create_engine(R"({"close": {"timeout_ms": 1}})");
  std::thread caller([engine] {
    Arguments arguments;
    EXPECT_EQ(orbite_nixl_request_check(engine, 1, arguments.result, nullptr), ORBITE_NIXL_OK);
  });
  inside.wait();
  EXPECT_EQ(orbite_nixl_engine_release(engine, nullptr), ORBITE_NIXL_OK);
  EXPECT_EQ(fake_engine().alive, 1);
  EXPECT_EQ(cancel(engine), ORBITE_NIXL_ERR_STALE_HANDLE);
  EXPECT_EQ(orbite_nixl_engine_release(engine, nullptr), ORBITE_NIXL_ERR_STALE_HANDLE);
  go_on.open();
  caller.join();
  EXPECT_EQ(fake_engine().alive, 0);
}

TEST_F(EngineTable, AFaultInTheFenceStillEndsTheHandle) {
  Latch inside;
  Latch fenced;
  fake_engine().on_call = [&](std::string_view call) {
    if (call == "check") {
      inside.open();
      fenced.wait();
    } else if (call == "close") {
      fenced.open();
      throw std::runtime_error("planted fault");
    }
  };
  const orbite_nixl_engine_t engine = create_engine();
  std::thread caller([engine] {
    Arguments arguments;
    EXPECT_EQ(orbite_nixl_request_check(engine, 1, arguments.result, nullptr), ORBITE_NIXL_OK);
  });
  inside.wait();
  EXPECT_EQ(orbite_nixl_engine_release(engine, nullptr), ORBITE_NIXL_ERR_INTERNAL);
  caller.join();
  EXPECT_EQ(fake_engine().alive, 0);
  EXPECT_EQ(cancel(engine), ORBITE_NIXL_ERR_STALE_HANDLE);
}

TEST_F(EngineTable, OnlyOneOfTwoReleasesWins) {
  for (int round = 0; round < 200; ++round) {
    const orbite_nixl_engine_t engine = create_engine();
    std::atomic<int> won{0};
    const auto release = [&] {
      // Relaxed: read after the joins.
      won.fetch_add(orbite_nixl_engine_release(engine, nullptr) == ORBITE_NIXL_OK ? 1 : 0,
                    std::memory_order_relaxed);
    };
    std::thread first(release);
    std::thread second(release);
    first.join();
    second.join();
    EXPECT_EQ(won, 1);
    EXPECT_EQ(fake_engine().alive, 0);
  }
}

TEST_F(EngineTable, ReleaseAmongManyCallsIsSafe) {
  constexpr int kThreads = 4;
  for (int round = 0; round < 50; ++round) {
    const orbite_nixl_engine_t engine = create_engine();
    Latch begin;
    std::vector<std::thread> callers;
    for (int i = 0; i < kThreads; ++i) {
      callers.emplace_back([&] {
        Arguments arguments;
        begin.wait();
        orbite_nixl_status_t status = ORBITE_NIXL_OK;
        while (status == ORBITE_NIXL_OK) {
          status = orbite_nixl_request_check(engine, 1, arguments.result, nullptr);
        }
        EXPECT_EQ(status, ORBITE_NIXL_ERR_STALE_HANDLE);
      });
    }
    begin.open();
    // Not before a caller is at work. Relaxed: a count.
    const int before = fake_engine().calls;
    while (fake_engine().calls.load(std::memory_order_relaxed) < before + kThreads) {
      std::this_thread::yield();
    }
    EXPECT_EQ(orbite_nixl_engine_release(engine, nullptr), ORBITE_NIXL_OK);
    for (std::thread& caller : callers) {
      caller.join();
    }
    EXPECT_EQ(fake_engine().alive, 0);
  }
}

// In the child of a fork: the number of entries that do not answer as they should.
int wrong_answers_in_child(orbite_nixl_engine_t parents) {
  int wrong = 0;
  const int calls_before = fake_engine().calls;
  for (const Entry& entry : entries()) {
    Arguments arguments;
    arguments.engine = parents;
    if (entry.takes_engine) {
      wrong += entry.call(arguments) == ORBITE_NIXL_ERR_FORKED ? 0 : 1;
    }
  }
  wrong += fake_engine().calls == calls_before ? 0 : 1;
  // An engine of its own works, whatever locks the parent held, and is not the parent's.
  const orbite_nixl_engine_t own = create_engine();
  wrong += own != parents && cancel(own) == ORBITE_NIXL_OK ? 0 : 1;
  wrong += cancel(parents) == ORBITE_NIXL_ERR_FORKED ? 0 : 1;
  wrong += orbite_nixl_engine_release(own, nullptr) == ORBITE_NIXL_OK ? 0 : 1;
  return wrong;
}

TEST_F(EngineTable, AForkedChildIsRefusedAndCanMakeItsOwn) {
  const orbite_nixl_engine_t engine = create_engine();
  Latch inside;
  Latch go_on;
  fake_engine().on_call = [&](std::string_view call) {
    if (call == "query") {
      inside.open();
      go_on.wait();
    }
  };
  // A call is inside while we fork: the child must not wait for it.
  std::thread caller([engine] {
    Arguments arguments;
    EXPECT_EQ(orbite_nixl_request_query(engine, 1, arguments.result, nullptr), ORBITE_NIXL_OK);
  });
  inside.wait();
  const pid_t child = ::fork();
  if (child == 0) {
    ::_exit(wrong_answers_in_child(engine));
  }
  ASSERT_GT(child, 0);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  go_on.open();
  caller.join();
  EXPECT_EQ(cancel(engine), ORBITE_NIXL_OK);
  EXPECT_EQ(orbite_nixl_engine_release(engine, nullptr), ORBITE_NIXL_OK);
}

}  // namespace
}  // namespace orbite::testing
