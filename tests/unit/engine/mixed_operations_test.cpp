// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <optional>

#include "base/log.hpp"
#include "base/random.hpp"
#include "engine_pair.hpp"
#include "support/faulty_relay.hpp"
#include "wire/metadata.hpp"

namespace orbite {
namespace {

using test::eventually;
using test::FaultyRelay;
using test::Node;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
// Their allocators keep freed memory, and everything takes longer.
constexpr int kOperations = 20'000;
constexpr bool kMemoryIsTold = false;
#else
constexpr int kOperations = 100'000;
constexpr bool kMemoryIsTold = true;
#endif
constexpr int kWarmUp = kOperations / 10;
constexpr std::size_t kBytes = std::size_t{256} << 10;
constexpr std::size_t kLiveMax = 32;
/// A hundred bytes lost with each operation would be more.
constexpr std::uint64_t kResidentGrowthMax = std::uint64_t{6} << 20;

[[maybe_unused]] std::uint64_t resident_bytes() {
  ::malloc_trim(0);
  std::ifstream statm("/proc/self/statm");
  std::uint64_t total_pages = 0;
  std::uint64_t resident_pages = 0;
  statm >> total_pages >> resident_pages;
  return resident_pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

Config small_config() {
  Config config = test::loopback_config();
  config.tcp.small_bytes = 4'096;
  config.tcp.slice_bytes = 64 << 10;
  config.limits.requests_max = 24;
  config.limits.registrations_max = 24;
  config.limits.ranges_max = 24;
  config.limits.descriptors_per_request_max = 16;
  config.limits.descriptors_max = 240;
  config.limits.peers_max = 6;
  config.limits.bytes_in_flight_max = 1 << 20;
  config.notifications.message_bytes_max = 1'024;
  config.notifications.inbox_bytes_max = 64 << 10;
  config.notifications.outbox_bytes_max = 64 << 10;
  return config;
}

/// Everything of an engine that has to come back. Connections come and go by themselves.
std::map<std::string, std::uint64_t> accounts_of(const TransferEngine& engine) {
  const Telemetry telemetry = engine.telemetry().value();
  std::map<std::string, std::uint64_t> accounts;
  for (const BudgetTelemetry& budget : telemetry.budgets) {
    accounts[budget.name] = budget.used;
  }
  accounts.erase("served_lanes");
  accounts["slices"] = telemetry.gauges.slices_outstanding;
  accounts["unproved"] = telemetry.gauges.slices_unproved;
  accounts["loans"] = telemetry.gauges.loans_out;
  accounts["registered bytes"] = telemetry.gauges.registered_bytes;
  accounts["fenced"] = telemetry.gauges.registrations_fenced;
  accounts["quarantined"] = telemetry.gauges.registrations_quarantined;
  for (const RouteTelemetry& route : telemetry.routes) {
    accounts["active"] += route.active;
    accounts["unquiesced bytes"] += route.unquiesced_bytes;
  }
  return accounts;
}

class MixedOperations : public ::testing::Test {
 protected:
  MixedOperations() {
    base::set_log_level(base::LogLevel::kOff);
    relay_.start(port_of(*there_.engine));
    here_.know("there", there_);
    self_ = here_.engine->self_peer().value();
    own_range_ = here_.engine->local_range(here_.registration).value();
  }

  ~MixedOperations() override { base::set_log_level(base::LogLevel::kWarn); }

  static std::uint16_t port_of(const TransferEngine& engine) {
    const std::string info = engine.info_json();
    const std::string before = "\"listen\": \"127.0.0.1:";
    return static_cast<std::uint16_t>(std::stoi(info.substr(info.find(before) + before.size())));
  }
  static Config relayed(std::uint16_t relay_port) {
    Config config = small_config();
    config.advertise.addresses = {"127.0.0.1"};
    config.advertise.port = relay_port;
    return config;
  }

  std::uint64_t below(std::uint64_t bound) { return random_.next_u64() % bound; }

  void work(int operations) {
    for (int i = 0; i < operations; ++i) {
      step();
      if (i % 20'000 == 10'000) {
        meet_somebody_for_a_while();
      }
    }
  }

  void step() {
    switch (below(12)) {
      case 0:
        prepare();
        break;
      case 1:
      case 2:
      case 3:
      case 4:
      case 5:
        post();
        break;
      case 6:
        check_some();
        break;
      case 7:
        end_one();
        break;
      case 8:
        notify();
        break;
      case 9:
        register_or_not();
        break;
      case 10:
        import_or_not();
        break;
      default:
        fetch();
        break;
    }
  }

  void prepare() {
    const bool to_self = below(4) == 0;
    const std::size_t count = 1 + below(20);  // 17 and more are refused
    const std::uint64_t length = below(8) == 0 ? kBytes / 32 : 1 + below(500);
    std::vector<Descriptor> local(count, {here_.address(), length, here_.registration});
    std::vector<Descriptor> remote(count);
    for (std::size_t i = 0; i < count; ++i) {
      local[i].address = here_.address(below(kBytes / 4));
      remote[i] =
          to_self ? Descriptor{here_.address(kBytes / 2 + below(kBytes / 4)), length, own_range_}
                  : Descriptor{there_.address(below(kBytes / 2)), length, here_.range};
    }
    if (below(16) == 0) {
      remote.back().length = kBytes + 1;  // refused: outside, and of another length
    }
    auto request = here_.engine->prepare({below(2) == 0 ? Operation::kRead : Operation::kWrite,
                                          to_self ? self_ : here_.peer, local, remote});
    if (request) {
      requests_.push_back(*request);
    } else {
      ++refusals_[request.error().code()];
    }
    if (requests_.size() > kLiveMax) {
      end_one();
    }
  }

  void post() {
    if (requests_.empty()) {
      return;
    }
    PostOptions options;
    const std::vector<std::uint8_t> message(below(1'100), 1);  // the longest are refused
    if (below(4) == 0) {
      options.notification = std::span<const std::uint8_t>(message);
    }
    if (below(16) == 0) {
      options.timeout_ns = 1 + below(1'000'000);
    }
    const std::size_t which = below(requests_.size());
    const auto posted = here_.engine->post(requests_[which], options);
    if (posted) {
      return;
    }
    const ErrorCode refusal = posted.error().code();
    ++refusals_[refusal];
    if (refusal == ErrorCode::kNotRepostable || refusal == ErrorCode::kPeerRetired) {
      ASSERT_TRUE(here_.engine->release(requests_[which]).has_value());
      requests_.erase(requests_.begin() + static_cast<std::ptrdiff_t>(which));
    } else if (refusal == ErrorCode::kActive && below(4) == 0) {
      ASSERT_TRUE(eventually([&] { return here_.engine->check(requests_[which])->terminal(); }));
    }
  }

  void check_some() {
    for (const Handle request : requests_) {
      ASSERT_TRUE(here_.engine->check(request).has_value());
    }
  }

  void end_one() {
    if (requests_.empty()) {
      return;
    }
    const std::size_t which = below(requests_.size());
    const Handle request = requests_[which];
    if (below(3) == 0) {
      (void)here_.engine->cancel(request);
    }
    if (below(8) == 0) {
      ASSERT_TRUE(here_.engine->abandon(request).has_value());
    } else if (!here_.engine->release(request)) {
      return;
    }
    requests_.erase(requests_.begin() + static_cast<std::ptrdiff_t>(which));
  }

  void notify() {
    const std::vector<std::uint8_t> message(below(2'000), 2);
    const auto sent = here_.engine->send_notification(below(3) == 0 ? self_ : here_.peer, message);
    if (!sent) {
      ++refusals_[sent.error().code()];
    }
  }

  void register_or_not() {
    if (below(2) == 0) {
      MemoryDescriptor memory;
      memory.address = here_.address(below(kBytes / 2));
      memory.length = 1 + below(kBytes / 2);
      if (auto made = here_.engine->register_memory(memory)) {
        registrations_.push_back(*made);
      } else {
        ++refusals_[made.error().code()];
      }
    } else if (!registrations_.empty()) {
      ASSERT_TRUE(here_.engine->deregister_memory(registrations_.back()).has_value());
      registrations_.pop_back();
    }
  }

  void import_or_not() {
    if (below(2) == 0) {
      auto range = here_.engine->import_range(here_.peer, there_.blob, there_.address(), 100);
      if (range) {
        ranges_.push_back(*range);
      } else {
        ++refusals_[range.error().code()];
      }
      if (auto peer = here_.engine->import_peer("there", there_.engine->connection_blob())) {
        peers_.push_back(*peer);
      } else {
        ++refusals_[peer.error().code()];
      }
    } else {
      release_imports(1);
    }
  }
  void release_imports(std::size_t count) {
    for (; count > 0 && !ranges_.empty(); --count) {
      ASSERT_TRUE(here_.engine->release_range(ranges_.back()).has_value());
      ranges_.pop_back();
    }
    if (!peers_.empty()) {
      ASSERT_TRUE(here_.engine->retire_peer(peers_.back()).has_value());
      peers_.pop_back();
    }
  }

  void fetch() {
    while (here_.engine->receive_notification().has_value()) {
    }
    for (int i = 0; i < 8 && there_.engine->receive_notification().has_value(); ++i) {
    }
  }

  /// An engine that is gone before what was asked of it is answered.
  void meet_somebody_for_a_while() {
    Node other("other", kBytes);
    const Handle peer =
        here_.engine->import_peer("other", other.engine->connection_blob()).value_or(Handle{});
    if (peer == Handle{}) {
      return;
    }
    const auto range = here_.engine->import_range(peer, other.blob, other.address(), kBytes);
    if (range) {
      const Descriptor local{here_.address(), kBytes / 2, here_.registration};
      const Descriptor remote{other.address(), kBytes / 2, *range};
      const auto request =
          here_.engine->prepare({Operation::kWrite, peer, {&local, 1}, {&remote, 1}});
      if (request) {
        (void)here_.engine->post(*request, {});
        requests_.push_back(*request);
      }
      ASSERT_TRUE(here_.engine->release_range(*range).has_value());
    }
    other.engine.reset();
    ASSERT_TRUE(here_.engine->retire_peer(peer).has_value());
  }

  /// Everything that was made is ended and given back.
  void settle() {
    relay_.heal();
    for (const Handle request : requests_) {
      ASSERT_TRUE(eventually([&] {
        const Result<Outcome> outcome = here_.engine->check(request);
        return outcome->drain == Drain::kIdle || outcome->terminal();
      })) << here_.engine->info_json();
      ASSERT_TRUE(here_.engine->release(request).has_value());
    }
    requests_.clear();
    for (const Handle registration : std::exchange(registrations_, {})) {
      ASSERT_TRUE(here_.engine->deregister_memory(registration).has_value());
    }
    while (!ranges_.empty() || !peers_.empty()) {
      release_imports(1);
    }
    ASSERT_TRUE(eventually([&] {
      fetch();
      while (there_.engine->receive_notification().has_value()) {
      }
      return accounts_of(*here_.engine)["outbox_bytes"] == 0 &&
             accounts_of(*here_.engine)["inbox_bytes"] == 0 &&
             accounts_of(*here_.engine)["active"] == 0 &&
             accounts_of(*there_.engine)["inbox_bytes"] == 0 &&
             accounts_of(*there_.engine)["loans"] == 0;
    })) << here_.engine->info_json();
    relay_.break_again();
  }

  base::SeededRandom random_{20'261'130};
  FaultyRelay relay_{3};
  Node here_{"here", kBytes, small_config()};
  Node there_{"there", kBytes, relayed(relay_.port())};
  Handle self_;
  Handle own_range_;
  std::vector<Handle> requests_;
  std::vector<Handle> registrations_;
  std::vector<Handle> ranges_;
  std::vector<Handle> peers_;
  std::map<ErrorCode, std::uint64_t> refusals_;
};

// Its ranges overlap, as those of an application may that does not mind which bytes win: a race of
// its own, which ThreadSanitizer would report. The other builds run it.
#if !defined(__SANITIZE_THREAD__)
TEST_F(MixedOperations, LeaveEveryPoolAsItWasAndMemoryFlat) {
  work(kWarmUp);
  settle();
  const auto here_before = accounts_of(*here_.engine);
  const auto there_before = accounts_of(*there_.engine);
  const std::uint64_t resident_before = resident_bytes();
  work(kOperations);
  settle();
  EXPECT_EQ(accounts_of(*here_.engine), here_before);
  EXPECT_EQ(accounts_of(*there_.engine), there_before);
  if (kMemoryIsTold) {
    EXPECT_LT(resident_bytes(), resident_before + kResidentGrowthMax);
  }
  // It was as mixed as it should be.
  const Telemetry told = here_.engine->telemetry().value();
  std::uint64_t succeeded = 0;
  std::uint64_t failed = 0;
  std::uint64_t canceled = 0;
  for (const RouteTelemetry& route : told.routes) {
    succeeded += route.succeeded;
    failed += route.failed;
    canceled += route.canceled;
    EXPECT_EQ(route.posted, route.succeeded + route.failed + route.canceled);
  }
  EXPECT_GT(succeeded, static_cast<std::uint64_t>(kOperations / 20));
  EXPECT_GT(failed, 10U);
  EXPECT_GT(canceled, 0U);
  EXPECT_GT(relay_.resets(), 5U);
  EXPECT_GT(told.counters.lanes_reconnected, 5U);
  EXPECT_GT(told.counters.notifications_sent, 100U);
  for (const ErrorCode code : {ErrorCode::kBudgetExhausted, ErrorCode::kInvalidArgument,
                               ErrorCode::kLengthMismatch, ErrorCode::kActive}) {
    EXPECT_GT(refusals_[code], 0U) << error_name(code);
  }
}
#endif

TEST_F(MixedOperations, ARefusalNamesThePoolItsLimitAndTheKey) {
  const auto expect_refusal = [](const auto& result, const std::string& pool,
                                 const std::string& limit, const std::string& key) {
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().code(), ErrorCode::kBudgetExhausted);
    for (const std::string& part : {pool, limit, key}) {
      EXPECT_NE(result.error().message().find(part), std::string::npos)
          << result.error().message() << " lacks " << part;
    }
  };
  const auto exhaust = [](const auto& take) {
    auto result = take();
    for (int i = 0; i < 200 && result.has_value(); ++i) {
      result = take();
    }
    return result;
  };
  TransferEngine& engine = *here_.engine;
  expect_refusal(exhaust([&] { return engine.local_range(here_.registration); }), "imported range",
                 "24", "limits.ranges_max");
  expect_refusal(exhaust([&] { return engine.self_peer(); }), "peer", "6", "limits.peers_max");
  expect_refusal(
      exhaust([&] {
        return engine.register_memory({.address = here_.address(), .length = 1, .retired = {}});
      }),
      "registrations", "24", "limits.registrations_max");
  const std::vector<Descriptor> local(16, {here_.address(), 8, here_.registration});
  const std::vector<Descriptor> remote(16, {here_.address(64), 8, own_range_});
  const PrepareOptions many{Operation::kWrite, self_, local, remote};
  const auto prepare = [&](const PrepareOptions& options) {
    auto request = engine.prepare(options);
    if (request) {
      requests_.push_back(*request);
    }
    return request;
  };
  expect_refusal(exhaust([&] { return prepare(many); }), "descriptors", "240",
                 "limits.descriptors_max");
  while (!requests_.empty()) {
    ASSERT_TRUE(engine.release(requests_.back()).has_value());
    requests_.pop_back();
  }
  const PrepareOptions one{Operation::kWrite, self_, {local.data(), 1}, {remote.data(), 1}};
  expect_refusal(exhaust([&] { return prepare(one); }), "requests", "24", "limits.requests_max");
}

TEST_F(MixedOperations, APeerThatStallsLeavesTheOutboxToOthers) {
  relay_.heal();
  // It takes connections and says nothing.
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(listener, 8), 0);
  ASSERT_EQ(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
  wire::ConnectionBlob silent =
      wire::decode_connection(there_.engine->connection_blob(), wire::Profile::kMemory).value();
  silent.epoch.bytes[0] ^= 1;
  silent.port = ntohs(address.sin_port);
  TransferEngine& engine = *here_.engine;
  const Handle stalled = engine.import_peer("silent", wire::encode(silent)).value();
  const std::vector<std::uint8_t> message(1'000);
  Result<void> sent;
  for (int i = 0; i < 200 && sent.has_value(); ++i) {
    sent = engine.send_notification(stalled, message);
  }
  ASSERT_FALSE(sent.has_value());
  EXPECT_EQ(sent.error().code(), ErrorCode::kBudgetExhausted);
  EXPECT_NE(sent.error().message().find("outbox_bytes"), std::string::npos);
  EXPECT_NE(sent.error().message().find("notifications.outbox_bytes_max"), std::string::npos);
  EXPECT_TRUE(engine.send_notification(here_.peer, message).has_value());
  EXPECT_TRUE(eventually([&] { return there_.engine->receive_notification().has_value(); }));
  ::close(listener);
}

TEST_F(MixedOperations, AFloodOfAPeerLeavesTheInboxToOthers) {
  relay_.heal();
  Node flood("flood", 4'096, small_config());
  flood.know("there", there_);
  ASSERT_FALSE(there_.engine->receive_notification().has_value());
  const std::vector<std::uint8_t> message(1'000);
  const auto refused = [&] { return there_.engine->telemetry()->counters.notifications_refused; };
  ASSERT_TRUE(eventually([&] {
    (void)flood.engine->send_notification(flood.peer, message);
    return refused() > 10;
  }));
  ASSERT_TRUE(here_.engine->send_notification(here_.peer, message).has_value());
  EXPECT_TRUE(eventually([&] {
    const auto taken = there_.engine->receive_notification();
    return taken.has_value() && taken->sender == "here";
  }));
}

}  // namespace
}  // namespace orbite
